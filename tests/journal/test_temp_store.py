"""The temp store: what is put there comes back, room is given back, and without room nothing is lost."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.engine import Unreadable
from leveret.engine.stores.paged_run import Location
from leveret.journal.recording.temp_store import FileTempStore


@given(st.lists(st.lists(st.binary(max_size=50), min_size=1, max_size=5), max_size=20), st.randoms())
def test_what_is_put_comes_back(
    tmp_path_factory: pytest.TempPathFactory, runs: list[list[bytes]], chance: random.Random
) -> None:
    """In any order, over many chunks and in parts; `used` is always what was not released."""
    temp = FileTempStore(str(tmp_path_factory.getbasetemp()), chunk_size=100)
    seen: list[int] = []
    temp.on_change = seen.append
    held: list[tuple[Location, bytes]] = []
    for contents in runs:
        location = temp.spool(contents)
        assert location is not None
        octets = b"".join(contents)
        at = chance.randint(0, len(octets))
        held += [(location, octets[:at]), (Location(location.chunk, location.offset + at), octets[at:])]
        if chance.random() < 0.3:
            location, octets = held.pop(chance.randrange(len(held)))
            assert temp.unspool(location, len(octets)) == octets
            temp.release(location, len(octets))
        assert temp.used == sum(len(octets) for _, octets in held)
    chance.shuffle(held)
    for location, octets in held:
        assert temp.unspool(location, len(octets)) == octets
        temp.release(location, len(octets))
    assert temp.used == 0
    assert seen[-1:] in ([], [0])
    files = [chunk.file for chunk in {id(location.chunk): location.chunk for location, _ in held}.values()]  # type: ignore[attr-defined]
    assert sum(os.fstat(file.fileno()).st_size for file in files if not file.closed) == 0
    assert sum(not file.closed for file in files) <= 1
    temp.close()
    assert all(file.closed for file in files)


def test_each_change_of_the_account_is_reported(tmp_path: Path) -> None:
    """With what is in use then; what has no octets changes nothing."""
    temp = FileTempStore(str(tmp_path))
    seen: list[int] = []
    temp.on_change = seen.append
    location = temp.spool([b"12345", b"678"])
    assert location is not None
    assert temp.spool([b""]) is not None
    temp.release(location, 5)
    temp.release(Location(location.chunk, location.offset + 5), 3)
    assert seen == [8, 3, 0]
    temp.close()


def test_the_limit(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is taken once it is reached, one run may go over it; 0 is none; it may change; the disk has no fault."""
    temp = FileTempStore(str(tmp_path))
    temp.limit = 10
    location = temp.spool([bytes(6)])
    assert location is not None
    assert temp.spool([bytes(3), bytes(3)]) is not None
    assert temp.used == 12
    assert temp.spool([bytes(1)]) is None
    temp.limit = 13
    assert temp.spool([bytes(1)]) is not None
    assert temp.spool([bytes(1)]) is None
    temp.release(location, 6)
    assert temp.spool([bytes(7)]) is not None
    temp.limit = 0
    assert temp.spool([bytes(100)]) is not None
    assert not caplog.records
    temp.close()


def test_files_have_no_names(tmp_path: Path) -> None:
    """Nothing is left behind, however the broker ends."""
    temp = FileTempStore(str(tmp_path))
    assert temp.spool([b"x"]) is not None
    assert not os.listdir(tmp_path)
    temp.close()


def test_no_room(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """None, logged once until the disk takes something again; nothing is counted."""
    directory = tmp_path / "gone"
    temp = FileTempStore(str(directory))
    for _ in range(2):
        assert temp.spool([b"x"]) is None
        assert temp.spool([b"x"]) is None
        assert temp.used == 0
        directory.mkdir()
        location = temp.spool([b"x"])
        assert location is not None
        temp.close()
        directory.rmdir()
    assert len(caplog.records) == 2
    assert "stay in memory" in caplog.text


def test_a_disk_that_takes_only_a_part(tmp_path: Path) -> None:
    """What was written before stays as it is, and what comes later is whole."""
    temp = FileTempStore(str(tmp_path))
    first = temp.spool([b"first"])
    assert first is not None
    file = first.chunk.file  # type: ignore[attr-defined]

    class FullDisk:
        """Takes three octets, then none."""

        def seek(self, offset: int) -> None:
            """As the file."""
            file.seek(offset)

        def write(self, octets: memoryview) -> int:
            """The first three, once."""
            if len(octets) < 6:
                raise OSError(28, "No space left on device")
            return int(file.write(octets[:3]))

    first.chunk.file = FullDisk()  # type: ignore[attr-defined]
    assert temp.spool([b"second"]) is None
    first.chunk.file = file  # type: ignore[attr-defined]
    third = temp.spool([b"third"])
    assert third is not None
    assert temp.used == 10
    assert (temp.unspool(first, 5), temp.unspool(third, 5)) == (b"first", b"third")
    temp.close()


def test_a_file_that_was_cut(tmp_path: Path) -> None:
    """An error that is reported, never other octets."""
    errors: list[Unreadable] = []
    temp = FileTempStore(str(tmp_path), on_unreadable=errors.append)
    location = temp.spool([b"0123456789"])
    assert location is not None
    location.chunk.file.truncate(4)  # type: ignore[attr-defined]
    with pytest.raises(Unreadable, match="4 of 10 octets"):
        temp.unspool(location, 10)
    assert len(errors) == 1
    temp.close()


# -- without a data directory: a private one of the system's ----------------------------------------------------------


@pytest.fixture
def system_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the system's temporary directories are made."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def test_a_private_directory_is_made_when_it_is_needed_and_removed_at_the_end(system_directory: Path) -> None:
    """Nobody else may look into it."""
    temp = FileTempStore()
    assert not os.listdir(system_directory)
    assert temp.spool([b"x"]) is not None
    (path,) = system_directory.iterdir()
    assert path.stat().st_mode & 0o777 == 0o700
    temp.close()
    assert not os.listdir(system_directory)


def test_a_private_directory_that_was_tidied_away(system_directory: Path) -> None:
    """What is open stays readable; the next file is in another one."""
    temp = FileTempStore(chunk_size=1)
    location = temp.spool([b"x"])
    assert location is not None
    for path in system_directory.iterdir():
        path.rmdir()
    assert temp.spool([b"y"]) is not None
    assert temp.unspool(location, 1) == b"x"
    temp.close()
    assert not os.listdir(system_directory)


ENDINGS = {"it ends": "", "an exception": "raise ValueError", "exit": "sys.exit(3)"}
SCRIPT = """
import os, sys, tempfile
sys.path[:0] = {path!r}
from leveret.journal.recording.temp_store import FileTempStore
tempfile.tempdir = {directory!r}
temp = FileTempStore()
assert temp.spool([b"x"]) is not None
assert os.listdir({directory!r})
{ending}
"""


@pytest.mark.parametrize("ending", ENDINGS.values(), ids=ENDINGS)
def test_a_private_directory_goes_with_its_process(tmp_path: Path, ending: str) -> None:
    """However that ends, as long as it can do anything."""
    script = SCRIPT.format(path=sys.path, directory=str(tmp_path), ending=ending)
    subprocess.run([sys.executable, "-c", script], stderr=subprocess.DEVNULL, check=False)
    assert not os.listdir(tmp_path)


@pytest.mark.skipif(os.name == "nt", reason="no SIGKILL")
def test_a_killed_process_leaves_an_empty_directory(tmp_path: Path) -> None:
    """Which is harmless: nobody finds a message there."""
    script = SCRIPT.format(path=sys.path, directory=str(tmp_path), ending="os.kill(os.getpid(), 9)")
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == -signal.SIGKILL
    (path,) = tmp_path.iterdir()
    assert not os.listdir(path)
