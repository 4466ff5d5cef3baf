"""What is killed with SIGKILL in the middle: a streaming query, its broker, an ingest; and what has nothing to do."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="Spark is not installed (make spark)")
from recorded_broker import RecordedBroker

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import pipeline_live
from pipeline_traffic import Published

from leveret.pipeline.lake.ingest import IngestOptions, ingest
from leveret.pipeline.lake.lake import has_begun, read_table
from leveret.pipeline.patience import patiently
from leveret.pipeline.progress import Progress
from leveret.pipeline.reading.tables import TableReader
from leveret.pipeline.schemas import EVENTS

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


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="needs process groups")
def test_an_ingest_killed_in_a_batch(spark: Any, tmp_path: Path) -> None:
    """SIGKILL to it and its Java when some of the batch is written: done again, each row is there once."""
    journal, lake = tmp_path / "journal", tmp_path / "lake"
    one = RecordedBroker(journal, segment_size=60_000)
    one.declare("q")
    for _ in range(30):
        one.publish("q", 100)
    one.close()
    command = [sys.executable, "-m", "leveret.pipeline", "ingest", "--journal", str(journal), "--lake", str(lake)]
    with subprocess.Popen([*command, *QUICK], stderr=subprocess.DEVNULL, start_new_session=True) as process:
        while not any((lake / "events").rglob("part-*.parquet")):  # a task of many is done
            with suppress(subprocess.TimeoutExpired):
                raise AssertionError(f"it ended with {process.wait(timeout=0.005)}")
        os.killpg(process.pid, signal.SIGKILL)
    assert not (lake / "events" / "_spark_metadata" / "0").exists(), "it came to the end of the batch"
    told = ingest(spark, IngestOptions(str(journal), str(lake)), Progress("ingest"))
    reader = TableReader(str(journal), columns=EVENTS)
    expected = sorted(
        (row["lsn"], row["msg_id"], row["kind"]) for batch in reader.all_batches() for row in batch.to_pylist()
    )
    frame = read_table(spark, str(lake), "events").select("lsn", "msg_id", "kind")
    assert sorted(map(tuple, frame.collect())) == expected and told["rows"]["events"] == len(expected) > 6_000
    files = {path.name for path in (lake / "events").rglob("part-*.parquet")}
    assert len(files) == len({row[0] for row in frame.selectExpr("input_file_name()").distinct().collect()})


def test_no_news_no_work(spark: Any, tmp_path: Path) -> None:
    """A query that looks again and again and finds nothing plans no batch and starts no job; nor does an ingest."""
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

    query = patiently(begun, Progress("test"))
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
    lake = str(tmp_path / "lake")

    options = IngestOptions(str(tmp_path / "journal"), lake)
    ingest(spark, options, Progress("ingest"))
    before = commits(tmp_path / "lake")
    assert set(ingest(spark, options, Progress("ingest"))["rows"].values()) == {0}
    assert commits(tmp_path / "lake") == before
    shutil.rmtree(lake)
    assert not has_begun(spark, lake, "events"), "one that is made anew is filled again"


def commits(lake: Path) -> dict[str, int]:
    """When each checkpoint was last written to."""
    return {str(path): path.stat().st_mtime_ns for path in (lake / "_checkpoints").rglob("*")}
