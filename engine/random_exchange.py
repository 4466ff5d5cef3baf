"""The exchange type of RabbitMQ's random plugin: each message goes to one of the bound destinations, by chance.

Routing keys play no part, neither of messages nor of bindings. Source: behaviour page 3.9.
"""

from collections.abc import Sequence

from .exchange import EXCHANGE_TYPES, Binding, Destination, Exchange
from .routed import Routed


class RandomExchange(Exchange):
    """All destinations alike, however many bindings each has."""

    type = "x-random"
    decides_each = True
    __slots__ = ()

    def match(self, message: Routed) -> Sequence[Destination]:
        """See `Exchange`."""
        bound = list(dict.fromkeys(binding.destination for binding in self.bindings.values()))
        return bound if len(bound) < 2 else (bound[int(message.chance() * len(bound))],)

    def _index(self, binding: Binding) -> None:
        """The set of bindings is the index."""

    def _unindex(self, binding: Binding) -> None:
        """The set of bindings is the index."""


EXCHANGE_TYPES[RandomExchange.type] = RandomExchange
