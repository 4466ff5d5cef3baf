"""Descriptors and memory at their end: what the journal cannot do now it does later, and loses nothing."""

import errno
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from depth_world import PERSISTENT, DepthWorld
from journal_workload import ID, PATH, Driver, model_of, opened
from simulated_files import SimulatedFiles

from leveret.engine import ManualClock
from leveret.journal import (
    DirectoryLost,
    Journal,
    JournalError,
    JournalFailed,
    JournalOptions,
    WriterState,
    reader_offsets,
    register_reader,
)
from leveret.journal.disk import (
    writer,
)
from leveret.journal.disk.files import SpareFiles
from leveret.journal.recording.pager import JournalPager
from leveret.journal.recording.temp_store import FileTempStore
from leveret.journal.recovery.content_reader import ReadAhead

Fault = Callable[[str, str], object]


def often(times: int, operation: str, error: int) -> Fault:
    """A fault that happens so often."""
    left = [times]

    def fault(asked: str, path: str) -> None:
        if asked == operation and left[0]:
            left[0] -= 1
            raise OSError(error, os.strerror(error), path)

    return fault


def started(files: SimulatedFiles, *, threaded: bool = False) -> tuple[Driver, list[JournalError]]:
    """A journal whose next record begins a new segment; what it reports."""
    options = JournalOptions(segment_size=100, preallocate_size=0)
    journal = Journal.open(PATH, ManualClock(), options, files=files, threaded=threaded, new_id=ID)
    errors: list[JournalError] = []
    journal.set_callbacks(lambda lsn: None, errors.append)
    driver = Driver(journal)
    driver.declare("a")
    driver.publish([b"first"], "a")
    assert journal.wait(journal.commit(), 30)
    return driver, errors


@pytest.mark.parametrize(
    "operation, error",
    [
        ("open", errno.EMFILE),
        ("open", errno.ENFILE),
        ("open", errno.ENOMEM),
        ("truncate", errno.ENOMEM),
        ("write", errno.ENOMEM),
        ("sync_directory", errno.EMFILE),
        ("sync_directory", errno.ENFILE),
    ],
)
@pytest.mark.parametrize("times", [1, 3])
def test_a_roll_that_finds_none_is_done_later(operation: str, error: int, times: int) -> None:
    """Confirms wait; nothing is reported as a failure, nothing is lost, whatever was done before is done again."""
    files = SimulatedFiles()
    driver, errors = started(files)
    journal = driver.journal
    files.fault = often(times, operation, error)
    driver.publish([b"second"], "a")
    end = journal.commit()
    for _ in range(times):
        assert not journal.wait(end)
        assert journal.committed_lsn < end and journal.state is WriterState.RUNNING
        driver.publish([b"more"], "a")
        end = journal.commit()
    assert journal.wait(end)
    assert errors == []
    journal.close()
    again = Journal.open(PATH, ManualClock(), JournalOptions(), files=files.power_cut(), threaded=False)
    assert model_of(again.recovered, again) == driver.model


def test_the_thread_tries_again(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """By itself, until it succeeds; said once, and once that it is over."""
    monkeypatch.setattr(writer, "RETRY_SECONDS", 0)
    files = SimulatedFiles()
    driver, errors = started(files, threaded=True)
    files.fault = often(5, "open", errno.EMFILE)
    driver.publish([b"second"], "a")
    assert driver.journal.wait(driver.journal.commit(), 30)
    driver.journal.close()
    assert errors == []
    assert [record.getMessage().partition("; ")[2] for record in caplog.records] == [
        "the write waits and is tried again",
        "",
    ]


@pytest.mark.parametrize("threaded", [False, True])
def test_closing_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch, threaded: bool) -> None:
    """What could not be written in the end is told."""
    monkeypatch.setattr(writer, "RETRY_SECONDS", 0)
    files = SimulatedFiles()
    driver, _ = started(files, threaded=threaded)
    files.fault = often(10**9, "open", errno.EMFILE)
    driver.publish([b"second"], "a")
    driver.journal.commit()
    with pytest.raises(JournalFailed):
        driver.journal.close()


@pytest.mark.parametrize("operation", ["sync", "sync_directory"])
def test_a_sync_that_fails_is_never_tried_again(operation: str) -> None:
    """Whatever it says: what is on the disk is unknown."""
    files = SimulatedFiles()
    driver, errors = started(files)
    files.fault = often(1, operation, errno.EIO)
    driver.publish([b"second"], "a")
    assert not driver.journal.wait(driver.journal.commit())
    assert driver.journal.state is WriterState.FAILED and type(errors[0]) is JournalFailed


@pytest.mark.parametrize(
    "operation, error",
    [
        ("open", errno.ENOENT),
        ("open", errno.EACCES),
        ("open", errno.EROFS),
        ("write", errno.EROFS),
        ("sync_directory", errno.ENOENT),
    ],
)
def test_a_directory_that_is_lost(operation: str, error: int) -> None:
    """Deleted, moved away, read-only: told by a class of its own, and nothing is confirmed after it."""
    files = SimulatedFiles()
    driver, errors = started(files)
    before = driver.journal.committed_lsn
    files.fault = often(10**9, operation, error)
    driver.publish([b"second"], "a")
    assert not driver.journal.wait(driver.journal.commit())
    assert [type(one) for one in errors] == [DirectoryLost] and driver.journal.committed_lsn <= before + 1
    assert driver.journal.state is WriterState.FAILED


def test_a_segment_that_is_deleted_under_the_writer() -> None:
    """Writing to it succeeds, but nobody would find it again: what is written from now on is not confirmed."""
    files = SimulatedFiles()
    options = JournalOptions(preallocate_size=0)
    journal = opened(files, options)
    errors: list[JournalError] = []
    journal.set_callbacks(lambda lsn: None, errors.append)
    driver = Driver(journal)
    driver.declare("a")
    assert journal.wait(journal.commit())
    before = journal.committed_lsn
    for name in files.names(PATH):
        files.unlink(f"{PATH}/{name}")
    driver.publish([b"second"], "a")
    assert not journal.wait(journal.commit())
    assert [type(one) for one in errors] == [DirectoryLost] and journal.committed_lsn == before


def test_readers_that_cannot_be_asked_now() -> None:
    """That is no damaged file."""
    files = SimulatedFiles()
    register_reader(PATH, "spark", 7, files)
    files.fault = often(1, "open", errno.EMFILE)
    with pytest.raises(OSError, match="Too many open files"):
        reader_offsets(PATH, files)
    assert reader_offsets(PATH, files) == {"spark": 7}


# -- reading --------------------------------------------------------------------------------------------------------


def test_a_deep_queue_is_read_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Now and then an opening or a read finds nothing; all messages come, in order."""
    pauses: list[int] = []
    monkeypatch.setattr(JournalPager, "pause", lambda self: pauses.append(1))
    world = DepthWorld({}, {}, memory=1000)
    for number in range(400):
        world.fill([100], PERSISTENT, number)
        world.end_turn()
    assert len(world.q.store) - world.q.store.in_memory > 200
    left = [0]

    def fault(operation: str, path: str) -> None:
        if operation in ("open", "read"):
            left[0] -= 1
            if left[0] < 0:
                left[0] = 40
                raise OSError(errno.ENFILE if operation == "open" else errno.ENOMEM, "ordered", path)

    world.files.fault = fault
    world.journal.contents.close()
    got = []
    while (message := world.q.pop()) is not None:
        got.append(bytes(world.content(message.envelope, message.content)[0]).partition(b".")[0])
    assert got == [b"%d" % number for number in range(400)]
    assert pauses
    world.files.fault = lambda operation, path: None
    world.close()


def test_handles_that_are_kept_for_later_make_room() -> None:
    """The reader keeps files open that it may need again; those go before it waits for others."""
    files = SimulatedFiles()
    driver, _ = started(files)
    for number in range(6):
        driver.publish([b"%d" % number], "a")
        assert driver.journal.wait(driver.journal.commit())
    contents = driver.journal.contents
    handles_max = len(files.handles) + 1

    def fault(operation: str, path: str) -> None:
        if operation == "open" and len(files.handles) >= handles_max:
            raise OSError(errno.EMFILE, "ordered", path)

    files.fault = fault
    for lsn in driver.lsns.values():
        assert contents.read(lsn)


def test_no_room_for_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then nothing is read ahead."""

    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    blocks = [object() for _ in range(5)]
    ahead = ReadAhead(iter(blocks))  # type: ignore[arg-type]
    assert list(ahead) == blocks
    ahead.close()


def test_the_temp_store_leaves_descriptors_to_others(tmp_path: Path) -> None:
    """What it would put into a file of too high a number stays in memory; later it is tried again."""
    temp = FileTempStore(str(tmp_path), chunk_size=1, descriptor_max=0)
    assert temp.spool([b"x"]) is None
    temp = FileTempStore(str(tmp_path), chunk_size=1, descriptor_max=10**6)
    assert temp.spool([b"x"]) is not None
    temp.close()


HOG = """
import os, resource, sys
sys.path[:0] = {path!r}
from leveret.journal.disk.files import SpareFiles
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
files = SpareFiles(2)
hogged = []
try:
    while True:
        hogged.append(os.open(os.devnull, os.O_RDONLY))
except OSError:
    pass
one, two = files.open(os.devnull), files.open(os.devnull)
try:
    files.open(os.devnull)
    sys.exit("a third one")
except OSError:
    pass
files.close(one)
one = files.open(os.devnull)
files.close(one)
files.close(two)
try:
    hogged.append(os.open(os.devnull, os.O_RDONLY))
    sys.exit("the spare ones were not taken again")
except OSError:
    pass
files.sync_directory(".")
files.release()
os.open(os.devnull, os.O_RDONLY)
"""


def test_descriptors_are_held_back(tmp_path: Path) -> None:
    """A process that has used up all others opens two files more; when these are closed, two are held back again."""
    pytest.importorskip("resource")
    script = HOG.format(path=sys.path)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr


def test_nothing_is_held_back_after_the_end() -> None:
    """A broker that is started and stopped in one process takes none away."""
    before = os.open(os.devnull, os.O_RDONLY)
    os.close(before)
    SpareFiles(5).release()
    after = os.open(os.devnull, os.O_RDONLY)
    os.close(after)
    assert after == before
