"""How many of the process's descriptors connections may take: the rest is for the journal, deep queues and files.

The system gives the lowest number that is free, so the number of a new descriptor shows how many there are at least.
"""

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
