"""Reads the messages of a queue in slices: ready, unacknowledged, or scheduled. Nothing is taken, marked or counted.

Source: management page 16; queues page F.2 (scans).
"""

from collections.abc import Iterator
from heapq import merge
from itertools import islice
from typing import NamedTuple

from ..engine import Message, Queue

READY, UNACKED, SCHEDULED = STATES = ("ready", "unacked", "scheduled")
#: Octets of contents that end a step; scheduled messages that one step sorts.
OCTETS_A_STEP, SORTED_AT_ONCE = 256 * 1024, 2000


class Seen(NamedTuple):
    """A message in a queue. `due_ns`: the due time of a scheduled message; 0: it is not scheduled.

    `position`: a later list that begins `after` it has the next message first. A ready message keeps its position; any
    other one has its index in the list, from 1.
    """

    position: int
    message: Message
    due_ns: int = 0


def slices_of(queue: Queue, state: str, after: int, size: int) -> Iterator[list[Seen]]:
    """Slices of at most `size` messages after a position. Each slice is a step, also an empty one.

    Unacknowledged and scheduled messages are those of the first step. Raises: EngineError: a message is unreadable.
    """
    found = _ready(queue, after, size) if state == READY else _listed(queue, state, after, size)
    for slice_ in found:
        if not slice_:
            yield []
        part: list[Seen] = []
        octets = 0
        for seen in slice_:
            part.append(seen)
            octets += len(seen.message.content)
            if octets >= OCTETS_A_STEP:
                yield part
                part, octets = [], 0
        if part:
            yield part


def _ready(queue: Queue, after: int, size: int) -> Iterator[list[Seen]]:
    while not queue.deleted:
        scanned = queue.scan(after, size)
        if not scanned.found:
            return
        yield [Seen(position, message) for position, message in scanned.found]
        after = scanned.found[-1][0]
        if len(scanned.found) < size and not scanned.missing:
            return


def _listed(queue: Queue, state: str, after: int, size: int) -> Iterator[list[Seen]]:
    rows: Iterator[Seen]
    if state == UNACKED:
        rows = (Seen(index, message) for index, message in enumerate(queue.unacked_messages(), 1))
    else:
        waiting = queue.scheduled.waiting()
        parts = []
        for start in range(0, len(waiting), SORTED_AT_ONCE):
            parts.append(sorted(waiting[start : start + SORTED_AT_ONCE]))
            yield []
        rows = (Seen(index, message, due_ns) for index, (due_ns, _, message) in enumerate(merge(*parts), 1))
    while skipped := min(after, SORTED_AT_ONCE):
        next(islice(rows, skipped, skipped), None)
        after -= skipped
        yield []
    while slice_ := list(islice(rows, size)):
        yield slice_
