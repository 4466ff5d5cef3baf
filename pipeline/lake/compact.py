"""Compaction: many small files of a lake become few large ones, and what was replaced goes, some time later.

Each ingest adds at least a file for each day that it has rows of; readers pay for every file that they open. The rows
stay in their order. Replaced files stay while a job that was planned before may still read them.
"""

from collections import defaultdict
from math import inf
from typing import Any

from ..progress import Progress
from ..schemas import TABLES
from .delta_tables import GROUP_ROWS, Part, absolute, files_in, open_table, replace, vacuum
from .lake import locked
from .parts import merged

#: Octets of a file after compaction; one with less than a quarter of it is small.
FILE_OCTETS = 128 * 1024 * 1024
#: Small files of one day of a table with which an ingest compacts them; those of whole segments, which have more
#: than `SMALL_ROWS` rows, are large enough for that.
SMALL_MAX, SMALL_ROWS = 100, GROUP_ROWS // 2
#: Replaced files are kept as long, unless said otherwise: for jobs that still read them.
KEEP_HOURS = 24
File = dict[str, Any]


def compact(lake: str, progress: Progress, keep_hours: int = KEEP_HOURS) -> dict[str, Any]:
    """Compact all tables, and delete files older than `keep_hours` that are no longer in a table, or never were.

    Returns files by table before and after, and how many were deleted. Raises: LakeBusy, ValueError, OSError.
    """
    lake = absolute(lake)
    before, after, deleted = {}, {}, 0
    with locked(lake):
        for table in TABLES:
            delta = open_table(lake, table)
            if delta is None:
                continue
            before[table] = len(files_in(delta))
            delta = compact_table(delta, lake, table)
            after[table] = len(files_in(delta))
            deleted += vacuum(delta, lake, table, keep_hours)
            progress.say("compacted", table=table, before=before[table], after=after[table])
    return {"lake": lake, "before": before, "after": after, "deleted": deleted, "seconds": progress.seconds}


def compact_table(delta: Any, lake: str, table: str, rows_max: float = inf) -> Any:
    """Replace a table's small files of each day of a node by large ones with the same rows, in one commit.

    Args:   rows_max: files with more rows stay.
    Returns: the table of then. Raises: ValueError, OSError.
    """
    old: list[File] = []
    new: list[Part] = []
    for (day, mark), files in _small(delta, rows_max).items():
        for bin_ in _bins(files):
            old += bin_
            new.append(merged(lake, table, day, mark, [one["path"] for one in bin_]))
    return replace(delta, lake, table, old, new) if new else delta


def has_many_small(delta: Any) -> bool:
    """Whether some day of a node has that many small files of a table."""
    return max(map(len, _small(delta, SMALL_ROWS).values()), default=0) > SMALL_MAX


def _small(delta: Any, rows_max: float) -> dict[tuple[str | None, str], list[File]]:
    """The small files of each day and node, by their first record."""
    found: dict[tuple[str | None, str], list[File]] = defaultdict(list)
    for one in files_in(delta):
        if one["size_bytes"] < FILE_OCTETS // 4 and one["num_records"] <= rows_max:
            day = one.get("partition.date")
            found[None if day is None else str(day), one["mark"]].append(one)
    return found


def _bins(files: list[File]) -> list[list[File]]:
    """Neighbours that make one file; a file without any stays as it is."""
    bins: list[list[File]] = [[]]
    octets = 0
    for one in files:
        if bins[-1] and octets + one["size_bytes"] > FILE_OCTETS:
            bins.append([])
            octets = 0
        bins[-1].append(one)
        octets += one["size_bytes"]
    return [one for one in bins if len(one) > 1]
