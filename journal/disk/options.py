"""Options of `Journal.open`."""

from dataclasses import dataclass


@dataclass(slots=True, frozen=True)
class JournalOptions:
    """The configuration's `[journal]` table; sizes in octets, times in milliseconds."""

    fsync: str = "commit"
    fsync_interval_ms: int = 200
    segment_size: int = 64 * 1024 * 1024
    segment_age_ms: int = 3_600_000
    retain_ms: int | None = None
    reader_age_ms: int = 0  # maximum age of segments that are kept for one reader alone; 0: no limit
    reader_size: int = 0  # maximum size of such segments; 0: no limit
    scope: str = "durable"
    preallocate_size: int = 4 * 1024 * 1024
    reserve_size: int = 0  # room for the records that free room on a full disk
