"""Routes: the way from an exchange, through others bound to it, to queues. Source: behaviour page 2.3, 2.10."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ..exchanges.exchange import Exchange
from ..exchanges.routed import Routed
from ..queues.queue import Queue

if TYPE_CHECKING:
    from ..messages.message import Envelope
    from ..virtual_host import VirtualHost
    from .arrival import ArrivalRules


class Route:
    """Where messages of one exchange and routing key go, until `is_stale`: then it is to be looked up again.

    `queues` is None when it depends on each message; `arrival` when the address does nothing with unmarked messages.
    """

    __slots__ = ("__weakref__", "arrival", "exchange", "is_stale", "queues", "routing_key")

    def __init__(
        self,
        exchange: Exchange,
        routing_key: str,
        queues: list[Queue] | None,
        arrival: "ArrivalRules | None" = None,
    ) -> None:
        self.arrival = arrival
        self.exchange = exchange
        self.routing_key = routing_key
        self.queues = queues
        self.is_stale = False

    def undecided(self) -> "Route":
        """The same for messages that are to be looked at one by one."""
        return Route(self.exchange, self.routing_key, None, self.arrival)


class ChosenRoute(Route):
    """A route whose queues were chosen when the messages were published, by name: of those that are there now."""

    __slots__ = ()

    def __init__(self, route: Route, names: Sequence[str], vhost: "VirtualHost") -> None:
        there = [queue for name in names if (queue := vhost.queue_named(name)) is not None and queue.is_open]
        super().__init__(route.exchange, route.routing_key, there, route.arrival)

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


#: What an exchange on the way costs, and destinations found (or keys looked up) for one more, by `Broker.spread`.
EXCHANGE_COST, FOUND_A_STEP = 2, 8


def alternate_of(exchange: Exchange, vhost: "VirtualHost") -> Exchange | None:
    """Where an exchange sends what none of its bindings matches; None also while that one does not exist."""
    return None if exchange.alternate is None else vhost.exchanges.get(exchange.alternate)


def reach(start: Exchange, message: Routed, vhost: "VirtualHost") -> list[Queue]:
    """All queues that a message comes to, each once; every exchange is visited at most once.

    An exchange without a destination for the message hands it to its alternate exchange. A binding that matches is a
    destination wherever it leads, as in RabbitMQ.
    """
    if not start.name:
        message.cost += len(message.keys) // FOUND_A_STEP
        return [queue for key in dict.fromkeys(message.keys) if (queue := vhost.queue_named(key)) is not None]
    return _walk({start: None}, message, vhost, decides_each=False) or []


def reach_all(start: Exchange, message: Routed, vhost: "VirtualHost") -> tuple[list[Queue] | None, Iterable[Exchange]]:
    """The queues that every message with these keys comes to, None: it depends on each; the exchanges on the way.

    As long as nothing changes at these exchanges the answer is the same.
    """
    seen = {start: None}
    if not start.name:
        return reach(start, message, vhost), seen
    return _walk(seen, message, vhost, decides_each=True), seen


def _walk(
    seen: dict[Exchange, None], message: Routed, vhost: "VirtualHost", *, decides_each: bool
) -> list[Queue] | None:
    """From the exchange in `seen`, which gets those that are visited. None: at one that decides each message."""
    queues: dict[Queue, None] = {}
    stack = list(seen)
    while stack:
        exchange = stack.pop()
        if decides_each and exchange.decides_each:
            return None
        # To exchanges a destination is opaque; nothing but these two is ever bound.
        found: Sequence[Queue | Exchange] = exchange.match(message)  # type: ignore[assignment]
        message.cost += EXCHANGE_COST + (len(found) + len(message.keys)) // FOUND_A_STEP
        if not found and (alternate := alternate_of(exchange, vhost)) is not None:
            found = (alternate,)
        for destination in found:
            if isinstance(destination, Queue):
                queues[destination] = None
            elif destination not in seen:
                seen[destination] = None
                stack.append(destination)
    return list(queues)
