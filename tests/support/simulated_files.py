"""A file system in memory, with faults to order and a power switch.

What was written is there until the power goes; then only what was synced is: of files by `sync`, of names by
`sync_directory`. With a `Random`, of the rest some sectors and names made it to the disk and some did not.
"""

import errno
import os
import threading
from collections.abc import Callable
from random import Random

SECTOR = 512


class _Octets:
    """Of a file: `data`, and zeros behind it up to `size`. Room that is allocated ahead takes no memory."""

    def __init__(self, data: bytes = b"", size: int = 0) -> None:
        self.data = bytearray(data)
        self.size = max(size, len(data))

    def copy(self) -> "_Octets":
        return _Octets(self.data, self.size)

    def read(self, offset: int, length: int) -> bytes:
        found = bytes(self.data[offset : offset + length])
        return found + bytes(max(min(length, self.size - offset) - len(found), 0))

    def put(self, offset: int, piece: bytes) -> None:
        data = self.data
        if len(data) < offset:
            data.extend(bytes(offset - len(data)))
        data[offset : offset + len(piece)] = piece
        self.size = max(self.size, len(data))

    def resize(self, size: int) -> None:
        del self.data[size:]
        self.size = size


class _File:
    """As it is, and as it is on the disk for certain."""

    def __init__(self, octets: _Octets) -> None:
        self.now = octets
        self.durable = octets.copy()
        self.unsynced: list[tuple[int, bytes | None]] = []  # (offset, octets) or (size, None): cut

    @property
    def size(self) -> int:
        return self.now.size

    def copy(self) -> "_File":
        other = _File(self.now.copy())
        other.durable = self.durable.copy()
        other.unsynced = list(self.unsynced)
        return other


class SimulatedFiles:
    """See the module. `fault(operation, path)` is asked before every operation and may raise OSError.

    `capacity`: octets that all files together may have, then ENOSPC (a write is cut short first, as systems do).
    `write_max`: octets that one write takes at most.
    """

    def __init__(self) -> None:
        self.names_now: dict[str, _File] = {}
        self.names_durable: dict[str, _File] = {}
        self._unsynced: dict[str, dict[str, None]] = {}  # directory -> names in it that changed since its last sync
        self.handles: dict[int, tuple[str, _File]] = {}
        self.locked: dict[str, int] = {}
        self.fault: Callable[[str, str], object] = lambda operation, path: None
        self.capacity: int | None = None
        self.write_max: int | None = None
        self.log: list[tuple[str, str]] = []
        self.keeps_log = True
        self._next_handle = 1000
        self._mutex = threading.RLock()

    # -- what happens to it -------------------------------------------------------------------------------------------

    def power_cut(self, random: Random | None = None) -> "SimulatedFiles":
        """The same disk after a power cut."""
        after = SimulatedFiles()
        made: dict[int, _File] = {}
        names = dict(self.names_durable)
        if random is not None:
            for name in sorted(self.names_now.keys() | self.names_durable.keys()):
                if random.random() < 0.5:
                    if name in self.names_now:
                        names[name] = self.names_now[name]
                    else:
                        names.pop(name, None)
        for name, file in names.items():
            if id(file) not in made:
                made[id(file)] = _File(_left_over(file, random))
            after.names_now[name] = after.names_durable[name] = made[id(file)]
        return after

    def crash(self) -> "SimulatedFiles":
        """The same disk after the process was killed: nothing is lost, unless the power goes after all."""
        after = SimulatedFiles()
        made: dict[int, _File] = {}
        for names, copies in (
            (self.names_now, after.names_now),
            (self.names_durable, after.names_durable),
        ):
            for name, file in names.items():
                if id(file) not in made:
                    made[id(file)] = file.copy()
                copies[name] = made[id(file)]
        after._unsynced = {directory: dict(names) for directory, names in self._unsynced.items()}
        return after

    def rot(self, path: str, offset: int) -> None:
        """An octet of a file, which was fsynced, has changed on the disk."""
        file = self.names_now[path]
        octet = bytes([file.now.read(offset, 1)[0] ^ 0x20])
        file.now.put(offset, octet)
        file.durable.put(offset, octet)

    def content(self, path: str) -> bytes:
        """What is in a file now."""
        file = self.names_now[path]
        return file.now.read(0, file.size)

    @property
    def used(self) -> int:
        """Octets that all files together have."""
        return sum(file.size for file in self.names_now.values())

    def put(self, path: str, data: bytes) -> None:
        """A file that is on the disk."""
        self.names_now[path] = self.names_durable[path] = _File(_Octets(data))

    def lose(self, path: str) -> _File:
        """Somebody else deletes a file. Returns it."""
        self._name_changed(path)
        return self.names_now.pop(path)

    def _name_changed(self, path: str) -> None:
        """New names are kept in the order in which they came, as in `names_now`."""
        names = self._unsynced.setdefault(os.path.dirname(path), {})
        if path not in self.names_now:
            names.pop(path, None)
        names[path] = None

    def _ask(self, operation: str, path: str) -> None:
        if self.keeps_log:
            self.log.append((operation, path))
        self.fault(operation, path)

    # -- Files --------------------------------------------------------------------------------------------------------

    def open(self, path: str, *, create: bool = False, writable: bool = False) -> int:
        with self._mutex:
            self._ask("open", path)
            file = self.names_now.get(path)
            if file is None:
                if not create:
                    raise FileNotFoundError(errno.ENOENT, "no such file", path)
                self._name_changed(path)
                file = self.names_now[path] = _File(_Octets())
            self._next_handle += 1
            self.handles[self._next_handle] = (path, file)
            return self._next_handle

    def close(self, handle: int) -> None:
        path, _ = self.handles.pop(handle)
        if self.locked.get(path) == handle:
            del self.locked[path]

    def read(self, handle: int, length: int, offset: int) -> bytes:
        path, file = self.handles[handle]
        self._ask("read", path)
        return file.now.read(offset, length)

    def write(self, handle: int, data: memoryview, offset: int) -> int:
        with self._mutex:
            path, file = self.handles[handle]
            self._ask("write", path)
            taken = len(data) if self.write_max is None else min(len(data), self.write_max)
            if self.capacity is not None:
                room = self.capacity - self.used + max(file.size - offset, 0)
                if room <= 0:
                    raise OSError(errno.ENOSPC, "no room")
                taken = min(taken, room)
            piece = bytes(data[:taken])
            file.now.put(offset, piece)
            file.unsynced.append((offset, piece))
            return taken

    def size(self, handle: int) -> int:
        return self.handles[handle][1].size

    def truncate(self, handle: int, size: int) -> None:
        path, file = self.handles[handle]
        self._ask("truncate", path)
        file.now.resize(size)
        file.unsynced.append((size, None))

    def preallocate(self, handle: int, offset: int, length: int) -> None:
        path, file = self.handles[handle]
        self._ask("preallocate", path)
        if self.capacity is not None and self.used + max(offset + length - file.size, 0) > self.capacity:
            raise OSError(errno.ENOSPC, "no room")
        if file.size < offset + length:
            self.truncate(handle, offset + length)

    def sync(self, handle: int) -> None:
        path, file = self.handles[handle]
        try:
            self._ask("sync", path)
        except OSError:  # as Linux does: the next one succeeds, and says nothing of what this one left out
            file.unsynced.clear()
            raise
        for offset, piece in file.unsynced:  # not the whole file, which may be long
            if piece is None:
                file.durable.resize(offset)
            else:
                file.durable.put(offset, piece)
        file.unsynced.clear()

    def is_linked(self, handle: int) -> bool:
        path, file = self.handles[handle]
        return self.names_now.get(path) is file

    def sync_directory(self, path: str) -> None:
        self._ask("sync_directory", path)
        for name in self._unsynced.pop(path, ()):
            if name in self.names_now:
                self.names_durable[name] = self.names_now[name]
            else:
                self.names_durable.pop(name, None)

    def rename(self, old: str, new: str) -> None:
        self._ask("rename", old)
        self._name_changed(old)
        self._name_changed(new)
        self.names_now[new] = self.names_now.pop(old)

    def unlink(self, path: str) -> None:
        self._ask("unlink", path)
        if path not in self.names_now:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        self.lose(path)

    def names(self, path: str) -> list[str]:
        return sorted(os.path.basename(name) for name in self.names_now if os.path.dirname(name) == path)

    def make_directory(self, path: str) -> None:
        """See `Files`. Directories are no objects here."""

    def lock(self, path: str) -> int | None:
        if path in self.locked:
            return None
        handle = self.locked[path] = self.open(path, create=True)
        return handle


def _left_over(file: _File, random: Random | None) -> _Octets:
    left = file.durable.copy()
    if random is None:
        return left
    for offset, piece in file.unsynced:
        if piece is None:
            if random.random() < 0.5:
                left.resize(offset)
            continue
        for start in range(0, len(piece), SECTOR):
            if random.random() < 0.5:
                left.put(offset + start, piece[start : start + SECTOR])
    return left
