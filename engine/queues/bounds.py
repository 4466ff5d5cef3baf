"""Limits on the contents of a queue, each a `Bound`, and the order in which a queue asks them.

The size of an address refuses or drops new messages. A ring keeps the newest messages. A limit on the length refuses
new messages or drops the oldest. The limit of a slow subscriber drops messages by a strategy. Only messages that a
limit on the length drops may become dead letters. Source: behaviour page 3.3; address-settings page 3.3, 4 (4.5: rules
1, 3, 6, 8 and 9); queues page E.1 ("eviction"), E.4 (row 14), E.6; management page 16 (`outcome_of`).
"""

from array import array
from collections.abc import Callable, Generator, Iterator, Sequence
from heapq import merge, nsmallest
from itertools import chain, islice
from typing import TYPE_CHECKING

from ..delivery.consumer import Consumer
from ..messages.content import decode_properties
from ..messages.dead_letter import EXPIRED, MAXLEN
from ..messages.message import UNLIMITED, Envelope, Message
from ..rules.limits import FAIL, LOWEST_PRIORITY, OLDEST, PendingRules, SizeRules
from ..rules.limits import PAGE as PAGE_OUT
from ..rules.queue_rules import DROP_HEAD, REJECT_PUBLISH_DLX, QueueRules
from ..stores.paged_run import Part
from .parts import Bound, Refusal

if TYPE_CHECKING:
    from .declaration import Declaration
    from .queue import Queue

#: The value of a header, and the message's timestamp property; None: the message has no such header.
Value = tuple[object, int] | None

#: Messages dropped in one slice: by a limit on the length, and by that of a slow subscriber (about 5 ms each).
TRIM_SLICE, EVICT_SLICE = 1000, 5000
#: Sizes of messages that a forecast adds in one step (about 2 ms).
SIZES_SLICE = 5000
#: Messages from the head among which a slow subscriber's strategy chooses, and messages examined per unit of effort.
CANDIDATES, EXAMINED_PER_EFFORT = 1000, 8
#: Reasons for a drop: the address is full; the subscriber is too slow.
FULL, PENDING_LIMIT = "full", "pending-message-limit"
#: Outcomes for one more message (`outcome_of`).
READY, DISABLED, DROPPED, REFUSED = "ready", "disabled", "dropped", "refused"
DEAD_LETTERED, EVICTS, DROPS_OLDEST = "dead-lettered", "evicts the oldest", "drops the oldest"


def bounds_of(queue: "Queue", rules: QueueRules | None = None) -> tuple[Bound, ...]:
    """The bounds of a queue by its rules (None) or by other rules, in the order in which they are asked."""
    rules, before = queue.rules if rules is None else rules, queue.pending
    found: list[Bound] = []
    size = rules.size
    has_whole_limit = queue.kind.is_limited and queue.context.broker.flow.has_whole_limit
    if size.may_drop_or_refuse or (size.drops_or_refuses and has_whole_limit):
        found.append(AddressBound())
    if rules.ring_size is not None:
        found.append(RingBound(rules.ring_size))
    if rules.has_limit:
        found.append(LengthBound(rules))
    if rules.pending is not None and queue.is_transient_subscriber:
        is_same = before is not None and before.rules == rules.pending
        found.append(before if before is not None and is_same else SubscriberBound(rules.pending))
    return tuple(found)


def forecast(queue: "Queue", declaration: "Declaration") -> Generator[None, None, int]:
    """Count the ready messages that a queue would drop at once with another declaration, in steps."""
    dropped = 0
    for bound in reversed(bounds_of(queue, declaration.rules)):  # the length, which needs steps, is counted last
        dropped = max(dropped, (yield from bound.forecast(queue)))
    return dropped


def response_when_full(queue: "Queue", rules: QueueRules) -> Generator[None, None, str]:
    """Find, in steps, how a queue would treat new messages under other rules: by an address-full-policy or overflow.

    Empty: neither the queue nor its address would be full, or it would drop old messages.
    """
    sharing: list[Queue] = queue.context.router.queues_at(queue.address) or [queue]
    if rules.size.policy != PAGE_OUT and _is_full(sharing, rules.size):
        return rules.size.policy
    if rules.overflow == DROP_HEAD:
        return ""
    if rules.max_length is not None and len(queue.store) >= rules.max_length:
        return rules.overflow
    if rules.max_length_bytes is not None:
        is_counted = queue.rules.max_length_bytes is not None
        octets = queue.store.body_octets if is_counted else sum((yield from _body_sizes(queue)))
        if octets >= rules.max_length_bytes:
            return rules.overflow
    return ""


def outcome_of(queue: "Queue", envelope: Envelope, content: bytes) -> str:
    """The fate of one more message now. In an empty queue with consumers it is ready unless refused, whatever their
    credit.
    """
    if not queue.is_open:
        return DISABLED
    message = Message(0, content, envelope)
    refusal = queue.refuses(message)
    if refusal is not None:
        if refusal.dead_letters:
            return DEAD_LETTERED
        return REFUSED if refusal.tells_publisher else DROPPED
    goes_to_consumer = bool(queue.consumer_list.consumers) and not len(queue.store)
    if any(bound.overflows(queue, message) for bound in queue.bounds):
        return READY if goes_to_consumer else DROPS_OLDEST
    ring_size = queue.rules.ring_size
    if ring_size is not None and len(queue.store) >= ring_size and not goes_to_consumer:
        return EVICTS
    return READY


# -- the size of an address -------------------------------------------------------------------------------------------


class AddressBound(Bound):
    """The size limit of the queue's address, or that of the whole broker.

    The size of an address includes all messages in its queues, also unacknowledged and scheduled ones.
    """

    may_refuse = True

    __slots__ = ()

    def refuses(self, queue: "Queue", message: Message) -> Refusal | None:
        policy = _policy_of_full(queue)
        return None if policy is None else Refusal(FULL, tells_publisher=policy == FAIL)


def fails_publishers(queue: "Queue") -> bool:
    """Whether the queue's address is full, and fails publishes."""
    return any(isinstance(bound, AddressBound) for bound in queue.refusing) and _policy_of_full(queue) == FAIL


def _policy_of_full(queue: "Queue") -> str | None:
    """How the queue's full address treats one more message: DROP or FAIL; None: it takes the message.

    While the whole broker is at its limit, each address is full.
    """
    size = queue.rules.size
    sharing: list[Queue] = queue.context.router.queues_at(queue.address) or [queue]
    if size.drops_or_refuses:
        return size.policy if queue.context.broker.flow.is_at_whole_limit or _is_full(sharing, size) else None
    return size.page_policy if size.page_policy is not None and _is_paged_full(sharing, size) else None


def _is_full(sharing: "list[Queue]", size: SizeRules) -> bool:
    if size.messages_max is not None and _messages_of(sharing) >= size.messages_max:
        return True
    return size.octets_max is not None and sum(one.events.octets or 0 for one in sharing) >= size.octets_max


def _is_paged_full(sharing: "list[Queue]", size: SizeRules) -> bool:
    """Whether an address has as many messages beyond its size as its page limit allows. Without a size, paged-out
    messages count.
    """
    if size.paged_messages_max is not None:
        if size.messages_max is None:
            beyond = sum(one.paged_count if one.meter is None else one.meter.paged for one in sharing)
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


def _messages_of(sharing: "list[Queue]") -> int:
    """Ready, scheduled and unacknowledged messages."""
    return sum(len(one.store) + len(one.scheduled) + (0 if one.keeps_acked else one.events.unacked) for one in sharing)


# -- a ring -----------------------------------------------------------------------------------------------------------


class RingBound(Bound):
    """Keeps the newest ready messages, up to the ring's size. Consumers are served before anything is dropped."""

    __slots__ = ("_ring_size",)

    def __init__(self, ring_size: int) -> None:
        self._ring_size = ring_size

    def takes_run(self, queue: "Queue") -> bool:
        """False if messages expire: expired heads must leave before each drop."""
        return not queue.store.expiring

    def admit_run(self, queue: "Queue", first_id: int, envelope: Envelope, contents: Sequence[bytes]) -> None:
        """Append the run; each arrival drops at most one head."""
        store, events = queue.evictable, queue.events
        count, before = len(contents), len(store)
        dropped = before + count - max(min(before + count, self._ring_size), before)
        from_ready = min(dropped, before)
        skipped = dropped - from_ready  # messages of the run that never become ready
        if from_ready:
            self._evict(queue, from_ready)
        if skipped:
            events.evicted_run(first_id, envelope, contents[:skipped])
        if skipped < count:
            store.append_run(first_id + skipped, envelope, contents[skipped:] if skipped else contents)

    def arrived(self, queue: "Queue", message: Message) -> None:
        if self.excess(queue) > 0:
            self._evict(queue, 1)

    def returned(self, queue: "Queue", count: int) -> None:
        """Each insertion drops at most one head, so that a resized ring shrinks as messages arrive."""
        step = 1 if queue.store.expiring else count
        while count > 0 and (excess := min(step, self.excess(queue))) > 0:
            self._evict(queue, excess)
            count -= step

    def excess(self, queue: "Queue") -> int:
        """Expire due heads (rule 9). Returns the ready messages beyond the ring's size; below 0: the room."""
        store = queue.store
        if store.expiring and len(store) >= self._ring_size:
            queue.expire()
        return len(store) - self._ring_size

    def _evict(self, queue: "Queue", count: int) -> None:
        gone = queue.evictable.evict_head(count, with_content=False)
        queue.events.evicted(gone.messages, gone.unread)


def has_full_ring(queue: "Queue") -> bool:
    """Whether a ring is full. As in Artemis, it drops a returned message instead of delaying its redelivery."""
    return any(isinstance(bound, RingBound) and bound.excess(queue) >= 0 for bound in queue.bounds)


# -- the length -------------------------------------------------------------------------------------------------------


class LengthBound(Bound):
    """max-length and max-length-bytes. As in RabbitMQ, only ready messages count.

    `may_refuse`: it refuses new messages instead of dropping heads.
    """

    __slots__ = ("_length_max", "_octets_max", "may_refuse")

    def __init__(self, rules: QueueRules) -> None:
        self._length_max = UNLIMITED if rules.max_length is None else rules.max_length
        self._octets_max = rules.max_length_bytes
        self.may_refuse = rules.overflow != DROP_HEAD

    def overflows(self, queue: "Queue", message: Message) -> bool:
        store = queue.store
        if len(store) >= self._length_max:
            return True
        return self._octets_max is not None and store.body_octets + message.body_octets > self._octets_max

    def refuses(self, queue: "Queue", message: Message) -> Refusal | None:
        """Refuse even if a consumer waits, as RabbitMQ does."""
        if not self.overflows(queue, message):
            return None
        return Refusal(MAXLEN, dead_letters=queue.rules.overflow == REJECT_PUBLISH_DLX)

    def fitting(self, queue: "Queue", messages: Sequence[Message]) -> int:
        """The number of messages, from the first, that have room."""
        store = queue.store
        count = min(len(messages), max(0, self._length_max - len(store)))
        if self._octets_max is not None:
            room = self._octets_max - store.body_octets
            for at in range(count):
                room -= messages[at].body_octets
                if room < 0:
                    return at
        return count

    def refuse_late(self, queue: "Queue", messages: list[Message]) -> None:
        """Drop or dead-letter due messages that have no room. Their publishers already got confirms."""
        if queue.rules.overflow == REJECT_PUBLISH_DLX:
            queue.dead_letter_or_drop(messages, MAXLEN)
        else:
            queue.events.died(messages, MAXLEN, None)

    def arrived(self, queue: "Queue", message: Message) -> None:
        """Drop heads, or do it later if the message is a dead letter and many dead letters are pending."""
        if message.envelope.cause_id and queue.context.broker.dead_letters.is_congested:
            queue.context.broker.background.trim_later(queue)
        else:
            self._trim(queue)

    def returned(self, queue: "Queue", count: int) -> None:
        self.enforce(queue)

    def enforce(self, queue: "Queue") -> None:
        if not self.may_refuse:
            self._trim(queue)

    def forecast(self, queue: "Queue") -> Generator[None, None, int]:
        if self.may_refuse:
            return 0
        beyond, excess = 0, len(queue.store) - self._length_max
        if self._octets_max is not None:
            beyond = yield from _count_beyond(queue, self._octets_max)
        return max(beyond, excess, 0)

    def _trim(self, queue: "Queue") -> None:
        """Drop heads until the limits hold, at most a slice. The rest is dropped at the ends of later turns."""
        if not self._is_over(queue):
            return
        needs_contents = queue.rules.dead_letter_target(MAXLEN) is not None
        for _ in range(TRIM_SLICE):
            gone = queue.evictable.evict_head(1, with_content=needs_contents)
            queue.events.octets_changed(gone.recounted)
            if gone.messages:
                queue.dead_letter_or_drop(gone.messages, MAXLEN)
            if gone.unread:
                queue.events.died_unread(gone.unread, MAXLEN)
            if not self._is_over(queue):
                return
        queue.context.broker.background.trim_later(queue)

    def _is_over(self, queue: "Queue") -> bool:
        store = queue.store
        count = len(store)
        if count > self._length_max:
            return True
        return self._octets_max is not None and count > 0 and store.body_octets > self._octets_max


def _count_beyond(queue: "Queue", octets_max: int) -> Generator[None, None, int]:
    """Count the messages at the head whose bodies do not fit together with those of all later messages."""
    sizes = yield from _body_sizes(queue)
    kept = 0
    for octets in reversed(sizes):
        octets_max -= octets
        if octets_max < 0:
            break
        kept += 1
        if kept % SIZES_SLICE == 0:
            yield
    return len(sizes) - kept


def _body_sizes(queue: "Queue") -> Generator[None, None, "array[int]"]:
    """Collect the octets of the ready bodies, in order of delivery, in steps; as they were before the first step.

    For messages in the temp store only the octets of contents are known.
    """
    memory, parts = list(queue.store), queue.store.paged_parts()
    columns = [((message.id, message.body_octets) for message in memory), *map(_sizes_of, parts)]
    sizes = array("I")
    # Messages in memory come first; but in a non-destructive queue they are the newest.
    for _, octets in merge(*columns) if queue.keeps_acked else chain.from_iterable(columns):
        sizes.append(octets)
        if len(sizes) % SIZES_SLICE == 0:
            yield
    return sizes


def _sizes_of(part: Part | Message) -> Iterator[tuple[int, int]]:
    """(id, octets) of paged-out messages. Copies slices, because single numbers of a column are slow to read."""
    if isinstance(part, Message):
        yield part.id, part.body_octets
        return
    for start in range(0, len(part.ids), SIZES_SLICE):
        stop = start + SIZES_SLICE
        yield from zip(part.ids[start:stop], part.sizes[start:stop])


# -- a slow subscriber ------------------------------------------------------------------------------------------------


class SubscriberBound(Bound):
    """pending-message-limit: drops messages of a slow transient subscriber, so that no publisher waits for it.

    Expired messages go first, then those that the strategy chooses among the first `CANDIDATES` messages.
    """

    __slots__ = ("_values", "rules", "soonest_ns")

    def __init__(self, rules: PendingRules) -> None:
        self.rules = rules
        self.soonest_ns = 0  # no known message expires earlier
        self._values: dict[int, Value] = {}  # by id: reading a header takes 10 us

    def takes_run(self, queue: "Queue") -> bool:
        return self.rules.eviction == OLDEST

    def admit_run(self, queue: "Queue", first_id: int, envelope: Envelope, contents: Sequence[bytes]) -> None:
        queue.evictable.append_run(first_id, envelope, contents)
        self.enforce(queue)

    def expect(self, expires_ns: int) -> None:
        self.soonest_ns = min(self.soonest_ns, expires_ns)

    def arrived(self, queue: "Queue", message: Message) -> None:
        self.enforce(queue)

    def returned(self, queue: "Queue", count: int) -> None:
        self.soonest_ns = 0  # returned messages may expire sooner
        queue.context.broker.background.trim_later(queue)

    def forecast(self, queue: "Queue") -> Generator[None, None, int]:
        yield from ()
        limit = self._limit(queue)
        return 0 if limit is None else max(0, len(queue.store) - limit)

    def _limit(self, queue: "Queue") -> int | None:
        return self.rules.limit_for([_prefetch_of(one) for one in queue.consumer_list.consumers])

    def enforce(self, queue: "Queue") -> None:
        limit = self._limit(queue)
        if limit is None or len(queue.store) <= limit:
            return
        if queue.store.expiring and self.soonest_ns <= queue.context.broker.clock.monotonic_ns():
            self._expire(queue)
        for _ in range(2):  # a strategy may choose fewer messages than the excess
            excess = min(len(queue.store) - limit, EVICT_SLICE)
            if excess > 0:
                self._evict(queue, excess)
        if len(queue.store) > limit:
            queue.context.broker.background.trim_later(queue)

    def _evict(self, queue: "Queue", excess: int) -> None:
        positions: list[int] = []
        if self.rules.eviction != OLDEST:
            candidates, position_of = _candidates(queue, excess)
            positions = [position_of(at) for at in self._chosen(candidates, excess)]
        if positions:
            gone = queue.evictable.take_at(positions)
        else:
            gone = queue.evictable.evict_head(excess, with_content=False)
        queue.events.evicted(gone.messages, gone.unread, PENDING_LIMIT)

    def _expire(self, queue: "Queue") -> None:
        """Expire candidates, also those behind live ones."""
        candidates, position_of = _candidates(queue, 1)
        now_ns = queue.context.broker.clock.monotonic_ns()
        expired = [position_of(at) for at, message in enumerate(candidates) if 0 < message.expires_ns <= now_ns]
        if expired:
            queue.dead_letter_or_drop(queue.evictable.take_at(expired).messages, EXPIRED)
        self.soonest_ns = min((one.expires_ns for one in candidates if one.expires_ns > now_ns), default=UNLIMITED)

    def _chosen(self, candidates: Sequence[Message], count: int) -> list[int]:
        """Indexes, rising, of the candidates to drop for an excess of `count`. Empty: drop the first ones."""
        if self.rules.eviction == LOWEST_PRIORITY:
            ranks = ((message.envelope.summary.priority or 0, at) for at, message in enumerate(candidates))
            return sorted(at for _, at in nsmallest(count, ranks))
        values = self._values = {message.id: self._value_of(message) for message in candidates}
        newest: dict[object, tuple[tuple[int, int], int]] = {}
        for at, message in enumerate(candidates):
            value = values[message.id]
            if value is not None:
                rank = ((value[1], message.id), at)
                newest[value[0]] = max(newest.get(value[0], rank), rank)
        staying = {at for _, at in newest.values()}
        return [at for at in range(len(candidates)) if at not in staying] if staying else []

    def _value_of(self, message: Message) -> Value:
        if message.id in self._values:
            return self._values[message.id]
        properties = decode_properties(message.envelope.framing.split(message.content)[0])
        headers, timestamp = properties.get("headers"), properties.get("timestamp")
        field = headers.get(self.rules.key) if isinstance(headers, dict) else None
        if field is None:
            return None
        return field.comparable(), timestamp if isinstance(timestamp, int) else 0


def _prefetch_of(consumer: Consumer) -> int:
    """The prefetch limit of a consumer; 0: unlimited."""
    if consumer.no_ack:
        return 0
    limits = [limit for limit in (consumer.prefetch, consumer.session.prefetch_total) if limit]
    return min(limits, default=0)


def _candidates(queue: "Queue", excess: int) -> tuple[list[Message], Callable[[int], int]]:
    """The first messages in order of delivery, and a function from index to position. Reads paged-out messages."""
    store, wanted = queue.store, max(CANDIDATES, excess)
    queue.context.broker.turn.effort += min(wanted, len(store)) // EXAMINED_PER_EFFORT
    if not store.is_deep:
        candidates = list(islice(store, wanted))
        return candidates, lambda at: store.position_of(candidates[at])
    seen = store.scan(0, wanted)
    if seen.missing:
        store.load_at(seen.found[-1][0] if seen.found else 0, wanted)
        seen = store.scan(0, wanted)
    return [message for _, message in seen.found], lambda at: seen.found[at][0]
