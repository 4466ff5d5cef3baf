"""Detection of changed configuration files: `marks_of` reads their marks from disk, `FileWatch` compares them.

A file counts as changed if its modification time, size or inode differs, so that a replacement by rename is noticed as
well as writing in place. Source: address-settings page 3.8.
"""

import os
from collections.abc import Iterable, Mapping

from ..settings.frozen import frozen


@frozen
class FileMark:
    """The properties that differ when a file has changed."""

    modified_ns: int
    size: int
    identity: int  # the inode


#: File name -> its mark; None: the file cannot be read.
Marks = Mapping[str, FileMark | None]


@frozen
class Finding:
    """The result of a check.

    `changed`: files that differ from the loaded ones and no longer change: load them now. `missing`: files that have
    disappeared since the last check. `is_settling`: a file is changing; check again soon.
    """

    changed: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    is_settling: bool = False


NOTHING = Finding()


def marks_of(names: Iterable[str]) -> dict[str, FileMark | None]:
    return {name: _mark(name) for name in names}


def _mark(name: str) -> FileMark | None:
    try:
        found = os.stat(name)
    except OSError:
        return None
    return FileMark(found.st_mtime_ns, found.st_size, found.st_ino)


class FileWatch:
    """Compares marks with those of the loaded files. Pure: `look` gets the marks."""

    def __init__(self, loaded: Marks) -> None:
        self._given = frozenset(loaded)
        self._loaded = dict(loaded)
        self._last = dict(loaded)
        self._missing: set[str] = set()

    @property
    def files(self) -> tuple[str, ...]:
        return tuple(self._loaded)

    def note_loaded(self, marks: Marks) -> None:
        """Note that the files are being loaded. Take the marks before reading the files."""
        self._loaded = dict(marks)
        self._last = dict(marks)

    def follow(self, marks: Marks) -> None:
        """Watch the files given at the start, and of included files only those in `marks`."""
        for known in (self._loaded, self._last):
            for name in [name for name in known if name not in self._given and name not in marks]:
                del known[name]
            for name, mark in marks.items():
                known.setdefault(name, mark)

    def look(self, marks: Marks) -> Finding:
        """Compare the marks. Each change and each disappearance is reported once.

        A change is reported when two checks in a row see the same marks, because a file that is written in place may be
        empty for a moment, and an empty configuration is valid and removes all queues. While a file is missing, nothing
        is reported: the other files may belong to its successor.
        """
        last, self._last = self._last, dict(marks)
        missing = {name for name, mark in marks.items() if mark is None}
        new_missing, self._missing = missing - self._missing, missing
        if missing:
            return Finding(missing=tuple(name for name in marks if name in new_missing))
        changed = tuple(name for name, mark in marks.items() if mark != self._loaded.get(name))
        if not changed:
            return NOTHING
        if last != self._last:
            return Finding(is_settling=True)
        self.note_loaded(marks)
        return Finding(changed=changed)
