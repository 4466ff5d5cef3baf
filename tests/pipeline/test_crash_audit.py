"""A broker killed under load again and again: the audit and the client agree about every message."""

from __future__ import annotations

import json
import random
import signal
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="Spark is not installed (make spark)")
from pyarrow import parquet
from pyspark.sql import functions as F

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
sys.path.insert(0, str(Path(__file__).parents[1] / "journal"))
from crash.broker import Process, Setup
from crash.lane import Lane
from crash.look import look
from crash.truth import Fact, Line, Operation, Truth
from told_events import answered

from leveret.journal import register_reader
from leveret.pipeline.answers import EXIT_FAULT
from leveret.pipeline.engines.local import LocalEngine
from leveret.pipeline.engines.protocol import value
from leveret.pipeline.engines.spark import SparkEngine
from leveret.pipeline.jobs.audit import audit, fates
from leveret.pipeline.jobs.commands import run
from leveret.pipeline.jobs.opening import open_tables
from leveret.pipeline.jobs.tables import Tables
from leveret.pipeline.lake.ingest import IngestOptions, ingest
from leveret.pipeline.lake.lake import committed_files
from leveret.pipeline.options import parse
from leveret.pipeline.progress import Progress

pytestmark = pytest.mark.spark
ROUNDS, ACKED = 2, 40  # at least; `make crash` has thousands
#: What happens to messages in these is only that they are acknowledged, or rejected and leave no dead letter.
QUEUES = ("a", "b", "quorum")
GONE = ("acked", "killed")
PLANTED = 5


class Remembering(Truth):
    """Knows of every fact that was ever sure, of every one that was ever taken away, and of those acknowledged."""

    def __init__(self) -> None:
        super().__init__()
        self.been: set[Fact] = set()
        self.taken: set[Fact] = set()
        self.acked: set[Fact] = set()

    def did(self, line: Line, what: str, adds: Sequence[Fact] = (), removes: Sequence[Fact] = ()) -> Operation:
        self.taken.update(removes)
        self.acked.update(removes if what.startswith("ack") else ())
        return super().did(line, what, adds, removes)

    def answered(self, operation: Operation) -> None:
        self.been.update(operation.adds)
        super().answered(operation)

    def look(self, facts: Iterable[Fact]) -> None:
        super().look(facts)
        self.been |= self.here


def numbers(facts: Iterable[Fact], queue: str) -> set[int]:
    """Of the messages of a queue among these facts."""
    return {int(str(fact[2])) for fact in facts if fact[:2] == ("message", queue)}


def test_the_audit_agrees_with_the_client(spark: Any, tmp_path: Path) -> None:
    """Open is what a last look finds; settled for good is gone; confirmed is one of the two; and no fault.

    Then rows of the same journal are taken away, doubled, moved: those messages are named, and the exit code is 2.
    """
    lane = Lane(Setup(str(tmp_path), segment_size="2MiB"), random.Random(11))  # few checkpoints
    lane.world.truth = truth = Remembering()
    journal = Path(lane.setup.journal)
    journal.mkdir()
    register_reader(str(journal), "test", 1)  # before the first segment: nothing goes unread
    while lane.figures["kills"] < ROUNDS or len(numbers(truth.acked & truth.been - truth.here, "a")) < ACKED:
        lane.round()
    process = Process(lane.setup, forked=False)
    look(process.port(), lane.world)
    process.stop(signal.SIGTERM)  # a clean end: a last checkpoint

    lake = str(tmp_path / "lake")
    ingest(spark, IngestOptions(str(journal), lake, payloads=True), Progress("ingest"))
    engine = SparkEngine(spark)
    tables = open_tables(lake, engine)
    assert tables.first_lsn() == 1
    assert answered(tables, "audit", audit(tables).faults) == []
    assert value(engine, "SELECT count(*) FROM checkpoints") >= 1
    bodies = "SELECT msg_id, CAST(substring_index(CAST(body AS string), ' ', 1) AS int) AS number FROM payloads"
    numbered = f"SELECT queue, number, fate FROM ({fates(tables)}) AS fated JOIN ({bodies}) AS bodies USING (msg_id)"
    fate = {(row["queue"], row["number"]): row["fate"] for row in engine.stream(numbered)}
    assert len(fate) > 100
    for queue in QUEUES:
        open_ = {number for (of, number), one in fate.items() if of == queue and one == "open"}
        gone = {number for (of, number), one in fate.items() if of == queue and one in GONE}
        there = numbers(truth.here, queue)
        assert open_ == there
        assert gone >= numbers(truth.been, queue) - there  # confirmed or once seen, and gone
        assert gone <= numbers(truth.taken, queue)
        assert open_ | gone == {number for of, number in fate if of == queue}

    # Of a queue to which nothing comes back: that would be a fault of its own.
    whole = spark.table("whole_events")
    acked = whole.where("kind = 'acked' AND msg_id > 0 AND queue = 'a'").orderBy("lsn", "msg_id").limit(PLANTED)
    stated = {row["msg_id"] for row in engine.stream("SELECT DISTINCT msg_id FROM snapshots WHERE queue = 'a'")}
    events, expected = planted(whole, acked.collect(), stated)
    first = acked.first()
    engine.frame("whole_events", events)
    damaged = Tables(engine)
    found = answered(damaged, "audit", audit(damaged).faults)
    assert {(one.fault, one.msg_id, one.queue) for one in found} == expected

    take_row_away(Path(lake), first.msg_id, first.queue)
    spark.catalog.clearCache()  # it would know the lake as it was
    for one in (engine, LocalEngine(tmp_path, threads=1)):
        answer = run(one, "audit", parse(["audit", "--lake", lake]), Progress("audit"))
        assert answer.code == EXIT_FAULT
        (named,) = answer.tables["faults"].head()
        assert (named["fault"], named["msg_id"], named["queue"]) == ("lost", first.msg_id, first.queue)
        one.close()


def planted(events: Any, acked: list[Any], stated: set[int]) -> tuple[Any, set[tuple[str, int, str]]]:
    """The events with one fault for each of five acked messages, and (fault, message, queue) of all: an ack gone, an
    enqueued gone, either of them twice, an enqueued behind its ack.

    What was not enqueued, or too late, is unexpected in the snapshots that state it.
    """
    one, two, three, four, five = acked

    def row(of: Any, kind: str) -> str:
        return f"(kind = '{kind}' AND msg_id = {of.msg_id} AND queue = '{of.queue}')"

    gone = f"{row(one, 'acked')} OR {row(two, 'enqueued')}"
    moved = F.expr(f"IF({row(five, 'enqueued')}, {five.lsn} + 1, lsn)")
    twice = events.where(f"{row(three, 'acked')} OR {row(four, 'enqueued')}")
    damaged = events.where(f"NOT ({gone})").withColumn("lsn", moved).unionByName(twice)
    faults = ("lost", "lost", "duplicate", "duplicate", "reordered")
    expected = {(fault, of.msg_id, of.queue) for fault, of in zip(faults, acked, strict=True)}
    return damaged, expected | {("unexpected", of.msg_id, of.queue) for of in (two, five) if of.msg_id in stated}


def take_row_away(lake: Path, msg_id: int, queue: str) -> None:
    """The `acked` of a message, out of the lake's own files, as if it was never written; its log has their sizes."""
    for path in committed_files(str(lake), "events"):
        before = Path(path).stat().st_size
        table = parquet.read_table(path, partitioning=None)
        kind, id_, of = (table.column(name).to_pylist() for name in ("kind", "msg_id", "queue"))
        keep = [row != ("acked", msg_id, queue) for row in zip(kind, id_, of)]
        parquet.write_table(table.filter(keep), path)
        for log in (lake / "events" / "_delta_log").glob("*.json"):
            lines = [json.loads(line) for line in log.read_text().splitlines()]
            for line in lines:
                added = line.get("add")
                if added and path.endswith(added["path"].rpartition("/")[2]):
                    assert added["size"] == before
                    added["size"] = Path(path).stat().st_size
            log.write_text("".join(json.dumps(line) + "\n" for line in lines))
