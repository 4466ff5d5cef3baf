"""One job for several nodes: it runs for each node, and the answers are joined, with a first column `node`.

LSNs and message ids are unique only within one journal, so the SQL of a job reads the rows of one node. trace.py
follows messages from broker to broker.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..answers import EXIT_OK, Answer
from ..engines.protocol import Engine
from ..lake.nodes import Node
from ..schemas import Column
from .engine_table import EngineTable

NODE = Column("node", "string")
#: Tables that are as large as the lake: they are computed only if all tables are written.
ONLY_WRITTEN = ("message_fate",)


class NodeAnswers:
    """Joins the answers of one job. They are copied, because the views of the next node replace those of this one.

    writes_all: all tables are written to files.
    """

    def __init__(self, engine: Engine, job: str, *, writes_all: bool) -> None:
        self._engine, self._job = engine, job
        self._writes_all = writes_all
        self._answers: dict[str, Answer] = {}
        self._views: dict[str, list[str]] = {}
        self._tables: dict[str, EngineTable] = {}

    def __bool__(self) -> bool:
        return bool(self._answers)

    def add(self, node: Node, answer: Answer) -> None:
        """Add the answer of a node. Its tables are computed now."""
        for name, table in answer.tables.items():
            if not isinstance(table, EngineTable) or (name in ONLY_WRITTEN and not self._writes_all):
                continue
            views = self._views.setdefault(name, [])
            view = f"of_node_{name}_{len(views)}"
            text = self._engine.dialect.text(node.name)
            self._engine.view(view, f"SELECT {text} AS node, * FROM {table.name}", cached=True)
            views.append(view)
            self._tables[name] = table
        self._answers[node.name] = answer

    def answer(self, more: Mapping[str, Any]) -> Answer:
        """The joined answer. `more`: additional facts."""
        tables = {name: self._table(name, views) for name, views in self._views.items()}
        facts = merge_facts({name: answer.facts for name, answer in self._answers.items()})
        codes = [answer.code for answer in self._answers.values()]
        return Answer(self._job, tables, {**facts, **more}, max(codes, default=EXIT_OK))

    def _table(self, name: str, views: Sequence[str]) -> EngineTable:
        """The joined table: the rows of all nodes in the order of the job."""
        one = self._tables[name]
        every = " UNION ALL ".join(f"SELECT * FROM {view}" for view in views)
        order = f"ts, node, {one.order}" if name == "trace" else f"{one.order}, node"
        return EngineTable(self._engine, name, every, (NODE, *one.columns), cached=False, order=order)


def merge_facts(by_node: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Join the facts of nodes: add numbers, put the node's name before sentences.

    `nodes` in the result has the facts of each, except `seconds`, which include the time of the nodes before it.
    """
    names: list[str] = list(dict.fromkeys(name for facts in by_node.values() for name in facts))
    found: dict[str, Any] = {}
    for name in names:
        values = {node: facts[name] for node, facts in by_node.items() if name in facts}
        found[name] = _merged(values)
    nodes = {node: {name: one for name, one in facts.items() if name != "seconds"} for node, facts in by_node.items()}
    return {**found, "nodes": nodes}


def _merged(values: Mapping[str, Any]) -> Any:
    every = list(values.values())
    if all(isinstance(one, dict) for one in every):
        keys = sorted({key for one in every for key in one})
        return {key: sum(one.get(key, 0) for one in every) for key in keys}
    if all(isinstance(one, int) for one in every):
        return sum(every)
    if all(isinstance(one, list) for one in every):
        return [f"{node}: {one}" for node, some in values.items() for one in some]
    return "; ".join(f"{node}: {one}" for node, one in values.items())


def node_page_path(path: str, node: str) -> str:
    """The path of one node's page. `path`: of the page if there were one node."""
    head, dot, tail = path.rpartition(".")
    return f"{head}-{node}{dot}{tail}" if dot else f"{path}-{node}"


def unknown_everywhere(found: Sequence[set[tuple[str, str]]]) -> Iterator[tuple[str, str]]:
    """The names that no node knows, as ("virtual host" or "queue", name). `found`: the unknown names of each node."""
    if found:
        yield from sorted(set.intersection(*found))
