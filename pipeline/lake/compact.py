"""Compaction: replaces many small files of a lake by few large ones, and deletes the replaced files a day later.

Each ingest adds a file for each day of its rows, and opening files costs readers time. The rows keep their order.
Replaced files are kept for a while, because a job that was planned earlier may still read them.
"""

from collections import defaultdict
from math import inf
from typing import Any

from ..progress import Progress
from ..schemas import TABLES
from .delta_tables import GROUP_ROWS, Part, absolute, files_in, open_table, replace, vacuum
from .lake import lake_lock
from .parts import delete_uncommitted, merge_parts

#: The most octets of a file after compaction. A file with less than a quarter of that is small.
FILE_OCTETS = 128 * 1024 * 1024
#: An ingest compacts a table if a day of it has more small files than this. For that, files with more than `SMALL_ROWS`
#: rows do not count: an ingest of whole segments makes such files.
SMALL_MAX, SMALL_ROWS = 100, GROUP_ROWS // 2
#: Hours for which replaced files are kept by default, for jobs that still read them.
KEEP_HOURS = 24
File = dict[str, Any]


def compact(lake: str, progress: Progress, keep_hours: int = KEEP_HOURS) -> dict[str, Any]:
    """Compact all tables, and delete files older than `keep_hours` that no table names.

    Returns the number of files by table before and after, and of deleted files. Raises: LakeBusy, ValueError, OSError.
    """
    lake = absolute(lake)
    before, after, deleted = {}, {}, 0
    with lake_lock(lake):
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
    """Replace the small files of each day and node by large ones with the same rows, in one commit.

    Args:   rows_max: files with more rows are not replaced.
    Returns: the table after the commit. Raises: ValueError, OSError.
    """
    old: list[File] = []
    new: list[Part] = []
    try:
        for (day, mark), files in _small_files(delta, rows_max).items():
            for group in _groups(files):
                old += group
                new.append(merge_parts(lake, table, day, mark, [one["path"] for one in group]))
        return replace(delta, lake, table, old, new) if new else delta
    except Exception:
        delete_uncommitted(lake, new)
        raise


def has_many_small(delta: Any) -> bool:
    """Whether a day of a node has more than `SMALL_MAX` small files."""
    return max(map(len, _small_files(delta, SMALL_ROWS).values()), default=0) > SMALL_MAX


def _small_files(delta: Any, rows_max: float) -> dict[tuple[str | None, str], list[File]]:
    """The small files by (day, mark of the node), each list in the order of first records."""
    found: dict[tuple[str | None, str], list[File]] = defaultdict(list)
    for one in files_in(delta):
        if one["size_bytes"] < FILE_OCTETS // 4 and one["num_records"] <= rows_max:
            day = one.get("partition.date")
            found[None if day is None else str(day), one["mark"]].append(one)
    return found


def _groups(files: list[File]) -> list[list[File]]:
    """Groups of files in a row, each to be merged into one file. A file that would be alone is left out."""
    groups: list[list[File]] = [[]]
    octets = 0
    for one in files:
        if groups[-1] and octets + one["size_bytes"] > FILE_OCTETS:
            groups.append([])
            octets = 0
        groups[-1].append(one)
        octets += one["size_bytes"]
    return [one for one in groups if len(one) > 1]
