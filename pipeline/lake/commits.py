"""What a lake has committed, by the logs that Spark writes into it: which files count, and how far in which journal.

Spark's own log names each file by its absolute path. Here a file is known by its place within its table, so that a lake
may be moved, copied, or mounted somewhere else.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote, urlparse

from ..reading.positions import JournalPlan, Position
from ..schemas import TABLES

CHECKPOINTS = "_checkpoints"
SINK_LOG = "_spark_metadata"
PARTITION = "date="


class LakeFiles(Protocol):
    """Where a lake is: directories and small files of text."""

    def names(self, path: str) -> list[str]:
        """The names in a directory; none if it is not there. Raises: OSError."""
        ...

    def text(self, path: str) -> str:
        """The contents of a file. Raises: OSError."""
        ...


class LocalFiles:
    """`LakeFiles` of this machine."""

    def names(self, path: str) -> list[str]:
        """See `LakeFiles`."""
        return [entry.name for entry in Path(path).iterdir()] if Path(path).is_dir() else []

    def text(self, path: str) -> str:
        """See `LakeFiles`."""
        return Path(path).read_text(encoding="utf-8")


class HadoopFiles:
    """`LakeFiles` by Hadoop's file systems, for lakes that are URIs."""

    def __init__(self, spark: Any) -> None:
        self._java = spark.sparkContext._jvm
        self._settings = spark.sparkContext._jsc.hadoopConfiguration()

    def names(self, path: str) -> list[str]:
        """See `LakeFiles`."""
        where = self._java.org.apache.hadoop.fs.Path(path)
        system = where.getFileSystem(self._settings)
        return [one.getPath().getName() for one in system.listStatus(where)] if system.exists(where) else []

    def text(self, path: str) -> str:
        """See `LakeFiles`."""
        where = self._java.org.apache.hadoop.fs.Path(path)
        stream = where.getFileSystem(self._settings).open(where)
        try:
            return str(self._java.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()


def files_of(spark: Any, lake: str) -> LakeFiles:
    """The file system of a lake."""
    return HadoopFiles(spark) if "://" in lake else LocalFiles()


def table_path(lake: str, table: str) -> str:
    """Where a table is."""
    return f"{lake.rstrip('/')}/{table}"


def checkpoint_path(lake: str, table: str) -> str:
    """Where Spark stores its position."""
    return f"{lake.rstrip('/')}/{CHECKPOINTS}/{table}"


def committed(files: LakeFiles, lake: str, table: str) -> list[str]:
    """The table's files that count, as paths within it: `date=2026-11-21/part-...parquet`.

    Raises: ValueError (the log of these files is missing or lacks its end, so nobody knows which count), OSError.
    """
    log = f"{table_path(lake, table)}/{SINK_LOG}"
    batches = {name: _number(name) for name in files.names(log)}
    done = max(map(_number, files.names(f"{checkpoint_path(lake, table)}/commits")), default=-1)
    if done > max(batches.values(), default=-1):
        raise ValueError(
            f"{log}: Spark's list of the table's files lacks batch {done}; copy the lake with all of its files"
        )
    found: dict[str, None] = {}
    for name, number in batches.items():
        if number < 0:
            continue
        for line in files.text(f"{log}/{name}").splitlines()[1:]:
            if line.startswith("{"):
                found[_within(json.loads(line)["path"])] = None
    return sorted(found)


def _number(name: str) -> int:
    """The batch of a log's file, `7` or `9.compact`; -1 for temporary files and checksums."""
    number = name.removesuffix(".compact")
    return int(number) if number.isdecimal() else -1


def _within(uri: str) -> str:
    """A file's place within its table: its name, below a directory only by date."""
    *_, directory, name = unquote(urlparse(uri).path).split("/")
    return f"{directory}/{name}" if directory.startswith(PARTITION) else name


def reached(files: LakeFiles, lake: str, table: str) -> Position | None:
    """How far a table was filled or was about to be, in which journal; None before its first ingest. Raises:
    JournalError, OSError."""
    offsets = f"{checkpoint_path(lake, table)}/offsets"
    last = max(map(_number, files.names(offsets)), default=-1)
    if last < 0:
        return None
    position: Mapping[str, Any] = json.loads(files.text(f"{offsets}/{last}").splitlines()[-1])
    return Position.of(position)


def check_journal(files: LakeFiles, lake: str, plan: JournalPlan) -> None:
    """Raises: JournalError (another journal than the lake's, or one that ends before the lake does), OSError."""
    for table in TABLES:
        position = reached(files, lake, table)
        if position is not None:
            plan.check(position, f"the lake {lake}")
