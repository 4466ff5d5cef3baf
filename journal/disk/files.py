"""File operations of the journal in one thin layer, so that tests can put faults and power cuts beneath it.

Paths are text; handles are integers. All methods raise OSError.
"""

import contextlib
import errno
import os
import threading
from typing import Protocol

#: Error numbers of a process or system without free descriptors or memory: the call did nothing and is repeated later.
OUT_OF_RESOURCES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
#: Error numbers of a disk or quota without room.
DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
#: Error numbers that mean that the directory is gone, or that this process may not change it.
DIRECTORY_GONE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.EROFS, errno.EACCES, errno.EPERM})


class SyncError(OSError):
    """A failed fsync, whatever the errno: the content of the disk is unknown."""


class ReadableFiles(Protocol):
    """File operations that reading a journal needs."""

    def open(self, path: str) -> int:
        """Open for reading. Returns a handle."""

    def close(self, handle: int) -> None:
        """Close the handle."""

    def read(self, handle: int, length: int, offset: int) -> bytes:
        """Up to `length` octets from `offset`; fewer only at the end of the file."""

    def size(self, handle: int) -> int:
        """Size of the file in octets."""

    def names(self, path: str) -> list[str]:
        """Names in a directory, sorted; empty when there is no such directory."""


class Files(ReadableFiles, Protocol):
    """File operations that writing a journal needs in addition."""

    def open(self, path: str, *, create: bool = False, writable: bool = False) -> int:
        """Open a file. Returns a handle. `create`: make it if it does not exist, and open it for writing."""

    def write(self, handle: int, data: memoryview, offset: int) -> int:
        """Write some of `data` at `offset`; returns the number of octets written (at least 1)."""

    def truncate(self, handle: int, size: int) -> None:
        """Cut the file, or extend it with zeros."""

    def preallocate(self, handle: int, offset: int, length: int) -> None:
        """Reserve room (zeros) if the system can; otherwise do nothing."""

    def sync(self, handle: int) -> None:
        """Content and size are on stable storage when this returns."""

    def sync_directory(self, path: str) -> None:
        """Names that were made, changed and removed in the directory are on stable storage when this returns.

        Raises: SyncError when the fsync itself failed.
        """

    def is_linked(self, handle: int) -> bool:
        """Whether the file still has a name, so that it can be opened again."""

    def rename(self, old: str, new: str) -> None:
        """Replace `new` with `old` in one step."""

    def unlink(self, path: str) -> None:
        """Remove the name."""

    def make_directory(self, path: str) -> None:
        """Make the directory and its parents unless they exist. Names that it made are on stable storage when this
        returns."""

    def lock(self, path: str) -> int | None:
        """Lock a file (made if need be) exclusively until the handle is closed or the process ends.

        None: another process has the lock.
        """


class RealFiles:
    """Files of the operating system."""

    def open(self, path: str, *, create: bool = False, writable: bool = False) -> int:
        flags = os.O_RDWR | os.O_CREAT if create else os.O_RDWR if writable else os.O_RDONLY
        return os.open(path, flags | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0), 0o640)

    def close(self, handle: int) -> None:
        os.close(handle)

    def read(self, handle: int, length: int, offset: int) -> bytes:
        if hasattr(os, "pread"):
            data = os.pread(handle, length, offset)
        else:
            os.lseek(handle, offset, os.SEEK_SET)
            data = os.read(handle, length)
        if not data or len(data) == length:
            return data
        return data + self.read(handle, length - len(data), offset + len(data))

    def write(self, handle: int, data: memoryview, offset: int) -> int:
        if hasattr(os, "pwrite"):
            return os.pwrite(handle, data, offset)
        os.lseek(handle, offset, os.SEEK_SET)
        return os.write(handle, data)

    def size(self, handle: int) -> int:
        return os.fstat(handle).st_size

    def truncate(self, handle: int, size: int) -> None:
        os.ftruncate(handle, size)

    def preallocate(self, handle: int, offset: int, length: int) -> None:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(handle, offset, length)

    def sync(self, handle: int) -> None:
        """fdatasync also writes a changed size, but not the timestamps."""
        getattr(os, "fdatasync", os.fsync)(handle)

    def sync_directory(self, path: str) -> None:
        """Windows cannot sync a directory; NTFS journals names itself."""
        if os.name == "nt":
            return
        handle = self.open(path)
        try:
            os.fsync(handle)
        except OSError as error:
            raise SyncError(error.errno, f"fsync: {error.strerror}") from error
        finally:
            self.close(handle)

    def is_linked(self, handle: int) -> bool:
        return os.fstat(handle).st_nlink > 0

    def rename(self, old: str, new: str) -> None:
        os.replace(old, new)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def names(self, path: str) -> list[str]:
        try:
            return sorted(os.listdir(path))
        except FileNotFoundError:
            return []

    def make_directory(self, path: str) -> None:
        missing: list[str] = []
        above = os.path.abspath(path)
        while not os.path.isdir(above):
            missing.append(above)
            above = os.path.dirname(above)
        os.makedirs(path, exist_ok=True)
        for made in reversed(missing):  # else a power cut may take a directory with all that is fsynced in it
            self.sync_directory(os.path.dirname(made))

    def lock(self, path: str) -> int | None:
        handle = self.open(path, create=True)
        try:
            _lock(handle)
        except OSError:
            self.close(handle)
            return None
        return handle


def _lock(handle: int) -> None:
    """Raises: OSError when another process has the lock."""
    if os.name == "nt":
        import msvcrt

        msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined,unused-ignore]
    else:
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


REAL = RealFiles()


def write_all(files: Files, handle: int, data: bytes | bytearray | memoryview, offset: int) -> int:
    """Write all of `data` at `offset`, in as many calls as the system needs. Returns the offset after it."""
    with memoryview(data) as view:
        position = 0
        while position < len(view):
            with view[position:] as rest:
                written = files.write(handle, rest, offset + position)
            if written <= 0:
                raise OSError(5, "a write that wrote nothing")
            position += written
        return offset + position


class Preallocation:
    """Reserves room for the file that a journal grows, `step` octets at once; 0: none. `end`: of the room so far."""

    def __init__(self, files: Files, step: int) -> None:
        self._files = files
        self._step = step
        self.end = 0

    def reserve(self, handle: int, size: int) -> None:
        """Reserve room up to `size` octets or more; if the system cannot do that, it is not tried again."""
        if not self._step or size <= self.end:
            return
        length = max(self._step, size - self.end)
        try:
            self._files.preallocate(handle, self.end, length)
        except OSError as error:
            if error.errno not in DISK_FULL | OUT_OF_RESOURCES:  # if these octets do not fit, their write fails
                self._step = 0
        else:
            self.end += length


def sync_file(files: Files, handle: int) -> None:
    """Fsync a file. Raises: SyncError."""
    try:
        files.sync(handle)
    except OSError as error:
        raise SyncError(error.errno, f"fsync: {error.strerror}") from error


def read_file(files: ReadableFiles, path: str) -> bytes:
    handle = files.open(path)
    try:
        return files.read(handle, files.size(handle), 0)
    finally:
        files.close(handle)


def replace_file(files: Files, directory: str, name: str, data: bytes) -> None:
    """Give a file new content so that after a power cut it has the old or the new one, whole."""
    temporary = os.path.join(directory, name + ".new")
    handle = files.open(temporary, create=True)
    try:
        files.truncate(handle, 0)
        write_all(files, handle, data, 0)
        files.sync(handle)
    finally:
        with contextlib.suppress(OSError):
            files.close(handle)
    files.rename(temporary, os.path.join(directory, name))
    files.sync_directory(directory)


_OUT_OF_DESCRIPTORS = frozenset({errno.EMFILE, errno.ENFILE})


class SpareFiles(RealFiles):
    """Keeps `count` descriptors of the null device open. When no descriptors are left, it closes one of them for each
    file that it opens, and opens them again as files are closed. Thread-safe."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._lock = threading.Lock()
        self._spares: list[int] = []
        self._restock()

    def open(self, path: str, *, create: bool = False, writable: bool = False) -> int:
        while True:
            try:
                return super().open(path, create=create, writable=writable)
            except OSError as error:
                if error.errno not in _OUT_OF_DESCRIPTORS or not self._release_one():
                    raise

    def close(self, handle: int) -> None:
        super().close(handle)
        if len(self._spares) < self._count:
            self._restock()

    def release(self) -> None:
        """Close all spare descriptors for good."""
        self._count = 0
        while self._release_one():
            pass

    def _release_one(self) -> bool:
        with self._lock:
            if not self._spares:
                return False
            os.close(self._spares.pop())
            return True

    def _restock(self) -> None:
        with self._lock, contextlib.suppress(OSError):
            while len(self._spares) < self._count:
                self._spares.append(os.open(os.devnull, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0)))
