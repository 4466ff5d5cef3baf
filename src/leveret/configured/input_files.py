"""Opening files that people name: configurations, definitions, certificates."""

import errno
import os
import stat


def open_input(path: str, flags: int) -> int:
    """An opener for `open` that refuses what cannot be read to its end. Pipes of a shell, /dev/fd/N, are accepted.

    Raises: OSError, also for a named pipe, which may wait for a writer for ever, and for a device such as /dev/zero.
    """
    descriptor = os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
    if why := _why_endless(path, descriptor):
        os.close(descriptor)
        raise OSError(errno.EINVAL, why, path)
    if hasattr(os, "O_NONBLOCK"):
        os.set_blocking(descriptor, True)
    return descriptor


def _why_endless(path: str, descriptor: int) -> str:
    status = os.fstat(descriptor)
    if stat.S_ISFIFO(status.st_mode) and not path.startswith(("/dev/", "/proc/")):
        return "it is a named pipe"
    is_device = stat.S_ISBLK(status.st_mode) or (stat.S_ISCHR(status.st_mode) and not os.isatty(descriptor))
    return "it is a device" if is_device and not os.path.samestat(status, os.stat(os.devnull)) else ""
