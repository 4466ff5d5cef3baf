"""What a leader answers a follower that wants to join. Source: reference 6; rule R8."""

import pytest

from leveret.cluster.copying.joining import Answer, CutTo, FullCopy, GoOn, Held, Refuse, join
from leveret.journal import TermTable

LEADER_NODE, NODE = b"L" * 16, b"F" * 16
JOURNAL, OTHER = b"J" * 16, b"O" * 16


def terms(*starts: tuple[int, int]) -> TermTable:
    return TermTable(NODE, starts)


LEADER = Held(JOURNAL, TermTable(LEADER_NODE, ((1, 1), (3, 100), (4, 150))), 200)

ROWS: list[tuple[str, Held, int, Answer]] = [
    ("it has all", Held(JOURNAL, terms((1, 1), (3, 100), (4, 150)), 200), 1, GoOn(200)),
    ("it is behind, within the leader's term", Held(JOURNAL, terms((1, 1), (3, 100), (4, 150)), 170), 1, GoOn(170)),
    ("it is behind, before the leader's term", Held(JOURNAL, terms((1, 1), (3, 100)), 120), 1, GoOn(120)),
    ("it is at the end of a term", Held(JOURNAL, terms((1, 1), (3, 100)), 150), 1, GoOn(150)),
    ("it is at the end of the first term", Held(JOURNAL, terms((1, 1)), 100), 1, GoOn(100)),
    ("it took the table, and no record yet", Held(JOURNAL, terms((1, 1), (3, 100), (4, 150)), 60), 1, GoOn(60)),
    ("records of a lost leader of the same term", Held(JOURNAL, terms((1, 1), (3, 100)), 160), 1, CutTo(150)),
    ("records of a lost leader of another term", Held(JOURNAL, terms((1, 1), (2, 90)), 95), 1, CutTo(90)),
    ("it led in a term that nobody followed", Held(JOURNAL, terms((1, 1), (2, 100)), 101), 1, CutTo(100)),
    ("two terms that nobody followed", Held(JOURNAL, terms((1, 1), (2, 50), (5, 60)), 70), 1, CutTo(50)),
    ("the oldest segment begins where it ends", Held(JOURNAL, terms((1, 1), (3, 100)), 120), 120, GoOn(120)),
    (
        "the leader deleted what it needs",
        Held(JOURNAL, terms((1, 1), (3, 100)), 119),
        120,
        FullCopy(True, "it has records up to 119, the leader those from 120"),
    ),
    (
        "nothing in common",
        Held(JOURNAL, terms((2, 1)), 50),
        1,
        FullCopy(True, "no term of its journal is one of the leader's"),
    ),
    ("an empty directory", Held(None, terms(), 1), 120, FullCopy(False, "its directory is empty")),
    (
        "a copy that has only begun",
        Held(JOURNAL, terms((1, 1), (3, 100), (4, 150)), 1),
        120,
        FullCopy(False, "its journal has no records yet"),
    ),
    ("a copy that was interrupted", Held(JOURNAL, terms((1, 1), (3, 100), (4, 150)), 130), 120, GoOn(130)),
    (
        "another journal",
        Held(OTHER, terms((1, 1)), 200),
        1,
        Refuse(f"this directory belongs to another journal ({OTHER.hex()}): move it away to join"),
    ),
    (
        "another journal, without records",
        Held(OTHER, terms(), 1),
        1,
        FullCopy(True, "its directory is that of another journal, without records"),
    ),
    ("an end that cannot be", Held(JOURNAL, terms((1, 1), (3, 100), (4, 150)), 2**62), 1, CutTo(200)),
]


@pytest.mark.parametrize("found, follower, oldest, answer", ROWS, ids=[row[0] for row in ROWS])
def test_joining(found: str, follower: Held, oldest: int, answer: Answer) -> None:
    """One row a case."""
    assert join(LEADER, oldest, follower, wants_copy=False) == answer


def test_a_damaged_journal_is_copied_whole() -> None:
    """Unless it is another one: then nobody knows what is in it."""
    damaged = Held(JOURNAL, terms((1, 1)), 1)
    assert join(LEADER, 1, damaged, wants_copy=True) == FullCopy(True, "its journal is damaged")
    other = Held(OTHER, terms((1, 1)), 1)
    assert isinstance(join(LEADER, 1, other, wants_copy=True), Refuse)
