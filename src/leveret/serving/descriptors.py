"""How many of the process's descriptors connections may take: the rest is for the journal, deep queues and files.

The system gives the lowest number that is free, so the number of a new descriptor shows how many there are at least.
"""

import os
from dataclasses import dataclass

#: What connections leave, at most and as a part of all.
RESERVE_MAX, RESERVE_PART = 64, 4


@dataclass(slots=True, frozen=True)
class DescriptorLimits:
    """A descriptor of a kind is kept if its number is below the kind's limit. None: the system names no limit."""

    process: int | None
    connections: int | None
    temp: int | None


def descriptor_limits() -> DescriptorLimits:
    """As they are now."""
    try:
        import resource
    except ImportError:  # Windows knows handles, of which there are enough
        return DescriptorLimits(None, None, None)
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return DescriptorLimits(None, None, None)
    reserve = min(RESERVE_MAX, limit // RESERVE_PART)
    return DescriptorLimits(limit, limit - reserve, limit - reserve // 2)


def open_descriptors() -> int:
    """How many are open; 0 where the system does not say."""
    try:
        # Since Linux 6.2 the directory's size is their number; before that it is 0, and each has to be listed.
        return os.stat("/proc/self/fd").st_size or len(os.listdir("/proc/self/fd"))
    except OSError:
        return 0
