"""Faults of the file layer, each with its outcome."""

import errno
import threading
from collections.abc import Callable

import pytest
from journal_workload import ID, PATH, Driver, model_of
from simulated_files import SimulatedFiles

from leveret.engine import ManualClock
from leveret.journal import (
    Journal,
    JournalClosed,
    JournalError,
    JournalFailed,
    JournalFull,
    JournalOptions,
    WriterState,
)


def opened(files: SimulatedFiles, *, segment_size: int = 10**6, fsync: str = "commit") -> Journal:
    options = JournalOptions(segment_size=segment_size, preallocate_size=0, fsync=fsync, fsync_interval_ms=0)
    return Journal.open(PATH, ManualClock(), options, files=files, threaded=False, new_id=ID)


def started(files: SimulatedFiles, **options: int) -> tuple[Driver, list[JournalError], list[int]]:
    """A journal with a queue and a committed message; what it tells."""
    errors: list[JournalError] = []
    told: list[int] = []
    driver = Driver(opened(files, **options))
    driver.journal.set_callbacks(told.append, errors.append)
    driver.declare("a")
    driver.publish([b"first"], "a")
    assert driver.journal.wait(driver.journal.commit())
    return driver, errors, told


def once(operation: str, error: int, path: str = ".log") -> Callable[[str, str], object]:
    """A fault that happens once."""
    left = [1]

    def fault(asked: str, where: str) -> None:
        if asked == operation and path in where and left:
            left.pop()
            raise OSError(error, "ordered")

    return fault


def test_short_writes_are_no_fault() -> None:
    """The system takes seven octets a write."""
    files = SimulatedFiles()
    files.write_max = 7
    driver, errors, _ = started(files)
    journal = opened(files.crash())
    assert model_of(journal.recovered, journal) == driver.model
    assert not errors


@pytest.mark.parametrize("room", range(0, 700, 37))
def test_no_room_then_room(room: int) -> None:
    """Nothing is confirmed, nothing is lost, appending goes on; after `retry` all is written, once."""
    files = SimulatedFiles()
    driver, errors, told = started(files, segment_size=900)
    files.capacity = files.used + room
    before = driver.journal.committed_lsn
    for _ in range(3):
        driver.publish([b"x" * 400], "a")
        end = driver.journal.commit()
        driver.journal.writer.run_once()
    assert driver.journal.state is WriterState.FULL
    assert len(errors) == 1 and isinstance(errors[0], JournalFull)
    assert driver.journal.backlog_bytes > 400
    assert before <= driver.journal.committed_lsn < end
    recovered = opened(files.crash())
    found = model_of(recovered.recovered, recovered)["a"]
    assert found.keys() <= driver.model["a"].keys() and 1 in found
    driver.journal.retry()
    driver.journal.writer.run_once()
    assert driver.journal.state is WriterState.FULL and len(errors) == 2
    files.capacity = None
    driver.journal.retry()
    assert driver.journal.wait(end)
    assert told[-1] == end and told == sorted(set(told))
    assert driver.journal.state is WriterState.RUNNING and not driver.journal.backlog_bytes
    driver.journal.close()
    again = opened(files)
    assert model_of(again.recovered, again) == driver.model


@pytest.mark.parametrize("operation, error", [("write", errno.EIO), ("sync", errno.EIO), ("sync", errno.ENOSPC)])
def test_errors_after_which_nothing_is_trusted(operation: str, error: int) -> None:
    """EIO of a write, any error of an fsync: no more appends, no more confirms, until opened again."""
    files = SimulatedFiles()
    driver, errors, told = started(files)
    before = dict(driver.model["a"])
    confirmed = list(told)
    files.fault = once(operation, error)
    driver.publish([b"second"], "a")
    end = driver.journal.commit()
    assert not driver.journal.wait(end)
    assert driver.journal.state is WriterState.FAILED
    assert [type(error) for error in errors] == [JournalFailed]
    with pytest.raises(JournalFailed):
        driver.publish([b"third"], "a")
    driver.journal.retry()
    assert not driver.journal.wait(end) and told == confirmed
    assert driver.journal.contents.read(driver.lsns[1])
    with pytest.raises(JournalFailed):
        driver.journal.close()
    again = opened(files)
    found = model_of(again.recovered, again)["a"]
    assert found in (before, {id_: driver.model["a"][id_] for id_ in (1, 2)})
    assert not again.wait(again.commit() + 1) and again.state is WriterState.RUNNING


@pytest.mark.parametrize("operation", ["open", "truncate", "write"])
def test_no_room_for_a_new_segment(operation: str) -> None:
    """The roll is repeated whole."""
    files = SimulatedFiles()
    driver, errors, _ = started(files, segment_size=100)
    files.fault = once(operation, errno.ENOSPC)
    driver.publish([b"second"], "a")
    end = driver.journal.commit()
    assert not driver.journal.wait(end)
    assert driver.journal.state is WriterState.FULL
    driver.journal.retry()
    assert driver.journal.wait(end)
    driver.journal.close()
    again = opened(files)
    assert model_of(again.recovered, again) == driver.model


def test_a_directory_that_cannot_be_synced_is_a_failure() -> None:
    """The new segment's name may not survive: nothing in it is confirmed."""
    files = SimulatedFiles()
    driver, errors, _ = started(files, segment_size=100)
    files.fault = once("sync_directory", errno.EIO, PATH)
    driver.publish([b"second"], "a")
    assert not driver.journal.wait(driver.journal.commit())
    assert driver.journal.state is WriterState.FAILED and isinstance(errors[0], JournalFailed)


def test_a_slow_fsync_only_delays() -> None:
    """While the writer is in fsync, turns go on and gather into the next commit."""
    files = SimulatedFiles()
    options = JournalOptions(preallocate_size=0)
    journal = Journal.open(PATH, ManualClock(), options, files=files, new_id=ID)
    driver = Driver(journal)
    driver.declare("a")
    assert journal.wait(journal.commit(), 30)
    in_sync, go_on = threading.Event(), threading.Event()

    def slow(operation: str, path: str) -> None:
        if operation == "sync":
            in_sync.set()
            assert go_on.wait(60)

    files.fault = slow
    driver.publish([b"1"], "a")
    first = journal.commit()
    assert in_sync.wait(60)
    for _ in range(50):
        driver.publish([b"2"], "a")
        end = journal.commit()
    assert journal.committed_lsn < first and journal.backlog_bytes > 0
    syncs = journal.statistics().syncs
    go_on.set()
    assert journal.wait(end, 30)
    assert journal.statistics().syncs == syncs + 2
    journal.close()


def test_the_thread_survives_a_full_disk() -> None:
    """The same with the thread: full, retry, room, done; close tries a last time."""
    files = SimulatedFiles()
    journal = Journal.open(PATH, ManualClock(), JournalOptions(preallocate_size=0), files=files, new_id=ID)
    full = threading.Event()
    journal.set_callbacks(lambda lsn: None, lambda error: full.set())
    driver = Driver(journal)
    driver.declare("a")
    assert journal.wait(journal.commit(), 30)
    files.capacity = 0
    driver.publish([b"1"], "a")
    end = journal.commit()
    assert full.wait(60) and not journal.wait(end, 30)
    full.clear()
    journal.retry()
    assert full.wait(60)
    files.capacity = None
    journal.close()
    again = opened(files)
    assert model_of(again.recovered, again) == driver.model
    with pytest.raises(JournalClosed):
        driver.publish([b"2"], "a")


def test_closing_while_the_disk_is_full_says_so() -> None:
    """What could not be written is not there; what was confirmed is."""
    files = SimulatedFiles()
    driver, _, _ = started(files)
    before = dict(driver.model["a"])
    files.capacity = 0
    driver.publish([b"second"], "a")
    driver.journal.commit()
    with pytest.raises(JournalFull):
        driver.journal.close()
    files.capacity = None
    again = opened(files)
    assert model_of(again.recovered, again)["a"] == before


def test_preallocation_that_the_system_refuses_is_done_without() -> None:
    """Not every file system knows how."""
    files = SimulatedFiles()
    files.fault = lambda operation, path: operation == "preallocate" and _raise(errno.EOPNOTSUPP)
    options = JournalOptions(preallocate_size=4096)
    driver = Driver(Journal.open(PATH, ManualClock(), options, files=files, threaded=False, new_id=ID))
    driver.declare("a")
    assert driver.journal.wait(driver.journal.commit())
    assert driver.journal.state is WriterState.RUNNING


def _raise(error: int) -> None:
    raise OSError(error, "ordered")


@pytest.mark.parametrize("fsync, kept", [("commit", True), ("interval", True), ("never", False)])
def test_what_each_mode_promises(fsync: str, kept: bool) -> None:
    """A power cut after a confirm: `never` may lose it (interval is 0 ms here); a kill loses nothing."""
    files = SimulatedFiles()
    driver = Driver(opened(files, fsync=fsync))
    driver.declare("a")
    driver.publish([b"first"], "a")
    assert driver.journal.wait(driver.journal.commit())
    killed = opened(files.crash())
    assert model_of(killed.recovered, killed) == driver.model
    cut = opened(files.power_cut())
    assert (model_of(cut.recovered, cut) == driver.model) is kept


@pytest.mark.parametrize("at", range(24))
def test_opening_can_be_interrupted_anywhere(at: int) -> None:
    """A crash while a crash is recovered from."""
    files = SimulatedFiles()
    driver, _, _ = started(files)
    broken = files.crash()
    path = f"{PATH}/{1:020d}.log"
    broken.put(path, files.content(path) + b"torn")
    count = [at]

    def fault(operation: str, path: str) -> None:
        if operation in ("write", "sync", "truncate", "sync_directory", "rename", "unlink"):
            count[0] -= 1
            if count[0] < 0:
                raise OSError(errno.EIO, "ordered")

    broken.fault = fault
    try:
        opened(broken).wait(1)
    except OSError:
        pass
    for after in (broken.crash(), broken.power_cut()):
        journal = opened(after)
        assert model_of(journal.recovered, journal) == driver.model
        journal.close()
