"""How leases end, by time or by what somebody does, and what becomes of their messages.

Counts of deliveries and cancels do not survive a restart. How a lease begins: `granting.py`.
Source: queues page A.2, A.5.
"""

from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter

from ...settings.leases import STRICT
from ..clock import MS, due_after
from ..delivery.consumer import Receiver, holder_of
from ..messages.deaths import DELIVERY_LIMIT, EXPIRED, REJECTED
from ..messages.field_table import Field
from ..messages.lease_headers import REASON
from ..messages.message import Envelope, Message
from .dead_bodies import buries, with_dead_body
from .past_leases import NOTHING, PastHolder
from .ranked_store import RankedMessage, ranked
from .ranking import is_barrier
from .renewing import not_renewed
from .state import LeasedParts

TIME_LIMIT, FORCED_EXPIRE, MAX_CANCELS, MAX_DELIVERIES = "time_limit", "forced_expire", "max_cancels", "max_deliveries"
#: AMPS' reason -> that of x-death, in the order in which several are named.
X_DEATH = {TIME_LIMIT: EXPIRED, FORCED_EXPIRE: REJECTED, MAX_CANCELS: REJECTED, MAX_DELIVERIES: DELIVERY_LIMIT}
#: Why a lease ended: by time, by its consumer's cancellation, by somebody else's acknowledgement or order.
DEADLINE, UNSUBSCRIBED, TAKEN_OVER, LIFETIME = "deadline", "unsubscribed", "taken_over", "lifetime"
#: What a queue captures, of its settings.
_selection_of = attrgetter("underlying_topic", "default_publish_target", "filter")
#: Messages that expire at once before others have their turn.
EXPIRE_SLICE = 1000
#: The same of leases.
END_SLICE = 500
#: With more leases than this their ends may be up to so much late, 20 ms by queues page A.5.
MANY, DISTANCE_NS = 1000, 10 * MS


_id_of: Callable[[Message], int] = attrgetter("id")


class LeasedCore(LeasedParts):
    """What happens to its leases."""

    __slots__ = ()

    def rules_changed(self) -> None:
        """What is lent already follows, too; only backlogs of consumers stay as they are."""
        leased = self.rules.leased
        assert leased is not None
        if leased is self.leased:
            return
        before, self.leased = self.leased.settings, leased
        if _selection_of(before) != _selection_of(leased.settings):
            self._topics.clear()
            self.context.router.recapture(self)
        if (before.expiration_ms, before.expiration_model) != (
            leased.settings.expiration_ms,
            leased.settings.expiration_model,
        ):
            self.book.has_own_lifetimes = True  # what comes now may expire before what stands in front of it
        period_ms = leased.settings.lease_period_ms
        self.book.change_period(0 if period_ms is None else period_ms * MS, self.context.broker.clock.monotonic_ns())
        self.arm_leases()
        self.mark()

    # -- a lease ends -------------------------------------------------------------------------------------------------

    def broken(self, leases: Sequence[Message]) -> list[Message]:
        """Leases end without their holders' doing: their tags stay with the sessions, and count nowhere any more.

        Returns the messages that were leased, which are other objects now.
        """
        live = {message.id for message in self.book.end(leases)}
        messages: list[Message] = []
        for lease in leases:
            holder = holder_of(lease)
            holder.session.release(holder, self, 1)
            lease.holder = self.past_at(holder.session)
            if lease.id in live:
                messages.append(_another(lease))
                lease.blob = b""
            else:
                lease.id = NOTHING
        return messages

    def past_at(self, session: Receiver) -> PastHolder:
        """Who has the leases that ended at a session."""
        past = self._past.get(session)
        if past is None:
            past = self._past[session] = PastHolder(self, session)
        return past

    def break_leases(self, leases: Sequence[Message], why: str, *, is_cancel: bool = False) -> None:
        """Leases end without their holders' doing: their messages are ready again, or expire (queues page A.5)."""
        self.returned(self.broken(leases), why, is_cancel=is_cancel)

    def returned(self, messages: Sequence[Message], why: str, *, is_cancel: bool = False) -> None:
        """Messages are leased no more: they are ready again, or expire."""
        settings, book = self.leased.settings, self.book
        now_ns = self.context.broker.clock.monotonic_ns()
        back: list[Message] = []
        dead: dict[tuple[str, ...], list[Message]] = {}
        for message in messages:
            message.holder = None
            reasons: tuple[str, ...] = ()
            if is_cancel:
                cancels = book.cancels[message.id] = book.cancels.get(message.id, 0) + 1
                if 0 < settings.max_cancels <= cancels:
                    reasons = (MAX_CANCELS,)
            if 0 < settings.max_deliveries <= message.deliveries and why != LIFETIME:
                reasons += (MAX_DELIVERIES,)
            if not reasons and 0 < message.expires_ns <= now_ns:
                reasons = (TIME_LIMIT,)
            if reasons:
                dead.setdefault(reasons, []).append(message)
            else:
                back.append(message)
        if messages:
            ended = [*back, *(message for some in dead.values() for message in some)]
            self.events.lease_ended(ended, why)
        if back:
            self.context.broker.effort.spent += len(back)
            back.sort(key=_id_of, reverse=True)
            for message in back if self.leased.barrier is not None else ():
                if is_barrier(self.leased.barrier, message):  # a get had it
                    self.note_barrier(self.store.position_of(message))
            self.merge(back)
            self._expect_again(back)
        for reasons, some in dead.items():
            self.expire_for(some, reasons)
        self.mark()

    def _expect_again(self, messages: Iterable[Message]) -> None:
        """Messages with lifetimes are back: they may expire behind others that live."""
        if self.store.expiring:
            self.arm_expiry()
        if not (self.is_ranked or self.book.has_own_lifetimes):
            return
        for message in messages:
            if message.expires_ns:
                self.book.expect(message.expires_ns, message.id, self.store.position_of(message))
                self.arm_leases()

    def expire_for(self, messages: list[Message], reasons: Sequence[str]) -> None:
        """Messages that left the store and the book expire; a dead letter says why."""
        reason, settings = X_DEATH[reasons[0]], self.leased.settings
        is_buried = buries(settings, reasons) and self.rules.dead_letter_target(reason) is not None
        word = Field("S", ",".join(reasons).encode())
        for message in messages if is_buried else ():
            self.add_headers(message, {REASON: word})
            if settings.dead_letter_data is not None:
                blob = with_dead_body(settings, message, reasons)
                self.events.octets_changed(len(blob) - len(message.blob), message.envelope)
                message.blob = blob
        for message in messages:
            self.book.cancels.pop(message.id, None)
        self.left_active(messages)
        if is_buried:
            super().lose(messages, reason)
        else:
            self.events.lost(messages, reason, None, came_in=True)
        if self.leased.barrier is not None:
            self.mark()  # the gate may be open
        if self.throttle is not None:
            self.throttle.drained(self)

    def late(self, lease: Message) -> Message | None:
        """An acknowledgement of a lease that has ended: the message that is gone by it, if any (queues page A.5)."""
        if lease.id == NOTHING:
            return None
        other = self.book.leases.by_id.get(lease.id)
        if other is not None:
            is_own = holder_of(other).session.client is holder_of(lease).session.client
            if self.leased.settings.leasing == STRICT and not is_own:
                return None
            return self.taken_over([other])[0]
        taken = self.store.take_at([self.store.position_of(lease)])
        self.events.octets_changed(taken.recounted)
        return taken.messages[0] if taken.messages else None

    def taken_over(self, leases: Sequence[Message]) -> list[Message]:
        """Somebody else decides about leased messages: their holders keep tags that mean nothing. Returns them."""
        messages = self.broken(leases)
        self.events.lease_ended(messages, TAKEN_OVER)
        return messages

    # -- time ---------------------------------------------------------------------------------------------------------

    def lifetime_ns(self, envelope: Envelope) -> int:
        """When a message that comes now expires (monotonic); 0: never."""
        lifetime_ms = self.leased.lifetime_ms(envelope.expiration_ms)
        return 0 if lifetime_ms is None else max(1, due_after(self.context.broker.clock, lifetime_ms))

    def await_lease(self, due_ns: int) -> None:
        """A lease ends then: see that a deadline is no later. 0: it does not end by time."""
        deadline = self._deadline
        if due_ns and (deadline is None or deadline.action is None or deadline.due_ns > due_ns):
            self.arm_leases()

    def arm_leases(self) -> None:
        """Set the deadline of the lease, or the lifetime, that ends next. A deadline that is earlier stays.

        While many are out, deadlines keep their distance, so that those of many together cost little.
        """
        due_ns, deadline = self.book.next_ns(), self._deadline
        if due_ns and len(self.book) > MANY:
            due_ns = max(due_ns, self.context.broker.clock.monotonic_ns() + DISTANCE_NS)
        if deadline is not None and deadline.action is not None:
            if due_ns and deadline.due_ns <= due_ns:
                return
            self.context.broker.deadlines.cancel(deadline)
        self._deadline = self.context.broker.deadlines.set(due_ns, self.leases_due) if due_ns else None

    def leases_due(self) -> None:
        """A deadline: lifetimes first, then leases, as they would have ended one by one (queues page A.5)."""
        if self.deleted:
            return
        book, now_ns = self.book, self.context.broker.clock.monotonic_ns()
        self.expire_ready(now_ns)
        expired = book.expired_leases(now_ns, END_SLICE)
        if expired:
            self.break_leases(expired, LIFETIME)
        ended = [*book.leases.ended(now_ns, END_SLICE), *book.slots.ended(now_ns, END_SLICE)]
        if self.lease_consumers.renewing:
            ended = not_renewed(self.lease_consumers, book.leases, ended, now_ns)
        if ended:
            self.lease_consumers.late.update({*map(holder_of, ended)}.intersection(self.consumer_list.consumers))
            self.break_leases(ended, DEADLINE)
        if book.next_ns() <= now_ns and book.next_ns():
            self.context.broker.background.trim_later(self)  # the rest of many
        else:
            self.arm_leases()

    def expire_ready(self, now_ns: int) -> None:
        """A slice of those ready messages goes that expired behind others."""
        positions = self.book.expired(now_ns, EXPIRE_SLICE)
        if positions:
            gone = self.store.take_at(positions)
            self.events.octets_changed(gone.recounted)
            self.expire_for(gone.messages, (TIME_LIMIT,))

    def stop_leases(self) -> None:
        """The queue is deleted."""
        self.context.broker.deadlines.cancel(self._deadline)
        self._past.clear()

    def forget_session(self, session: Receiver) -> None:
        """Nothing is out there any more."""
        self._past.pop(session, None)


def _another(message: Message) -> Message:
    """Another object of the same message."""
    if isinstance(message, RankedMessage):
        return ranked(message, message.position)
    other = Message(message.id, message.blob, message.envelope, None, message.deliveries)
    other.expires_ns = message.expires_ns
    return other
