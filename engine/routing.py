"""Routes: the way from an exchange, through others bound to it, to queues. Source: behaviour page 2.3, 2.10."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from .exchange import Exchange
from .queue import Queue
from .routed import Routed

if TYPE_CHECKING:
    from .arrival import ArrivalRules
    from .message import Envelope
    from .virtual_host import VirtualHost


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

    def undecided(self) -> "Route":
        """The same for messages that are to be looked at one by one."""
        return Route(self.exchange, self.routing_key, None, self.version, self.arrival)


class ChosenRoute(Route):
    """A route whose queues were chosen when the messages were published, by name: of those that are there now."""

    __slots__ = ()

    def __init__(self, route: Route, names: Sequence[str], vhost: "VirtualHost") -> None:
        there = [queue for name in names if (queue := vhost.queue_named(name)) is not None and queue.is_open]
        super().__init__(route.exchange, route.routing_key, there, vhost.topology_version, route.arrival)

    def undecided(self) -> Route:
        return self


def choose(
    route: Route, envelope: "Envelope", blobs: Sequence[bytes], vhost: "VirtualHost"
) -> Iterator[tuple[list[str], Sequence[bytes]]]:
    """The names of the queues that a run goes to, with its messages: those of the default exchange also before they
    are there."""
    named = () if route.exchange.name else envelope.keys
    if route.queues is not None and not envelope.copies:
        yield list(dict.fromkeys((*named, *(queue.name for queue in route.queues)))), blobs
        return
    for blob in blobs:
        queues = vhost.reach(route.exchange, Routed(envelope.keys, envelope, blob, vhost.broker.chance))
        yield list(dict.fromkeys((*named, *(queue.name for queue in queues)))), (blob,)


class Outcome(NamedTuple):
    """What became of a run: blobs that no queue took, and offsets of messages that a queue's limit refused."""

    unroutable: Sequence[bytes]
    refused: Sequence[int]


ALL_WELL = Outcome((), ())


def alternate_of(exchange: Exchange, vhost: "VirtualHost") -> Exchange | None:
    """Where an exchange sends what none of its bindings matches; None also while that one does not exist."""
    return None if exchange.alternate is None else vhost.exchanges.get(exchange.alternate)


def decides_each(start: Exchange, vhost: "VirtualHost") -> bool:
    """Whether any exchange that can be reached decides message by message."""
    seen = {start: None}
    stack = [start]
    while stack:
        exchange = stack.pop()
        if exchange.decides_each:
            return True
        found = [binding.destination for binding in exchange.bindings.values()]
        for destination in [*found, alternate_of(exchange, vhost)]:
            if isinstance(destination, Exchange) and destination not in seen:
                seen[destination] = None
                stack.append(destination)
    return False


def reach(start: Exchange, message: Routed, vhost: "VirtualHost") -> list[Queue]:
    """All queues that a message comes to, each once; every exchange is visited at most once.

    An exchange without a destination for the message hands it to its alternate exchange. A binding that matches is a
    destination wherever it leads, as in RabbitMQ.
    """
    if not start.name:
        return [queue for key in dict.fromkeys(message.keys) if (queue := vhost.queue_named(key)) is not None]
    queues: dict[Queue, None] = {}
    seen = {start: None}
    stack = [start]
    while stack:
        exchange = stack.pop()
        found = exchange.match(message)
        if not found and (alternate := alternate_of(exchange, vhost)) is not None:
            found = (alternate,)
        for destination in found:
            if isinstance(destination, Queue):
                queues[destination] = None
            elif destination not in seen:
                seen[destination] = None
                stack.append(destination)
    return list(queues)
