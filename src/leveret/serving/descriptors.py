"""Limits on the descriptors of connections, so that some are left for the journal, deep queues and files.

The system assigns the lowest free number, so the number of a new descriptor is a lower bound of their count.
"""

import os

from ..settings.frozen import frozen

#: Connections leave RESERVE_MAX descriptors free, or 1 / RESERVE_PART of all if that is fewer.
RESERVE_MAX, RESERVE_PART = 64, 4


@frozen
class DescriptorLimits:
    """The limits on the numbers of descriptors of each kind; None: the system has no limit."""

    process: int | None
    connections: int | None
    temp: int | None


def descriptor_limits() -> DescriptorLimits:
    try:
        import resource
    except ImportError:  # Windows has handles, of which there are enough
        return DescriptorLimits(None, None, None)
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return DescriptorLimits(None, None, None)
    reserve = min(RESERVE_MAX, limit // RESERVE_PART)
    return DescriptorLimits(limit, limit - reserve, limit - reserve // 2)


def open_descriptors() -> int:
    """The number of open descriptors; 0 if the system does not tell."""
    try:
        # Since Linux 6.2 the directory's size is their number; before, it is 0, and they have to be listed.
        return os.stat("/proc/self/fd").st_size or len(os.listdir("/proc/self/fd"))
    except OSError:
        return 0
