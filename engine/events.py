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


class Counters:
    """Plain integers, bumped once a run: what an event costs when nobody listens."""

    __slots__ = (
        "acknowledged",
        "cancelled",
        "deleted",
        "delivered",
        "dropped",
        "enqueued",
        "expired",
        "killed",
        "published",
        "purged",
        "replaced",
        "requeued",
        "routed",
        "unroutable",
    )

    def __init__(self) -> None:
        self.acknowledged = self.cancelled = self.deleted = self.delivered = self.dropped = self.enqueued = 0
        self.expired = self.killed = self.published = self.purged = self.replaced = self.requeued = 0
        self.routed = self.unroutable = 0

    # Declared for the type checker; the slots above are the storage.
    acknowledged: int
    cancelled: int
    deleted: int
    delivered: int
    dropped: int
    enqueued: int
    expired: int
    killed: int
    published: int
    purged: int
    replaced: int
    requeued: int
    routed: int
    unroutable: int

    def add(self, other: "Counters") -> None:
        """Add another's counts to these."""
        for name, count in zip(self.__slots__, _ALL_OF(other)):
            if count:  # few of a queue's are
                setattr(self, name, getattr(self, name) + count)

    def as_dict(self) -> dict[str, int]:
        """Counter name -> value."""
        return dict(zip(self.__slots__, _ALL_OF(self)))


_ALL_OF = attrgetter(*Counters.__slots__)
