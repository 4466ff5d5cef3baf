"""latency, depth, redelivery, loss and fairness on journals of a few lines, worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest
from told_events import at, told

pytest.importorskip("pyspark", reason="needs leveret[spark]")
from leveret.pipeline.jobs.backlog import depth, loss
from leveret.pipeline.jobs.frames import NotRecorded
from leveret.pipeline.jobs.lives import lives
from leveret.pipeline.jobs.redelivery import redelivery
from leveret.pipeline.jobs.timing import fairness, latency

pytestmark = pytest.mark.spark

TWO = (
    "1 0 enqueued 1 q", "2 10 enqueued 2 q", "3 100 delivered 1 q attempt=1 consumer=a conn_id=7",
    "4 150 acked 1 q consumer=a conn_id=7", "5 210 delivered 2 q attempt=1 consumer=b conn_id=8",
    "6 220 requeued 2 q attempt=1 arg_ms=500 reason=nacked",
    "7 720 delivered 2 q attempt=2 consumer=b conn_id=8 flags=33",
    "8 1010 acked 2 q consumer=b conn_id=8",
)  # fmt: skip


def test_latency(spark: Any) -> None:
    """Waiting ends with the first delivery, service begins with the last."""
    (row,) = latency(lives(told(spark, *TWO).events), 60).collect()
    assert (row.queue, row.window_start.replace(tzinfo=None), row.n) == ("q", at(0).replace(tzinfo=None), 2)
    assert (row.queue_ms_p50, row.queue_ms_p99) == (100, 200)
    assert (row.service_ms_p50, row.service_ms_p99) == (50, 290)
    assert (row.e2e_ms_p50, row.e2e_ms_p999) == (150, 1000)


def test_depth(spark: Any) -> None:
    """Running sums, in windows; the octets go with the messages."""
    rows = sorted(
        depth(lives(told(spark, *TWO, "9 2000 enqueued 3 q").events), 1).collect(), key=lambda r: r.window_start
    )
    assert [(row.depth_end, row.depth_max, row.in_per_s, row.out_per_s, row.bytes_end) for row in rows] == [
        (1, 1, 2.0, 1.0, 10),
        (0, 0, 0.0, 1.0, 0),
        (1, 1, 1.0, 0.0, 10),
    ]


def test_redelivery(spark: Any) -> None:
    """Attempts, pauses, who had it last; dead of its attempts is poison."""
    frames = told(
        spark, *TWO, "9 1 enqueued 3 q", "10 2 killed 3 q reason=delivery_limit", "11 3 killed 4 q reason=maxlen"
    )
    found = {row.msg_id: row for row in redelivery(frames).collect()}
    assert set(found) == {2, 3, 4}
    assert (found[2].attempts, found[2].requeues, found[2].backoff_ms) == (2, 1, [500])
    assert (found[2].last_consumer, found[2].last_reason, found[2].dead, found[2].poison) == (
        "b",
        "nacked",
        False,
        False,
    )
    assert [(found[id_].dead, found[id_].poison) for id_ in (3, 4)] == [(True, True), (True, False)]
    assert {row.msg_id for row in redelivery(frames, poison_attempts=2).where("poison").collect()} == {2, 3}


def test_loss(spark: Any) -> None:
    """What left unread, by cause, with its age and octets."""
    frames = told(
        spark, *TWO, "9 0 enqueued 3 q", "10 0 enqueued 4 q size_bytes=5", "11 40 evicted 3 q", "12 60 evicted 4 q",
        "13 0 enqueued 5 r", "14 1000 expired 5 r",
    )  # fmt: skip
    found = {(row.queue, row.cause): row for row in loss(lives(frames.events)).collect()}
    assert set(found) == {("q", "evicted"), ("r", "expired")}
    evicted = found["q", "evicted"]
    assert (evicted.n, evicted.bytes, evicted.age_ms_p50, evicted.age_ms_max) == (2, 15, 40, 60)


def test_fairness(spark: Any) -> None:
    """Shares of deliveries; service time is from a consumer's own delivery to its ack."""
    found = {row.consumer: row for row in fairness(told(spark, *TWO)).collect()}
    assert [(found[name].deliveries, found[name].acked) for name in "ab"] == [(1, 1), (2, 1)]
    assert found["b"].share == pytest.approx(2 / 3)
    assert (found["a"].service_ms_p50, found["b"].service_ms_max) == (50, 290)


def test_not_recorded(spark: Any) -> None:
    """A journal without deliveries gives no figures rather than zeros."""
    frames = told(spark, *TWO, scope="durable")
    for job in (redelivery, fairness):
        with pytest.raises(NotRecorded, match='not recorded; .*scope = "all"'):
            job(frames)
