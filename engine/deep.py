"""Deep queues: when the ready list takes more memory than its share, what comes behind it stays in the journal.

Transient messages go to the spool, a temporary file. Queues with priorities, last values, limits in octets, and those
that keep what was acknowledged, stay in memory. What consumers with much room can take is loaded when they can have it,
and goes to them as new messages would. For the others some is loaded in advance: asked for at the end of a dispatch
(`Broker.hungry`) and done between turns; only somebody who must know now waits for it.
Source: queues page, section F; rulings 5, 16; issue on the journal, "Deep queues".
"""

from collections import deque
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

from . import rota
from .events import EventKind
from .group_id import GroupedMessage, message_for
from .message import Envelope, Message
from .tail import Pager, Run, Tail, Taken, messages_of

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
#: Where consumers take so many at once, what they take is never ready in memory: it is loaded when they can have it.
STRAIGHT_MIN = 64


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
    if queue.tail is not None and len(queue.ready) < LOW and is_hungry(queue):
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
    if _may_go_straight(queue) and any(not 0 < one.prefetch < STRAIGHT_MIN for one in queue.consumers):
        return not queue.ready and rota.has_waiting(queue)
    assert pager is not None
    octets = min(HIGH_OCTETS, pager.budget())
    return len(queue.ready) < min(HIGH, max(1, octets // (tail.typical_size() + OVERHEAD)))


def load(queue: "Queue") -> int:
    """Bring a slice of the tail into memory; returns how many messages."""
    return _bring(queue, SLICE, SLICE_OCTETS, is_straight=False)


def hand_out(queue: "Queue") -> None:
    """Nothing is ready in memory: what consumers can take now goes straight to them; where that is little, load."""
    wanted = octets = 0
    if not queue.ready and _may_go_straight(queue) and not queue.held:
        for consumer in queue.consumers[:1] if queue.rules.single_active_consumer else queue.consumers:
            credit = consumer.credit()
            if credit > 0:
                wanted += credit
                octets += consumer.client.room()
    if wanted < STRAIGHT_MIN:
        load(queue)
    else:
        _bring(queue, min(wanted, SLICE), min(octets, SLICE_OCTETS), is_straight=True)


def _may_go_straight(queue: "Queue") -> bool:
    return not queue.expiring and queue.groups is None


def _bring(queue: "Queue", count: int, octets: int, *, is_straight: bool) -> int:
    """Take so much from the head of the tail, into memory unless it goes to consumers; returns how many messages."""
    tail, pager = queue.tail, queue.broker.pager
    if tail is None:
        return 0
    assert pager is not None
    ready, before = queue.ready, len(tail)
    for part in tail.take(count, octets):
        if isinstance(part, Message):
            ready.append(part)
            queue.expiring = queue.expiring or bool(part.expires_ns)
            continue
        ids, runs = part.ids, _runs_of(pager, part)
        if is_straight and not ready and part.expires is None:
            ids, runs = _hand_straight(queue, ids, runs)
        messages = messages_of(ids, runs)
        if any(envelope.facts.is_marked for envelope, _ in runs):
            messages = [message_for(queue, one.id, one.blob, one.envelope) for one in messages]
        if part.expires is not None:
            queue.expiring = True
            for message, expires_ns in zip(messages, part.expires):
                message.expires_ns = expires_ns
        ready.extend(messages)
    if not len(tail):
        queue.tail = None
    return before - len(tail)


def _hand_straight(queue: "Queue", ids: range, runs: Sequence[Run]) -> tuple[range, Sequence[Run]]:
    """Give messages to consumers as if they were new. Returns what they did not take."""
    for at, (envelope, blobs) in enumerate(runs):
        taken = 0 if envelope.facts.is_marked else queue.hand_over(ids.start, envelope, blobs)
        ids = ids[taken:]
        if taken < len(blobs):
            return ids, [(envelope, blobs[taken:]), *runs[at + 1 :]]
    return ids, ()


def _runs_of(pager: Pager, part: Taken) -> Sequence[Run]:
    if part.place is None:
        return pager.load(part.ids)
    size = sum(part.sizes)
    octets = pager.unspool(part.place, size)
    pager.release(part.place, size)
    ends = list(accumulate(part.sizes, initial=0))
    return [(part.envelope, [octets[start:end] for start, end in pairwise(ends)])]


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
