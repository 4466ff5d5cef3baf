"""What a leader answers a follower that wants to join. Source: reference 6; rule R8."""

import pytest

from leveret.cluster.copying.joining import Answer, Continue, CutTo, FullCopy, JournalSummary, Refuse, join
from leveret.journal import TermTable

LEADER_NODE, NODE = b"L" * 16, b"F" * 16
JOURNAL, OTHER = b"J" * 16, b"O" * 16


def terms(*starts: tuple[int, int]) -> TermTable:
    return TermTable(NODE, starts)


LEADER = JournalSummary(JOURNAL, TermTable(LEADER_NODE, ((1, 1), (3, 100), (4, 150))), 200)

ROWS: list[tuple[str, JournalSummary, int, Answer]] = [
    ("it has all", JournalSummary(JOURNAL, terms((1, 1), (3, 100), (4, 150)), 200), 1, Continue(200)),
    (
        "it is behind, within the leader's term",
        JournalSummary(JOURNAL, terms((1, 1), (3, 100), (4, 150)), 170),
        1,
        Continue(170),
    ),
    ("it is behind, before the leader's term", JournalSummary(JOURNAL, terms((1, 1), (3, 100)), 120), 1, Continue(120)),
    ("it is at the end of a term", JournalSummary(JOURNAL, terms((1, 1), (3, 100)), 150), 1, Continue(150)),
    ("it is at the end of the first term", JournalSummary(JOURNAL, terms((1, 1)), 100), 1, Continue(100)),
    (
        "it took the table, and no record yet",
        JournalSummary(JOURNAL, terms((1, 1), (3, 100), (4, 150)), 60),
        1,
        Continue(60),
    ),
    ("records of a lost leader of the same term", JournalSummary(JOURNAL, terms((1, 1), (3, 100)), 160), 1, CutTo(150)),
    ("records of a lost leader of another term", JournalSummary(JOURNAL, terms((1, 1), (2, 90)), 95), 1, CutTo(90)),
    ("it led in a term that nobody followed", JournalSummary(JOURNAL, terms((1, 1), (2, 100)), 101), 1, CutTo(100)),
    ("two terms that nobody followed", JournalSummary(JOURNAL, terms((1, 1), (2, 50), (5, 60)), 70), 1, CutTo(50)),
    (
        "the oldest segment begins where it ends",
        JournalSummary(JOURNAL, terms((1, 1), (3, 100)), 120),
        120,
        Continue(120),
    ),
    (
        "the leader deleted what it needs",
        JournalSummary(JOURNAL, terms((1, 1), (3, 100)), 119),
        120,
        FullCopy(True, "it has records up to 119, the leader those from 120"),
    ),
    (
        "nothing in common",
        JournalSummary(JOURNAL, terms((2, 1)), 50),
        1,
        FullCopy(True, "no term of its journal is one of the leader's"),
    ),
    ("an empty directory", JournalSummary(None, terms(), 1), 120, FullCopy(False, "its directory is empty")),
    (
        "a copy that has only begun",
        JournalSummary(JOURNAL, terms((1, 1), (3, 100), (4, 150)), 1),
        120,
        FullCopy(False, "its journal has no records yet"),
    ),
    (
        "a copy that was interrupted",
        JournalSummary(JOURNAL, terms((1, 1), (3, 100), (4, 150)), 130),
        120,
        Continue(130),
    ),
    (
        "another journal",
        JournalSummary(OTHER, terms((1, 1)), 200),
        1,
        Refuse(f"this directory belongs to another journal ({OTHER.hex()}): move it away to join"),
    ),
    (
        "another journal, without records",
        JournalSummary(OTHER, terms(), 1),
        1,
        FullCopy(True, "its directory is that of another journal, without records"),
    ),
    ("an end that cannot be", JournalSummary(JOURNAL, terms((1, 1), (3, 100), (4, 150)), 2**62), 1, CutTo(200)),
]


@pytest.mark.parametrize("found, follower, oldest, answer", ROWS, ids=[row[0] for row in ROWS])
def test_joining(found: str, follower: JournalSummary, oldest: int, answer: Answer) -> None:
    """One row a case."""
    assert join(LEADER, oldest, follower, wants_copy=False) == answer


def test_a_damaged_journal_is_copied_whole() -> None:
    """Unless it is another one: then nobody knows what is in it."""
    damaged = JournalSummary(JOURNAL, terms((1, 1)), 1)
    assert join(LEADER, 1, damaged, wants_copy=True) == FullCopy(True, "its journal is damaged")
    other = JournalSummary(OTHER, terms((1, 1)), 1)
    assert isinstance(join(LEADER, 1, other, wants_copy=True), Refuse)
