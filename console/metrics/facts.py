"""Facts for metrics that the broker does not have: process, journal, delays of the event loop."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from .buckets import Buckets


@dataclass(slots=True, frozen=True)
class ProcessFigures:
    """Figures of the process. Memory and disk are in octets. A limit of 0: there is no limit."""

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
        """The values for `families.NODE`, in that order."""
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
    """Figures of the journal. `state`: running, full or failed.

    `sync_bounds`, `sync_counts`: a histogram of the seconds that fsyncs took, as in `Buckets`.
    `reader_kept`: name of a journal's reader -> octets that are kept only for it, at the last checkpoint.
    """

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
    """The facts for metrics. `journal` returns None if the broker has no journal.

    `is_open`: whether clients on other hosts may see the names of objects without a login.
    """

    process: Callable[[], ProcessFigures]
    journal: Callable[[], JournalFigures | None]
    delays: Buckets
    is_open: Callable[[], bool] = lambda: False
