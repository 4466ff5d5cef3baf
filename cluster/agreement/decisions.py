"""What a node does: values that `Agreement.handle` returns, to be carried out in their order.

Whatever must be true before another thing happens stands before it: a node stops acknowledging before its campaign is
sent, and a broker is closed before `leader` is deleted.
"""

from dataclasses import dataclass

from .view import Leader, Transaction


@dataclass(frozen=True, slots=True)
class Register:
    """The name of this node is free: write its key `node/NAME`, under its lease, and keep that lease."""


@dataclass(frozen=True, slots=True)
class ReadKeys:
    """Read all keys, linearizably, and say them by `Read`. One read at a time is enough."""


@dataclass(frozen=True, slots=True)
class Transact:
    """Send a transaction; `Answered` or `InDoubt` say how it ended. There is one at a time, but after `Resign`."""

    transaction: Transaction


@dataclass(frozen=True, slots=True)
class EndLease:
    """Stop to renew the lease of the key `leader`, and revoke it if etcd is reached."""


@dataclass(frozen=True, slots=True)
class Follow:
    """Copy the journal of this leader, by its link, which may be its address already; None: copy no journal."""

    leader: Leader | None


@dataclass(frozen=True, slots=True)
class Acknowledge:
    """Whether the follower's link acknowledges what is fsynced. Off: no acknowledgement may leave this node."""

    is_on: bool


@dataclass(frozen=True, slots=True)
class BecomeAnother:
    """Give this directory another node's id, which is in no set, and begin with it anew: nothing else is decided."""


@dataclass(frozen=True, slots=True)
class TakeOver:
    """Lead: the term into the term table, fsynced; recover the journal; start the broker; then `TookOver`."""

    term: int
    journal_id: bytes
    level: int = 0  # of the journal


@dataclass(frozen=True, slots=True)
class Agree:
    """Everything below `lsn` is agreed: answers that wait for it may leave, and what it frees may be deleted."""

    lsn: int


@dataclass(frozen=True, slots=True)
class LevelRaised:
    """The journal is of this level, in etcd: records that older programs cannot read may be written."""

    level: int


@dataclass(frozen=True, slots=True)
class Hold:
    """Hold publishers, by the alarm `replication`; serve all others, also after `Suspend`. A new reason replaces the
    one before."""

    reason: str


@dataclass(frozen=True, slots=True)
class GoOn:
    """Release publishers, and read clients again: after `Hold`, `Suspend` or `Quiesce`. The first one after `TakeOver`
    lets the listeners serve, as `Hold` does."""


@dataclass(frozen=True, slots=True)
class Suspend:
    """Read nothing from clients, send them nothing: another node may lead."""


@dataclass(frozen=True, slots=True)
class Quiesce:
    """Read nothing from clients, let the turns end and be written, then say `Quiesced`: the lead is handed over."""


@dataclass(frozen=True, slots=True)
class Resign:
    """Close the broker: clients are told 320, nothing is sealed. Open the journal for copying, then `Reopened`."""

    why: str


@dataclass(frozen=True, slots=True)
class Refuse:
    """This node cannot be one of the cluster. Its directory stays as it is; an operator has to act."""

    why: str


@dataclass(frozen=True, slots=True)
class HandoverRefused:
    """The lead that was to be handed over is kept: `why`, in words. The operator who asked for it is told."""

    why: str


@dataclass(frozen=True, slots=True)
class Note:
    """Something an operator wants to know, for the log: why this node waits, or does not campaign."""

    text: str


Decision = (
    Register
    | ReadKeys
    | Transact
    | EndLease
    | Follow
    | Acknowledge
    | BecomeAnother
    | TakeOver
    | Agree
    | LevelRaised
    | Hold
    | GoOn
    | Suspend
    | Quiesce
    | Resign
    | Refuse
    | HandoverRefused
    | Note
)
