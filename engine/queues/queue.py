"""A queue: a store of ready messages, consumers in a rota, and what happens between the two (`dispatch.py`).

Everything works on runs. A message's id is its place: a requeued message goes back where its id says. Messages that
a waiting consumer can take at once never enter the store.
Source: behaviour page 2.4, 2.7, 2.12, 4; performance page 4.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Protocol

from ..delivery.consumer import Holder
from ..messages.deaths import EXPIRED
from ..messages.message import Envelope, Message
from ..messages.mixed import stretches_alike
from ..rules.queue_rules import DROP_HEAD, NO_RULES
from . import dispatch, eviction, limits, returns, ring
from .admission import admit
from .expiry import arm, expire
from .rule_changes import GovernedQueue

#: The queue that a holder's messages came from.
queue_of: "Callable[[Holder], Queue]" = attrgetter("queue")
_id_of: Callable[[Message], int] = attrgetter("id")


@dataclass(slots=True, frozen=True)
class QueueStatistics:
    """What is in a queue now, and what has happened to it (counters by event name)."""

    name: str
    ready: int
    unacked: int
    scheduled: int
    consumers: int
    counters: dict[str, int]


class Restorer(Protocol):
    """Puts messages back after a restart: one way for each kind of queue. Each returns how many."""

    def restore_ready(self, queue: "Queue") -> int:
        """Into a classic or quorum queue."""

    def restore_kept(self, queue: Any) -> int:
        """Into a `NonDestructiveQueue`."""

    def restore_stream(self, queue: Any) -> int:
        """Into a `StreamQueue`."""


class Queue(GovernedQueue):
    """Classic and quorum queues, and what the other kinds share with them."""

    __slots__ = ()

    # -- what is there ------------------------------------------------------------------------------------------------

    def statistics(self) -> QueueStatistics:
        """A snapshot."""
        return QueueStatistics(
            self.name,
            len(self.store),
            self.ledger.unacked,
            len(self.scheduled),
            len(self.rota.consumers),
            self.ledger.counters.as_dict(),
        )

    # -- in -----------------------------------------------------------------------------------------------------------

    def enqueue(
        self, first_id: int, envelope: Envelope, blobs: Sequence[bytes], due_ns: int | None = None
    ) -> Sequence[int]:
        """Take a run of new messages: to waiting consumers at once, the rest to the store. O(run).

        `due_ns`: they are to wait until then (monotonic).
        Returns: the offsets of messages that a limit refused (behaviour page 3.3, reject-publish).
        """
        if self.stores_all:
            envelope = envelope.persisted()
        if not (self.takes_plainly and envelope.is_plain):
            offsets = admit(self, first_id, envelope, blobs, due_ns)
            self._note_crowding()
            return offsets
        count, store = len(blobs), self.store
        self.ledger.enqueued_run(first_id, envelope, blobs)
        rota = self.rota
        if rota.consumers and not store.ready and not store.has_tail:
            if len(rota.consumers) == 1 and not rota.waits:  # as `hand_over` does, with a call less
                taken = dispatch.hand_to(rota.consumers[0], first_id, envelope, blobs)
            else:
                taken = dispatch.hand_over(self, first_id, envelope, blobs)
            if taken == count:
                return ()
            if taken:
                first_id += taken
                blobs = blobs[taken:]
        store.append_run(first_id, envelope, blobs)
        if len(store.ready) > self.surroundings.pressure.ready_max:
            self._note_crowding()
        return ()

    def enqueue_mixed(self, first_id: int, envelopes: Sequence[Envelope], blobs: Sequence[bytes]) -> Sequence[int]:
        """The same for a mixed run of plain messages."""
        if not self.takes_plainly:
            return self.enqueue_stretches(first_id, envelopes, blobs)
        if self.stores_all:
            envelopes = [envelope.persisted() for envelope in envelopes]
        store, rota = self.store, self.rota
        self.ledger.enqueued_mixed(first_id, envelopes, blobs)
        is_shared = False
        if rota.consumers and not store.ready and not store.has_tail:
            is_shared = len(rota.consumers) > 1 or rota.waits
            if not is_shared:
                taken = dispatch.hand_to(rota.consumers[0], first_id, envelopes, blobs)
                if taken == len(blobs):
                    return ()
                if taken:
                    first_id, envelopes, blobs = first_id + taken, envelopes[taken:], blobs[taken:]
        store.append_run(first_id, envelopes, blobs)
        if is_shared:
            self.dispatch()
        if len(store.ready) > self.surroundings.pressure.ready_max:
            self._note_crowding()
        return ()

    def enqueue_stretches(self, first_id: int, envelopes: Sequence[Envelope], blobs: Sequence[bytes]) -> Sequence[int]:
        """A mixed run, one stretch of one envelope after the other."""
        refused: list[int] = []
        for start, stop, envelope in stretches_alike(envelopes):
            refused += [start + at for at in self.enqueue(first_id + start, envelope, blobs[start:stop])]
        return refused

    def _note_crowding(self) -> None:
        """A run came in: say so if it crowds the queue. A queue that keeps its messages is never crowded."""
        pressure = self.surroundings.pressure
        if len(self.store.ready) > pressure.ready_max and self.rota.consumers and not self.keeps:
            pressure.note(self)

    def requeue(self, messages: list[Message], *, why: str, counted: bool = False, delayed: bool = False) -> None:
        """Put messages back to where they were, in order of their ids, and mark the queue for dispatch.

        `messages` need not be sorted; they must be out of this queue and unsettled. With rules, `counted` says whether
        the delivery was a failed attempt, and `delayed` whether a redelivery delay applies (address-settings 7.1).
        O(messages + those before them).
        """
        if self.deleted or not messages:
            return
        self.surroundings.effort.spent += len(messages)
        messages.sort(key=_id_of, reverse=True)
        for message in messages:
            message.holder = None
        if self.rules is not NO_RULES:
            returns.give_back(self, messages, why=why, counted=counted, delayed=delayed)
        else:
            if not counted:
                for message in messages:
                    message.uncounted += 1
            self.ledger.requeued(messages[::-1], why=why, counted=counted)
            self.merge(messages)
            self.mark()
        if self.store.expiring:
            arm(self)

    @property
    def first_offset(self) -> int | None:
        """Of the oldest message, in a stream; None: messages of this queue have no offsets."""
        return None

    def restore_by(self, restorer: Restorer) -> int:
        """After a restart: have the messages put back that it had. Returns how many."""
        return restorer.restore_ready(self)

    def restore_waiting(self, message: Message, due_ns: int) -> None:
        """After a restart: a message that waits for its time."""
        self.scheduled.add(due_ns, message)

    def settle_in(self) -> None:
        """After a restart, all messages are back: what limits and times do to them."""
        self.recount()
        self.await_due()
        if self.store.expiring:
            self.expire_due()
        if self.rules.ring_size is not None:
            ring.enforce(self, self.store.at_hand)
        if self.rules.has_limit and self.rules.overflow == DROP_HEAD:
            limits.trim(self)

    # -- out ----------------------------------------------------------------------------------------------------------

    def dispatch(self) -> None:
        """Hand out ready messages while a consumer has credit. O(delivered)."""
        dispatch.dispatch(self)
        if self.gate is not None:
            self.gate.eased(self)

    def pop(self) -> Message | None:
        """The next message for a get, or None."""
        return dispatch.pop(self)

    def is_hungry(self) -> bool:
        """Whether more of what is paged out should be in memory."""
        return dispatch.is_hungry(self)

    def load(self) -> None:
        """Bring a slice into memory, or to consumers; reads files."""
        dispatch.load(self)

    def acknowledged(self, messages: Sequence[Message]) -> None:
        """Messages that were out are settled: gone for good."""
        self.ledger.acked(messages)

    def kill_or_keep(self, messages: list[Message], *, reason: str) -> None:
        """Messages that were out and must not come back, unless their dead-letter address takes nothing now."""
        if self.rules is not NO_RULES and returns.dead_letters_are_refused(self):
            for message in messages:
                message.uncounted += 1
            self.requeue(messages, why=reason, counted=True, delayed=True)
        else:
            self.kill(messages, reason=reason)

    def kill(self, messages: list[Message], *, reason: str) -> None:
        """Messages that were out and must not come back."""
        self.lose(messages, reason)

    # -- time ---------------------------------------------------------------------------------------------------------

    def expire_due(self) -> None:
        """A deadline: heads whose time is over go, the next ones are waited for."""
        surroundings = self.surroundings
        if surroundings.is_crowded() and not self.deleted and self.rules.dead_letter_target(EXPIRED) is not None:
            surroundings.expire_later(self)
        else:
            self.expire_now()

    def expire_now(self) -> None:
        """The same, however many dead letters are under way."""
        if not self.deleted:
            expire(self)
            arm(self)

    def hold(self) -> None:
        """Hand nothing out until `let_go`."""
        self.holds += 1

    def let_go(self) -> None:
        """What `hold` waited for is done."""
        self.holds -= 1
        self.mark()

    def is_busy(self) -> bool:
        """Whether messages are on their way back to it, or more have expired than a slice, which goes now.

        Who wants to look into the queue asks again later: so a get, a purge, or a deletion finds it as if all had been
        done at once, and no turn becomes long by that.
        """
        if self.deleted:
            return False
        if self.holds:
            return True
        if not self.store.expiring:
            return False
        is_more = not expire(self)
        arm(self)
        return is_more

    def come_due(self) -> None:
        """A deadline: messages whose wait is over are ready."""
        if not self.deleted:
            returns.come_due(self)

    def reschedule(self, id_: int, delay_ms: int) -> bool:
        """An operator wants a waiting message due so long from now. False when no such message waits."""
        return returns.reschedule(self, id_, delay_ms)

    def cancel_scheduled(self, id_: int) -> bool:
        """An operator takes a waiting message out for good. False when no such message waits."""
        return returns.cancel_scheduled(self, id_)

    def trim(self) -> None:
        """Another slice of what is more than the limits allow goes."""
        limits.enforce(self)
        eviction.enforce(self)

    # -- the end ------------------------------------------------------------------------------------------------------

    def condemn(self) -> None:
        """The queue is being deleted: nothing is dispatched any more; see `end`."""
        self.deleted = True
        if self.gate is not None:
            self.gate.eased(self)

    def end(self) -> int:
        """Its messages are gone, unacknowledged ones too. Returns how many were ready or waiting."""
        dropped = self.store.drop_all()
        count = self.ledger.deleted_paged(dropped)
        gone = self._with_scheduled(dropped.ready)
        self.timers.cancel_all()
        count += len(gone)
        lost = count + (0 if self.keeps else self.ledger.unacked)
        if self.ledger.is_heard:
            out = () if self.keeps else self.unacked_messages()
            self.ledger.deleted(sorted([*gone, *out], key=_id_of), lost)
        else:
            self.ledger.deleted((), lost)
        for session in self.sessions:
            session.forget_queue(self)
        self.sessions.clear()
        self.store.leave_owner()
        self.end_metering()
        self.surroundings.free(gone)
        return count
