"""Nodes that one query asks together: the answers are those of the nodes asked one after the other. On both engines."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="the pipeline's libraries are not installed (make spark)")
pytest.importorskip("deltalake", reason="the pipeline's libraries are not installed (make spark)")

import pyarrow as pa
from lakes import fill
from recorded_broker import RecordedBroker
from told_events import BEGIN, told

from leveret.pipeline.answers import Answer
from leveret.pipeline.engines.protocol import rows
from leveret.pipeline.jobs import joined
from leveret.pipeline.jobs.audit import audit
from leveret.pipeline.jobs.commands import run
from leveret.pipeline.jobs.opening import join_stored, open_alike
from leveret.pipeline.jobs.outputs import ORDERS
from leveret.pipeline.jobs.tables import Tables
from leveret.pipeline.lake.nodes import Node, nodes_of
from leveret.pipeline.options import parse
from leveret.pipeline.progress import Progress
from leveret.pipeline.schemas import BY_DATE, TABLES


def tell(path: Path, messages: int, *, starts: int) -> None:
    """A journal with acknowledged, returned, dead-lettered, replaced and open messages; transient ones, too."""
    for start in range(starts):
        broker = RecordedBroker(path)
        broker.queue("work", client=broker.client, x_dead_letter_exchange="", x_dead_letter_routing_key="dead")
        for name, arguments in (("dead", {}), ("ring", {"x_max_length": 2})):
            broker.queue(name, client=broker.client, **arguments)
        broker.queue("passing", client=broker.client, durable=False)
        broker.settle()
        for number in range(messages):
            broker.publish("work")
            broker.publish("ring")
            broker.publish("passing")
            got = broker.session.get(broker.named("work"), no_ack=False)
            assert got is not None
            if number % 3:
                broker.session.ack(got[0])
            else:
                broker.session.reject(got[0], requeue=start % 2 == 0)
            broker.settle()
            broker.clock.advance_ns(20_000_000_000)
        broker.tick()
        broker.close()


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three alike, of which the last is the lake's first; one that was started twice; one that begins later."""
    root = tmp_path_factory.mktemp("joined")
    for name, messages, starts in (("west", 9, 1), ("east", 5, 1), ("north", 7, 1), ("again", 4, 2), ("twice", 6, 2)):
        tell(root / name, messages, starts=starts)
        fill(root / name, root / "lake", node=name, payloads=True)
    return root / "lake"


def ask(engine: Any, lake: Path, *words: str) -> tuple[Answer, str]:
    """The answer, and the lines of progress."""
    lines = io.StringIO()
    options = parse([words[0], "--lake", str(lake), *words[1:]])
    return run(engine, words[0], options, Progress(words[0], lines)), lines.getvalue()


@pytest.mark.parametrize("job", joined.JOBS)
def test_answers_are_those_of_one_after_the_other(
    engine: Any, lake: Path, job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All rows and facts, by node and together."""
    found = []
    for engines in ((), (engine.name,)):
        monkeypatch.setattr(joined, "ENGINES", engines)
        answer, told_lines = ask(engine, lake, job)
        assert ('"nodes": 3' in told_lines) == bool(engines), "the three are asked together"
        assert answer.main is not None
        facts = {name: value for name, value in answer.facts.items() if name != "seconds"}
        found.append((list(answer.main.head()), facts, answer.code, answer.main.columns))
    assert found[0] == found[1]
    assert found[0][0] or job in ("audit", "blocked")


def test_restarted_nodes_together(engine: Any, lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Transient messages of a node end with a start of that node, not with one of another."""
    for job in ("audit", "depth", "redelivery"):
        found = []
        for engines in ((), (engine.name,)):
            monkeypatch.setattr(joined, "ENGINES", engines)
            answer, told_lines = ask(engine, lake, job, "--node", "twice", "--node", "again")
            assert ('"nodes": 2' in told_lines) == bool(engines)
            assert answer.main is not None
            found.append((list(answer.main.head()), answer.facts["nodes"]))
        assert found[0] == found[1], job


def test_which_nodes_are_alike(engine: Any, lake: Path) -> None:
    """Those with the same number of starts; one alone is not joined."""
    nodes = nodes_of(str(lake))
    tables = open_alike(str(lake), engine, nodes)
    assert tables is not None and [node.name for node in tables.nodes] == ["east", "north", "west"]
    assert open_alike(str(lake), engine, [nodes[0], nodes[1]]) is None, "again, east"


#: By node: events, and the checkpoints with what they hold. Faults of all kinds, and none in `sound`, whose message
#: stays open while other nodes write checkpoints.
STORIES: dict[str, tuple[tuple[str, ...], dict[tuple[int, int], dict[Any, list[int]]]]] = {
    "sound": (("1 0 published 1", "2 0 enqueued 1 q"), {}),
    "doubled": (
        ("1 0 published 1", "2 0 enqueued 1 q", "3 1 enqueued 1 q", "4 2 acked 1 q", "5 3 expired 1 q"),
        {},
    ),
    "missing": (("1 0 published 1", "2 0 enqueued 1 q", "3 0 published 2", "4 0 enqueued 2 q"), {(5, 7): {"q": [2]}}),
    "risen": (("1 0 published 1", "2 0 enqueued 1 q", "3 1 acked 1 q", "4 1 acked 9 q"), {(5, 7): {"q": [1]}}),
    "mixed": (
        (
            "1 0 published 1", "2 0 published 2", "3 0 enqueued 2 q", "4 0 enqueued 1 q", "5 1 acked 2 q",
            "6 1 delivered 2 q attempt=1", "7 2 delivered 3 q attempt=1",
        ),
        {},
    ),
}  # fmt: skip


def test_faults_of_joined_nodes(engine: Any) -> None:
    """Are those of each node, in the same words."""
    nodes, alone = [Node(name, f"journal of {name}") for name in STORIES], []
    stored: dict[str, list[pa.Table]] = {table: [] for table in TABLES}
    for node, (lines, snapshots) in zip(nodes, STORIES.values(), strict=True):
        tables = told(engine, *lines, snapshots=snapshots)
        audited = audit(tables)
        alone += [{"node": node.name, **row} for row in rows(engine, f"{audited.faults} ORDER BY {ORDERS['audit']}")]
        for table in TABLES:
            one = engine.arrow(f"SELECT * FROM whole_{table}")
            one = one.append_column("node", pa.array([node.name] * one.num_rows, pa.string()))
            if table in BY_DATE:
                one = one.append_column("date", pa.array([BEGIN.date()] * one.num_rows, pa.date32()))
            if table != "holes":
                # Rows of an older release, which are of the first node, have no journal.
                journal = None if node is nodes[0] else node.journal
                one = one.append_column("journal", pa.array([journal] * one.num_rows, pa.string()))
            stored[table].append(one)
    for table, parts in stored.items():
        engine.memory_table(f"stored_{table}", pa.concat_tables(parts))
    join_stored(engine, nodes, nodes[0])
    together = Tables(engine, nodes=nodes)
    audited = audit(together)
    found = rows(engine, f"SELECT * FROM ({audited.faults}) AS found ORDER BY node, {ORDERS['audit']}")
    assert found == sorted(alone, key=lambda row: row["node"])
    assert {row["node"] for row in found} == STORIES.keys() - {"sound"}
    assert audited.fates[0] == {"open": 1} and len(audited.fates) == len(STORIES)
