"""A full copy: a new directory beside the journal's own, which takes its place when it is whole.

| name beside the journal's directory | is |
|---|---|
| `NAME.copy` | a copy that is under way; deleted when its link ends, or the next one begins |
| `NAME.whole` | a copy that is whole, and takes the journal's place as soon as possible |
| `NAME.old` | the journal before the copy; deleted when the node is in sync |

Each step is one rename, so one directory is whole at any moment: the old one until `NAME.whole` exists, then that one.
`finish` completes what a crash interrupted; call it before the journal's directory is opened. The copy has a new node
id, since it has acknowledged nothing.
"""

import logging
import os
import shutil

from ...journal import REAL, Files, JournalError, JournalFull, reader_offsets, register_reader
from ...journal.copying.copied_journal import CopiedJournal

logger = logging.getLogger("leveret.cluster")

COPY, WHOLE, OLD = ".copy", ".whole", ".old"
MIB = 1024 * 1024


class NoRoom(JournalFull):
    """The disk is too small for a full copy beside the journal."""


def begin(path: str, files: Files = REAL, size: int = 0) -> CopiedJournal:
    """Make a directory beside the journal at `path`, for the `size` octets of a copy.

    Raises: NoRoom: a copy that fills the disk would be begun again and again; JournalError, OSError.
    """
    path = os.path.abspath(path)
    _remove(path + COPY)
    free = shutil.disk_usage(os.path.dirname(path)).free
    if size > free:
        raise NoRoom(f"{path}: a full copy takes {size // MIB} MiB, and the disk has {free // MIB} MiB free")
    return CopiedJournal.open(path + COPY, files=files)


def swap(path: str, files: Files = REAL) -> None:
    """Put the copy, which is closed and fsynced, in the journal's place. Raises: OSError."""
    path = os.path.abspath(path)
    try:
        readers = reader_offsets(path, files)
    except JournalError as error:  # if it were raised, it would stop this copy and each later one
        logger.error("%s: readers of this node's journal begin anew", error)
        readers = {}
    for name, lsn in readers.items():
        register_reader(path + COPY, name, lsn, files)  # readers of this node's journal continue, if they can
    files.rename(path + COPY, path + WHOLE)
    files.sync_directory(os.path.dirname(path))
    finish(path, files)


def finish(path: str, files: Files = REAL) -> bool:
    """Complete what a crash or an error interrupted, if anything. Raises: OSError.

    Returns whether a whole copy has taken the journal's place now.
    """
    path = os.path.abspath(path)
    parent, name = os.path.split(path)
    names = files.names(parent)
    is_whole = name + WHOLE in names
    if is_whole:
        if name in names:
            _remove(path + OLD)
            files.rename(path, path + OLD)
            files.sync_directory(parent)
        files.rename(path + WHOLE, path)
        files.sync_directory(parent)
    if name + COPY in names:
        _remove(path + COPY)
    return is_whole


def drop_old(path: str) -> bool:
    """Delete the journal that the last full copy replaced. Call it when the node is in sync.

    Returns whether there was one. Files that cannot be deleted stay until the next call.
    """
    return _drop(path, OLD, "the journal before the last full copy stays")


def drop_unfinished(path: str) -> None:
    """Delete a copy that is not whole, and is closed. What cannot be deleted stays until the next copy begins."""
    _drop(path, COPY, "a copy that broke off stays")


def _drop(path: str, suffix: str, trouble: str) -> bool:
    try:
        return _remove(os.path.abspath(path) + suffix)
    except OSError as error:
        logger.warning("%s: %s", trouble, error)
        return True


def _remove(path: str) -> bool:
    if not os.path.isdir(path):
        return False
    shutil.rmtree(path)
    return True
