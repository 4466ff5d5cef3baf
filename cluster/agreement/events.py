"""What etcd, the journal, the links, operators and the clock tell a node's agreement, as values.

Events have no time: `Agreement.handle` gets it as a second argument.
"""

from dataclasses import dataclass

from ...journal.format.errors import Damaged
from ...journal.format.terms import TermTable
from .view import Transaction, View


class Event:
    """A value that `Agreement.handle` takes."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Read(Event):
    """The keys of the cluster, from an answer of etcd or from its watch.

    `asked_ns`: the time at which the linearizable read was sent. None: a watch reported it, perhaps late. Only the
    answer to a read proves that this node still led at that time, or that etcd's revision has fallen.
    """

    view: View
    asked_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Answered(Event):
    """A transaction is done; or this attempt was not done, and never will be. An earlier attempt may have been done, if
    no answer came to it.

    `view`: the keys after it; None: it did not reach etcd, and `why` says why not. A transaction that reached etcd and
    is not done was refused, because a guard did not hold.
    """

    transaction: Transaction
    is_done: bool
    view: View | None = None
    asked_ns: int | None = None  # when it was sent
    why: str = ""


@dataclass(frozen=True, slots=True)
class InDoubt(Event):
    """No answer came to a transaction that was sent: etcd may have done it, or may do it later."""

    transaction: Transaction


@dataclass(frozen=True, slots=True)
class LeaseRenewed(Event):
    """etcd renewed the lease of the key `leader`. `asked_ns`: when this node asked for that."""

    asked_ns: int


@dataclass(frozen=True, slots=True)
class Tick(Event):
    """The time that `Agreement.next_ns` named has come. A tick at another time does no harm."""


@dataclass(frozen=True, slots=True)
class Durable(Event):
    """This node's journal is fsynced below `lsn`."""

    lsn: int


@dataclass(frozen=True, slots=True)
class Joined(Event):
    """This follower has joined its leader: its journal is cut, and its term table has the leader's terms."""

    terms: TermTable
    end: int


@dataclass(frozen=True, slots=True)
class JoinRefused(Event):
    """The leader refuses this follower until an operator has changed something: `why`, in words."""

    why: str


@dataclass(frozen=True, slots=True)
class LeaderRefused(Event):
    """The leader's machine refused a connection for a link (timeouts do not count): the leader's process is gone."""


@dataclass(frozen=True, slots=True)
class LeaderHeard(Event):
    """A beacon of the leader that this node follows. It comes after a `Durable` of all that this node acknowledged."""

    term: int
    agreed: int
    clock_difference_ns: int = 0  # the leader's wall clock minus this node's


@dataclass(frozen=True, slots=True)
class LinkOpened(Event):
    """At the leader: a follower has joined. After its cut the follower's journal ends at `end`, an LSN.

    A follower without records, which gets a full copy, begins with the record `end`.
    """

    node_id: bytes
    end: int


@dataclass(frozen=True, slots=True)
class LinkClosed(Event):
    """At the leader: the link of a follower is closed."""

    node_id: bytes


@dataclass(frozen=True, slots=True)
class FollowerRefused(Event):
    """At the leader: a follower's machine refused a connection for a link: the follower's process is gone."""

    node_id: bytes


@dataclass(frozen=True, slots=True)
class FollowerHeard(Event):
    """At the leader: a beacon of a follower has come."""

    node_id: bytes


@dataclass(frozen=True, slots=True)
class Acknowledged(Event):
    """At the leader: a follower has fsynced everything below `lsn`, which the leader of `term` sent."""

    node_id: bytes
    term: int
    lsn: int


@dataclass(frozen=True, slots=True)
class TookOver(Event):
    """The broker of this node runs."""

    terms: TermTable
    level: int = 0  # the lowest at which this journal can be read


@dataclass(frozen=True, slots=True)
class TakeoverFailed(Event):
    """The journal could not be recovered, or the broker could not be started."""

    why: str


@dataclass(frozen=True, slots=True)
class Reopened(Event):
    """After `Resign`: the broker is closed, and the journal is open for copying."""

    terms: TermTable
    end: int


@dataclass(frozen=True, slots=True)
class DiskStalled(Event):
    """A write, an fsync or a probe of this node's journal hangs for longer than `disk-stall`; or a follower's directory
    cannot be opened again. `why`: the error of opening it; "": the disk hangs.
    """

    why: str = ""


@dataclass(frozen=True, slots=True)
class DiskRecovered(Event):
    """The disk no longer hangs, and the directory is open."""


@dataclass(frozen=True, slots=True)
class DiskFull(Event):
    """At the leader: its journal has had no room for a while. `roomy`: the nodes that have room."""

    roomy: frozenset[bytes]


@dataclass(frozen=True, slots=True)
class DiskFailed(Event):
    """The leader's journal accepts no more records until it is opened again."""


@dataclass(frozen=True, slots=True)
class JournalDamaged(Event):
    """At the leader: its journal is damaged in octets that followers need."""

    damage: Damaged


@dataclass(frozen=True, slots=True)
class HandOver(Event):
    """An operator, or SIGTERM (`is_leaving`), wants another node to lead. `to`: which one; None: the leader chooses.

    A leader that is leaving gives up the lead in any case; otherwise it keeps the lead if no node can succeed it.
    """

    to: bytes | None = None
    is_leaving: bool = False


@dataclass(frozen=True, slots=True)
class Quiesced(Event):
    """After the `Quiesce` of the same `attempt`: no client is read, all turns have ended, and the journal ends at the
    LSN `end`.
    """

    attempt: int
    end: int


@dataclass(frozen=True, slots=True)
class Drain(Event):
    """An operator wants this node not to lead."""


@dataclass(frozen=True, slots=True)
class Revive(Event):
    """An operator allows this node to lead again."""


@dataclass(frozen=True, slots=True)
class RaiseLevel(Event):
    """At the leader: an operator allows records that programs below this level cannot read."""

    level: int
