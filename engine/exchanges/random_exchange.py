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
    __slots__ = ("_choices",)

    def _prepare(self) -> None:
        self._choices: list[Destination] | None = None  # None: bindings have changed

    def match(self, message: Routed) -> Sequence[Destination]:
        choices = self._choices
        if choices is None:
            message.cost += len(self.destinations) // 32
            choices = self._choices = list(self.destinations)
        return choices if len(choices) < 2 else (choices[int(message.chance() * len(choices))],)

    def _index(self, binding: Binding) -> None:
        self._choices = None

    _unindex = _index


class LocalRandomExchange(RandomExchange):
    """RabbitMQ 4.0's core type, which chooses among the queues of the node. In Leveret one node has all queues."""

    type = "x-local-random"


EXCHANGE_TYPES[RandomExchange.type] = RandomExchange
EXCHANGE_TYPES[LocalRandomExchange.type] = LocalRandomExchange
