"""The verbs that the rules of a queue are written with.

`Queue` puts its parts to work; what its rules do to messages (`expiry`, `dispatch`, `ring`, `limits`, `admission`,
`returns`) is written for this class, so that each of these files knows only what stands below it.
"""

from abc import abstractmethod

from ..clock import due_after
from ..delivery.group_id import grouped
from ..messages.deaths import DELIVERY_COUNT
from ..messages.field_table import Field, FieldTable
from ..messages.message import Envelope, Message
from ..rules.arguments import QUORUM
from ..stores.paged_message import octets_of
from ..stores.store import Ready
from .parts import QueueParts

#: Messages that others go behind when they come back, in one unit of `Effort`.
PASSED = 8


class QueueCore(QueueParts):
    """What `Queue` adds to it stands at the top here, as verbs that it implements."""

    __slots__ = ()

    # -- what upper files implement -----------------------------------------------------------------------------------

    @abstractmethod
    def dispatch(self) -> None:
        """Hand out ready messages while a consumer has credit."""

    @abstractmethod
    def come_due(self) -> None:
        """A deadline: messages whose wait is over."""

    @abstractmethod
    def expire_due(self) -> None:
        """A deadline: heads whose time is over."""

    # -- for its store (`stores.Owner`) -------------------------------------------------------------------------------

    def message_for(self, id_: int, blob: bytes, envelope: Envelope) -> Message:
        """A message of this queue: of its group, where the queue heeds groups."""
        rules = self.rules
        if envelope.facts.is_marked and rules.group_buckets != 0 and rules.last_value_key is None and not self.keeps:
            message = grouped(id_, blob, envelope, rules.group_buckets)
            if message is not None:
                self.rota.heed_groups()
                self.takes_plainly = False
                return message
        return self.store.new_message(id_, blob, envelope)

    def loaded(self, messages: list[Message], attempts: int) -> None:
        """Messages that were paged out are in memory again; they were tried so often."""
        self.ledger.loaded(messages)
        if attempts > 0 and self.rules.counts_deliveries:
            for message in messages:
                self.tell_count(message, attempts)

    # -- messages -----------------------------------------------------------------------------------------------------

    def mark(self) -> None:
        """Dispatch before the turn ends."""
        self.surroundings.mark(self)

    def add_headers(self, message: Message, added: FieldTable) -> None:
        """A message of this queue says more from now on."""
        blob = message.envelope.spliced(message.blob, added)
        self.ledger.octets_changed(len(blob) - octets_of(message))
        message.blob = blob
        message.envelope = message.envelope.plain()

    def tell_count(self, message: Message, attempts: int) -> None:
        """From now on deliveries say how often it was tried (x-delivery-count; address-settings page 5.6)."""
        if self.type == QUORUM or self.surroundings.options().classic_tells_attempts:
            self.add_headers(message, {DELIVERY_COUNT: Field("l", attempts)})

    def merge(self, messages: list[Message]) -> None:
        """Messages (ids falling) are ready again at their places; a last value that has a newer one is replaced."""
        superseded, passed = self.store.put_back(messages)
        self.surroundings.effort.spent += passed // PASSED
        for older in superseded:
            self.ledger.replaced(older)

    def take_in(self, message: Message) -> bool:
        """Count a new message in; True when a waiting consumer took it at once, so that no limit concerns it."""
        self.ledger.enqueued(message)
        rota = self.rota
        if self.store.ready or self.store.has_tail or rota.groups is not None or not rota.has_waiting():
            return False
        (consumer,) = rota.eligible(1)
        consumer.session.deliver_ready(consumer, [message])
        return True

    def take_in_waiting(self, message: Message, due_ns: int) -> None:
        """Count a new message in that is to wait; it expires on time also while it does."""
        self.ledger.enqueued(message)
        due_ns = min(due_ns, message.expires_ns) if message.expires_ns else due_ns
        self.scheduled.add(due_ns, message)
        self.ledger.scheduled((message,), (due_ns,), why="published")

    def await_due(self) -> None:
        """Set the deadline of the soonest waiting message."""
        self.timers.arm_due(self.scheduled.next_ns(), self.come_due)

    def lose(self, messages: list[Message], reason: str, *, came_in: bool = True) -> None:
        """Messages came to a bad end: counted under their cause, and published as dead letters where rules say so.

        `reason`: rejected, expired, maxlen or delivery_limit. `came_in`: they were in the queue before.
        Source: rulings, "Events".
        """
        target = self.rules.dead_letter_target(reason)
        self.ledger.lost(messages, reason, target, came_in=came_in)
        if target is not None:
            self.surroundings.bury(self, messages, reason)

    def place_due(self, messages: list[Message]) -> None:
        """Messages (ids rising) whose publication was delayed until now, one time for all, become ready.

        At the head of their level, as Artemis does; those of a delaying exchange at the tail, where RabbitMQ's plugin
        has them arrive (address-settings page 4.5, rule 2, and 5.3).
        """
        arriving: list[Message] = []
        for message in reversed(messages):
            if self.surroundings.is_delaying(message.envelope.exchange):
                arriving.append(message)
            else:
                self.store.put_first(message)
        for message in reversed(arriving):
            self.store.put_last(message)

    # -- use and end --------------------------------------------------------------------------------------------------

    def touch(self) -> None:
        """The queue is in use: its own expiry (x-expires) begins again. Source: behaviour page 3.2."""
        expires_ms, timers = self.rules.expires_ms, self.timers
        if expires_ms is None and not timers.expects_disuse:
            return
        is_unused = expires_ms is not None and not self.rota.consumers and not self.deleted
        due_ns = due_after(self.surroundings.clock, expires_ms) if is_unused and expires_ms is not None else None
        timers.arm_unused(due_ns, self._unused)

    def _unused(self) -> None:
        if not self.deleted and not self.rota.consumers:
            self.surroundings.remove(self)

    def purge(self) -> int:
        """Drop all ready and scheduled messages; returns how many. The memory is given back in slices."""
        dropped = self.store.drop_all()
        count = self.ledger.purged_paged(dropped)
        gone = self._with_scheduled(dropped.ready)
        self.await_due()
        if len(gone):
            self.ledger.purged(gone)
        self.surroundings.free(gone)
        if self.gate is not None:
            self.gate.eased(self)
        return count + len(gone)

    def _with_scheduled(self, ready: Ready) -> Ready:
        """What was ready and what waits; the former itself, if nothing waits: there may be very many."""
        return [*ready, *self.scheduled.take_all()] if self.scheduled else ready
