"""A full copy takes the journal's place: whenever the process is killed, one directory is whole, and it is opened."""

import os
import shutil
from contextlib import suppress
from pathlib import Path

import pytest
from written_journal import JOURNAL_ID, WrittenJournal, segments

from leveret.cluster.copying import full_copy
from leveret.cluster.node_directory import NodeDirectory
from leveret.journal import REAL, Damaged, RealFiles, reader_offsets, register_reader
from leveret.journal.copying.copied_journal import CopiedJournal


class Killed(Exception):
    """The process is gone."""


class DyingFiles(RealFiles):
    """Dies before its operation number `last`, of those that change names."""

    __slots__ = ("left",)

    def __init__(self, last: int) -> None:
        self.left = last

    def _live(self) -> None:
        if not self.left:
            raise Killed
        self.left -= 1

    def rename(self, old: str, new: str) -> None:
        self._live()
        super().rename(old, new)

    def sync_directory(self, path: str) -> None:
        self._live()
        super().sync_directory(path)


def filled(copied: CopiedJournal, journal: WrittenJournal) -> None:
    """A whole copy, closed."""
    copied.begin(JOURNAL_ID)
    copied.set_terms(copied.terms.with_starts_of(journal.terms))
    for base_lsn, octets in journal.segments().items():
        copied.append(base_lsn, 0, octets)
    copied.sync()
    copied.close()


def old_and_new(tmp_path: Path) -> tuple[str, WrittenJournal, WrittenJournal]:
    """A journal with a reader, and another that is to replace it."""
    path = str(tmp_path / "journal")
    old, new = WrittenJournal(str(tmp_path / "leader1")), WrittenJournal(str(tmp_path / "leader2"))
    old.block()
    new.block()
    new.roll()
    filled(CopiedJournal.open(path), old)
    register_reader(path, "spark", 2)
    return path, old, new


@pytest.mark.parametrize("last", range(12))
def test_killed_while_the_copy_takes_its_place(tmp_path: Path, last: int) -> None:
    """Before every operation that changes names: the next start has the old journal or the new one, and no third."""
    path, old, new = old_and_new(tmp_path)
    filled(full_copy.begin(path), new)
    files = DyingFiles(last)
    try:
        full_copy.swap(path, files)
    except Killed:
        pass
    was_killed = not files.left
    full_copy.finish(path)
    found = segments(path)
    assert found in (old.segments(), new.segments())
    copied = CopiedJournal.open(path)
    assert copied.journal_id == JOURNAL_ID
    assert reader_offsets(path) == {"spark": 2}
    copied.close()
    names = set(os.listdir(tmp_path)) - {"leader1", "leader2"}
    assert names == ({"journal"} if found == old.segments() else {"journal", "journal.old"})
    if not was_killed:
        assert found == new.segments()
    if found == old.segments():  # the copy begins again
        filled(full_copy.begin(path), new)
        full_copy.swap(path)
        assert segments(path) == new.segments()


def test_killed_while_it_is_being_copied(tmp_path: Path) -> None:
    """What came goes; the journal is untouched."""
    path, old, new = old_and_new(tmp_path)
    copied = full_copy.begin(path)
    copied.begin(JOURNAL_ID)
    copied.append(1, 0, new.segments()[1][:100])
    copied.close()
    full_copy.finish(path)
    assert segments(path) == old.segments()
    assert sorted(os.listdir(tmp_path)) == ["journal", "leader1", "leader2"]


def test_a_copy_that_was_interrupted_is_begun_anew(tmp_path: Path) -> None:
    """Its link was lost: the next one begins with the leader's oldest segment."""
    path, _, new = old_and_new(tmp_path)
    copied = full_copy.begin(path)
    copied.begin(JOURNAL_ID)
    copied.append(1, 0, new.segments()[1])
    copied.sync()
    copied.close()
    copied = full_copy.begin(path)
    assert (copied.journal_id, copied.end, copied.position) == (None, 1, (1, 0))
    copied.close()


def test_killed_while_an_older_journal_is_deleted(tmp_path: Path) -> None:
    """Half of `NAME.old` of the last time is there: it goes, and the swap goes on."""
    path, _, new = old_and_new(tmp_path)
    filled(full_copy.begin(path), new)
    os.rename(path + ".copy", path + ".whole")
    os.mkdir(path + ".old")
    (tmp_path / "journal.old" / "format").write_text("half")
    full_copy.finish(path)
    assert segments(path) == new.segments()
    assert "terms" in os.listdir(path + ".old")
    assert full_copy.drop_old(path)


def test_nothing_to_finish(tmp_path: Path) -> None:
    """A new node, and each ordinary start."""
    path = str(tmp_path / "data" / "journal")
    full_copy.finish(path)
    assert os.listdir(tmp_path) == []
    os.makedirs(path)
    full_copy.finish(path)
    assert os.listdir(path) == []
    assert not full_copy.drop_old(path)


def test_a_copy_without_a_journal_before_it(tmp_path: Path) -> None:
    """The old directory was deleted by hand meanwhile."""
    path, _, new = old_and_new(tmp_path)
    filled(full_copy.begin(path), new)
    shutil.rmtree(path)
    full_copy.swap(path)
    assert segments(path) == new.segments()


def test_an_old_journal_that_cannot_be_deleted_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The node goes on."""
    path, _, new = old_and_new(tmp_path)
    filled(full_copy.begin(path), new)
    full_copy.swap(path)

    def refuse(path: str) -> None:
        raise PermissionError(path)

    with monkeypatch.context() as patched:
        patched.setattr(full_copy.shutil, "rmtree", refuse)
        assert full_copy.drop_old(path)
    assert full_copy.drop_old(path)
    assert not full_copy.drop_old(path)


def test_a_copy_has_an_id_of_its_own(tmp_path: Path) -> None:
    """What the old directory had acknowledged, the new one has not."""
    path, _, new = old_and_new(tmp_path)
    before = CopiedJournal.open(path)
    copied = full_copy.begin(path)
    assert copied.terms.node_id != before.terms.node_id
    before.close()
    copied.close()


def test_readers_that_have_rotted_do_not_keep_a_copy_from_its_place(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A node with a damaged disk would copy everything again and again."""
    path, _, new = old_and_new(tmp_path)
    (tmp_path / "journal" / "readers" / "spark.json").write_bytes(b"rot")
    filled(full_copy.begin(path), new)
    full_copy.swap(path)
    assert segments(path) == new.segments() and reader_offsets(path) == {}
    assert "readers of this node's journal begin anew" in caplog.text


@pytest.mark.parametrize("is_damaged", [False, True])
def test_a_copy_that_took_its_place_late_is_no_damaged_journal(tmp_path: Path, is_damaged: bool) -> None:
    """An error came between two of its renames, and the directory was opened again: no second copy is asked for."""
    path, _, new = old_and_new(tmp_path)
    filled(full_copy.begin(path), new)
    directory = NodeDirectory(path, REAL)
    directory.damage = Damaged("1.log", 0, "a bad block") if is_damaged else None
    with suppress(Killed):
        full_copy.swap(path, DyingFiles(5))
    assert os.path.exists(path + full_copy.WHOLE)
    summary = directory.open()
    assert directory.damage is None and directory.copied is not None
    assert summary.end == directory.copied.end > 1 and segments(path) == new.segments()
    directory.copied.close()
    directory.damage = Damaged("1.log", 0, "a bad block")
    assert directory.open().end == 1, "nothing was put in its place"
