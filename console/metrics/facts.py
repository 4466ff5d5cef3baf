"""Facts for pages of metrics beside the broker: process, journal, and delays of the event loop."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from .buckets import Buckets


@dataclass(slots=True, frozen=True)
class ProcessFigures:
    """Octets, seconds, numbers. Limits: 0 for none."""

    descriptors: int
    descriptors_max: int
    memory: int
    memory_max: int
    disk_free: int
    disk_reserve: int
    cpu_s: float
    collections: int
    tasks: int

    def node_values(self, sockets: int, uptime_s: float) -> tuple[float, ...]:
        """The values of `families.NODE`."""
        return (
            self.descriptors,
            sockets,
            self.memory,
            self.disk_free,
            self.tasks,
            self.descriptors_max,
            self.descriptors_max,
            self.memory_max,
            self.disk_reserve,
            uptime_s,
        )


@dataclass(slots=True, frozen=True)
class JournalFigures:
    """`state`: running, full or failed. `sync_counts`: of each bucket of `sync_bounds` alone, in seconds.
    `reader_kept`: octets that are kept for each reader alone, as of the last checkpoint."""

    state: str
    commits: int
    written: int
    syncs: int
    sync_s: float
    sync_bounds: tuple[float, ...]
    sync_counts: tuple[int, ...]
    segments: int
    backlog: int
    messages: int
    unsynced: int
    reader_kept: Mapping[str, int]
    readers_dropped: int


@dataclass(slots=True, frozen=True)
class MetricsFacts:
    """`journal` gives None for a broker without one. `is_open`: everybody may see the names of objects, also from
    elsewhere.
    """

    process: Callable[[], ProcessFigures]
    journal: Callable[[], JournalFigures | None]
    delays: Buckets
    is_open: Callable[[], bool] = lambda: False
