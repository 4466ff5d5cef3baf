"""loss, redelivery and audit have no row of a story in which nothing was lost or tried twice, whatever the queue is."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="the pipeline's libraries are not installed (make spark)")
pytest.importorskip("deltalake", reason="the pipeline's libraries are not installed (make spark)")

from lakes import fill
from recorded_broker import RecordedBroker

from leveret.engine import Field
from leveret.pipeline.engines.protocol import rows
from leveret.pipeline.jobs.audit import audit, fates
from leveret.pipeline.jobs.failures import loss, redelivery
from leveret.pipeline.jobs.opening import open_tables

KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "quorum": {"x_queue_type": "quorum", "x_delivery_limit": 3},
    "ranked": {"x_max_priority": 3},
    "short": {"x_message_ttl": 60_000, "x_dead_letter_exchange": "", "x_dead_letter_routing_key": "plain"},
    "limited": {"x_max_length": 50, "x_overflow": "reject-publish"},
    "ring": {"x_ring_size": 50},
    "last": {"x_last_value_key": "k"},
    "alone": {"x_single_active_consumer": True},
    "retries": {"x_redelivery_delay": 30, "x_max_delivery_attempts": 3},
    "leased": {"x_queue_type": "amps", "x_lease_period": 1000, "x_max_backlog_per_consumer": 5},
    "strict": {"x_queue_type": "amps", "x_lease_period": 1000, "x_leasing": "strict"},
    "sited": {"x_queue_type": "amps", "x_lease_period": 1000, "x_replication": "distributed"},
    "delayed": {},
    "kept": {"x_non_destructive": True},
    "log": {"x_queue_type": "stream"},
}
KEEPING = {"kept", "log"}
SITES = ("n1", "n2")
COUNT = 6
DELAY_MS = 20


def begin(journal: Path) -> RecordedBroker:
    return RecordedBroker(journal, segment_size=20_000, site=SITES[0], groups=dict.fromkeys(SITES, ""))


def publish(one: RecordedBroker, name: str) -> None:
    more: dict[str, Any] = {}
    if name == "delayed":
        more["headers"] = {"_AMQ_SCHED_DELIVERY": Field("l", one.clock.wall_ms() + DELAY_MS)}
    one.publish(name, COUNT, **more)
    one.advance(DELAY_MS)
    one.settle()


def read(one: RecordedBroker, name: str, readers: int) -> None:
    """By consumers at two sites; each acknowledges what it gets."""
    sessions = [one.connect(site=SITES[at % 2]) for at in range(readers)]
    for session in sessions:
        more = {"x_stream_offset": "first"} if name == "log" else {}
        one.consume(name, by=session, prefetch=2, **more)
    one.settle()
    while any(session.unacked for session in sessions):
        for session in sessions:
            for tag in list(session.unacked):
                session.ack(tag)
        one.clock.advance_ns(1_000_000)
        one.broker.advance()
        one.settle()
    for session in sessions:
        session.close()
    one.settle()


@pytest.mark.parametrize("ends", ["stopped", "killed"])
def test_nothing_was_lost_or_tried_twice(ends: str, engine: Any, tmp_path: Path) -> None:
    """Over three starts of the broker, with persistent messages; those that a queue keeps are read in each of them."""
    journal, lake = tmp_path / "journal", str(tmp_path / "lake")
    one = begin(journal)
    for name, arguments in KINDS.items():
        one.queue(name, client=one.client, **arguments)
    one.settle()
    for _ in range(3):
        for name in KINDS:
            publish(one, name)
            read(one, name, 2)
        one.tick()
        one.kill() if ends == "killed" else one.close()
        one = begin(journal)
    one.tick()
    one.close()
    fill(journal, Path(lake))
    tables = open_tables(lake, engine)
    for text in (loss(tables), redelivery(tables), audit(tables).faults):
        assert rows(engine, text) == [], text
    counted = f"SELECT queue, fate, count(*) AS n FROM ({fates(tables)}) AS every GROUP BY queue, fate"
    assert {(row["queue"], row["fate"], row["n"]) for row in rows(engine, counted)} == {
        (name, "open" if name in KEEPING else "acked", 3 * COUNT) for name in KINDS
    }
