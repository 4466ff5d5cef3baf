"""Faults of the file layer, each with its outcome."""

import errno
import threading
from collections import Counter
from collections.abc import Callable

import pytest
from journal_workload import ID, PATH, Driver, model_of
from journal_workload import opened as opened_journal
from simulated_files import SimulatedFiles

from leveret.engine import Field, ManualClock, encode_table
from leveret.journal import (
    Declared,
    Journal,
    JournalClosed,
    JournalError,
    JournalFailed,
    JournalFull,
    JournalOptions,
    WriterState,
    recover,
)
from leveret.journal.disk.files import SyncError
from leveret.journal.format.heap import IS_DURABLE
from leveret.journal.format.record import QUEUE


def opened(files: SimulatedFiles, *, segment_size: int = 10**6, fsync: str = "commit") -> Journal:
    options = JournalOptions(segment_size=segment_size, preallocate_size=0, fsync=fsync, fsync_interval_ms=0)
    return opened_journal(files, options)


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
    driver = Driver(opened_journal(files, options))
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


# -- a fault of each call of a life ------------------------------------------------------------------------------------

#: What writing asks of the file system.
CALLS = ("open", "write", "truncate", "preallocate", "sync", "sync_directory", "unlink", "rename")
NO_ROOM, LATER = {errno.ENOSPC, errno.EDQUOT}, {errno.EMFILE, errno.ENOMEM}
RUNNING, FULL, FAILED = WriterState.RUNNING, WriterState.FULL, WriterState.FAILED


def state_after(operation: str, path: str, error: int) -> WriterState:
    """What a fault means: the reserve and segments that are to go can wait, room ahead is not needed."""
    if operation in ("preallocate", "unlink") or path.endswith("reserve"):
        return RUNNING
    if operation == "sync" and not path.endswith("format.new"):  # that is written anew
        return FAILED
    if operation == "sync_directory":
        return RUNNING if error in LATER else FAILED
    return FULL if error in NO_ROOM else RUNNING if error in LATER else FAILED


class Life:
    """A journal that does all that it ever does; the n-th call of the file system fails, so many times in a row."""

    def __init__(self, at: int, error: int, times: int) -> None:
        self.files = SimulatedFiles()
        self.files.keeps_log = False
        self.told: list[int] = []
        self.errors: list[JournalError] = []
        self.at, self.error, self.times = at, error, times
        self.count = 0
        self.met: tuple[str, str] | None = None
        self._before = ("", "")
        options = JournalOptions(segment_size=600, preallocate_size=64, reserve_size=100)
        self.driver = Driver(opened_journal(self.files, options))
        self.journal = self.driver.journal
        self.journal.set_callbacks(self._durable, self.errors.append)
        self.files.fault = self._fault

    def _fault(self, operation: str, path: str) -> None:
        before, self._before = self._before, (operation, path)
        if operation not in CALLS or (operation, before) == ("truncate", ("preallocate", path)):  # how it is simulated
            return
        if self.met is None:
            self.count += 1
            if self.count != self.at:
                return
            self.met = operation, path
        elif self.times <= 0 or (operation, path) != self.met:
            return
        self.times -= 1
        is_synced = operation == "sync_directory" and self.error not in (errno.EMFILE, errno.EROFS)
        raise (SyncError if is_synced else OSError)(self.error, "ordered")

    def _durable(self, lsn: int) -> None:
        fault, self.files.fault = self.files.fault, lambda operation, path: None
        assert recover(self.files.power_cut(), PATH).next_lsn >= lsn, "it said so before it was"
        self.files.fault = fault
        assert not any(isinstance(error, JournalFailed) for error in self.errors), "after that nothing is known"
        self.told.append(lsn)

    def turns(self) -> None:
        """Names, messages, acknowledgements, segments that begin and go, room that is held back, ticks."""
        driver, journal = self.driver, self.journal
        for number in range(4):
            if not number:
                driver.declare("a", "b")
            journal.objects.declared(driver.queue_ids["a"], _declared(number))  # needs more and more of a reader
            driver.publish([b"x" * 200], "a", "b")
            self.turn()
            driver.settle("a", sorted(driver.model["a"]))
            self.turn()
            driver.purge("b")
            journal.commit()
            journal.tick()
            self.turn()
        driver.checkpoint()
        self.turn()
        journal.old_segments.reclaim()
        journal.refill_reserve()
        self.turn()
        driver.publish([b"last"], "a", "b")
        self.turn()

    def turn(self) -> None:
        """As much is written as can be."""
        self.journal.commit()
        while self.journal.writer.run_once():
            pass

    def is_over(self) -> bool:
        """Whether it ends well, sooner or later."""
        for _ in range(self.times + 3):
            self.journal.retry()
            self.turn()
        return self.journal.state is RUNNING


def _declared(number: int) -> Declared:
    table = {"x-queue-type": Field("S", b"amps")} if number == 2 else {}
    return Declared(QUEUE, IS_DURABLE, "", encode_table(table))


def calls_of_a_life() -> int:
    life = Life(0, 0, 0)
    life.turns()
    return life.count


@pytest.mark.parametrize(
    "error, times",
    [(errno.ENOSPC, 1), (errno.ENOSPC, 3), (errno.EMFILE, 1), (errno.EMFILE, 3), (5, 1), (errno.EROFS, 1)],
)
def test_a_fault_of_each_call(error: int, times: int) -> None:
    """Nobody hears that something is safe which is not; what can wait, waits, and is done in the end, once."""
    met: Counter[str] = Counter()
    for at in range(1, calls_of_a_life() + 1):
        life = Life(at, error, times)
        try:
            life.turns()
        except JournalFailed:
            assert life.journal.state is FAILED
        assert life.met is not None
        told = f"call {at}: {life.met}"
        met[life.met[0]] += 1
        expected = state_after(*life.met, error)
        kinds = {type(error) for error in life.errors}
        if expected is FAILED:
            assert life.journal.state is FAILED and issubclass(kinds.pop(), JournalFailed) and not kinds, told
            count = len(life.told)
            assert not life.is_over() and len(life.told) == count, told
            with pytest.raises(JournalFailed):
                life.journal.objects.define(QUEUE, 0, "late")
            with pytest.raises(JournalFailed):
                life.journal.close()
            opened(life.files.power_cut()).close()
            continue
        assert kinds == ({JournalFull} if expected is FULL else set()), told
        if expected is FULL:
            assert life.journal.state is FULL, told
            assert not life.told or life.told[-1] < life.journal.next_lsn, told
        count = len(life.told)
        assert life.is_over(), told
        if expected is FULL:
            assert len(life.told) > count and len(life.errors) == times, told
        assert life.journal.committed_lsn == life.journal.next_lsn, told
        assert sorted(life.told) == life.told, told
        assert life.journal.backlog_bytes == 0 and life.journal.failure is None, told
        for disk in (life.files.power_cut(), life.files.crash()):
            again = opened(disk)
            assert model_of(again.recovered, again) == life.driver.model, told
        life.journal.contents.close()
        assert len(life.files.handles) == 2, f"{told}: the lock and the open segment are all that is open"
        life.journal.close()
        assert not life.files.handles, told
    assert met.keys() == {"open", "write", "truncate", "preallocate", "sync", "sync_directory", "unlink", "rename"}, met
