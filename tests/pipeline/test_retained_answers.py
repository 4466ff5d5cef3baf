"""What jobs say of a lake whose older days were dropped: nothing that is not so, by both engines."""

import io
import shutil
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from told_events import answered, told

pytest.importorskip("pyarrow", reason="the pipeline's libraries are not installed (make spark)")
pytest.importorskip("deltalake", reason="the pipeline's libraries are not installed (make spark)")

from lakes import fill
from recorded_broker import RecordedBroker

from leveret.engine import Field
from leveret.pipeline.engines.protocol import rows
from leveret.pipeline.jobs.audit import audit, fates
from leveret.pipeline.jobs.backlog import depth
from leveret.pipeline.jobs.failures import loss, redelivery
from leveret.pipeline.jobs.opening import open_tables
from leveret.pipeline.jobs.timing import fairness, latency
from leveret.pipeline.jobs.trace import trace
from leveret.pipeline.lake.retention import retain
from leveret.pipeline.progress import Progress

DAY_NS = 86_400 * 10**9
DAY_S = 86_400
SECOND_DAY = date(2023, 11, 15)


@pytest.fixture(scope="module")
def lakes(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The same story whole, and without its first day. Queues of which it left something: `work`, `idle`, `ring`."""
    path = tmp_path_factory.mktemp("retained")
    one = RecordedBroker(path / "journal")
    one.declare("work")
    one.declare("idle")
    one.declare("ring", arguments={"x-max-length": Field("l", 4)})
    one.publish("work", 6)
    one.publish("idle", 3)
    one.publish("ring", 4)
    queue = one.vhost.queues.named("work")
    for _ in range(2):  # the first comes back twice on the first day, and once more on the second
        tag = one.session.get(queue, no_ack=False)[0]
        one.session.reject(tag, requeue=True)
        one.settle()
    one.clock.advance_ns(DAY_NS)
    tag = one.session.get(queue, no_ack=False)[0]
    one.session.reject(tag, requeue=True)
    one.get("work", 4)
    one.publish("work", 2)
    one.publish("ring", 2)
    one.checkpoint()
    one.clock.advance_ns(DAY_NS)
    one.get("work", 1)
    one.publish("idle", 1)
    one.tick()
    fill(path / "journal", path / "whole", payloads=True)
    shutil.copytree(path / "whole", path / "retained")
    done = retain(str(path / "retained"), SECOND_DAY, Progress("retain", io.StringIO()), 0)
    assert done["rows"]["events"] > 20 and done["deleted"]
    return path / "whole", path / "retained"


def asked(engine: Any, lake: Path, job: str, make: Any) -> list[dict[str, Any]]:
    tables = open_tables(str(lake), engine)
    return [vars(row) for row in answered(tables, job, make(tables))]


def test_depth_begins_with_what_was_there(engine: Any, lakes: tuple[Path, Path]) -> None:
    """As if nothing had been dropped, also of a queue in which nothing happened since; but sizes are not known."""
    whole, retained = (asked(engine, lake, "depth", lambda tables: depth(tables, DAY_S)) for lake in lakes)
    for row in (*whole, *retained):
        del row["bytes_end"]
    assert {row["queue"]: row["depth_end"] for row in retained} == {"work": 3, "idle": 4, "ring": 4}
    assert retained == [row for row in whole if row["window_start"].date() >= SECOND_DAY]


def test_nothing_is_lost(engine: Any, lakes: tuple[Path, Path]) -> None:
    """By the audit: what has no `enqueued`, or is in a queue at a checkpoint without one, came before."""
    assert asked(engine, lakes[1], "audit", lambda tables: audit(tables).faults) == []
    before, after = (
        {(row["msg_id"], row["queue"]): row for row in asked(engine, one, "fates", fates)} for one in lakes
    )
    assert {row["enqueued_ts"] for row in after.values() if row["msg_id"] < 14} == {None}
    silent = [(6, "work"), (7, "idle"), (8, "idle"), (9, "idle"), (12, "ring"), (13, "ring")]
    assert [key for key in before if key not in after] == silent
    for key, row in after.items():
        assert (row["fate"], row["finished_ts"]) == (before[key]["fate"], before[key]["finished_ts"])
        assert row == before[key] or row["msg_id"] < 14


def test_no_rows_are_invented(engine: Any, lakes: tuple[Path, Path]) -> None:
    """Ages and pauses that nobody knows are null or not there; what is known is as it was."""
    (before,) = (row for row in asked(engine, lakes[0], "redelivery", redelivery))
    (after,) = (row for row in asked(engine, lakes[1], "redelivery", redelivery))
    assert (before["requeues"], after["requeues"], after["attempts"]) == (3, 1, before["attempts"])
    whole, retained = (asked(engine, lake, "loss", lambda tables: loss(tables, DAY_S)) for lake in lakes)
    assert [(row["n"], row["cause"], row["age_ms_max"]) for row in retained] == [(2, whole[0]["cause"], None)]
    times = asked(engine, lakes[1], "latency", lambda tables: latency(tables, DAY_S))
    assert [row for row in times if row["window_start"].date() < SECOND_DAY] == []
    shares = asked(engine, lakes[1], "fairness", fairness)
    assert sum(row["acked"] for row in shares) == 5
    (story, *_) = asked(engine, lakes[1], "trace", lambda tables: trace(tables, "1"))
    assert story["kind"] == "delivered", "what is there is told"
    tables = open_tables(str(lakes[1]), engine)
    assert "before 2023-11-15" in (tables.missing_text() or "") and "earlier events of a message may be missing" in (
        tables.missing_text() or ""
    )
    assert open_tables(str(lakes[0]), engine).missing_text() is None


def test_what_a_lake_that_begins_later_tells(engine: Any) -> None:
    """Who was delivered, or went, was there; who came since and was dropped was not; a transient one ends with the
    broker.

    Without a checkpoint of durable queues nobody knows the others.
    """
    lines = [
        "20 0 delivered 3 q attempt=1",
        "21 1000 acked 4 q",
        "22 1000 dropped 5 q",
        "22 1000 dropped 12 q",
        "23 1000 expired 6 q",
        "24 2000 published 9",
        "25 2000 enqueued 9 q",
        "26 3000 acked 10 q",  # published since: a fault, and not what was waiting
    ]
    restart = "40 9000 settings_changed 0 vhost= reason=started"
    held = {(30, 33): {"q": [2, 9]}}
    for more, snapshots, levels in (
        ([], None, [2, 2]),
        ([restart], None, [2, 2]),
        ([], held, [3, 3]),
        ([restart], held, [3, 2]),  # 3 was not in the checkpoint
    ):
        tables = told(engine, *lines, *more, "41 10000 published 11", base_lsn=20, snapshots=snapshots)
        ends = {row.window_start.second: row.depth_end for row in answered(tables, "depth", depth(tables, 1))}
        assert [ends[2], ends[10]] == levels, (more, snapshots)
        assert ends[0] == levels[0] + 2 and min(ends) == 0
        assert bool(tables.checkpoints()) == bool(snapshots)
    tables = told(engine, *lines, base_lsn=20)
    assert [(row.fault, row.msg_id) for row in answered(tables, "audit", audit(tables).faults)] == [("lost", 10)]
    assert rows(engine, "SELECT count(*) AS n FROM events WHERE kind = 'enqueued'") == [{"n": 1}]
