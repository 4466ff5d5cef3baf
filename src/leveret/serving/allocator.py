"""Memory that the C library keeps is given back to the system after much was freed: an old backlog costs nothing.

Only with glibc, whose heap keeps free pages between used ones; with other libraries nothing is done.
"""

import mmap
from collections.abc import Callable

import trio

#: How often it is looked at.
INTERVAL_S = 10
#: Fewer free octets are left for what comes next; so is less than a quarter of what is in use.
FREE_MIN = 16 * 1024 * 1024
PART_MIN = 4
#: Smaller processes are not looked at.
LARGE = 64 * 1024 * 1024
#: Fields of mallinfo2(3), all of them size_t.
FIELDS = ["arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"]


def trimmer() -> Callable[[], bool] | None:
    """Gives free memory back if there is much of it, and returns whether it did; None: it cannot be done here.

    150 ms for 200 MiB in a million pieces; the interpreter is not held meanwhile.
    """
    import ctypes  # 5 ms and 1 MB that a small broker need not pay

    class Mallinfo2(ctypes.Structure):
        _fields_ = [(name, ctypes.c_size_t) for name in FIELDS]

    try:
        libc = ctypes.CDLL(None)
        libc.mallinfo2.restype = Mallinfo2
        libc.malloc_trim.argtypes = [ctypes.c_size_t]
    except (OSError, AttributeError, TypeError):
        return None

    given = 0  # of what is free, what the system has already: the library goes on counting it

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


async def give_back() -> None:
    """For as long as a broker runs. Who never was large pays for nothing but the look at how large he is."""
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
    """What this process takes of the machine's memory; 0 where the system does not say."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * mmap.PAGESIZE
    except OSError:
        return 0
