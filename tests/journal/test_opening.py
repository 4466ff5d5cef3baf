"""A start on what a killed broker left: what it found is durable when it goes on, and it may be cut short itself.

The kill comes before each file operation of a turn with which a segment ends and another begins.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from random import Random

import pytest
from journal_workload import PATH, Driver, Model, model_of
from journal_workload import opened as opened_journal
from simulated_files import SimulatedFiles

from leveret.engine import ManualClock
from leveret.journal import Journal, JournalOptions, JournalReader
from leveret.journal.copying.copied_journal import CopiedJournal
from leveret.journal.disk.directory import Directory
from leveret.journal.disk.files import RealFiles
from leveret.journal.disk.segment import segments_in
from leveret.journal.recovery.check import verify
from leveret.journal.recovery.recovery import IDS_SKIPPED

OPTIONS = JournalOptions(segment_size=500, preallocate_size=0)
CHANGES = frozenset({"write", "truncate", "sync", "sync_directory", "rename", "unlink", "open"})


class Struck(BaseException):
    """The process is gone, in the middle of something."""


def opened(files: SimulatedFiles) -> Journal:
    return opened_journal(files, OPTIONS)


def left_by(at: int) -> tuple[SimulatedFiles, list[Model], int] | None:
    """What a broker leaves that is killed before so many operations of its last turn; what may be there; the highest
    message id that it gave. None: the turn has fewer."""
    files = SimulatedFiles()
    driver = Driver(opened(files))
    driver.declare("a", "b")
    driver.publish([b"1" * 400, b"2"], "a", "b")
    assert driver.journal.wait(driver.journal.commit())
    driver.settle("b", [1])
    driver.publish([b"3"], "a")
    driver.journal.commit()
    before = {name: dict(messages) for name, messages in driver.model.items()}
    left = [at]

    def strike(operation: str, path: str) -> None:
        if operation in CHANGES:
            left[0] -= 1
            if left[0] < 0:
                raise Struck

    files.write_max = 100
    files.fault = strike
    driver.publish([b"4", b"5"], "a", "b")  # in another segment
    driver.journal.commit()
    with contextlib.suppress(Struck):
        driver.journal.writer.run_once()
    if left[0] >= 0:
        return None
    first = {"a": {1: before["a"][1], 2: before["a"][2]}, "b": {1: before["a"][1], 2: before["a"][2]}}
    return files.crash(), [first, before, driver.model], 5


def kills() -> int:
    at = 0
    while left_by(at) is not None:
        at += 1
    return at


@pytest.mark.parametrize("torn", [b"", b"half of a block"])
def test_what_a_start_found_is_durable(torn: bytes) -> None:
    """Also what the killed broker had not synced; nothing stands behind the footer, and no id is given again."""
    count = kills()
    assert count > 12
    for at in range(count):
        left = left_by(at)
        assert left is not None
        files, possible, highest_id = left
        if torn:
            path = f"{PATH}/{segments_in(files, PATH)[-1]:020d}.log"
            files.put(path, files.content(path) + torn)
        journal = opened(files)
        found = model_of(journal.recovered, journal)
        assert found in possible, at
        assert journal.next_message_id > highest_id + IDS_SKIPPED / 2
        assert all(segment.sealed for segment in journal.recovered.segments)
        for disk in (files.power_cut(), files.power_cut(Random(at)), files.crash()):
            again = opened(disk)
            assert model_of(again.recovered, again) == found, f"a power cut behind a start behind kill {at}"
            again.close()
            assert not verify(PATH, disk).faults
        driver = Driver(journal, model=found)
        driver.queue_ids = {one.name: id_ for id_ in journal.recovered.objects if (one := journal.names[id_])}
        driver.exchange = driver.queue_ids["a"] - 1
        driver.publish([b"new"], "a")
        assert journal.wait(journal.commit())
        again = opened(files.power_cut())
        assert model_of(again.recovered, again) == driver.model, at
        lsns = [lsn for lsn, _ in JournalReader(PATH, files).records(trust_open=True)]
        assert lsns == list(range(lsns[0], lsns[0] + len(lsns))), "no LSN twice, none left out"


def opened_and_cut(files: SimulatedFiles, *, is_power_cut: bool) -> tuple[Model, list[Model]]:
    """What a start finds, and what the next one would find if it ended before each of its operations."""
    seen: list[Model] = []

    def cut(operation: str, path: str) -> None:
        if operation not in CHANGES:
            return
        files.fault = lambda operation, path: None
        lucky = [files.power_cut(Random(chance)) for chance in range(4)]  # some of what was not synced is there
        for disk in (files.power_cut(), *lucky) if is_power_cut else (files.crash(),):
            journal = opened(disk)
            seen.append(model_of(journal.recovered, journal))
            journal.close()
        files.fault = cut

    files.fault = cut
    journal = opened(files)
    files.fault = lambda operation, path: None
    found = model_of(journal.recovered, journal)
    journal.close()
    return found, seen


@pytest.mark.parametrize("is_power_cut", [True, False])
def test_a_start_that_is_cut_short(is_power_cut: bool) -> None:
    """Before each of its operations: the next one finds what it would have found."""
    for at in range(kills()):
        left = left_by(at)
        assert left is not None
        files, possible, _ = left
        found, seen = opened_and_cut(files, is_power_cut=is_power_cut)
        assert len(seen) > 3
        assert all(one in (possible if is_power_cut else [found]) for one in seen), at


class NotingFiles(RealFiles):
    """Notes which directories are fsynced."""

    def __init__(self) -> None:
        self.synced: list[str] = []

    def sync_directory(self, path: str) -> None:
        self.synced.append(path)
        super().sync_directory(path)


@pytest.mark.parametrize("is_of_node", [False, True])
def test_all_directories_that_a_start_makes_are_durable(tmp_path: Path, is_of_node: bool) -> None:
    """Else a power cut takes the journal with the name of a directory above it."""
    files = NotingFiles()
    path = tmp_path / "a" / "b" / "journal"
    (CopiedJournal if is_of_node else Directory).open(str(path), files=files).close()
    assert {str(tmp_path), str(tmp_path / "a"), str(tmp_path / "a" / "b")} <= set(files.synced)
    files.synced.clear()
    (CopiedJournal if is_of_node else Directory).open(str(path), files=files).close()
    assert files.synced == [], "nothing was made"


class KilledFiles(NotingFiles):
    """The process is killed at the first fsync of a directory."""

    def sync_directory(self, path: str) -> None:
        raise Struck


@pytest.mark.parametrize("is_of_node", [False, True])
def test_a_directory_of_a_start_that_was_cut_short_is_durable(tmp_path: Path, is_of_node: bool) -> None:
    """It is there, but not on the disk for certain: the next start fsyncs its name before it confirms anything."""
    path, kind = tmp_path / "journal", CopiedJournal if is_of_node else Directory
    with pytest.raises(Struck):
        kind.open(str(path), files=KilledFiles())
    assert path.is_dir()
    files = NotingFiles()
    opened_again = kind.open(str(path), files=files)
    if isinstance(opened_again, CopiedJournal):
        opened_again.begin(bytes(16))
    opened_again.close()
    assert str(tmp_path) in files.synced


@pytest.mark.parametrize("is_first_closed", [False, True])
def test_a_journal_that_is_closed_twice_closes_no_file_of_another(tmp_path: Path, is_first_closed: bool) -> None:
    """A leader that has lost its directory closes its journal, and then resigns."""
    journal = Journal.open(str(tmp_path / "journal"), ManualClock())
    if is_first_closed:
        journal.close()
    else:
        assert journal.abandon()
    handles = [os.open(os.devnull, os.O_RDONLY) for _ in range(20)]
    assert journal.abandon()
    for handle in handles:
        os.close(handle)
