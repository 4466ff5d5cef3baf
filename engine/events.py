"""The kinds of events of messages, queues, connections and clusters, and their counters (a leaf: imports only Python).

The same words name the journal's records, the metrics, the test broker's history and the columns of the Spark tables.
Source: rulings, "Events".
"""

from enum import Enum
from operator import attrgetter


class EventKind(Enum):
    """All kinds of events, with their spelling everywhere."""

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


#: The names of the counters of events.
_EVENTS = (
    "acknowledged",
    "cancelled",
    "deleted",
    "delivered",
    "dropped",
    "enqueued",
    "expired",
    "killed",
    "lease_ended",
    "published",
    "purged",
    "replaced",
    "requeued",
    "routed",
    "unroutable",
)
#: Further counters.
_SORTS = (
    "no_ack",  # deliveries without acknowledgement
    "got",  # deliveries to basic.get
    "got_no_ack",  # deliveries to basic.get without acknowledgement
    "redelivered",  # redeliveries
    "get_empty",  # basic.get from an empty queue
    "delayed",  # requeued messages that are delayed
    "own",  # enqueued messages that the broker itself published, such as dead letters
)


class Counters:
    """Plain integers, incremented once for each run: the only cost of an event without listeners.

    `deaths`: number of dead messages by reason and by whether they were dead-lettered; None: none.
    """

    __slots__ = (*_EVENTS, *_SORTS, "deaths")

    def __init__(self) -> None:
        self.acknowledged = self.cancelled = self.deleted = self.delivered = self.dropped = self.enqueued = 0
        self.expired = self.killed = self.published = self.purged = self.replaced = self.requeued = 0
        self.lease_ended = self.routed = self.unroutable = 0
        self.no_ack = self.got = self.got_no_ack = self.redelivered = self.get_empty = self.delayed = self.own = 0
        self.deaths: dict[tuple[str, bool], int] | None = None

    # Declared for the type checker; the slots above are the storage.
    acknowledged: int
    cancelled: int
    deleted: int
    delivered: int
    dropped: int
    enqueued: int
    expired: int
    killed: int
    lease_ended: int
    published: int
    purged: int
    replaced: int
    requeued: int
    routed: int
    unroutable: int
    no_ack: int
    got: int
    got_no_ack: int
    redelivered: int
    get_empty: int
    delayed: int
    own: int

    def died(self, reason: str, count: int, *, goes_on: bool) -> None:
        """Count dead messages. `goes_on`: they are dead-lettered."""
        deaths = self.deaths
        if deaths is None:
            deaths = self.deaths = {}
        deaths[reason, goes_on] = deaths.get((reason, goes_on), 0) + count

    def add(self, other: "Counters") -> None:
        for name, count in zip(_COUNTS, _ALL_OF(other)):
            if count:  # most counters of a queue are 0
                setattr(self, name, getattr(self, name) + count)
        for (reason, goes_on), count in (other.deaths or {}).items():
            self.died(reason, count, goes_on=goes_on)

    def as_dict(self) -> dict[str, int]:
        """The counters of events by name."""
        return dict(zip(_EVENTS, _ALL_OF(self)))  # `_ALL_OF` begins with `_EVENTS`: the further counters are left out


_COUNTS = _EVENTS + _SORTS
_ALL_OF = attrgetter(*_COUNTS)


class Activity:
    """Counters of clients and queues since the broker started. The hot path touches none of them.

    `queues_declared`: successful declarations of queues; `queues_created`: those that created one.

    `confirmable`, `confirmed`: publishes on closed sessions in confirm mode, and those of them that were confirmed.
    `octets_in`, `octets_out`, `reads`, `writes`: of closed connections.
    `returned`, `dropped`: unroutable publishes. `own`: messages that the broker itself published, such as dead letters;
    `Counters.published` includes them.
    `gone`: the counters of deleted queues by type; those of classic queues are only in the broker's counters.
    """

    __slots__ = (
        "channels_closed",
        "channels_opened",
        "confirmable",
        "confirmed",
        "connections_closed",
        "connections_opened",
        "dropped",
        "gone",
        "octets_in",
        "octets_out",
        "own",
        "queues_created",
        "queues_declared",
        "queues_deleted",
        "reads",
        "returned",
        "writes",
    )

    def __init__(self) -> None:
        self.connections_opened = self.connections_closed = self.channels_opened = self.channels_closed = 0
        self.queues_declared = self.queues_created = self.queues_deleted = 0
        self.octets_in = self.octets_out = self.reads = self.writes = 0
        self.confirmable = self.confirmed = self.returned = self.dropped = self.own = 0
        self.gone: dict[str, Counters] = {}

    def queue_deleted(self, queue_type: str, counters: Counters) -> None:
        """Add the counters of a deleted queue."""
        self.queues_deleted += 1
        if queue_type != "classic":
            self.gone.setdefault(queue_type, Counters()).add(counters)
