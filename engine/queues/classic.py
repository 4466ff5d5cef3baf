"""The parts of classic and quorum queues: each message goes to one consumer, in order.

Source: behaviour page 2.4, 2.7, 2.12, 3.2, 3.3; address-settings page 1.3, 3.3, 4.5 (rule 6), 5.3, 7.1; queues page F.
"""

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..clock import MS, bounded_ms, due_after
from ..delivery.consumer import Consumer
from ..delivery.consumer_list import RUN_MAX, equal_share
from ..delivery.groups import GroupedMessage, Groups, grouped
from ..exchanges.delayed_exchange import DelayedExchange
from ..messages.dead_letter import DELIVERY_LIMIT, EXPIRED
from ..messages.field_table import Field
from ..messages.message import UNLIMITED, Envelope, Message, id_of
from ..rules.expiry_policy import NO_EXPIRY_POLICY
from ..rules.queue_rules import NO_RULES, QueueRules, redelivery_delay_ms
from ..stores.paged_index import PagedEntry
from . import reconfigure, scheduled
from .bounds import fails_publishers, has_full_ring
from .parts import Dispatch, Intake, Settlement

if TYPE_CHECKING:
    from ..stores.tailed_store import TailedStore
    from .queue import Queue
    from .restore import Restorer
    from .selection import Selection


#: Minimum credit of all consumers together, in messages, at which paged-out messages go straight to them without
#: becoming ready.
STRAIGHT_MIN = 64
#: Paged-out messages, and octets of them, that go straight to consumers in one load.
STRAIGHT_SLICE, STRAIGHT_OCTETS = 1000, 4 * 1024 * 1024
#: Messages that one dispatch passes over, because the consumers of their groups are busy (about 5 ms).
PASSED_MAX = 20_000


# -- in ---------------------------------------------------------------------------------------------------------------


class ClassicIntake(Intake):
    """Refuses, schedules, hands over, drops or stores new messages one by one, and plain runs as a whole."""

    is_plain = True

    def message_for(self, queue: "Queue", id_: int, content: bytes, envelope: Envelope) -> Message:
        """Make a message, which has its message group if the queue's rules allow groups."""
        rules = queue.rules
        if (
            envelope.summary.is_marked
            and rules.group_buckets != 0
            and rules.last_value_key is None
            and not queue.keeps_acked
        ):
            message = grouped(id_, content, envelope, rules.group_buckets)
            if message is not None:
                queue.consumer_list.enable_groups()
                queue.takes_plainly = False
                reconfigure.cap_memory(queue)
                return message
        return queue.store.new_message(id_, content, envelope)

    def admit(
        self, queue: "Queue", first_id: int, envelope: Envelope, contents: Sequence[bytes], due_ns: int | None
    ) -> Sequence[int]:
        rules, store, bounds, context = queue.rules, queue.evictable, queue.bounds, queue.context
        if due_ns is None and len(bounds) == 1 and envelope.is_plain and _takes_run(queue):
            _admit_run(queue, first_id, envelope, contents)
            return ()
        ttl_ms = time_to_live_ms(rules, envelope)
        expires_ns = 0 if ttl_ms is None else due_after(context.broker.clock, ttl_ms)
        if expires_ns:
            store.expiring = True  # even if a consumer takes the message at once: it may be requeued
            for bound in bounds:
                bound.expect(expires_ns)
        drops_others = rules.has_limit or rules.last_value_key is not None or queue.pending is not None
        drops_others = drops_others or (rules.ring_size is not None and not queue.keeps_acked)
        if (drops_others or ttl_ms == 0) and context.broker.scheduler.is_marked(queue):
            queue.dispatch()  # messages that were requeued in this turn go out first
        refused: list[int] = []
        refusing, offer, enqueued = queue.refusing, queue.delivery.offer, queue.events.enqueued  # saves 0.1 us each
        for offset, content in enumerate(contents):
            message = self.message_for(queue, first_id + offset, content, envelope)
            message.expires_ns = expires_ns
            if refusing and (refusal := queue.refuses(message)) is not None:
                if refusal.tells_publisher:
                    refused.append(offset)
                if refusal.dead_letters:
                    queue.dead_letter_or_drop([message], refusal.reason, came_in=False)
                else:
                    queue.events.refused(message, refusal.reason)
            elif due_ns is not None:
                scheduled.schedule_new(queue, message, due_ns)
            else:
                enqueued(message)
                if offer(queue, message):
                    continue
                if ttl_ms != 0 or not _expires_at_once(queue, message):
                    _append(queue, message)
                elif envelope.cause_id and context.broker.dead_letters.is_congested:
                    _append(queue, message)  # while many dead letters are pending, a new one expires later
                    context.broker.dead_letters.expire_later(queue)
                else:
                    queue.dead_letter_or_drop([message], EXPIRED)
        if due_ns is not None:
            scheduled.await_due(queue)
        if store.expiring:
            queue.arm_expiry()
        return refused

    def place_due(self, queue: "Queue", messages: list[Message]) -> None:
        """Put messages at the head of their level, as Artemis does. Messages of a delaying exchange go to the end, as
        with RabbitMQ's plugin (address-settings page 4.5, rule 2, and 5.3).
        """
        at_end: list[Message] = []
        for message in reversed(messages):
            if isinstance(queue.context.exchanges.get(message.envelope.exchange), DelayedExchange):
                at_end.append(message)
            else:
                _note_replaced(queue, queue.consumable.put_first(message))
        for message in reversed(at_end):
            _note_replaced(queue, queue.consumable.put_last(message))
        if queue.selection is not None:
            queue.selection.came_back(queue.store, messages)

    def restore(self, queue: "Queue", restorer: "Restorer") -> None:
        restorer.restore_ready(queue)


def _takes_run(queue: "Queue") -> bool:
    """Whether the only bound can admit a run of plain messages as a whole, and no rule needs each message."""
    return (
        not queue.rules.concerns_messages
        and queue.bounds[0].takes_run(queue)
        and queue.selection is None
        and queue.consumer_list.groups is None
        and not queue.store.is_deep
        and not (len(queue.store) and queue.consumer_list.has_credit())
    )


def _admit_run(queue: "Queue", first_id: int, envelope: Envelope, contents: Sequence[bytes]) -> None:
    """Hand a run to waiting consumers and the rest to the bound, with the same result as message by message."""
    queue.events.enqueued_run(first_id, envelope, contents)
    if queue.consumer_list.consumers and not len(queue.store):
        taken = queue.consumer_list.hand_over(first_id, envelope, contents)
        first_id += taken
        contents = contents[taken:]
    if contents:
        queue.bounds[0].admit_run(queue, first_id, envelope, contents)
    if queue.store.expiring:
        queue.arm_expiry()  # the head may have changed


def _append(queue: "Queue", message: Message) -> None:
    """Store a message. The bounds drop messages that have no room."""
    _note_replaced(queue, queue.evictable.append(message))
    if queue.consumer_list.groups is not None:
        queue.dispatch()
    for bound in queue.bounds:
        bound.arrived(queue, message)


def _note_replaced(queue: "Queue", older: Message | PagedEntry | None) -> None:
    """Count a last value that a newer one replaced; None: there was none."""
    if older is not None:
        queue.events.replaced(older)


def _expires_at_once(queue: "Queue", message: Message) -> bool:
    """Whether a message with a time to live of 0, which no consumer took, expires before it is stored.

    As in RabbitMQ, a limit on the length is checked first, unless the queue has a TTL of 0 and no dead-letter exchange.
    A message with an expiration of 0 behind others expires as soon as it is the head.
    """
    rules = queue.rules
    if rules.message_ttl_ms == 0 and rules.dead_letter_exchange is None:
        return True
    if any(bound.overflows(queue, message) for bound in queue.bounds):
        return False
    return rules.message_ttl_ms == 0 or not len(queue.store)


def time_to_live_ms(rules: QueueRules, envelope: Envelope) -> int | None:
    """A message's time to live; None: it does not expire (address-settings page 1.3, step 4).

    It is the message's expiration, as the expiry policy of its address, or else of the queue, changes it; at most the
    queue's message-ttl.
    """
    ttl_ms = envelope.expiration_ms
    if rules.expiry is not NO_EXPIRY_POLICY and not envelope.expiry_is_settled:
        ttl_ms = rules.expiry.applied_to(ttl_ms)
    if rules.message_ttl_ms is None:
        return ttl_ms
    return rules.message_ttl_ms if ttl_ms is None else min(ttl_ms, rules.message_ttl_ms)


# -- out --------------------------------------------------------------------------------------------------------------


class ClassicDispatch(Dispatch):
    """Serves consumers with credit in round-robin order, or by filters and message groups if there are any."""

    def removes_messages(self, queue: "Queue", consumer: Consumer) -> bool:
        return True

    def offer(self, queue: "Queue", message: Message) -> bool:
        consumer_list = queue.consumer_list
        if queue.selection is not None:
            return queue.selection.offer(queue, message)
        if (
            queue.store.ready
            or queue.store.has_tail
            or consumer_list.groups is not None
            or not consumer_list.has_credit()
        ):
            return False
        (consumer,) = consumer_list.eligible(1)
        consumer.session.deliver_ready(consumer, [message])
        return True

    def dispatch(self, queue: "Queue") -> None:
        if queue.freeze_count:
            return
        store, consumer_list, turn = queue.consumable, queue.consumer_list, queue.context.broker.turn
        if queue.selection is not None:
            _dispatch_selected(queue, queue.selection)
            return
        if not store.ready and store.has_tail and consumer_list.has_credit():
            self.load(queue)
        if consumer_list.groups is not None:
            _dispatch_groups(queue, consumer_list.groups)
            return
        if consumer_list.is_simple and not store.expiring:
            _dispatch_to(queue, consumer_list.consumers[0])
            return
        is_expiry_done = True  # no expired head is left
        while store.ready:
            available = len(store.ready)
            if store.expiring:
                is_expiry_done = queue.expire()
                if not is_expiry_done or not store.ready:
                    break
                available = 1
            eligible = consumer_list.eligible(available)
            if not eligible:
                break
            width = len(eligible)
            first = eligible[0]
            if width == 1:
                limit = 1 if store.expiring else consumer_list.run_limit(first, available)
                first.session.deliver_ready(first, store.take(limit, first.client.outbox_room()))
            else:
                share = equal_share(eligible, available, store.head_octets)
                block = store.take(share * width, UNLIMITED)
                for index, consumer in enumerate(eligible):
                    consumer.session.deliver_ready(consumer, block[index::width])
            if eligible[-1].session.prefetch_total and consumer_list.must_yield(eligible[-1]):
                queue.mark()
                break
            if turn.effort >= turn.effort_max:
                queue.mark()  # the rest is for the next turn
                break
        balance_memory(queue)
        if store.expiring:
            _expire_behind(queue, is_expiry_done=is_expiry_done)

    def pop(self, queue: "Queue") -> Message | None:
        queue.note_use()
        store, pageable = queue.consumable, queue.pageable
        while True:
            if pageable is not None and not store.ready and store.has_tail:
                pageable.load()
            while store.expiring and not queue.expire(is_whole=True):
                pass
            if store.ready or not store.has_tail:
                break
        message = store.take(1, UNLIMITED)[0] if store.ready else None
        if store.expiring:
            queue.expire()  # the heads behind it
            queue.arm_expiry()
        return message

    def wants_load(self, queue: "Queue") -> bool:
        """Whether memory has fewer messages than consumers may take soon."""
        pageable = queue.pageable
        if queue.deleted or pageable is None or not pageable.is_deep:
            return False
        if queue.selection is not None:
            return queue.selection.search.is_waiting
        consumer_list = queue.consumer_list
        is_straight = _goes_straight(queue) and any(
            not 0 < one.prefetch < STRAIGHT_MIN for one in consumer_list.consumers
        )
        is_waiting = (is_straight or not pageable.ready) and consumer_list.has_credit()
        return pageable.wants_more(is_straight=is_straight, is_waiting=is_waiting)

    def load(self, queue: "Queue") -> None:
        """Read messages into memory, or, if memory has none, straight to consumers with enough credit."""
        pageable = queue.pageable
        if pageable is None:
            return
        if queue.selection is not None:
            queue.selection.search.load(pageable)
            return
        is_empty = not pageable.ready
        wanted, octets = queue.consumer_list.total_credit() if is_empty else (0, 0)
        if wanted < STRAIGHT_MIN or not _goes_straight(queue):
            pageable.load(max(1, wanted), max(1, octets))
        else:
            hand_over, from_id = queue.consumer_list.hand_over, queue.events.redelivered_below
            pageable.load_straight(min(wanted, STRAIGHT_SLICE), min(octets, STRAIGHT_OCTETS), hand_over, from_id)


def _expire_behind(queue: "Queue", *, is_expiry_done: bool) -> None:
    """Expire the heads behind delivered messages, unless `expire` left expired heads for a later slice."""
    if is_expiry_done:
        queue.expire()
    queue.arm_expiry()


def _dispatch_selected(queue: "Queue", selection: "Selection") -> None:
    """Dispatch in a queue with a filtering consumer."""
    store = queue.store
    is_expiry_done = not store.expiring or queue.expire()
    if is_expiry_done:
        selection.dispatch(queue)
        queue.enforce_quota()
    if store.expiring:
        _expire_behind(queue, is_expiry_done=is_expiry_done)


def _dispatch_to(queue: "Queue", consumer: Consumer) -> None:
    """Dispatch to the only consumer, without expiry. Its credit is checked once a run, which saves 2 us."""
    store, session, turn = queue.consumable, consumer.session, queue.context.broker.turn
    while store.ready:
        credit = consumer.credit()
        if credit <= 0:
            break
        messages = store.take(min(credit, len(store.ready), RUN_MAX), consumer.client.outbox_room())
        session.deliver_ready(consumer, messages)
        if turn.effort >= turn.effort_max:
            queue.mark()  # the rest is for the next turn
            break
        if len(messages) == credit:
            break
    balance_memory(queue)


def _dispatch_groups(queue: "Queue", groups: Groups) -> None:
    """Dispatch each message to the consumer of its group. O(delivered + passed)."""
    store, consumer_list = queue.consumable, queue.consumer_list
    if not groups.may_dispatch(queue.events.unacked):
        return
    passed: deque[Message] = deque()
    is_expiry_done = True  # no expired head is left
    while store.ready and len(passed) < PASSED_MAX:
        if store.expiring:
            is_expiry_done = queue.expire()
            if not is_expiry_done or not store.ready:
                break
        if not consumer_list.has_credit():
            break
        (message,) = store.take(1, UNLIMITED)
        consumer = _consumer_for(queue, groups, message)
        if consumer is None:
            passed.append(message)
            continue
        consumer.session.deliver_ready(consumer, [message])
        if consumer_list.must_yield(consumer):
            queue.mark()
            break
    while passed:
        store.put_first(passed.pop())
    if queue.pageable is not None:
        _load_if_low(queue, queue.pageable)
    if store.expiring:
        _expire_behind(queue, is_expiry_done=is_expiry_done)


def _consumer_for(queue: "Queue", groups: Groups, message: Message) -> Consumer | None:
    """The consumer that gets the message now; None: none can take it.

    The first message of a group that a consumer gets is marked with the header that the rules name (group-first-key).
    """
    if not isinstance(message, GroupedMessage):
        eligible = queue.consumer_list.eligible(1)
        return eligible[0] if eligible else None
    consumer, is_first = groups.choose_consumer(message, queue.consumer_list.eligible)
    key = queue.rules.group_first_key
    if is_first and key is not None:
        queue.add_headers(message, {key: Field("t", True)})
    return consumer


def _goes_straight(queue: "Queue") -> bool:
    """Whether paged-out messages may go straight to consumers, as new ones do."""
    return (
        not queue.freeze_count
        and not queue.store.expiring
        and queue.consumer_list.groups is None
        and queue.events.meter is None
    )


def balance_memory(queue: "Queue") -> None:
    """Page out messages beyond the quota of memory, and load messages later if too few are left."""
    pageable = queue.pageable
    if pageable is None or not (
        queue.context.broker.storage.pager is not None or pageable.has_tail or pageable.share.cap is not None
    ):
        return
    if pageable.enforce_quota():
        queue.context.broker.background.trim_later(queue)
    _load_if_low(queue, pageable)


def _load_if_low(queue: "Queue", pageable: "TailedStore") -> None:
    """Load paged-out messages between turns if too few are left in memory."""
    # The same criterion for all kinds, and that of the kind: leased queues without room for a lease load nothing.
    if pageable.is_low() and DISPATCH.wants_load(queue) and queue.wants_load():
        queue.context.broker.scheduler.load_later(queue)


# -- back -------------------------------------------------------------------------------------------------------------


class ClassicSettlement(Settlement):
    """Removes acknowledged messages. Requeued ones go to their positions, wait for redelivery, or die."""

    def acknowledged(self, queue: "Queue", messages: Sequence[Message]) -> None:
        queue.events.acked(messages)

    def expired(self, queue: "Queue", messages: list[Message]) -> None:
        queue.dead_letter_or_drop(messages, EXPIRED)

    def unacked(self, queue: "Queue") -> list[Message]:
        """O(unacknowledged + deliveries to the queue's sessions since the last call)."""
        if not queue.events.unacked:
            return []
        return [message for session in queue.sessions for message in session.unacked_of(queue)]

    def first_unacked(self, queue: "Queue", count: int) -> list[Message]:
        found: list[Message] = []
        for session in queue.sessions if queue.events.unacked else ():
            found += session.first_unacked_of(queue, count - len(found))
            if len(found) >= count:
                break
        return found

    def reject(self, queue: "Queue", messages: list[Message], reason: str) -> None:
        queue.dead_letter_or_drop(messages, reason)

    def reject_or_requeue(self, queue: "Queue", messages: list[Message], reason: str) -> None:
        if queue.rules is not NO_RULES and dead_letters_are_refused(queue):
            for message in messages:
                message.uncounted += 1
            self.requeue(queue, messages, reason, counted=True, with_redelivery_delay=True)
        else:
            self.reject(queue, messages, reason)

    def requeue(
        self, queue: "Queue", messages: list[Message], why: str, *, counted: bool, with_redelivery_delay: bool
    ) -> None:
        """Requeue messages; their redelivery delays begin now. O(messages + older ready messages)."""
        if queue.deleted or not messages:
            return
        queue.context.broker.turn.effort += len(messages)
        messages.sort(key=id_of, reverse=True)
        for message in messages:
            message.holder = None
        if queue.rules is not NO_RULES:
            _requeue_by_rules(queue, messages, why, counted=counted, with_redelivery_delay=with_redelivery_delay)
        else:
            if not counted:
                for message in messages:
                    message.uncounted += 1
            queue.events.requeued(messages[::-1], why=why, counted=counted)
            queue.merge(messages)
            queue.mark()
        if queue.store.expiring:
            queue.arm_expiry()


def _requeue_by_rules(
    queue: "Queue", messages: list[Message], why: str, *, counted: bool, with_redelivery_delay: bool
) -> None:
    """Requeue messages (ids falling) by the queue's rules: each dies, is purged or evicted, waits, or is ready.

    Order of checks: attempts, purge-on-no-consumers, ring, delay, insertion (address-settings page 4.5, rule 6).
    """
    rules, context = queue.rules, queue.context
    now_ns = context.broker.clock.monotonic_ns()
    dead: list[Message] = []
    back: list[Message] = []
    waiting: list[Message] = []
    due: list[int] = []  # times of the messages in `waiting`
    evicted: list[Message] = []
    purged: list[Message] = []
    limit = rules.max_delivery_attempts
    if context.broker.is_stopping or is_own_dead_letter_target(queue):
        limit = None
    for message in messages:
        message.uncounted += not counted
        attempts = message.deliveries - message.uncounted
        is_refused = False
        if limit is not None and attempts >= limit:
            is_refused = dead_letters_are_refused(queue)
            if not is_refused:
                dead.append(message)
                continue
            message.uncounted += counted  # a full target must not use up an attempt
            attempts -= counted
        if rules.purge_on_no_consumers and not queue.consumer_list.consumers:
            purged.append(message)
            continue
        if attempts > 0 and rules.counts_deliveries:
            queue.add_delivery_count(message, attempts)
        wait_ms = None
        if with_redelivery_delay or is_refused:
            wait_ms = redelivery_delay_ms(rules, attempts, context.broker.chance(), counted=counted)
        if wait_ms is None:
            back.append(message)
        elif has_full_ring(queue):
            evicted.append(message)
        else:
            waiting.append(message)
            due.append(queue.scheduled.add(now_ns + bounded_ms(wait_ms) * MS, message))
    if dead:
        queue.dead_letter_or_drop(dead[::-1], DELIVERY_LIMIT)
    if evicted:
        queue.events.evicted(evicted[::-1])
    if purged:
        queue.events.purged(purged[::-1])
    if waiting:
        queue.events.scheduled(waiting[::-1], due[::-1], why=why, counted=counted)
        scheduled.await_due(queue)
    if back:
        queue.events.requeued(back[::-1], why=why, counted=counted)
        queue.insert(back)


def is_own_dead_letter_target(queue: "Queue") -> bool:
    """Whether the queue is its own dead-letter target. Then attempts have no limit: dead letters would come back."""
    rules = queue.rules
    address = rules.dead_letter_address
    if address is None:
        return False
    return address in (queue.name, queue.address) or address == f"queue:{queue.name}"


def dead_letters_are_refused(queue: "Queue") -> bool:
    """Whether the dead-letter address is full and refuses messages (address-settings page 8.5, row L19)."""
    rules = queue.rules
    if rules.dead_letter_address is None:
        return False
    return any(map(fails_publishers, queue.context.router.queues_behind(rules.dead_letter_address, queue.address)))


INTAKE, DISPATCH, SETTLEMENT = ClassicIntake(), ClassicDispatch(), ClassicSettlement()
