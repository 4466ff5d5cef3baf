"""The garbage collector's part in a broker: what it looks through, how much at a time, and when.

Messages, and queues with their parts, come and go by counting; little else that was declared leaves cycles.
"""

import gc
import sys

import trio

#: Thresholds of its generations. It looks through 20,000 objects at a time at most (2 to 10 ms): that is as much in all
#: for a message that stays as 100,000 at a time, for which everybody would wait. The old ones, which may be millions of
#: messages, take seconds: they are looked through when there are 200 million more objects, or when they are few.
THRESHOLDS = 10_000, 0, 10_000
#: How often it is asked whether they are few, and how many blocks of memory more than at the start that is (10 ms).
INTERVAL_S = 10
FEW_BLOCKS = 100_000


def set_up() -> None:
    """What is there stays for ever, and is not looked through (0.39 us a queued message instead of 0.97: performance
    page 2). The garbage of imports is collected by now: to look at everything once more would take a twentieth of the
    start and find nothing."""
    gc.collect(1)
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)


def collect_if_few(blocks_before: int) -> bool:
    """Look through all objects if some have become old since that was last done, and all are few. Returns whether."""
    if not gc.get_count()[2] or sys.getallocatedblocks() - blocks_before > FEW_BLOCKS:
        return False
    gc.collect()
    return True


async def collect() -> None:
    """For as long as a broker runs."""
    blocks = sys.getallocatedblocks()
    while True:
        await trio.sleep(INTERVAL_S)
        collect_if_few(blocks)
