"""The one vocabulary of what can happen to a message, a queue, a connection (a leaf: imports nothing of ours).

The same words are the journal's record kinds, the metrics' names, the test broker's history and the columns of the
Spark tables. Source: rulings, "Events".
"""

from enum import Enum
from operator import attrgetter


class EventKind(Enum):
    """Every event, spelt as it is written everywhere."""

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


#: After one of these a message is no longer in the queue; at most one of them per (message, queue).
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


#: Counters of events, by their names.
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
#: Of the deliveries: without acknowledgements, to gets, both, not for the first time; gets that got nothing; of the
#: returned ones those that have to wait; and of the enqueued ones those that the broker published (dead letters).
_SORTS = ("no_ack", "got", "got_no_ack", "redelivered", "get_empty", "delayed", "own")


class Counters:
    """Plain integers, bumped once a run: what an event costs when nobody listens.

    `deaths`: messages by reason and whether they went on as dead letters; None: none.
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
        """Messages died. `goes_on`: there is a target for dead letters."""
        deaths = self.deaths
        if deaths is None:
            deaths = self.deaths = {}
        deaths[reason, goes_on] = deaths.get((reason, goes_on), 0) + count

    def add(self, other: "Counters") -> None:
        """Add another's counts to these."""
        for name, count in zip(_COUNTS, _ALL_OF(other)):
            if count:  # few of a queue's are
                setattr(self, name, getattr(self, name) + count)
        for (reason, goes_on), count in (other.deaths or {}).items():
            self.died(reason, count, goes_on=goes_on)

    def as_dict(self) -> dict[str, int]:
        """Counter name -> value: those of events."""
        return dict(zip(_EVENTS, _ALL_OF(self)))


_COUNTS = _EVENTS + _SORTS
_ALL_OF = attrgetter(*_COUNTS)


class Activity:
    """What happened to clients and queues since the broker started. None of it is touched on the hot path.

    `queues_declared`: successful declarations of queues; `queues_created`: those that made one.

    `confirmable`, `confirmed`: publishes on confirming sessions that are closed, and how many of them were confirmed.
    `octets_in`, `octets_out`, `reads`, `writes`: of connections that are closed.
    `returned`, `dropped`: unroutable publishes, by what became of them. `own`: messages that the broker published
    itself (dead letters and the like), which `Counters.published` has as well.
    `gone`: what happened in deleted queues, by their type; classic ones are in the broker's counters alone.
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
        """A queue is gone, with all that happened in it."""
        self.queues_deleted += 1
        if queue_type != "classic":
            self.gone.setdefault(queue_type, Counters()).add(counters)
