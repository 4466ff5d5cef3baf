"""Limits on how much is ready in a queue, and on how much its address holds. Source: behaviour page 3.3.

Plain queues never come here. What is too much goes from the head, under one named cause.
"""

from ..messages.deaths import MAXLEN
from ..messages.message import Message
from ..rules.queue_rules import DROP_HEAD
from ..rules.size_rules import SizeRules
from ..stores.paged_message import body_size
from .core import QueueCore
from .expiry import arm, expire

#: Messages that a smaller limit drops in one slice (about 5 ms).
TRIM_SLICE = 1000


def refusal(queue: QueueCore) -> str | None:
    """What the queue's address does with one more message: DROP or FAIL it; None: it takes the message.

    What is out or waits counts (address-settings page 3.3). While the broker as a whole holds as much as it may, each
    address is full. Asked only where the queue `may_drop`.
    """
    size = queue.rules.size
    sharing: list[QueueCore] = queue.surroundings.queues_at(queue.address) or [queue]
    if size.drops:
        return size.policy if queue.surroundings.flow.is_at_whole_limit or _holds_as_much(sharing, size) else None
    return size.page_policy if size.page_policy is not None and _has_paged_as_much(sharing, size) else None


def _holds_as_much(sharing: list[QueueCore], size: SizeRules) -> bool:
    if size.messages_max is not None and _messages_of(sharing) >= size.messages_max:
        return True
    return size.octets_max is not None and sum(one.ledger.octets or 0 for one in sharing) >= size.octets_max


def _has_paged_as_much(sharing: list[QueueCore], size: SizeRules) -> bool:
    """Beyond the size of the address, wherever that is; where it has none, what is paged out counts."""
    if size.paged_messages_max is not None:
        if size.messages_max is None:
            beyond = sum(len(one.store) - one.store.at_hand for one in sharing)
        else:
            beyond = _messages_of(sharing) - size.messages_max
        if beyond >= size.paged_messages_max:
            return True
    if size.paged_octets_max is None:
        return False
    meters = [one.meter for one in sharing if one.meter is not None]
    if size.octets_max is None:
        beyond = sum(meter.paged_octets for meter in meters)
    else:
        beyond = sum(meter.octets for meter in meters) - size.octets_max
    return beyond >= size.paged_octets_max


def _messages_of(sharing: list[QueueCore]) -> int:
    """Ready, waiting and out."""
    return sum(len(one.store) + len(one.scheduled) + (0 if one.keeps else one.ledger.unacked) for one in sharing)


def would_overflow(queue: QueueCore, message: Message) -> bool:
    """Whether one message more would be too many, or too large, for the limits on what is ready."""
    rules, store = queue.rules, queue.store
    if rules.max_length is not None and len(store) >= rules.max_length:
        return True
    if rules.max_length_bytes is None:
        return False
    return store.body_octets + body_size(message) > rules.max_length_bytes


def _is_over(queue: QueueCore) -> bool:
    rules, store = queue.rules, queue.store
    count = len(store)
    if rules.max_length is not None and count > rules.max_length:
        return True
    return rules.max_length_bytes is not None and count > 0 and store.body_octets > rules.max_length_bytes


def trim(queue: QueueCore) -> None:
    """Drop heads until the limits hold again; of many a slice now, the rest at the ends of turns."""
    is_wanted = queue.rules.dead_letter_target(MAXLEN) is not None
    for _ in range(TRIM_SLICE):
        if not _is_over(queue):
            return
        gone = queue.store.evict_head(1, with_content=is_wanted)
        queue.ledger.octets_changed(gone.recounted)
        if gone.messages:
            queue.lose(gone.messages, MAXLEN)
        if gone.unread:
            queue.ledger.lost_unread(gone.unread, MAXLEN)
    if _is_over(queue):
        queue.surroundings.trim_later(queue)


def enforce(queue: QueueCore) -> None:
    """A limit may be new, or smaller: what is too much goes, as far as arrivals would have made it go.

    Also what expired at the head and was too much for one slice.
    """
    if queue.store.expiring:
        expire(queue)
        arm(queue)
        queue.mark()  # nothing is handed out before what has expired is gone
    if queue.rules.has_limit and queue.rules.overflow == DROP_HEAD:
        trim(queue)
