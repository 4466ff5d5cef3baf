"""Deep queues: when the ready list takes more memory than its share, what comes behind it stays in the journal.

Transient messages go to the spool, a temporary file. Queues with priorities and limits in octets stay in memory; those
that keep what was acknowledged, and those of last values, have ways of their own (`KeptLog`, `PagedMessage`).
Loading is asked for at the end of a dispatch (`Broker.hungry`) and done between turns; only somebody who must know now
waits for it.
Source: queues page, section F; rulings 5, 16; issue on the journal, "Deep queues".
"""

from collections import deque
from collections.abc import Sequence
from itertools import accumulate, pairwise, repeat
from typing import TYPE_CHECKING

from .events import EventKind
from .group_id import GroupedMessage, message_for
from .message import Envelope, Message
from .tail import Pager, Tail, Taken

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
    """Whether the queue's order and rules allow it to leave messages elsewhere."""
    return not queue.keeps and queue.octets is None and isinstance(queue.ready, deque)


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
    if _is_in_journal(queue, envelope):
        tail.extend(first_id, list(map(envelope.framing.body_size, blobs)))
        return
    pager = queue.broker.pager
    assert pager is not None
    place = None if queue.stores(envelope) else pager.spool(blobs)
    if place is not None:
        tail.extend(first_id, list(map(len, blobs)), place=place, envelope=envelope)
        return
    for offset, blob in enumerate(blobs):
        tail.append(Message(first_id + offset, blob, envelope))


def append(queue: "Queue", tail: Tail, message: Message) -> None:
    """A new message of a deep queue, to which some rule was applied."""
    pager = queue.broker.pager
    assert pager is not None
    expires = (message.expires_ns,) if message.expires_ns else None
    envelope = message.envelope
    if isinstance(message, GroupedMessage):
        tail.append(message)
    elif _is_in_journal(queue, envelope):
        tail.extend(message.id, (envelope.framing.body_size(message.blob),), expires)
    elif not queue.stores(envelope) and (place := pager.spool((message.blob,))) is not None:
        tail.extend(message.id, (len(message.blob),), expires, place=place, envelope=envelope)
    else:
        tail.append(message)


def _is_in_journal(queue: "Queue", envelope: Envelope) -> bool:
    """Whether new messages of this kind are: while the disk is full, what dies into a queue is only in memory."""
    durability = queue.broker.durability
    return queue.stores(envelope) and (durability is None or not durability.has_failed)


def feed(queue: "Queue") -> None:
    """A deep queue has handed out: see to it that there is more."""
    if queue.tail is not None and len(queue.ready) < LOW:
        queue.broker.hungry[queue] = None


def surface(queue: "Queue") -> bool:
    """Nothing is ready in memory: if the tail's head may expire, make it the head. Returns whether it did."""
    tail = queue.tail
    if tail is None:
        return False
    message = tail.take_message()
    if message is not None:
        queue.ready.append(message)
    elif tail.head_expires_ns:
        load(queue)
    else:
        return False
    queue.broker.mark(queue)
    if queue.tail is not None and not len(queue.tail):
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
            queue.ready.extend(_loaded(queue, pager, part))
            count += len(part.ids)
    if not len(tail):
        queue.tail = None
    return count


def _loaded(queue: "Queue", pager: Pager, part: Taken) -> list[Message]:
    if part.place is None:
        messages = pager.load(part.ids)
        if any(envelope.facts.is_marked for envelope in {message.envelope for message in messages}):
            messages = [message_for(queue, one.id, one.blob, one.envelope) for one in messages]
    else:
        size = sum(part.sizes)
        octets = pager.unspool(part.place, size)
        pager.release(part.place, size)
        ends = list(accumulate(part.sizes, initial=0))
        blobs = [octets[start:end] for start, end in pairwise(ends)]
        messages = list(map(Message, part.ids, blobs, repeat(part.envelope)))
    if part.expires is not None:
        queue.expiring = True
        for message, expires_ns in zip(messages, part.expires):
            message.expires_ns = expires_ns
    return messages


def drop_tail(queue: "Queue", kind: EventKind) -> int:
    """All of the tail is gone (purged, deleted); the listeners are told. Returns how many messages."""
    tail, broker = queue.tail, queue.broker
    if tail is None:
        return 0
    queue.tail = None
    for part in tail.parts():
        if isinstance(part, Message):
            broker.emit(kind, queue, (part,))
            continue
        if broker.listeners:
            broker.emit_run(kind, queue, part.ids, part.envelope)
        if part.place is not None and broker.pager is not None:
            broker.pager.release(part.place, sum(part.sizes[:]))
    return len(tail)
