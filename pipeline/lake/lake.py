"""The lake: a directory (or URI) of Parquet tables, with the place in the journal that each has come to.

    LAKE/events/date=2026-11-21/part-*.parquet      and payloads, snapshots (by date), checkpoints, segments
    LAKE/_checkpoints/TABLE                         Spark's: how far, exactly once

`read_table` is how jobs read: a table that nobody has filled is empty, not an error, and files of an ingest that was
killed count for nothing.
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
    """Another ingest is at work on this lake."""


def table_path(lake: str, table: str) -> str:
    """Where a table is."""
    return f"{lake.rstrip('/')}/{table}"


def checkpoint_path(lake: str, table: str) -> str:
    """Where Spark keeps how far it is."""
    return f"{lake.rstrip('/')}/{CHECKPOINTS}/{table}"


def reader_name(lake: str, table: str) -> str:
    """By what name the ingest of a table is known to the journal: it keeps what is still to be read."""
    return f"{reader_prefix(lake)}{table}"


def reader_prefix(lake: str) -> str:
    """How the names of all of a lake's readers begin."""
    return f"lake-{sha256(absolute(lake).encode()).hexdigest()[:12]}-"


def absolute(lake: str) -> str:
    """The same lake by the same name, wherever the program was started."""
    return lake if "://" in lake else os.path.abspath(lake)


def read_table(spark: Any, lake: str, table: str) -> Any:
    """A table as a DataFrame, with `date` where it is partitioned by that. Raises: ValueError (no such table)."""
    if table not in TABLES:
        raise ValueError(f"there is no table {table!r}; there are {', '.join(TABLES)}")
    columns = ddl(TABLES[table]).replace(" NOT NULL", "") + (", date date" if table in BY_DATE else "")
    path = table_path(absolute(lake), table)
    if not exists(spark, f"{path}/{SINK_LOG}"):  # no ingest has committed anything there
        return spark.createDataFrame([], columns)
    return spark.read.schema(columns).parquet(path)


def has_begun(spark: Any, lake: str, table: str) -> bool:
    """Whether the lake knows how far the table is."""
    return exists(spark, f"{checkpoint_path(lake, table)}/offsets")


def exists(spark: Any, path: str) -> bool:
    """Whether there is such a file, on whatever file system."""
    hadoop = spark.sparkContext._jvm.org.apache.hadoop.fs.Path(path)
    system = hadoop.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())
    return bool(system.exists(hadoop))


@contextmanager
def locked(lake: str) -> Iterator[None]:
    """For one ingest at a time; of a lake elsewhere Spark's own checkpoint tells. Raises: LakeBusy."""
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
    """Delete files that an ingest wrote and did not live to commit, for readers that do not know Spark's log of what
    counts. Local lakes alone; with the lock held. Returns how many."""
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
