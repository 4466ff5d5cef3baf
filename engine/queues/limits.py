"""What rules do to a queue's messages: on arrival, over time, and when there are too many.

Plain queues never come here. A message that has to go is counted under one named cause, and leaves a dead letter where
the rules name an exchange for it. Source: behaviour page 3.2, 3.3.
"""

from collections import deque
from collections.abc import Sequence
from itertools import islice, repeat
from typing import TYPE_CHECKING

from ..clock import due_after
from ..delivery import rota
from ..events import EventKind
from ..messages.deaths import EXPIRED, MAXLEN
from ..messages.message import Envelope, Message
from ..rules.expiry import NO_EXPIRY_POLICY
from ..rules.queue_rules import DROP_HEAD, FAIL, REJECT_PUBLISH_DLX, QueueRules
from ..stores.kept_log import KeptLog
from ..stores.kept_ready import KeptReady
from ..stores.last_value import LastValueReady
from ..stores.paged_message import body_size
from ..stores.ready import LeveledReady, Ready
from ..stores.tail import Tail
from . import deep, kept_heads
from .new_message import message_for
from .paging_out import begin_tail

if TYPE_CHECKING:
    from .queue import Queue

#: Slices of a deep queue's tail that are looked through for what has expired before others have their turn.
SLICES_MAX = 4
#: Messages that a smaller limit drops in one slice (about 5 ms).
TRIM_SLICE = 1000
#: Why an address that is full drops a message.
FULL = "full"


def admit(
    queue: "Queue", first_id: int, envelope: Envelope, blobs: Sequence[bytes], due_ns: int | None = None
) -> list[int]:
    """Take a run of new messages one by one, as the rules say. Returns the offsets of those that were refused.

    `due_ns`: they wait until then.
    """
    rules = queue.rules
    if due_ns is None and _goes_straight_into_the_ring(queue, envelope, blobs):
        _admit_to_ring(queue, first_id, envelope, blobs)
        if queue.expiring:
            arm(queue)  # the heads are others now
        return []
    ttl_ms = _time_to_live_ms(rules, envelope)
    expires_ns = 0 if ttl_ms is None else due_after(queue.broker.clock, ttl_ms)
    if expires_ns:
        queue.expiring = True  # also of what a consumer takes at once: it may come back
    if (rules.has_limit or ttl_ms == 0) and queue.broker.is_marked(queue):
        queue.dispatch()  # what came back in this turn is not in the way where somebody waits for it
    refused: list[int] = []
    for offset, blob in enumerate(blobs):
        message = message_for(queue, first_id + offset, blob, envelope)
        message.expires_ns = expires_ns
        if rules.has_size_limit and is_full(queue):
            if rules.address_full_policy == FAIL:
                refused.append(offset)
            _drop(queue, message, FULL)
        elif (
            rules.has_limit
            and rules.overflow != DROP_HEAD
            and _would_overflow(queue, message)  # whoever waits for it, as in RabbitMQ
        ):
            refused.append(offset)
            if rules.overflow == REJECT_PUBLISH_DLX:
                queue.lose([message], MAXLEN, came_in=False)
            else:
                _drop(queue, message, MAXLEN)
        elif due_ns is not None:
            queue.take_in_waiting(message, due_ns)
        elif not queue.take_in(message):
            if ttl_ms != 0 or not _expires_at_once(queue, message):
                _append(queue, message)
            elif _has_to_wait(queue, envelope):
                _append(queue, message)
                queue.broker.expire_later(queue)
            else:
                queue.lose([message], EXPIRED)
    if due_ns is not None:
        queue.await_due()
    if queue.expiring:
        arm(queue)
    return refused


def _has_to_wait(queue: "Queue", envelope: Envelope) -> bool:
    """Whether it is a dead letter, and so many are out or on their way that its own death comes later."""
    return envelope.cause_id != 0 and queue.broker.is_crowded


def _expires_at_once(queue: "Queue", message: Message) -> bool:
    """Whether a message that may not wait, and that nobody took, goes before it stands in the queue.

    As in RabbitMQ: a limit on the length comes first, but where its queue lets nothing wait nor leaves dead letters;
    and behind others it waits for its turn.
    """
    rules = queue.rules
    if rules.message_ttl_ms == 0 and rules.dead_letter_exchange is None:
        return True
    if rules.has_limit and _would_overflow(queue, message):
        return False
    return rules.message_ttl_ms == 0 or not queue.ready_count


def _goes_straight_into_the_ring(queue: "Queue", envelope: Envelope, blobs: Sequence[bytes]) -> bool:
    return (
        queue.rules.is_only_a_ring
        and envelope.is_plain
        and queue.groups is None
        and queue.tail is None
        and not (queue.ready and rota.has_waiting(queue))
        and (queue.broker.pager is None or deep.has_room(queue, sum(map(len, blobs)), len(blobs)))
    )


def _time_to_live_ms(rules: QueueRules, envelope: Envelope) -> int | None:
    """By the message's address or else the queue's, at most the queue's (address-settings page 1.3, step 4)."""
    ttl_ms = envelope.expiration_ms
    if rules.expiry is not NO_EXPIRY_POLICY and not envelope.expiry_is_settled:
        ttl_ms = rules.expiry.applied_to(ttl_ms)
    if rules.message_ttl_ms is None:
        return ttl_ms
    return rules.message_ttl_ms if ttl_ms is None else min(ttl_ms, rules.message_ttl_ms)


def _append(queue: "Queue", message: Message) -> None:
    """Into the ready list; what has no room there any more goes."""
    rules, ready = queue.rules, queue.ready
    if isinstance(ready, LastValueReady) and (older := ready.supersede(message)) is not None:
        queue.replaced(older)
        return
    if queue.tail is not None:
        deep.append(queue, queue.tail, message)
    elif queue.broker.pager is not None and not deep.has_room(queue, len(message.blob), 1):
        deep.append(queue, begin_tail(queue), message)
    else:
        ready.append(message)
        queue.measure()
    if queue.groups is not None:
        queue.dispatch()
    if rules.ring_size is not None and queue.ready_count > rules.ring_size:
        _evict_head(queue)
    if rules.has_limit:
        if _has_to_wait(queue, message.envelope):
            queue.broker.trim_later(queue)
        else:
            trim(queue)


def _drop(queue: "Queue", message: Message, reason: str) -> None:
    """It never came in."""
    queue.counters.dropped += 1
    if queue.broker.listeners:
        queue.broker.emit(EventKind.DROPPED, queue, (message,), reason=reason, came_in=False)


def is_full(queue: "Queue") -> bool:
    """Whether the queue's address is full; what is out or waits counts (address-settings page 3.3)."""
    rules = queue.rules
    sharing = queue.vhost.queues_at(queue.address) or [queue]
    if rules.max_size_messages is not None:
        held = sum(one.ready_count + len(one.scheduled) + (0 if one.keeps else one.unacked) for one in sharing)
        if held >= rules.max_size_messages:
            return True
    return rules.max_size_bytes is not None and sum(one.octets or 0 for one in sharing) >= rules.max_size_bytes


def _admit_to_ring(queue: "Queue", first_id: int, envelope: Envelope, blobs: Sequence[bytes]) -> None:
    """A run into a ring: consumers that wait come first, then each arrival drops at most one head, as one by one would.

    Source: address-settings page 4.5, rules 1 and 3.
    """
    ready = queue.ready
    ring_size = queue.rules.ring_size
    assert ring_size is not None and isinstance(ready, deque)
    broker = queue.broker
    queue.counters.enqueued += len(blobs)
    if broker.listeners:
        broker.emit_run(EventKind.ENQUEUED, queue, range(first_id, first_id + len(blobs)), envelope)
    if queue.consumers and not ready:
        taken = queue.hand_over(first_id, envelope, blobs)
        first_id += taken
        blobs = blobs[taken:]
    count, before = len(blobs), len(ready)
    dropped = before + count - max(min(before + count, ring_size), before)
    queue.counters.replaced += dropped
    if dropped and broker.listeners:
        if before:
            broker.emit(EventKind.EVICTED, queue, list(islice(ready, dropped)))
        if dropped > before:
            broker.emit_run(EventKind.EVICTED, queue, range(first_id, first_id + dropped - before), envelope)
    from_ready = min(dropped, before)
    if from_ready == before:
        ready.clear()
    else:
        for _ in range(from_ready):
            ready.popleft()
    skipped = dropped - from_ready  # came and went within the run
    ready.extend(map(Message, range(first_id + skipped, first_id + count), blobs[skipped:], repeat(envelope)))


def _evict_head(queue: "Queue") -> None:
    if isinstance(queue.ready, KeptLog):
        kept_heads.evict(queue, queue.ready, 1)
        return
    if not queue.ready:
        deep.load(queue)
    gone = queue.ready.popleft()
    queue.counters.replaced += 1
    if queue.octets is not None:
        queue.count_out((gone,))
    if queue.broker.listeners:
        queue.broker.emit(EventKind.EVICTED, queue, (gone,))


def _would_overflow(queue: "Queue", message: Message) -> bool:
    rules = queue.rules
    if rules.max_length is not None and queue.ready_count >= rules.max_length:
        return True
    if rules.max_length_bytes is None:
        return False
    return _octets(queue) + body_size(message) > rules.max_length_bytes


def enforce(queue: "Queue") -> None:
    """A limit may be new, or smaller: what is too much goes, as far as arrivals would have made it go.

    Also what expired at the head of a queue that keeps its messages and was too much for one slice.
    """
    if queue.expiring and isinstance(queue.ready, KeptLog):
        expire(queue)
        arm(queue)
        queue.broker.mark(queue)  # nothing is handed out before what has expired is gone
    if queue.rules.has_limit and queue.rules.overflow == DROP_HEAD:
        trim(queue)


def trim(queue: "Queue") -> None:
    """Drop heads until the limits hold again; of many a slice now, the rest at the ends of turns."""
    for _ in range(TRIM_SLICE):
        if not _is_over(queue):
            return
        if isinstance(queue.ready, KeptLog):
            kept_heads.drop(queue, queue.ready)
            continue
        if not queue.ready:
            deep.load(queue)
        queue.lose([queue.ready.popleft()], MAXLEN)
    if _is_over(queue):
        queue.broker.trim_later(queue)


def _is_over(queue: "Queue") -> bool:
    rules = queue.rules
    if rules.max_length is not None and queue.ready_count > rules.max_length:
        return True
    return rules.max_length_bytes is not None and queue.ready_count > 0 and _octets(queue) > rules.max_length_bytes


def _octets(queue: "Queue") -> int:
    """Of all ready bodies, where a limit on them asks."""
    ready, tail = queue.ready, queue.tail
    if isinstance(ready, KeptLog):
        return ready.body_octets
    assert isinstance(ready, LeveledReady)
    return ready.octets + (tail.octets or 0 if tail is not None else 0)


def expire(queue: "Queue") -> None:
    """Take expired messages off the heads; those behind a head that lives wait for their turn, as in RabbitMQ."""
    if isinstance(queue.ready, KeptLog):
        kept_heads.expire(queue, queue.ready)
        return
    now_ns = queue.broker.clock.monotonic_ns()
    ready = queue.ready
    gone: list[Message] = []
    for level, messages in enumerate(_levels(ready)):
        while messages and 0 < messages[0].expires_ns <= now_ns:
            message = messages.popleft()
            if isinstance(ready, LeveledReady):
                ready.took((message,))
            gone.append(message)
        if not messages and queue.tail is not None:
            for _ in range(SLICES_MAX):
                slice_ = deep.take_expired(queue, level, now_ns)
                if not slice_:
                    break
                gone.extend(slice_)
    if gone:
        queue.lose(gone, EXPIRED)


def arm(queue: "Queue") -> None:
    """See to it that the next head to expire is looked at in time."""
    tail, ready = queue.tail, queue.ready
    if isinstance(ready, KeptLog):
        due_ns = ready.head_expires_ns
        if 0 < due_ns <= queue.broker.clock.monotonic_ns():
            queue.broker.trim_later(queue)
            return
    else:
        heads = (_head_expires_ns(level, messages, tail) for level, messages in enumerate(_levels(ready)))
        due_ns = min(filter(None, heads), default=0)
    deadline = queue.expiry_deadline
    if deadline is not None and deadline.action is not None:
        if due_ns and deadline.due_ns <= due_ns:
            return  # it will look, and arm again
        queue.broker.deadlines.cancel(deadline)
    queue.expiry_deadline = queue.broker.deadlines.set(due_ns, queue.expire_due) if due_ns else None


def _levels(ready: Ready) -> Sequence[deque[Message] | KeptReady]:
    return ready.levels if isinstance(ready, LeveledReady) else [ready]


def _head_expires_ns(level: int, messages: deque[Message] | KeptReady, tail: Tail | None) -> int:
    if messages:
        return messages[0].expires_ns
    return 0 if tail is None else tail.expires_ns(level)
