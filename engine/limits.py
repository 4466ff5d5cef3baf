"""What rules do to a queue's messages: on arrival, over time, and when there are too many.

Plain queues never come here. A message that has to go is counted under one named cause, and leaves a dead letter where
the rules name an exchange for it. Source: behaviour page 3.2, 3.3.
"""

from collections import deque
from collections.abc import Sequence
from itertools import islice, repeat
from typing import TYPE_CHECKING

from .deaths import EXPIRED, MAXLEN
from .events import EventKind
from .message import Envelope, Message
from .ready import LeveledReady
from .rules import DROP_HEAD, REJECT_PUBLISH_DLX

if TYPE_CHECKING:
    from .queue import Queue

MS = 1_000_000


def admit(queue: "Queue", first_id: int, envelope: Envelope, blobs: Sequence[bytes]) -> list[int]:
    """Take a run of new messages one by one, as the rules say. Returns the offsets of those that were refused."""
    rules = queue.rules
    if rules.is_only_a_ring and envelope.expiration_ms is None and not queue.has_waiting_consumer:
        _admit_to_ring(queue, first_id, envelope, blobs)
        return []
    ttl_ms = rules.message_ttl_ms
    if envelope.expiration_ms is not None:
        ttl_ms = envelope.expiration_ms if ttl_ms is None else min(ttl_ms, envelope.expiration_ms)
    expires_ns = 0 if ttl_ms is None else queue.broker.clock.monotonic_ns() + ttl_ms * MS
    refused: list[int] = []
    for offset, blob in enumerate(blobs):
        message = Message(first_id + offset, blob, envelope)
        message.expires_ns = expires_ns
        if (
            rules.has_limit
            and rules.overflow != DROP_HEAD
            and _would_overflow(queue, message)
            and (queue.ready or not queue.has_waiting_consumer)
        ):
            refused.append(offset)
            if rules.overflow == REJECT_PUBLISH_DLX:
                queue.lose([message], MAXLEN)
            elif queue.broker.listeners:
                queue.broker.emit(EventKind.DROPPED, queue, (message.id,), reason=MAXLEN)
            continue
        if queue.take_in(message):
            continue
        if ttl_ms == 0:
            queue.lose([message], EXPIRED)  # nobody took it at once
            continue
        queue.ready.append(message)
        if rules.ring_size is not None and len(queue.ready) > rules.ring_size:
            _evict_head(queue)
        if rules.has_limit:
            trim(queue)
        if expires_ns:
            queue.expiring = True
    if queue.expiring:
        arm(queue)
    return refused


def _admit_to_ring(queue: "Queue", first_id: int, envelope: Envelope, blobs: Sequence[bytes]) -> None:
    """A run into a ring that nobody waits at: each arrival drops at most one head, as one by one (page 4.5, rule 1)."""
    ready = queue.ready
    ring_size = queue.rules.ring_size
    assert ring_size is not None and not isinstance(ready, LeveledReady)
    count, before = len(blobs), len(ready)
    dropped = before + count - max(min(before + count, ring_size), before)
    queue.counters.enqueued += count
    queue.counters.replaced += dropped
    broker = queue.broker
    if broker.listeners:
        broker.emit(EventKind.ENQUEUED, queue, range(first_id, first_id + count))
        ids = [message.id for message in islice(ready, dropped)]
        broker.emit(EventKind.EVICTED, queue, [*ids, *range(first_id, first_id + dropped - len(ids))])
    from_ready = min(dropped, before)
    if from_ready == before:
        ready.clear()
    else:
        for _ in range(from_ready):
            ready.popleft()
    skipped = dropped - from_ready  # came and went within the run
    ready.extend(map(Message, range(first_id + skipped, first_id + count), blobs[skipped:], repeat(envelope)))


def _evict_head(queue: "Queue") -> None:
    gone = queue.ready.popleft()
    queue.counters.replaced += 1
    if queue.broker.listeners:
        queue.broker.emit(EventKind.EVICTED, queue, (gone.id,))


def _would_overflow(queue: "Queue", message: Message) -> bool:
    rules = queue.rules
    if rules.max_length is not None and len(queue.ready) >= rules.max_length:
        return True
    if rules.max_length_bytes is None:
        return False
    assert isinstance(queue.ready, LeveledReady)
    return queue.ready.octets + body_size(message) > rules.max_length_bytes


def trim(queue: "Queue") -> None:
    """Drop heads until the limits hold again."""
    rules, ready = queue.rules, queue.ready
    while ready and (
        (rules.max_length is not None and len(ready) > rules.max_length)
        or (
            rules.max_length_bytes is not None
            and isinstance(ready, LeveledReady)
            and ready.octets > rules.max_length_bytes
        )
    ):
        queue.lose([ready.popleft()], MAXLEN)


def expire(queue: "Queue") -> None:
    """Take expired messages off the heads; those behind a head that lives wait for their turn, as in RabbitMQ."""
    now_ns = queue.broker.clock.monotonic_ns()
    ready = queue.ready
    levels: list[deque[Message]] = ready.heads() if isinstance(ready, LeveledReady) else [ready]
    gone: list[Message] = []
    for level in levels:
        while level and 0 < level[0].expires_ns <= now_ns:
            message = level.popleft()
            if isinstance(ready, LeveledReady):
                ready.took_head(message)
            gone.append(message)
    if gone:
        queue.lose(gone, EXPIRED)


def arm(queue: "Queue") -> None:
    """See to it that the next head to expire is looked at in time."""
    ready = queue.ready
    levels = ready.heads() if isinstance(ready, LeveledReady) else [ready] if ready else []
    due_ns = min((level[0].expires_ns for level in levels if level[0].expires_ns), default=0)
    deadline = queue.expiry_deadline
    if deadline is not None and deadline.action is not None:
        if due_ns and deadline.due_ns <= due_ns:
            return  # it will look, and arm again
        queue.broker.deadlines.cancel(deadline)
    queue.expiry_deadline = queue.broker.deadlines.set(due_ns, queue.expire_due) if due_ns else None


def body_size(message: Message) -> int:
    """Octets of a message's body: what limits count."""
    return message.envelope.framing.body_size(message.blob)
