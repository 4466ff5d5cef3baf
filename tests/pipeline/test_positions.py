"""What there is to read and how far: one slice a segment, nothing that is not durable, nothing twice, no silence over
damage. No Java."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="the pipeline's libraries are not installed (make spark)")

from recorded_broker import RecordedBroker

from leveret.journal import Damaged, ForeignDirectory, JournalError
from leveret.journal.disk.files import REAL
from leveret.journal.disk.segment import path_of, segment_name, segments_in
from leveret.pipeline.reading.arrow_files import locate
from leveret.pipeline.reading.chunks import read_chunks
from leveret.pipeline.reading.holes import DELETED
from leveret.pipeline.reading.positions import JournalGone, JournalPlan, Position
from leveret.pipeline.reading.predicate import Predicate
from leveret.pipeline.reading.table_reader import TableReader
from leveret.pipeline.schemas import EVENTS


def between(plan: JournalPlan, start: Position, end: Position) -> list[tuple[int, int]]:
    """(LSN, message) of the rows between two positions."""
    reader = TableReader(plan.directory, "events", EVENTS)
    found: list[tuple[int, int]] = []
    for part in reader.slices(plan, start, end):
        for batch in reader.batches(plan.directory, part):
            found += zip(batch.column("lsn").to_pylist(), batch.column("msg_id").to_pylist())
    return found


def filled(path: Path, messages: int = 60, **more: Any) -> RecordedBroker:
    """Several small segments and an open one."""
    one = RecordedBroker(path, segment_size=3000, **more)
    one.declare("q")
    for _ in range(messages):
        one.publish("q")
    return one


def steps(plan: JournalPlan, octets: int, records: int | None = None) -> Iterator[tuple[Position, Position]]:
    """The way of a stream that may read so much at once."""
    at, end = plan.first(), plan.end()
    while at != end:
        following = plan.advance(at, end, octets, records)
        assert (following.segment, following.offset) > (at.segment, at.offset)
        yield at, following
        at = following


def test_the_last_block_waits_until_a_later_one_proves_it(tmp_path: Path) -> None:
    """A reader that acts on what a power cut takes back has seen something that never was."""
    one = RecordedBroker(tmp_path)
    one.declare("q")
    plan = JournalPlan(str(tmp_path))
    before = plan.end()
    one.publish("q")
    lsn = one.journal.next_lsn
    assert before.lsn <= plan.end().lsn < lsn
    one.tick()
    assert plan.end().lsn == lsn
    assert {id_ for _, id_ in between(plan, before, plan.end())} >= {1}


@pytest.mark.parametrize("segment_size", [1 << 26, 3000])
def test_positions_that_are_behind_the_last_block(segment_size: int, tmp_path: Path) -> None:
    """Are refused: the journal is an older copy, and would write other records there. Those before it are accepted."""
    one = RecordedBroker(tmp_path, segment_size=segment_size)
    one.declare("q")
    for _ in range(20):
        one.publish("q")
    one.tick()
    path = path_of(str(tmp_path), segments_in(REAL, str(tmp_path))[-1])
    boundaries = [at for _, at in steps(JournalPlan(str(tmp_path)), 1)]
    end = boundaries[-2]
    os.truncate(path, end.offset)
    plan = JournalPlan(str(tmp_path))
    assert plan.end().place < end.place, "only the last block called these records durable"
    for at in boundaries[:-1]:
        plan.check(at)
    os.truncate(path, end.offset - 1)
    plan = JournalPlan(str(tmp_path))
    with pytest.raises(JournalError, match=f"the journal ends before record {end.lsn}, up to which this reader has"):
        plan.check(end)
    plan.check(plan.end())


@pytest.mark.parametrize("fsync", ["never", "interval"])
def test_what_was_not_fsynced_is_not_offered(tmp_path: Path, fsync: str) -> None:
    """The modes differ in how far behind they keep a reader: until the interval is over, or the segment sealed."""
    one = RecordedBroker(tmp_path, fsync=fsync)
    one.declare("q")
    for _ in range(5):
        one.publish("q")
    plan = JournalPlan(str(tmp_path))
    if fsync == "never":
        one.tick()
        assert plan.end().lsn < 10
    one.close()
    assert plan.end().lsn == one.journal.next_lsn + 1  # with the footer
    assert [id_ for _, id_ in between(plan, plan.first(), plan.end())].count(5) == 2


@pytest.mark.parametrize("octets", [1, 700, 5000, 1 << 40])
def test_pieces_of_any_size_are_the_whole(tmp_path: Path, octets: int) -> None:
    """Admission control: however little is allowed at once, all rows come, each once, in order."""
    one = filled(tmp_path)
    one.tick()
    plan = JournalPlan(str(tmp_path))
    whole = between(plan, plan.first(), plan.end())
    assert len({lsn for lsn, _ in whole}) == len(whole) > 120
    fresh = JournalPlan(str(tmp_path))  # as after a restart: no footer is known
    pieces = [pair for start, end in steps(plan, octets) for pair in between(fresh, start, end)]
    assert pieces == whole
    assert len(list(steps(plan, octets))) >= (5 if octets <= 700 else 1)


@pytest.mark.parametrize("records", [1, 7, 40])
def test_so_many_records_at_once(tmp_path: Path, records: int) -> None:
    """No more than that, unless one block has more; sealed and open segments alike."""
    one = filled(tmp_path)
    one.publish("q", 9)
    one.tick()
    plan = JournalPlan(str(tmp_path))
    whole = between(plan, plan.first(), plan.end())
    taken = list(steps(plan, 1 << 40, records))
    assert [pair for start, end in taken for pair in between(plan, start, end)] == whole
    larger = [(start, end) for start, end in taken if end.lsn - start.lsn > records]
    assert all(plan.advance(start, end, 1) == end for start, end in larger), "each is one block"
    assert records < 40 or not larger
    assert records == 1 or len(taken) < len(list(steps(plan, 1)))


@pytest.mark.parametrize("count", [1, 3, 20, 10_000])
def test_slices_are_divided(tmp_path: Path, count: int) -> None:
    """Into at least so many, as far as there are blocks; each can be read alone, and together they are the whole."""
    one = RecordedBroker(tmp_path, segment_size=20_000)
    for number in range(60):
        one.declare(f"q{number}")  # whose name only its segment tells
        one.publish(f"q{number}")
    one.tick()
    plan = JournalPlan(str(tmp_path))
    parts = plan.slices(plan.first(), plan.end())
    divided = plan.split(parts, count)
    assert len(divided) >= min(count, 60) and (count > 1 or divided == parts)
    reader = TableReader(str(tmp_path), "events", EVENTS, least=count)
    assert reader.slices(plan, plan.first(), plan.end()) == divided
    whole, again = (
        [row for part in some for batch in reader.batches(plan.directory, part) for row in batch.to_pylist()]
        for some in (parts, reversed(divided))
    )
    assert sorted(again, key=lambda row: row["lsn"]) == whole


def test_the_place_of_a_time(tmp_path: Path) -> None:
    """Before the first block of then or later, in sealed segments and the open one; the end if all is older."""
    one = filled(tmp_path, 0)
    for _ in range(60):
        one.clock.advance_ns(1_000_000_000)
        one.publish("q")
    one.tick()
    plan = JournalPlan(str(tmp_path))
    whole = [(row["lsn"], row["ts"]) for batch in TableReader(str(tmp_path)).all_batches() for row in batch.to_pylist()]
    assert len({part.segment for part in plan.slices(plan.first(), plan.end())}) > 3
    for moment in sorted({at for _, at in whole}):
        start = plan.position_at(round(moment.timestamp() * 1_000_000))
        assert [one for one in whole if one[0] >= start.lsn] == [one for one in whole if one[1] >= moment]
    assert [lsn for lsn, _ in between(plan, start, plan.end())] == [whole[-2][0], whole[-1][0]]
    assert plan.position_at(0) == plan.first()
    assert plan.position_at(round(whole[-1][1].timestamp() * 1_000_000) + 1) == plan.end()


def test_positions_survive_a_kill_and_what_follows(tmp_path: Path) -> None:
    """The broker dies in the middle of a write; the next one cuts, seals, goes on in a new segment."""
    one = filled(tmp_path)
    one.tick()
    plan = JournalPlan(str(tmp_path))
    before = plan.end()
    first = between(plan, plan.first(), before)
    one.publish("q", 3)
    one.kill()
    (last,) = [max(path for path in tmp_path.glob("*.log"))]
    with open(last, "r+b") as file:
        file.truncate(last.stat().st_size - 40)
    again = RecordedBroker(tmp_path, segment_size=3000)
    again.publish("q", 2)
    again.tick()
    fresh = JournalPlan(str(tmp_path))
    rest = between(fresh, before, fresh.end())
    assert min(lsn for lsn, _ in rest) > max(lsn for lsn, _ in first)
    assert first + rest == between(fresh, fresh.first(), fresh.end())
    assert before.segment < fresh.end().segment


def test_an_empty_journal_has_nothing_and_then_something(tmp_path: Path) -> None:
    """A query may be there before the broker has written."""
    one = RecordedBroker(tmp_path)
    for path in tmp_path.glob("*.log"):
        path.unlink()
    plan = JournalPlan(str(tmp_path))
    start = plan.first()
    assert start == plan.end() and between(plan, start, plan.end()) == []
    del one
    other = tmp_path / "other"
    with pytest.raises(ForeignDirectory, match="no journal here"):
        JournalPlan(str(other))


def test_the_data_directory_above_it_does(tmp_path: Path) -> None:
    """As for `leveret journal`; relative paths and URIs, too."""
    one = RecordedBroker(tmp_path / "data" / "journal")
    one.tick()
    by_path = JournalPlan(str(tmp_path / "data"))
    by_uri = JournalPlan((tmp_path / "data").as_uri())
    assert by_path.end() == by_uri.end() and by_uri.directory.endswith("/data/journal")
    assert JournalPlan(os.path.relpath(tmp_path / "data")).end() == by_path.end()


def test_damage_is_told_not_skipped(tmp_path: Path) -> None:
    """A bad block of a sealed segment, a footer that is gone, a segment that is missing: an error each."""
    one = filled(tmp_path)
    one.tick()
    plan = JournalPlan(str(tmp_path))
    parts = plan.slices(plan.first(), plan.end())
    assert len(parts) >= 4 and all(part.is_sealed for part in parts[:-1])
    path = tmp_path / segment_name(parts[1].segment)
    whole = path.read_bytes()

    path.write_bytes(whole[:900] + bytes([whole[900] ^ 1]) + whole[901:])
    with pytest.raises(Damaged, match=f"{path.name}.*are lost"):
        between(plan, plan.first(), plan.end())
    path.write_bytes(whole[:-100])
    with pytest.raises(Damaged, match="no footer at its end"):
        between(JournalPlan(str(tmp_path)), plan.first(), plan.end())
    path.unlink()
    with pytest.raises(Damaged, match="before it are missing"):
        between(JournalPlan(str(tmp_path)), plan.first(), plan.end())
    with pytest.raises(JournalGone, match="no longer there"):
        list(read_chunks(locate(str(tmp_path))[0], str(tmp_path), parts[1]))
    path.write_bytes(whole)
    assert between(plan, plan.first(), plan.end())


def test_damage_in_the_open_segment_below_what_was_durable(tmp_path: Path) -> None:
    """A later block says that the bad one was fsynced: no torn write."""
    one = RecordedBroker(tmp_path)
    one.declare("q")
    for _ in range(5):
        one.publish("q")
    one.tick()
    (path,) = tmp_path.glob("*.log")
    data = bytearray(path.read_bytes())
    data[700] ^= 1
    path.write_bytes(data)
    with pytest.raises(Damaged, match="a bad block"):
        JournalPlan(str(tmp_path)).end()


def test_what_retention_took_is_an_error(tmp_path: Path) -> None:
    """And registering keeps it: the broker's own reclaiming looks."""
    one = filled(tmp_path)
    one.tick()
    plan = JournalPlan(str(tmp_path))
    start = plan.first()
    plan.files.register(plan.directory, "audit", 0)
    one.get("q", 60)
    for _ in range(3):
        one.publish("q", 20)
        one.get("q", 20)
    one.checkpoint()
    assert one.journal.old_segments.reclaim() == [] and plan.readers() == {"audit": 0}
    middle = plan.end()
    plan.files.register(plan.directory, "audit", middle.lsn)
    assert one.journal.old_segments.reclaim()
    one.journal.wait(one.journal.next_lsn)
    while one.journal.writer.run_once():
        pass
    assert JournalPlan(str(tmp_path)).first().segment > start.segment
    with pytest.raises(JournalGone, match="a reader that is registered keeps its records"):
        plan.slices(start, middle)
    assert plan.slices(middle, plan.end()) is not None
    with pytest.raises(ValueError, match="not a name for a reader"):
        plan.files.register(plan.directory, "../x", 0)


@pytest.mark.parametrize("strict", [False, True])
def test_what_is_passed_over_is_a_hole(tmp_path: Path, strict: bool) -> None:
    """A reader that goes past deleted segments is told which records it has not seen."""
    one = filled(tmp_path)
    one.tick()
    plan = JournalPlan(str(tmp_path), strict=strict, past_deleted=True)
    start = plan.first()
    gone, there = segments_in(REAL, str(tmp_path))[:2]
    os.unlink(path_of(str(tmp_path), gone))
    for parts in (plan.slices(start, plan.end()), plan.split(plan.slices(start, plan.end()), 30)):
        chunks = [one for part in parts for one in read_chunks(plan.files, plan.directory, part, strict=strict)]
        holes = [hole for chunk in chunks for hole in chunk.holes]
        assert [(hole.first_lsn, hole.last_lsn, hole.why) for hole in holes] == [(start.lsn, there - 1, DELETED)]


def test_another_journal_is_not_taken_for_this_one(tmp_path: Path) -> None:
    """A directory that was emptied and filled anew: positions of the old one mean nothing there."""
    one, two = RecordedBroker(tmp_path / "one"), RecordedBroker(tmp_path / "two")
    one.tick()
    two.tick()
    plan, other = JournalPlan(str(tmp_path / "one")), JournalPlan(str(tmp_path / "two"))
    with pytest.raises(JournalError, match="this is journal"):
        other.slices(plan.first(), other.end())
    with pytest.raises(JournalError, match="is not a position"):
        Position.from_dict({"segment": "x"})
    assert Position.from_dict(plan.end().as_dict()) == plan.end()


def test_segments_that_cannot_hold_a_row_are_not_read(tmp_path: Path) -> None:
    """By the footer: kinds, LSNs, times."""
    one = filled(tmp_path, 40)
    one.clock.advance_ns(3600 * 10**9)
    one.get("q", 40)
    one.close()
    plan = JournalPlan(str(tmp_path))
    every = plan.slices(plan.first(), plan.end())

    def chosen(*filters: tuple[str, str, Any]) -> int:
        reader = TableReader(str(tmp_path), "events", EVENTS, Predicate())
        for operator, column, value in filters:
            assert reader.predicate.accept(operator, column, value)
        found = reader.slices(plan, plan.first(), plan.end())
        rows = [row for part in found for batch in reader.batches(plan.directory, part) for row in batch.to_pylist()]
        whole = [row for part in every for batch in reader.batches(plan.directory, part) for row in batch.to_pylist()]
        assert rows == whole
        return len(found)

    assert chosen() == len(every) > 4
    assert chosen(("=", "kind", "acked")) < len(every)
    assert chosen(("=", "kind", "purged")) == 0
    assert chosen(("<", "lsn", every[2].start_lsn)) == 2
    last = TableReader(str(tmp_path)).all_batches()
    late = max(batch.column("ts").to_pylist()[-1] for batch in last)
    assert 0 < chosen((">=", "ts", late)) < len(every)
    assert 0 < chosen(("<", "ts", late)) <= len(every)
