"""Room that is held back on the disk: made when there is room, spent when what it frees is more than it takes."""

import errno
import os
from pathlib import Path

import pytest
from journal_workload import PATH, Driver, model_of
from journal_workload import opened as opened_journal
from simulated_files import SimulatedFiles

from leveret.journal import Journal, JournalOptions, WriterState, forget_journal, register_reader
from leveret.journal.disk.files import REAL
from leveret.journal.disk.reserve import Reserve

SIZE = 100_000
FILE = f"{PATH}/reserve"


def opened(files: SimulatedFiles, *, reserve_size: int = SIZE, **more: int) -> Journal:
    options = JournalOptions(preallocate_size=0, reserve_size=reserve_size, **more)
    return opened_journal(files, options)


def filled(files: SimulatedFiles) -> Driver:
    """A journal with messages of 300,000 octets, on a disk that is full."""
    driver = Driver(opened(files, segment_size=50_000))
    driver.declare("a")
    for _ in range(30):
        driver.publish([bytes(10_000)], "a")
        assert driver.journal.wait(driver.journal.commit())
    files.capacity = files.used
    driver.publish([bytes(10_000)], "a")
    driver.journal.wait(driver.journal.commit())
    assert driver.journal.state is WriterState.FULL
    return driver


def test_it_is_made_at_the_start() -> None:
    """And left there, whole, when the journal is closed."""
    files = SimulatedFiles()
    journal = opened(files)
    journal.wait(journal.next_lsn)
    assert len(files.content(FILE)) == SIZE
    journal.close()
    assert len(files.content(FILE)) == SIZE and not journal.has_spent_reserve


@pytest.mark.parametrize("before", [SIZE // 2, 2 * SIZE])
def test_it_follows_another_size_in_the_configuration(before: int) -> None:
    """A start makes it as large as is asked for now; a journal that is forgotten leaves none."""
    files = SimulatedFiles()
    opened_journal(files, JournalOptions(preallocate_size=0, reserve_size=before)).close()
    assert len(files.content(FILE)) == before
    opened(files).close()
    assert len(files.content(FILE)) == SIZE
    forget_journal(PATH, files)
    assert FILE not in files.names_now


def test_no_room_for_it(caplog: pytest.LogCaptureFixture) -> None:
    """The journal does without, says so once, and tries again with each segment."""
    files = SimulatedFiles()
    files.capacity = SIZE // 2
    driver = Driver(opened(files, segment_size=1000))
    driver.declare("a")
    for _ in range(5):
        driver.publish([bytes(1000)], "a")
        assert driver.journal.wait(driver.journal.commit())
    assert FILE not in files.names_now
    assert [record.getMessage() for record in caplog.records if "cannot be reserved" in record.getMessage()] != []
    assert len(caplog.records) == 1
    files.capacity = None
    driver.publish([bytes(1000)], "a")
    driver.publish([bytes(1000)], "a")
    assert driver.journal.wait(driver.journal.commit())
    driver.publish([bytes(1000)], "a")
    assert driver.journal.wait(driver.journal.commit())
    assert len(files.content(FILE)) == SIZE


def test_it_is_spent_when_that_pays() -> None:
    """Not while messages hold the segments; once they are gone a checkpoint fits, segments go, and it is made again."""
    files = SimulatedFiles()
    driver = filled(files)
    journal = driver.journal
    assert not journal.old_segments.can_make_room(0)
    journal.usage.settled(list(driver.model["a"]))
    assert journal.old_segments.can_make_room(0)
    assert not journal.old_segments.can_make_room(SIZE)  # what would have to be stated does not fit
    journal.spend_reserve()
    assert journal.wait(journal.next_lsn) and journal.has_spent_reserve
    driver.model["a"].clear()
    driver.checkpoint()
    assert journal.wait(journal.commit())
    assert len(journal.old_segments.reclaim()) > 4
    journal.wait(journal.next_lsn)
    journal.writer.run_once()
    assert not journal.has_spent_reserve and len(files.content(FILE)) == SIZE
    assert files.used <= (files.capacity or 0)
    again = opened(files.power_cut())
    assert model_of(again.recovered, again) == driver.model


def test_what_waits_for_the_disk_has_to_fit_too() -> None:
    """It is written into the reserve before the checkpoint: else both would end in the middle of it."""
    files = SimulatedFiles()
    driver = filled(files)
    journal = driver.journal
    driver.publish([bytes(SIZE // 2)], "a")
    journal.commit()
    journal.usage.settled(list(driver.model["a"]))
    assert journal.backlog_bytes > SIZE // 2 and not journal.old_segments.can_make_room(0)


def test_once_it_is_spent_a_checkpoint_needs_not_fit_into_it() -> None:
    """What it was spent for frees more: the broker goes on until the disk has room, however much it has to state."""
    files = SimulatedFiles()
    driver = filled(files)
    journal = driver.journal
    journal.usage.settled(list(driver.model["a"]))
    journal.spend_reserve()
    assert journal.wait(journal.next_lsn) and journal.has_spent_reserve
    assert journal.old_segments.can_make_room(SIZE)
    assert not journal.old_segments.can_make_room(4 * SIZE)  # it takes more than it frees


def test_readers_that_need_the_segments() -> None:
    """Nothing would be won."""
    files = SimulatedFiles()
    driver = filled(files)
    driver.journal.usage.settled(list(driver.model["a"]))
    files.capacity = None
    register_reader(PATH, "spark", 1, files)
    assert not driver.journal.old_segments.can_make_room(0)


def test_a_start_on_a_full_disk() -> None:
    """What the last broker left open is sealed in the room that was held back."""
    files = SimulatedFiles()
    driver = filled(files)
    after = files.crash()
    after.capacity = files.capacity
    journal = opened(after)
    assert journal.wait(journal.next_lsn) and journal.has_spent_reserve
    found = model_of(journal.recovered, journal)["a"]
    assert found.keys() == set(list(driver.model["a"])[:30])


def test_what_was_written_before_the_last_start_makes_room() -> None:
    """The newest segment of the last broker has its octets, too: once nothing in it lives they can be given back."""
    files = SimulatedFiles()
    driver = Driver(opened(files))
    driver.declare("a")
    for _ in range(30):
        driver.publish([bytes(10_000)], "a")
        assert driver.journal.wait(driver.journal.commit())
    driver.journal.close()
    again = opened(files)
    assert not again.old_segments.can_make_room(0)
    again.usage.settled(list(driver.model["a"]))
    assert again.wait(again.next_lsn) and again.old_segments.can_make_room(0)


def test_systems_that_cannot_reserve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There the file is written; what was left with another size is made anew."""
    monkeypatch.delattr(os, "posix_fallocate", raising=False)
    for size in (3_000_000, 1_000_000):
        reserve = Reserve(REAL, str(tmp_path), size)
        reserve.fill()
        assert reserve.is_full and (tmp_path / "reserve").stat().st_size == size
    assert reserve.release() and not os.listdir(tmp_path)
    assert not reserve.release()


def test_nothing_is_held_back_unless_asked(tmp_path: Path) -> None:
    """`reserve = 0`; the file of an earlier broker is deleted, also on a full disk, and counts as no spent reserve."""
    for frees in (Reserve.fill, Reserve.release):
        (tmp_path / "reserve").write_bytes(b"x")
        reserve = Reserve(REAL, str(tmp_path), 0)
        frees(reserve)
        assert not reserve.is_full and not reserve.is_spent and not os.listdir(tmp_path)
        reserve.fill()
        assert not reserve.release() and not os.listdir(tmp_path)


def test_a_start_without_a_reserve_on_a_full_disk() -> None:
    """The file that an earlier broker left makes room for it."""
    files = SimulatedFiles()
    filled(files)
    after = files.crash()
    after.capacity = files.capacity
    journal = opened(after, reserve_size=0)
    assert journal.wait(journal.next_lsn) and not journal.has_spent_reserve and FILE not in after.names_now


def test_errors_leave_nothing(tmp_path: Path) -> None:
    """A disk that ends in the middle."""
    files = SimulatedFiles()
    files.fault = lambda operation, path: operation == "preallocate" and _raise()
    reserve = Reserve(files, PATH, SIZE)
    reserve.fill()
    assert not reserve.is_full and FILE not in files.names_now and not files.handles


def _raise() -> None:
    raise OSError(errno.ENOSPC, "no room")
