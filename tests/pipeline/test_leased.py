"""Leased queues in the pipeline: what a broker recorded of leases, in the rows of the journal and in every job.

Source: queues page A.5; what is simulated of leases: test_simulation.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="the pipeline's libraries are not installed (make spark)")
from recorded_broker import USER, RecordedBroker
from told_events import answered

from leveret.engine import Field, Session, table_of_json
from leveret.pipeline.reading.table_reader import TableReader
from leveret.pipeline.schemas import TABLES, arrow

AMPS: dict[str, object] = {"x-queue-type": "amps", "x-lease-period": 1000, "x-max-backlog-per-consumer": 10}
CONSUMER: dict[str, Field] = {"x-max-backlog": Field("l", 10)}


class Story:
    """A broker with leased queues, told by consumers that hold messages for some time."""

    def __init__(self, path: Path) -> None:
        self.one = RecordedBroker(path)

    def declare(self, name: str, **more: object) -> None:
        arguments = AMPS | {key.replace("_", "-"): value for key, value in more.items()}
        self.one.declare(name, arguments=table_of_json(arguments))

    def consumer(self, name: str, queue: str = "q") -> Session:
        """On a connection and session of its own."""
        client = self.one.broker.connections.open("/", USER, name=name, flush=lambda: None)
        client.flush = lambda: (client.take_outbox(), client.drained())  # type: ignore[func-returns-value]
        session = client.open_session()
        session.consume(self.one.vhost.queues.named(queue), name, no_ack=False, exclusive=False, arguments=CONSUMER)
        self.one.settle()
        return session

    def wait(self, ms: int) -> None:
        """Deadline by deadline."""
        broker, clock = self.one.broker, self.one.clock
        until_ns = clock.monotonic_ns() + ms * 1_000_000
        while (due := broker.next_deadline_ns()) is not None and due <= until_ns:
            clock.advance_ns(max(0, due - clock.monotonic_ns()))
            broker.advance()
            self.one.settle()
        clock.advance_ns(until_ns - clock.monotonic_ns())

    def act(self, session: Session, how: str, tag: int) -> None:
        if how == "ack":
            session.ack(tag)
        else:
            session.reject(tag, requeue=how == "cancel")
        self.one.settle()


def told(path: Path) -> None:
    """q: `a` lets a lease end and is late, gives one back and acknowledges; what fails twice is killed. once: at most
    once. Then `b` has what is there, unsubscribes with one in hand, and time goes on."""
    story = Story(path)
    story.declare("q", x_max_deliveries=2)
    story.declare("once", x_semantics="at-most-once")
    a = story.consumer("a")
    story.one.publish("q")  # 1: its lease ends, twice
    story.wait(2500)
    story.one.publish("q")  # 2: given back, and acknowledged 300 ms later
    story.wait(100)
    story.act(a, "cancel", 3)
    story.wait(300)
    story.act(a, "ack", 4)
    story.one.publish("q")  # 3: expired by hand
    story.wait(50)
    story.act(a, "expire", 5)
    a.close()
    story.one.settle()
    b = story.consumer("b")
    story.one.publish("q")  # 4: b unsubscribes, and acknowledges what is not its own any more
    story.wait(200)
    b.cancel("b")
    story.one.settle()
    story.wait(200)
    story.act(b, "ack", 1)
    c = story.consumer("c", "once")
    story.one.publish("once", 2)  # 5, 6
    story.wait(70)
    c.ack(1)
    story.wait(3000)
    story.one.publish("q")  # 7: stays
    story.one.close()


def table_of(path: Path, name: str = "events") -> Any:
    """A table of the journal in Arrow, without Spark."""
    import pyarrow

    batches = TableReader(str(path), name, TABLES[name]).all_batches()
    return pyarrow.Table.from_batches(batches, arrow(TABLES[name]))


def test_rows_of_leases(tmp_path: Path) -> None:
    """Why each lease ended, after how many deliveries; and what queues were declared with."""
    told(tmp_path)
    rows = table_of(tmp_path).to_pylist()
    ended = [
        (row["queue"], row["msg_id"], row["reason"], row["attempt"]) for row in rows if row["kind"] == "lease_ended"
    ]
    assert ended == [
        ("q", 1, "deadline", 1),
        ("q", 1, "deadline", 2),
        ("q", 2, "nacked", 1),
        ("q", 4, "unsubscribed", 1),
    ]
    declared = {row["queue"]: row["reason"] for row in rows if row["kind"] == "declared" and row["queue"]}
    assert declared["once"].count('"x-semantics": "at-most-once"') == 1 and "x-lease-period" in declared["q"]


def test_every_job(engine: Any, tmp_path: Path) -> None:
    """No fault; figures as they were told; and under the settings that were in force it happens again."""
    from leveret.pipeline.jobs.audit import audit
    from leveret.pipeline.jobs.failures import redelivery
    from leveret.pipeline.jobs.tables import Tables
    from leveret.pipeline.jobs.timing import fairness, latency
    from leveret.pipeline.jobs.trace import trace
    from leveret.pipeline.jobs.whatif import whatif

    told(tmp_path)
    for name in TABLES:
        engine.memory_table(f"whole_{name}", table_of(tmp_path, name))
    tables = Tables(engine)
    assert answered(tables, "audit", audit(tables).faults) == []
    failing = {row.msg_id: row for row in answered(tables, "redelivery", redelivery(tables))}
    assert {id_: (row.attempts, row.requeues, row.leases_ended, row.dead) for id_, row in failing.items()} == {
        1: (2, 2, 2, True),
        2: (2, 1, 1, False),
        3: (1, 0, 0, True),
        4: (1, 1, 1, False),
    }
    assert [failing[id_].last_reason for id_ in (1, 2, 4)] == ["delivery_limit", "nacked", "unsubscribed"]
    shares = {(row.queue, row.consumer): row for row in answered(tables, "fairness", fairness(tables))}
    assert {key: (row.deliveries, row.acked, row.leases_ended) for key, row in shares.items() if key[0] == "q"} == {
        ("q", "a"): (5, 1, 3),
        ("q", "b"): (1, 0, 1),  # it acknowledged what was not its own any more
    }
    (of_q,) = (row for row in answered(tables, "latency", latency(tables, 3600)) if row.queue == "q")
    assert (of_q.n, of_q.service_ms_p50, of_q.e2e_ms_p999) == (4, 300, 400)  # an acknowledgement that is late counts
    kinds = [(row.kind, row.reason) for row in answered(tables, "trace", trace(tables, "2")) if row.queue == "q"]
    assert kinds == [
        ("enqueued", None),
        ("delivered", None),
        ("lease_ended", "nacked"),
        ("delivered", None),
        ("acked", None),
    ]
    for row in answered(tables, "whatif", whatif(tables, "")):
        assert row.was == row.would_be, row
