"""The power goes before each file operation of a long workload: what was confirmed is there, and the broker starts."""

import contextlib
import errno
import os
from pathlib import Path
from random import Random

import pytest
from journal_workload import ID, PATH, Driver, Model, model_of, opened
from simulated_files import SimulatedFiles

from leveret.engine import ManualClock
from leveret.journal import Journal, JournalError, JournalOptions, JournalReader, RealFiles, WriterState, recover
from leveret.journal.disk.files import write_all
from leveret.journal.disk.readers import forget_reader, reader_offsets, register_reader

#: Each turn or two begins a segment.
TINY = JournalOptions(segment_size=1500, preallocate_size=0)
#: Beside the cut that leaves only what was synced, so many that leave some of the rest, too.
LUCKY_CUTS = 4
CHANGES = frozenset({"write", "truncate", "sync", "sync_directory", "rename", "unlink"})


class Struck(BaseException):
    """The process is gone, in the middle of something."""


class Workload(Driver):
    """`possible`: what may be there after a power cut now: what was confirmed last, and what came since."""

    def __init__(self, files: SimulatedFiles, chance: Random) -> None:
        self.files = files
        self.chance = chance
        self.cuts = 0
        self.possible: list[Model] = [{}]
        files.fault = self.cut
        super().__init__(self.opened())

    def opened(self) -> Journal:
        return opened(self.files, TINY)

    def cut(self, operation: str, path: str) -> None:
        """Before the operation. What is left is opened twice: a start must not spoil it, nor what a reader saw."""
        if operation not in CHANGES:
            return
        seen_lsn = self.seen_by_a_reader()
        for chance in (None, *[self.chance] * LUCKY_CUTS):
            after = self.files.power_cut(chance)
            self.cuts += 1
            for _ in range(2):
                journal = opened(after, TINY)
                assert model_of(journal.recovered, journal) in self.possible, f"before {operation} of {path}"
                assert seen_lsn < journal.next_lsn, "a reader beside the broker saw what is gone"
                journal.close()

    def seen_by_a_reader(self) -> int:
        """The last record that one who reads now takes for safe."""
        reader = JournalReader(PATH, self.files)
        segments = reader.segments()
        return max((lsn for lsn, _ in reader.records(segments[-2:][0])), default=0) if segments else 0

    def append(self) -> int:
        """End a turn that goes with the next commit."""
        self.possible.append({name: dict(messages) for name, messages in self.model.items()})
        return self.journal.commit()

    def turn(self) -> None:
        """Commit, and hear that it is safe."""
        assert self.journal.wait(self.append())
        del self.possible[:-1]

    def killed_before_sync(self) -> None:
        """What was written is still with the system when the next broker starts."""

        def strike(operation: str, path: str) -> None:
            if operation == "sync":
                raise Struck

        self.append()
        self.files.fault = strike
        with contextlib.suppress(Struck):
            self.journal.writer.run_once()
        self.files = self.files.crash()
        self.files.fault = self.cut
        self.journal = self.opened()
        assert model_of(self.journal.recovered, self.journal) == self.model


def work(load: Workload, rounds: int) -> None:
    for number in range(rounds):
        load.publish([b"x" * 300] * 2, "a", "b")
        load.turn()
        load.settle("a", sorted(load.model["a"])[:2])
        load.append()
        load.purge("b")
        load.append()  # a segment may begin in the same commit
        load.publish([b"y" * 900], "b")
        load.append()
        load.publish([b"z"], "b")
        load.turn()
        if number % 3 == 2:
            load.checkpoint()
            load.turn()
            load.reclaim()
            load.turn()


@pytest.mark.parametrize("seed", range(3))
def test_the_power_goes_at_any_moment(seed: int) -> None:
    """A confirm is a promise; what was not confirmed may be there or not, a turn is whole."""
    load = Workload(SimulatedFiles(), Random(seed))
    load.declare("a", "b")
    load.turn()
    work(load, 7)
    load.publish([b"not yet confirmed"], "a")
    load.killed_before_sync()
    work(load, 4)
    assert load.cuts > 500


def test_a_reader_is_durable_when_it_is_said_to_be() -> None:
    """Else its segments go, and it goes on where it was long ago. The same of one that is forgotten."""
    files = SimulatedFiles()
    opened(files, TINY).close()
    for lsn in (5, 9):
        register_reader(PATH, "spark", lsn, files)
        assert reader_offsets(PATH, files.power_cut()) == {"spark": lsn}
    forget_reader(PATH, "spark", files)
    assert reader_offsets(PATH, files) == reader_offsets(PATH, files.power_cut()) == {}


def test_what_a_power_cut_left_of_a_file_is_not_in_the_next_one() -> None:
    """A new file that was written and not renamed may be longer than the one that is written next."""
    files = SimulatedFiles()
    opened(files, TINY).close()
    left = files.open(f"{PATH}/readers/spark.json.new", create=True)
    write_all(files, left, b"9" * 200, 0)
    files.close(left)
    register_reader(PATH, "spark", 5, files)
    assert reader_offsets(PATH, files) == {"spark": 5}


def test_the_readers_directory_is_durable_with_its_first_reader(tmp_path: Path) -> None:
    """Its name is the journal's directory's; a power cut that takes it away would free what readers still need."""
    synced: list[str] = []

    class Watched(RealFiles):
        """Tells which directories are synced."""

        def sync_directory(self, path: str) -> None:
            assert os.path.isdir(path)
            synced.append(os.path.relpath(path, tmp_path))
            super().sync_directory(path)

    for lsn in (5, 9):
        register_reader(str(tmp_path), "spark", lsn, Watched())
    assert synced == [".", "readers", "readers"]


def test_an_interval_ends_although_nothing_more_comes() -> None:
    """`fsync = "interval"`: the last records are synced when it is over, not with the next publish."""
    files, clock = SimulatedFiles(), ManualClock()
    options = JournalOptions(preallocate_size=0, fsync="interval", fsync_interval_ms=200)
    driver = Driver(Journal.open(PATH, clock, options, files=files, threaded=False, new_id=ID))
    driver.declare("a")
    clock.advance_ns(300_000_000)
    driver.journal.wait(driver.journal.commit())
    ids = driver.publish([b"x"], "a")
    driver.journal.wait(driver.journal.commit())
    clock.advance_ns(199_000_000)
    driver.journal.writer.run_once()
    assert not any(map(len, recover(files.power_cut(), PATH).queues.values()))
    clock.advance_ns(1_000_000)
    driver.journal.writer.run_once()
    assert [list(queue.ids()) for queue in recover(files.power_cut(), PATH).queues.values()] == [ids]


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EMFILE, errno.EIO])
def test_a_sync_that_fails_while_a_segment_begins_is_not_repeated(error: int) -> None:
    """Whatever the errno says: the system may have thrown away what it could not write, and the next sync succeeds."""
    files = SimulatedFiles()
    driver = Driver(opened(files, TINY))
    driver.declare("a")
    driver.journal.wait(driver.journal.commit())
    driver.journal.begin_segment()

    def fault(operation: str, path: str) -> None:
        if operation == "sync":
            raise OSError(error, "no")

    files.fault = fault
    assert not driver.journal.wait(driver.journal.next_lsn)
    assert driver.journal.state is WriterState.FAILED
    files.fault = lambda operation, path: None
    driver.journal.retry()
    with pytest.raises(JournalError):
        driver.publish([b"x"], "a")
