"""One job on several nodes: each answers for itself, and the answers are put together, with a column `node` in front.

A record's number and a message's id mean something only within a journal, so no job's SQL ever sees rows of two. What
goes from broker to broker is followed by `trail.py`.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..answers import EXIT_OK, Answer
from ..engines.protocol import Engine
from ..lake.nodes import Node
from ..schemas import Column
from .engine_table import EngineTable

NODE = Column("node", "string")
#: Tables that are as large as the lake, and are computed only for who writes them somewhere.
LARGE = ("message_fate",)


class NodeAnswers:
    """The answers of one job, node by node: the views of a node are there only until the next one's are made."""

    def __init__(self, engine: Engine, job: str, *, is_written: bool) -> None:
        self._engine, self._job = engine, job
        self._is_written = is_written
        self._answers: dict[str, Answer] = {}
        self._views: dict[str, list[str]] = {}
        self._tables: dict[str, EngineTable] = {}

    def __bool__(self) -> bool:
        return bool(self._answers)

    def add(self, node: Node, answer: Answer) -> None:
        """What a node says, computed now."""
        for name, table in answer.tables.items():
            if not isinstance(table, EngineTable) or (name in LARGE and not self._is_written):
                continue
            of = self._views.setdefault(name, [])
            view = f"of_node_{name}_{len(of)}"
            text = self._engine.dialect.text(node.name)
            self._engine.view(view, f"SELECT {text} AS node, * FROM {table.name}", cached=True)
            of.append(view)
            self._tables[name] = table
        self._answers[node.name] = answer

    def answer(self, more: Mapping[str, Any]) -> Answer:
        """All of them as one: counts are sums, what is said is said of its node. `more`: facts."""
        tables = {name: self._table(name, views) for name, views in self._views.items()}
        facts = merged({name: answer.facts for name, answer in self._answers.items()})
        codes = [answer.code for answer in self._answers.values()]
        return Answer(self._job, tables, {**facts, **more}, max(codes, default=EXIT_OK))

    def _table(self, name: str, views: Sequence[str]) -> EngineTable:
        """The rows of all nodes: in the job's order, those of different nodes beside each other."""
        one = self._tables[name]
        every = " UNION ALL ".join(f"SELECT * FROM {view}" for view in views)
        order = f"ts, node, {one.order}" if name == "trace" else f"{one.order}, node"
        return EngineTable(self._engine, name, every, (NODE, *one.columns), cached=False, order=order)


def merged(by_node: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The facts of several nodes: numbers added up, sentences with the node's name; and `nodes`, those of each."""
    names: list[str] = list(dict.fromkeys(name for facts in by_node.values() for name in facts))
    found: dict[str, Any] = {}
    for name in names:
        values = {node: facts[name] for node, facts in by_node.items() if name in facts}
        found[name] = _merged(values)
    return {**found, "nodes": {node: dict(facts) for node, facts in by_node.items()}}


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
    """Where the page of one of several nodes is."""
    head, dot, tail = path.rpartition(".")
    return f"{head}-{node}{dot}{tail}" if dot else f"{path}-{node}"


def unknown_everywhere(found: Sequence[set[tuple[str, str]]]) -> Iterator[tuple[str, str]]:
    """(virtual host or queue, name) of those that no node knows."""
    if found:
        yield from sorted(set.intersection(*found))
