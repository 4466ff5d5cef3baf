"""Routes: the way from an exchange, through others bound to it, to queues. Source: behaviour page 2.3, 2.10."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from .exchange import Exchange
from .field_table import FieldTable
from .queue import Queue

if TYPE_CHECKING:
    from .arrival import ArrivalRules


class Route:
    """Where messages of one exchange and routing key go, as long as `version` is the virtual host's.

    `queues` is None when it depends on each message; `arrival` when the address does nothing with unmarked messages.
    """

    __slots__ = ("arrival", "exchange", "queues", "routing_key", "version")

    def __init__(
        self,
        exchange: Exchange,
        routing_key: str,
        queues: list[Queue] | None,
        version: int,
        arrival: "ArrivalRules | None" = None,
    ) -> None:
        self.arrival = arrival
        self.exchange = exchange
        self.routing_key = routing_key
        self.queues = queues
        self.version = version


class Outcome(NamedTuple):
    """What became of a run: blobs that no queue took, and offsets of messages that a queue's limit refused."""

    unroutable: Sequence[bytes]
    refused: Sequence[int]


ALL_WELL = Outcome((), ())


def looks_at_headers(start: Exchange) -> bool:
    """Whether any exchange that can be reached decides by headers."""
    seen = {start: None}
    stack = [start]
    while stack:
        exchange = stack.pop()
        if exchange.looks_at_headers:
            return True
        for binding in exchange.bindings.values():
            destination = binding.destination
            if isinstance(destination, Exchange) and destination not in seen:
                seen[destination] = None
                stack.append(destination)
    return False


def reach(start: Exchange, routing_key: str, headers: FieldTable, named: Mapping[str, Queue]) -> list[Queue]:
    """All queues that a message comes to, each once; every exchange is visited at most once.

    `named`: the queues by name, for the default exchange.
    """
    if not start.name:
        queue = named.get(routing_key)
        return [queue] if queue is not None else []
    queues: dict[Queue, None] = {}
    seen = {start: None}
    stack = [start]
    while stack:
        for destination in stack.pop().match(routing_key, headers):
            if isinstance(destination, Queue):
                queues[destination] = None
            elif destination not in seen:
                seen[destination] = None
                stack.append(destination)
    return list(queues)
