"""Deep queues: when the ready list takes more memory than its share, what comes behind it stays in the journal.

Only queues whose arrivals meet no rule grow a tail; rules that come later work across it. Loading is asked for at the
end of a dispatch (`Broker.hungry`) and done between turns; only somebody who must know now waits for it.
Source: queues page, section F; rulings 5, 16; issue on the journal, "Deep queues".
"""

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from .events import EventKind
from .group_id import message_for
from .message import Envelope, Message
from .tail import IN_JOURNAL, Tail

if TYPE_CHECKING:
    from .queue import Queue

#: Queues below this are not looked at.
DEEP_MIN = 1000
#: What a message costs beside its octets.
OVERHEAD = 200
#: A deep queue is fed when fewer than this are ready in memory, up to about so many or so many octets, ...
LOW, HIGH, HIGH_OCTETS = 2000, 6000, 16 * 1024 * 1024
#: ... in slices of this many messages or octets.
SLICE, SLICE_OCTETS = 1000, 4 * 1024 * 1024


def may_have_tail(queue: "Queue") -> bool:
    """Whether the queue's order and rules allow it to leave messages in the journal."""
    return queue.durable and not queue.keeps and queue.takes_plainly and isinstance(queue.ready, deque)


def measure(queue: "Queue") -> None:
    """Many messages are ready: if they take more than their share, the next ones go to a tail."""
    pager = queue.broker.pager
    if pager is None or not may_have_tail(queue):
        queue.measure_at = 1 << 62
        return
    octets = sum(len(message.blob) for message in queue.ready) + OVERHEAD * len(queue.ready)
    budget = pager.budget()
    if octets >= budget:
        queue.tail = Tail()
        queue.measure_at = DEEP_MIN
    else:
        # What would fill the rest, if the next ones are like these; never all of it at once.
        room = (budget - octets) * len(queue.ready) // octets
        queue.measure_at = len(queue.ready) + max(room // 2, DEEP_MIN // 4)


def extend_tail(queue: "Queue", tail: Tail, first_id: int, envelope: Envelope, blobs: Sequence[bytes]) -> None:
    """New messages of a deep queue."""
    if envelope.facts.persistent:
        tail.extend(first_id, list(map(envelope.framing.body_size, blobs)))
    else:
        for offset, blob in enumerate(blobs):
            tail.append(Message(first_id + offset, blob, envelope))


def feed(queue: "Queue") -> None:
    """A deep queue has handed out: see to it that there is more."""
    if queue.tail is not None and len(queue.ready) < LOW:
        queue.broker.hungry[queue] = None


def surface(queue: "Queue") -> bool:
    """Nothing is ready in memory: make the tail's head the head if that takes no reading. Returns whether it did.

    Only such heads can expire: what the journal alone has does not.
    """
    tail = queue.tail
    if tail is None or (message := tail.take_message()) is None:
        return False
    queue.ready.append(message)
    queue.broker.mark(queue)
    if not len(tail):
        queue.tail = None
    return True


def is_hungry(queue: "Queue") -> bool:
    """Whether more of the tail should be in memory: less is ready than consumers may take soon, within its share."""
    tail, pager = queue.tail, queue.broker.pager
    if tail is None or queue.deleted:
        return False
    assert pager is not None
    octets = min(HIGH_OCTETS, pager.budget())
    return len(queue.ready) < min(HIGH, max(1, octets // (tail.typical_size() + OVERHEAD)))


def load(queue: "Queue") -> int:
    """Bring a slice of the tail into memory; returns how many messages."""
    tail, pager = queue.tail, queue.broker.pager
    if tail is None:
        return 0
    assert pager is not None
    count = 0
    for part in tail.take(SLICE, SLICE_OCTETS):
        if isinstance(part, Message):
            queue.ready.append(part)
            queue.expiring = queue.expiring or bool(part.expires_ns)
            count += 1
        else:
            messages = pager.load(part)
            if any(envelope.facts.is_marked for envelope in {message.envelope for message in messages}):
                messages = [message_for(queue, one.id, one.blob, one.envelope) for one in messages]
            queue.ready.extend(messages)
            count += len(part)
    if not len(tail):
        queue.tail = None
    return count


def drop_tail(queue: "Queue", kind: EventKind) -> int:
    """All of the tail is gone (purged, deleted); the listeners are told. Returns how many messages."""
    tail = queue.tail
    if tail is None:
        return 0
    queue.tail = None
    broker = queue.broker
    if broker.listeners:
        for part in tail.parts():
            if isinstance(part, Message):
                broker.emit(kind, queue, (part,))
            else:
                broker.emit_run(kind, queue, part[0], IN_JOURNAL)
    return len(tail)
