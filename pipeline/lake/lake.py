"""The lake: a directory (or URI) of Parquet tables, with the position in the journal that each has reached.

    LAKE/events/date=2026-11-21/part-*.parquet      and payloads, snapshots (by date), checkpoints, segments
    LAKE/_checkpoints/TABLE                         Spark's: how far, exactly once

Jobs read with `read_table`: a table that was never filled is empty, not an error, and files of an ingest that was
killed are ignored. A lake that was moved or copied is read where it is.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

from ..schemas import BY_DATE, TABLES, ddl
from .commits import LakeFiles, LocalFiles, committed, files_of, reached, table_path


class LakeBusy(Exception):
    """Another ingest is running on this lake."""


def reader_name(lake: str, table: str) -> str:
    """The name under which the ingest of a table registers with the journal, which keeps what is still to be read."""
    return f"{reader_prefix(lake)}{table}"


def reader_prefix(lake: str) -> str:
    """The prefix of the names of a lake's readers."""
    return f"lake-{sha256(absolute(lake).encode()).hexdigest()[:12]}-"


def absolute(lake: str) -> str:
    """The same name for a lake from every working directory."""
    return lake if "://" in lake else os.path.abspath(lake)


def read_table(spark: Any, lake: str, table: str) -> Any:
    """A table as a DataFrame, with `date` where it is partitioned by that.

    Raises: ValueError (no such table, or its log is missing), OSError.
    """
    if table not in TABLES:
        raise ValueError(f"there is no table {table!r}; there are {', '.join(TABLES)}")
    columns = ddl(TABLES[table]).replace(" NOT NULL", "") + (", date date" if table in BY_DATE else "")
    lake = absolute(lake)
    root = table_path(lake, table)
    files = _files(files_of(spark, lake), lake, table)
    if not files:  # no ingest has committed anything yet
        return spark.createDataFrame([], columns)
    # By name: given the directory, Spark would read its log, which has the paths of where the lake was first.
    return spark.read.schema(columns).option("basePath", root).parquet(*files)


def committed_files(lake: str, table: str) -> list[str]:
    """The absolute paths of a table's Parquet files that count, without Java: no others are part of the lake.

    The column `date` is in their paths: `LAKE/events/date=2026-11-21/part-...parquet`. None: nothing was committed yet.
    Raises: ValueError (no such table, a lake that is a URI, or its log is missing), OSError.
    """
    if table not in TABLES:
        raise ValueError(f"there is no table {table!r}; there are {', '.join(TABLES)}")
    if "://" in lake:
        raise ValueError(f"{lake}: only the lakes of this machine are read without Spark")
    return _files(LocalFiles(), absolute(lake), table)


def _files(files: LakeFiles, lake: str, table: str) -> list[str]:
    return [f"{table_path(lake, table)}/{one}" for one in committed(files, lake, table)]


def missing(first_lsn: int) -> str | None:
    """What to say of a lake that begins with this record; None if that is the journal's first."""
    if first_lsn <= 1:
        return None
    return (
        f"records 1 to {first_lsn - 1} were deleted before the first ingest, and what they tell is not counted:"
        ' set [journal] retain, for instance to "7d", or ingest into a lake from the beginning'
    )


def has_begun(spark: Any, lake: str, table: str) -> bool:
    """Whether the lake has a position for the table."""
    return reached(files_of(spark, lake), lake, table) is not None


@contextmanager
def locked(lake: str) -> Iterator[None]:
    """Allows one ingest at a time; for remote lakes Spark's own checkpoint does. Raises: LakeBusy."""
    if "://" in lake or os.name == "nt":
        yield
        return
    import fcntl

    Path(lake).mkdir(parents=True, exist_ok=True)
    with open(Path(lake) / "_lock", "a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise LakeBusy(f"{lake}: another ingest is at work on this lake") from error
        yield


def sweep(lake: str, table: str) -> int:
    """Delete uncommitted files of a killed ingest, for readers that do not use Spark's log. Only for local lakes, and
    with the lock held. Returns how many. Raises: ValueError (the log is missing: nothing is deleted), OSError."""
    root = Path(table_path(lake, table))
    if "://" in lake or not root.is_dir():
        return 0
    counted = set(committed(LocalFiles(), lake, table))
    gone = [path for path in root.rglob("part-*.parquet") if path.relative_to(root).as_posix() not in counted]
    if gone and reached(LocalFiles(), lake, table) is None:
        raise ValueError(f"{gone[0]}: no ingest of this lake wrote it; copy a lake with all of its files, or empty it")
    for path in gone:
        path.unlink()
    return len(gone)
