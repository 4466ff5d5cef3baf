"""Lakes of older releases: reads the logs of Spark's own file sink, and makes Delta tables of such a lake.

    LAKE/TABLE/_spark_metadata/N         the files of micro-batch N, as absolute paths of that time
    LAKE/_checkpoints/TABLE/offsets/N    the position after micro-batch N
    LAKE/_checkpoints/TABLE/commits/N    micro-batch N is complete

As soon as a table has a Delta log, Spark's own logs of the table do not count.
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
    """The table's committed files, as paths relative to it: `date=2026-11-21/part-...parquet`.

    Raises: ValueError (the log, or its end, is missing), OSError.
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
    """The position of the last complete micro-batch; None: there is none.

    Raises: ValueError, JournalError, OSError.
    """
    files, root = locate(lake)
    last = _last_batch(files, root, table)
    offsets = f"{root}/{CHECKPOINTS}/{table}/offsets"
    if last not in _batches(files, offsets).values():
        if last < 0:
            return None
        raise ValueError(f"{offsets}: the position of batch {last} is missing; copy the lake with all of its files")
    return _position(files, offsets, last)


def _last_batch(files: ArrowFiles, root: str, table: str) -> int:
    """The last micro-batch whose files are listed; -1: there is none. Raises: ValueError (a later one is complete)."""
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
    """The files of a log, such as `7` or `9.compact` -> micro-batch; without temporary files and checksums."""
    numbers = {name: name.removesuffix(".compact") for name in files.names(log)}
    return {name: int(number) for name, number in numbers.items() if number.isdecimal()}


def _text(files: ArrowFiles, path: str) -> str:
    return read_file(files, path).decode()


def _within(uri: str) -> str:
    """A file's path relative to its table, which may have directories by date."""
    *_, directory, name = unquote(urlparse(uri).path).split("/")
    return f"{directory}/{name}" if directory.startswith(PARTITION) else name


def migrate(lake: str, progress: Progress) -> dict[str, int]:
    """Make Delta tables with the same files and positions. It can be repeated after a kill at any step.

    The caller has locked the lake. Returns the number of files by migrated table.
    Raises: ValueError, JournalError, OSError; the table is unchanged then.
    """
    files, root = locate(lake)
    found: dict[str, int] = {}
    for table in TABLES:
        if open_table(lake, table) is not None:
            continue  # migrated before: some of its old log may be deleted already
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
