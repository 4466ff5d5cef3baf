"""The kinds of events of messages, queues, connections and clusters, and their counters.

The journal's records, the metrics, the test broker's history and the columns of the Spark tables have the same names.
Source: rulings, "Events".
"""

from dataclasses import field, fields
from enum import Enum
from operator import attrgetter

from ..settings.slotted import slotted


class EventKind(Enum):
    """All kinds of events, by their names."""

    PUBLISHED = "published"
    ROUTED = "routed"
    UNROUTABLE = "unroutable"
    ENQUEUED = "enqueued"
    DELIVERED = "delivered"
    REQUEUED = "requeued"
    SCHEDULED = "scheduled"
    DUE = "due"
    LEASE_ENDED = "lease_ended"
    ACKED = "acked"
    EXPIRED = "expired"
    DEAD_LETTERED = "dead_lettered"
    KILLED = "killed"
    EVICTED = "evicted"
    REPLACED = "replaced"
    DROPPED = "dropped"
    PURGED = "purged"
    DELETED = "deleted"
    CANCELLED = "cancelled"
    MOVED = "moved"
    BLOCKED = "blocked"
    UNBLOCKED = "unblocked"
    DECLARED = "declared"
    UNDECLARED = "undeclared"
    BOUND = "bound"
    UNBOUND = "unbound"
    SETTINGS_CHANGED = "settings_changed"
    CONNECTION_OPENED = "connection_opened"
    CONNECTION_CLOSED = "connection_closed"
    CONSUMER_ADDED = "consumer_added"
    CONSUMER_REMOVED = "consumer_removed"
    LED = "led"
    FOLLOWED = "followed"
    IN_SYNC_CHANGED = "in_sync_changed"
    HELD = "held"
    SUSPENDED = "suspended"
    TRANSFERRED = "transferred"


#: The events that remove a message from a queue; at most one of them for each (message, queue).
TERMINAL = frozenset(
    {
        EventKind.ACKED,
        EventKind.EXPIRED,
        EventKind.DEAD_LETTERED,
        EventKind.KILLED,
        EventKind.EVICTED,
        EventKind.REPLACED,
        EventKind.DROPPED,
        EventKind.PURGED,
        EventKind.DELETED,
        EventKind.CANCELLED,
    }
)


@slotted
class Counters:
    """Counters of events, incremented once a run, which is the only cost of an event without listeners.

    `deaths`: numbers of dead messages by reason and by whether they were dead-lettered; None: there were none.
    """

    # Of events:
    acknowledged: int = 0
    cancelled: int = 0
    deleted: int = 0
    delivered: int = 0
    dropped: int = 0
    enqueued: int = 0
    expired: int = 0
    killed: int = 0
    lease_ended: int = 0
    published: int = 0
    purged: int = 0
    replaced: int = 0
    requeued: int = 0
    routed: int = 0
    unroutable: int = 0
    # Others (`_NOT_OF_EVENTS`):
    no_ack: int = 0  # deliveries without acknowledgement
    got: int = 0  # deliveries to basic.get
    got_no_ack: int = 0  # deliveries to basic.get without acknowledgement
    redelivered: int = 0  # redeliveries
    get_empty: int = 0  # basic.get from an empty queue
    delayed: int = 0  # requeued messages that are delayed
    own: int = 0  # enqueued messages that the broker published, such as dead letters
    deaths: dict[tuple[str, bool], int] | None = None

    def died(self, reason: str, count: int, *, is_dead_lettered: bool) -> None:
        deaths = self.deaths
        if deaths is None:
            deaths = self.deaths = {}
        deaths[reason, is_dead_lettered] = deaths.get((reason, is_dead_lettered), 0) + count

    def add(self, other: "Counters") -> None:
        for name, count in zip(_COUNTS, _counts_of(other)):
            if count:  # most counters of a queue are 0
                setattr(self, name, getattr(self, name) + count)
        for (reason, is_dead_lettered), count in (other.deaths or {}).items():
            self.died(reason, count, is_dead_lettered=is_dead_lettered)

    def as_dict(self) -> dict[str, int]:
        """The counters of events by name."""
        return {name: getattr(self, name) for name in _EVENTS}


_COUNTS = [one.name for one in fields(Counters) if one.name != "deaths"]
_NOT_OF_EVENTS = ("no_ack", "got", "got_no_ack", "redelivered", "get_empty", "delayed", "own")
_EVENTS = [name for name in _COUNTS if name not in _NOT_OF_EVENTS]
_counts_of = attrgetter(*_COUNTS)


@slotted
class Activity:
    """Counters of clients and queues since the broker started. The hot path touches none of them."""

    connections_opened: int = 0
    connections_closed: int = 0
    channels_opened: int = 0
    channels_closed: int = 0
    queues_declared: int = 0  # successful declarations of queues
    queues_created: int = 0  # declarations that created a queue
    queues_deleted: int = 0
    octets_in: int = 0  # of closed connections, like the next three
    octets_out: int = 0
    reads: int = 0
    writes: int = 0
    confirmable: int = 0  # publishes on closed sessions in confirm mode
    confirmed: int = 0  # of these publishes
    returned: int = 0  # unroutable mandatory publishes
    dropped: int = 0  # other unroutable publishes
    own: int = 0  # messages that the broker published, such as dead letters; also in `Counters.published`
    # Counters of deleted queues, by type; those of classic queues are only in the broker's counters.
    gone: dict[str, Counters] = field(default_factory=dict)

    def queue_deleted(self, queue_type: str, counters: Counters) -> None:
        """Add the counters of a deleted queue."""
        self.queues_deleted += 1
        if queue_type != "classic":
            self.gone.setdefault(queue_type, Counters()).add(counters)
