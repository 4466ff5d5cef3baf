"""The readers of a journal: the programs for which segments are kept, each with a file in `readers/`.

`<name>.json` (`{"lsn": N}`): the first LSN that the reader still needs. `<name>.warned` (`{"lsn": N, "at_ms": wall
time}`): since when the broker has warned that it may be dropped. `<name>.dropped` (`{"lsn": N, "at_ms": wall time,
"why": words}`): the broker has dropped it.
"""

import json
import os
import re
from contextlib import suppress
from dataclasses import dataclass

from ..format.errors import JournalError
from .files import OUT_OF_RESOURCES, REAL, Files, ReadableFiles, read_file, replace_file

READERS = "readers"
READER_NAME = re.compile(r"[A-Za-z0-9_.-]{1,100}")
#: The names of readers that keep a leader's segments for a node that copies them begin with this.
NODE_PREFIX = "node-"
_WARNED, _DROPPED = ".warned", ".dropped"


@dataclass(slots=True, frozen=True)
class DroppedReader:
    """A reader that the broker dropped at `at_ms`. `lsn`: its next record; `why`: the octets kept for it, in words."""

    lsn: int
    at_ms: int
    why: str


def register_reader(path: str, name: str, lsn: int, files: Files = REAL) -> None:
    """Keep the segments with records from `lsn` on for reader `name`. Durable when it returns.

    Raises: ValueError (a name has letters, digits, `_.-`), OSError.
    """
    if not READER_NAME.fullmatch(name) or name.startswith("."):
        raise ValueError(f"{name!r} is not a name for a reader")
    directory = os.path.join(path, READERS)
    if READERS not in files.names(path):
        files.make_directory(directory)
    _write(path, f"{name}.json", {"lsn": lsn}, files)
    if f"{name}{_DROPPED}" in files.names(directory):
        files.unlink(os.path.join(directory, f"{name}{_DROPPED}"))


def forget_reader(path: str, name: str, files: Files = REAL) -> None:
    """Remove the reader with its notes: no segments are kept for it."""
    directory = os.path.join(path, READERS)
    names = [one for one in (f"{name}.json", f"{name}{_WARNED}", f"{name}{_DROPPED}") if one in files.names(directory)]
    for one in names:
        with suppress(FileNotFoundError):  # the reader and the broker may both remove it
            files.unlink(os.path.join(directory, one))
    if names:
        files.sync_directory(directory)


def reader_offsets(path: str, files: ReadableFiles = REAL) -> dict[str, int]:
    """The first LSN that each reader needs. Raises: JournalError for a file that cannot be understood, OSError."""
    directory = os.path.join(path, READERS)
    offsets: dict[str, int] = {}
    for name in files.names(directory):
        if not name.endswith(".json"):
            continue
        try:
            lsn = json.loads(read_file(files, os.path.join(directory, name)))["lsn"]
            if not isinstance(lsn, int) or isinstance(lsn, bool) or lsn < 0:
                raise ValueError
        except FileNotFoundError:
            continue  # its reader is done, and has just removed it
        except (ValueError, KeyError, TypeError, OSError) as error:
            if isinstance(error, OSError) and error.errno in OUT_OF_RESOURCES:
                raise
            raise JournalError(f"{os.path.join(directory, name)}: not a reader's offset; nothing is deleted") from error
        offsets[name.removesuffix(".json")] = lsn
    return offsets


# -- notes of the broker ----------------------------------------------------------------------------------------------


def warned_since_ms(path: str, name: str, lsn: int, files: ReadableFiles = REAL) -> int | None:
    """The wall time at which the broker first warned of this reader at this LSN; None: it has not. Raises: OSError."""
    directory = os.path.join(path, READERS)
    if f"{name}{_WARNED}" in files.names(directory):
        with suppress(ValueError, KeyError, TypeError):
            note = json.loads(read_file(files, os.path.join(directory, f"{name}{_WARNED}")))
            at_ms = int(note["at_ms"])
            return at_ms if note["lsn"] == lsn else None
    return None


def note_warned(path: str, name: str, lsn: int, at_ms: int, files: Files = REAL) -> None:
    """Note that the broker warns of a reader. Durable when it returns. Raises: OSError."""
    _write(path, f"{name}{_WARNED}", {"lsn": lsn, "at_ms": at_ms}, files)


def drop_reader(path: str, name: str, dropped: DroppedReader, files: Files = REAL) -> None:
    """Remove a reader, and tell it why in a note if there is room for one on the disk. Raises: OSError."""
    forget_reader(path, name, files)
    with suppress(OSError):
        _write(path, f"{name}{_DROPPED}", {"lsn": dropped.lsn, "at_ms": dropped.at_ms, "why": dropped.why}, files)


def dropped_readers(path: str, files: ReadableFiles = REAL) -> dict[str, DroppedReader]:
    """The readers that the broker has dropped and that have not registered again. Raises: OSError."""
    directory = os.path.join(path, READERS)
    found: dict[str, DroppedReader] = {}
    for name in files.names(directory):
        if name.endswith(_DROPPED):
            with suppress(ValueError, KeyError, TypeError):
                note = json.loads(read_file(files, os.path.join(directory, name)))
                dropped = DroppedReader(int(note["lsn"]), int(note["at_ms"]), str(note["why"]))
                found[name.removesuffix(_DROPPED)] = dropped
    return found


def _write(path: str, name: str, content: dict[str, object], files: Files) -> None:
    replace_file(files, os.path.join(path, READERS), name, json.dumps(content).encode() + b"\n")
