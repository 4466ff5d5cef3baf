"""Who writes parts: this process, several processes of this machine, or the tasks of a Spark session."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing.connection import wait
from typing import Any

from ..reading.positions import Slice
from .delta_tables import Part
from .parts import write_parts

#: Octets of journal that are worth a second Python.
MUCH = 32 * 1024 * 1024
Made = tuple[Slice, list[Part]]


@dataclass(slots=True, frozen=True)
class Work:
    """What `write_parts` is told beside the slice."""

    journal: str
    directory: str
    lake: str
    tables: tuple[str, ...]
    strict: bool = True
    node: tuple[str, str] = ("", "")

    def write(self, part: Slice) -> list[Part]:
        """The parts of a slice. Raises: JournalError, OSError."""
        where = self.journal, self.directory, self.lake
        return write_parts(*where, self.tables, part, strict=self.strict, node=self.node)


def by_processes(work: Work, slices: Sequence[Slice], processes: int) -> Iterator[Made]:
    """Slice by slice as they are done; in this process if there is little to do."""
    count = min(processes, len(slices))
    if count < 2 or sum(part.end - part.start for part in slices) < MUCH:
        for part in slices:
            yield part, work.write(part)
        return
    # Not by fork: the threads of pyarrow and delta-rs would be missing in the child.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(count, context, initializer=_end_with_parent) as pool:
        pending = {pool.submit(work.write, part): part for part in slices}
        try:
            for future in as_completed(pending):
                yield pending[future], future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _end_with_parent() -> None:
    """End this process with its parent, which may be killed. Leave interrupts to the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def by_spark(work: Work, slices: Sequence[Slice], spark: Any) -> Iterator[Made]:
    """All slices at once, one task each. Tasks that are repeated, or run twice, leave parts that no commit names."""
    tasks = spark.sparkContext.parallelize([tuple(part) for part in slices], len(slices))
    found = tasks.map(lambda part: [tuple(one) for one in work.write(Slice(*part))]).collect()
    for part, made in zip(slices, found, strict=True):
        yield part, [Part(*one) for one in made]
