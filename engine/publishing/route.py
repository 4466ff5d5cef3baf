"""Routes: where messages of one exchange and routing key go. Source: behaviour page 2.3."""

from collections.abc import Sequence
from typing import NamedTuple

from ..exchanges.exchange import Exchange
from ..messages.message import Envelope
from ..queues.queue import Queue
from ..rules.size_rules import BLOCK
from .arrival_rules import ArrivalRules


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
        arrival: ArrivalRules | None = None,
    ) -> None:
        self.arrival = arrival
        self.exchange = exchange
        self.routing_key = routing_key
        self.queues = queues
        self.is_stale = False

    @property
    def only_queue(self) -> Queue | None:
        """The one queue that all plain messages go to, where nothing else happens to them."""
        queues = self.queues
        return queues[0] if queues is not None and len(queues) == 1 and self.arrival is None else None

    @property
    def is_metered(self) -> bool:
        """Whether a limit concerns what is published here: ask `Session.offer`, which may hold or refuse it.

        Where the queues depend on each message, any of them may be limited. O(queues).
        """
        return self.queues is None or any(queue.meter is not None for queue in self.queues)

    def waits_for_disk(self, envelope: Envelope, *, is_confirmed: bool) -> bool:
        """Whether messages that have to be stored wait while the disk is full, and are neither refused nor dropped.

        As the addresses say that store them (disk-full-policy); where none says anything those wait that would be lost
        silently, as nobody confirms them. The strictest decides. O(queues).
        """
        if self.queues is None:
            return envelope.facts.persistent and not is_confirmed
        policies = {queue.rules.size.disk_policy for queue in self.queues if queue.stores(envelope)}
        return BLOCK in policies or (None in policies and not is_confirmed)

    def undecided(self) -> "Route":
        """The same for messages that are to be looked at one by one."""
        return Route(self.exchange, self.routing_key, None, self.arrival)


class ChosenRoute(Route):
    """A route whose queues were chosen when the messages were published: those of them that are there now."""

    __slots__ = ()

    def __init__(self, route: Route, queues: list[Queue]) -> None:
        super().__init__(route.exchange, route.routing_key, queues, route.arrival)

    def undecided(self) -> Route:
        return self


class Outcome(NamedTuple):
    """What became of a run: blobs that no queue took, and offsets of messages that a queue's limit refused."""

    unroutable: Sequence[bytes]
    refused: Sequence[int]


ALL_WELL = Outcome((), ())
