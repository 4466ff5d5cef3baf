"""What a node does: values that `Agreement.handle` returns, to be carried out in their order.

The order matters: a node stops acknowledging before its campaign is sent, and a broker is closed before `leader` is
deleted.
"""

from dataclasses import dataclass

from .view import Leader, Transaction


@dataclass(frozen=True, slots=True)
class Register:
    """The name of this node is free: write its key `node/NAME`, under its lease, and keep that lease."""


@dataclass(frozen=True, slots=True)
class ReadKeys:
    """Read all keys, linearizably, and report them with `Read`. One read at a time is enough."""


@dataclass(frozen=True, slots=True)
class Transact:
    """Send a transaction; report its end with `Answered` or `InDoubt`. Only after `Resign` two can be under way."""

    transaction: Transaction


@dataclass(frozen=True, slots=True)
class EndLease:
    """Stop renewing the lease of the key `leader`, and revoke it if etcd is reached."""


@dataclass(frozen=True, slots=True)
class Follow:
    """Copy the journal of this leader over its link; None: copy no journal."""

    leader: Leader | None


@dataclass(frozen=True, slots=True)
class Acknowledge:
    """Whether the follower's link acknowledges what is fsynced. Off: no acknowledgement may leave this node."""

    is_on: bool


@dataclass(frozen=True, slots=True)
class RejoinAsNew:
    """Give this directory a new node id, which is in no set, and start a new agreement. No other decision follows."""


@dataclass(frozen=True, slots=True)
class TakeOver:
    """Lead: write the term into the term table, recover the journal, start the broker; then report `TookOver`."""

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
    """Block publishers by the alarm `replication`, and serve all others, also after `Suspend`. A new reason replaces
    the old one."""

    reason: str


@dataclass(frozen=True, slots=True)
class Resume:
    """Release publishers, and read clients again: after `Hold`, `Suspend` or `Quiesce`. The first `Resume` or `Hold`
    after `TakeOver` lets the listeners serve."""


@dataclass(frozen=True, slots=True)
class Suspend:
    """Read nothing from clients, send them nothing: another node may lead."""


@dataclass(frozen=True, slots=True)
class Quiesce:
    """Before the lead is handed over: read nothing from clients, end all turns, then report `Quiesced`."""


@dataclass(frozen=True, slots=True)
class Resign:
    """Close the broker with 320 for its clients, and seal nothing. Open the journal for copying; report `Reopened`."""

    why: str


@dataclass(frozen=True, slots=True)
class Refuse:
    """This node cannot be one of the cluster. Its directory stays as it is; an operator has to act."""

    why: str


@dataclass(frozen=True, slots=True)
class HandoverRefused:
    """This node keeps the lead that it was to hand over. The operator who asked for it is told `why`."""

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
    | RejoinAsNew
    | TakeOver
    | Agree
    | LevelRaised
    | Hold
    | Resume
    | Suspend
    | Quiesce
    | Resign
    | Refuse
    | HandoverRefused
    | Note
)
