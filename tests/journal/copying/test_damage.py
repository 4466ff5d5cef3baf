"""What a leader finds when it looks whether its segments are as they were written."""

import errno
import os
from pathlib import Path

import pytest
from written_journal import WrittenJournal

from leveret.journal.copying.octet_reader import damage_in
from leveret.journal.disk.files import RealFiles
from leveret.journal.disk.segment import path_of, segment_name


@pytest.fixture
def journal(tmp_path: Path) -> WrittenJournal:
    """Two sealed segments, and an open one that has room behind its blocks."""
    made = WrittenJournal(str(tmp_path / "leader"))
    for _ in range(2):
        made.block()
        made.tick()
        made.roll()
    made.block()
    with open(path_of(made.path, made.position[0]), "ab") as file:
        file.write(bytes(5000))
    return made


def change(path: str, offset: int) -> None:
    """One bit has rotted."""
    with open(path, "r+b") as file:
        octets = os.pread(file.fileno(), 1, offset)
        os.pwrite(file.fileno(), bytes([octets[0] ^ 4]), offset)


def test_segments_that_are_whole(journal: WrittenJournal) -> None:
    """What is behind the end was not written yet."""
    assert damage_in(journal.path, 1, journal.position) is None
    journal.unlink()
    assert damage_in(journal.path, 1, journal.position) is None


def test_each_octet_that_rots_is_found(journal: WrittenJournal) -> None:
    """In whichever segment, from the one on that is asked for."""
    for base_lsn, octets in journal.segments().items():
        path = path_of(journal.path, base_lsn)
        for offset in range(0, len(octets), 13):
            change(path, offset)
            found = damage_in(journal.path, 1, journal.position)
            assert found is not None and found.segment == segment_name(base_lsn) and found.offset <= offset
            assert damage_in(journal.path, base_lsn + 1, journal.position) is None
            change(path, offset)
    assert damage_in(journal.path, 1, journal.position) is None


def test_a_segment_without_its_end_or_its_successor_is_damaged(journal: WrittenJournal) -> None:
    """And one that cannot be read."""
    first, second, _ = journal.segments()
    with open(path_of(journal.path, first), "r+b") as file:
        file.truncate(os.path.getsize(file.name) - 1)
    assert damage_in(journal.path, 1, journal.position) is not None
    assert damage_in(journal.path, second, journal.position) is None

    class Broken(RealFiles):
        def read(self, handle: int, length: int, offset: int) -> bytes:
            raise OSError(5, "Input/output error")

    found = damage_in(journal.path, second, journal.position, Broken())
    assert found is not None and found.why == "it cannot be read: [Errno 5] Input/output error"


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
def test_a_process_that_cannot_look_now_finds_no_damage(journal: WrittenJournal, number: int) -> None:
    """Else its leader would resign, and say that its disk has rotted."""

    class Poor(RealFiles):
        def open(self, path: str, *, create: bool = False, writable: bool = False) -> int:
            raise OSError(number, os.strerror(number))

    assert damage_in(journal.path, 1, journal.position, Poor()) is None


def test_a_gap_between_segments_is_damage(journal: WrittenJournal) -> None:
    """Somebody deleted one."""
    _, second, _ = journal.segments()
    os.unlink(path_of(journal.path, second))
    assert damage_in(journal.path, 1, journal.position) is not None
