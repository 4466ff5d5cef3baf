"""When a world has come to its end, nothing of the broker has grown with what went through it, or keeps what is gone.

Its queues are empty then, but for those that keep everything. So no list, table or set of it has many entries for each
message there, whoever holds it: what is counted is all that can be reached. And no connection, session or queue can be
reached that has ended.
"""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Iterator, Mapping
from functools import partial
from types import FunctionType, MethodType
from typing import Any

from leveret.amqp_frontend.edge.endpoint import Endpoint
from leveret.amqp_frontend.peer.channel import KnownRoute
from leveret.amqp_frontend.wire.publish_cache import PROPERTY_LISTS_MAX
from leveret.engine import Client, Exchange, Queue, Session
from leveret.engine.clients.unacked import SETTLED_MAX
from leveret.engine.publishing.route import Route
from leveret.journal.disk.writer import BLOCK_SIZE_MAX
from leveret.journal.format.record import RECORD_SIZE
from leveret.journal.recording.checkpoint import RUNS_SPARE
from leveret.journal.recording.pager import CACHED_MAX

from .ledger import Broken

#: Entries that anything may have, and entries for each message that is there.
ALWAYS, EACH = 250, 4
#: The most ids that an address of a world remembers.
IDS_MAX = 1000
#: What has its own limit: ids against duplicates, deadlines that were cancelled, tags that were settled (and twice what
#: was out when the index was last asked), the envelopes of what was paged out, the block that waits while the one
#: before is written, what a checkpoint will forget, and the places of records in a segment: of 1 MiB with one in 256
#: octets, the most that a world has.
ALSO = {
    **{"IdCache._message_ids": IDS_MAX, "IdCache._order": IDS_MAX},
    **{"Deadlines._heap": 512, "UnackedIndex._by_queue[]": 2 * SETTLED_MAX},
    **{"EnvelopeCache._summaries": CACHED_MAX, "EnvelopeCache._envelopes": CACHED_MAX},
    "ContentIndex._moved": RUNS_SPARE,
    **dict.fromkeys(("SegmentSummary.index_offsets", "SegmentSummary.index_lsns"), (1 << 20) // 256),
    "PublishCache.summaries": PROPERTY_LISTS_MAX,
    **dict.fromkeys(("BlockBuilder.records", "BlockBuilder.heap"), BLOCK_SIZE_MAX // RECORD_SIZE),
}
#: A segment each, of which the journal keeps many where they are to be retained.
OF_SEGMENTS = frozenset(
    {"OldSegments._unneeded_at", "SegmentUsage.segments", "SegmentUsage._first_ids", "SegmentUsage._bases"}
)
#: What forgets those that are gone when it looks the next time, or when the configuration is read again.
UNTIL_LATER = frozenset({"AcknowledgementWatch._notes[]", "_ManagedQueue.queue"})
#: Of a large table the first entries are looked into.
LOOKED_INTO = 50
TABLES = (dict, list, set, frozenset, deque, bytearray, Mapping)


def check_growth(roots: Mapping[str, object], messages: int, *, retains: bool = False) -> None:
    """`messages`: that are there. `retains`: the journal keeps segments that nobody needs. Raises: Broken."""
    large = {
        where: size
        for where, size in sizes_of(roots)
        if size > ALWAYS + ALSO.get(where, 0) + EACH * messages and not (retains and where in OF_SEGMENTS)
    }
    if large:
        raise Broken(f"{messages} messages are there, and more entries of {large}")


def check_gone(roots: Mapping[str, object], endpoints: Mapping[Endpoint, None]) -> None:
    """Nothing that has ended is known to anybody. `endpoints`: those that have not. Raises: Broken."""
    for where, one in _reached(roots):
        if isinstance(one, Queue):
            is_gone = one.deleted
        elif isinstance(one, Client):
            is_gone = one.closed
        elif isinstance(one, Session):
            is_gone = one not in one.client.sessions
        else:
            is_gone = isinstance(one, Endpoint) and one not in endpoints
        if is_gone:
            raise Broken(f"{where} is {one}, which has ended")


def sizes_of(roots: Mapping[str, object]) -> Iterator[tuple[str, int]]:
    """Of each table that can be reached: where it is, and its entries."""
    for where, one in _reached(roots):
        if isinstance(one, TABLES):
            yield where, len(one)


def _reached(roots: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    """All tables and objects of the broker, and where each is first met."""
    seen: dict[int, object] = {}  # they stay, so that no other has the id of one
    stack: list[tuple[str, object]] = list(roots.items())
    while stack:
        where, one = stack.pop()
        if id(one) in seen or isinstance(one, Route | KnownRoute):  # stale ones keep what is gone
            continue
        if where in UNTIL_LATER or isinstance(one, Exchange) and where != "HostContext.exchanges[]":  # of a stale route
            continue
        seen[id(one)] = one
        if isinstance(one, TABLES):
            yield where, one
            entries = [] if isinstance(one, bytearray) else list(one.items() if isinstance(one, Mapping) else one)
            stack += [(f"{where}[]", entry) for entry in entries[:LOOKED_INTO]]
        elif isinstance(one, tuple):
            stack += [(where, entry) for entry in one]
        elif isinstance(one, MethodType):
            stack.append((f"{where}()", one.__self__))
        elif isinstance(one, partial):
            stack += [(f"{where}()", part) for part in (one.func, *one.args)]
        elif isinstance(one, FunctionType):
            stack += [(f"{where}()", one) for one in inspect.getclosurevars(one).nonlocals.values()]
        elif type(one).__module__.startswith("leveret."):
            yield where, one
            stack += [(f"{type(one).__name__}.{name}", value) for name, value in _attributes_of(one)]


def _attributes_of(one: object) -> Iterator[tuple[str, Any]]:
    yield from getattr(one, "__dict__", {}).items()
    for cls in type(one).__mro__:
        slots = cls.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            name = f"_{cls.__name__.lstrip('_')}{name}" if name.startswith("__") and not name.endswith("__") else name
            if hasattr(one, name):
                yield name, getattr(one, name)
