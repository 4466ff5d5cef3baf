"""The end of leases, by time or by an operation, and the next state of their messages. Leases begin in `granting.py`.

Which consumer gets the message then: `consumer_list.py`; when: `dispatch.py`.

Source: queues page A.2, A.5, H.1 (actions); docs/leases.md (renewal).
"""

import re
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from ...settings.leases.leased_settings import STRICT, LeasedSettings
from ..clock import MS, due_after
from ..delivery.consumer import holder_of
from ..messages.content import NATIVE, ContentError, decode_properties
from ..messages.dead_letter import DELIVERY_LIMIT, EXPIRED, REJECTED
from ..messages.field_table import Field
from ..messages.message import Envelope, Message, id_of
from ..queues.parts import Settlement
from ..queues.queue import Queue
from .deferring import forget_present, settle_expired
from .headers import REASON
from .past_holder import NOTHING
from .ranked_store import RankedMessage, is_barrier, ranked
from .state import Leases, LeasesPart

if TYPE_CHECKING:
    from ..clients.session import Session

TIME_LIMIT, FORCED_EXPIRE, MAX_CANCELS, MAX_DELIVERIES = "time_limit", "forced_expire", "max_cancels", "max_deliveries"
#: AMPS' reason -> reason in x-death, in the order in which several reasons are named.
X_DEATH = {TIME_LIMIT: EXPIRED, FORCED_EXPIRE: REJECTED, MAX_CANCELS: REJECTED, MAX_DELIVERIES: DELIVERY_LIMIT}
#: Why a lease ended: by its period, the consumer's cancellation, another client or an operator, the message's lifetime,
#: the loss of its site.
DEADLINE, UNSUBSCRIBED, TAKEN_OVER, LIFETIME = "deadline", "unsubscribed", "taken_over", "lifetime"
SITE_LOST = "site_lost"
#: Reasons of `requeue` that count as cancels by the client.
CANCELS = frozenset({"nacked", "rejected", "recovered"})
#: Ready messages that expire in one slice.
EXPIRE_SLICE = 1000
#: Leases that end in one slice.
END_SLICE = 500
#: With more leases than `MANY`, a deadline is at least `DISTANCE_NS` away; queues page A.5 allows a delay of 20 ms.
MANY, DISTANCE_NS = 1000, 10 * MS

_VARIABLE = re.compile(rb"\{\{([A-Z_]+)\}\}")
#: Offsets of the body size in a header payload, after class and weight.
_SIZE_AT, _SIZE_END = 4, 12


# -- a lease ends -----------------------------------------------------------------------------------------------------


def revoke(leases: Leases, ended: Sequence[Message]) -> list[Message]:
    """Revoke leases and slots. Returns the leased messages as new objects: the old ones stay with the delivery tags.

    An acknowledgement by the tag of such a lease still counts (`acknowledge_late`).
    """
    live = {message.id for message in leases.book.end(ended)}
    messages: list[Message] = []
    for lease in ended:
        holder = holder_of(lease)
        holder.session.release(holder, leases.queue, 1)
        lease.holder = leases.past_holder_of(holder.session)
        if lease.id in live:
            messages.append(_new_object(lease))
            lease.content = b""
        else:
            lease.id = NOTHING
    return messages


def _new_object(message: Message) -> Message:
    """A new object for the same message, without a holder."""
    if isinstance(message, RankedMessage):
        return ranked(message, message.position)
    other = Message(message.id, message.content, message.envelope, None, message.deliveries)
    other.expires_ns = message.expires_ns
    return other


def break_leases(leases: Leases, ended: Sequence[Message], why: str, *, is_cancel: bool = False) -> None:
    """Revoke leases and slots. Leased messages are ready again, or expire (queues page A.5)."""
    return_messages(leases, revoke(leases, ended), why, is_cancel=is_cancel)


def return_messages(leases: Leases, messages: Sequence[Message], why: str, *, is_cancel: bool = False) -> None:
    """Make messages whose leases ended ready again, or expire them. `is_cancel`: count a cancel of each."""
    queue, settings, book = leases.queue, leases.rules.settings, leases.book
    broker = queue.context.broker
    now_ns = broker.clock.monotonic_ns()
    may_exceed = why == LIFETIME or broker.is_stopping  # the next start counts from zero
    back: list[Message] = []
    dead: dict[tuple[str, ...], list[Message]] = {}
    for message in messages:
        message.holder = None
        reasons: tuple[str, ...] = ()
        if is_cancel:
            cancels = book.cancels[message.id] = book.cancels.get(message.id, 0) + 1
            if 0 < settings.max_cancels <= cancels:
                reasons = (MAX_CANCELS,)
        if 0 < settings.max_deliveries <= message.deliveries and not may_exceed:
            reasons += (MAX_DELIVERIES,)
        if not reasons and 0 < message.expires_ns <= now_ns:
            reasons = (TIME_LIMIT,)
        if reasons:
            dead.setdefault(reasons, []).append(message)
        else:
            back.append(message)
    if messages:
        ended = [*back, *(message for some in dead.values() for message in some)]
        queue.events.lease_ended(ended, why)
    if back:
        broker.turn.effort += len(back)
        back.sort(key=id_of, reverse=True)
        for message in back if leases.rules.barrier is not None else ():
            if is_barrier(leases.rules.barrier, message):  # a basic.get had taken the barrier
                leases.note_barrier(queue.store.position_of(message))
        if leases.owners is not None:
            leases.owners.note_ready(message.id for message in back)
        queue.merge(back)
        _expect_again(leases, back)
    for reasons, some in dead.items():
        expire_for(leases, some, reasons)
    queue.mark()


def _expect_again(leases: Leases, messages: Iterable[Message]) -> None:
    """Note the lifetimes of returned messages, which may expire behind live ones."""
    queue = leases.queue
    if queue.store.expiring:
        queue.arm_expiry()
    if leases.rules.is_ranked or leases.book.has_own_lifetimes:
        for message in messages:
            if message.expires_ns:
                leases.book.expect(message, queue.store)
                arm(leases)


def expire_for(leases: Leases, messages: list[Message], reasons: Sequence[str]) -> None:
    """Expire messages that have left the store and the book. In AMPS each end but an acknowledgement is an expiry.

    `reasons`: those of AMPS, which dead letters have in a header. Messages with a deferred acknowledgement are
    acknowledged instead.
    """
    messages = settle_expired(leases, messages)
    if not messages:
        return
    queue, reason, settings = leases.queue, X_DEATH[reasons[0]], leases.rules.settings
    is_dead_lettered = _makes_dead_letter(settings, reasons) and queue.rules.dead_letter_target(reason) is not None
    word = Field("S", ",".join(reasons).encode())
    for message in messages if is_dead_lettered else ():
        queue.add_headers(message, {REASON: word})
        if settings.dead_letter_data is not None:
            content = with_dead_body(settings, message, reasons)
            queue.events.octets_changed(len(content) - len(message.content), message.envelope)
            message.content = content
    for message in messages:
        leases.book.cancels.pop(message.id, None)
    if is_dead_lettered:
        queue.dead_letter_or_drop(messages, reason)
    else:
        queue.events.died(messages, reason, None, came_in=True)
    leases.note_gone(messages)  # last, because it forgets the owners, whose sites get the dead letters
    if leases.rules.barrier is not None:
        queue.mark()  # a barrier may be first now
    if queue.throttle is not None:
        queue.throttle.drained(queue)


def acknowledge_late(leases: Leases, lease: Message) -> Message | None:
    """Acknowledge a lease that has ended. Returns: the message that this removes, if any (queues page A.5).

    With strict leasing, a message that another client has leased meanwhile stays.
    """
    if lease.id == NOTHING:
        return None
    other = leases.book.leases.by_id.get(lease.id)
    if other is not None:
        is_own = holder_of(other).session.client is holder_of(lease).session.client
        if leases.rules.settings.leasing == STRICT and not is_own:
            return None
        return take_over(leases, [other])[0]
    taken = leases.queue.consumable.take_at([leases.queue.store.position_of(lease)]).messages
    return taken[0] if taken else None


def take_over(leases: Leases, ended: Sequence[Message]) -> list[Message]:
    """Take leased messages away from their holders. Returns the messages, which leave the queue."""
    messages = revoke(leases, ended)
    leases.queue.events.lease_ended(messages, TAKEN_OVER)
    return messages


# -- time -------------------------------------------------------------------------------------------------------------


def lifetime_ns(leases: Leases, envelope: Envelope) -> int:
    """When a message that comes now expires (monotonic ns); 0: never."""
    lifetime_ms = leases.rules.lifetime_ms(envelope.expiration_ms)
    return 0 if lifetime_ms is None else max(1, due_after(leases.queue.context.broker.clock, lifetime_ms))


def await_end(leases: Leases, due_ns: int) -> None:
    """Make sure that a deadline is set for a lease's end (see `arm`). 0: the lease does not end by time."""
    deadline = leases.deadline
    if due_ns and (deadline is None or deadline.action is None or deadline.due_ns > due_ns):
        arm(leases)


def arm(leases: Leases) -> None:
    """Set the deadline of the next end of a lease or lifetime. An earlier deadline stays.

    With many leases a deadline is at least `DISTANCE_NS` away, so that one deadline ends many leases.
    """
    due_ns, deadline, broker = leases.book.next_ns(), leases.deadline, leases.queue.context.broker
    if due_ns and len(leases.book) > MANY:
        due_ns = max(due_ns, broker.clock.monotonic_ns() + DISTANCE_NS)
    if deadline is not None and deadline.action is not None:
        if due_ns and deadline.due_ns <= due_ns:
            return
        broker.deadlines.cancel(deadline)
    leases.deadline = broker.deadlines.set(due_ns, partial(end_due, leases)) if due_ns else None


def end_due(leases: Leases) -> None:
    """End a slice of due lifetimes, then of due leases and slots, unless they are renewed (queues page A.5)."""
    queue = leases.queue
    if queue.deleted:
        return
    book, now_ns = leases.book, queue.context.broker.clock.monotonic_ns()
    expire_ready(leases, now_ns)
    expired = book.expired_leases(now_ns, END_SLICE)
    if expired:
        break_leases(leases, expired, LIFETIME)
    ended = [*book.leases.ended(now_ns, END_SLICE), *book.slots.ended(now_ns, END_SLICE)]
    if leases.consumer_list.renewing:
        ended = _not_renewed(leases, ended, now_ns)
    if ended:
        leases.consumer_list.overdue.update({*map(holder_of, ended)}.intersection(leases.consumer_list.consumers))
        break_leases(leases, ended, DEADLINE)
    if 0 < book.next_ns() <= now_ns:
        queue.context.broker.background.trim_later(queue)  # the next slice
    else:
        arm(leases)


def _not_renewed(leases: Leases, ended: Sequence[Message], now_ns: int) -> list[Message]:
    """Renew leases whose consumers asked for it and whose connections are alive. Returns the others, and slots."""
    table = leases.book.leases
    over: list[Message] = []
    for message in ended:
        holder = holder_of(message)
        liveness = holder.session.client.liveness if holder in leases.consumer_list.renewing else None
        if liveness is not None and liveness() and table.by_id.get(message.id) is message:
            table.renew(message, now_ns)
        else:
            over.append(message)
    return over


def expire_ready(leases: Leases, now_ns: int) -> None:
    """Expire a slice of the ready messages whose lifetimes are in the book and over, also behind live ones."""
    positions = leases.book.expired(now_ns, EXPIRE_SLICE)
    if positions:
        expire_for(leases, leases.queue.consumable.take_at(positions).messages, (TIME_LIMIT,))


# -- dead letters -----------------------------------------------------------------------------------------------------


def _makes_dead_letter(settings: LeasedSettings, reasons: Sequence[str]) -> bool:
    """Whether the settings let a message that expired for these reasons become a dead letter."""
    wanted = settings.dead_letter_reasons
    return wanted is None or not set(wanted.split(",")).isdisjoint(reasons)


def with_dead_body(settings: LeasedSettings, message: Message, reasons: Sequence[str]) -> bytes:
    """The content of a message with the body that the template makes. Both are in the engine's framing."""
    assert settings.dead_letter_data is not None
    header, body = NATIVE.split(message.content)
    values = {
        b"AMPS_DATA": body,
        b"AMPS_REASON": ",".join(reasons).encode(),
        b"AMPS_TOPIC": settings.name.encode(),
        b"AMPS_DATA_LENGTH": b"%d" % len(body),
        b"AMPS_CORRELATION_ID": _correlation_id(header),
    }
    made = _VARIABLE.sub(lambda found: values[found[1]], settings.dead_letter_data.encode())
    return NATIVE.join(header[:_SIZE_AT] + len(made).to_bytes(_SIZE_END - _SIZE_AT, "big") + header[_SIZE_END:], made)


def _correlation_id(header: bytes) -> bytes:
    try:
        value = decode_properties(header).get("correlation_id", b"")
    except ContentError:
        return b""
    return value if isinstance(value, bytes) else b""


# -- the part of the queue -------------------------------------------------------------------------------------------


class LeasedSettlement(LeasesPart, Settlement):
    """Makes returned messages ready again, or expires them. Acknowledgements count after the end of a lease, too."""

    def acknowledged(self, queue: Queue, messages: Sequence[Message]) -> None:
        """Remove acknowledged messages, also those whose lease has ended. All have one holder, or none (no-ack)."""
        leases, holder = self.leases, messages[0].holder
        gone: Sequence[Message] = messages
        if holder is not None and holder_of(messages[0]).is_past:
            found = [(lease, message) for lease in messages if (message := acknowledge_late(leases, lease)) is not None]
            for lease, message in found:
                message.holder = lease.holder
            gone = [message for _, message in found]
        elif holder is not None:
            gone = leases.book.end(messages)
            if leases.consumer_list.overdue:
                leases.consumer_list.overdue.discard(holder_of(messages[0]))
        leases.count_acked(gone)
        if leases.rules.barrier is not None or leases.rules.settings.max_backlog is not None:
            queue.mark()

    def requeue(
        self, queue: Queue, messages: list[Message], why: str, *, counted: bool, with_redelivery_delay: bool
    ) -> None:
        """End leases and make their messages ready. Leases that have ended before are skipped."""
        if not queue.deleted:
            return_messages(self.leases, self.leases.book.end(_running(messages)), why, is_cancel=why in CANCELS)

    def reject(self, queue: Queue, messages: list[Message], reason: str) -> None:
        """Expire leased messages, and free slots. Leases that have ended before are skipped."""
        dead = list(self.leases.book.end(_running(messages)))
        for message in dead:
            message.holder = None
        if dead:
            expire_for(self.leases, dead, (FORCED_EXPIRE,))
        queue.mark()

    reject_or_requeue = reject

    def expired(self, queue: Queue, messages: list[Message]) -> None:
        expire_for(self.leases, messages, (TIME_LIMIT,))

    def unacked(self, queue: Queue) -> list[Message]:
        return list(self.leases.book.leases.by_id.values())

    def first_unacked(self, queue: Queue, count: int) -> list[Message]:
        return list(islice(self.leases.book.leases.by_id.values(), count))

    def trim(self, queue: Queue) -> None:
        """End another slice of leases and lifetimes."""
        end_due(self.leases)

    def left_by(self, queue: Queue, session: "Session") -> None:
        """Forget the holder of the session's past leases."""
        self.leases.past.pop(session, None)

    def purged(self, queue: Queue) -> None:
        """Leased messages stay."""
        book, active = self.leases.book, self.leases.active
        forget_present(self.leases)
        book.cancels = {id_: cancels for id_, cancels in book.cancels.items() if id_ in book.leases.by_id}
        if active is not None:
            active.count = len(book.leases)
        if self.leases.owners is not None:
            self.leases.owners.keep(book.leases.by_id)

    def site_went(self, site: str) -> None:
        """End the leases of a site that is absent now. Its consumers get no more."""
        self.sites_changed()
        held = [lease for lease in self.leases.book if holder_of(lease).session.client.site == site]
        if held:
            break_leases(self.leases, held, SITE_LOST)

    def sites_changed(self) -> None:
        """Dispatch by the sites that are present now."""
        self.leases.consumer_list.sites_changed(self.leases.is_present)
        self.leases.queue.mark()

    def ending(self, queue: Queue) -> None:
        """Cancel the deadlines, stop watching the sites, and forget past leases."""
        queue.context.broker.deadlines.cancel(self.leases.deadline)
        queue.context.broker.deadlines.cancel(self.leases.transfers)
        queue.context.broker.sites.watchers.pop(self, None)
        self.leases.past.clear()


def _running(messages: Sequence[Message]) -> list[Message]:
    """The leases among these that have not ended."""
    return [message for message in messages if not holder_of(message).is_past]
