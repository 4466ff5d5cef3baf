"""The reserve: a file that is deleted when the disk is full, to make room for records that free more room.

It has only zeros. serving/supervisor.py decides when it is deleted, as does a start on a full disk. It is filled again
when the supervisor asks for it, and whenever segment_file.py begins or deletes a segment.
Source: docs/journal-format.md, "The crash model".
"""

import contextlib
import logging
import os

from .files import Files, write_all

logger = logging.getLogger("leveret.journal")

NAME = "reserve"
_PIECE = bytes(1024 * 1024)


class Reserve:
    """The reserve file. `size`: octets; 0: there is no reserve. For one thread at a time."""

    def __init__(self, files: Files, directory: str, size: int) -> None:
        self.size = size
        self.is_full = False
        self.is_spent = False  # `release` was called, even if it failed, and it is not filled again since
        self._files = files
        self._path = os.path.join(directory, NAME)
        self._was_left = NAME in files.names(directory)  # by an earlier run
        self._has_failed = False

    def fill(self) -> None:
        """Fill the reserve, unless it is full. A failure is logged once, and never while the reserve is spent.

        Without a reserve, delete the file of an earlier run.
        """
        if not self.size:
            self.release()
            return
        if self.is_full:
            return
        try:
            self._make()
        except OSError as error:
            with contextlib.suppress(OSError):
                self._files.unlink(self._path)
            if not self._has_failed and not self.is_spent:
                logger.warning(
                    "%s: %d octets cannot be reserved: %s; if the disk fills up, consumers alone cannot make room",
                    self._path,
                    self.size,
                    error.strerror,
                )
            self._has_failed = True
            return
        self.is_full, self.is_spent, self._has_failed = True, False, False

    def release(self) -> bool:
        """Free the room for other files. Returns whether it was freed."""
        if not (self.is_full or self._was_left):
            return False
        self.is_full = self._was_left = False
        self.is_spent = self.size > 0
        with contextlib.suppress(OSError):
            self._files.unlink(self._path)
            return True
        return False

    def _make(self) -> None:
        files = self._files
        handle = files.open(self._path, create=True)
        try:
            if files.size(handle) != self.size:
                files.truncate(handle, 0)
                with contextlib.suppress(NotImplementedError):
                    files.preallocate(handle, 0, self.size)
                while (size := files.size(handle)) < self.size:  # the system cannot preallocate
                    write_all(files, handle, memoryview(_PIECE)[: self.size - size], size)
        finally:
            files.close(handle)
