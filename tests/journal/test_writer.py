"""The journal's thread sleeps until there is something to do: whoever gives it work wakes it, whoever waits is woken.

Its patience never ends here, so that nothing is done by the clock.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Iterator

import pytest
from journal_workload import ID, PATH, Driver, model_of, opened
from simulated_files import SimulatedFiles
from watched_journal import SECONDS_MAX, WatchedJournal

from leveret.engine import ManualClock
from leveret.engine.events import EventKind
from leveret.journal import Journal, JournalError, JournalFailed, JournalFull, JournalOptions, WriterState, recover
from leveret.journal.disk import writer as writing

RESERVE = 5000


class Watched(WatchedJournal):
    """A journal with an old segment that may go. `asked`: operations of the file system since it was cleared."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.fails: Callable[[str, str], object] = lambda operation, path: None
        files = SimulatedFiles()
        super().__init__(files, opened(files, JournalOptions(preallocate_size=0, reserve_size=RESERVE)))
        self.files.fault = self._fault
        self.watch()
        self.journal.writer.start()
        assert self.until(lambda: self.sleeps > 0)

    def _fault(self, operation: str, path: str) -> None:
        with self.changed:
            self.asked.append(operation)
            self.changed.notify_all()
        self.fails(operation, path)

    def durable(self, lsn: int) -> None:
        assert recover(self.files.power_cut(), PATH).next_lsn >= lsn, "it said so before it was"
        super().durable(lsn)

    def falls_asleep_after(self, act: Callable[[], object]) -> bool:
        """Whether it does what it finds after `act`, and then sleeps."""
        slept = self.sleeps
        act()
        return self.until(lambda: self.sleeps > slept)

    def fill_up(self) -> int:
        """The disk is full, and the thread sleeps. Returns the LSN after what did not fit."""

        def no_room(operation: str, path: str) -> None:
            if operation in ("write", "open", "truncate"):
                raise OSError(errno.ENOSPC, "ordered")

        self.fails = no_room
        assert self.falls_asleep_after(self.publish)
        assert self.journal.state is WriterState.FULL
        return self.journal.next_lsn

    def has_room(self) -> None:
        """Again; nobody says so."""
        self.fails = lambda operation, path: None


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Iterator[Watched]:
    monkeypatch.setattr(writing, "SYNC_DELAY_SECONDS", 3600.0)
    one = Watched()
    yield one
    one.has_room()
    if one.journal.state is WriterState.CLOSED:
        return
    try:
        one.journal.close()
    except JournalError:
        assert one.errors


def _reclaim(one: Watched) -> None:
    """The segment with the first messages."""
    one.driver.purge("a")
    one.journal.commit()
    one.journal.begin_segment()
    one.driver.checkpoint()
    one.publish()
    assert one.until(lambda: one.journal.durable_lsn >= one.journal.next_lsn)
    assert one.journal.old_segments.reclaim() == [1]


def _barrier(one: Watched) -> None:
    """Somebody begins to wait for acknowledgements of an earlier turn."""
    one.acknowledge()
    one.journal.turns.is_awaited = True
    one.journal.commit()


#: What gives it work -> the last thing that it does for it.
WORK: dict[str, tuple[Callable[[Watched], object], str]] = {
    "a publish": (Watched.publish, "sync"),
    "a barrier that is taken later": (_barrier, "sync"),
    "another segment": (lambda one: one.journal.begin_segment(), "sync_directory"),
    "a tick": (lambda one: one.journal.tick(), "write"),
    "the reserve": (lambda one: one.journal.refill_reserve(), "preallocate"),
    "segments that may go": (_reclaim, "unlink"),
    "someone who waits": (lambda one: one.journal.wait(one.acknowledge(), SECONDS_MAX), "sync"),
}


@pytest.mark.parametrize("work", WORK)
def test_it_is_woken_for(watched: Watched, work: str) -> None:
    """Each of them at once, and not by the next publish."""
    act, last = WORK[work]
    if work == "the reserve":
        watched.journal._reserve.release()
    watched.asked.clear()
    act(watched)
    assert watched.until(lambda: last in watched.asked)


def test_acknowledgements_are_not_woken_for(watched: Watched) -> None:
    """They go with what is awaited, in its commit; whichever kind of record says that they are."""
    in_sync, go_on = threading.Event(), threading.Event()

    def slow(operation: str, path: str) -> None:
        if operation == "sync":
            in_sync.set()
            assert go_on.wait(SECONDS_MAX)

    watched.fails = slow
    watched.driver.publish([b"x"] * 5, "a")
    published = watched.journal.commit()
    assert in_sync.wait(SECONDS_MAX)
    watched.acknowledge()
    watched.journal.messages.happened(EventKind.ACKED, watched.driver.queue_ids["a"], [2, 3])
    watched.journal.commit()
    watched.journal.messages.settled_range(EventKind.ACKED, watched.driver.queue_ids["a"], range(4, 7))
    watched.journal.commit()
    assert watched.falls_asleep_after(go_on.set)
    assert watched.journal.committed_lsn == watched.journal.writer.file.written_lsn == published
    watched.asked.clear()
    end = watched.publish()
    assert watched.until(lambda: watched.told[-1:] == [end]) and watched.asked.count("sync") == 1


@pytest.mark.parametrize(
    "kind", [EventKind.EXPIRED, EventKind.DROPPED, EventKind.PURGED, EventKind.REQUEUED, EventKind.SCHEDULED]
)
def test_whatever_else_happens_is_woken_for(watched: Watched, kind: EventKind) -> None:
    """Who purges, or what is dead-lettered, has somebody who waits for it."""
    watched.journal.messages.happened(kind, watched.driver.queue_ids["a"], [1])
    end = watched.journal.commit()
    assert watched.until(lambda: watched.told[-1:] == [end])


def test_patience_is_of_one_turn(watched: Watched) -> None:
    """Many acknowledgements before do not make a publish, or fewer records than they were, wait."""
    for _ in range(3):
        watched.acknowledge()
    end = watched.publish()
    assert watched.until(lambda: watched.told[-1:] == [end])


@pytest.mark.parametrize("how", ["retry", "with the reserve", "close"])
def test_a_full_disk_that_has_room_again(watched: Watched, how: str) -> None:
    """It sleeps until it is told to try again; then all is written, and said to be."""
    if how == "with the reserve":
        watched.journal.refill_reserve()
        assert watched.until(lambda: watched.journal._reserve.is_full)
    end = watched.fill_up()
    assert [type(error) for error in watched.errors] == [JournalFull]
    told = list(watched.told)
    assert watched.falls_asleep_after(watched.journal.retry), "there is none yet"
    assert len(watched.errors) == 2 and watched.told == told
    watched.has_room()
    if how == "close":
        watched.journal.close()
        again = Journal.open(PATH, ManualClock(), files=watched.files.power_cut(), threaded=False)
        assert model_of(again.recovered, again) == watched.driver.model
        return
    watched.asked.clear()
    if how == "retry":
        watched.journal.retry()
    else:
        watched.journal.writer.retry(spends_reserve=True)
    assert watched.until(lambda: watched.told[-1:] == [end])
    assert ("unlink" in watched.asked) is (how == "with the reserve") is watched.journal.has_spent_reserve
    assert watched.journal.state is WriterState.RUNNING and watched.journal.failure is None
    assert watched.falls_asleep_after(watched.publish)
    assert watched.told[-1] == watched.journal.next_lsn


@pytest.mark.parametrize("doing", ["a tick", "the reserve", "another segment"])
def test_room_again_is_told_where_no_record_waits(watched: Watched, doing: str) -> None:
    """Publishers are refused until then, and no LSN rises by it."""

    def no_room(operation: str, path: str) -> None:
        if operation in ("write", "open", "truncate"):
            raise OSError(errno.ENOSPC, "ordered")

    if doing == "the reserve":  # for want of which nothing is full
        watched.journal._reserve.release()
        watched.fails = no_room
        assert watched.falls_asleep_after(watched.journal.refill_reserve)
        assert watched.journal.state is WriterState.RUNNING and not watched.errors
        return
    watched.fails = no_room
    assert watched.falls_asleep_after(watched.journal.tick if doing == "a tick" else watched.journal.begin_segment)
    assert watched.journal.state is WriterState.FULL
    watched.told.clear()
    watched.has_room()
    watched.journal.retry()
    assert watched.until(lambda: bool(watched.told))
    assert watched.falls_asleep_after(watched.journal.tick)
    assert len(watched.told) == 1, "once"


@pytest.mark.parametrize("error, is_done", [(0, True), (errno.ENOSPC, False), (errno.EIO, False), (errno.EROFS, False)])
@pytest.mark.parametrize("operation", ["write", "sync"])
def test_who_waits_is_woken(watched: Watched, operation: str, error: int, is_done: bool) -> None:
    """When it is done, and when it cannot be."""
    is_asked, go_on = threading.Event(), threading.Event()

    def slow(asked: str, path: str) -> None:
        if asked == operation:
            is_asked.set()
            assert go_on.wait(SECONDS_MAX)
            if error:
                raise OSError(error, "ordered")

    watched.fails = slow
    end = watched.publish()
    assert is_asked.wait(SECONDS_MAX)
    found: list[bool] = []
    waits = threading.Thread(target=lambda: found.append(watched.journal.wait(end)), daemon=True)
    waits.start()
    go_on.set()
    waits.join(SECONDS_MAX)
    assert found == [is_done]
    assert bool(watched.told) is is_done
    if operation == "sync" or error not in (0, errno.ENOSPC):
        assert (watched.journal.state is WriterState.FAILED) is not is_done
        if not is_done:
            assert [isinstance(one, JournalFailed) for one in watched.errors] == [True]


@pytest.mark.parametrize("fsync", ["commit", "interval", "never"])
@pytest.mark.parametrize("error", [0, errno.ENOSPC, errno.EIO])
def test_who_waits_for_the_end_is_woken(error: int, fsync: str) -> None:
    """Closing ends whatever the disk does, says what it could not do, and what was safe is there."""
    files = SimulatedFiles()
    options = JournalOptions(preallocate_size=0, fsync=fsync, fsync_interval_ms=0)
    journal = Journal.open(PATH, ManualClock(), options, files=files, new_id=ID)
    driver = Driver(journal)
    driver.declare("a")
    driver.publish([b"1"], "a")
    assert journal.wait(journal.commit(), SECONDS_MAX)
    before = dict(driver.model["a"])

    def fail(operation: str, path: str) -> None:
        if error and operation == "write":
            raise OSError(error, "ordered")

    files.fault = fail
    driver.publish([b"2"], "a")
    journal.commit()
    closes = threading.Thread(target=lambda: _closed(journal, found), daemon=True)
    found: list[JournalError | None] = []
    closes.start()
    closes.join(SECONDS_MAX)
    assert [None if one is None else type(one) for one in found] == [
        {0: None, errno.ENOSPC: JournalFull, errno.EIO: JournalFailed}[error]
    ]
    files.fault = lambda operation, path: None
    disk = files.crash() if fsync == "never" and error else files.power_cut()
    again = Journal.open(PATH, ManualClock(), files=disk, threaded=False)
    assert model_of(again.recovered, again)["a"] == (before if error else driver.model["a"])


def _closed(journal: Journal, found: list[JournalError | None]) -> None:
    try:
        journal.close()
        found.append(None)
    except JournalError as error:
        found.append(error)


def test_closing_leaves_no_file_open_if_the_footer_cannot_be_written() -> None:
    """Whatever the disk does."""
    files = SimulatedFiles()
    journal = Journal.open(PATH, ManualClock(), JournalOptions(preallocate_size=0), files=files, threaded=False)
    journal.wait(journal.commit())

    def fail(operation: str, path: str) -> None:
        if operation == "write":
            raise OSError(errno.EIO, "ordered")

    files.fault = fail
    with pytest.raises(JournalFailed):
        journal.close()
    assert files.handles == {}
