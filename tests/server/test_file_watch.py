"""When a configuration file counts as changed: the decision alone, and the marks of real files."""

import os
from pathlib import Path

import pytest

from leveret.serving.file_watch import NOTHING, FileMark, FileWatch, Finding, Marks, marks_of

A, B = FileMark(1, 10, 100), FileMark(2, 10, 100)
SETTLING = Finding(is_settling=True)


@pytest.mark.parametrize(
    "looks, findings",
    [
        # what is seen, look after look; and what comes of it
        ([A, A], [NOTHING, NOTHING]),
        ([B, B, B], [SETTLING, Finding(("f",)), NOTHING]),  # once for each change
        ([B, FileMark(3, 20, 100), FileMark(3, 20, 100)], [SETTLING, SETTLING, Finding(("f",))]),  # being written
        ([B, A], [SETTLING, NOTHING]),  # as it was again
        ([B, B, A, A], [SETTLING, Finding(("f",)), SETTLING, Finding(("f",))]),
        ([FileMark(1, 11, 100)] * 2, [SETTLING, Finding(("f",))]),  # size
        ([FileMark(1, 10, 101)] * 2, [SETTLING, Finding(("f",))]),  # replaced by rename, all else alike
        ([None, None, A], [Finding(missing=("f",)), NOTHING, NOTHING]),  # gone: told once; back as it was
        ([None, B, B], [Finding(missing=("f",)), SETTLING, Finding(("f",))]),  # back with something else
        ([None, A, None], [Finding(missing=("f",)), NOTHING, Finding(missing=("f",))]),  # gone again
    ],
)
def test_looks_at_one_file(looks: list[FileMark | None], findings: list[Finding]) -> None:
    """Loaded as A; each change and each disappearance is told once, when it has come to rest."""
    watch = FileWatch({"f": A})
    assert [watch.look({"f": mark}) for mark in looks] == findings


def test_several_files_are_one_configuration() -> None:
    """While one is away nothing is loaded; then all that changed meanwhile are named."""
    watch = FileWatch({"f": A, "g": A})
    both: Marks = {"f": B, "g": B}
    assert watch.look({"f": B, "g": None}) == Finding(missing=("g",))
    assert watch.look(both) == SETTLING
    assert watch.look(both) == Finding(("f", "g"))
    assert watch.look(both) == NOTHING


def test_a_reload_by_hand_takes_the_change_with_it() -> None:
    """SIGHUP or `leveret ctl reload` came first; also one that failed because the file was away."""
    watch = FileWatch({"f": A})
    watch.note_loaded({"f": B})
    assert watch.look({"f": B}) == NOTHING
    watch.note_loaded({"f": None})
    assert watch.look({"f": B}) == SETTLING
    assert watch.look({"f": B}) == Finding(("f",))


def test_an_included_file_is_watched_as_long_as_it_is_included() -> None:
    """Then it may go, and holds no reload up; those given at the start are watched always."""
    watch = FileWatch({"f": A})
    watch.follow({"g": A})
    assert watch.files == ("f", "g")
    watch.follow({"h": A})
    assert watch.files == ("f", "h")
    assert [watch.look({"f": B, "h": A}) for _ in "12"] == [SETTLING, Finding(("f",))]
    watch.follow({})
    assert watch.files == ("f",)


def test_marks_of_real_files(tmp_path: Path) -> None:
    """Written in place, replaced by rename with the same time and size, gone, a directory."""
    file = tmp_path / "a.toml"
    file.write_text("one")
    first = marks_of([str(file)])
    assert marks_of([str(file)]) == first
    file.write_text("three")
    second = marks_of([str(file)])
    assert second != first
    successor = tmp_path / "b"
    successor.write_text("seven")
    stat = file.stat()
    os.utime(successor, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    successor.rename(file)
    third = marks_of([str(file)])
    assert third != second
    file.unlink()
    assert marks_of([str(file)]) == {str(file): None}
