"""The spool: transient messages of deep queues, in a temporary file until they are asked for or the broker stops.

Blobs lie one behind the other in chunks; a chunk's file has no name and is closed when nothing in it is needed.
Source: queues page F; docs/deep-queues.md.
"""

import errno
import logging
import os
import tempfile
from collections.abc import Sequence

from ...engine.state import Place

logger = logging.getLogger("leveret.journal")

CHUNK_SIZE = 64 * 1024 * 1024


class Chunk:
    """A file. `live`: octets that somebody will ask for."""

    __slots__ = ("file", "live", "size")

    def __init__(self, directory: str) -> None:
        self.file = tempfile.TemporaryFile(dir=directory, buffering=0)  # noqa: SIM115 - closed by the spool
        self.size = 0
        self.live = 0


class Spool:
    """In one directory; nothing of it survives the process.

    `descriptor_max`: no file is kept open with a descriptor as high as that; the rest is for other files. None: any.
    """

    def __init__(self, directory: str, chunk_size: int = CHUNK_SIZE, *, descriptor_max: int | None = None) -> None:
        self._descriptor_max = descriptor_max
        self._directory = directory
        self._chunk_size = chunk_size
        self._chunk: Chunk | None = None
        self._open: set[Chunk] = set()
        self._has_failed = False

    def put(self, blobs: Sequence[bytes]) -> Place | None:
        """Where they are; None: there was no room, which is logged once."""
        octets = b"".join(blobs) if len(blobs) != 1 else blobs[0]
        try:
            chunk = self._chunk
            if chunk is None or chunk.size >= self._chunk_size:
                new = self._new_chunk()
                self._leave(chunk)
                chunk = self._chunk = new
                self._open.add(chunk)
            chunk.file.seek(chunk.size)
            view = memoryview(octets)
            while view:
                view = view[chunk.file.write(view) :]
        except OSError as error:
            if not self._has_failed:
                logger.error("spool: %s; transient messages of deep queues stay in memory", error)
            self._has_failed = True
            return None
        self._has_failed = False
        place = Place(chunk, chunk.size)
        chunk.size += len(octets)
        chunk.live += len(octets)
        return place

    def _new_chunk(self) -> Chunk:
        """Raises: OSError."""
        chunk = Chunk(self._directory)
        if self._descriptor_max is not None and chunk.file.fileno() >= self._descriptor_max:
            chunk.file.close()
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return chunk

    def get(self, place: Place, octets: int) -> bytes:
        """Raises: OSError."""
        if not octets:
            return b""
        chunk = place.chunk
        assert isinstance(chunk, Chunk)
        chunk.file.seek(place.offset)
        found = chunk.file.read(octets)
        if len(found) != octets:
            raise OSError(5, f"the spool gave {len(found)} of {octets} octets", os.fspath(self._directory))
        return found

    def release(self, place: Place, octets: int) -> None:
        """They are not wanted any more."""
        chunk = place.chunk
        assert isinstance(chunk, Chunk)
        chunk.live -= octets
        if not chunk.live and chunk is not self._chunk:
            self._close(chunk)

    def close(self) -> None:
        """Close and forget all chunks."""
        for chunk in list(self._open):
            self._close(chunk)
        self._chunk = None

    def _leave(self, chunk: Chunk | None) -> None:
        if chunk is not None and not chunk.live:
            self._close(chunk)

    def _close(self, chunk: Chunk) -> None:
        chunk.file.close()
        self._open.discard(chunk)
