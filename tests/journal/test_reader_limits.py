"""Readers that nobody runs any more: a warning, then they are dropped, and what was kept for them alone is deleted."""

import errno
import logging
from dataclasses import replace
from typing import Any

import pytest
from copying_nodes import TINY, Leader
from journal_workload import PATH, Driver
from simulated_files import SimulatedFiles

from leveret.engine import ManualClock
from leveret.journal import Journal, JournalError, JournalOptions, forget_reader, reader_offsets, register_reader
from leveret.journal.disk.files import replace_file
from leveret.journal.disk.readers import dropped_readers
from leveret.journal.disk.segment import segments_in

DAY_MS = 86_400_000


class Kept:
    """A journal of several segments of which the broker needs the last alone; a reader needs all."""

    def __init__(self, **options: Any) -> None:
        self.files, self.clock = SimulatedFiles(), ManualClock()
        asked = JournalOptions(segment_size=3000, preallocate_size=0, **options)
        self.driver = Driver(Journal.open(PATH, self.clock, asked, files=self.files, threaded=False))
        self.driver.declare("a")
        register_reader(PATH, "lake", 1, self.files)
        for _ in range(30):
            self.work()

    @property
    def readers(self) -> Any:
        """What the broker knows of them."""
        return self.driver.journal.old_segments.readers

    def work(self) -> None:
        """A message comes and goes."""
        self.driver.settle("a", self.driver.publish([b"z" * 300], "a"))
        self.driver.journal.wait(self.driver.journal.commit())

    def days(self, count: float) -> list[int]:
        """Time goes on; then the broker looks which segments may go."""
        self.clock.advance_ns(int(count * DAY_MS) * 10**6)
        self.driver.checkpoint()
        self.driver.journal.wait(self.driver.journal.commit())
        return self.driver.journal.old_segments.reclaim()


def test_one_that_is_too_old_goes(caplog: pytest.LogCaptureFixture) -> None:
    """Warned at four fifths of the limit, once; dropped behind it, with a note; then its segments are deleted."""
    kept = Kept(reader_age_ms=90 * DAY_MS)
    with caplog.at_level(logging.WARNING, "leveret.journal"):
        assert kept.days(71) == [] and not caplog.records
        assert kept.days(2) == kept.days(2) == []
        (warned,) = caplog.messages
        assert "octets (the oldest 73 days old) are kept for it alone" in warned
        assert kept.readers.kept["lake"].size > 3000
        assert "after 90 days ([journal] reader-age)" in warned and f"--journal {PATH}" in warned
        assert kept.days(16)
    assert "reader lake is dropped at record 1: " in caplog.messages[1]
    assert reader_offsets(PATH, kept.files) == {} and kept.readers.kept == {} and kept.readers.dropped == 1
    note = dropped_readers(PATH, kept.files)["lake"]
    assert note.lsn == 1 and note.at_ms == kept.clock.wall_ms() and "91 days old" in note.why
    register_reader(PATH, "lake", segments_in(kept.files, PATH)[0], kept.files)
    assert dropped_readers(PATH, kept.files) == {} and kept.files.names(f"{PATH}/readers") == ["lake.json"]


def test_none_goes_without_a_warning_a_day_before(caplog: pytest.LogCaptureFixture) -> None:
    """Also if the broker was started anew meanwhile; one that moves is warned again, and not dropped."""
    kept = Kept(reader_age_ms=90 * DAY_MS)
    with caplog.at_level(logging.WARNING, "leveret.journal"):
        assert kept.days(200) == kept.days(0.9) == []
        kept.readers._warned.clear()  # as after a start
        second = segments_in(kept.files, PATH)[1]
        register_reader(PATH, "lake", second, kept.files)
        assert kept.days(0.5) == [1] and reader_offsets(PATH, kept.files) == {"lake": second}
        assert kept.days(0.9) == []
        assert len(caplog.messages) == 2
        assert kept.days(0.2) and reader_offsets(PATH, kept.files) == {}


def test_a_warning_that_had_no_room_is_noted_later() -> None:
    """A full disk keeps no note, and no segment for its sake. The reader is dropped a day after the note."""
    kept = Kept(reader_age_ms=90 * DAY_MS)
    free = segments_in(kept.files, PATH)[1]
    register_reader(PATH, "lake", free, kept.files)

    def full(operation: str, path: str) -> None:
        if operation == "write" and "warned" in path:
            raise OSError(errno.ENOSPC, "no room")

    kept.files.fault = full
    assert kept.days(200) == [1]
    kept.files.fault = lambda operation, path: None
    assert kept.days(0) == []
    assert kept.days(1.1) and reader_offsets(PATH, kept.files) == {}


def test_a_limit_below_a_day_is_told_as_such(caplog: pytest.LogCaptureFixture) -> None:
    """Not as none."""
    kept = Kept(reader_age_ms=DAY_MS // 2)
    with caplog.at_level(logging.WARNING, "leveret.journal"):
        assert kept.days(0.6) == []
    (warned,) = caplog.messages
    assert "(the oldest 0.6 days old)" in warned and "after 0.5 days ([journal] reader-age)" in warned


def test_one_that_keeps_too_much_goes() -> None:
    """At once: the disk is what the limit is for. Others, which keep less, stay."""
    kept = Kept(reader_size=6000)
    late = segments_in(kept.files, PATH)[-2]
    register_reader(PATH, "near", late, kept.files)
    assert kept.days(0) and reader_offsets(PATH, kept.files) == {"near": late}
    assert list(dropped_readers(PATH, kept.files)) == ["lake"]


def test_one_of_a_node_that_copies_the_journal_stays() -> None:
    """Its full copy would begin again and again. The name alone is no reason: a plain broker has no nodes."""
    leader = Leader(SimulatedFiles(), options=replace(TINY, reader_size=1500))
    kept = Kept(reader_size=6000)
    register_reader(PATH, "node-b-1", 1, kept.files)
    for name in ("node-b-1", "lake"):
        register_reader(PATH, name, 1, leader.files)
    leader.driver.declare("a")
    for _ in range(6):
        leader.driver.settle("a", leader.driver.publish([b"x" * 1600], "a"))
        leader.turn()
    leader.driver.checkpoint()
    leader.turn()
    assert leader.journal.old_segments.reclaim() == [] and reader_offsets(PATH, leader.files) == {"node-b-1": 1}
    assert leader.journal.old_segments.readers.kept["node-b-1"].size > 1500
    assert kept.days(0) and reader_offsets(PATH, kept.files) == {}


def test_nothing_is_told_of_one_that_was_forgotten() -> None:
    """An operator deletes it: metrics and console name it no more, but they do name the one that is left."""
    kept = Kept()
    register_reader(PATH, "left", 1, kept.files)
    kept.days(1)
    assert kept.readers.kept.keys() == {"lake", "left"}
    forget_reader(PATH, "lake", kept.files)
    kept.days(1)
    assert kept.readers.kept.keys() == {"left"}


@pytest.mark.parametrize("content", [b'{"lsn": -1}', b'{"lsn": true}', b'{"lsn": "5"}', b"{}", b"5", b""])
def test_a_file_that_tells_no_offset_frees_nothing(content: bytes) -> None:
    """Whoever wrote it may need everything: the file is named, and no segment is deleted."""
    kept = Kept()
    replace_file(kept.files, f"{PATH}/readers", "lake.json", content)
    with pytest.raises(JournalError, match=r"lake\.json: not a reader's offset; nothing is deleted"):
        reader_offsets(PATH, kept.files)


@pytest.mark.parametrize("options", [{}, {"reader_age_ms": 90 * DAY_MS, "retain_ms": 400 * DAY_MS}])
def test_what_is_kept_anyway_is_not_for_a_reader(options: dict[str, int]) -> None:
    """Without limits all stays; what `retain` keeps drops no reader."""
    kept = Kept(**options)
    assert kept.days(300) == kept.days(10) == [] and reader_offsets(PATH, kept.files) == {"lake": 1}
    assert (kept.readers.kept["lake"].size > 0) is not bool(options)
    forget_reader(PATH, "lake", kept.files)
    assert bool(kept.days(0)) is not bool(options)
