"""Return of free memory from the C library to the system after much was freed: an old backlog costs nothing.

Only with glibc, whose heap keeps free pages between used ones; other libraries need nothing.
"""

import mmap
from collections.abc import Callable

import trio

#: Seconds between two checks.
INTERVAL_S = 10
#: Fewer free octets, or less than a quarter of those in use, are kept for reuse.
FREE_MIN = 16 * 1024 * 1024
PART_MIN = 4
#: Smaller processes are not checked.
LARGE = 64 * 1024 * 1024
#: Fields of mallinfo2(3), all of them size_t.
FIELDS = ["arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"]


def trimmer() -> Callable[[], bool] | None:
    """A function that returns free memory if there is much of it, and tells whether it did; None: not supported here.

    150 ms for 200 MiB in a million pieces; the interpreter lock is released meanwhile.
    """
    import ctypes  # 5 ms and 1 MB that a small broker saves

    class Mallinfo2(ctypes.Structure):
        _fields_ = [(name, ctypes.c_size_t) for name in FIELDS]

    try:
        libc = ctypes.CDLL(None)
        libc.mallinfo2.restype = Mallinfo2
        libc.malloc_trim.argtypes = [ctypes.c_size_t]
    except (OSError, AttributeError, TypeError):
        return None

    given = 0  # free octets that the system has already: the library still counts them

    def trim() -> bool:
        nonlocal given
        info = libc.mallinfo2()
        given = min(given, info.fordblks)
        if info.fordblks - given < max(FREE_MIN, info.uordblks // PART_MIN):
            return False
        libc.malloc_trim(0)
        given = libc.mallinfo2().fordblks
        return True

    return trim


async def return_memory() -> None:
    """Check until cancelled. A process that was never large only reads its size."""
    trim: Callable[[], bool] | None = None
    while True:
        await trio.sleep(INTERVAL_S)
        if resident_octets() < LARGE:
            continue
        trim = trim or trimmer()
        if trim is None:
            return
        await trio.to_thread.run_sync(trim)


def resident_octets() -> int:
    """Resident memory of this process in octets; 0 if the system does not tell."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * mmap.PAGESIZE
    except OSError:
        return 0
