"""From the store to the consumers: who gets what is ready, and what has just come.

Everything works on runs. Messages that a waiting consumer can take at once never enter the store.
Source: behaviour page 2.4, 2.7, 2.12; queues page F.
"""

from collections import deque
from collections.abc import Sequence
from functools import partial

from ..delivery.consumer import UNLIMITED, Consumer
from ..delivery.group_id import GroupedMessage
from ..delivery.groups import Groups
from ..delivery.rota import RUN_MAX, share_of
from ..messages.field_table import Field
from ..messages.message import Envelope, Message
from ..messages.mixed import Envelopes
from .core import QueueCore
from .expiry import arm, expire

#: Where consumers take so many at once, what they take of paged-out messages is never ready in memory.
STRAIGHT_MIN = 64
#: Paged-out messages, and octets of them, that are handed over at once.
SLICE, SLICE_OCTETS = 1000, 4 * 1024 * 1024
#: Messages of groups whose consumers are busy that one dispatch looks past (about 5 ms).
PASSED_MAX = 20_000


def dispatch(queue: QueueCore) -> None:
    """Hand out ready messages while a consumer has credit, at the end of a turn as many as it has time for.

    O(delivered).
    """
    if queue.holds:
        return
    store, rota, effort = queue.store, queue.rota, queue.surroundings.effort
    if not store.ready and store.has_tail and rota.has_waiting():
        load(queue)
    if rota.groups is not None:
        _dispatch_groups(queue, rota.groups)
        return
    if rota.is_simple and not store.expiring:
        _dispatch_to(queue, rota.consumers[0])
        return
    while store.ready:
        available = len(store.ready)
        if store.expiring:
            if not expire(queue) or not store.ready:
                break
            available = 1
        eligible = rota.eligible(available)
        if not eligible:
            break
        width = len(eligible)
        first = eligible[0]
        if width == 1:
            limit = 1 if store.expiring else rota.limit(first, available)
            first.session.deliver_ready(first, store.take(limit, first.client.room()))
        else:
            share = share_of(eligible, available, store.head_octets)
            block = store.take(share * width, UNLIMITED)
            for index, consumer in enumerate(eligible):
                consumer.session.deliver_ready(consumer, block[index::width])
        if eligible[-1].session.prefetch_total and rota.gives_way(eligible[-1]):
            queue.mark()
            break
        if effort.spent >= effort.turn_max:
            queue.mark()  # the rest is for the next turn
            break
    if queue.surroundings.storage.pager is not None:
        store.settle_allowance()
        feed(queue)
    if store.expiring:
        expire(queue)
        arm(queue)


def _dispatch_to(queue: QueueCore, consumer: Consumer) -> None:
    """As `dispatch`, to the only consumer, without expiry: its credit is asked for once a run (2 us less)."""
    store, session, effort = queue.store, consumer.session, queue.surroundings.effort
    while store.ready:
        credit = consumer.credit()
        if credit <= 0:
            break
        messages = store.take(min(credit, len(store.ready), RUN_MAX), consumer.client.room())
        session.deliver_ready(consumer, messages)
        if effort.spent >= effort.turn_max:
            queue.mark()  # the rest is for the next turn
            break
        if len(messages) == credit:
            break
    if queue.surroundings.storage.pager is not None:
        store.settle_allowance()
        feed(queue)


def _dispatch_groups(queue: QueueCore, groups: Groups) -> None:
    """Hand out ready messages, each to the consumer of its group. O(delivered + passed)."""
    store, rota = queue.store, queue.rota
    if not groups.may_dispatch(queue.ledger.unacked):
        return
    passed: deque[Message] = deque()
    while store.ready and len(passed) < PASSED_MAX:
        if store.expiring and (not expire(queue) or not store.ready):
            break
        if not rota.has_waiting():
            break
        (message,) = store.take(1, UNLIMITED)
        consumer = _taker(queue, groups, message)
        if consumer is None:
            passed.append(message)
            continue
        consumer.session.deliver_ready(consumer, [message])
        if rota.gives_way(consumer):
            queue.mark()
            break
    while passed:
        store.put_first(passed.pop())
    feed(queue)


def _taker(queue: QueueCore, groups: Groups, message: Message) -> Consumer | None:
    """Who may have the message now. The first of a group for a consumer says so, where rules name a header for it."""
    if not isinstance(message, GroupedMessage):
        eligible = queue.rota.eligible(1)
        return eligible[0] if eligible else None
    consumer, is_first = groups.taker(message, queue.rota.eligible)
    key = queue.rules.group_first_key
    if is_first and key is not None:
        queue.add_headers(message, {key: Field("t", True)})
    return consumer


# -- new messages -----------------------------------------------------------------------------------------------------


def hand_over(queue: QueueCore, first_id: int, envelope: Envelope, blobs: Sequence[bytes]) -> int:
    """Give new messages to consumers with credit, in rota order. Returns how many were taken."""
    rota = queue.rota
    consumers = rota.consumers
    if len(consumers) == 1 and not rota.waits:
        return hand_to(consumers[0], first_id, envelope, blobs)
    count = len(blobs)
    taken = 0
    while taken < count:
        rest = blobs[taken:] if taken else blobs
        eligible = rota.eligible(count - taken)
        width = len(eligible)
        if width == 0:
            break
        if width == 1:
            if eligible[0].session.prefetch_total:
                rest = rest[:1]  # it shares its limit with consumers that are to have their turns
            taken += hand_to(eligible[0], first_id + taken, envelope, rest)
            continue
        share = share_of(eligible, len(rest), partial(_octets, rest))
        stop = taken + share * width
        ids = range(first_id, first_id + count)
        for index, consumer in enumerate(eligible, taken):
            run = blobs[index:stop:width]
            consumer.session.deliver_new(consumer, ids[index:stop:width], envelope, run, sum(map(len, run)))
        taken = stop
    return taken


def hand_to(consumer: Consumer, first_id: int, envelopes: Envelopes, blobs: Sequence[bytes]) -> int:
    """Give new messages to one consumer: as many as its credit and its client's room allow, at least one.

    `envelopes`: the one that they share, or one for each. Returns how many were taken.
    """
    credit = consumer.credit()
    if credit <= 0:
        return 0
    if credit < len(blobs):
        blobs = blobs[:credit]
    octets = sum(map(len, blobs))
    client = consumer.client
    if octets > client.unsent_max - client.unsent and len(blobs) > 1:
        blobs = blobs[: client.affordable(blobs)]
        octets = sum(map(len, blobs))
    count = len(blobs)
    if not isinstance(envelopes, Envelope):
        envelopes = envelopes[:count]
    consumer.session.deliver_new(consumer, range(first_id, first_id + count), envelopes, blobs, octets)
    return count


def _octets(blobs: Sequence[bytes], count: int) -> int:
    return sum(map(len, blobs[:count]))


# -- paged-out messages -----------------------------------------------------------------------------------------------


def _goes_straight(queue: QueueCore) -> bool:
    """Whether paged-out messages may go to consumers as if they were new."""
    return not queue.holds and not queue.store.expiring and queue.rota.groups is None and queue.ledger.meter is None


def load(queue: QueueCore) -> None:
    """Bring a slice into memory; with nothing at hand, what consumers can take now goes straight to them."""
    is_straight = not queue.store.ready and _goes_straight(queue)
    wanted, octets = queue.rota.appetite() if is_straight else (0, 0)
    if wanted < STRAIGHT_MIN:
        queue.store.load()
    else:
        queue.store.load_straight(min(wanted, SLICE), min(octets, SLICE_OCTETS), partial(hand_over, queue))


def is_hungry(queue: QueueCore) -> bool:
    """Whether more of what is paged out should be in memory: less is at hand than consumers may take soon."""
    if queue.deleted or not queue.store.is_deep:
        return False
    rota = queue.rota
    is_straight = _goes_straight(queue) and any(not 0 < one.prefetch < STRAIGHT_MIN for one in rota.consumers)
    return queue.store.wants_more(straight=is_straight, waiting=is_straight and rota.has_waiting())


def feed(queue: QueueCore) -> None:
    """A deep queue has handed out: ask for more to be loaded between turns."""
    if queue.store.is_low() and is_hungry(queue):
        queue.surroundings.feed_later(queue)


def pop(queue: QueueCore) -> Message | None:
    """The next message for a get, or None."""
    queue.touch()
    store = queue.store
    while True:
        if not store.ready and store.has_tail:
            store.load()
        while store.expiring and not expire(queue, is_whole=True):
            pass  # a kept store has slices of octets, too
        if store.ready or not store.has_tail:
            break
    message = store.take(1, UNLIMITED)[0] if store.ready else None
    if store.expiring:
        expire(queue)  # what stood behind it
        arm(queue)
    return message
