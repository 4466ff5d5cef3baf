"""The exchange type of RabbitMQ's random plugin: each message goes to one random destination.

Routing keys of messages and bindings are ignored. Source: behaviour page 3.9.
"""

from collections.abc import Sequence

from .exchange import EXCHANGE_TYPES, Binding, Destination, Exchange
from .routed import Routed


class RandomExchange(Exchange):
    """Chooses each destination with the same chance, whatever the number of its bindings."""

    type = "x-random"
    decides_each = True
    __slots__ = ("_bound",)

    def _prepare(self) -> None:
        self._bound: list[Destination] | None = None  # None: bindings have changed

    def match(self, message: Routed) -> Sequence[Destination]:
        bound = self._bound
        if bound is None:
            message.cost += len(self.destinations) // 32
            bound = self._bound = list(self.destinations)
        return bound if len(bound) < 2 else (bound[int(message.chance() * len(bound))],)

    def _index(self, binding: Binding) -> None:
        self._bound = None

    def _unindex(self, binding: Binding) -> None:
        self._bound = None


class LocalRandomExchange(RandomExchange):
    """RabbitMQ 4.0's core type, which chooses among the queues of the node. In Leveret one node has all queues."""

    type = "x-local-random"


EXCHANGE_TYPES[RandomExchange.type] = RandomExchange
EXCHANGE_TYPES[LocalRandomExchange.type] = LocalRandomExchange
