"""The segments of a leader that one follower still needs: they are kept, and read for it.

A link registers a reader of its own in the leader's directory, so that checkpoints delete no segment that the follower
has yet to get. All functions and methods are for a thread: they wait for the disk.
"""

import logging
import re
from collections.abc import Iterable
from typing import NamedTuple

from ...journal import REAL, Files, forget_reader, reader_offsets, register_reader
from ...journal.copying.octet_reader import OctetReader
from ...journal.disk.readers import NODE_PREFIX
from ...journal.disk.segment import path_of, segments_in
from . import frames as f
from .feed import Position

logger = logging.getLogger("leveret.cluster")

#: Octets that one call of `read` reads.
READ_MAX = 1024 * 1024
#: Characters of a node's name that are in the names of its readers. A name has at most 63: no two nodes share readers.
NAME_MAX = 80
_NOT_IN_READER_NAMES = re.compile(r"[^A-Za-z0-9_.-]")


def readers_of(path: str, files: Files = REAL, node: str | None = None) -> list[str]:
    """The names of readers in a leader's directory that keep segments for followers, one for each link.

    `node`: only readers for this node. Raises: OSError, JournalError.
    """
    wanted = None if node is None else _reader_prefix(node)
    names = [name for name in reader_offsets(path, files) if name.startswith(NODE_PREFIX)]
    return [name for name in names if wanted in (None, name.rpartition("-")[0])]


def forget_readers(path: str, names: Iterable[str], files: Files = REAL) -> None:
    """Stop keeping segments for these readers. Raises: OSError."""
    for name in names:
        forget_reader(path, name, files)


def _reader_prefix(node: str) -> str:
    return f"{NODE_PREFIX}{_NOT_IN_READER_NAMES.sub('_', node)[:NAME_MAX]}"


class Read(NamedTuple):
    """Octets from the files, as frames, and the position behind them.

    behind: how many octets the follower lacked, if this is the first read since it fell behind.
    """

    end: Position
    frames: bytes
    behind: int | None


class FollowerSegments:
    """Keeps segments for a link of the follower `node`, and reads them. `number`: tells apart the links of a leader."""

    __slots__ = ("_files", "_node", "_path", "_reader", "_reader_name", "are_kept")

    def __init__(self, path: str, node: str, number: int, files: Files) -> None:
        self._path, self._files, self._node = path, files, node
        self._reader: OctetReader | None = None
        self._reader_name = f"{_reader_prefix(node)}-{number}"
        self.are_kept = False

    def keep_from(self, lsn: int) -> None:
        """Keep the segments from the record `lsn` on, until `release`. Raises: OSError."""
        register_reader(self._path, self._reader_name, lsn, self._files)
        self.are_kept = True

    def size_between(self, start: Position, end: Position) -> int:
        """The number of octets between two positions. Raises: OSError."""
        size = end.offset - start.offset
        for base_lsn in segments_in(self._files, self._path):
            if start.base_lsn <= base_lsn < end.base_lsn:
                handle = self._files.open(path_of(self._path, base_lsn))
                size += self._files.size(handle)
                self._files.close(handle)
        return size

    def read(self, start: Position, end: Position) -> Read:
        """Read the next octets; segments from `start` on are kept. Raises: NotInJournal, OSError."""
        if not self.are_kept:
            self.keep_from(start.base_lsn)
        reader, behind = self._reader, None
        if reader is None or reader.position != start:
            self._close()
            reader = self._reader = OctetReader(self._path, *start, self._files)
            behind = self.size_between(start, end)
        parts: list[bytes] = []
        size = 0
        while size < READ_MAX and (found := reader.read(end, f.PIECE_MAX)) is not None:
            base_lsn, offset, octets = found
            parts += (f.octets_head(base_lsn, offset, len(octets)), octets)
            size += len(octets)
        return Read(Position(*reader.position), b"".join(parts), behind)

    def release(self) -> None:
        """Close the files, and no longer keep segments. May be called again."""
        self._close()
        if self.are_kept:
            self.are_kept = False
            try:
                forget_reader(self._path, self._reader_name, self._files)
            except OSError as error:
                logger.warning("%s: segments stay longer than needed: %s", self._node, error)

    def _close(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None
