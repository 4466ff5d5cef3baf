"""The lake's tables as Delta tables. A commit adds files and moves the position in a journal at once.

Paths of files are relative to the table, so a lake can be moved, copied, or mounted elsewhere. Positions are Delta's
transaction numbers, under names that contain the journal's id; only those of the first node, whose journal's id is in
the table's description, do not. A file has rows of one node. Its name contains the beginning of the journal's id, the
mark. Source: the Delta protocol, "Transaction Identifiers"; docs/decisions/0016.
"""

import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ..error_texts import one_line
from ..schemas import BY_DATE, STATISTICS, arrow, stored

if TYPE_CHECKING:
    from ..reading.positions import Position

LOG = "_delta_log"
#: A directory in lakes of older releases, which have Spark's own logs (spark_log.py).
CHECKPOINTS = "_checkpoints"
#: Rows of a row group. Readers skip whole row groups.
GROUP_ROWS = 524_288
_COMMIT = re.compile(r"\d{20}\.(json|checkpoint.*\.parquet)")
_OF = "of the journal "
#: Parts of a local path that make delta-rs fail or read another path, also behind a link or in a URI.
_UNREADABLE = re.compile(r"%[0-9a-fA-F]{2}|[\[\]\\^|\x00-\x1f\x7f\ud800-\udfff]")
#: The transaction numbers of the position of a node.
_SEGMENT, _OFFSET, _LSN = "segment", "offset", "lsn"
#: Two more transaction numbers, of `events` only: what retention has left (`Retained`).
_KEPT_LSN, _KEPT_DAY = "kept.lsn", "kept.day"
#: The prefix of transaction numbers that tell which pieces of holes were filled.
_FILLED = "filled."
#: Digits of a journal's id in the mark.
MARK_DIGITS = 12
_MARK = re.compile(r"part-(?:merged-)?n([0-9a-f]{12})-")
_FIRST_DAY = date(1970, 1, 1)
#: `checkpointInterval`: commits between two checkpoints of the log. Replaced files stay for a day, for running readers.
PROPERTIES = {
    "delta.checkpointInterval": "20",
    "delta.logRetentionDuration": "interval 1 days",
    "delta.deletedFileRetentionDuration": "interval 1 days",
}


class Part(NamedTuple):
    """A file with rows of a table. `path`: relative to the table. `day`: the partition. `statistics`: Delta's JSON."""

    table: str
    path: str
    day: str | None
    rows: int
    octets: int
    statistics: str


class Retained(NamedTuple):
    """What retention has left of a lake: all records from `lsn` on, and perhaps some older ones.

    day: the first day that was not to be dropped.
    """

    lsn: int
    day: date


def absolute(lake: str) -> str:
    """The path or URI of a lake, independent of the working directory."""
    return lake if "://" in lake else os.path.abspath(lake)


def table_path(lake: str, table: str) -> str:
    """Path or URI of a table."""
    return f"{absolute(lake).rstrip('/')}/{table}"


def check_path(lake: str) -> None:
    """Raises: ValueError (delta-rs cannot use a part of the path)."""
    unreadable = _UNREADABLE.search(absolute(lake))
    if unreadable and "://" not in lake and os.name != "nt":
        raise ValueError(f"{absolute(lake)}: the path of a lake cannot have {unreadable[0]!r} in it")


def open_table(lake: str, table: str) -> Any:
    """Open a table as a `DeltaTable`; None: nothing was ever committed to it.

    Raises: ValueError (its log is damaged, or see `check_path`), OSError.
    """
    path = table_path(lake, table)
    if "://" not in path:
        check_path(path)
        if not _has_log(Path(path, LOG)):
            return None
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError, TableNotFoundError

    try:
        return DeltaTable(path)
    except TableNotFoundError:
        return None
    except DeltaError as error:
        why = one_line(str(error).partition("\n")[0])  # the other lines name files of delta-rs
        raise ValueError(f"{path}/{LOG}: {why}; copy the lake with all of its files") from error


def _has_log(log: Path) -> bool:
    return log.is_dir() and any(_COMMIT.fullmatch(one.name) for one in log.iterdir())


def first_journal(delta: Any) -> str:
    """The id of the journal of a table's first node.

    Raises: JournalError (no ingest wrote the table, or it has no position).
    """
    from ...journal.format.errors import JournalError  # slow to import; most callers only list files

    found = journal_in_description(delta)
    if found is None:
        raise JournalError(f"{delta.table_uri}: no ingest wrote this table")
    return found


def journal_in_description(delta: Any) -> str | None:
    """As `first_journal`; None: no ingest wrote the table, or it has no position."""
    about = str(delta.metadata().description or "")
    return about.removeprefix(_OF) if about.startswith(_OF) else None


def _number(delta: Any, journal: str | None, name: str) -> int | None:
    """A transaction number of a node. `journal`: None means the first node."""
    found = delta.transaction_version(_name(journal_in_description(delta), journal, name))
    return None if found is None else int(found)


def _name(first: str | None, journal: str | None, name: str) -> str:
    return f"leveret.{name}" if journal in (None, first) else f"leveret.{journal}.{name}"


def position_of(delta: Any, journal: str) -> "Position | None":
    """The position up to which a table has a journal; None: it has nothing of that.

    Raises: JournalError (no ingest wrote the table).
    """
    from ..reading.positions import Position

    first_journal(delta)
    found = [_number(delta, journal, name) for name in (_SEGMENT, _OFFSET, _LSN)]
    numbers = [one for one in found if one is not None]
    return Position(journal, *numbers) if len(numbers) == len(found) else None


def lsn_of(delta: Any, journal: str | None = None) -> int | None:
    """The LSN up to which a table has a journal (by default the first node's); None: it has nothing of that."""
    return _number(delta, journal, _LSN)


def retained_of(delta: Any, journal: str | None) -> Retained | None:
    """What retention has left of a node's records; None: all. `delta`: the table `events`. `journal`: see `lsn_of`."""
    lsn, days = (_number(delta, journal, name) for name in (_KEPT_LSN, _KEPT_DAY))
    return None if lsn is None or days is None else Retained(lsn, _FIRST_DAY + timedelta(days=days))


def mark_of(journal: str) -> str:
    """The mark of a journal: the part of its id that names of files contain."""
    return journal[:MARK_DIGITS]


def files_in(delta: Any) -> list[dict[str, Any]]:
    """The log's entries of the table's present files, in the order of first records.

    Keys: path (relative to the table), size_bytes, num_records, partition.date, min.ts, max.ts, ...; and `mark`, that
    of the journal.
    """
    actions = delta.get_add_actions(flatten=True)  # without pyarrow, whose import takes longer than this
    names = actions.column_names
    columns = (actions.column(name).to_pylist() for name in names)
    found: list[dict[str, Any]] = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
    first = mark_of(journal_in_description(delta) or "")
    for one in found:
        marked = _MARK.search(one["path"])
        one["mark"] = marked[1] if marked else first
    return sorted(found, key=lambda one: (one.get("min.lsn") or 0, one["path"]))


def files_of(
    delta: Any, lake: str, table: str, since_us: int | None, until_us: int | None, journal: str | None
) -> dict[str, int]:
    """The present files that may have rows with since_us <= ts < until_us: absolute path or URI -> octets.

    journal: only files of this node.
    """
    root = table_path(lake, table)
    return {
        f"{root}/{one['path']}": one["size_bytes"]
        for one in files_in(delta)
        if (journal is None or one["mark"] == mark_of(journal))
        and (since_us is None or _micros(one.get("max.ts"), since_us) + 999 >= since_us)  # cut to milliseconds
        and (until_us is None or _micros(one.get("min.ts"), until_us - 1) < until_us)
    }


def _micros(value: Any, unknown: int) -> int:
    return unknown if value is None else round(value.timestamp() * 1_000_000)


def create(lake: str, table: str, position: "Position | None", parts: Sequence[Part] = (), first: str = "") -> Any:
    """Make a table with these parts and this position. Returns it, as `open_table`.

    Args:   position: None: the table has none. first: the id of the first node's journal, if the position is not of
            that node.
    Raises: ValueError (the table exists, or another process makes it), OSError.
    """
    from deltalake import Schema
    from deltalake.transaction import create_table_with_add_actions

    first = first or ("" if position is None else position.journal)
    kept = [column.name for column in stored(table) if column.name in STATISTICS]
    path = table_path(lake, table)
    if "://" not in path:
        Path(path).mkdir(parents=True, exist_ok=True)
    with _plain_errors(path):
        create_table_with_add_actions(
            path,
            Schema.from_arrow(schema_of(table)),
            _adds(parts),
            mode="error",
            partition_by=_partition(table),
            name=table,
            description=_OF + first if first else None,
            configuration={**PROPERTIES, "delta.dataSkippingStatsColumns": ",".join(kept)},
            commit_properties=None if position is None else _position_properties(position, first),
        )
    make_durable(path)
    return open_table(lake, table)


def commit(delta: Any, lake: str, table: str, parts: Sequence[Part], end: "Position") -> Any:
    """Add parts and move the position, in one commit. On return it is durable, if the lake is on this machine.

    Args:   delta: the result of `open_table`. Returns: the table after the commit.
    Raises: ValueError (another process has moved the position), OSError.
    """
    now = _commit_actions(delta, lake, table, _adds(parts), _position_properties(end, first_journal(delta)))
    if now is None or position_of(now, end.journal) != end:
        raise ValueError(f"{table_path(lake, table)}: another ingest is at work on this lake")
    return now


def extend(
    delta: Any, lake: str, table: str, parts: Sequence[Part], journal: str | None = None, filled: Sequence[int] = ()
) -> Any:
    """Add parts without moving the position. Returns, Raises: as `replace`.

    Args:   filled: the first LSN of each piece of a hole (filling.py) that the parts fill.
    """
    return _commit_actions(
        delta, lake, table, _adds(parts), _node_properties(delta, journal, {f"{_FILLED}{lsn}": 1 for lsn in filled})
    )


def has_filled(delta: Any, journal: str, lsn: int) -> bool:
    """Whether a table has the piece of a hole that begins with this record."""
    return _number(delta, journal, f"{_FILLED}{lsn}") is not None


def replace(
    delta: Any,
    lake: str,
    table: str,
    old: Sequence[Mapping[str, Any]],
    new: Sequence[Part],
    *,
    is_change: bool = False,
) -> Any:
    """Replace files by parts, in one commit. On return it is durable, if the lake is on this machine.

    Args:   delta: the result of `open_table`. old: entries of `files_in`. is_change: the rows are not the same.
    Returns: the table after the commit.
    Raises: ValueError, OSError.
    """
    actions = [*_removals(old, is_change=is_change), *_adds(new, is_new=is_change)]
    return _commit_actions(delta, lake, table, actions)


def drop(
    delta: Any,
    lake: str,
    table: str,
    old: Sequence[Mapping[str, Any]],
    kept: Retained | None = None,
    journal: str | None = None,
) -> Any:
    """Remove files of a node, and note in the same commit what is left. Returns, Raises: as `replace`.

    Args:   kept, journal: what to note. Only `events` has this note, which counts for all tables.
    """
    numbers = {} if kept is None else {_KEPT_LSN: kept.lsn, _KEPT_DAY: (kept.day - _FIRST_DAY).days}
    return _commit_actions(
        delta, lake, table, _removals(old, is_change=True), _node_properties(delta, journal, numbers)
    )


def _node_properties(delta: Any, journal: str | None, numbers: Mapping[str, int]) -> Any:
    """The properties of a commit that set transaction numbers of a node."""
    return _properties(first_journal(delta), journal, numbers) if numbers else None


def _commit_actions(delta: Any, lake: str, table: str, actions: list[Any], properties: Any = None) -> Any:
    """Commit actions. Returns the table after the commit. Raises: ValueError, OSError."""
    from deltalake import Schema

    path = table_path(lake, table)
    with _plain_errors(path):
        delta.create_write_transaction(
            actions, "append", Schema.from_arrow(schema_of(table)), _partition(table), commit_properties=properties
        )
    make_durable(path)
    return open_table(lake, table)


def _removals(old: Sequence[Mapping[str, Any]], *, is_change: bool) -> list[Any]:
    from deltalake.transaction import RemoveAction

    now = int(time.time() * 1000)
    return [RemoveAction(one["path"], is_change, now, one["size_bytes"], _day(one)) for one in old]


def _day(one: Mapping[str, Any]) -> dict[str, str | None]:
    day = one.get("partition.date")
    return {} if day is None else {"date": str(day)}


@contextmanager
def _plain_errors(path: str) -> Iterator[None]:
    """Translate exceptions of delta-rs. Raises: ValueError, OSError."""
    from deltalake.exceptions import CommitFailedError, DeltaError

    try:
        yield
    except CommitFailedError as error:
        raise ValueError(f"{path}: another ingest is at work on this lake ({one_line(str(error))})") from error
    except DeltaError as error:
        raise ValueError(f"{path}: {one_line(str(error))}") from error
    except OSError as error:
        raise OSError(f"{path}: {one_line(str(error))}") from error


def _adds(parts: Sequence[Part], *, is_new: bool = True) -> list[Any]:
    from deltalake.transaction import AddAction

    now = int(time.time() * 1000)
    return [
        AddAction(part.path, part.octets, {"date": part.day} if part.day else {}, now, is_new, part.statistics)
        for part in parts
    ]


def _position_properties(position: "Position", first: str) -> Any:
    numbers = {_SEGMENT: position.segment, _OFFSET: position.offset, _LSN: position.lsn}
    return _properties(first, position.journal, numbers)


def _properties(first: str, journal: str | None, numbers: Mapping[str, int]) -> Any:
    from deltalake import CommitProperties
    from deltalake.transaction import Transaction

    named = [Transaction(_name(first, journal, name), number) for name, number in numbers.items()]
    return CommitProperties(app_transactions=named)


def _partition(table: str) -> list[str]:
    return ["date"] if table in BY_DATE else []


def schema_of(table: str, *, with_date: bool = True) -> Any:
    """The Arrow schema of a table. All columns are nullable: rows of an older release lack newer columns."""
    import pyarrow as pa

    fields = [field.with_nullable(True) for field in arrow(stored(table))]
    return pa.schema([*fields, pa.field("date", pa.date32())] if with_date and table in BY_DATE else fields)


def add_new_columns(lake: str, table: str, delta: Any) -> list[str]:
    """Add the columns that a table of an older release lacks. Returns their names.

    Raises: ValueError, OSError.
    """
    from deltalake import Schema

    known = {field.name for field in delta.schema().fields}
    wanted = [field for field in Schema.from_arrow(schema_of(table)).fields if field.name not in known]
    if wanted:
        with _plain_errors(table_path(lake, table)):
            delta.alter.add_columns(wanted)
        make_durable(table_path(lake, table))
    return [field.name for field in wanted]


def vacuum(delta: Any, lake: str, table: str, keep_hours: int) -> int:
    """Delete files that are older than `keep_hours` and not named by the log. Returns their number.

    Raises: ValueError, OSError."""
    with _plain_errors(table_path(lake, table)):
        gone = delta.vacuum(retention_hours=keep_hours, dry_run=False, enforce_retention_duration=False, full=True)
    return len(gone)


def make_durable(path: str) -> None:
    """Fsync the newest commit of a local table, and the directories of the table and its log. Raises: OSError."""
    if "://" in path:
        return
    log = Path(path, LOG)
    newest = max(one for one in log.iterdir() if one.name.endswith(".json") and _COMMIT.fullmatch(one.name))
    from ..reading.arrow_files import sync

    for where in (newest, log, Path(path)):
        sync(str(where))
