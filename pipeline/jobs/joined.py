"""Several nodes in one query: ids that are unique over the nodes.

LSNs, message ids and ids of connections are unique only within one journal, and so are virtual hosts. In joined tables
the nodes have numbers. A node's ids lie in a range of their own, which begins at `number << PLACE_BITS`, and its
virtual hosts begin with its number. So the SQL of a job reads the rows of many nodes as if they were those of one; its
answer has the ids and names of each node again. On a cluster of Spark a query for each node costs 20 to 30 s of CPU,
because each is planned, compiled and sent to the executors anew.
"""

from collections.abc import Mapping, Sequence

from ..engines.protocol import Dialect
from ..lake.nodes import Node
from ..schemas import Column, Columns

#: The jobs that can ask several nodes together, and the engines by which they do: none yet. DuckDB takes 0.1 to 0.4 s
#: of CPU for a node, and would need memory for all of them.
JOBS = ("audit", "latency", "depth", "redelivery", "loss", "fairness", "blocked", "deadletters")
ENGINES: tuple[str, ...] = ()
#: Bits of an id within a journal. Lives (lives.py) multiply LSNs by 64, so a number has at most 11 bits.
PLACE_BITS = 46
NODES_MAX = 1 << 11
#: The last id of a journal. `id & LAST` is the id within the journal; `id | LAST` is the last one of the same node.
LAST = (1 << PLACE_BITS) - 1
VIEW = "joined_nodes"
NODE = Column("node", "string")
#: Columns of tables and answers with ids. Those in `POSITIVE` are ids only if they are above 0.
IDS = ("lsn", "base_lsn", "begin_lsn", "end_lsn", "first_lsn", "last_lsn", "conn_id")
POSITIVE = ("msg_id", "cause_id")
_PREFIX = 5  # characters of a node's number before a virtual host: 0012/


def number_of(id_: int) -> int:
    """The number of the node to which an id belongs."""
    return id_ >> PLACE_BITS


def nodes_view(nodes: Sequence[Node], dialect: Dialect) -> str:
    """SQL of `VIEW`: the journal, the name, the first id and the prefix of virtual hosts of each node."""
    text, width = dialect.text, _PREFIX - 1
    listed = ", ".join(
        f"({text(one.journal or '')}, {text(one.name)}, {number << PLACE_BITS}, '{number:0{width}}/')"
        for number, one in enumerate(nodes)
    )
    names = "listed(journal, node, place, prefix)"
    return f"SELECT journal, node, CAST(place AS bigint) AS place, prefix FROM (VALUES {listed}) AS {names}"


def unique(table: str, column: str) -> str:
    """SQL of a column of a joined table. The views `stored_...` and `VIEW` are joined."""
    stored = f"stored_{table}.{column}"
    if column in IDS:
        return f"{stored} + place AS {column}"
    if column in POSITIVE:
        return f"IF({stored} > 0, {stored} + place, {stored}) AS {column}"
    if column == "vhost":
        # Events of a whole broker are known by their empty virtual host (lives.py, `STARTED`).
        is_whole = f"stored_{table}.kind = 'settings_changed'" if table == "events" else "false"
        return f"IF({is_whole}, {stored}, prefix || {stored}) AS vhost"
    return f"{stored} AS {column}"


def answer(dialect: Dialect, sql: str, wanted: Columns) -> str:
    """SQL of the rows of a job with their node, and the ids and names that they have there. Every row has a vhost."""
    listed = (f"CAST({_plain(one.name)} AS {dialect.type(one.type)}) AS `{one.name}`" for one in wanted)
    return (
        f"SELECT {VIEW}.node AS node, {', '.join(listed)}"
        f" FROM ({sql}) AS answer JOIN {VIEW} ON {VIEW}.prefix = substr(answer.vhost, 1, {_PREFIX})"
    )


def _plain(column: str) -> str:
    if column == "vhost":
        return f"substr(answer.vhost, {_PREFIX + 1})"
    return f"answer.`{column}` & {LAST}" if column in (*IDS, *POSITIVE) else f"answer.`{column}`"


def by_vhost(values: Mapping[int, int]) -> str:
    """SQL: the value for the node of the column vhost. `values`: by number, at least one."""
    return _by_number(f"CAST(substr(vhost, 1, {_PREFIX - 1}) AS int)", values)


def by_lsn(column: str, values: Mapping[int, int]) -> str:
    """SQL: the value for the node of an LSN; 0 for a node without a value. `values`: by number."""
    return f"coalesce({_by_number(f'{column} >> {PLACE_BITS}', values)}, 0)" if values else "0"


def _by_number(number: str, values: Mapping[int, int]) -> str:
    return f"CASE {number} {' '.join(f'WHEN {one} THEN {value}' for one, value in values.items())} END"
