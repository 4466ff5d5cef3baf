"""The lake: a directory (or URI) of Delta tables, each with the position that it has reached in the journal.

    LAKE/events/date=2026-11-21/part-*.parquet      and payloads, snapshots (by date), checkpoints, segments, holes
    LAKE/events/_delta_log                          which files are committed, and the position
    LAKE/nodes                                      the nodes whose journals the lake has (nodes.py)

Jobs read with `read_table` or `committed_files`. A table that was never filled is empty, which is no error. Files that
an ingest did not commit before it was killed do not count. A lake can be moved or copied. Commits: delta_tables.py.
"""

import errno
import os
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

from ..schemas import BY_DATE, TABLES, ddl, stored
from .delta_tables import (
    CHECKPOINTS,
    Retained,
    absolute,
    check_path,
    files_in,
    files_of,
    lsn_of,
    mark_of,
    open_table,
    retained_of,
    table_path,
)

#: The tables of every lake, in the order in which an ingest commits them.
COMMIT_ORDER = ("holes", "events", "snapshots", "checkpoints", "segments")
REVERSE_ORDER = COMMIT_ORDER[::-1]
#: The most holes that a sentence names.
NAMED_MAX = 5


class LakeBusy(Exception):
    """Another ingest is running on this lake."""


def reader_name(lake: str, table: str) -> str:
    """The name of the journal's reader for the ingest of a table."""
    return f"{reader_prefix(lake)}{table}"


def reader_prefix(lake: str) -> str:
    """The prefix of the names of a lake's readers."""
    return f"lake-{sha256(absolute(lake).encode()).hexdigest()[:12]}-"


def is_lake(lake: str) -> bool:
    """Whether an ingest has begun to fill a lake here. Raises: ValueError, OSError."""
    return Path(lake, CHECKPOINTS).is_dir() or any(has_begun(lake, table) for table in TABLES)


def has_begun(lake: str, table: str) -> bool:
    """Whether a table has a position. Raises: ValueError, OSError."""
    if open_table(lake, table) is not None:
        return True
    return "://" not in lake and Path(lake, CHECKPOINTS, table).is_dir()


def committed_files(
    lake: str, table: str, since_us: int | None = None, until_us: int | None = None, journal: str | None = None
) -> list[str]:
    """The absolute paths (or URIs) of a table's committed Parquet files, without Java. Empty: there are none.

    The paths have the column `date`: `LAKE/events/date=2026-11-21/part-...parquet`.
    Args:   since_us, until_us: only files that can have rows with since_us <= ts < until_us (microseconds since 1970).
            journal: the journal's id of one node; None: all nodes.
    Raises: ValueError (no such table, or its log is missing or damaged), OSError.
    """
    if table not in TABLES:
        raise ValueError(f"there is no table {table!r}; there are {', '.join(TABLES)}")
    delta = open_table(lake, table)
    if delta is None:
        return _files_of_spark(lake, table)
    files = files_of(delta, lake, table, since_us, until_us, journal)
    if "://" not in lake:
        for path, octets in files.items():
            if not os.path.exists(path):
                raise ValueError(f"{path}: the lake's file is missing; copy a lake with all of its files")
            if os.path.getsize(path) != octets:
                raise ValueError(
                    f"{path}: the lake's file has {os.path.getsize(path)} octets, not {octets}; copy a lake with all of"
                    " its files"
                )
    return list(files)


def check_even(lake: str, journal: str | None = None) -> None:
    """Check that no table is missing or behind the others. `journal`: of one node, if there are several.

    Otherwise an answer could be wrong silently: without the table of snapshots all messages of a checkpoint would count
    as lost. Tables are opened in the reverse order of commits, so that an ingest may run meanwhile.
    Raises: ValueError (a table is behind one that an ingest commits later), OSError.
    """
    if "://" in lake or Path(lake, CHECKPOINTS).is_dir():
        return
    later, reached = "", -1
    for table in REVERSE_ORDER:
        delta = open_table(lake, table)
        if delta is None and table == "holes":  # a lake of an older release
            continue
        lsn = None if delta is None else lsn_of(delta, journal)
        if (-1 if lsn is None else lsn) < reached:
            raise ValueError(
                f"{table_path(lake, table)} is not filled as far as {later}, of record {reached}: copy a lake with all"
                " of its files, or fill it by an ingest"
            )
        if lsn is not None:
            later, reached = table, lsn


def rows_by_node(lake: str, table: str) -> Counter[str]:
    """The number of rows of a table, from its log, by the mark of a node's journal. Raises: as `committed_files`."""
    delta = open_table(lake, table)
    found: Counter[str] = Counter()
    if delta is not None:
        for one in files_in(delta):
            found[one["mark"]] += one["num_records"]
        return found
    from pyarrow import parquet

    for path in committed_files(lake, table):  # of a lake of before Delta tables, which has one node
        found[""] += parquet.read_metadata(path).num_rows
    return found


def span_of_events(lake: str, journals: Collection[str | None]) -> tuple[datetime, datetime] | None:
    """The times of the first and last event of some nodes, from the log of `events`; None: they have no events.

    journals: ids. Raises: as `committed_files`.
    """
    delta = open_table(lake, "events")
    marks = {mark_of(one) for one in journals if one}
    files = [one for one in (files_in(delta) if delta else ()) if one["mark"] in marks and one.get("min.ts")]
    return (min(one["min.ts"] for one in files), max(one["max.ts"] for one in files)) if files else None


def _files_of_spark(lake: str, table: str) -> list[str]:
    root = Path(table_path(lake, table))
    if "://" in lake or not root.is_dir():
        return []
    from .spark_log import committed

    files = committed(lake, table)
    check_written_here(lake, table)
    return [f"{root}/{one}" for one in files]


def check_written_here(lake: str, table: str) -> None:
    """Raises: ValueError (a table on this machine has files, but no log that says which are committed), OSError."""
    root = Path(table_path(lake, table))
    if "://" in lake or open_table(lake, table) is not None or Path(lake, CHECKPOINTS, table).is_dir():
        return
    for path in root.rglob("*.parquet"):
        raise ValueError(f"{path}: no ingest of this lake wrote it; copy a lake with all of its files, or empty it")


def read_table(
    spark: Any,
    lake: str,
    table: str,
    since_us: int | None = None,
    until_us: int | None = None,
    journal: str | None = None,
) -> Any:
    """A table as a DataFrame, with `date` if it is partitioned by that. Arguments, Raises: as `committed_files`."""
    files = committed_files(lake, table, since_us, until_us, journal)
    columns = ddl(stored(table)).replace(" NOT NULL", "") + (", date date" if table in BY_DATE else "")
    if not files:
        return spark.createDataFrame([], columns)
    # Each file by its name: Spark does not know which files of the directory are committed.
    read = spark.read.schema(columns).option("basePath", table_path(lake, table))
    return read.option("__globPaths__", "false").parquet(*files)  # names may look like patterns


def retained_in(lake: str, journal: str | None = None) -> Retained | None:
    """What retention has left of a lake, or of one node; None: everything. Raises: as `committed_files`.

    Call it after opening the tables. The note is committed before rows of other tables are dropped, so it then covers
    everything that they lack.
    """
    events = open_table(lake, "events")
    return None if events is None else retained_of(events, journal)


def missing_text(first_lsn: int, kept: Retained | None = None) -> str | None:
    """A sentence about the missing records before `first_lsn`; None: that is the journal's first."""
    if kept is not None:
        return (
            f"records 1 to {first_lsn - 1}, all before {kept.day}, were dropped by `leveret pipeline retain`, and are"
            " not counted: earlier events of a message may be missing"
        )
    if first_lsn <= 1:
        return None
    return (
        f"records 1 to {first_lsn - 1} were deleted before the first ingest, and are not counted:"
        ' set [journal] retain, for instance to "7d", or ingest into a lake from the beginning'
    )


def holes_text(holes: Sequence[Mapping[str, Any]]) -> str:
    """A sentence about rows of the table `holes`. The rows are in the order of LSNs."""
    count = sum(one["last_lsn"] - one["first_lsn"] + 1 for one in holes)
    named = "; ".join(_named(one) for one in holes[:NAMED_MAX])
    more = f"; and {len(holes) - NAMED_MAX} more" if len(holes) > NAMED_MAX else ""
    where = "a hole" if len(holes) == 1 else f"{len(holes)} holes"
    return f"{count} records are lost in {where} of the journal, and are not counted: {named}{more}"


def _named(one: Mapping[str, Any]) -> str:
    first, last = one["first_lsn"], one["last_lsn"]
    times = [
        f"{word} {time_text(one[name])}" for word, name in (("after", "before_ts"), ("before", "after_ts")) if one[name]
    ]
    when = f", {' and '.join(times)}" if times else ""
    return f"{first}{'' if first == last else f' to {last}'} ({one['why']}{when})"


def time_text(at: datetime) -> str:
    """A time of the lake, for a sentence: UTC, in seconds."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@contextmanager
def lake_lock(lake: str) -> Iterator[None]:
    """Lock a lake, so that one process at a time changes it. Remote lakes have no lock: there the second commit fails.

    Raises: LakeBusy, ValueError (the lake cannot be written), OSError."""
    if "://" in lake or os.name == "nt":
        yield
        return
    import fcntl

    check_path(lake)
    try:
        Path(lake).mkdir(parents=True, exist_ok=True)
        opened = open(Path(lake) / "_lock", "a")  # noqa: SIM115 (below)
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise
        raise ValueError(f"{lake}: this lake can be read, but not changed: {error.strerror}") from error
    with opened as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise LakeBusy(f"{lake}: another ingest is at work on this lake") from error
        yield
