"""The segments that a leader keeps and reads for one follower."""

from pathlib import Path

import pytest
from written_journal import WrittenJournal

from leveret.cluster.link.feed import Position
from leveret.cluster.link.follower_segments import FollowerSegments, forget_readers, readers_of
from leveret.journal import REAL, reader_offsets


@pytest.fixture
def journal(tmp_path: Path) -> WrittenJournal:
    """Two segments."""
    made = WrittenJournal(str(tmp_path / "leader"))
    made.block()
    made.roll()
    made.block()
    return made


def test_nodes_with_long_names_have_readers_of_their_own(journal: WrittenJournal) -> None:
    """When one is forgotten, the segments of the other stay: else it would need a full copy."""
    one, other = (f"rabbit@{'long-' * 11}{number}" for number in (1, 2))
    assert len(one) == 63
    for name in (one, other):
        FollowerSegments(journal.path, name, 1, REAL).keep_from(1)
    forget_readers(journal.path, readers_of(journal.path, node=one))
    assert len(reader_offsets(journal.path)) == 1 == len(readers_of(journal.path, node=other))


def test_a_name_that_is_too_long_is_shortened(journal: WrittenJournal) -> None:
    """It came over the network, and names a file."""
    segments = FollowerSegments(journal.path, "../" + 300 * "n", 10**9, REAL)
    segments.keep_from(1)
    assert list(reader_offsets(journal.path).values()) == [1]
    segments.release()
    assert reader_offsets(journal.path) == {}


def test_what_is_read_for_a_follower_that_fell_behind_is_kept(journal: WrittenJournal) -> None:
    """Its octets did not fit into memory, and nothing was kept for it before."""
    segments = FollowerSegments(journal.path, "b", 3, REAL)
    start, end = Position(1, 0), Position(*journal.position)
    read = segments.read(start, end)
    assert reader_offsets(journal.path) == {"node-b-3": 1}
    assert (read.end, read.behind) == (end, sum(map(len, journal.segments().values())))
    segments.release()
    segments.release()
    assert reader_offsets(journal.path) == {} and not segments.are_kept
    later = segments.read(Position(end.base_lsn, 0), end)
    assert later.behind == end.offset and reader_offsets(journal.path) == {"node-b-3": end.base_lsn}
