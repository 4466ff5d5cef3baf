"""Opens a lake: chooses the engine, and makes views of the lake's tables."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from ..engines.protocol import Engine, rows
from ..engines.spark import SparkEngine, is_one_process
from ..lake.delta_tables import absolute, mark_of, open_table, retained_of
from ..lake.lake import REVERSE_ORDER, check_even, committed_files, read_table, retained_in, rows_by_node
from ..lake.nodes import Node, first_node, nodes_of
from ..schemas import BY_DATE, TABLES, Column, stored
from . import joined
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

    Args:   since_us, until_us: only events with since_us <= ts < until_us (microseconds since 1970); files without such
            events are not opened. node: which one, if the lake has several.
    Raises: ValueError (the lake is empty, or not whole), OSError.
    """
    journal = None if node is None else node.journal
    check_even(lake, journal)
    _open_files(engine, lake, since_us, until_us, journal)
    kept = retained_in(lake, journal)  # after the tables: see `retained_in`
    timestamp = engine.dialect.timestamp
    for name, columns in TABLES.items():
        listed = ", ".join(
            f"greatest(base_lsn, {kept.lsn}) AS base_lsn" if kept and column.name == "base_lsn" else column.name
            for column in (*columns, *DATE_COLUMN[name in BY_DATE])
        )
        conditions = [] if kept is None else [RETAINED[name].format(lsn=kept.lsn)]
        if name == "events":  # the opened files have other rows, too
            conditions += [f"ts >= {timestamp(since_us)}"] if since_us is not None else []
            conditions += [f"ts < {timestamp(until_us)}"] if until_us is not None else []
        condition = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        engine.view(f"whole_{name}", f"SELECT {listed} FROM stored_{name}{condition}")
    has_holes = bool(committed_files(lake, "holes", None, None, journal))
    name = "" if node is None else node.name
    return Tables(engine, lake, retained=kept, has_holes=has_holes, node=name, journal=journal)


def _open_files(engine: Engine, lake: str, since_us: int | None, until_us: int | None, journal: str | None) -> None:
    """Make the views `stored_...` in the reverse order of commits, because of a running ingest."""
    for name in ("payloads", *REVERSE_ORDER):
        _view_of_files(engine, lake, name, *((since_us, until_us) if name == "events" else (None, None)), journal)


def open_joined(lake: str, engine: Engine, nodes: Sequence[Node]) -> Tables:
    """Make views of the tables in which several nodes are joined (joined.py). Raises: as `open_tables`."""
    for node in nodes:
        check_even(lake, node.journal)
    if isinstance(engine, SparkEngine):
        counts = rows_by_node(lake, "events")
        engine.expect(sum(counts[mark_of(node.journal or "")] for node in nodes))
    _open_files(engine, lake, None, None, None)
    join_stored(engine, nodes, first_node(lake), is_part=len(nodes) < len(nodes_of(lake)))
    return Tables(engine, lake, has_holes=bool(committed_files(lake, "holes")), nodes=nodes)


def join_stored(engine: Engine, nodes: Sequence[Node], first: Node, *, is_part: bool = False) -> None:
    """Make the views `whole_...` of nodes from `stored_...`, which have rows of others if `is_part`.

    first: the node of rows of an older release, which have no journal.
    """
    engine.view(joined.VIEW, joined.nodes_view(nodes, engine.dialect))
    text = engine.dialect.text
    chosen = ", ".join(text(node.journal or "") for node in nodes)
    for name, columns in TABLES.items():
        listed = [joined.unique(name, column.name) for column in (*columns, *DATE_COLUMN[name in BY_DATE])]
        journal = f"stored_{name}.journal"
        own = f"coalesce({journal}, {text(first.journal or '')})"
        # Parquet files tell which of their parts have rows of a journal.
        some = f" WHERE ({journal} IS NULL OR {journal} IN ({chosen}))" if is_part else ""
        of_nodes = f"stored_{name} JOIN {joined.VIEW} ON {joined.VIEW}.journal = {own}{some}"
        engine.view(f"whole_{name}", f"SELECT {', '.join(listed)} FROM {of_nodes}")


def open_alike(lake: str, engine: Engine, nodes: Sequence[Node]) -> Tables | None:
    """The joined tables of those nodes that one query can ask (`_alike`); None: it cannot ask two of them.

    Raises: as `open_tables`.
    """
    tables = open_joined(lake, engine, nodes[: joined.NODES_MAX])
    contents, events = rows_by_node(lake, "payloads"), open_table(lake, "events")
    journals = [node.journal for node in tables.nodes if node.journal]
    kept = [one for one in journals if events is not None and retained_of(events, one) is not None]
    alike = _alike(tables, [one for one in journals if contents[mark_of(one)]], kept)
    if len(alike) == len(tables.nodes):
        return tables
    return open_joined(lake, engine, alike) if alike else None


#: The first record of each joined node, and its scopes.
BEGINS = f"""
SELECT base_lsn >> {joined.PLACE_BITS} AS number, min(base_lsn & {joined.LAST}) AS lsn,
    min(scope) AS one, max(scope) AS other
FROM segments GROUP BY base_lsn >> {joined.PLACE_BITS}
"""


class _Shape(NamedTuple):
    """What makes the SQL of a job another one."""

    is_restarted: bool
    has_contents: bool


def _alike(tables: Tables, with_contents: Collection[str], retained: Collection[str]) -> list[Node]:
    """The most nodes of joined tables that can be asked together: whole journals with deliveries, of a single broker.

    with_contents, retained: journals with payloads, and those of which retention dropped days. Fewer than two nodes can
    be asked one after the other as well: empty.
    """
    begins = {row["number"]: row for row in rows(tables.engine, BEGINS)}
    damaged = {joined.number_of(row["first_lsn"]) for row in tables.holes()}
    led = _count(tables.takeovers())
    started = _count(tables.starts())
    found: dict[_Shape, list[Node]] = {}
    for number, node in enumerate(tables.nodes):
        begin = begins.get(number)
        is_whole = begin is not None and begin["lsn"] <= 1 and begin["one"] == begin["other"] == "all"
        if is_whole and number not in damaged and not led[number] and node.journal not in retained:
            shape = _Shape(started[number] > 1, node.journal in with_contents)
            found.setdefault(shape, []).append(node)
    most = max(found.values(), key=len, default=[])
    return most if len(most) > 1 else []


def _count(marks: Iterable[Mapping[str, Any]]) -> Counter[int]:
    return Counter(joined.number_of(row["lsn"]) for row in marks)


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
        columns = (*stored(table), *DATE_COLUMN[table in BY_DATE])
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
