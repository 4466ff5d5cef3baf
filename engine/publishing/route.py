"""Routes: the queues of an exchange and routing key.

Source: behaviour page 2.3, 2.15.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ..context import HostContext
from ..exchanges.exchange import Exchange
from ..exchanges.routed import Routed
from ..messages.message import Envelope
from ..queues.queue import Queue
from ..rules.limits import BLOCK
from .arrival_rules import ArrivalRules


class Route:
    """The queues of messages with one exchange and routing key. `is_stale`: look it up again.

    `queues`: None: they differ by message. `arrival`: None: the address has no rules, except for messages with marks.
    """

    __slots__ = ("__weakref__", "arrival", "exchange", "is_stale", "queues", "routing_key")

    def __init__(
        self, exchange: Exchange, routing_key: str, queues: list[Queue] | None, arrival: ArrivalRules | None = None
    ) -> None:
        self.arrival = arrival
        self.exchange = exchange
        self.routing_key = routing_key
        self.queues = queues
        self.is_stale = False

    @property
    def only_queue(self) -> Queue | None:
        """The only queue, if all plain messages go to it and the address has no rules; else None."""
        queues = self.queues
        return queues[0] if queues is not None and len(queues) == 1 and self.arrival is None else None

    @property
    def is_metered(self) -> bool:
        """Whether a limit may apply to publishes, so that they need `Session.publish_with_room`. O(queues)."""
        return self.queues is None or any(queue.meter is not None for queue in self.queues)

    def waits_for_disk(self, envelope: Envelope, *, is_confirmed: bool) -> bool:
        """Whether publishes to this route are blocked while the disk is full, and not refused or dropped. O(queues).

        The strictest disk-full-policy of the queues that store them decides. Without a policy, unconfirmed publishes
        are blocked, because they would be lost without notice.
        """
        if self.queues is None:
            return envelope.summary.persistent and not is_confirmed
        policies = {queue.rules.size.disk_policy for queue in self.queues if queue.stores(envelope)}
        return BLOCK in policies or (None in policies and not is_confirmed)

    def for_each(self) -> "Route":
        """This route for messages that are routed one by one."""
        return Route(self.exchange, self.routing_key, None, self.arrival)


class ChosenRoute(Route):
    """A route whose queues were chosen before, by `choose` or `publish_with_room`."""

    __slots__ = ()

    def __init__(self, route: Route, queues: list[Queue]) -> None:
        super().__init__(route.exchange, route.routing_key, queues, route.arrival)

    def for_each(self) -> Route:
        return self


class Outcome(NamedTuple):
    """The outcome of a run of messages: contents that no queue took, and offsets of those that a queue refused, by a
    limit or because the journal cannot write.
    """

    unroutable: Sequence[bytes]
    refused: Sequence[int]


ALL_TAKEN = Outcome((), ())


def choose(
    route: Route, envelope: Envelope, contents: Sequence[bytes], host: HostContext
) -> Iterator[tuple[list[str], Sequence[bytes]]]:
    """Choose the queues of a run that a transaction publishes later: (names of queues, contents for them).

    At the default exchange a routing key names a queue, even one that does not exist yet.
    """
    rules, sites = route.arrival, host.broker.sites
    if rules is not None and rules.site is not None and rules.site != sites.now:
        with sites.at(rules.site):
            yield from list(choose(route, envelope, contents, host))
        return
    captures = host.router.captures
    keys = () if route.exchange.name else envelope.keys
    named = [key for key in keys if key and key not in captures.targets and not captures.is_capturing(key)]
    if route.queues is not None and not envelope.copies:
        yield list(dict.fromkeys((*named, *(queue.name for queue in route.queues)))), contents
        return
    for content in contents:
        queues = host.router.reach(route.exchange, Routed(envelope.keys, envelope, content, host.broker.chance))
        yield list(dict.fromkeys((*named, *(queue.name for queue in queues)))), (content,)


def chosen_route(route: Route, names: Sequence[str], host: HostContext) -> ChosenRoute:
    """The route to those queues among the names of `choose` that exist now and are open."""
    found = (host.queue_named(name) if name else host.router.captures.log for name in names)
    return ChosenRoute(route, [queue for queue in found if queue is not None and queue.is_open])
