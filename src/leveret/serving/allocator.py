"""Return free memory from the C library to the system, so that a backlog that was consumed costs no memory.

Only glibc needs this: its heap keeps free pages between used ones.
"""

import mmap
from collections.abc import Callable

import trio

#: Seconds between two checks.
INTERVAL_S = 10
#: The heap is trimmed if its free octets are at least FREE_MIN, and at least 1/USED_PER_FREE of its used ones.
FREE_MIN = 16 * 1024 * 1024
USED_PER_FREE = 4
#: Resident octets; smaller processes are not checked.
LARGE = 64 * 1024 * 1024
#: Fields of mallinfo2(3), all of them size_t.
FIELDS = ["arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"]


def trimmer() -> Callable[[], bool] | None:
    """Make a function that trims the heap if that is worthwhile, and returns whether it did; None: no glibc.

    A call takes 150 ms for 200 MiB in a million pieces, without the interpreter lock.
    """
    import ctypes  # costs 5 ms and 1 MB, which a small broker saves

    class Mallinfo2(ctypes.Structure):
        _fields_ = [(name, ctypes.c_size_t) for name in FIELDS]

    try:
        libc = ctypes.CDLL(None)
        libc.mallinfo2.restype = Mallinfo2
        libc.malloc_trim.argtypes = [ctypes.c_size_t]
    except (OSError, AttributeError, TypeError):
        return None

    returned = 0  # octets returned before, which the library still counts as free

    def trim() -> bool:
        nonlocal returned
        info = libc.mallinfo2()
        returned = min(returned, info.fordblks)
        if info.fordblks - returned < max(FREE_MIN, info.uordblks // USED_PER_FREE):
            return False
        libc.malloc_trim(0)
        returned = libc.mallinfo2().fordblks
        return True

    return trim


async def return_memory() -> None:
    """Trim the heap every `INTERVAL_S` while the process is large. Returns only if the C library cannot."""
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
