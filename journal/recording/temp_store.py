"""The broker's temp store (see `TempStore`): contents in temporary files, until they are released or the broker stops.

Contents are appended to chunks. A chunk is a file without a name, which is closed when none of its contents is needed;
the newest one is only truncated then. Source: queues page F; docs/deep-queues.md.
"""

import errno
import logging
import os
import shutil
import tempfile
import weakref
from collections.abc import Callable, Sequence

from ...engine import Location, Unreadable
from .retry import retry_blocking

logger = logging.getLogger("leveret.journal")

CHUNK_SIZE = 64 * 1024 * 1024


class Chunk:
    """A temporary file. `live`: octets that are not released yet."""

    __slots__ = ("file", "live", "size")

    def __init__(self, directory: str) -> None:
        self.file = tempfile.TemporaryFile(dir=directory, buffering=0)  # noqa: SIM115 - closed by the store
        self.size = 0
        self.live = 0


class FileTempStore:
    """Temporary files in `directory`; None: in a private temporary directory, made when it is first needed.

    `descriptor_max`: descriptors of this number and above are left to other files; None: any may be used.
    `on_unreadable`: called with each failure to read before it is raised. `used`: octets stored; `on_change` is called
    with their number. `limit`: nothing is stored when `used` has reached it; 0: there is none.
    """

    def __init__(
        self,
        directory: str | None = None,
        chunk_size: int = CHUNK_SIZE,
        *,
        descriptor_max: int | None = None,
        on_unreadable: Callable[[Unreadable], object] = lambda error: None,
    ) -> None:
        self.limit = 0
        self.used = 0
        self.on_change: Callable[[int], object] = lambda used: None
        self._on_unreadable = on_unreadable
        self._descriptor_max = descriptor_max
        self._directory = directory
        self._private = ""  # the private directory
        self._remove: Callable[[], object] = lambda: None
        self._chunk_size = chunk_size
        self._chunk: Chunk | None = None
        self._open: set[Chunk] = set()
        self.has_failed = False

    def spool(self, contents: Sequence[bytes]) -> Location | None:
        """See `TempStore`. A disk failure is logged once, until a write succeeds again."""
        octets = b"".join(contents) if len(contents) != 1 else contents[0]
        if 0 < self.limit <= self.used:
            return None
        try:
            chunk = self._chunk
            if chunk is None or chunk.size >= self._chunk_size:
                new = self._new_chunk()
                if chunk is not None and not chunk.live:
                    self._close(chunk)
                chunk = self._chunk = new
                self._open.add(chunk)
            chunk.file.seek(chunk.size)
            view = memoryview(octets)
            while view:
                view = view[chunk.file.write(view) :]
        except OSError as error:
            if not self.has_failed:
                logger.error("temp store: %s; contents stay in memory", error)
            self.has_failed = True
            return None
        self.has_failed = False
        location = Location(chunk, chunk.size)
        chunk.size += len(octets)
        chunk.live += len(octets)
        self._add_used(len(octets))
        return location

    def _add_used(self, octets: int) -> None:
        if octets:
            self.used += octets
            self.on_change(self.used)

    def _new_chunk(self) -> Chunk:
        """Raises: OSError."""
        chunk = Chunk(self._directory or self._private_directory())
        if self._descriptor_max is not None and chunk.file.fileno() >= self._descriptor_max:
            chunk.file.close()
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return chunk

    def _private_directory(self) -> str:
        """A directory of this process, mode 0700, removed with this object or the process. Raises: OSError."""
        if not os.path.isdir(self._private):  # also when a cleaner of temporary files has removed it
            self._private = tempfile.mkdtemp(prefix="leveret-")
            self._remove = weakref.finalize(self, shutil.rmtree, self._private, ignore_errors=True)
        return self._private

    def unspool(self, location: Location, size: int) -> bytes:
        try:
            return retry_blocking(lambda: self._read(location, size))
        except OSError as cause:
            error = Unreadable(f"the temp store cannot be read back: {cause}")
            self._on_unreadable(error)
            raise error from cause

    @staticmethod
    def _read(location: Location, size: int) -> bytes:
        if not size:
            return b""
        chunk = location.chunk
        assert isinstance(chunk, Chunk)
        chunk.file.seek(location.offset)
        found = chunk.file.read(size)
        if len(found) != size:
            raise OSError(errno.EIO, f"a temporary file gave {len(found)} of {size} octets")
        return found

    def release(self, location: Location, size: int) -> None:
        """See `TempStore`. The file of a chunk without live octets is closed or truncated."""
        chunk = location.chunk
        assert isinstance(chunk, Chunk)
        chunk.live -= size
        assert chunk.live >= 0
        if size and not chunk.live:
            if chunk is self._chunk:
                self._truncate(chunk)
            else:
                self._close(chunk)
        self._add_used(-size)

    def close(self) -> None:
        for chunk in list(self._open):
            self._close(chunk)
        self._chunk = None
        self.used = 0
        self._remove()

    def _truncate(self, chunk: Chunk) -> None:
        """Truncate the newest chunk: cheaper than a new file when few contents are stored and released."""
        try:
            chunk.file.truncate(0)
        except OSError:
            self._chunk = None
            self._close(chunk)
        else:
            chunk.size = 0

    def _close(self, chunk: Chunk) -> None:
        chunk.file.close()
        self._open.discard(chunk)
