"""What is killed with SIGKILL in the middle: a streaming query, its broker, an ingest; and what has nothing to do."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="Spark is not installed (make spark)")
from recorded_broker import RecordedBroker

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import pipeline_live
from pipeline_traffic import Published

from leveret.pipeline.progress import Progress
from leveret.pipeline.retries import retry_slow_workers

pytestmark = pytest.mark.spark
QUICK = ["--master", "local[1]", "--driver-memory", "600m", "--conf"]
QUICK += ["spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"]


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="needs process groups")
def test_a_query_over_a_broker_both_killed(spark: Any, tmp_path: Path, capsys: Any) -> None:
    """Scaled down from `make bench-pipeline`: rows as the journal has them, once each, and all that was confirmed."""
    code = pipeline_live.run(
        tmp_path / "live",
        rate=500,
        kills=1,
        broker_kills=1,
        source="journal",
        peer_name="leveret",
        spark=spark,
        quick=True,
    )
    assert code == 0, capsys.readouterr().out


def test_what_disagrees_is_told() -> None:
    """The benchmark's own judgement: a row too many, one too few, a confirmed message that is not there."""
    sent = {"connections": [{"sent": 9, "confirmed": 7}]}
    good = {"rows": 20, "distinct": 20, "by_kind": {"acked": 8}, "of_queue": {"acked": 8}, "published": [8]}
    expected = {"journal": {"acked": 8}, "counters": {"acked": 8}}
    assert pipeline_live.faults("journal", good, sent, expected) == []
    for bad, words in (
        ({"rows": 21}, "1 rows are there twice"),
        ({"by_kind": {"acked": 7}}, "the sink and the journal differ"),
        ({"of_queue": {"acked": 9}}, "the broker counted 8 acked, the sink has 9"),
        ({"published": [6]}, "6 rows of a connection that sent 9, 7 confirmed"),
        ({"published": [8, 1]}, "1 connections published"),
    ):
        assert words in pipeline_live.faults("journal", {**good, **bad}, sent, expected)[0]
    rows = {"rows": 5, "distinct": 5, "end": 5}
    assert pipeline_live.faults("amqp", rows, {"sent": 5}, {}) == []
    assert pipeline_live.faults("amqp", rows, {"sent": 6}, {}) != []
    one = Published(sent=10)
    for tag, multiple in ((3, False), (4, False), (2, True), (5, False)):
        one.confirm(tag, multiple=multiple)
    assert (one.lowest, one.unconfirmed, one.persistent()) == (6, 5, {"sent": 5, "confirmed": 2})


def test_no_news_no_work(spark: Any, tmp_path: Path) -> None:
    """A query that looks again and again and finds nothing plans no batch and starts no job."""
    one = RecordedBroker(tmp_path / "journal")
    one.declare("q")
    one.publish("q", 10)
    one.tick()
    stream = spark.readStream.format("leveret_journal").load(str(tmp_path / "journal"))
    writer = stream.writeStream.format("parquet").option("path", str(tmp_path / "sink"))

    def begun() -> Any:
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        query.processAllAvailable()
        return query

    query = retry_slow_workers(begun, Progress("test"))
    try:
        jobs = spark.sparkContext.statusTracker().getJobIdsForGroup(query.runId)
        for _ in range(20):
            query.processAllAvailable()  # returns when it has looked and found nothing
        assert sorted(path.name for path in (tmp_path / "checkpoint" / "offsets").glob("[0-9]*")) == ["0"]
        assert spark.sparkContext.statusTracker().getJobIdsForGroup(query.runId) == jobs
        one.publish("q")
        one.tick()
        query.processAllAvailable()
        assert (tmp_path / "checkpoint" / "offsets" / "1").exists()
    finally:
        query.stop()
