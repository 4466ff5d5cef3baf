"""The dispatch of a leased queue: leases and barriers to consumers, and copies to browsing ones.

Source: queues page A.4, A.7, A.9.
"""

from collections.abc import Sequence

from ..delivery.consumer import UNLIMITED, Consumer
from ..delivery.consumer_list import RUN_MAX
from ..delivery.filter_groups import Asked
from ..messages.lease_headers import browse_entries, lease_entries, with_entries
from ..messages.message import Message
from ..queues import consumers
from ..queues.classic import balance_memory
from ..queues.selection import Selection
from .deferring import DeferringCore
from .ending import LeasedCore
from .granting import grant
from .past_leases import shown
from .replaying import show_replays
from .selection import dispatch_selected
from .state import bookmark_of

#: Messages that one turn shows to one browsing consumer.
BROWSE_SLICE = 300
#: Units of `Effort` to show one message, beside the scan; this includes later garbage collection.
SHOWING = 4


def dispatch(queue: DeferringCore, *, expires: bool = True) -> None:
    """Lease ready messages to consumers with room. O(delivered x consumers). `expires`: expire due messages first.

    Messages behind a barrier wait until the barrier is released.
    """
    if queue.freeze_count or queue.deleted:
        return
    store, pageable, effort = queue.store, queue.pageable, queue.context.broker.effort
    if queue.deferred is not None:
        queue.settle_entered()
    if queue.browsing:
        _show(queue)
    if queue.replaying:
        show_replays(queue)
    if store.expiring and expires:
        queue.expire_ready(queue.context.broker.clock.monotonic_ns())
        is_done = queue.expire()
        queue.arm_expiry()
        if not is_done:
            return
    if queue.selection is not None:
        _dispatch_selected(queue, queue.selection)
        return
    while True:
        if pageable is not None and not store.ready and store.has_tail and _has_waiting(queue):
            pageable.load()
        if not store.ready:
            break
        count = min(len(store.ready), queue.room(), RUN_MAX)
        if queue.leased.barrier is not None:
            count = _before_barrier(queue, count)
            if count < 0:
                if not _release_barrier(queue):
                    break
                continue
        if count <= 0 or not _hand_out(queue, count):
            break
        if effort.spent >= effort.turn_max:
            queue.mark()  # the rest is for the next turn
            break
    if pageable is not None and (
        queue.context.broker.storage.pager is not None or store.has_tail or pageable.share.cap is not None
    ):
        balance_memory(queue, pageable)


def _has_waiting(queue: LeasedCore) -> bool:
    return queue.room() > 0 and queue.consumer_list.has_waiting()


def _dispatch_selected(queue: LeasedCore, selection: Selection) -> None:
    """Dispatch in a queue with a filtering consumer."""
    dispatch_selected(queue, selection)
    while queue.leased.barrier is not None and is_behind_barrier(queue) and _release_barrier(queue):
        dispatch_selected(queue, selection)
    if queue.pageable is not None and queue.pageable.settle_quota():
        queue.context.broker.background.trim_later(queue)


def _hand_out(queue: LeasedCore, count: int) -> bool:
    """Hand out up to `count` messages in one deal. Returns whether a consumer was free."""
    store = queue.store
    dealt = queue.lease_consumers.deal(count)
    if not dealt:
        return False
    if len(dealt) > 1 and dealt[0] is dealt[-1] and dealt.count(dealt[0]) == len(dealt):
        grant(queue, dealt[0], _alive(queue, store.take(len(dealt), dealt[0].client.room())))
        return True
    room = min(consumer.client.room() for consumer in set(dealt))
    while len(dealt) > 1 and store.head_octets(len(dealt)) > room:
        del dealt[len(dealt) // 2 :]
    messages = store.take(len(dealt), UNLIMITED)
    for consumer, run in _runs(dealt, messages):
        grant(queue, consumer, _alive(queue, run))
    return True


def _runs(dealt: Sequence[Consumer], messages: Sequence[Message]) -> list[tuple[Consumer, list[Message]]]:
    """The messages of each consumer. If consumers share a session, runs keep the queue's order for its tags."""
    if len({consumer.session for consumer in dealt}) == len(set(dealt)):
        by_consumer: dict[Consumer, list[Message]] = {}
        for consumer, message in zip(dealt, messages):
            by_consumer.setdefault(consumer, []).append(message)
        return list(by_consumer.items())
    runs: list[tuple[Consumer, list[Message]]] = []
    for consumer, message in zip(dealt, messages):
        if not runs or runs[-1][0] is not consumer:
            runs.append((consumer, []))
        runs[-1][1].append(message)
    return runs


def _alive(queue: LeasedCore, messages: list[Message]) -> list[Message]:
    """Drop expired messages, and return the live ones."""
    if not queue.store.expiring:
        return messages
    now_ns = queue.context.broker.clock.monotonic_ns()
    dead = [message for message in messages if 0 < message.expires_ns < now_ns]
    if dead:
        queue.dead_letter_or_drop(dead, "expired")
        return [message for message in messages if not 0 < message.expires_ns < now_ns]
    return messages


# -- barriers ---------------------------------------------------------------------------------------------------------


def is_behind_barrier(queue: LeasedCore) -> bool:
    """Whether the first ready message is a barrier."""
    return queue.leased.barrier is not None and bool(queue.store.ready) and _before_barrier(queue, 1) < 0


def _before_barrier(queue: LeasedCore, count: int) -> int:
    """How many of the first `count` messages stand before a barrier; -1: the first one is a barrier."""
    gate = queue.gate_position()
    if gate is None:
        return count
    for at, (position, _) in enumerate(queue.store.scan(0, max(count, 1)).found):
        if position >= gate:
            return at or -1
    return count


def _release_barrier(queue: LeasedCore) -> bool:
    """Deliver the barrier at the head to each consumer if no lease or slot is left. Returns whether it went."""
    takers = _subscribers(queue)
    if len(queue.book) or not takers:
        return False
    (message,) = queue.store.take(1, UNLIMITED)
    asked = Asked(message, queue.context.broker.effort)
    takers = [one for one in takers if one.filter is None or asked.is_taken_by(one.filter)]
    message.deliveries += 1
    entries = lease_entries(queue.topic_of(message.envelope), bookmark_of(message.id), 1, 0, None, is_barrier=True)
    content, envelope = with_entries(message.envelope, message.content, entries), message.envelope.plain()
    for consumer in takers:
        queue.events.delivered((message,), consumer.session, consumer=consumer, no_ack=True)
        consumer.session.deliver_beside(consumer, [shown(content, envelope)], queue.past_at(consumer.session))
    queue.gone([message])
    return True


def _subscribers(queue: LeasedCore) -> list[Consumer]:
    """The consumers that get barriers: all that neither browse nor replay."""
    return [one for one in queue.consumer_list.consumers if one not in queue.browsing and one not in queue.replaying]


# -- browsing ---------------------------------------------------------------------------------------------------------


def _show(queue: LeasedCore) -> None:
    """Show a slice more to each browsing consumer, in turns; cancel those that have seen all."""
    effort = queue.context.broker.effort
    for consumer, browse in list(queue.browsing.items()):
        if effort.spent >= effort.turn_max:
            queue.mark()  # the rest is for the next turn
            break
        queue.browsing[consumer] = queue.browsing.pop(consumer)
        if consumer.client.paused or not consumer.session.flowing:
            continue
        seen = queue.scan_active(browse.after, BROWSE_SLICE)
        effort.spent += len(seen.found)
        now_ns = queue.context.broker.clock.monotonic_ns()
        copies: list[Message] = []
        for position, message in seen.found:
            if browse.left <= 0:
                break
            browse.after = position
            is_shown = message.id <= browse.until_id and not 0 < message.expires_ns <= now_ns
            if is_shown and (consumer.filter is None or Asked(message, effort).is_taken_by(consumer.filter)):
                browse.left -= 1
                entries = browse_entries(queue.topic_of(message.envelope), bookmark_of(message.id))
                copies.append(shown(with_entries(message.envelope, message.content, entries), message.envelope.plain()))
        effort.spent += SHOWING * len(copies)
        if copies:
            consumer.session.deliver_beside(consumer, copies, queue.past_at(consumer.session))
        if seen.missing and browse.left > 0:
            queue.context.broker.scheduler.load_later(queue)
        elif len(seen.found) < BROWSE_SLICE or browse.left <= 0:
            consumer.session.forget_consumer(consumer)
            consumers.remove(queue, [consumer])
            consumer.session.notify_cancelled(consumer)
        else:
            queue.mark()


# -- basic.get --------------------------------------------------------------------------------------------------------


def pop(queue: DeferringCore) -> Message | None:
    """The message for a basic.get; None: nothing is ready, the backlog is full, or a barrier comes first.

    A barrier waits for the messages before it, and then goes to the consumers; a get has it only without consumers.
    """
    queue.note_use()
    store = queue.store
    if queue.room() <= 0 or queue.freeze_count:
        return None
    if queue.deferred is not None:
        queue.settle_entered()
    if store.expiring:
        queue.expire_ready(queue.context.broker.clock.monotonic_ns())
        while not queue.expire(is_whole=True):
            pass
        queue.arm_expiry()
    if queue.pageable is not None and not store.ready and store.has_tail:
        queue.pageable.load()
    if not store.ready:
        return None
    if is_behind_barrier(queue) and (len(queue.book) or _subscribers(queue)):
        return None
    return store.take(1, UNLIMITED)[0]
