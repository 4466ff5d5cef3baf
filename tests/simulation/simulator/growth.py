"""When a world has come to its end, nothing of the broker has grown with what went through it.

Its queues are empty then, but for those that keep everything. So no list, table or set of it has many entries for each
message there, whoever holds it: what is counted is all that can be reached.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

from leveret.engine.clients.unacked import SETTLED_MAX
from leveret.journal.disk.writer import BLOCK_SIZE_MAX
from leveret.journal.format.record import RECORD_SIZE
from leveret.journal.recording.pager import CACHED_MAX

from .ledger import Broken

#: Entries that anything may have, and entries for each message that is there.
ALWAYS, EACH = 250, 4
#: The most ids that an address of a world remembers.
IDS_MAX = 1000
#: What has its own limit: ids against duplicates, deadlines that were cancelled, tags that were settled, the envelopes
#: of what was paged out, and the block that waits while the one before is written.
ALSO = {
    **{"IdCache._numbers": IDS_MAX, "IdCache._order": IDS_MAX},
    **{"Deadlines._heap": 512, "UnackedIndex._by_queue[]": SETTLED_MAX},
    **{"EnvelopeCache._summaries": CACHED_MAX, "EnvelopeCache._envelopes": CACHED_MAX},
    **dict.fromkeys(("BlockBuilder.records", "BlockBuilder.heap"), BLOCK_SIZE_MAX // RECORD_SIZE),
}
#: A segment each, of which the journal keeps many where they are to be retained.
OF_SEGMENTS = frozenset(
    {
        *("OldSegments._unneeded_at", "Recovered.segments"),
        *("SegmentUsage.segments", "SegmentUsage._first_ids", "SegmentUsage._bases"),
    }
)
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


def sizes_of(roots: Mapping[str, object]) -> Iterator[tuple[str, int]]:
    """Of each table that can be reached: where it is, and its entries."""
    seen: set[int] = set()
    stack: list[tuple[str, object]] = list(roots.items())
    while stack:
        where, one = stack.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, TABLES):
            yield where, len(one)
            entries = [] if isinstance(one, bytearray) else list(one.items() if isinstance(one, Mapping) else one)
            stack += [(f"{where}[]", entry) for entry in entries[:LOOKED_INTO]]
        elif isinstance(one, tuple):
            stack += [(where, entry) for entry in one]
        elif type(one).__module__.startswith("leveret."):
            stack += [(f"{type(one).__name__}.{name}", value) for name, value in _attributes_of(one)]


def _attributes_of(one: object) -> Iterator[tuple[str, Any]]:
    yield from getattr(one, "__dict__", {}).items()
    for cls in type(one).__mro__:
        slots = cls.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            name = f"_{cls.__name__.lstrip('_')}{name}" if name.startswith("__") and not name.endswith("__") else name
            if hasattr(one, name):
                yield name, getattr(one, name)
