"""A leader's answer to a follower that wants to join. Pure.

A follower that joins cuts its journal and never merges (rule R8): its records behind the common end came from a lost
leader and were never agreed.
"""

from dataclasses import dataclass

from ...journal import TermTable
from ...journal.format.terms import FIRST_LSN


@dataclass(slots=True, frozen=True)
class JournalSummary:
    """The content of a node's journal. `end`: LSN behind its last record. `journal_id`: None: there is no journal."""

    journal_id: bytes | None
    terms: TermTable
    end: int


@dataclass(slots=True, frozen=True)
class Continue:
    """The follower appends at its end, `lsn`."""

    lsn: int


@dataclass(slots=True, frozen=True)
class CutTo:
    """The follower cuts its records from `lsn` on, and appends there."""

    lsn: int


@dataclass(slots=True, frozen=True)
class FullCopy:
    """The follower gets all of the leader's segments.

    is_beside: in a new directory beside its own, which replaces that when the copy is whole.
    """

    is_beside: bool
    why: str


@dataclass(slots=True, frozen=True)
class Refuse:
    """The follower cannot join before an operator has changed something."""

    why: str


Answer = Continue | CutTo | FullCopy | Refuse


def join(leader: JournalSummary, oldest: int, follower: JournalSummary, *, wants_copy: bool) -> Answer:
    """Choose how a follower joins.

    oldest: first LSN of the leader's oldest segment. wants_copy: the follower asks for a full copy, because its journal
    is damaged, or could not be cut or continued over an earlier link.
    """
    if follower.journal_id is None:
        return FullCopy(is_beside=False, why="its directory is empty")
    is_empty = follower.end <= FIRST_LSN and not wants_copy
    if follower.journal_id != leader.journal_id:
        if is_empty:
            return FullCopy(is_beside=True, why="its directory is that of another journal, without records")
        return Refuse(f"this directory belongs to another journal ({follower.journal_id.hex()}): move it away to join")
    if is_empty:
        return FullCopy(is_beside=False, why="its journal has no records yet")
    if wants_copy:
        return FullCopy(is_beside=True, why="its journal is damaged")
    common = follower.terms.common_end(leader.terms, follower.end, leader.end)
    if common < oldest:
        return FullCopy(is_beside=True, why=f"it has records up to {common}, the leader those from {oldest}")
    if common >= follower.end:
        return Continue(follower.end)
    if common <= FIRST_LSN:
        return FullCopy(is_beside=True, why="no term of its journal is one of the leader's")
    return CutTo(common)
