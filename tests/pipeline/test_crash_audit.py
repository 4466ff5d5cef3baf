"""A broker killed under load again and again: the audit and the client agree about every message."""

from __future__ import annotations

import json
import random
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="Spark is not installed (make spark)")
sys.path.insert(0, str(Path(__file__).parents[1] / "journal"))
from crash_rounds import QUEUES, Client, Truth, one_round, serve

from leveret.pipeline.ingest import IngestOptions, ingest
from leveret.pipeline.jobs.audit import audit, fates
from leveret.pipeline.jobs.frames import Frames
from leveret.pipeline.jobs.lives import lives
from leveret.pipeline.progress import Progress

pytestmark = pytest.mark.spark
ROUNDS = 6


@pytest.mark.timeout(300)
def test_the_audit_agrees_with_the_client(spark: Any, tmp_path: Path) -> None:
    """Open is what a last look finds; acknowledged for good is acked; confirmed is one of the two; and no fault.

    Then one row of the same journal is taken away, or doubled: that message is named.
    """
    chance, truth = random.Random(11), Truth()
    journal = tmp_path / "data"
    for number in range(ROUNDS):
        one_round(str(tmp_path), "commit", truth, chance)
        if number == 0:  # nothing goes before it is read
            (readers,) = journal.rglob("readers")
            (readers / "test.json").write_text(json.dumps({"lsn": 1}))
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
    assert audit(frames, folded).collect() == []
    assert frames.checkpoints.count() >= 1
    bodies = frames.payloads.selectExpr("msg_id", "CAST(CAST(body AS string) AS int) AS number")
    fate = {
        (row.queue, row.number): row.fate
        for row in fates(frames, folded).join(bodies, "msg_id").select("queue", "number", "fate").collect()
    }
    assert len(fate) > 100
    for queue in QUEUES:
        assert {number for (of, number), word in fate.items() if of == queue and word == "open"} == set(there[queue])
        acked = {number for (of, number), word in fate.items() if of == queue and word == "acked"}
        assert acked >= truth.sure - set(there[queue])
        assert acked <= truth.acked[queue]

    for fault, victim in (("lost", "kind = 'acked'"), ("lost", "kind = 'enqueued'"), ("duplicate", "kind = 'acked'")):
        lsn = frames.events.where(victim).agg({"lsn": "min"}).first()[0]
        row = frames.events.where(f"{victim} AND lsn = {lsn}").limit(1)
        id_ = row.first().msg_id
        queue = row.first().queue
        if fault == "lost":
            events = frames.events.where(f"NOT ({victim} AND msg_id = {id_} AND queue = '{queue}')")
        else:
            events = frames.events.unionByName(row)
        planted = Frames(events, frames.payloads, frames.snapshots, frames.checkpoints, frames.segments)
        found = audit(planted, lives(planted.events)).collect()
        assert {(one.fault, one.msg_id, one.queue) for one in found} == {(fault, id_, queue)}
