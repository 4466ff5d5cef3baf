"""Lakes of older releases: reads the logs of Spark's own file sink, and turns such a lake into Delta tables.

    LAKE/TABLE/_spark_metadata/N         the files of micro-batch N, as absolute paths of that time
    LAKE/_checkpoints/TABLE/offsets/N    the position after it; commits/N: it is complete

As soon as the Delta log of a table has a version, it alone counts.
"""

import json
from urllib.parse import unquote, urlparse

from pyarrow import parquet

from ...journal.disk.files import read_file
from ..progress import Progress
from ..reading.arrow_files import ArrowFiles, locate
from ..reading.positions import Position
from ..schemas import TABLES
from .delta_tables import CHECKPOINTS, Part, create, open_table
from .parts import statistics

SINK_LOG = "_spark_metadata"
PARTITION = "date="


def committed(lake: str, table: str) -> list[str]:
    """The table's files that count, as paths within it: `date=2026-11-21/part-...parquet`.

    Raises: ValueError (the log is missing or lacks its end), OSError.
    """
    files, root = locate(lake)
    _last_batch(files, root, table)
    log = f"{root}/{table}/{SINK_LOG}"
    found: dict[str, None] = {}
    for name in _batches(files, log):
        for line in _text(files, f"{log}/{name}").splitlines()[1:]:
            if line.startswith("{"):
                found[_within(json.loads(line)["path"])] = None
    return sorted(found)


def planned_position(lake: str, table: str) -> Position | None:
    """The position of the last micro-batch that was begun. Raises: JournalError, OSError."""
    files, root = locate(lake)
    offsets = f"{root}/{CHECKPOINTS}/{table}/offsets"
    last = max(_batches(files, offsets).values(), default=-1)
    return _position(files, offsets, last) if last >= 0 else None


def committed_position(lake: str, table: str) -> Position | None:
    """The position of the last complete micro-batch; None before the first. Raises: ValueError, JournalError,
    OSError."""
    files, root = locate(lake)
    last = _last_batch(files, root, table)
    offsets = f"{root}/{CHECKPOINTS}/{table}/offsets"
    if last not in _batches(files, offsets).values():
        if last < 0:
            return None
        raise ValueError(f"{offsets}: the position of batch {last} is missing; copy the lake with all of its files")
    return _position(files, offsets, last)


def _last_batch(files: ArrowFiles, root: str, table: str) -> int:
    """The last micro-batch whose files are listed; -1 before the first. Raises: ValueError (one is missing)."""
    log = f"{root}/{table}/{SINK_LOG}"
    last = max(_batches(files, log).values(), default=-1)
    done = max(_batches(files, f"{root}/{CHECKPOINTS}/{table}/commits").values(), default=-1)
    if done > last:
        raise ValueError(
            f"{log}: Spark's list of the table's files lacks batch {done}; copy the lake with all of its files"
        )
    return last


def _position(files: ArrowFiles, offsets: str, batch: int) -> Position:
    return Position.from_dict(json.loads(_text(files, f"{offsets}/{batch}").splitlines()[-1]))


def _batches(files: ArrowFiles, log: str) -> dict[str, int]:
    """The files of a log, `7` or `9.compact`, with their batches; without temporary files and checksums."""
    numbers = {name: name.removesuffix(".compact") for name in files.names(log)}
    return {name: int(number) for name, number in numbers.items() if number.isdecimal()}


def _text(files: ArrowFiles, path: str) -> str:
    return read_file(files, path).decode()


def _within(uri: str) -> str:
    """A file's path within its table, which may have directories by date."""
    *_, directory, name = unquote(urlparse(uri).path).split("/")
    return f"{directory}/{name}" if directory.startswith(PARTITION) else name


def migrate(lake: str, progress: Progress) -> dict[str, int]:
    """Make Delta tables with the same files and positions. After a kill at any step it can be repeated.

    The caller has locked the lake. Returns the number of files of each migrated table.
    Raises: ValueError, JournalError, OSError; the table is unchanged then.
    """
    files, root = locate(lake)
    found: dict[str, int] = {}
    for table in TABLES:
        if open_table(lake, table) is not None:
            continue  # migrated before: its old log may be deleted in part
        position = committed_position(lake, table)
        if position is not None:
            parts = [_part(files, root, table, path) for path in committed(lake, table)]
            create(lake, table, position, parts)
            found[table] = len(parts)
            progress.say("migrated", table=table, files=len(parts), lsn=position.lsn)
    for table in TABLES:
        if open_table(lake, table) is not None:
            files.remove_tree(f"{root}/{table}/{SINK_LOG}")
            files.remove_tree(f"{root}/{CHECKPOINTS}/{table}")
    if not files.names(f"{root}/{CHECKPOINTS}"):
        files.remove_tree(f"{root}/{CHECKPOINTS}")
    return found


def _part(files: ArrowFiles, root: str, table: str, path: str) -> Part:
    where = f"{root}/{table}/{path}"
    about = parquet.read_metadata(where, filesystem=files.system)
    day = path.partition("/")[0].removeprefix(PARTITION) if path.startswith(PARTITION) else None
    return Part(table, path, day, about.num_rows, files.make_durable(where), statistics(about))
