"""A leased queue: AMPS' queue, whose messages are lent to consumers and come back unless they are acknowledged.

Source: queues page A. Why it has the store of other queues: docs/decisions/0011-leases.md.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar

from ...settings.leased.elements import BY_QUEUE
from ..clock import due_after
from ..delivery.consumer import Consumer, Receiver, holder_of
from ..errors import InvalidArgument
from ..messages.deaths import EXPIRED
from ..messages.field_table import FieldTable
from ..messages.message import Envelope, Message
from ..rules.arguments import REPLACE, Reason
from ..rules.replay_rules import REPLAY_ARGUMENTS
from ..rules.size_rules import FAIL
from ..stores.ranked_store import RANK_MAX, position_at, ranked
from . import leased_dispatch
from .active_set import ActiveSet
from .admission import FULL
from .browse import Browse
from .expiry import arm
from .granting import begin, presented
from .leased_arguments import BROWSE, RENEWAL, ConsumerWish, wish_of
from .leased_core import FORCED_EXPIRE, TIME_LIMIT, UNSUBSCRIBED
from .leased_reviewing import ReviewedCore
from .limits import refusal
from .queue import Restorer
from .ranking import is_barrier, rank_of
from .replaying import read_on, replay_for, take_turn
from .selection import Selection
from .terms import Change

if TYPE_CHECKING:
    from ...expressions.language import Expression

#: Messages that are read at once where the state is built again.
BUILD_SLICE = 500
#: Returns of a client that count as cancels, by their names in `requeue`.
CANCELS = frozenset({"nacked", "rejected", "recovered"})


class LeasedQueue(ReviewedCore):
    """See `Queue` for the verbs."""

    recalls_attempts: ClassVar[bool] = False

    __slots__ = ()

    # -- in -----------------------------------------------------------------------------------------------------------

    def enqueue(
        self, first_id: int, envelope: Envelope, blobs: Sequence[bytes], due_ns: int | None = None
    ) -> Sequence[int]:
        """See `Queue`. Its filter was asked when the message was routed."""
        envelope = envelope.persisted()
        self.last_id = max(self.last_id, first_id + len(blobs) - 1)
        storage = self.surroundings.storage
        if storage.durability is None:
            wall_ms = self.surroundings.clock.wall_ms()
            storage.memory_log.note(self.vhost_name, self.name, first_id, envelope, blobs, wall_ms)
        refused: Sequence[int] = ()
        if due_ns is not None:
            refused = self._admit(first_id, envelope, blobs, 0, due_ns)
            self.await_due()
            return refused
        expires_ns = self.lifetime_ns(envelope)
        if expires_ns or self.is_ranked or self.may_drop:
            refused = self._admit(first_id, envelope, blobs, expires_ns)
        else:
            self.ledger.enqueued_run(first_id, envelope, blobs)
            self.store.append_run(first_id, envelope, blobs)
            self._tell_groups((self.last_id,))
            if self.deferred is not None:
                self.settle_deferred(range(first_id, first_id + len(blobs)))
        if self.rota.consumers:
            self.mark()
        self._note_crowding()
        return refused

    def _tell_groups(self, positions: Sequence[int]) -> None:
        """New messages stand at these positions: groups of consumers with filters have not seen them."""
        if self.selection is not None:
            self.selection.groups.came_to(sorted(positions))

    def enqueue_mixed(self, first_id: int, envelopes: Sequence[Envelope], blobs: Sequence[bytes]) -> Sequence[int]:
        """See `Queue`."""
        return self.enqueue_stretches(first_id, envelopes, blobs)

    def _admit(
        self, first_id: int, envelope: Envelope, blobs: Sequence[bytes], expires_ns: int, due_ns: int | None = None
    ) -> list[int]:
        refused: list[int] = []
        store = self.store
        is_own = envelope.expiration_ms is not None and self.leased.settings.expiration_model != BY_QUEUE
        for offset, blob in enumerate(blobs):
            message = self.message_for(first_id + offset, blob, envelope)
            if self.may_drop and (policy := refusal(self)) is not None:
                if policy == FAIL:
                    refused.append(offset)
                self.ledger.refused(message, FULL)
                continue
            if due_ns is not None:
                self.take_in_waiting(message, due_ns)
                continue
            message.expires_ns = expires_ns
            self.ledger.enqueued(message)
            store.append(message)
            self._tell_groups((store.position_of(message),))
            if expires_ns:
                self._expect(message, is_own)
        if self.deferred is not None and due_ns is None:
            self.settle_deferred(range(first_id, first_id + len(blobs)))
        if expires_ns:
            arm(self)
            self.arm_leases()
            if expires_ns <= max(1, self.surroundings.clock.monotonic_ns()):
                self._let_live_only_now(expires_ns)
        return refused

    def _expect(self, message: Message, is_own: bool) -> None:
        """It expires: at the head of the queue, or, once lifetimes differ, wherever it stands."""
        store = self.store
        store.expect_expiry()
        if is_own or self.is_ranked or self.book.has_own_lifetimes:
            self.book.expect(message.expires_ns, message.id, store.position_of(message))

    def _let_live_only_now(self, now_ns: int) -> None:
        """Messages that may not wait: who can take them now gets them, the others expire (queues page A.5)."""
        leased_dispatch.dispatch(self, expires=False)
        self.expire_ready(now_ns)

    def message_for(self, id_: int, blob: bytes, envelope: Envelope) -> Message:
        """See `QueueCore`: with its rank, where it has one."""
        if not self.is_ranked:
            return self.store.new_message(id_, blob, envelope)
        message = Message(id_, blob, envelope)
        rank = RANK_MAX if self.leased.priority is None else rank_of(self.leased.priority, message)
        position = position_at(rank, id_)
        if is_barrier(self.leased.barrier, message):
            self.note_barrier(position)
        return ranked(message, position)

    def place_due(self, messages: list[Message]) -> None:
        """See `QueueCore`: a delayed message comes when it is due."""
        for message in messages:
            message.expires_ns = self.lifetime_ns(message.envelope)
            self.store.put_last(message)
            if message.expires_ns:
                self._expect(message, is_own=True)
        positions = list(map(self.store.position_of, messages))
        if self.active is not None:
            self.active.came(positions)
        self._tell_groups(positions)
        if self.deferred is not None:
            self.settle_deferred([message.id for message in messages])
        self.arm_leases()

    # -- back ---------------------------------------------------------------------------------------------------------

    def requeue(self, messages: list[Message], *, why: str, counted: bool = False, delayed: bool = False) -> None:
        """See `Queue`: leases end. What ended before is not there any more, and stays so."""
        if not self.deleted:
            self.returned(self.book.end(_running(messages)), why, is_cancel=why in CANCELS)

    def kill_or_keep(self, messages: list[Message], *, reason: str) -> None:
        """See `Queue`: what is leased expires; of what is gone a slot is free."""
        dead = list(self.book.end(_running(messages)))
        for message in dead:
            message.holder = None
        if dead:
            self.expire_for(dead, (FORCED_EXPIRE,))
        self.mark()

    def acknowledged(self, messages: Sequence[Message]) -> None:
        """See `Queue`; also of leases that have ended. All of these have one holder, or (no acknowledgement) none."""
        holder = messages[0].holder
        gone: Sequence[Message] = messages
        if holder is not None and holder_of(messages[0]).is_past:
            found = [(lease, message) for lease in messages if (message := self.late(lease)) is not None]
            for lease, message in found:
                message.holder = lease.holder
            gone = [message for _, message in found]
        elif holder is not None:
            gone = self.book.end(messages)
            if self.lease_rota.late:
                self.lease_rota.late.discard(holder_of(messages[0]))
        self.gone(gone)
        if self.leased.barrier is not None or self.leased.settings.max_backlog is not None:
            self.mark()

    def lose(self, messages: list[Message], reason: str, *, came_in: bool = True) -> None:
        """See `QueueCore`. Only what expires at the head comes this way."""
        assert reason == EXPIRED and came_in
        self.expire_for(messages, (TIME_LIMIT,))

    # -- out ----------------------------------------------------------------------------------------------------------

    def dispatch(self) -> None:
        """See `Queue`."""
        leased_dispatch.dispatch(self)

    def pop(self) -> Message | None:
        """See `Queue`."""
        return leased_dispatch.pop(self)

    def went_out(self, message: Message) -> None:
        """See `Queue`: a lease begins, or the message is gone."""
        begin(self, [message], holder_of(message).session)

    def presented(self, message: Message) -> Message:
        """See `Queue`: with the headers of its lease."""
        return presented(self, message)

    def is_hungry(self) -> bool:
        """See `Queue`."""
        if self.deleted:
            return False
        if self.selection is not None and self.selection.search.is_waiting:
            return True
        if self.review is not None:
            return True
        if self.replaying and any(replay.is_hungry for replay in self.replaying.values()):
            return True
        return bool(self.browsing) or (self.store.is_deep and self.store.wants_more(straight=False, waiting=False))

    def load(self) -> None:
        """See `Queue`. Nothing goes straight to consumers: leases are made of messages."""
        if self.review is not None:
            self.review_on(self.review)
            return
        if self.selection is not None and self.selection.search.is_waiting:
            self.selection.search.load(self.store)
            self.mark()
            return
        for consumer, replay in self.replaying.items():
            if replay.is_hungry:
                take_turn(self, consumer)
                read_on(self, replay)
                self.mark()
                return
        for browse in self.browsing.values():
            self.store.load_at(browse.after, leased_dispatch.BROWSE_SLICE)
            self.mark()
        if self.store.is_deep and self.store.wants_more(straight=False, waiting=False):
            self.store.load()

    @property
    def has_ready(self) -> bool:
        """See `Queue`: also while somebody browses, or replays."""
        return len(self.store) > 0 or bool(self.browsing) or bool(self.replaying)

    @property
    def ready_count(self) -> int:
        """See `Queue`: those that are active."""
        count = len(self.store)
        if self.active is None:
            return count
        self.active.refill(self.store)
        return min(count, max(0, self.active.count - len(self.book.leases)))

    def trim(self) -> None:
        """See `Queue`: also the rest of what expired."""
        super().trim()
        self.leases_due()

    # -- consumers ----------------------------------------------------------------------------------------------------

    def add_consumer(self, consumer: Consumer) -> None:
        """See `Queue`. Raises: also InvalidArgument."""
        wish = wish_of(consumer.arguments, name=self.name, vhost=self.vhost_name)
        self._check_renewal(consumer, wish)
        self._give_backlog(consumer, wish)
        is_aside = wish.browses or wish.backlog == 0
        asked = wish.backlog if wish.backlog is not None else consumer.session.prefetch_wanted
        if wish.browses:
            self.rota.check_join(consumer, queue=self.name, vhost=self.vhost_name)
            self.browsing[consumer] = Browse(self.last_id, self.ready_count if wish.top_n is None else wish.top_n)
            self.mark()
        elif (replay := replay_for(self, consumer, asked)) is not None:
            is_aside = True
            self.rota.check_join(consumer, queue=self.name, vhost=self.vhost_name)
            self.replaying[consumer] = replay
            self.mark()
        super().add_consumer(consumer)
        self.lease_rota.joined(consumer, is_aside=is_aside, renews=wish.renews)

    def replace_consumer(
        self, consumer: Consumer, arguments: FieldTable, filter_: "Expression | None", *, no_ack: bool, exclusive: bool
    ) -> None:
        """See `Queue`: another filter, backlog and priority from now on; its leases go on. Raises: InvalidArgument."""
        wish = wish_of(arguments, name=self.name, vhost=self.vhost_name)
        looks = wish.browses or consumer in self.browsing or consumer in self.replaying
        looks = looks or not REPLAY_ARGUMENTS.isdisjoint(arguments)
        if looks or (no_ack, exclusive) != (consumer.no_ack, consumer.exclusive):
            reason = Reason("text", f"{BROWSE}, replay, no_ack and exclusive can not be replaced")
            raise InvalidArgument(key=REPLACE, name=self.name, vhost=self.vhost_name, reason=reason)
        self._check_renewal(consumer, wish)
        if self.selection is not None:
            self._select_less(self.selection, [consumer])
        consumer.change(arguments, filter_)
        self._give_backlog(consumer, wish)
        self.lease_rota.joined(consumer, is_aside=wish.backlog == 0, renews=wish.renews)
        self._select(consumer)
        self.mark()

    def _check_renewal(self, consumer: Consumer, wish: ConsumerWish) -> None:
        if wish.renews and consumer.client.liveness is None:
            reason = Reason("text", "the connection has no heartbeats")
            raise InvalidArgument(key=RENEWAL, name=self.name, vhost=self.vhost_name, reason=reason)

    def _give_backlog(self, consumer: Consumer, wish: ConsumerWish) -> None:
        limit, requested = self.leased.settings.max_per_subscription_backlog, wish.backlog
        if requested is None:
            session = consumer.session
            requested = session.prefetch_wanted if session.prefetch_wanted is not None else 1
            requested = requested or limit
        consumer.prefetch = min(limit, requested) or limit

    def remove_consumers(self, leaving: Sequence[Consumer]) -> None:
        """See `Queue`: their leases end, which keep their tags (queues page A.2; conflict K5)."""
        for consumer in leaving:
            self.browsing.pop(consumer, None)
            if (replay := self.replaying.pop(consumer, None)) is not None:
                self.surroundings.deadlines.cancel(replay.deadline)
        self.lease_rota.late.difference_update(leaving)
        if not self.deleted and any(consumer.unacked for consumer in leaving):
            gone = set(leaving)
            tables = (self.book.leases, self.book.slots)
            held = [lease for table in tables for lease in table.by_id.values() if lease.holder in gone]
            self.break_leases(held, UNSUBSCRIBED)
        super().remove_consumers(leaving)

    def _select(self, consumer: Consumer) -> None:
        if consumer not in self.browsing and consumer not in self.replaying:
            super()._select(consumer)

    def _select_less(self, selection: Selection, leaving: Sequence[Consumer]) -> None:
        super()._select_less(selection, [one for one in leaving if selection.has(one)])

    def left_by(self, session: Receiver) -> None:
        """See `Queue`."""
        super().left_by(session)
        self.forget_session(session)

    # -- the rest -----------------------------------------------------------------------------------------------------

    def unacked_messages(self) -> list[Message]:
        """See `Queue`."""
        return list(self.book.leases.by_id.values())

    def restore_by(self, restorer: Restorer) -> int:
        """See `Queue`. No lease survives a restart, nor does any count (queues page C.5)."""
        restorer.forget_attempts()
        return restorer.restore_ready(self)

    def settle_in(self) -> None:
        """See `Queue`."""
        super().settle_in()
        self.restore_deferred()
        self._expect_all()

    def _follow(self, change: Change) -> None:
        """See `GovernedQueue`: as the broker starts, the state is built again where the order is another one."""
        before = self.leased.settings
        super()._follow(change)
        now = self.leased.settings
        if (before.priority, before.barrier) != (now.priority, now.barrier):
            was_ranked = before.priority is not None or before.barrier is not None
            self._build_anew(was_ranked=was_ranked)
        if before.target_queue_depth != now.target_queue_depth:
            self.active = None if now.target_queue_depth is None else ActiveSet(now.target_queue_depth)

    def _build_anew(self, *, was_ranked: bool) -> None:
        """All messages have other ranks, or none. Nothing is lent, and nobody consumes. Raises: Unreadable."""
        old = self.store
        self._barriers.clear()
        self.store = self._make_store()
        meter = self.ledger.meter
        self.store.allow_paging(allowed=meter is None or not meter.forbids_paging)
        self.cap_memory()
        self.store.expiring = old.expiring
        while len(old):
            some = old.evict_head(len(old) if was_ranked else BUILD_SLICE, with_content=True).messages
            for message in sorted(some, key=_id_of):
                anew = self.message_for(message.id, message.blob, message.envelope)
                anew.expires_ns = message.expires_ns
                self.store.append(anew)
        old.drop_all()
        old.leave_owner()
        self.recount()
        self.book.forget_lifetimes()
        self._expect_all()

    def _expect_all(self) -> None:
        """Messages with lifetimes are there: those that expire behind others are known."""
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
        """Whether a message that comes now, with the lifetime of the queue, expires before this (monotonic)."""
        lifetime_ms = self.leased.lifetime_ms(None)
        return lifetime_ms is not None and due_after(self.surroundings.clock, lifetime_ms) < due_ns

    def _lifetimes(self) -> list[tuple[int, int, int]]:
        at_hand = self.store.scan(0, self.store.at_hand).found
        found = [(one.id, one.expires_ns, position) for position, one in at_hand if one.expires_ns]
        for part in self.store.paged_parts():
            if isinstance(part, Message):
                found.append((part.id, part.expires_ns, self.store.position_of(part)))
            elif part.expires is not None:
                found += [(id_, due_ns, id_) for id_, due_ns in zip(part.ids, part.expires) if due_ns]
        return found

    def purge(self) -> int:
        """See `Queue`. What is leased stays."""
        count, book = super().purge(), self.book
        book.cancels = {id_: cancels for id_, cancels in book.cancels.items() if id_ in book.leases.by_id}
        if self.active is not None:
            self.active.count = len(book.leases)
        return count

    def end(self) -> int:
        """See `Queue`."""
        self.stop_leases()
        return super().end()


def _id_of(message: Message) -> int:
    return message.id


def _running(messages: Sequence[Message]) -> list[Message]:
    """Those that have not ended."""
    return [message for message in messages if not holder_of(message).is_past]
