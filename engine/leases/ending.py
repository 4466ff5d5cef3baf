"""The end of leases, by time or by an operation, and the next state of their messages.

Counts of deliveries and cancels do not survive a restart. Leases begin in `granting.py`.
Source: queues page A.2, A.5.
"""

from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING

from ...settings.leases import STRICT
from ..clock import MS, due_after
from ..delivery.consumer import holder_of
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

if TYPE_CHECKING:
    from ..clients.session import Session

TIME_LIMIT, FORCED_EXPIRE, MAX_CANCELS, MAX_DELIVERIES = "time_limit", "forced_expire", "max_cancels", "max_deliveries"
#: AMPS' reason -> reason in x-death, in the order in which several reasons are named.
X_DEATH = {TIME_LIMIT: EXPIRED, FORCED_EXPIRE: REJECTED, MAX_CANCELS: REJECTED, MAX_DELIVERIES: DELIVERY_LIMIT}
#: Why a lease ended: its period, its consumer's cancellation, another client's or an operator's decision, the
#: message's lifetime.
DEADLINE, UNSUBSCRIBED, TAKEN_OVER, LIFETIME = "deadline", "unsubscribed", "taken_over", "lifetime"
#: The settings that decide which messages a queue captures.
_selection_of = attrgetter("underlying_topic", "default_publish_target", "filter")
#: Ready messages that expire in one slice.
EXPIRE_SLICE = 1000
#: Leases that end in one slice.
END_SLICE = 500
#: With more leases than `MANY`, deadlines are at least `DISTANCE_NS` away; queues page A.5 allows a delay of 20 ms.
MANY, DISTANCE_NS = 1000, 10 * MS


_id_of: Callable[[Message], int] = attrgetter("id")


class LeasedCore(LeasedParts):
    """A leased queue with the ends of its leases."""

    __slots__ = ()

    def rules_changed(self) -> None:
        """Apply changed rules, also to leases that run already; only backlogs of consumers stay as they are."""
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
            self.book.has_own_lifetimes = True  # new messages may expire before those in front of them
        period_ms = leased.settings.lease_period_ms
        self.book.change_period(0 if period_ms is None else period_ms * MS, self.context.broker.clock.monotonic_ns())
        self.arm_leases()
        self.mark()

    # -- a lease ends -------------------------------------------------------------------------------------------------

    def broken(self, leases: Sequence[Message]) -> list[Message]:
        """End leases without their holders. The tags stay with the sessions, and count nowhere.

        Returns the messages that were leased, as new objects: the old ones stay with the tags.
        """
        live = {message.id for message in self.book.end(leases)}
        messages: list[Message] = []
        for lease in leases:
            holder = holder_of(lease)
            holder.session.release(holder, self, 1)
            lease.holder = self.past_at(holder.session)
            if lease.id in live:
                messages.append(_another(lease))
                lease.content = b""
            else:
                lease.id = NOTHING
        return messages

    def past_at(self, session: "Session") -> PastHolder:
        """The holder of a session's leases that have ended."""
        past = self._past.get(session)
        if past is None:
            past = self._past[session] = PastHolder(self, session)
        return past

    def break_leases(self, leases: Sequence[Message], why: str, *, is_cancel: bool = False) -> None:
        """End leases without their holders. Their messages are ready again, or expire (queues page A.5)."""
        self.returned(self.broken(leases), why, is_cancel=is_cancel)

    def returned(self, messages: Sequence[Message], why: str, *, is_cancel: bool = False) -> None:
        """Make messages ready again after their leases, or expire them. `is_cancel`: it counts as a cancel."""
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
                if is_barrier(self.leased.barrier, message):  # a basic.get had taken the barrier
                    self.note_barrier(self.store.position_of(message))
            self.merge(back)
            self._expect_again(back)
        for reasons, some in dead.items():
            self.expire_for(some, reasons)
        self.mark()

    def _expect_again(self, messages: Iterable[Message]) -> None:
        """Note the lifetimes of returned messages: they may expire behind live ones."""
        if self.store.expiring:
            self.arm_expiry()
        if not (self.is_ranked or self.book.has_own_lifetimes):
            return
        for message in messages:
            if message.expires_ns:
                self.book.expect(message.expires_ns, message.id, self.store.position_of(message))
                self.arm_leases()

    def expire_for(self, messages: list[Message], reasons: Sequence[str]) -> None:
        """Expire messages that have left the store and the book. Dead letters carry the reasons in a header."""
        reason, settings = X_DEATH[reasons[0]], self.leased.settings
        is_buried = buries(settings, reasons) and self.rules.dead_letter_target(reason) is not None
        word = Field("S", ",".join(reasons).encode())
        for message in messages if is_buried else ():
            self.add_headers(message, {REASON: word})
            if settings.dead_letter_data is not None:
                content = with_dead_body(settings, message, reasons)
                self.events.octets_changed(len(content) - len(message.content), message.envelope)
                message.content = content
        for message in messages:
            self.book.cancels.pop(message.id, None)
        self.left_active(messages)
        if is_buried:
            super().dead_letter_or_drop(messages, reason)
        else:
            self.events.died(messages, reason, None, came_in=True)
        if self.leased.barrier is not None:
            self.mark()  # a barrier may be first now
        if self.throttle is not None:
            self.throttle.drained(self)

    def late(self, lease: Message) -> Message | None:
        """Acknowledge a lease that has ended. Returns the message that this removes; None: none (queues page A.5)."""
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
        """Take leased messages away from their holders, whose tags stay without effect. Returns the messages."""
        messages = self.broken(leases)
        self.events.lease_ended(messages, TAKEN_OVER)
        return messages

    # -- time ---------------------------------------------------------------------------------------------------------

    def lifetime_ns(self, envelope: Envelope) -> int:
        """When a message that comes now expires (monotonic ns); 0: never."""
        lifetime_ms = self.leased.lifetime_ms(envelope.expiration_ms)
        return 0 if lifetime_ms is None else max(1, due_after(self.context.broker.clock, lifetime_ms))

    def await_lease(self, due_ns: int) -> None:
        """Make sure that a deadline is set no later than a lease's end. 0: the lease does not end by time."""
        deadline = self._deadline
        if due_ns and (deadline is None or deadline.action is None or deadline.due_ns > due_ns):
            self.arm_leases()

    def arm_leases(self) -> None:
        """Set the deadline of the next end of a lease or lifetime. An earlier deadline stays.

        With many leases a deadline is at least `DISTANCE_NS` away, so that one deadline ends many leases.
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
        """End a slice of what is due: lifetimes first, then leases, as one by one on time (queues page A.5)."""
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
            self.context.broker.background.trim_later(self)  # the next slice
        else:
            self.arm_leases()

    def expire_ready(self, now_ns: int) -> None:
        """Expire a slice of the ready messages that are due, also behind live ones."""
        positions = self.book.expired(now_ns, EXPIRE_SLICE)
        if positions:
            gone = self.store.take_at(positions)
            self.events.octets_changed(gone.recounted)
            self.expire_for(gone.messages, (TIME_LIMIT,))

    def stop_leases(self) -> None:
        """Cancel the deadline and forget past leases: the queue is deleted."""
        self.context.broker.deadlines.cancel(self._deadline)
        self._past.clear()

    def forget_session(self, session: "Session") -> None:
        """Forget the past leases of a session that has no deliveries of this queue left."""
        self._past.pop(session, None)


def _another(message: Message) -> Message:
    """A copy of a message, without a holder."""
    if isinstance(message, RankedMessage):
        return ranked(message, message.position)
    other = Message(message.id, message.content, message.envelope, None, message.deliveries)
    other.expires_ns = message.expires_ns
    return other
