"""An fdatasync that the kernel does while the calling thread continues (Linux, io_submit).

Another thread for the fsync would be woken for it, and would wake the event loop after it. For a single message that
takes as much CPU as the broker's own work, mostly because the threads hand each other the interpreter
(benchmarks/README.md, "A message that comes alone"). Python's library has no call for io_submit, so ctypes makes it;
trio has imported ctypes already. See docs/decisions/0032.
"""

import ctypes
import errno
import os
import platform
import sys
from typing import Any

from .files import SyncError

#: The numbers of io_setup, io_destroy, io_submit and io_getevents by machine.
_CALLS = {"x86_64": (206, 207, 209, 208), "aarch64": (0, 1, 2, 4)}
#: IOCB_CMD_FDSYNC, and IOCB_FLAG_RESFD: the kernel writes to an eventfd when it is done.
_FDSYNC, _REPORTS_TO_EVENTFD = 3, 1


class _Request(ctypes.Structure):
    """`struct iocb` of little-endian machines."""

    _fields_ = (
        ("data", ctypes.c_uint64),
        ("key", ctypes.c_uint32),
        ("rw_flags", ctypes.c_int32),
        ("operation", ctypes.c_uint16),
        ("priority", ctypes.c_int16),
        ("handle", ctypes.c_uint32),
        ("buffer", ctypes.c_uint64),
        ("size", ctypes.c_uint64),
        ("offset", ctypes.c_int64),
        ("reserved", ctypes.c_uint64),
        ("flags", ctypes.c_uint32),
        ("eventfd", ctypes.c_uint32),
    )


class _Event(ctypes.Structure):
    """`struct io_event`."""

    _fields_ = (
        ("data", ctypes.c_uint64),
        ("request", ctypes.c_uint64),
        ("result", ctypes.c_int64),
        ("result2", ctypes.c_int64),
    )


class KernelSync:
    """Syncs one file at a time. The kernel writes to the eventfd at the end of an fsync; `has_ended` has its result."""

    def __init__(self, eventfd: int) -> None:
        """Raises: OSError, AttributeError, KeyError: this system cannot do it."""
        setup, self._destroy, self._submit, self._getevents = _CALLS[platform.machine()]
        self._call: Any = ctypes.CDLL(None, use_errno=True).syscall
        self._context = ctypes.c_ulong(0)
        self._request = _Request(operation=_FDSYNC, flags=_REPORTS_TO_EVENTFD, eventfd=eventfd)
        self._requests = (ctypes.c_void_p * 1)(ctypes.addressof(self._request))
        self._event = _Event()
        self._event_at = ctypes.byref(self._event)
        self._at_once = (ctypes.c_long * 2)(0, 0)  # a timespec
        self._checked(self._call(setup, 1, ctypes.byref(self._context)))

    def begin(self, handle: int) -> None:
        """Begin the fsync of an open file. Raises: OSError: none was begun."""
        self._request.handle = handle
        self._checked(self._call(self._submit, self._context, 1, self._requests))

    def has_ended(self, *, waits: bool = False) -> bool:
        """Whether the fsync has ended; `waits`: wait until it has. Raises: SyncError: it failed."""
        timeout = None if waits else self._at_once
        while True:
            count = self._call(self._getevents, self._context, int(waits), 1, self._event_at, timeout)
            if count >= 0 or ctypes.get_errno() != errno.EINTR:
                break
        if self._checked(count) == 0:
            return False
        if self._event.result < 0:
            number = -self._event.result
            raise SyncError(number, f"fsync: {os.strerror(number)}")
        return True

    def close(self) -> None:
        """Free the kernel's context, after an fsync under way."""
        self._call(self._destroy, self._context)

    @staticmethod
    def _checked(result: int) -> int:
        if result < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        return result


def kernel_sync(eventfd: int) -> KernelSync | None:
    """A sync whose ends the eventfd reports; None: this system cannot do that, so a thread has to fsync."""
    if sys.platform != "linux" or sys.byteorder != "little":
        return None
    try:
        return KernelSync(eventfd)
    except (OSError, AttributeError, KeyError):
        return None
