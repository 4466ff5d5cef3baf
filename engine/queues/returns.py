"""Messages that come back to a queue with rules: what counts, who is dead, who waits, and what a ring keeps.

`give_back` is the only entry for nack, recover, close and loss; for its arguments see address-settings page 7.1.
Order of checks: attempts, no consumers to purge for, ring, delay, insertion (address-settings page 4.5, rule 6).
"""

from ..clock import MS, bounded_ms, due_after
from ..messages.deaths import DELIVERY_LIMIT, EXPIRED
from ..messages.message import Message
from ..rules.arguments import QUORUM
from ..rules.queue_rules import DROP_HEAD
from ..rules.redelivery import redelivery_delay_ms
from ..rules.size_rules import FAIL
from . import ring
from .core import QueueCore
from .expiry import arm
from .limits import refusal, trim


def give_back(queue: QueueCore, messages: list[Message], *, why: str, counted: bool, delayed: bool) -> None:
    """Take back messages that were out, in one operation: they share its time.

    `messages`: ids falling. `counted`: the delivery was an attempt that failed. `delayed`: a redelivery delay applies.
    """
    rules, surroundings = queue.rules, queue.surroundings
    now_ns = surroundings.clock.monotonic_ns()
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
        if rules.purge_on_no_consumers and not queue.rota.consumers:
            purged.append(message)
            continue
        if attempts > 0 and rules.counts_deliveries:
            queue.tell_count(message, attempts)
        wait_ms = None
        if delayed or is_refused:
            wait_ms = redelivery_delay_ms(rules, attempts, surroundings.chance(), counted=counted)
        if wait_ms is None:
            back.append(message)
        elif ring.refuses_to_wait(queue):
            evicted.append(message)
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
        ring.evict_returned(queue, evicted[::-1])
    if purged:
        queue.ledger.purged(purged[::-1])
    if waiting:
        queue.ledger.scheduled(waiting[::-1], due[::-1], why=why, counted=counted)
        queue.await_due()
    if back:
        queue.ledger.requeued(back[::-1], why=why, counted=counted)
        insert(queue, back)


def insert(queue: QueueCore, messages: list[Message]) -> None:
    """Put messages (ids falling) into the store at their places; limits and rings hold afterwards."""
    queue.merge(messages)
    _limit(queue, len(messages))


def _limit(queue: QueueCore, inserted: int) -> None:
    """Limits and rings hold after so many insertions; consumers are asked first."""
    rules = queue.rules
    if rules.ring_size is not None or queue.type == QUORUM:
        queue.dispatch()  # what a waiting consumer takes never counts; on classic queues RabbitMQ drops first
    ring.enforce(queue, inserted)
    if rules.has_limit and rules.overflow == DROP_HEAD:
        trim(queue)
    queue.mark()


def come_due(queue: QueueCore) -> None:
    """Messages whose wait is over are ready: those that were out at their places, new ones as `place_due` says."""
    store = queue.store
    now_ns = queue.surroundings.clock.monotonic_ns()
    taken = queue.scheduled.take_due(now_ns)
    expired = [message for _, message in taken if 0 < message.expires_ns <= now_ns]
    due = [message for _, message in taken if not 0 < message.expires_ns <= now_ns]
    if expired:
        queue.lose(expired, EXPIRED)
    if due:
        queue.ledger.due(due)
        returned = [message for message in due if message.deliveries]
        by_time: dict[int, list[Message]] = {}  # of those whose publication was delayed
        for due_ns, message in taken:
            if not message.deliveries and not 0 < message.expires_ns <= now_ns:
                by_time.setdefault(due_ns, []).append(message)
        for published in by_time.values():  # one time after the other, as if each had been handled on time
            queue.place_due(published)
            _limit(queue, len(published))
        if returned:
            insert(queue, sorted(returned, key=lambda message: message.id, reverse=True))
        if store.expiring or any(message.expires_ns for message in due):
            store.expect_expiry()
            arm(queue)
    queue.await_due()


def reschedule(queue: QueueCore, id_: int, delay_ms: int) -> bool:
    """An operator wants a waiting message due so long from now. False when no such message waits."""
    message = queue.scheduled.take(id_)
    if message is None:
        return False
    queue.scheduled.add(due_after(queue.surroundings.clock, delay_ms), message)
    if delay_ms == 0:
        come_due(queue)
    queue.await_due()
    return True


def cancel_scheduled(queue: QueueCore, id_: int) -> bool:
    """An operator takes a waiting message out for good. False when no such message waits."""
    message = queue.scheduled.take(id_)
    if message is None:
        return False
    queue.ledger.cancelled(message)
    queue.await_due()
    return True


def is_own_dead_letter_target(queue: QueueCore) -> bool:
    """A queue that is its own dead-letter target keeps its messages for ever, instead of going round in circles."""
    rules = queue.rules
    address = rules.dead_letter_address
    if address is None or rules.dead_letter_exchange is not None:
        return False
    return address in (queue.name, queue.address) or address == f"queue:{queue.name}"


def dead_letters_are_refused(queue: QueueCore) -> bool:
    """Whether its dead-letter address is full and refuses: then the dead stay (address-settings page 8.5, row L19)."""
    rules = queue.rules
    if rules.dead_letter_exchange is not None or rules.dead_letter_address is None:
        return False
    targets: list[QueueCore] = queue.surroundings.queues_behind(rules.dead_letter_address, queue.address)
    return any(target.may_drop and refusal(target) == FAIL for target in targets)
