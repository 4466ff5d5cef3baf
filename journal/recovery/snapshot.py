"""A snapshot part: some of the messages of a queue, as the heap of a `snapshot` record.

Heap, version 1, little-endian: `PART_HEAD` = u8 version, u8 flags (1: a size for each message, else one for all;
2: expiries; 4: priorities), u16 0, u32 messages, u32 runs, u32 states; then i64 first id of each run, i64 LSN of its
first content of each run, u32 messages of each run (ids and content LSNs rise by one within a run); u32 sizes (one, or
one a message); with flag 2 an i64 expiry (wall ms) a message; with flag 4 a u8 a message, the priority of messages
without a state; then the states: i64 id, i64 due (wall ms), u32 deliveries, u32 uncounted, u8 priority, 7 octets 0.
The record has the queue's id and, as `arg`, the octets of all bodies in the part.
Source: ruling 22.
"""

import sys
from array import array
from collections.abc import Iterator, Sequence
from itertools import islice
from struct import Struct
from struct import error as StructError

from ..format.errors import BadRecord
from ..format.heap import VERSION
from ..format.record import DURABLE, RESTATED, SNAPSHOT, TIME_MAX, Record
from .recovered import MessageState, RecoveredMessage, RecoveredQueue

PART_HEAD = Struct("<BBHIII")
_STATE = Struct("<qqIIB7x")
COUNT_MAX = 2**32 - 1
HAS_SIZES, HAS_EXPIRIES, HAS_PRIORITIES = 1, 2, 4
#: Messages in a part: about 5 ms of work.
PART_MESSAGES = 4096


def _octets(values: "array[int]") -> bytes:
    if sys.byteorder == "big":
        values = array(values.typecode, values)
        values.byteswap()
    return values.tobytes()


def _clamped(count: int) -> int:
    return max(0, min(count, COUNT_MAX))


def snapshot_record(queue_id: int, messages: Sequence[RecoveredMessage]) -> Record:
    """A part with these messages. Numbers out of range are written as the nearest number in range."""
    firsts, lsns, counts = array("q"), array("q"), array("I")
    next_id = next_lsn = 0
    states: list[bytes] = []
    priorities = bytearray()
    for message in messages:
        if message.id == next_id and message.content_lsn == next_lsn:
            counts[-1] += 1
        else:
            firsts.append(message.id)
            lsns.append(message.content_lsn)
            counts.append(1)
        next_id, next_lsn = message.id + 1, message.content_lsn + 1
        deliveries, uncounted, due_ms, priority = message.state
        has_state = bool(deliveries or uncounted or due_ms)
        priorities.append(0 if has_state else priority)
        if has_state:
            due_ms, deliveries, uncounted = min(due_ms, TIME_MAX), _clamped(deliveries), _clamped(uncounted)
            states.append(_STATE.pack(message.id, due_ms, deliveries, uncounted, priority))
    sizes = array("I", (message.size for message in messages))
    expiries = array("q", (message.expires_ms for message in messages))
    return _part(
        queue_id,
        (firsts, lsns, counts),
        sizes,
        expiries if any(expiries) else None,
        priorities if any(priorities) else b"",
        states,
    )


def run_record(
    queue_id: int, runs: Sequence[tuple[int, int, int]], sizes: "array[int]", expiries: "array[int] | None" = None
) -> Record:
    """A part of messages without states. `runs`: (first id, LSN of its content, length); a size and expiry for each."""
    firsts, lsns = array("q", (first for first, _, _ in runs)), array("q", (lsn for _, lsn, _ in runs))
    counts = array("I", (count for _, _, count in runs))
    return _part(queue_id, (firsts, lsns, counts), sizes, expiries)


def _part(
    queue_id: int,
    runs: "tuple[array[int], array[int], array[int]]",
    sizes: "array[int]",
    expiries: "array[int] | None",
    priorities: bytes | bytearray = b"",
    states: Sequence[bytes] = (),
) -> Record:
    has_sizes = bool(sizes) and sizes.count(sizes[0]) < len(sizes)
    flags = (HAS_SIZES if has_sizes else 0) | (0 if expiries is None else HAS_EXPIRIES)
    flags |= HAS_PRIORITIES if priorities else 0
    heap = b"".join(
        (
            PART_HEAD.pack(VERSION, flags, 0, len(sizes), len(runs[0]), len(states)),
            *map(_octets, runs),
            _octets(sizes if has_sizes else sizes[:1]),
            b"" if expiries is None else _octets(expiries),
            priorities,
            *states,
        )
    )
    return Record(SNAPSHOT, flags=DURABLE | RESTATED, queue_id=queue_id, arg=sum(sizes), heap=heap)


def snapshot_parts(queue_id: int, messages: Iterator[RecoveredMessage]) -> Iterator[Record]:
    """The parts of all messages of a queue, ids rising."""
    while part := list(islice(messages, PART_MESSAGES)):
        yield snapshot_record(queue_id, part)


def moved_back(wall_ms: int, ms: int) -> int:
    """The wall time minus `ms`; 0 (no time) stays."""
    return max(1, wall_ms - ms) if wall_ms else 0


def load_part(heap: bytes, queue: RecoveredQueue, ahead_ms: int = 0) -> int:
    """Put a part's messages into the queue; returns their number. Raises: BadRecord.

    `ahead_ms`: by how much the clock of its writer was ahead; times are moved back by as much.
    """
    try:
        version, flags, _, count, run_count, state_count = PART_HEAD.unpack_from(heap)
        if version != VERSION:
            raise BadRecord(f"a snapshot part of version {version}")
        position = PART_HEAD.size

        def column(code: str, length: int) -> "array[int]":
            nonlocal position
            values = array(code)
            size = length * values.itemsize
            if position + size > len(heap):
                raise BadRecord("a snapshot part is cut short")
            values.frombytes(heap[position : position + size])
            if sys.byteorder == "big":
                values.byteswap()
            position += size
            return values

        firsts, lsns, counts = column("q", run_count), column("q", run_count), column("I", run_count)
        if sum(counts) != count or count > 1 << 24:
            raise BadRecord("the runs of a snapshot part do not add up")
        sizes = column("I", count if flags & HAS_SIZES else min(count, 1))
        expiries = column("q", count) if flags & HAS_EXPIRIES else None
        if expiries is not None and ahead_ms:
            expiries = array("q", (moved_back(one, ahead_ms) for one in expiries))
        priorities = bytes(column("B", count)) if flags & HAS_PRIORITIES else None
        if count and not flags & HAS_SIZES:
            sizes *= count
        start = 0
        for first, lsn, length in zip(firsts, lsns, counts):
            end = start + length
            if length:
                queue.extend(
                    range(first, first + length),
                    lsn,
                    sizes[start:end],
                    None if expiries is None else expiries[start:end],
                    None if priorities is None else priorities[start:end],
                )
            start = end
        for _ in range(state_count):
            id_, due_ms, deliveries, uncounted, priority = _STATE.unpack_from(heap, position)
            position += _STATE.size
            due_ms = moved_back(due_ms, ahead_ms)
            queue.set_state(id_, MessageState(deliveries, uncounted, due_ms, priority))
    except (StructError, OverflowError) as error:
        raise BadRecord("a snapshot part is cut short, or has impossible numbers") from error
    return int(count)
