"""The broker's counters equal what its events add up to."""

from __future__ import annotations

from collections import Counter

from leveret.engine import (
    AckedEvent,
    Broker,
    ConnectionEvent,
    DeliveredEvent,
    EnqueuedEvent,
    EventKind,
    LeaseEndedEvent,
    LeftEvent,
    PublishedEvent,
    QueueEvent,
    RequeuedEvent,
)

from ..ledger import Broken, QueueName
from .book import Book, Handlers
from .whereabouts import Whereabouts

#: Kind of the event by which a message left -> the counter that counts it.
COUNTER = {
    EventKind.EXPIRED: "expired",
    EventKind.DEAD_LETTERED: "killed",
    EventKind.KILLED: "killed",
    EventKind.EVICTED: "replaced",
    EventKind.REPLACED: "replaced",
    EventKind.DROPPED: "dropped",
    EventKind.PURGED: "purged",
    EventKind.DELETED: "deleted",
    EventKind.CANCELLED: "cancelled",
}


#: The exchange that the broker itself serves.
CONTROL = "amps.control"
#: Totals of all connections.
TOTALS = ("octets_in", "octets_out", "reads", "writes")


class Statistics(Book):
    """Counted since the life, or the queue, began."""

    def __init__(self, where: Whereabouts) -> None:
        self._where = where
        self._counted: dict[QueueName, Counter[str]] = {}
        self._published = self._unroutable = 0
        self._before = {"published": 0, "unroutable": 0}
        self._totals: dict[str, int] = {}
        self._broker: Broker | None = None

    def handlers(self) -> Handlers:
        return {
            QueueEvent: self._queue,
            PublishedEvent: self._on_published,
            EnqueuedEvent: self._enqueued,
            DeliveredEvent: self._delivered,
            AckedEvent: self._acked,
            RequeuedEvent: self._requeued,
            LeftEvent: self._left,
            LeaseEndedEvent: self._lease_ended,
            ConnectionEvent: self._connection,
        }

    def attach(self, broker: Broker) -> None:
        self._broker = broker
        self._counted = {name: Counter(place.queue.counters.as_dict()) for name, place in self._where.places.items()}
        self._before = broker.statistics().counters
        self._published = self._unroutable = 0
        self._totals = {}

    def _queue(self, event: QueueEvent) -> None:
        if event.kind is EventKind.DECLARED:
            self._counted[event.vhost, event.subject] = Counter()

    def _of(self, event: EnqueuedEvent | DeliveredEvent | AckedEvent | RequeuedEvent | LeftEvent) -> Counter[str]:
        return self._counted[event.vhost, event.subject]

    def _on_published(self, event: PublishedEvent) -> None:
        self._published += len(event.messages)
        if not event.queues and event.subject != CONTROL:
            self._unroutable += len(event.messages)

    def _enqueued(self, event: EnqueuedEvent) -> None:
        self._of(event)["enqueued"] += len(event.messages)

    def _delivered(self, event: DeliveredEvent) -> None:
        self._of(event)["delivered"] += len(event.messages)

    def _acked(self, event: AckedEvent) -> None:
        self._of(event)["acknowledged"] += len(event.messages)

    def _requeued(self, event: RequeuedEvent) -> None:
        self._of(event)["requeued"] += len(event.messages)

    def _lease_ended(self, event: LeaseEndedEvent) -> None:
        self._counted[event.vhost, event.subject]["lease_ended"] += len(event.messages)

    def _left(self, event: LeftEvent) -> None:
        self._of(event)[COUNTER[event.kind]] += len(event.messages)

    def counted(self, vhost: str, queue: str, counter: str) -> int:
        """How many messages of a queue events told this of, in this life; also when the queue is gone."""
        return self._counted.get((vhost, queue), Counter[str]())[counter]

    def _connection(self, event: ConnectionEvent) -> None:
        """One came, or is gone and still counts."""
        if self._broker is not None:
            self._check_totals(self._broker)

    def _check_totals(self, broker: Broker) -> None:
        """What connections sent and received, also of those that are gone."""
        activity, connections = broker.context.activity, [client.connection_info for client in broker.connections]
        for total in TOTALS:
            now = getattr(activity, total) + sum(getattr(one, total) for one in connections)
            if now < self._totals.get(total, 0):
                raise Broken(f"the broker counts {now} {total}, before there were {self._totals[total]}")
            self._totals[total] = now

    def check(self) -> None:
        assert self._broker is not None
        for name, place in self._where.places.items():
            counted = self._counted[name]
            durability = self._broker.context.storage.durability
            for counter, value in place.queue.counters.as_dict().items():
                if counter == "dropped" and durability is not None:
                    continue  # what is refused because the journal takes nothing is counted and not announced
                if value != counted[counter]:
                    raise Broken(f"{name} counts {value} {counter}, of events there were {counted[counter]}")
        self._check_totals(self._broker)
        statistics = self._broker.statistics()
        places = self._where.places.values()
        sums = {
            "queues": len(self._where.places),
            "ready": sum(len(place.ready) for place in places),
            "scheduled": sum(len(place.waiting) for place in places),
        }
        if not any(place.keeps or place.has_slots for place in places):
            sums["unacked"] = sum(len(place.out) for place in places)
        for kind, value in sums.items():
            if getattr(statistics, kind) != value:
                raise Broken(f"the broker counts {getattr(statistics, kind)} {kind}, of events there are {value}")
        for counter, value in (("published", self._published), ("unroutable", self._unroutable)):
            now = statistics.counters[counter] - self._before[counter]
            if now != value:
                raise Broken(f"the broker counts {now} {counter}, of events there were {value}")
