"""Files with spare descriptors, so that the journal can open its files when the process has no others left."""

import contextlib
import errno
import os
import threading

from .files import RealFiles

_OUT_OF_DESCRIPTORS = frozenset({errno.EMFILE, errno.ENFILE})


class SpareFiles(RealFiles):
    """Keeps `count` descriptors of the null device open. When no descriptors are left, it closes one of them for each
    file that it opens, and opens them again as files are closed. For any thread."""

    __slots__ = ("_count", "_lock", "_spares")

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
                if error.errno not in _OUT_OF_DESCRIPTORS or not self._give_one_up():
                    raise

    def close(self, handle: int) -> None:
        super().close(handle)
        if len(self._spares) < self._count:
            self._restock()

    def give_back(self) -> None:
        """Close all spare descriptors for good."""
        self._count = 0
        while self._give_one_up():
            pass

    def _give_one_up(self) -> bool:
        with self._lock:
            if not self._spares:
                return False
            os.close(self._spares.pop())
            return True

    def _restock(self) -> None:
        with self._lock, contextlib.suppress(OSError):
            while len(self._spares) < self._count:
                self._spares.append(os.open(os.devnull, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0)))
