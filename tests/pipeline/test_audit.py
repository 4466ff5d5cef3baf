"""The audit finds what was planted, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest
from told_events import answered, told

pytest.importorskip("pyarrow", reason="the pipeline's libraries are not installed (make spark)")
from leveret.pipeline.jobs.audit import audit, fates

GOOD = (
    "1 0 published 1", "2 0 enqueued 1 q", "3 0 published 2", "4 0 enqueued 2 q", "5 1 delivered 1 q attempt=1",
    "6 2 acked 1 q", "7 3 published 3", "8 3 enqueued 3 q", "9 3 enqueued 3 r", "14 9 dropped 9 q flags=0",
)  # fmt: skip
HELD = {(10, 13): {"q": [2, 3], "r": [3]}}


def faults(tables: Any) -> list[tuple[str, int, str]]:
    return sorted((row.fault, row.msg_id, row.queue) for row in answered(tables, "audit", audit(tables).faults))


def without(*gone: int) -> list[str]:
    return [line for line in GOOD if int(line.split()[0]) not in gone]


#: Events, what checkpoints found, faults.
CASES: list[tuple[Any, Any, list[tuple[str, int, str]]]] = [
    (GOOD, HELD, []),
    (without(6), HELD, [("lost", 1, "q")]),  # an ack is missing: the message should be in the queue
    (without(2), HELD, [("lost", 1, "q")]),  # never enqueued, though delivered and acked
    (GOOD, {(10, 13): {"q": [3], "r": [3]}}, [("lost", 2, "q")]),
    (GOOD, {(10, 13): {"q": [1, 2, 3], "r": [3]}}, [("unexpected", 1, "q")]),
    (GOOD, {(10, 13): {"q": [2, 3, 77], "r": [3]}}, [("unexpected", 77, "q")]),
    ([*GOOD, "15 9 enqueued 2 q"], HELD, [("duplicate", 2, "q"), ("reordered", 2, "q")]),
    ([*GOOD, "15 9 acked 1 q"], HELD, [("duplicate", 1, "q")]),
    ([*GOOD, "15 9 delivered 1 q attempt=2"], HELD, [("reordered", 1, "q")]),
    ([*without(2), "7 3 enqueued 1 q"], HELD, [("reordered", 1, "q"), ("reordered", 1, "q")]),
    ([*GOOD, "15 9 acked 2 q flags=2", "16 9 acked 2 q flags=2"], HELD, []),  # kept: a stream's acks
    ([*GOOD, "11 9 acked 2 q"], {(10, 13): {"q": [3], "r": [3]}}, []),  # it went while the checkpoint was written
    ([*GOOD, "11 9 acked 2 q"], HELD, []),
]


@pytest.fixture(scope="module")
def found(engine: Any) -> dict[str, list[tuple[str, int, str]]]:
    """The faults of all cases by one query: each case is a virtual host of its own, which its number names."""
    lines: list[str] = []
    snapshots: dict[tuple[int, int], dict[tuple[str, str], list[int]]] = {}
    for number, (events, held, _) in enumerate(CASES):
        lines += [f"{line} vhost={number}" for line in events]
        for span, queues in held.items():
            snapshots.setdefault(span, {}).update({(str(number), queue): ids for queue, ids in queues.items()})
    tables = told(engine, *lines, snapshots=snapshots)
    by_case: dict[str, list[tuple[str, int, str]]] = {}
    for row in answered(tables, "audit", audit(tables).faults):
        by_case.setdefault(row.vhost, []).append((row.fault, row.msg_id, row.queue))
    return by_case


@pytest.mark.parametrize("number", range(len(CASES)))
def test_planted_faults(found: dict[str, list[tuple[str, int, str]]], number: int) -> None:
    """Each planted fault is found, with its message and queue; a sound journal has none."""
    assert sorted(found.get(str(number), [])) == CASES[number][2]


def test_messages_of_before_the_lake(engine: Any) -> None:
    """A lake that begins in the middle of a journal does not take older messages for lost."""
    tables = told(engine, "100 0 acked 3 q", "101 0 published 9", "102 0 enqueued 9 q", base_lsn=90)
    assert faults(tables) == []
    tables = told(engine, "100 0 acked 3 q", "101 0 published 9", "103 0 acked 9 q", base_lsn=90)
    assert faults(tables) == [("lost", 9, "q")]


def test_fates(engine: Any) -> None:
    """Transient messages end with the broker; all others are open until a terminal event."""
    tables = told(
        engine,
        *GOOD,
        "16 0 published 10 flags=0",
        "17 0 enqueued 10 q flags=0",
        "18 1 settings_changed 0 vhost= reason={}",
    )
    found = {(row.msg_id, row.queue): row.fate for row in answered(tables, "fates", fates(tables))}
    expected = {(1, "q"): "acked", (2, "q"): "open", (3, "q"): "open", (3, "r"): "open"}
    assert found == {**expected, (9, "q"): "dropped", (10, "q"): "ended"}
