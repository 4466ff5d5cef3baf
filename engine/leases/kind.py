"""A leased queue, as in AMPS: it lends messages to consumers, and takes them back unless they are acknowledged.

Source: queues page A. Why it has the store of other queues: docs/decisions/0011-leases.md.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from ...settings.leases import BY_QUEUE
from ..clock import due_after
from ..delivery.consumer import Consumer, holder_of
from ..errors import InvalidArgument
from ..messages.deaths import EXPIRED
from ..messages.field_table import FieldTable
from ..messages.message import Envelope, Message
from ..queues import scheduled
from ..queues.bounds import bounds_of
from ..queues.consumers import select, select_no_more
from ..queues.kinds import register
from ..queues.parts import Kind, Parts
from ..queues.picture import picture
from ..queues.queue import Queue
from ..queues.reconfigure import cap_memory, recount
from ..queues.restore import Restorer
from ..rules.arguments import AMPS, REPLACE, Reason
from ..rules.replay_rules import REPLAY_ARGUMENTS
from ..stores.store import Store
from ..stores.tailed_store import TailedStore
from . import dispatch as leased_dispatch
from .active_set import ActiveSet
from .arguments import BROWSE, RENEWAL, ConsumerRequest, request_of
from .browse import Browse
from .ending import FORCED_EXPIRE, TIME_LIMIT, UNSUBSCRIBED
from .granting import begin, presented
from .ranked_store import RANK_MAX, RankedStore, position_at, ranked
from .ranking import is_barrier, rank_of
from .rebuilding import RebuiltCore
from .replaying import read_on, replay_for, take_turn

if TYPE_CHECKING:
    from ...expressions.language import Expression
    from ..clients.session import Session

#: Messages read at once when the store is rebuilt with other ranks.
BUILD_SLICE = 500
#: Reasons of `requeue` that count as cancels by the client.
CANCELS = frozenset({"nacked", "rejected", "recovered"})


class LeasedIntake:
    """Logs new messages, and stores or schedules them. The router has applied the queue's filter already."""

    is_plain = False

    __slots__ = ()

    def admit(
        self, queue: "LeasedQueue", first_id: int, envelope: Envelope, contents: Sequence[bytes], due_ns: int | None
    ) -> Sequence[int]:
        queue.last_id = max(queue.last_id, first_id + len(contents) - 1)
        storage = queue.context.broker.storage
        if storage.durability is None:
            wall_ms = queue.context.broker.clock.wall_ms()
            storage.memory_log.note(queue.vhost_name, queue.name, first_id, envelope, contents, wall_ms)
        refused: Sequence[int] = ()
        if due_ns is not None:
            refused = _admit(queue, first_id, envelope, contents, 0, due_ns)
            scheduled.await_due(queue)
            return refused
        expires_ns = queue.lifetime_ns(envelope)
        if expires_ns or queue.is_ranked or queue.refusing:
            refused = _admit(queue, first_id, envelope, contents, expires_ns)
        else:
            queue.events.enqueued_run(first_id, envelope, contents)
            queue.store.append_run(first_id, envelope, contents)
            _tell_groups(queue, (queue.last_id,))
            if queue.deferred is not None:
                queue.settle_deferred(range(first_id, first_id + len(contents)))
        if queue.consumer_list.consumers:
            queue.mark()
        return refused

    def place_due(self, queue: "LeasedQueue", messages: list[Message]) -> None:
        """Make delayed messages ready; their lifetimes begin now."""
        for message in messages:
            message.expires_ns = queue.lifetime_ns(message.envelope)
            queue.store.put_last(message)
            if message.expires_ns:
                _expect(queue, message, is_own=True)
        positions = list(map(queue.store.position_of, messages))
        if queue.active is not None:
            queue.active.came(positions)
        _tell_groups(queue, positions)
        if queue.deferred is not None:
            queue.settle_deferred([message.id for message in messages])
        queue.arm_leases()

    def rules_changed(self, queue: "LeasedQueue") -> None:
        queue.rules_changed()

    def restored(self, queue: "LeasedQueue") -> None:
        queue.restore_deferred()
        queue.expect_all()


def _admit(
    queue: "LeasedQueue",
    first_id: int,
    envelope: Envelope,
    contents: Sequence[bytes],
    expires_ns: int,
    due_ns: int | None = None,
) -> list[int]:
    refused: list[int] = []
    store = queue.store
    is_own = envelope.expiration_ms is not None and queue.leased.settings.expiration_model != BY_QUEUE
    for offset, content in enumerate(contents):
        message = queue.message_for(first_id + offset, content, envelope)
        if queue.refusing and (refusal := queue.refuses(message)) is not None:
            if refusal.tells_publisher:
                refused.append(offset)
            queue.events.refused(message, refusal.reason)
            continue
        if due_ns is not None:
            scheduled.take_in(queue, message, due_ns)
            continue
        message.expires_ns = expires_ns
        queue.events.enqueued(message)
        store.append(message)
        _tell_groups(queue, (store.position_of(message),))
        if expires_ns:
            _expect(queue, message, is_own)
    if queue.deferred is not None and due_ns is None:
        queue.settle_deferred(range(first_id, first_id + len(contents)))
    if expires_ns:
        queue.arm_expiry()
        queue.arm_leases()
        if expires_ns <= max(1, queue.context.broker.clock.monotonic_ns()):
            _let_live_only_now(queue, expires_ns)
    return refused


def _tell_groups(queue: "LeasedQueue", positions: Sequence[int]) -> None:
    """Tell groups of filtering consumers of new messages at these positions."""
    if queue.selection is not None:
        queue.selection.groups.came_to(sorted(positions))


def _expect(queue: "LeasedQueue", message: Message, is_own: bool) -> None:
    """Note when a message expires: at the head of the queue, or anywhere in it once lifetimes differ."""
    store = queue.store
    store.expect_expiry()
    if is_own or queue.is_ranked or queue.book.has_own_lifetimes:
        queue.book.expect(message.expires_ns, message.id, store.position_of(message))


def _let_live_only_now(queue: "LeasedQueue", now_ns: int) -> None:
    """Hand messages with a lifetime of 0 to consumers with room, and expire the rest (queues page A.5)."""
    leased_dispatch.dispatch(queue, expires=False)
    queue.expire_ready(now_ns)


class LeasedDispatch:
    """Leases messages to consumers by the fairness model; shows copies to browsing and replaying ones."""

    __slots__ = ()

    def joining(self, queue: "LeasedQueue", consumer: Consumer) -> None:
        """Read the arguments; prepare a browse or a replay. Raises: InvalidArgument, and the errors of `replay_for`."""
        request = request_of(consumer.arguments, name=queue.name, vhost=queue.vhost_name)
        _check_renewal(queue, consumer, request)
        _give_backlog(queue, consumer, request)
        asked = request.backlog if request.backlog is not None else consumer.session.prefetch_wanted
        if request.browses:
            queue.consumer_list.check_join(consumer, queue=queue.name, vhost=queue.vhost_name)
            queue.browsing[consumer] = Browse(
                queue.last_id, queue.ready_count if request.top_n is None else request.top_n
            )
            queue.mark()
        elif (replay := replay_for(queue, consumer, asked)) is not None:
            queue.consumer_list.check_join(consumer, queue=queue.name, vhost=queue.vhost_name)
            queue.replaying[consumer] = replay
            queue.mark()

    def joined(self, queue: "LeasedQueue", consumer: Consumer) -> None:
        request = request_of(consumer.arguments, name=queue.name, vhost=queue.vhost_name)
        is_aside = request.browses or request.backlog == 0 or consumer in queue.replaying
        queue.lease_consumers.joined(consumer, is_aside=is_aside, renews=request.renews)

    def removes_messages(self, queue: "LeasedQueue", consumer: Consumer) -> bool:
        return consumer not in queue.browsing and consumer not in queue.replaying

    def replace(
        self,
        queue: "LeasedQueue",
        consumer: Consumer,
        arguments: FieldTable,
        filter_: "Expression | None",
        *,
        no_ack: bool,
        exclusive: bool,
    ) -> None:
        """Replace filter, backlog and priority; the consumer's leases go on. Raises: InvalidArgument."""
        request = request_of(arguments, name=queue.name, vhost=queue.vhost_name)
        looks = request.browses or consumer in queue.browsing or consumer in queue.replaying
        looks = looks or not REPLAY_ARGUMENTS.isdisjoint(arguments)
        if looks or (no_ack, exclusive) != (consumer.no_ack, consumer.exclusive):
            reason = Reason("text", f"{BROWSE}, replay, no_ack and exclusive can not be replaced")
            raise InvalidArgument(key=REPLACE, name=queue.name, vhost=queue.vhost_name, reason=reason)
        _check_renewal(queue, consumer, request)
        if queue.selection is not None:
            select_no_more(queue, queue.selection, [consumer])
        consumer.change(arguments, filter_)
        _give_backlog(queue, consumer, request)
        queue.lease_consumers.joined(consumer, is_aside=request.backlog == 0, renews=request.renews)
        select(queue, consumer)
        queue.mark()

    def left(self, queue: "LeasedQueue", leaving: Sequence[Consumer]) -> None:
        """End the leases of leaving consumers; the tags stay valid (queues page A.2; conflict K5)."""
        for consumer in leaving:
            queue.browsing.pop(consumer, None)
            if (replay := queue.replaying.pop(consumer, None)) is not None:
                queue.context.broker.deadlines.cancel(replay.deadline)
        queue.lease_consumers.late.difference_update(leaving)
        if not queue.deleted and any(consumer.unacked for consumer in leaving):
            gone = set(leaving)
            tables = (queue.book.leases, queue.book.slots)
            held = [lease for table in tables for lease in table.by_id.values() if lease.holder in gone]
            queue.break_leases(held, UNSUBSCRIBED)

    def offer(self, queue: "LeasedQueue", message: Message) -> bool:
        return False

    def dispatch(self, queue: "LeasedQueue") -> None:
        leased_dispatch.dispatch(queue)

    def pop(self, queue: "LeasedQueue") -> Message | None:
        return leased_dispatch.pop(queue)

    def is_hungry(self, queue: "LeasedQueue") -> bool:
        if queue.deleted:
            return False
        if queue.selection is not None and queue.selection.search.is_waiting:
            return True
        if queue.rebuild is not None:
            return True
        if queue.replaying and any(replay.is_hungry for replay in queue.replaying.values()):
            return True
        return bool(queue.browsing) or _wants_more(queue)

    def load(self, queue: "LeasedQueue") -> None:
        """Make one step of a rebuild, a search, a replay or a browse, or read messages into memory."""
        if queue.rebuild is not None:
            queue.rebuild_slice(queue.rebuild)
            return
        if queue.selection is not None and queue.selection.search.is_waiting:
            if queue.pageable is not None:
                queue.selection.search.load(queue.pageable)
            queue.mark()
            return
        for consumer, replay in queue.replaying.items():
            if replay.is_hungry:
                take_turn(queue, consumer)
                read_on(queue, replay)
                queue.mark()
                return
        for browse in queue.browsing.values():
            queue.store.load_at(browse.after, leased_dispatch.BROWSE_SLICE)
            queue.mark()
        if queue.pageable is not None and _wants_more(queue):
            queue.pageable.load()


def _wants_more(queue: "LeasedQueue") -> bool:
    """Whether memory has fewer messages than consumers may take soon."""
    pageable = queue.pageable
    return pageable is not None and pageable.is_deep and pageable.wants_more(straight=False, waiting=False)


def _check_renewal(queue: "LeasedQueue", consumer: Consumer, request: ConsumerRequest) -> None:
    if request.renews and consumer.client.liveness is None:
        reason = Reason("text", "the connection has no heartbeats")
        raise InvalidArgument(key=RENEWAL, name=queue.name, vhost=queue.vhost_name, reason=reason)


def _give_backlog(queue: "LeasedQueue", consumer: Consumer, request: ConsumerRequest) -> None:
    limit, requested = queue.leased.settings.max_per_subscription_backlog, request.backlog
    if requested is None:
        session = consumer.session
        requested = session.prefetch_wanted if session.prefetch_wanted is not None else 1
        requested = requested or limit
    consumer.prefetch = min(limit, requested) or limit


class LeasedSettlement:
    """Makes returned messages ready again, or expires them. Acknowledgements count even after a lease has ended."""

    __slots__ = ()

    def acknowledged(self, queue: "LeasedQueue", messages: Sequence[Message]) -> None:
        """Remove acknowledged messages, also those whose lease has ended. All have one holder, or none (no-ack)."""
        holder = messages[0].holder
        gone: Sequence[Message] = messages
        if holder is not None and holder_of(messages[0]).is_past:
            found = [(lease, message) for lease in messages if (message := queue.late(lease)) is not None]
            for lease, message in found:
                message.holder = lease.holder
            gone = [message for _, message in found]
        elif holder is not None:
            gone = queue.book.end(messages)
            if queue.lease_consumers.late:
                queue.lease_consumers.late.discard(holder_of(messages[0]))
        queue.gone(gone)
        if queue.leased.barrier is not None or queue.leased.settings.max_backlog is not None:
            queue.mark()

    def give_back(
        self, queue: "LeasedQueue", messages: list[Message], why: str, *, counted: bool, with_redelivery_delay: bool
    ) -> None:
        """End leases and make their messages ready. Leases that have ended before are skipped."""
        if not queue.deleted:
            queue.returned(queue.book.end(_running(messages)), why, is_cancel=why in CANCELS)

    def reject(self, queue: "LeasedQueue", messages: list[Message], reason: str) -> None:
        self.kill_or_keep(queue, messages, reason)

    def kill_or_keep(self, queue: "LeasedQueue", messages: list[Message], reason: str) -> None:
        """Expire leased messages, and free the slots of messages that are gone."""
        dead = list(queue.book.end(_running(messages)))
        for message in dead:
            message.holder = None
        if dead:
            queue.expire_for(dead, (FORCED_EXPIRE,))
        queue.mark()


class LeasedQueue(RebuiltCore):
    """A leased queue. `Queue` documents its operations."""

    __slots__ = ()

    def message_for(self, id_: int, content: bytes, envelope: Envelope) -> Message:
        """See `Queue`; the message has its rank, if the queue has ranks."""
        if not self.is_ranked:
            return self.store.new_message(id_, content, envelope)
        message = Message(id_, content, envelope)
        rank = RANK_MAX if self.leased.priority is None else rank_of(self.leased.priority, message)
        position = position_at(rank, id_)
        if is_barrier(self.leased.barrier, message):
            self.note_barrier(position)
        return ranked(message, position)

    def dead_letter_or_drop(self, messages: list[Message], reason: str, *, came_in: bool = True) -> None:
        """See `Queue`. Called only for messages that expire at the head."""
        assert reason == EXPIRED and came_in
        self.expire_for(messages, (TIME_LIMIT,))

    def went_out(self, message: Message) -> None:
        """See `Queue`. A lease begins; with at-most-once, the message is gone."""
        begin(self, [message], holder_of(message).session)

    def presented(self, message: Message) -> Message:
        """See `Queue`; the message has the headers of its lease."""
        return presented(self, message)

    @property
    def has_ready(self) -> bool:
        """See `Queue`; also true while a consumer browses or replays."""
        return len(self.store) > 0 or bool(self.browsing) or bool(self.replaying)

    @property
    def ready_count(self) -> int:
        """Active ready messages."""
        count = len(self.store)
        if self.active is None:
            return count
        self.active.refill(self.store)
        return min(count, max(0, self.active.count - len(self.book.leases)))

    def trim(self) -> None:
        """See `Queue`; also ends another slice of leases and lifetimes."""
        super().trim()
        self.leases_due()

    def left_by(self, session: "Session") -> None:
        super().left_by(session)
        self.forget_session(session)

    def unacked_messages(self) -> list[Message]:
        return list(self.book.leases.by_id.values())

    def rules_changed(self) -> None:
        """Apply changed rules. If the broker starts with another order, rebuild the store."""
        before = self.leased.settings
        super().rules_changed()
        now = self.leased.settings
        if (before.priority, before.barrier) != (now.priority, now.barrier):
            was_ranked = before.priority is not None or before.barrier is not None
            self._build_anew(was_ranked=was_ranked)
        if before.target_queue_depth != now.target_queue_depth:
            self.active = None if now.target_queue_depth is None else ActiveSet(now.target_queue_depth)

    def _build_anew(self, *, was_ranked: bool) -> None:
        """Rebuild the store: ranks changed. There must be no leases and no consumers. Raises: Unreadable."""
        old = self.store
        self._barriers.clear()
        self.use_store(store_of(self))
        meter = self.events.meter
        if self.pageable is not None:
            self.pageable.share.allow_paging(allowed=meter is None or not meter.forbids_paging)
        cap_memory(self)
        self.store.expiring = old.expiring
        while len(old):
            some = old.evict_head(len(old) if was_ranked else BUILD_SLICE, with_content=True).messages
            for message in sorted(some, key=_id_of):
                anew = self.message_for(message.id, message.content, message.envelope)
                anew.expires_ns = message.expires_ns
                self.store.append(anew)
        old.drop_all()
        old.leave_owner()
        recount(self)
        self.book.forget_lifetimes()
        self.expect_all()

    def expect_all(self) -> None:
        """Note the lifetimes of all messages if some may expire behind live ones."""
        if self.store.expiring:
            times = sorted(self._lifetimes(), key=lambda one: one[2])
            is_mixed = self.is_ranked or len(times) < len(self.store)
            if is_mixed or any(one[1] > other[1] for one, other in pairwise(times)):
                for id_, due_ns, position in times:
                    self.book.expect(due_ns, id_, position)
            if self._outlives_what_comes(times[-1][1] if times else 0):
                self.book.has_own_lifetimes = True
            self.leases_due()

    def _outlives_what_comes(self, due_ns: int) -> bool:
        """Whether a message that comes now, with the lifetime of the queue, expires before `due_ns` (monotonic)."""
        lifetime_ms = self.leased.lifetime_ms(None)
        return lifetime_ms is not None and due_after(self.context.broker.clock, lifetime_ms) < due_ns

    def _lifetimes(self) -> list[tuple[int, int, int]]:
        in_memory = self.store.scan(0, self.store.in_memory).found
        found = [(one.id, one.expires_ns, position) for position, one in in_memory if one.expires_ns]
        for part in self.store.paged_parts():
            if isinstance(part, Message):
                found.append((part.id, part.expires_ns, self.store.position_of(part)))
            elif part.expires is not None:
                found += [(id_, due_ns, id_) for id_, due_ns in zip(part.ids, part.expires) if due_ns]
        return found

    def purge(self) -> int:
        """See `Queue`. Leased messages stay."""
        count, book = super().purge(), self.book
        book.cancels = {id_: cancels for id_, cancels in book.cancels.items() if id_ in book.leases.by_id}
        if self.active is not None:
            self.active.count = len(book.leases)
        return count

    def end(self) -> int:
        self.stop_leases()
        return super().end()


def _id_of(message: Message) -> int:
    return message.id


def _running(messages: Sequence[Message]) -> list[Message]:
    """Those of these leases that have not ended."""
    return [message for message in messages if not holder_of(message).is_past]


def store_of(queue: LeasedQueue) -> Store:
    """A new store for the queue, by its rules."""
    return RankedStore(queue) if queue.is_ranked else TailedStore(queue)


def _restore(restorer: Restorer, queue: Queue) -> None:
    """Put messages back without leases and delivery counts, which do not survive a restart (queues page C.5)."""
    restorer.forget_attempts()
    restorer.restore_ready(queue)


LEASED = Kind(
    "leased",
    make=LeasedQueue,
    make_store=store_of,
    make_parts=lambda queue: Parts(LeasedIntake(), LeasedDispatch(), LeasedSettlement()),
    bounds=bounds_of,
    picture=picture,
    restore=_restore,
    recalls_attempts=False,
)
register(AMPS, LEASED)
