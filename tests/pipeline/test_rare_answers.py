"""Answers that depend on something rare: a limit that pushes out, a second start, a checkpoint, a journal in parts."""

from __future__ import annotations

import argparse
import io
import json
from typing import Any

import pytest
from told_events import BEGIN, answered, told

pytest.importorskip("pyarrow", reason="the pipeline's libraries are not installed (make spark)")
from leveret.pipeline.jobs.audit import audit, fates
from leveret.pipeline.jobs.backlog import blocked, depth
from leveret.pipeline.jobs.failures import deadletters, loss, redelivery
from leveret.pipeline.jobs.functions import JOBS, JobContext
from leveret.pipeline.progress import Progress
from leveret.pipeline.selection import Selection

START = "settings_changed 0 reason={} vhost="


def faults(tables: Any) -> list[tuple[str, int]]:
    return [(row.fault, row.msg_id) for row in answered(tables, "audit", audit(tables).faults)]


def fate_of(tables: Any) -> dict[int, str]:
    return {row.msg_id: row.fate for row in answered(tables, "fates", fates(tables))}


def test_a_full_queue_loses_what_it_had_and_refuses_what_comes(engine: Any) -> None:
    """The first was accepted, and its publisher does not know; the other never entered the queue."""
    tables = told(
        engine, "1 0 published 1", "2 0 enqueued 1 q", "3 5 published 2", "4 5 enqueued 2 q",
        "5 5 dropped 1 q reason=maxlen", "6 9 published 3", "7 9 dropped 3 q reason=maxlen",
    )  # fmt: skip
    (row,) = answered(tables, "loss", loss(tables))
    assert (row.cause, row.n, row.refused, row.bytes) == ("dropped", 1, 1, 10)


def test_the_only_start_in_a_lake_is_a_second_one(engine: Any) -> None:
    """If the lake begins after the journal; a delivery before it and one behind it are two, whatever the marks say."""
    lines = ("delivered 1 q attempt=1 consumer=a", START, "delivered 1 q attempt=1 consumer=b")
    for first, expected in ((1, []), (5, [(1, 1)])):
        told_lines = [f"{lsn} {lsn} {what}" for lsn, what in enumerate(lines, first)]
        tables = told(engine, *told_lines, base_lsn=first)
        rows = answered(tables, "redelivery", redelivery(tables))
        assert [(row.msg_id, row.redeliveries) for row in rows] == expected


def test_a_lease_that_ends_with_its_message_is_no_return(engine: Any) -> None:
    """The message expired while a consumer had it: the lease ended, but nothing came back."""
    tables = told(
        engine, "1 0 enqueued 1 q", "2 1 delivered 1 q attempt=1 consumer=a", "3 9 lease_ended 1 q reason=lifetime",
        "4 9 expired 1 q", "5 0 enqueued 2 q", "6 1 delivered 2 q attempt=1 consumer=a",
        "7 9 lease_ended 2 q reason=deadline", "8 10 delivered 2 q attempt=2 consumer=a flags=33", "9 11 acked 2 q",
    )  # fmt: skip
    rows = answered(tables, "redelivery", redelivery(tables))
    assert [(row.msg_id, row.requeues) for row in rows] == [(2, 1)]


def letter(msg_id: int, cause_id: int, died_in: str) -> dict[str, Any]:
    return {
        "lsn": 20 + msg_id, "ts": BEGIN, "msg_id": msg_id, "cause_id": cause_id, "vhost": "/", "address": "dlx",
        "routing_key": "", "headers_json": json.dumps({"x-death": [{"queue": died_in}]} if died_in else {}),
        "properties_json": "{}", "body": b"", "segment": "s1",
    }  # fmt: skip


def test_a_message_that_died_in_two_queues(engine: Any) -> None:
    """Each death has its own copy: that of q arrived, that of r was routed nowhere. Whoever had it last is named."""
    tables = told(
        engine, "1 0 enqueued 1 q", "2 0 enqueued 1 r", "3 1 delivered 1 q attempt=1 consumer=first",
        "4 2 delivered 1 q attempt=2 consumer=last", "5 3 dead_lettered 1 q reason=rejected", "6 3 published 2",
        "7 3 enqueued 2 dead", "8 4 dead_lettered 1 r reason=rejected", "9 4 published 3",
        payloads=[{**letter(1, 0, ""), "lsn": 1}, letter(2, 1, "q"), letter(3, 1, "r")],
    )  # fmt: skip
    rows = {row.queue: row for row in answered(tables, "deadletters", deadletters(tables))}
    assert {queue: (row.outcome, row.arrived_in) for queue, row in rows.items()} == {
        "q": ("arrived", ["dead"]),
        "r": ("nowhere", []),
    }
    assert rows["q"].last_consumer == "last"


def test_what_a_checkpoint_may_lack(engine: Any) -> None:
    """What entered while it was written, and what is not durable; but nothing else."""
    lines = ("1 0 enqueued 1 q", "2 0 enqueued 2 q flags=0", "12 0 enqueued 3 q")
    tables = told(engine, *lines, snapshots={(10, 14): {"q": [1]}})
    assert faults(tables) == []
    assert faults(told(engine, *lines, snapshots={(20, 24): {"q": [1]}})) == [("lost", 3)]


@pytest.mark.parametrize("lsn", [20, 1 << 20, 5 << 20])
def test_an_older_message_that_entered_much_later(engine: Any, lsn: int) -> None:
    """The audit looks at the journal in parts of a million records: the order counts across them."""
    tables = told(engine, "10 0 enqueued 9 q", f"{lsn} 1 enqueued 5 q", f"{lsn + 1} 2 enqueued 11 q")
    assert faults(tables) == [("reordered", 5)]


def test_a_checkpoint_behind_a_hole_tells_what_is_there(engine: Any) -> None:
    """Of two messages of before the hole one is in it: that one is open, of the other nobody knows."""
    lines = ("1 0 enqueued 1 q", "2 0 enqueued 2 q", "30 9 published 3", "31 9 enqueued 3 q")
    assert fate_of(told(engine, *lines, holes=[(5, 9)])) == {1: "unknown", 2: "unknown", 3: "open"}
    tables = told(engine, *lines, holes=[(5, 9)], snapshots={(20, 22): {"q": [1]}})
    assert fate_of(tables) == {1: "open", 2: "unknown", 3: "open"}


def test_transient_messages_end_with_the_start_that_follows(engine: Any) -> None:
    """Not with an earlier one, and in the backlog not with a later one."""
    tables = told(
        engine, f"1 0 {START}", "2 1000 enqueued 1 q flags=0", f"3 2000 {START}", "4 3000 enqueued 2 q flags=0",
        f"5 9000 {START}", "6 9500 enqueued 3 q flags=0",
    )  # fmt: skip
    assert fate_of(tables) == {1: "ended", 2: "ended", 3: "open"}
    rows = answered(tables, "depth", depth(tables, 1))
    at = {int((row.window_start - BEGIN).total_seconds()): row.depth_end for row in rows}
    assert (at[1], at[2], at[3], at[8], at[9]) == (1, 0, 1, 1, 1)
    assert max(row.depth_max for row in rows) == 1


def test_a_run_into_a_full_ring_is_one_step(engine: Any) -> None:
    """Two arrive, and push two out: the ring never had three."""
    tables = told(
        engine, "1 0 enqueued 1 q", "2 0 enqueued 2 q", "3 5000 enqueued 3 q", "4 5000 enqueued 4 q",
        "5 5000 evicted 1 q", "6 5000 evicted 2 q",
    )  # fmt: skip
    rows = answered(tables, "depth", depth(tables, 1))
    assert [row.depth_max for row in rows] == [2, 2, 2, 2, 2, 2]


@pytest.mark.parametrize(("base_lsn", "duplicates"), [(1, {}), (50, {"delivered again": 1})])
def test_the_only_takeover_in_a_lake(engine: Any, base_lsn: int, duplicates: dict[str, int]) -> None:
    """If the lake begins after the journal, there was a leader before it; else it is that of the first leader."""
    tables = told(
        engine, "60 0 enqueued 1 q", "61 1 delivered 1 q attempt=1 consumer=a", "62 9 led 0 reason=n2",
        "63 9 delivered 1 q attempt=1 consumer=b", base_lsn=base_lsn,
    )  # fmt: skip
    options = argparse.Namespace(selection=Selection(), window=60)
    found = JOBS["audit"](JobContext("audit", tables, options, Progress("audit", io.StringIO())))
    assert (found.facts["faults"], found.facts.get("allowed", {})) == ({}, duplicates)
    assert len(found.facts.get("leaders", ())) == len(duplicates)


def test_a_connection_that_waits_for_two_limits(engine: Any) -> None:
    """At the same time: each wait ends with its own limit."""
    waits = ((1, 0, "blocked", "memory", 0), (2, 10, "blocked", "store", 0), (3, 50, "unblocked", "store", 40))
    text = '{"connection":"c","destination":"q","limit":"%s","waited_ms":%d}'
    lines = [
        f"{lsn} {ms} {kind} 0 conn_id=7 reason={text % (limit, waited)}"
        for lsn, ms, kind, limit, waited in (*waits, (4, 90, "unblocked", "memory", 90))
    ]
    tables = told(engine, *lines)
    rows = answered(tables, "blocked", blocked(tables))
    assert {row.limit: ((row.until - BEGIN).total_seconds(), row.waited_ms) for row in rows} == {
        "store": (0.05, 40),
        "memory": (0.09, 90),
    }
