"""The lake: a directory (or URI) of Parquet tables, with the position in the journal that each has reached.

    LAKE/events/date=2026-11-21/part-*.parquet      and payloads, snapshots (by date), checkpoints, segments
    LAKE/_checkpoints/TABLE                         Spark's: how far, exactly once

Jobs read with `read_table`: a table that was never filled is empty, not an error, and files of an ingest that was
killed are ignored.
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

from ..schemas import BY_DATE, TABLES, ddl

CHECKPOINTS = "_checkpoints"
SINK_LOG = "_spark_metadata"


class LakeBusy(Exception):
    """Another ingest is running on this lake."""


def table_path(lake: str, table: str) -> str:
    """Where a table is."""
    return f"{lake.rstrip('/')}/{table}"


def checkpoint_path(lake: str, table: str) -> str:
    """Where Spark stores its position."""
    return f"{lake.rstrip('/')}/{CHECKPOINTS}/{table}"


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
    """A table as a DataFrame, with `date` where it is partitioned by that. Raises: ValueError (no such table)."""
    if table not in TABLES:
        raise ValueError(f"there is no table {table!r}; there are {', '.join(TABLES)}")
    columns = ddl(TABLES[table]).replace(" NOT NULL", "") + (", date date" if table in BY_DATE else "")
    path = table_path(absolute(lake), table)
    if not exists(spark, f"{path}/{SINK_LOG}"):  # no ingest has committed anything yet
        return spark.createDataFrame([], columns)
    return spark.read.schema(columns).parquet(path)


def has_begun(spark: Any, lake: str, table: str) -> bool:
    """Whether the lake has a position for the table."""
    return exists(spark, f"{checkpoint_path(lake, table)}/offsets")


def exists(spark: Any, path: str) -> bool:
    """Whether a file exists, on any file system."""
    hadoop = spark.sparkContext._jvm.org.apache.hadoop.fs.Path(path)
    system = hadoop.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())
    return bool(system.exists(hadoop))


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
    with the lock held. Returns how many."""
    root = Path(table_path(lake, table))
    log = root / SINK_LOG
    if "://" in lake or not root.is_dir():
        return 0
    counted: set[str] = set()
    for entry in log.iterdir() if log.is_dir() else ():
        if entry.name.startswith("."):
            continue
        for line in entry.read_text().splitlines()[1:]:
            if line.startswith("{"):
                counted.add(os.path.realpath(unquote(urlparse(json.loads(line)["path"]).path)))
    gone = 0
    for path in root.rglob("part-*.parquet"):
        if os.path.realpath(path) not in counted:
            path.unlink()
            gone += 1
    return gone
