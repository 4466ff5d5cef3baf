"""Figures of this process and its journal, for metrics. Imported only with the console."""

import gc
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import trio

from ..console.metrics.buckets import Buckets
from ..console.metrics.facts import JournalFigures, MetricsFacts, ProcessFigures
from ..settings import Configuration
from .allocator import resident_octets
from .descriptors import descriptor_limits, open_descriptors
from .process_facts import disk_free, memory_max

if TYPE_CHECKING:
    from ..journal import Journal


def metrics_facts(
    configuration: Callable[[], Configuration],
    data: str | None,
    journal: "Callable[[], Journal | None]",
    delays: Buckets,
) -> MetricsFacts:
    """The figures, each read when metrics are scraped.

    `data`: the directory of the journal. `journal` returns None without one. `delays`: of the event loop.
    """

    def process() -> ProcessFigures:
        found = journal()
        return process_figures(data, 0 if found is None else found.options.reserve_size)

    def of_journal() -> JournalFigures | None:
        found = journal()
        return None if found is None else journal_figures(found)

    return MetricsFacts(process, of_journal, delays, lambda: bool(configuration().management.metrics_open))


def process_figures(data: str | None, reserve: int) -> ProcessFigures:
    """The figures of the process now. `reserve`: octets that the journal leaves free."""
    return ProcessFigures(
        descriptors=open_descriptors(),
        descriptors_max=descriptor_limits().process or 0,
        memory=resident_octets(),
        memory_max=memory_max(),
        disk_free=disk_free(data),
        disk_reserve=reserve,
        cpu_s=time.process_time(),
        collections=sum(one["collections"] for one in gc.get_stats()),
        tasks=trio.lowlevel.current_statistics().tasks_living,
    )


def journal_figures(journal: "Journal") -> JournalFigures:
    from ..journal import SYNC_SECONDS  # already loaded if there is a journal

    now = journal.statistics()
    return JournalFigures(
        state=now.state,
        commits=now.commits,
        written=now.written_bytes,
        syncs=now.syncs,
        sync_s=now.sync_seconds,
        sync_bounds=SYNC_SECONDS,
        sync_counts=now.sync_counts,
        segments=now.segments,
        backlog=now.backlog_bytes,
        messages=now.live,
        unsynced=max(0, now.next_lsn - now.durable_lsn),
        reader_kept={name: kept.size for name, kept in journal.old_segments.readers.kept.items()},
        readers_dropped=journal.old_segments.readers.dropped,
    )
