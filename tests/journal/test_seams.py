"""What happens between two parts of the journal: a segment that goes while something still points at it, a disk that
fills up while a segment begins, a reader of contents beside the deletion of what it has read."""

from __future__ import annotations

import errno

from journal_workload import Driver, model_of, opened
from simulated_files import SimulatedFiles

from leveret.journal import JournalOptions, WriterState
from leveret.journal.recovery.recovered import FRESH


def turn(driver: Driver) -> None:
    assert driver.journal.wait(driver.journal.commit())


def test_a_segment_that_was_needed_again_waits_for_its_new_end() -> None:
    """A replay brings a message of it back, which is acknowledged: that has to be on the disk before the segment goes.
    Otherwise a power cut leaves the message without its content, and the broker does not start."""
    files = SimulatedFiles()
    options = JournalOptions(preallocate_size=0, fsync="interval", fsync_interval_ms=1_000_000)
    driver = Driver(opened(files, options))
    journal = driver.journal
    driver.declare("a")
    (id_,) = driver.publish([b"x"], "a")
    driver.settle("a", [id_])
    journal.commit()
    journal.begin_segment()
    driver.checkpoint()
    journal.commit()
    journal.begin_segment()  # which syncs what is before
    assert journal.writer.run_once()
    driver.publish([b"y"], "a")
    journal.commit()
    assert journal.old_segments.reclaim() == [], "the acknowledgement may not be on the disk, for all that is known"

    journal.messages.enqueued(driver.queue_ids["a"], [id_], driver.lsns[id_], [1])
    journal.commit()
    journal.begin_segment()
    assert journal.writer.run_once()
    assert journal.old_segments.reclaim() == []
    driver.model["a"][id_] = (b"x", FRESH)
    safe = {name: dict(messages) for name, messages in driver.model.items()}
    driver.settle("a", [id_])
    journal.commit()
    journal.old_segments.reclaim()
    while journal.writer.run_once():
        pass
    again = opened(files.power_cut(), options)
    assert model_of(again.recovered, again) == safe


def test_a_disk_that_stays_full_takes_no_descriptors() -> None:
    """Each try to begin a segment closes the file that it could not write."""
    files = SimulatedFiles()
    driver = Driver(opened(files))
    driver.declare("a")
    turn(driver)
    before, known = len(files.handles), set(files.names_now)

    def fail(operation: str, path: str) -> None:
        if operation == "write" and path not in known:
            raise OSError(errno.ENOSPC, "no room")

    files.fault = fail
    driver.journal.begin_segment()
    for _ in range(5):
        driver.journal.writer.run_once()
        assert driver.journal.state is WriterState.FULL
        driver.journal.retry()
    assert len(files.handles) == before


def test_a_segment_that_is_left_is_closed() -> None:
    """However many there are: the journal writes to one."""
    files = SimulatedFiles()
    driver = Driver(opened(files))
    driver.declare("a")
    turn(driver)
    before = len(files.handles)
    for _ in range(5):
        driver.journal.begin_segment()
        driver.publish([b"x"], "a")
        turn(driver)
    assert len(files.handles) == before
