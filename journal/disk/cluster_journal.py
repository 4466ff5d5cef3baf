"""What a leader of a cluster adds to its journal: the agreed LSN, the level, and calls for each write."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..format.needs import LEVEL
from .directory import Directory


def _nothing(*_: object) -> None:
    pass


@dataclass(slots=True)
class ClusterJournal:
    """What `Journal.open` needs on a leader. The writer's thread calls the functions, which must not raise or wait.

    `directory`: locked, handed over by a `CopiedJournal`; its term table has the term of this node.
    `agreed_lsn`: all nodes in sync have fsynced the records below it. Confirms, checkpoints, readers and blocks use it
    in place of the durable LSN. `Journal.agree` raises it.
    `on_written(base LSN of the segment, offset, octets, LSN behind them)`: a block was written, but not yet fsynced.
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
