"""New messages come into a queue with rules, one by one: refused, dropped, waiting, taken at once, or ready.

Plain queues never come here. Source: behaviour page 3.2, 3.3; address-settings page 1.3, 3.3.
"""

from collections.abc import Sequence

from ..clock import due_after
from ..messages.deaths import EXPIRED, MAXLEN
from ..messages.message import Envelope, Message
from ..rules.expiry import NO_EXPIRY_POLICY
from ..rules.queue_rules import DROP_HEAD, REJECT_PUBLISH_DLX, QueueRules
from ..rules.size_rules import FAIL
from . import eviction, ring
from .core import QueueCore
from .expiry import arm
from .limits import refusal, trim, would_overflow

#: Why an address that is full drops a message.
FULL = "full"


def admit(
    queue: QueueCore, first_id: int, envelope: Envelope, blobs: Sequence[bytes], due_ns: int | None = None
) -> list[int]:
    """Take a run of new messages, as the rules say. Returns the offsets of those that were refused.

    `due_ns`: they wait until then.
    """
    rules, store, surroundings = queue.rules, queue.store, queue.surroundings
    pending = queue.pending
    if due_ns is None:
        admit_run = None
        if pending is not None:
            admit_run = eviction.admit_run if eviction.takes_runs(queue, pending, envelope) else None
        elif ring.takes_runs(queue, envelope):
            admit_run = ring.admit_run
        if admit_run is not None:
            admit_run(queue, first_id, envelope, blobs)
            if store.expiring:
                arm(queue)  # the head is another one now
            return []
    ttl_ms = _time_to_live_ms(rules, envelope)
    expires_ns = 0 if ttl_ms is None else due_after(surroundings.clock, ttl_ms)
    if expires_ns:
        store.expect_expiry()  # also of what a consumer takes at once: it may come back
        if pending is not None:
            pending.expect(expires_ns)
    if (rules.has_limit or ttl_ms == 0 or pending is not None) and surroundings.is_marked(queue):
        queue.dispatch()  # what came back in this turn is not in the way of a consumer that waits for it
    refused: list[int] = []
    may_drop = queue.may_drop
    for offset, blob in enumerate(blobs):
        message = queue.message_for(first_id + offset, blob, envelope)
        message.expires_ns = expires_ns
        if may_drop and (policy := refusal(queue)) is not None:
            if policy == FAIL:
                refused.append(offset)
            queue.ledger.refused(message, FULL)
        elif (
            rules.has_limit
            and rules.overflow != DROP_HEAD
            and would_overflow(queue, message)  # whether a consumer waits or not, as in RabbitMQ
        ):
            refused.append(offset)
            if rules.overflow == REJECT_PUBLISH_DLX:
                queue.lose([message], MAXLEN, came_in=False)
            else:
                queue.ledger.refused(message, MAXLEN)
        elif due_ns is not None:
            queue.take_in_waiting(message, due_ns)
        elif not queue.take_in(message):
            if ttl_ms != 0 or not _expires_at_once(queue, message):
                _append(queue, message)
            elif _has_to_wait(queue, envelope):
                _append(queue, message)
                surroundings.expire_later(queue)
            else:
                queue.lose([message], EXPIRED)
    if due_ns is not None:
        queue.await_due()
    if store.expiring:
        arm(queue)
    return refused


def _has_to_wait(queue: QueueCore, envelope: Envelope) -> bool:
    """Whether it is a dead letter, and so many of these are under way that its own death comes later."""
    return envelope.cause_id != 0 and queue.surroundings.is_crowded()


def _expires_at_once(queue: QueueCore, message: Message) -> bool:
    """Whether a message that may not wait, and that nobody took, goes before it stands in the queue.

    As in RabbitMQ: a limit on the length comes first, unless the queue lets nothing wait and leaves no dead letters;
    and behind others it waits for its turn.
    """
    rules = queue.rules
    if rules.message_ttl_ms == 0 and rules.dead_letter_exchange is None:
        return True
    if rules.has_limit and would_overflow(queue, message):
        return False
    return rules.message_ttl_ms == 0 or not len(queue.store)


def _time_to_live_ms(rules: QueueRules, envelope: Envelope) -> int | None:
    """By the message's address or else the queue's, at most the queue's (address-settings page 1.3, step 4)."""
    ttl_ms = envelope.expiration_ms
    if rules.expiry is not NO_EXPIRY_POLICY and not envelope.expiry_is_settled:
        ttl_ms = rules.expiry.applied_to(ttl_ms)
    if rules.message_ttl_ms is None:
        return ttl_ms
    return rules.message_ttl_ms if ttl_ms is None else min(ttl_ms, rules.message_ttl_ms)


def _append(queue: QueueCore, message: Message) -> None:
    """Into the store; what has no room there any more goes."""
    older = queue.store.append(message)
    if older is not None:
        queue.ledger.replaced(older)
        return
    if queue.rota.groups is not None:
        queue.dispatch()
    ring.enforce_after_arrival(queue)
    if queue.rules.has_limit:
        if _has_to_wait(queue, message.envelope):
            queue.surroundings.trim_later(queue)
        else:
            trim(queue)
    if queue.pending is not None:
        eviction.enforce(queue)
