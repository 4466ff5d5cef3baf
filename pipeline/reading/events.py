"""Decodes chunks of records into rows of the table `events`: Arrow batches, column by column.

A record for many messages (flag range) becomes a row for each message. Names are looked up once for each id in a chunk,
not for each row. Source: Spark page 2 and 3.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from ...engine import EventKind, FieldTableError, decode_table, json_of_table
from ...journal.disk.segment import segment_name
from ...journal.format.errors import BadRecord, Damaged
from ...journal.format.heap import CAUSE_ID_OFFSET, decode_declared, decode_runs, decode_text
from ...journal.format.record import (
    CODE_OF,
    DECLARED,
    DELIVERED,
    DUE,
    ENQUEUED,
    KIND_NAMES,
    MOVED,
    OTHER_REASON,
    PUBLISHED,
    RANGE,
    REASONS,
    REQUEUED,
    RESTATED,
    SCHEDULED,
    SETTINGS_CHANGED,
    UNDECLARED,
)
from ..json_values import utf8
from ..schemas import Columns, arrow
from .chunks import ROWS, Chunk
from .predicate import Predicate

INT32_MAX, INT16_MAX = (1 << 31) - 1, (1 << 15) - 1


def _kind_mask(codes: Sequence[int]) -> Any:
    """An array that is True at these codes of record kinds."""
    table: Any = np.zeros(256, bool)
    table[list(codes)] = True
    return table


HAS_TIME = _kind_mask([PUBLISHED, ENQUEUED, REQUEUED, SCHEDULED, DUE])
HAS_ATTEMPT = _kind_mask([DELIVERED, REQUEUED, SCHEDULED, CODE_OF[EventKind.LEASE_ENDED]])
HAS_SIZE = _kind_mask([PUBLISHED, ENQUEUED, MOVED])
NAMES_BY_ARG = _kind_mask([DECLARED, UNDECLARED, SETTINGS_CHANGED])
TEXT_KINDS = (
    EventKind.BLOCKED,
    EventKind.UNBLOCKED,
    EventKind.SETTINGS_CHANGED,
    EventKind.CONNECTION_OPENED,
    EventKind.CONNECTION_CLOSED,
    EventKind.CONSUMER_ADDED,
    EventKind.CONSUMER_REMOVED,
    EventKind.LED,
    EventKind.FOLLOWED,
    EventKind.IN_SYNC_CHANGED,
    EventKind.HELD,
    EventKind.SUSPENDED,
)
IS_TEXT = _kind_mask([CODE_OF[kind] for kind in TEXT_KINDS])
KINDS = pa.array([KIND_NAMES.get(code, "") for code in range(256)])
REASON_WORDS = pa.array([None, *REASONS[1:], *[None] * (256 - len(REASONS))], pa.string())


class EventDecoder:
    """Makes batches of the rows that a predicate allows, with the requested columns."""

    def __init__(self, columns: Columns, predicate: Predicate) -> None:
        self._schema = arrow(columns)
        self._predicate = predicate
        self._kinds = _kind_mask(sorted(predicate.kinds()))

    def batches(self, chunk: Chunk) -> Iterator[Any]:
        """The rows of a chunk, in batches of about 65,536 rows. Raises: Damaged."""
        records = chunk.records
        kept = self._kinds[records["kind"]] & ((records["flags"] & RESTATED) == 0)
        for column, values in (("lsn", chunk.lsns), ("ts", records["ts_us"]), ("conn_id", records["conn_id"])):
            allowed = self._predicate.of(column)
            if allowed is not None:
                kept &= allowed.mask(values)
        indices = np.flatnonzero(kept)
        if not len(indices):
            return
        ranges = indices[np.flatnonzero(records["flags"][indices] & RANGE)]
        if not len(ranges):
            yield from self._batch(_Rows(chunk, indices, records["msg_id"][indices]))
            return
        counts: Any = np.ones(len(records), np.int64)
        counts[ranges] = records["size"][ranges]
        yield from self._expanded(chunk, indices, counts[indices])

    def _expanded(self, chunk: Chunk, indices: Any, counts: Any) -> Iterator[Any]:
        """Batches with one row for each message. While there are too many rows, the records are divided in halves."""
        if counts.sum() > 2 * ROWS and len(indices) > 1:
            middle = len(indices) // 2
            for part in (slice(None, middle), slice(middle, None)):
                yield from self._expanded(chunk, indices[part], counts[part])
            return
        ids = _ids(chunk, indices, counts)
        index: Any = np.repeat(indices, counts)
        for start in range(0, len(ids), 2 * ROWS):
            stop = start + 2 * ROWS
            yield from self._batch(_Rows(chunk, index[start:stop], ids[start:stop]))

    def _batch(self, rows: "_Rows") -> Iterator[Any]:
        predicate = self._predicate
        kept = None
        allowed = predicate.of("msg_id")
        if allowed is not None:
            kept = allowed.mask(rows.ids)
        for column, ids in (("queue", rows.queue_ids), ("address", rows.address_ids), ("vhost", rows.owner_ids)):
            allowed = predicate.of(column)
            if allowed is not None:
                name = rows.vhost_name if column == "vhost" else rows.name
                mask = _by_id(ids, lambda id_: allowed.allows(name(id_) if id_ else ""))  # noqa: B023
                kept = mask if kept is None else kept & mask
        if kept is not None:
            rows = rows.only(np.flatnonzero(kept))
        if len(rows.index):
            yield pa.RecordBatch.from_arrays([COLUMNS[field.name](rows) for field in self._schema], schema=self._schema)


class _Rows:
    """Rows of a chunk. `index`: the record of each row; `ids`: the message of each row."""

    def __init__(self, chunk: Chunk, index: Any, ids: Any) -> None:
        self.chunk = chunk
        self.index = index
        self.ids = ids
        self.records = chunk.records[index]
        self.name = chunk.names.text
        self.vhost_name = chunk.names.vhost_text

    def only(self, chosen: Any) -> "_Rows":
        """A selection of these rows. `chosen`: their indices."""
        return _Rows(self.chunk, self.index[chosen], self.ids[chosen])

    def field(self, name: str) -> Any:
        """A field of the records, as a contiguous array."""
        return np.ascontiguousarray(self.records[name])

    @property
    def queue_ids(self) -> Any:
        return self.field("queue_id")

    @property
    def address_ids(self) -> Any:
        return self.field("address_id")

    @property
    def owner_ids(self) -> Any:
        """For each row the id of a name that tells its virtual host: its queue, else its exchange, else `arg` or the
        connection.
        """
        records = self.records
        by_arg = NAMES_BY_ARG[records["kind"]]
        owner = np.where(by_arg, np.clip(records["arg"], 0, INT32_MAX), records["conn_id"]).astype(np.int32)
        owner = np.where(records["address_id"] != 0, records["address_id"], owner)
        return np.where(records["queue_id"] != 0, records["queue_id"], owner)


def _ids(chunk: Chunk, indices: Any, counts: Any) -> Any:
    """The message ids of records, `counts` ids for each: consecutive ones, unless the record's heap lists runs."""
    records = chunk.records[indices]
    ends = np.cumsum(counts)
    ids = np.repeat(records["msg_id"] - (ends - counts), counts) + np.arange(ends[-1])
    is_range = records["flags"] & RANGE != 0
    has_runs = is_range & (records["heap_len"] > 0)
    faulty = is_range & ~has_runs & (records["arg"] - records["msg_id"] + 1 != counts)
    for at in np.flatnonzero(has_runs):
        try:
            runs = decode_runs(chunk.heap(int(indices[at])))
        except BadRecord as error:
            raise Damaged(segment_name(chunk.segment), 0, f"record {chunk.lsns[indices[at]]}: {error}") from error
        if sum(count for _, count in runs) != counts[at]:
            faulty[at] = True
            continue
        listed: Any = [np.arange(first, first + count, dtype=np.int64) for first, count in runs]
        ids[ends[at] - counts[at] : ends[at]] = np.concatenate(listed)
    if faulty.any():
        lsn = chunk.lsns[indices[np.flatnonzero(faulty)[0]]]
        raise Damaged(segment_name(chunk.segment), 0, f"record {lsn} does not say which messages it stands for")
    return ids


def _by_id(ids: Any, answer: Callable[[int], bool]) -> Any:
    unique, inverse = np.unique(ids, return_inverse=True)
    return np.array([answer(int(id_)) for id_ in unique], bool)[inverse]


def _names(ids: Any, name: Callable[[int], str], none: str | None) -> Any:
    """The name of each id; for id 0, `none`."""
    encoded = pa.array(ids).dictionary_encode()
    words = [name(id_) if id_ else none for id_ in encoded.dictionary.to_pylist()]
    return pa.array([None if word is None else utf8(word) for word in words], pa.string()).take(encoded.indices)


def _reason(rows: _Rows) -> Any:
    """Reasons by their codes. Some kinds have a text instead, and declared queues have their arguments."""
    records = rows.records
    words = REASON_WORDS.take(pa.array(rows.field("reason")))
    is_queue = (records["kind"] == DECLARED) & (records["queue_id"] != 0)
    with_text: Any = np.flatnonzero(
        ((records["reason"] == OTHER_REASON) | IS_TEXT[records["kind"]] | is_queue) & (records["heap_len"] > 0)
    )
    if not len(with_text):
        return words
    patched = words.to_pylist()
    for at in with_text:
        index = int(rows.index[at])
        try:
            heap = rows.chunk.heap(index)
            patched[at] = _arguments(heap) if is_queue[at] else utf8(decode_text(heap)) or None
        except (BadRecord, FieldTableError) as error:
            raise Damaged(segment_name(rows.chunk.segment), 0, f"record {rows.chunk.lsns[index]}: {error}") from error
    return pa.array(patched, pa.string())


def _arguments(heap: bytes) -> str | None:
    """A queue's arguments as JSON. Raises: BadRecord, FieldTableError."""
    table = decode_declared(heap).arguments
    return json.dumps(json_of_table(decode_table(table, 0)[0])) if table else None


def _arg_ms(rows: _Rows) -> Any:
    """Milliseconds from the record's time to the time in `arg`; null if there is no time in it, or it is never."""
    args = rows.field("arg")
    is_null = ~(HAS_TIME[rows.records["kind"]] & (args > 0))
    return pa.array(args - rows.records["ts_us"] // 1000, mask=is_null)


def _cause_id(rows: _Rows) -> Any:
    """The messages of which the broker published copies, from the heap entries of records; null for all other rows."""
    causes: Any = np.zeros(len(rows.index), np.int64)
    published = np.flatnonzero(rows.records["kind"] == PUBLISHED)
    causes[published] = rows.chunk.heap_integers(rows.index[published], CAUSE_ID_OFFSET)
    return pa.array(causes, mask=causes <= 0)


def _attempt(rows: _Rows) -> Any:
    records = rows.records
    counted = records["attempt"].astype(np.int64) - np.minimum(records["link"], records["attempt"])
    return pa.array(np.where(HAS_ATTEMPT[records["kind"]], np.minimum(counted, INT16_MAX), 0).astype(np.int16))


def _size(rows: _Rows) -> Any:
    sizes = np.minimum(rows.records["size"], INT32_MAX)
    return pa.array(np.where(HAS_SIZE[rows.records["kind"]], sizes, 0).astype(np.int32))


def _segment(rows: _Rows) -> Any:
    name = pa.array([segment_name(rows.chunk.segment)])
    return name.take(pa.array(np.zeros(len(rows.index), np.int8)))


COLUMNS: dict[str, Callable[[_Rows], Any]] = {
    "lsn": lambda rows: pa.array(rows.chunk.lsns[rows.index]),
    "ts": lambda rows: pa.array(rows.field("ts_us")).cast(pa.timestamp("us", tz="UTC")),
    "kind": lambda rows: KINDS.take(pa.array(rows.field("kind"))),
    "msg_id": lambda rows: pa.array(rows.ids),
    "vhost": lambda rows: _names(rows.owner_ids, rows.vhost_name, ""),
    "address": lambda rows: _names(rows.address_ids, rows.name, ""),
    "queue": lambda rows: _names(rows.queue_ids, rows.name, ""),
    "consumer": lambda rows: _names(rows.field("consumer_id"), rows.name, None),
    "conn_id": lambda rows: pa.array(rows.field("conn_id")),
    "attempt": _attempt,
    "flags": lambda rows: pa.array(rows.field("flags").view(np.int8)),
    "priority": lambda rows: pa.array(rows.field("priority").view(np.int8)),
    "reason": _reason,
    "arg_ms": _arg_ms,
    "size_bytes": _size,
    "segment": _segment,
    "cause_id": _cause_id,
}
