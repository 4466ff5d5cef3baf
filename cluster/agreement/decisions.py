"""What a node does: values that `Agreement.handle` returns.

They are to be carried out in their order: a node stops acknowledging before its campaign is sent, and a broker is
closed before the key `leader` is deleted.
"""

from dataclasses import dataclass

from .view import Leader, Transaction


class Decision:
    """A value that `Agreement.handle` returns."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Register(Decision):
    """The name of this node is free: write its key `node/NAME`, under its lease, and keep that lease."""


@dataclass(frozen=True, slots=True)
class ReadKeys(Decision):
    """Read all keys, linearizably, and report them with `Read`. One read at a time is enough."""


@dataclass(frozen=True, slots=True)
class Transact(Decision):
    """Send a transaction; report its outcome with `Answered` or `InDoubt`. Two are under way only after `Resign`."""

    transaction: Transaction


@dataclass(frozen=True, slots=True)
class EndLease(Decision):
    """Stop renewing the lease of the key `leader`, and revoke the lease if etcd is reached."""


@dataclass(frozen=True, slots=True)
class Follow(Decision):
    """Copy the journal of this leader over a link to it; None: copy no journal."""

    leader: Leader | None


@dataclass(frozen=True, slots=True)
class Acknowledge(Decision):
    """Whether the follower's link acknowledges what is fsynced. Off: no acknowledgement may leave this node."""

    is_on: bool


@dataclass(frozen=True, slots=True)
class RejoinAsNew(Decision):
    """Give this directory a new node id, which is in no set, and start a new agreement. No other decision follows."""


@dataclass(frozen=True, slots=True)
class TakeOver(Decision):
    """Lead: write the term into the term table, recover the journal, start the broker; then report `TookOver`."""

    term: int
    journal_id: bytes
    level: int = 0  # of the journal


@dataclass(frozen=True, slots=True)
class Agree(Decision):
    """Everything below `lsn` is agreed: answers that wait for it may be sent, and segments that it frees deleted."""

    lsn: int


@dataclass(frozen=True, slots=True)
class LevelRaised(Decision):
    """etcd says that the journal is of this level: records that older programs cannot read may be written."""

    level: int


@dataclass(frozen=True, slots=True)
class Hold(Decision):
    """Block publishers by the alarm `replication`, and serve all other clients, also after `Suspend`. A new reason
    replaces the old one."""

    reason: str


@dataclass(frozen=True, slots=True)
class Resume(Decision):
    """Release publishers, and read clients again: after `Hold`, `Suspend` or `Quiesce`. The first `Resume` or `Hold`
    after `TakeOver` lets the listeners serve."""


@dataclass(frozen=True, slots=True)
class Suspend(Decision):
    """Read nothing from clients and send them nothing: another node may lead."""


@dataclass(frozen=True, slots=True)
class Quiesce(Decision):
    """Read nothing from clients and end all turns, so that the lead can be handed over; then report `Quiesced`.

    `attempt`: number of the handover in this leadership, from 1.
    """

    attempt: int


@dataclass(frozen=True, slots=True)
class Resign(Decision):
    """Close the broker with reply code 320, without sealing the journal; open that for copying; report `Reopened`."""

    why: str


@dataclass(frozen=True, slots=True)
class Refuse(Decision):
    """This node cannot be one of the cluster. Its directory stays as it is; an operator has to act."""

    why: str


@dataclass(frozen=True, slots=True)
class HandoverRefused(Decision):
    """This node keeps the lead. Tell the operator who asked for the handover `why`."""

    why: str


@dataclass(frozen=True, slots=True)
class Note(Decision):
    """Write to the log why this node waits, or does not campaign. `is_grave`: an operator has to act."""

    text: str
    is_grave: bool = False
