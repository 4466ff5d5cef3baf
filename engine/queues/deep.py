"""Deep queues: when the ready list takes more memory than its share, what comes behind it stays in the journal.

Transient messages go to the spool, a temporary file. What consumers with much room can take is loaded when they can
have it, and goes to them as new messages would. For the others some is loaded in advance: asked for at the end of a
dispatch (`Broker.hungry`) and done between turns; only somebody who must know now waits. Queues that keep what was
acknowledged (`KeptLog`) and those of last values (`PagedMessage`) have ways of their own.
Source: queues page F; rulings 5, 16; docs/deep-queues.md.
"""

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

from ..delivery import rota
from ..delivery.consumer import UNLIMITED
from ..delivery.group_id import GroupedMessage
from ..events import EventKind
from ..messages.message import Envelope, Message
from ..stores.paged_run import Run, Taken, messages_of
from ..stores.ready import LeveledReady
from ..stores.tail import Pager, Tail
from .memory_budget import SMALL, TAKE_MIN
from .new_message import message_for
from .paging_out import OVERHEAD, may_have_tail, page_out, sink_below

if TYPE_CHECKING:
    from .queue import Queue

#: A deep queue is fed when fewer than this are ready in memory, up to about so many or so many octets, ...
LOW, HIGH, HIGH_OCTETS = 2000, 6000, 16 * 1024 * 1024
#: ... in slices of this many messages or octets.
SLICE, SLICE_OCTETS = 1000, 4 * 1024 * 1024
#: Where consumers take so many at once, what they take is never ready in memory: it is loaded when they can have it.
STRAIGHT_MIN = 64


def has_room(queue: "Queue", octets: int, count: int) -> bool:
    """Whether so many messages more may be ready in memory; if so, they are counted. Amortized O(count).

    Called only where there is a pager.
    """
    octets += OVERHEAD * count
    if octets > queue.allowance:
        if not may_have_tail(queue):
            queue.allowance = UNLIMITED
        elif not queue.broker.memory.allows(queue, octets):
            return False
    queue.allowance -= octets
    return True


def leave_what_came_back(queue: "Queue") -> None:
    """More is ready in memory than was granted, since messages came back: where there is no room, the last ones go.

    Some more than need be, so that the next one that comes back finds room. Amortized O(what came back).
    """
    excess = -queue.allowance
    if not may_have_tail(queue):
        queue.allowance = UNLIMITED
    elif not queue.broker.memory.allows(queue, 0):
        assert queue.broker.pager is not None
        room = min(TAKE_MIN, queue.broker.pager.memory // 8)
        freed = page_out(queue, excess + room)
        # What cannot leave is not asked again soon.
        queue.broker.memory.gave(queue, freed, max(freed - excess, 0) if freed else TAKE_MIN)


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
    """A new message of a deep queue, to which some rule was applied.

    Transient ones stay in memory where octets of bodies are counted, which the spool does not know.
    """
    pager = queue.broker.pager
    assert pager is not None
    envelope = message.envelope
    level = tail.level_of(envelope)
    if level > tail.floor:
        if _is_within_charge(queue, message) or has_room(queue, len(message.blob), 1):
            queue.ready.append(message)
            return
        sink_below(queue, tail, level)
    expires = (message.expires_ns,) if message.expires_ns else None
    if isinstance(message, GroupedMessage) or queue.octets is not None:
        tail.append(message)
    elif _is_in_journal(queue, envelope):
        tail.extend(message.id, (envelope.framing.body_size(message.blob),), expires, level=level)
    elif tail.octets is None and not queue.stores(envelope) and (place := pager.spool((message.blob,))) is not None:
        tail.extend(message.id, (len(message.blob),), expires, place=place, envelope=envelope, level=level)
    else:
        tail.append(message)


def _is_within_charge(queue: "Queue", message: Message) -> bool:
    """Whether a queue with levels takes no more with this message than it was charged: no need to look at all of it."""
    ready = queue.ready
    if not isinstance(ready, LeveledReady):
        return False
    octets = len(message.blob) + OVERHEAD
    if ready.octets + OVERHEAD * len(ready) + octets > queue.broker.memory.charge_of(queue):
        return False
    queue.allowance = max(queue.allowance - octets, 0)
    return True


def merge(queue: "Queue", messages: list[Message]) -> list[Message]:
    """Put messages (ids falling) that stand behind others of the tail back to their places; returns the others."""
    tail = queue.tail
    if tail is None:
        return messages
    before: list[Message] = []
    last_id = -1  # the highest in memory, before the tail's head; looked for when it matters
    for message in messages:
        level = tail.level_of(message.envelope)
        if level == tail.floor and tail.head_id < message.id and last_id < 0:
            ready = queue.ready
            here = ready.levels[level] if isinstance(ready, LeveledReady) else ready
            last_id = max((one.id for one in here), default=0)
        if level < tail.floor or (level == tail.floor and tail.head_id < message.id and last_id < message.id):
            tail.insert(message)
        else:
            before.append(message)
    return before


def place(queue: "Queue", message: Message, *, at_head: bool) -> None:
    """A message whose wait is over, at the head or the end of its level."""
    tail = queue.tail
    level = -1 if tail is None else tail.level_of(message.envelope)
    if at_head and tail is not None and level < tail.floor:
        tail.appendleft(message)
    elif at_head:
        queue.ready.appendleft(message)
    elif tail is not None and level <= tail.floor:
        tail.append(message)
    else:
        queue.ready.append(message)


def _is_in_journal(queue: "Queue", envelope: Envelope) -> bool:
    """Whether new messages of this kind are: while the disk is full, what dies into a queue is only in memory."""
    durability = queue.broker.durability
    return queue.stores(envelope) and (durability is None or not durability.has_failed)


def feed(queue: "Queue") -> None:
    """A deep queue has handed out: see to it that there is more."""
    if queue.tail is not None and len(queue.ready) < LOW and is_hungry(queue):
        queue.broker.hungry[queue] = None


def is_hungry(queue: "Queue") -> bool:
    """Whether more of the tail should be in memory: less is ready than consumers may take soon, within its share."""
    tail, pager = queue.tail, queue.broker.pager
    if tail is None or queue.deleted:
        return False
    if _may_go_straight(queue) and any(not 0 < one.prefetch < STRAIGHT_MIN for one in queue.consumers):
        return not queue.ready and rota.has_waiting(queue)
    assert pager is not None
    octets = min(HIGH_OCTETS, pager.budget())
    if tail.level_max:
        octets //= 2  # the rest of the window is for higher levels that come, which else would have all of it sink
    return len(queue.ready) < min(HIGH, max(1, octets // (tail.typical_size() + OVERHEAD)))


def load(queue: "Queue") -> None:
    """Bring a slice of the tail into memory."""
    _bring(queue, SLICE, SLICE_OCTETS, is_straight=False)


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
    return not queue.expiring and queue.groups is None and queue.octets is None


def _bring(queue: "Queue", count: int, octets: int, *, is_straight: bool) -> None:
    """Take so much from the head of the tail, into memory unless it goes to consumers."""
    tail, pager, ready = queue.tail, queue.broker.pager, queue.ready
    if tail is None:
        return
    assert pager is not None
    if not is_straight:
        window = max(pager.budget(), SMALL)
        octets = min(octets, window)
        count = min(count, 1 + octets // OVERHEAD)
        queue.broker.memory.charge_window(queue, min(HIGH_OCTETS, window))
    for part in tail.take(count, octets):
        if isinstance(part, Message):
            queue.expiring = queue.expiring or bool(part.expires_ns)
            ready.append(part)
            continue
        ids, runs = part.ids, _runs_of(pager, part)
        if is_straight and not ready and part.expires is None and not part.deliveries and isinstance(ids, range):
            ids, runs = _hand_straight(queue, ids, runs)
        ready.extend(_messages(queue, part, ids, runs))
    if not len(tail):
        queue.tail = None


def _hand_straight(queue: "Queue", ids: range, runs: Sequence[Run]) -> tuple[range, Sequence[Run]]:
    """Give messages to consumers as if they were new. Returns what they did not take."""
    for at, (envelope, blobs) in enumerate(runs):
        taken = 0 if envelope.facts.is_marked else queue.hand_over(ids.start, envelope, blobs)
        ids = ids[taken:]
        if taken < len(blobs):
            return ids, [(envelope, blobs[taken:]), *runs[at + 1 :]]
    return ids, ()


def take_expired(queue: "Queue", level: int, now_ns: int) -> list[Message]:
    """Expired messages out of the tail, from the head of a level on; of many a slice."""
    tail = queue.tail
    if tail is None or not 0 < tail.expires_ns(level) <= now_ns:
        return []
    return _brought(queue, tail, tail.take_expired(level, now_ns, SLICE))


def _brought(queue: "Queue", tail: Tail, parts: Sequence[Taken | Message]) -> list[Message]:
    """What was taken out of the tail."""
    pager = queue.broker.pager
    assert pager is not None
    found: list[Message] = []
    for part in parts:
        if isinstance(part, Message):
            found.append(part)
        else:
            found.extend(_messages(queue, part, part.ids, _runs_of(pager, part)))
    if not len(tail):
        queue.tail = None
    return found


def _messages(queue: "Queue", part: Taken, ids: Sequence[int], runs: Sequence[Run]) -> list[Message]:
    """What is left of a part, as it was before it was left elsewhere."""
    messages = messages_of(ids, runs)
    if any(envelope.facts.is_marked for envelope, _ in runs):
        messages = [message_for(queue, one.id, one.blob, one.envelope) for one in messages]
    if part.deliveries:
        attempts = part.deliveries - part.uncounted
        for message in messages:
            message.deliveries, message.uncounted = part.deliveries, part.uncounted
            if attempts > 0 and part.place is None and queue.rules.counts_deliveries:
                queue.tell_count(message, attempts)
    if queue.octets is not None:  # that somebody asks for since it became deep
        queue.octets += sum(len(message.blob) for message in messages)
    if part.expires is not None:
        queue.expiring = True
        for message, expires_ns in zip(messages, part.expires):
            message.expires_ns = expires_ns
    return messages


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
            if queue.octets is not None:
                queue.count_out((part,))
            continue
        if broker.listeners:
            broker.emit_run(kind, queue, part.ids, part.envelope)
        if part.place is not None and broker.pager is not None:
            broker.pager.release(part.place, sum(part.sizes[:]))
    return len(tail)
