"""Opens a lake: chooses the engine, and makes views of the lake's tables."""

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from ..engines.protocol import Engine, rows
from ..engines.spark import SparkEngine, is_one_process
from ..lake.delta_tables import absolute
from ..lake.lake import (
    REVERSE_ORDER,
    check_even,
    committed_files,
    read_table,
    retained_in,
    rows_by_node,
    span_of_events,
    time_text,
)
from ..lake.nodes import Node
from ..schemas import BY_DATE, TABLES, Column
from .outputs import REPLAY_LOG
from .replay import LOG
from .tables import Tables

#: If no engine is given, DuckDB answers for up to this many rows of `events` of each node: jobs read one node after the
#: other. An audit of them takes 4.5 GB of memory and a seventh of the CPU that Spark takes (docs/pipeline.md).
LOCAL_MAX = 50_000_000
#: Up to this many rows of `events` Spark on this machine computes little, and its Java is set up for a short life: an
#: audit of 3 and 6 million takes 36 and 44 s of CPU, and 52 and 58 s otherwise (2026-11-30). Of many more it would be
#: slower.
SHORT_MAX = 6_000_000
#: Whether a table has a directory for each date -> the additional columns for that.
DATE_COLUMN = {True: (Column("date", "date", True),), False: ()}
AUTO, LOCAL, SPARK = "auto", "local", "spark"
#: Tables of which nothing is read that is later than --until.
CUT_BY_TIME = ("events", "payloads")


def choose_engine(
    lake: str, wanted: str = AUTO, *, master: str = "local[*]", tell: Callable[[str], object] | None = None
) -> str:
    """LOCAL or SPARK. `tell`: called with a sentence if Spark would be better, but is not installed.

    Raises: ValueError (a damaged log), OSError.
    """
    if wanted != AUTO:
        return wanted
    if not is_one_process(master):
        return SPARK
    count = max(rows_by_node(lake, "events").values(), default=0)
    if count <= LOCAL_MAX:
        return LOCAL
    if find_spec("pyspark") is not None:
        return SPARK
    if tell is not None:
        tell(
            f"DuckDB answers for {count} events of one node, and puts on the disk what does not fit into memory: Spark"
            " is not installed; pip install 'leveret[spark]'"
        )
    return LOCAL


#: SQL by table: the rows that count after retention. {lsn}: the first record that retention has left. Older records do
#: not count, because some of them are missing. The segment with that record counts as beginning there.
RETAINED = {
    "events": "lsn >= {lsn}",
    "payloads": "lsn >= {lsn}",
    "snapshots": "lsn >= {lsn}",
    "checkpoints": "begin_lsn >= {lsn}",
    "segments": "stored_segments.base_lsn >="
    " (SELECT coalesce(max(base_lsn), 0) FROM stored_segments WHERE base_lsn <= {lsn})",
    "holes": "last_lsn >= {lsn}",
}


def open_tables(
    lake: str, engine: Engine, since_us: int | None = None, until_us: int | None = None, node: Node | None = None
) -> Tables:
    """Make the views of a lake's tables.

    Args:   since_us, until_us: only events with since_us <= ts < until_us (microseconds since 1970), and contents with
            ts < until_us; files without such rows are not opened. node: which one, if the lake has several.
    Raises: ValueError (the lake is empty, or not whole), OSError.
    """
    journal = None if node is None else node.journal
    check_even(lake, journal)
    for name in ("payloads", *REVERSE_ORDER):  # in the reverse order of commits, because of a running ingest
        times = (since_us if name == "events" else None, until_us) if name in CUT_BY_TIME else (None, None)
        _view_of_files(engine, lake, name, *times, journal)
    kept = retained_in(lake, journal)  # after the tables: see `retained_in`
    timestamp = engine.dialect.timestamp
    for name, columns in TABLES.items():
        listed = ", ".join(
            f"greatest(base_lsn, {kept.lsn}) AS base_lsn" if kept and column.name == "base_lsn" else column.name
            for column in (*columns, *DATE_COLUMN[name in BY_DATE])
        )
        conditions = [] if kept is None else [RETAINED[name].format(lsn=kept.lsn)]
        if name == "events" and since_us is not None:  # the opened files have other rows, too
            conditions.append(f"ts >= {timestamp(since_us)}")
        if name in CUT_BY_TIME and until_us is not None:
            conditions.append(f"ts < {timestamp(until_us)}")
        condition = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        engine.view(f"whole_{name}", f"SELECT {listed} FROM stored_{name}{condition}")
    has_holes = bool(committed_files(lake, "holes", None, None, journal))
    name = "" if node is None else node.name
    return Tables(engine, lake, retained=kept, has_holes=has_holes, node=name, journal=journal)


def until_text(lake: str, journal: str | None, until_us: int) -> str | None:
    """A sentence if all records in the lake are before `until_us` (microseconds since 1970), or none is.

    journal: the id of a node's journal. Raises: as `committed_files`.
    """
    span = span_of_events(lake, [journal])
    if span is None:
        return None
    first, last = span
    if round(first.timestamp() * 1_000_000) >= until_us:
        return f"the lake has nothing from before --until: its first record is of {time_text(first)}"
    if round(last.timestamp() * 1_000_000) >= until_us:
        return None
    return (
        f"the last record in the lake is of {time_text(last)}, before --until: if there are later ones, an ingest has"
        " not read them yet"
    )


def is_known(tables: Tables, column: str, name: str) -> bool:
    """Whether any event of the lake, also outside the opened times, has this name in a column."""
    engine = tables.engine
    one = f"SELECT lsn FROM {{}} WHERE {column} = {engine.dialect.text(name)} LIMIT 1"
    if rows(engine, one.format("whole_events")):
        return True
    if not tables.lake:
        return False
    _view_of_files(engine, tables.lake, "events", journal=tables.journal, view="every_event")
    return bool(rows(engine, one.format("every_event")))


def _view_of_files(
    engine: Engine,
    lake: str,
    table: str,
    since_us: int | None = None,
    until_us: int | None = None,
    journal: str | None = None,
    view: str = "",
) -> None:
    """Make a view of the files of a table. `view`: its name, by default `stored_` and the table's name."""
    view = view or f"stored_{table}"
    if isinstance(engine, SparkEngine):
        engine.frame(view, read_table(engine.session, lake, table, since_us, until_us, journal))
    else:
        columns = (*TABLES[table], *DATE_COLUMN[table in BY_DATE])
        engine.parquet_files(view, committed_files(lake, table, since_us, until_us, journal), columns)


def open_log(lake: str, engine: Engine) -> str:
    """Make the view of the lake's log of replays. Returns its path. Raises: OSError."""
    path = f"{absolute(lake).rstrip('/')}/{LOG}"
    engine.parquet_files(LOG, _files_of_log(path, engine), REPLAY_LOG)
    return path


def _files_of_log(path: str, engine: Engine) -> list[str]:
    """The files of the log of replays; of a URI its directory, if it is there.

    A replay that was killed may have left a directory without files, or unfinished files.
    """
    if "://" not in path:
        return [str(one) for one in sorted(Path(path).glob("*.parquet")) if not one.name.startswith(".")]
    if isinstance(engine, SparkEngine):
        where = engine.session.sparkContext._jvm.org.apache.hadoop.fs.Path(path)
        if not where.getFileSystem(engine.session.sparkContext._jsc.hadoopConfiguration()).exists(where):
            return []
    return [path]  # DuckDB's engine looks when it fetches the files
