"""A broker killed under load again and again: the audit and the client agree about every message."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
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
from leveret.pipeline.jobs.frames import Frames
from leveret.pipeline.jobs.lives import lives
from leveret.pipeline.progress import Progress

pytestmark = pytest.mark.spark
ROUNDS = 6
FATES = ("open", "acked")


@pytest.mark.timeout(300)
def test_the_audit_agrees_with_the_client(spark: Any, tmp_path: Path) -> None:
    """Open is what a last look finds; acknowledged for good is acked; confirmed is one of the two; and no fault.

    Then one row of the same journal is taken away, doubled, or moved: that message is named, and the exit code is 2.
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
    folded = lives(frames.events)
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

    first = frames.events.where("kind = 'acked' AND msg_id > 0").orderBy("lsn", "msg_id", "queue").first()
    whose = f"msg_id = {first.msg_id} AND queue = '{first.queue}'"
    for fault, kind, events in planted(frames.events, whose, first.lsn):
        damaged = Frames(events, frames.payloads, frames.snapshots, frames.checkpoints, frames.segments)
        found = audit(damaged, lives(damaged.events)).collect()
        assert {(one.fault, one.msg_id, one.queue) for one in found} == {(fault, first.msg_id, first.queue)}, kind

    take_row_away(Path(lake), first.msg_id, first.queue)
    command = [sys.executable, "-m", "leveret", "pipeline", "audit", "--lake", lake, "--master", "local[1]"]
    done = subprocess.run([*command, "--driver-memory", "700m"], capture_output=True, text=True)
    assert done.returncode == 2, done.stderr
    (named,) = json.loads(done.stdout)["found"]
    assert (named["fault"], named["msg_id"], named["queue"]) == ("lost", first.msg_id, first.queue)


def planted(events: Any, whose: str, acked: int) -> Iterator[tuple[str, str, Any]]:
    """(fault, kind of the row, events with it): a row gone, a row twice, an enqueued behind its ack."""
    for kind in ("acked", "enqueued"):
        it = f"({whose} AND kind = '{kind}')"
        yield "lost", kind, events.where(f"NOT {it}")
        yield "duplicate", kind, events.unionByName(events.where(it))
    moved = events.where(it).withColumn("lsn", F.lit(acked + 1))
    yield "reordered", kind, events.where(f"NOT {it}").unionByName(moved)


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
