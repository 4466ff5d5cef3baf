"""Small commits of the broker's thread, whose fsync the kernel does, and what the writer's thread does beside them."""

from __future__ import annotations

import errno
import os
import select
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest
from journal_workload import ID, PATH, model_of
from simulated_files import SimulatedFiles
from watched_journal import SECONDS_MAX, WatchedJournal

from leveret.engine import ManualClock
from leveret.journal import Journal, JournalError, JournalFailed, JournalFull, JournalOptions, WriterState, recover
from leveret.journal.disk.files import SyncError
from leveret.journal.disk.kernel_sync import KernelSync, kernel_sync
from leveret.journal.disk.segment_file import SegmentFile
from leveret.journal.disk.writer import SMALL_BLOCK_MAX, SYNC_DELAY_SECONDS

OPTIONS = JournalOptions(preallocate_size=0)


@pytest.fixture
def eventfd() -> Iterator[int]:
    number = os.eventfd(0, os.EFD_NONBLOCK)
    yield number
    os.close(number)


on_linux = pytest.mark.skipif(sys.platform != "linux", reason="io_submit is Linux's")


@on_linux
def test_it_says_when_it_is_done(tmp_path: Path, eventfd: int) -> None:
    sync = kernel_sync(eventfd)
    assert sync is not None
    handle = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    assert not sync.has_ended()
    for number in range(3):
        os.pwrite(handle, b"x" * 1000, 1000 * number)
        sync.begin(handle)
        assert select.select([eventfd], [], [], SECONDS_MAX)[0]
        os.eventfd_read(eventfd)
        assert sync.has_ended()
        assert not sync.has_ended()
    sync.begin(handle)
    assert sync.has_ended(waits=True)
    os.close(handle)
    sync.close()


@on_linux
def test_what_cannot_be_synced_is_refused_at_once(eventfd: int) -> None:
    sync = kernel_sync(eventfd)
    assert sync is not None
    reading, writing = os.pipe()
    for handle, number in ((writing, errno.EINVAL), (999_999, errno.EBADF)):
        with pytest.raises(OSError) as caught:
            sync.begin(handle)
        assert caught.value.errno == number
    assert not sync.has_ended()
    os.close(reading), os.close(writing)
    sync.close()


@on_linux
def test_a_failed_fsync_is_no_success(eventfd: int) -> None:
    """The kernel reports it as a negative number."""
    sync = kernel_sync(eventfd)
    assert sync is not None
    sync._event.result = -errno.EIO
    sync._call = lambda *_: 1
    with pytest.raises(SyncError, match="Input/output error"):
        sync.has_ended()


@on_linux
def test_a_system_without_it_has_the_thread(monkeypatch: pytest.MonkeyPatch, eventfd: int) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("platform.machine", lambda: "m68k")
        assert kernel_sync(eventfd) is None
    monkeypatch.setattr("sys.platform", "win32")
    assert kernel_sync(eventfd) is None


class OrderedSync(KernelSync):
    """An fsync of simulated files that ends when the test says so.

    `fails`: the error that the next call has. `open`: a handle whose fsync is under way.
    """

    def __init__(self, files: SimulatedFiles) -> None:
        self.files = files
        self.open: int | None = None
        self.fails: OSError | None = None
        self.count = 0
        self.is_closed = False

    def begin(self, handle: int) -> None:
        assert self.open is None and not self.is_closed
        if self.fails is not None:
            raise self.fails
        self.open = handle

    def has_ended(self, *, waits: bool = False) -> bool:
        if self.open is None or not waits:
            return False
        handle, self.open = self.open, None
        if self.fails is not None:
            raise SyncError(self.fails.errno, "fsync: ordered")
        self.files.sync(handle)
        self.count += 1
        return True

    def close(self) -> None:
        assert self.open is None
        self.is_closed = True


class Loop(WatchedJournal):
    """A journal with its thread, served as an event loop serves it; the clock stands still unless a test moves it."""

    def __init__(self) -> None:
        files = SimulatedFiles()
        super().__init__(files, Journal.open(PATH, ManualClock(), OPTIONS, files=files, new_id=ID))
        self.writer = self.journal.writer
        self.now_s = 0.0
        self.writer.file.now_s = lambda: self.now_s
        self.watch()
        self.sync = OrderedSync(self.files)
        self.writer.let_kernel_sync(self.sync)
        self.writer.add(SegmentFile.tick)
        assert self.until(lambda: self.sleeps > 0)

    def has_kept_all(self) -> bool:
        """After a power cut."""
        again = Journal.open(PATH, ManualClock(), OPTIONS, files=self.files.power_cut(), threaded=False)
        found = model_of(again.recovered, again)
        again.close()
        return found == self.driver.model

    def end(self) -> None:
        """The kernel is done, and wakes the loop."""
        self.writer.end_small(waits=True)


@pytest.fixture
def loop() -> Iterator[Loop]:
    one = Loop()
    yield one
    one.files.fault = lambda operation, path: None
    one.sync.fails = None
    if one.journal.state is not WriterState.CLOSED:
        try:
            one.journal.close()
        except JournalError:
            pass


def test_a_lone_message_needs_no_thread(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop.writer, "commit_taken", lambda: pytest.fail("the thread has committed"))
    syncs = loop.journal.statistics().syncs
    for count in (1, 2, 3):
        end = loop.publish()
        loop.writer.commit_small()
        assert loop.journal.committed_lsn < end, "it is confirmed before the kernel says that it is safe"
        loop.end()
        assert loop.journal.committed_lsn == end
        assert loop.sync.count == count
        assert recover(loop.files.power_cut(), PATH).next_lsn >= end
    assert loop.told == [], "the loop was told what it knows"
    assert loop.journal.statistics().syncs == syncs + 3


def test_turns_during_the_fsync_have_the_next_one(loop: Loop) -> None:
    """All of them together."""
    first = loop.publish()
    loop.writer.commit_small()
    for _ in range(5):
        end = loop.publish()
        loop.writer.commit_small()
    loop.end()
    assert loop.journal.committed_lsn == first
    loop.writer.commit_small()
    loop.end()
    assert loop.journal.committed_lsn == end
    assert loop.sync.count == 2


def test_acknowledgements_wait_for_others(loop: Loop) -> None:
    """With a message they have one fsync; alone they have one when they have waited long enough."""
    first = loop.acknowledge()
    assert loop.writer.commit_small() == SYNC_DELAY_SECONDS
    loop.now_s += SYNC_DELAY_SECONDS / 2
    loop.acknowledge()
    assert loop.writer.commit_small() == pytest.approx(SYNC_DELAY_SECONDS / 2)
    end = loop.publish()
    loop.writer.commit_small()
    loop.end()
    assert (loop.journal.committed_lsn, loop.sync.count) == (end, 1)
    assert first < end
    end = loop.acknowledge()
    assert loop.writer.commit_small() == pytest.approx(SYNC_DELAY_SECONDS), "the time begins anew"
    loop.now_s += 2 * SYNC_DELAY_SECONDS
    loop.writer.commit_small()
    loop.end()
    assert (loop.journal.committed_lsn, loop.sync.count) == (end, 2)


def test_a_barrier_that_is_taken_later(loop: Loop) -> None:
    """An answer that begins to wait for acknowledgements has them committed at once."""
    end = loop.acknowledge()
    loop.journal.turns.is_awaited = True
    loop.journal.commit()
    loop.writer.commit_small()
    loop.end()
    assert loop.journal.committed_lsn == end


@pytest.mark.parametrize("is_under_way", [False, True])
def test_large_blocks_are_the_threads(loop: Loop, *, is_under_way: bool) -> None:
    """The broker goes on while they are written."""
    if is_under_way:
        loop.publish()
        loop.writer.commit_small()
    end = loop.publish(SMALL_BLOCK_MAX)
    if is_under_way:
        loop.end()
    assert loop.until(lambda: loop.told[-1:] == [end])
    assert loop.sync.count == int(is_under_way)


def test_other_work_comes_after_the_fsync_under_way(loop: Loop) -> None:
    """A new segment, which the thread begins."""
    loop.publish()
    loop.writer.commit_small()
    segment, slept = loop.writer.file.segment, loop.sleeps
    loop.journal.begin_segment()
    assert loop.until(lambda: loop.sleeps > slept)
    assert loop.writer.file.segment is segment
    end = loop.journal.next_lsn
    loop.end()
    assert loop.until(lambda: loop.told[-1:] == [end])
    assert recover(loop.files.power_cut(), PATH).next_lsn >= end


def test_an_unfinished_turn_is_not_cut(loop: Loop) -> None:
    loop.driver.publish([b"x"], "a")
    loop.writer._is_awaited = True
    loop.writer.commit_small()
    assert loop.sync.open is None
    end = loop.journal.commit()
    loop.writer.commit_small()
    loop.end()
    assert loop.journal.committed_lsn == end


def test_a_failed_fsync_confirms_nothing(loop: Loop) -> None:
    """And stops the journal, as that of the thread does."""
    before = loop.journal.committed_lsn
    loop.publish()
    loop.writer.commit_small()
    loop.sync.fails = OSError(errno.EIO, "ordered")
    loop.end()
    assert [type(error) for error in loop.errors] == [JournalFailed]
    assert loop.journal.committed_lsn == before
    with pytest.raises(JournalFailed):
        loop.publish()


def test_a_disk_without_room(loop: Loop) -> None:
    """The thread writes it when there is room."""

    def no_room(operation: str, path: str) -> None:
        if operation == "write":
            raise OSError(errno.ENOSPC, "ordered")

    loop.files.fault = no_room
    end = loop.publish()
    loop.writer.commit_small()
    assert [type(error) for error in loop.errors] == [JournalFull]
    assert loop.sync.open is None
    loop.files.fault = lambda operation, path: None
    loop.journal.retry()
    assert loop.journal.wait(end, SECONDS_MAX)


def test_without_memory_the_thread_tries_again(loop: Loop) -> None:
    fails = [True]

    def no_memory(operation: str, path: str) -> None:
        if operation == "write" and fails and fails.pop():
            raise OSError(errno.ENOMEM, "ordered")

    loop.files.fault = no_memory
    end = loop.publish()
    loop.writer.commit_small()
    assert loop.journal.wait(end, SECONDS_MAX)
    assert loop.errors == []


def test_a_kernel_that_cannot_leaves_it_to_the_thread(loop: Loop) -> None:
    """From then on, and nothing is confirmed before it is safe."""
    loop.sync.fails = OSError(errno.ENOSYS, "ordered")
    end = loop.publish()
    loop.writer.commit_small()
    assert loop.journal.committed_lsn == end
    assert recover(loop.files.power_cut(), PATH).next_lsn >= end
    assert loop.sync.is_closed
    end = loop.publish()
    assert loop.journal.wait(end, SECONDS_MAX)
    assert loop.sync.count == 0


@pytest.mark.parametrize("last", [Loop.publish, Loop.acknowledge])
def test_it_ends_with_an_fsync_under_way(loop: Loop, last: Callable[[Loop], int]) -> None:
    """What came meanwhile is written, too."""
    loop.publish()
    loop.writer.commit_small()
    end = last(loop)
    loop.journal.close()
    assert loop.sync.is_closed
    assert recover(loop.files.power_cut(), PATH).next_lsn >= end
    assert loop.has_kept_all()


@pytest.mark.parametrize("seed", range(30))
def test_what_is_safe_outlives_a_power_cut(loop: Loop, seed: int) -> None:
    """Any order of turns, ends of fsyncs, segments and waits: no LSN is called safe that a power cut takes away."""
    random = Random(seed)
    for _ in range(60):
        step = random.choice("ppppaaeewwrl")
        if step == "p":
            loop.publish()
        elif step == "a" and loop.driver.model["a"]:
            loop.acknowledge()
        elif step == "e":
            loop.end()
        elif step == "r":
            loop.journal.begin_segment()
        elif step == "l":
            loop.publish(SMALL_BLOCK_MAX)
        elif step == "w":
            loop.now_s += random.choice((0, SYNC_DELAY_SECONDS))
        if random.random() < 0.7:
            loop.writer.commit_small()
        if random.random() < 0.2:
            safe = loop.journal.committed_lsn
            assert recover(loop.files.power_cut(random), PATH).next_lsn >= safe
    end = loop.publish()
    assert loop.journal.wait(end, SECONDS_MAX)
    loop.journal.close()
    assert loop.has_kept_all()
