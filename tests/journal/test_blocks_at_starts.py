"""What a start, a repair and a checkpoint take for safe, torn or lost, block by block."""

from __future__ import annotations

import pytest
from journal_workload import ID, PATH, Driver, Model, model_of
from simulated_files import SimulatedFiles

from leveret.engine import ManualClock
from leveret.journal import Damaged, Journal, JournalOptions, JournalReader, NotInJournal
from leveret.journal.appending.old_segments import contents_of
from leveret.journal.disk.segment import opened, path_of, segments_in
from leveret.journal.disk.segment_scan import SegmentScan
from leveret.journal.recovery.check import verify
from leveret.journal.recovery.recovery import recover
from leveret.journal.recovery.repair import repair

LARGE = JournalOptions(preallocate_size=0)
#: Each turn or two begins a segment.
TINY = JournalOptions(segment_size=1500, preallocate_size=0)


def driver_on(files: SimulatedFiles, options: JournalOptions = LARGE) -> Driver:
    return Driver(Journal.open(PATH, ManualClock(), options, files=files, threaded=False, new_id=ID))


def turn(driver: Driver) -> None:
    assert driver.journal.wait(driver.journal.commit())


def many_segments(*, checkpoint: bool = True) -> tuple[SimulatedFiles, Driver]:
    """Twelve messages in seven segments or so; the checkpoint is stated before the last three."""
    files = SimulatedFiles()
    driver = driver_on(files, TINY)
    driver.declare("a")
    for at in range(12):
        driver.publish([b"%03d " % at * 150], "a")
        turn(driver)
        if checkpoint and at == 8:
            driver.checkpoint()
            turn(driver)
    return files, driver


def blocks_of(files: SimulatedFiles, base_lsn: int) -> list[tuple[int, int, int]]:
    """(LSN, offset, octets) of each block of a segment."""
    with opened(files, PATH, base_lsn) as handle:
        return [(one.header.base_lsn, one.offset, one.header.size) for one in SegmentScan(files, handle, base_lsn)]


def spoil(files: SimulatedFiles, base_lsn: int, offset: int) -> None:
    """Turn one bit of the block at this offset."""
    data = bytearray(files.content(path_of(PATH, base_lsn)))
    data[offset + 60] ^= 1
    files.put(path_of(PATH, base_lsn), bytes(data))


def found_on(files: SimulatedFiles) -> Model:
    journal = Journal.open(PATH, ManualClock(), files=files, threaded=False, new_id=ID)
    return model_of(journal.recovered, journal)


def test_a_lost_block_before_one_that_was_written_with_it_is_a_torn_tail() -> None:
    """Neither was synced. The second says that all before the first was, which proves nothing of the first."""
    files = SimulatedFiles()
    driver = driver_on(files, JournalOptions(fsync="never", preallocate_size=0))
    driver.declare("a")
    driver.publish([b"safe"], "a")
    turn(driver)
    driver.journal.turns.writer.file.sync()
    before: Model = {"a": dict(driver.model["a"])}
    for body in (b"first", b"second"):
        driver.publish([body], "a")
        driver.journal.commit()
        driver.journal.writer.run_once()
    left = files.crash()
    (base_lsn,) = segments_in(left, PATH)
    with opened(left, PATH, base_lsn) as handle:
        first, second = list(SegmentScan(left, handle, base_lsn))[-2:]
        assert second.header.durable_lsn == first.header.base_lsn
    spoil(left, base_lsn, first.offset)
    assert found_on(left) == before


def test_a_block_of_an_earlier_file_behind_the_end_is_not_replayed() -> None:
    """Where a file is used again, whole blocks of other LSNs may follow the last one."""
    files = SimulatedFiles()
    driver = driver_on(files)
    driver.declare("a")
    ids = driver.publish([b"gone"], "a")
    turn(driver)
    driver.settle("a", ids)
    turn(driver)
    left = files.crash()
    (base_lsn,) = segments_in(left, PATH)
    path, (_, offset, size) = path_of(PATH, base_lsn), blocks_of(left, base_lsn)[-2]
    data = left.content(path)
    left.put(path, data + data[offset : offset + size])
    assert recover(left, PATH).torn_bytes == size
    assert found_on(left) == {"a": {}}


def test_an_empty_segment_behind_a_sealed_one_goes_at_the_start() -> None:
    """A crash left the name of a new segment and nothing in it: what follows is in one sequence again."""
    files = SimulatedFiles()
    driver = driver_on(files)
    driver.declare("a")
    driver.publish([b"safe"], "a")
    turn(driver)
    driver.journal.close()
    left = files.crash()
    left.put(path_of(PATH, recover(left, PATH).next_lsn), b"")
    again = driver_on(left)
    model = model_of(again.journal.recovered, again.journal)
    assert model == driver.model
    again.queue_ids, again.exchange, again.model = driver.queue_ids, driver.exchange, model
    again.publish([b"new"], "a")
    turn(again)
    assert found_on(left.crash()) == again.model


def test_an_empty_segment_behind_a_segment_that_lost_its_end_is_damage() -> None:
    """A segment is begun when the footer before it is synced: wherever the end is lost, durable octets are lost."""
    files = SimulatedFiles()
    driver = driver_on(files)
    driver.declare("a")
    for body in (b"one", b"two"):
        driver.publish([body], "a")
        turn(driver)
    driver.journal.close()
    left = files.crash()
    next_lsn = recover(left, PATH).next_lsn
    (base_lsn,) = segments_in(left, PATH)
    path, blocks = path_of(PATH, base_lsn), blocks_of(left, base_lsn)
    left.put(path_of(PATH, next_lsn), b"")
    data = left.content(path)
    for _, offset, size in blocks[1:]:
        for cut in (offset, offset + 1, offset + size - 1):
            left.put(path, data[:cut])
            with pytest.raises(Damaged, match="records from|records .* are lost"):
                driver_on(left)
            assert verify(PATH, left).faults
            repair(PATH, f"out-{cut}", left)
            mended = Journal.open(f"out-{cut}", ManualClock(), files=left, threaded=False)
            assert mended.recovered.next_lsn == next_lsn, "no LSN is given twice"
            found = model_of(mended.recovered, mended).get("a", {})
            assert found.items() <= driver.model["a"].items()
            mended.close()
    assert left.content(path_of(PATH, next_lsn)) == b"", "a damaged journal is left as it is"


@pytest.mark.parametrize("distance", [-1, 1, 7])
def test_an_empty_segment_with_another_lsn_than_the_next_is_damage(distance: int) -> None:
    """Between them were segments that are lost."""
    files = SimulatedFiles()
    driver = driver_on(files)
    driver.declare("a")
    turn(driver)
    driver.journal.close()
    left = files.crash()
    left.put(path_of(PATH, recover(left, PATH).next_lsn + distance), b"")
    with pytest.raises(Damaged, match="does not follow the segment before it"):
        driver_on(left)


def test_an_empty_segment_alone_that_is_not_the_first_is_damage() -> None:
    """The segments with everything that was durable are lost: a start must not begin with nothing."""
    files = SimulatedFiles()
    driver = driver_on(files)
    driver.declare("a")
    turn(driver)
    left = files.crash()
    (base_lsn,) = segments_in(left, PATH)
    left.put(path_of(PATH, recover(left, PATH).next_lsn + 1), b"")
    left.unlink(path_of(PATH, base_lsn))
    with pytest.raises(Damaged):
        driver_on(left)


def test_damage_before_the_checkpoint_stops_no_start() -> None:
    """A start replays from the checkpoint on: of what was before it only footers are read."""
    files, driver = many_segments()
    left = files.crash()
    begin = recover(left, PATH).checkpoint_begin
    replayed_from = max(base for base in segments_in(left, PATH) if base <= begin)
    older = [base for base in segments_in(left, PATH) if base < replayed_from]
    assert older
    for base_lsn in older:
        spoil(left, base_lsn, blocks_of(left, base_lsn)[1][1])
    assert [one.id for one in recover(left, PATH).queues[driver.queue_ids["a"]].messages()] == sorted(driver.model["a"])


def test_a_segment_that_is_missing_before_the_checkpoint_is_told() -> None:
    """Its records are named, though none of them is replayed."""
    files, _ = many_segments()
    left = files.crash()
    begin = recover(left, PATH).checkpoint_begin
    older = [base for base in segments_in(left, PATH) if base < begin]
    assert len(older) > 3
    left.unlink(path_of(PATH, older[1]))
    with pytest.raises(Damaged, match=f"records {older[1]} to {older[2] - 1} behind it are missing"):
        recover(left, PATH)


def test_contents_of_a_segment_that_was_cut_are_not_moved_in_part() -> None:
    """Whoever empties an old segment hears that its rest cannot be read: the segment has to stay."""
    files, _ = many_segments(checkpoint=False)
    base_lsn = segments_in(files, PATH)[1]
    whole = list(contents_of(files, PATH, base_lsn))
    assert whole
    _, offset, size = blocks_of(files, base_lsn)[-2]
    path = path_of(PATH, base_lsn)
    files.put(path, files.content(path)[: offset + size // 2])
    with pytest.raises(Damaged, match="a bad block"):
        list(contents_of(files, PATH, base_lsn))


def test_segments_stay_until_the_record_that_ends_the_checkpoint_is_durable() -> None:
    """All that it states may be on disk before: without its last record the older segments are needed."""
    _, driver = many_segments(checkpoint=False)
    journal = driver.journal
    driver.settle("a", sorted(driver.model["a"])[:-1])
    turn(driver)
    journal.checkpoints.begin()
    for _ in journal.checkpoints.snapshot(driver.queue_ids["a"], iter(driver.messages("a"))):
        pass
    turn(driver)
    lsn = journal.checkpoints.end()
    assert journal.turns.writer.file.durable_lsn == lsn
    assert journal.old_segments.reclaim() == []
    turn(driver)
    assert journal.old_segments.reclaim() != []


def test_one_checkpoint_is_enough_until_more_is_appended() -> None:
    """The next is due when as much again was written, not with the next turn."""
    _, driver = many_segments(checkpoint=False)
    assert driver.journal.checkpoints.is_due
    driver.checkpoint()
    turn(driver)
    assert not driver.journal.checkpoints.is_due
    driver.publish([b"x"], "a")
    turn(driver)
    assert not driver.journal.checkpoints.is_due
    for _ in range(200):
        driver.settle("a", driver.publish([b"x" * 100], "a"))
        turn(driver)
    assert driver.journal.checkpoints.is_due


def test_a_repair_that_lost_the_begin_of_the_checkpoint_reads_all_before_it() -> None:
    """What the checkpoint states is incomplete then: the records that it summed up are replayed instead."""
    files, driver = many_segments()
    left = files.crash()
    begin = recover(left, PATH).checkpoint_begin
    base_lsn = max(base for base in segments_in(left, PATH) if base <= begin)
    (offset,) = [offset for lsn, offset, _ in blocks_of(left, base_lsn) if lsn == begin]
    spoil(left, base_lsn, offset)
    repair(PATH, "out", left)
    repaired = recover(left, "out")
    names = {repaired.names.text(id_): id_ for id_ in repaired.queues}
    assert [one.id for one in repaired.queues[names["a"]].messages()] == sorted(driver.model["a"])


def test_a_reader_stops_before_the_first_record_that_is_not_durable() -> None:
    """Also where that is one record alone, and a later block was written without a sync, too."""
    files = SimulatedFiles()
    driver = driver_on(files, JournalOptions(fsync="never", preallocate_size=0))
    driver.declare("a")
    ids = driver.publish([b"1", b"2", b"3"], "a")
    turn(driver)
    driver.journal.turns.writer.file.sync()
    durable_lsn = driver.journal.next_lsn
    for id_ in ids:
        driver.settle("a", [id_])
        driver.journal.commit()
        driver.journal.writer.run_once()
    assert [lsn for lsn, _ in JournalReader(PATH, files).records()][-1] == durable_lsn - 1
    assert [lsn for lsn, _ in JournalReader(PATH, files).records(trust_open=True)][-1] == driver.journal.next_lsn - 1


def test_a_reader_tells_which_records_a_missing_segment_had() -> None:
    """It reads what is before it, and does not go on behind it in silence."""
    files, _ = many_segments(checkpoint=False)
    bases = segments_in(files, PATH)
    files.unlink(path_of(PATH, bases[2]))
    seen: list[int] = []
    with pytest.raises(Damaged, match=f"records {bases[2]} to {bases[3] - 1} before it are missing"):
        seen.extend(lsn for lsn, _ in JournalReader(PATH, files).records())
    reader = JournalReader(PATH, files).records()
    assert [next(reader)[0] for _ in range(bases[2] - 1)] == list(range(1, bases[2]))


def test_a_content_of_a_deleted_segment_is_not_in_the_journal() -> None:
    """Not damage: the segment was not needed any more, and another one is not to blame."""
    files, driver = many_segments(checkpoint=False)
    contents, first = driver.journal.contents, min(driver.lsns)
    assert contents.read(driver.lsns[first])
    base_lsn = max(base for base in segments_in(files, PATH) if base <= driver.lsns[first + 3])
    assert contents.read(driver.lsns[first + 3])
    contents.forget(base_lsn)
    files.unlink(path_of(PATH, base_lsn))
    with pytest.raises(NotInJournal):
        contents.read(driver.lsns[first + 3])


def test_records_in_the_gap_of_a_repair_have_the_lsn_of_its_begin() -> None:
    """Names that a repair states again stand there: none of them has the LSN of a record that was lost."""
    files, _ = many_segments()
    left = files.crash()
    base_lsn = segments_in(left, PATH)[2]
    spoil(left, base_lsn, blocks_of(left, base_lsn)[1][1])
    repair(PATH, "out", left)
    gaps = recover_gaps(left, "out")
    assert gaps
    lsns = [lsn for lsn, _ in JournalReader("out", left).records(trust_open=True)]
    assert not [lsn for lsn in lsns for first, behind in gaps if first < lsn < behind]


def recover_gaps(files: SimulatedFiles, directory: str) -> list[tuple[int, int]]:
    """(first LSN, LSN behind it) of each."""
    gaps: list[tuple[int, int]] = []
    for base_lsn in segments_in(files, directory):
        with opened(files, directory, base_lsn) as handle:
            scan = SegmentScan(files, handle, base_lsn)
            for _ in scan:
                pass
            gaps += scan.gaps
    return gaps


@pytest.mark.parametrize("fsync", ["commit", "never"])
def test_a_job_of_the_disk_splits_no_turn(fsync: str) -> None:
    """A leader probes its disk twice a second, also while a purge of many turns is under way, one turn here."""
    files = SimulatedFiles()
    driver = driver_on(files, JournalOptions(fsync=fsync, preallocate_size=0))
    driver.declare("a")
    turn(driver)
    (base_lsn,) = segments_in(files, PATH)
    before = len(blocks_of(files, base_lsn))
    driver.publish([b"one"], "a")
    journal = driver.journal
    for job in (journal.probe, journal.tick, journal.refill_reserve):
        job()
        journal.writer.run_once()
    assert "probe" in files.names(PATH)
    driver.publish([b"two"], "a")
    assert len({lsn for lsn, *_ in blocks_of(files, base_lsn)}) == before + 1, "the tick alone"
    turn(driver)
    assert len(blocks_of(files, base_lsn)) == before + 2
    assert found_on(files.crash()) == driver.model
