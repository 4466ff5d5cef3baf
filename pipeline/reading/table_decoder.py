"""Decodes chunks of records into rows of the tables other than `events`."""

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from ...engine import ContentError, FieldTableError, decode_properties
from ...journal.disk.segment import segment_name
from ...journal.format.errors import BadRecord, Damaged
from ...journal.format.heap import VERSION, decode_content, decode_head
from ...journal.recovery.snapshot import PART_HEAD
from ..json_values import json_of, utf8
from ..schemas import Columns, arrow
from .chunks import Chunk
from .predicate import TABLE_CODES

BATCH_OCTETS = 8 * 1024 * 1024
BATCH_ROWS = 16_384


class TableDecoder:
    """Makes batches of rows of one table, with the requested columns."""

    def __init__(self, table: str, columns: Columns) -> None:
        self._schema = arrow(columns)
        self._codes = list(TABLE_CODES.get(table, ()))
        self._rows = {
            "payloads": _payloads,
            "snapshots": _snapshots,
            "checkpoints": _checkpoints,
            "segments": _segments,
            "holes": _holes,
        }[table]

    def batches(self, chunk: Chunk) -> Iterator[Any]:
        """The rows of a chunk. Raises: Damaged."""
        indices = np.flatnonzero(np.isin(chunk.records["kind"], self._codes))
        try:
            for columns in self._rows(chunk, indices):
                arrays = [pa.array(columns[field.name], field.type) for field in self._schema]
                yield pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        except BadRecord as error:
            raise Damaged(segment_name(chunk.segment), 0, str(error)) from error


def _snapshots(chunk: Chunk, indices: Any) -> Iterator[dict[str, Any]]:
    for index in indices:
        record = chunk.records[index]
        ids = snapshot_ids(chunk.heap(int(index)))
        count = len(ids)
        queue_id = int(record["queue_id"])
        yield {
            "lsn": np.full(count, chunk.lsns[index]),
            "ts": np.full(count, record["ts_us"]),
            "queue": [utf8(chunk.names.text(queue_id))] * count,
            "vhost": [utf8(chunk.names.vhost_text(queue_id))] * count,
            "msg_id": ids,
        }


def snapshot_ids(heap: bytes) -> Any:
    """The message ids in a snapshot's part, in the order of its runs. Raises: BadRecord."""
    if len(heap) < PART_HEAD.size or heap[0] != VERSION:
        raise BadRecord("a snapshot part that is cut short, or of another version")
    _, _, _, count, run_count, _ = PART_HEAD.unpack_from(heap)
    start = PART_HEAD.size
    if start + 20 * run_count > len(heap):
        raise BadRecord("a snapshot part is cut short")
    firsts = np.frombuffer(heap, "<i8", run_count, start)
    counts = np.frombuffer(heap, "<u4", run_count, start + 16 * run_count).astype(np.int64)
    if counts.sum() != count or count > 1 << 24:
        raise BadRecord("the runs of a snapshot part do not add up")
    ends = np.cumsum(counts)
    return np.repeat(firsts - (ends - counts), counts) + np.arange(count)


def _checkpoints(chunk: Chunk, indices: Any) -> Iterator[dict[str, Any]]:
    if len(indices):
        records = chunk.records[indices]
        yield {"begin_lsn": records["arg"].copy(), "end_lsn": chunk.lsns[indices] + 1, "ts": records["ts_us"].copy()}


def _segments(chunk: Chunk, indices: Any) -> Iterator[dict[str, Any]]:
    for index in indices:
        yield {
            "segment": [segment_name(chunk.segment)],
            "base_lsn": [chunk.segment],
            "ts": [int(chunk.records[index]["ts_us"])],
            "scope": [chunk.header.scope],
            "fsync": [chunk.header.mode],
            "program": [utf8(decode_head(chunk.heap(int(index))).program)],
        }


def _holes(chunk: Chunk, indices: Any) -> Iterator[dict[str, Any]]:
    for one in chunk.holes:
        yield {
            "journal": [one.journal],
            "first_lsn": [one.first_lsn],
            "last_lsn": [one.last_lsn],
            "why": [one.why],
            "segment": [segment_name(one.segment)],
            "file_offset": [one.offset],
            "octets": [one.octets],
            "before_ts": [one.before_us],
            "after_ts": [one.after_us],
        }


def _payloads(chunk: Chunk, indices: Any) -> Iterator[dict[str, Any]]:
    names = list(_content_row(chunk, int(indices[0]))) if len(indices) else []
    rows: dict[str, list[Any]] = {name: [] for name in names}
    octets = 0
    for index in indices:
        row = _content_row(chunk, int(index))
        for name in names:
            rows[name].append(row[name])
        octets += len(row["body"])
        if octets >= BATCH_OCTETS or len(rows["lsn"]) >= BATCH_ROWS:
            yield rows
            rows, octets = {name: [] for name in names}, 0
    if rows.get("lsn"):
        yield rows


def _content_row(chunk: Chunk, index: int) -> dict[str, Any]:
    record = chunk.records[index]
    address_id = int(record["address_id"])
    content = decode_content(chunk.heap(index))
    end = 4 + int.from_bytes(content.content[:4], "big")
    try:
        properties = decode_properties(content.content[4:end])
    except (ContentError, FieldTableError):
        properties = {"$undecodable": content.content[4:end]}
    headers = properties.pop("headers", {})
    return {
        "lsn": int(chunk.lsns[index]),
        "ts": int(record["ts_us"]),
        "msg_id": int(record["msg_id"]),
        "cause_id": content.cause_id,
        "vhost": utf8(chunk.names.vhost_text(address_id)),
        "address": utf8(chunk.names.text(address_id)),
        "routing_key": content.routing_key.decode("utf-8", "backslashreplace"),
        "headers_json": json.dumps(json_of(headers)),
        "properties_json": json.dumps(json_of(properties)),
        "body": content.content[end:],
        "segment": segment_name(chunk.segment),
    }
