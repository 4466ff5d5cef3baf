"""A broker killed under load again and again: the audit and the client agree about every message."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import pytest

pytest.importorskip("pyspark", reason="Spark is not installed (make spark)")
from pyarrow import parquet
from pyspark.sql import functions as F

sys.path.insert(0, str(Path(__file__).parents[1] / "journal"))
from crash_rounds import QUEUES, Client, Truth, one_round, serve

from leveret.journal import register_reader
from leveret.pipeline.ingest import IngestOptions, ingest
from leveret.pipeline.jobs.audit import audit, fates
from leveret.pipeline.jobs.commands import kept
from leveret.pipeline.jobs.frames import Frames
from leveret.pipeline.jobs.lives import lives
from leveret.pipeline.progress import Progress

pytestmark = pytest.mark.spark
ROUNDS = 6
FATES = ("open", "acked")
PLANTED = 5
#: Starts faster and computes slower.
QUICK = ["--conf", "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"]


@pytest.mark.timeout(300)
def test_the_audit_agrees_with_the_client(spark: Any, tmp_path: Path) -> None:
    """Open is what a last look finds; acknowledged for good is acked; confirmed is one of the two; and no fault.

    Then rows of the same journal are taken away, doubled, moved: those messages are named, and the exit code is 2.
    """
    chance, truth = random.Random(11), Truth()
    journal = tmp_path / "data"
    journal.mkdir()
    register_reader(str(journal), "test", 1)  # before the first segment: nothing goes unread
    for _ in range(ROUNDS):
        one_round(str(tmp_path), "commit", truth, chance)
    there: dict[str, Counter[int]] = {}
    process, port = serve(str(tmp_path), "commit")
    try:
        client = Client(port, truth, chance)
        client.declare()
        for queue in QUEUES:
            there[queue] = client.drain(queue)
    finally:
        process.terminate()  # a clean end: a last checkpoint
        process.wait()
        process.stdout.close()  # type: ignore[union-attr]

    lake = str(tmp_path / "lake")
    ingest(spark, IngestOptions(str(journal), lake, payloads=True), Progress("ingest"))
    frames = Frames.of_lake(spark, lake)
    folded = kept(lives(frames.events))
    assert frames.first_lsn() == 1
    assert audit(frames, folded).collect() == []
    assert frames.checkpoints.count() >= 1
    bodies = frames.payloads.selectExpr("msg_id", "CAST(CAST(body AS string) AS int) AS number")
    fate = {
        (row.queue, row.number): row.fate
        for row in fates(frames, folded).join(bodies, "msg_id").select("queue", "number", "fate").collect()
    }
    assert len(fate) > 100
    for queue in QUEUES:
        mine = {word: {number for (of, number), one in fate.items() if (of, one) == (queue, word)} for word in FATES}
        assert mine["open"] == set(there[queue])
        assert mine["acked"] >= truth.been[queue] - set(there[queue])  # confirmed or once seen, and gone
        assert mine["acked"] <= truth.acked[queue]
        assert mine["open"] | mine["acked"] == {number for of, number in fate if of == queue} <= truth.sent

    acked = frames.events.where("kind = 'acked' AND msg_id > 0").orderBy("lsn", "msg_id", "queue").limit(PLANTED)
    events, expected = planted(frames.events, acked.collect())
    damaged = Frames(events, frames.payloads, frames.snapshots, frames.checkpoints, frames.segments)
    found = audit(damaged, kept(lives(damaged.events))).collect()
    assert {(one.fault, one.msg_id, one.queue) for one in found} == expected

    first = acked.first()
    take_row_away(Path(lake), first.msg_id, first.queue)
    command = [sys.executable, "-m", "leveret", "pipeline", "audit", "--lake", lake, "--master", "local[1]"]
    done = subprocess.run([*command, "--driver-memory", "700m", *QUICK], capture_output=True, text=True)
    assert done.returncode == 2, done.stderr
    (named,) = json.loads(done.stdout)["found"]
    assert (named["fault"], named["msg_id"], named["queue"]) == ("lost", first.msg_id, first.queue)


def planted(events: Any, acked: list[Any]) -> tuple[Any, set[tuple[str, int, str]]]:
    """The events with one fault for each of five acked messages, and (fault, message, queue) of all: an ack gone, an
    enqueued gone, either of them twice, an enqueued behind its ack."""
    one, two, three, four, five = acked

    def row(of: Any, kind: str) -> str:
        return f"(kind = '{kind}' AND msg_id = {of.msg_id} AND queue = '{of.queue}')"

    gone = f"{row(one, 'acked')} OR {row(two, 'enqueued')}"
    moved = F.expr(f"IF({row(five, 'enqueued')}, {five.lsn} + 1, lsn)")
    twice = events.where(f"{row(three, 'acked')} OR {row(four, 'enqueued')}")
    damaged = events.where(f"NOT ({gone})").withColumn("lsn", moved).unionByName(twice)
    faults = ("lost", "lost", "duplicate", "duplicate", "reordered")
    return damaged, {(fault, of.msg_id, of.queue) for fault, of in zip(faults, acked, strict=True)}


def take_row_away(lake: Path, msg_id: int, queue: str) -> None:
    """The `acked` of a message, out of the lake's own files, as if it had never been written."""
    log = lake / "events" / "_spark_metadata" / "0"
    version, *entries = log.read_text().splitlines()
    for number, entry in enumerate(map(json.loads, entries)):
        path = Path(urlparse(entry["path"]).path)
        table = parquet.read_table(path, partitioning=None)
        kind, id_, of = (table.column(name).to_pylist() for name in ("kind", "msg_id", "queue"))
        keep = [row != ("acked", msg_id, queue) for row in zip(kind, id_, of)]
        parquet.write_table(table.filter(keep), path)
        path.with_name(f".{path.name}.crc").unlink()
        entries[number] = json.dumps({**entry, "size": path.stat().st_size})
    log.write_text("\n".join([version, *entries]))
    log.with_name(".0.crc").unlink()
