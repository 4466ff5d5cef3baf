"""Messages that come back to a queue with rules: what counts, who is dead, who waits, and what a ring keeps.

`give_back` is the only entry for nack, recover, close and loss; for its arguments see address-settings page 7.1.
Order of checks: attempts, ring, delay, insertion (page 4.5, rule 6).
"""

from typing import TYPE_CHECKING

from .content import PLAIN, splice_header
from .deaths import DELIVERY_COUNT, DELIVERY_LIMIT, EXPIRED
from .events import EventKind
from .field_table import Field
from .limits import MS, trim
from .message import Envelope, Message
from .redelivery import redelivery_delay_ms
from .rules import DROP_HEAD

if TYPE_CHECKING:
    from .queue import Queue


def give_back(queue: "Queue", messages: list[Message], *, why: str, counted: bool, delayed: bool) -> None:
    """Take back messages that were out, in one operation: they share its time.

    `messages`: ids falling. `counted`: the delivery was an attempt that failed. `delayed`: a redelivery delay applies.
    """
    rules, broker = queue.rules, queue.broker
    now_ns = broker.clock.monotonic_ns()
    dead: list[Message] = []
    back: list[Message] = []
    waiting: list[Message] = []
    evicted: list[Message] = []
    for message in messages:
        message.uncounted += not counted
        attempts = message.deliveries - message.uncounted
        if rules.max_delivery_attempts is not None and attempts >= rules.max_delivery_attempts and not _is_own(queue):
            dead.append(message)
            continue
        if attempts > 0 and rules.counts_deliveries:
            _tell_count(message, attempts)
        wait_ms = redelivery_delay_ms(rules, attempts, broker.chance()) if delayed else None
        if wait_ms is None:
            back.append(message)
        elif rules.ring_size is not None and len(queue.ready) + 1 > rules.ring_size:
            evicted.append(message)  # as Artemis does: a full ring lets nobody wait
        else:
            due_ns = now_ns + wait_ms * MS
            if message.expires_ns:
                due_ns = min(due_ns, message.expires_ns)  # it expires on time also while it waits
            queue.scheduled.add(due_ns, message)
            waiting.append(message)
    if dead:
        queue.lose(dead[::-1], DELIVERY_LIMIT)
    if evicted:
        evict(queue, evicted[::-1])
    if waiting:
        if broker.listeners:
            broker.emit(EventKind.SCHEDULED, queue, _ids(waiting), why=why)
        queue.await_due()
    if back:
        queue.counters.requeued += len(back)
        if broker.listeners:
            broker.emit(EventKind.REQUEUED, queue, _ids(back), why=why)
        insert(queue, back)


def insert(queue: "Queue", messages: list[Message]) -> None:
    """Put messages (ids falling) into the ready list at their places; limits and rings hold afterwards."""
    queue.merge(messages)
    rules = queue.rules
    if rules.ring_size is not None:
        queue.dispatch()  # what a waiting consumer takes never counts
        trim_ring(queue, len(messages))
    if rules.has_limit and rules.overflow == DROP_HEAD:
        trim(queue)
    queue.broker.mark(queue)


def come_due(queue: "Queue") -> None:
    """Messages whose wait is over are ready again, at their original places."""
    now_ns = queue.broker.clock.monotonic_ns()
    taken = queue.scheduled.take_due(now_ns)
    expired = [message for message in taken if 0 < message.expires_ns <= now_ns]
    due = [message for message in taken if not 0 < message.expires_ns <= now_ns]
    if expired:
        queue.lose(expired, EXPIRED)
    if due:
        if queue.broker.listeners:
            queue.broker.emit(EventKind.DUE, queue, [message.id for message in due])
        due.sort(key=lambda message: message.id, reverse=True)
        insert(queue, due)
    queue.await_due()


def trim_ring(queue: "Queue", inserted: int) -> None:
    """After `inserted` insertions: while there are too many, each of them drops one message from the head."""
    ring_size = queue.rules.ring_size
    assert ring_size is not None
    ready = queue.ready
    excess = min(inserted, len(ready) - ring_size)
    if excess > 0:
        evict(queue, [ready.popleft() for _ in range(excess)])


def evict(queue: "Queue", messages: list[Message]) -> None:
    """The ring has no room for them: gone without a dead letter (page 4.5, rule 8)."""
    queue.counters.replaced += len(messages)
    if queue.broker.listeners:
        queue.broker.emit(EventKind.EVICTED, queue, [message.id for message in messages])


def _is_own(queue: "Queue") -> bool:
    """A queue that is its own dead-letter target keeps its messages for ever, instead of going round in circles."""
    return queue.rules.dead_letter_exchange is None and queue.rules.dead_letter_address in (
        queue.name,
        f"queue:{queue.name}",
    )


def _tell_count(message: Message, attempts: int) -> None:
    """From now on deliveries say how often it was tried (x-delivery-count; page 5.6)."""
    envelope = message.envelope
    header, body = envelope.framing.split(message.blob)
    message.blob = PLAIN.join(splice_header(header, {DELIVERY_COUNT: Field("l", attempts)}, set()), body)
    if envelope.framing is not PLAIN:
        facts = envelope.facts._replace(has_headers=True)
        message.envelope = Envelope(envelope.exchange, envelope.routing_key, facts, PLAIN, envelope.opaque)


def _ids(messages: list[Message]) -> list[int]:
    return [message.id for message in reversed(messages)]
