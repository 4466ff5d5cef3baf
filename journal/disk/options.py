"""What `Journal.open` needs: its options, and on a leader of a cluster what the journal and the node share."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..format.needs import LEVEL
from .directory import Directory


@dataclass(slots=True, frozen=True)
class JournalOptions:
    """The configuration's `[journal]` table; sizes in octets, times in milliseconds.

    `log_ms`: the minimum age of logged messages before their segment is deleted; 0: no topic is logged.
    """

    fsync: str = "commit"
    fsync_interval_ms: int = 200
    segment_size: int = 64 * 1024 * 1024
    segment_age_ms: int = 3_600_000
    retain_ms: int | None = None
    log_ms: int = 0
    reader_age_ms: int = 0  # maximum age of segments that are kept for one reader alone; 0: no limit
    reader_size: int = 0  # maximum size of such segments; 0: no limit
    scope: str = "durable"
    preallocate_size: int = 4 * 1024 * 1024
    reserve_size: int = 0  # room for the records that free room on a full disk


def _nothing(*_: object) -> None:
    pass


@dataclass(slots=True)
class ClusterJournal:
    """A leader's journal in its cluster. The writer's thread calls the functions, which must not raise or wait.

    `directory`: locked, handed over by a `CopiedJournal`; its term table has the term of this node.
    `agreed_lsn`: all nodes in sync have fsynced the records below it. Confirms, checkpoints, readers and blocks use it
    in place of the durable LSN. `Journal.agree` raises it.
    `on_written(base LSN of the segment, offset, octets, LSN after them)`: a block was written, but not yet fsynced.
    `on_synced(lsn)`: this node has fsynced the records below `lsn`.
    `on_unlinked(base LSNs)`: segments were deleted.
    `on_needs(names)`: a program must know more features to open the directory; records that need them follow.
    `level`: of the cluster; records of features of a higher level are not written. `Journal.raise_level` raises it.
    """

    directory: Directory
    agreed_lsn: int = 1
    on_written: Callable[[int, int, bytearray, int], object] = _nothing
    on_synced: Callable[[int], object] = _nothing
    on_unlinked: Callable[[Sequence[int]], object] = _nothing
    on_needs: Callable[[frozenset[str]], object] = _nothing
    level: int = LEVEL
    busy_since_s: float | None = None  # when the current commit began, by the writer's clock; None: there is none
