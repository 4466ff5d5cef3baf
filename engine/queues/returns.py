"""Messages that come back to a queue with rules: what counts, who is dead, who waits, and what a ring keeps.

`give_back` is the only entry for nack, recover, close and loss; for its arguments see address-settings page 7.1.
Order of checks: attempts, nobody there to purge for, ring, delay, insertion (address-settings page 4.5, rule 6).
"""

from typing import TYPE_CHECKING

from ..clock import MS, bounded_ms
from ..events import EventKind
from ..exchanges.routed import Routed
from ..messages.deaths import DELIVERY_LIMIT, EXPIRED
from ..messages.message import Message
from ..rules.arguments import QUORUM
from ..rules.queue_rules import DROP_HEAD, FAIL
from ..rules.redelivery import redelivery_delay_ms
from ..stores.kept_log import KeptLog
from ..stores.last_value import LastValueReady
from . import deep, kept_heads
from .limits import arm, is_full, trim

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
    due: list[int] = []  # when each of them is
    evicted: list[Message] = []
    purged: list[Message] = []
    limit = None if is_own_dead_letter_target(queue) else rules.max_delivery_attempts
    for message in messages:
        message.uncounted += not counted
        attempts = message.deliveries - message.uncounted
        is_refused = False
        if limit is not None and attempts >= limit:
            is_refused = dead_letters_are_refused(queue)
            if not is_refused:
                dead.append(message)
                continue
            message.uncounted += counted  # no extra attempt for the target's sake
            attempts -= counted
        if rules.purge_on_no_consumers and not queue.consumers:
            purged.append(message)
            continue
        if attempts > 0 and rules.counts_deliveries:
            queue.tell_count(message, attempts)
        wait_ms = None
        if delayed or is_refused:
            wait_ms = redelivery_delay_ms(rules, attempts, broker.chance(), counted=counted)
        if wait_ms is None:
            back.append(message)
        elif rules.ring_size is not None and queue.ready_count + 1 > rules.ring_size:
            evicted.append(message)  # as Artemis does: a full ring lets nobody wait
        else:
            due_ns = now_ns + bounded_ms(wait_ms) * MS
            if message.expires_ns:
                due_ns = min(due_ns, message.expires_ns)  # it expires on time also while it waits
            queue.scheduled.add(due_ns, message)
            waiting.append(message)
            due.append(due_ns)
    if dead:
        queue.lose(dead[::-1], DELIVERY_LIMIT)
    if evicted:
        evict(queue, evicted[::-1])
    if purged:
        queue.purge_these(purged[::-1])
    if waiting:
        if broker.listeners:
            broker.emit(EventKind.SCHEDULED, queue, waiting[::-1], why=why, counted=counted, due_ns=due[::-1])
        queue.await_due()
    if back:
        queue.counters.requeued += len(back)
        if broker.listeners:
            broker.emit(EventKind.REQUEUED, queue, back[::-1], why=why, counted=counted)
        insert(queue, back)


def insert(queue: "Queue", messages: list[Message]) -> None:
    """Put messages (ids falling) into the ready list at their places; limits and rings hold afterwards."""
    if isinstance(queue.ready, LastValueReady):
        messages = _without_superseded(queue, queue.ready, messages)
    queue.merge(messages)
    _limit(queue, len(messages))


def _without_superseded(queue: "Queue", ready: LastValueReady, messages: list[Message]) -> list[Message]:
    """Of messages (ids falling) that go back to a last-value queue, those whose keys have no newer one there."""
    fresh: list[Message] = []
    for message in messages:
        older = ready.supersede(message)
        if older is None:
            fresh.append(message)
        else:
            queue.replaced(older)
    return fresh


def _limit(queue: "Queue", inserted: int) -> None:
    """Limits and rings hold after so many insertions; consumers are asked first."""
    rules = queue.rules
    if rules.ring_size is not None or queue.type == QUORUM:
        queue.dispatch()  # what a waiting consumer takes never counts; on classic queues RabbitMQ drops first
    if rules.ring_size is not None:
        trim_ring(queue, inserted)
    if rules.has_limit and rules.overflow == DROP_HEAD:
        trim(queue)
    queue.broker.mark(queue)


def come_due(queue: "Queue") -> None:
    """Messages whose wait is over are ready: those that were out at their places, new ones as `place_due` says."""
    now_ns = queue.broker.clock.monotonic_ns()
    taken = queue.scheduled.take_due(now_ns)
    expired = [message for _, message in taken if 0 < message.expires_ns <= now_ns]
    due = [message for _, message in taken if not 0 < message.expires_ns <= now_ns]
    if expired:
        queue.lose(expired, EXPIRED)
    if due:
        if queue.broker.listeners:
            queue.broker.emit(EventKind.DUE, queue, due)
        returned = [message for message in due if message.deliveries]
        by_time: dict[int, list[Message]] = {}  # of those whose publication was delayed
        for due_ns, message in taken:
            if not message.deliveries and not 0 < message.expires_ns <= now_ns:
                by_time.setdefault(due_ns, []).append(message)
        for published in by_time.values():  # one time after the other, as if each had been looked at in time
            queue.place_due(published)
            _limit(queue, len(published))
        if returned:
            insert(queue, sorted(returned, key=lambda message: message.id, reverse=True))
        if queue.expiring or any(message.expires_ns for message in due):
            queue.expiring = True
            arm(queue)
    queue.await_due()


def trim_ring(queue: "Queue", inserted: int) -> None:
    """After `inserted` insertions: while there are too many, each of them drops one message from the head."""
    ring_size = queue.rules.ring_size
    assert ring_size is not None
    ready = queue.ready
    excess = min(inserted, queue.ready_count - ring_size)
    if isinstance(ready, KeptLog):
        kept_heads.evict(queue, ready, max(excess, 0))
        return
    while excess > 0 and queue.has_ready:
        if not ready:
            deep.load(queue)
        gone = [ready.popleft() for _ in range(min(excess, len(ready)))]
        evict(queue, gone)
        excess -= len(gone)


def evict(queue: "Queue", messages: list[Message]) -> None:
    """The ring has no room for them: gone without a dead letter (address-settings page 4.5, rule 8)."""
    queue.counters.replaced += len(messages)
    if queue.octets is not None:
        queue.count_out(messages)
    if queue.broker.listeners:
        queue.broker.emit(EventKind.EVICTED, queue, messages)


def is_own_dead_letter_target(queue: "Queue") -> bool:
    """A queue that is its own dead-letter target keeps its messages for ever, instead of going round in circles."""
    rules = queue.rules
    address = rules.dead_letter_address
    if address is None or rules.dead_letter_exchange is not None:
        return False
    return address in (queue.name, queue.address) or address == f"queue:{queue.name}"


def dead_letters_are_refused(queue: "Queue") -> bool:
    """Whether its dead-letter address is full and refuses: then the dead stay (address-settings page 8.5, row L19)."""
    rules, vhost = queue.rules, queue.vhost
    if rules.dead_letter_exchange is not None or rules.dead_letter_address is None:
        return False
    name, key = vhost.resolve_address(rules.dead_letter_address, queue.address)
    exchange = vhost.exchanges.get(name)
    if exchange is None:
        return False
    return any(
        target.rules.address_full_policy == FAIL and is_full(target) for target in vhost.reach(exchange, Routed((key,)))
    )
