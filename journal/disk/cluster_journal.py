"""The journal of a node that leads a cluster has in addition: the LSN up to which all nodes have it, and reports."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..format.needs import LEVEL
from .directory import Directory


def _nothing(*_: object) -> None:
    pass


@dataclass(slots=True)
class ClusterJournal:
    """For `Journal.open`. The functions are called by the writer's thread and must not raise or wait.

    `directory`: locked, of a `CopiedJournal` that handed it over; the term table has the term of this node.
    `agreed_lsn`: all nodes that are in sync have fsynced what is below it. Here and in blocks it takes the place of the
    durable LSN: confirms, checkpoints and readers go by it. Raised by `Journal.agree`.
    `on_written(base LSN of the segment, offset, octets, LSN behind them)`: a block was written, and not yet fsynced.
    `on_synced(lsn)`: this node has fsynced what is below it.
    `on_unlinked(base LSNs)`: segments were deleted.
    `on_needs(names)`: the features that a program must know to open the directory became more; records that need them
    follow.
    `level`: of the cluster; records of features of a higher one are not written. Raised by `Journal.raise_level`.
    """

    directory: Directory
    agreed_lsn: int = 1
    on_written: Callable[[int, int, bytearray, int], object] = _nothing
    on_synced: Callable[[int], object] = _nothing
    on_unlinked: Callable[[Sequence[int]], object] = _nothing
    on_needs: Callable[[frozenset[str]], object] = _nothing
    level: int = LEVEL
    busy_since_s: float | None = None  # of the writer's clock: since when it works on one commit
