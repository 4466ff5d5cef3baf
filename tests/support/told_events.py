"""Events written as lines, made into the tables that jobs read.

    tables = told(engine, "1 0 published 1", "2 0 enqueued 1 q", "3 40 delivered 1 q attempt=1 consumer=c")

A line: LSN, milliseconds, kind, message, queue; then columns by name. Durable unless flags say otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pyarrow as pa

from leveret.pipeline.engines.protocol import Engine
from leveret.pipeline.jobs.outputs import ORDERS
from leveret.pipeline.jobs.tables import Tables
from leveret.pipeline.schemas import TABLES, arrow

NUMBERS = ("conn_id", "attempt", "flags", "priority", "arg_ms", "size_bytes", "cause_id")
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def at(ms: float) -> datetime:
    return BEGIN + timedelta(milliseconds=ms)


def _event(line: str) -> dict[str, Any]:
    lsn, ms, kind, msg_id, *rest = line.split()
    queue = rest.pop(0) if rest and "=" not in rest[0] else ""
    row: dict[str, Any] = {
        "lsn": int(lsn), "ts": at(float(ms)), "kind": kind, "msg_id": int(msg_id), "vhost": "/", "address": "",
        "queue": queue, "consumer": None, "conn_id": 0, "attempt": 0, "flags": 1, "priority": 0, "reason": None,
        "arg_ms": None, "size_bytes": 10 if kind in ("published", "enqueued") else 0, "segment": "s1", "cause_id": None,
    }  # fmt: skip
    for word in rest:
        name, value = word.split("=", 1)
        row[name] = int(value) if name in NUMBERS else value
    return row


def told(
    engine: Engine,
    *lines: str,
    snapshots: dict[tuple[int, int], dict[Any, list[int]]] | None = None,
    payloads: list[dict[str, Any]] | None = None,
    scope: str = "all",
    base_lsn: int = 1,
    holes: Sequence[tuple[int, int]] = (),
) -> Tables:
    """`snapshots`: (begin, end) LSN of a checkpoint -> queue, or (virtual host, queue) -> messages; the snapshot's own
    LSN is begin. `holes`: first and last record."""
    events = [_event(line) for line in lines]
    held = snapshots or {}
    rows: dict[str, list[dict[str, Any]]] = {
        "events": events,
        "payloads": payloads or [],
        "snapshots": [
            {"lsn": span[0], "ts": BEGIN, "queue": queue, "vhost": vhost, "msg_id": id_}
            for span, queues in held.items()
            for name, ids in queues.items()
            for vhost, queue in [name if isinstance(name, tuple) else ("/", name)]
            for id_ in ids
        ],
        "checkpoints": [{"begin_lsn": begin, "end_lsn": end, "ts": BEGIN} for begin, end in held],
        "segments": [
            {"segment": "s1", "base_lsn": base_lsn, "ts": BEGIN, "scope": scope, "fsync": "commit", "program": "test"}
        ],
        "holes": [
            {"journal": "j", "first_lsn": a, "last_lsn": b, "why": "a test", "segment": "s1", "file_offset": 0}
            for a, b in holes
        ],
    }
    for name, columns in TABLES.items():
        engine.memory_table(f"whole_{name}", pa.Table.from_pylist(rows[name], arrow(columns)))
    return Tables(engine, has_holes=bool(holes))


def answered(tables: Tables, job: str, sql: str) -> list[Any]:
    """The rows of a job's query in the job's order, with their values as attributes."""
    rows = tables.engine.stream(f"SELECT * FROM ({sql}) AS answer ORDER BY {ORDERS[job]}")
    return [SimpleNamespace(**row) for row in rows]
