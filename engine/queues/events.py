"""Counts the events of a queue and emits them to listeners: one method for each event.

Without listeners an event costs one addition a run.
Source: rulings, "Events".
"""

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from ..delivery.consumer import Consumer
from ..events import Counters, EventKind
from ..flow.meter import Meter
from ..messages.dead_letter import EXPIRED, MAXLEN
from ..messages.event import Event, Listener, emit_mixed
from ..messages.message import Envelope, Message, id_of
from ..stores.paged_index import PagedEntry
from ..stores.paged_run import IN_JOURNAL
from ..stores.store import Dropped, Freeable
from .queue_events import (
    AckedEvent,
    ConsumerEvent,
    DeliveredEvent,
    DueEvent,
    EnqueuedEvent,
    LeaseEndedEvent,
    LeftEvent,
    MixedEnqueuedEvent,
    NotesEvent,
    RequeuedEvent,
    ScheduledEvent,
    TransferredEvent,
)

if TYPE_CHECKING:
    from ..clients.session import Session


class QueueEvents:
    """The counters and listeners of one queue, without a meter: only `MeteredQueueEvents` counts octets.

    `unacked`: the number of unacknowledged deliveries.

    `redelivered_below`: all deliveries of messages with lower ids are redeliveries, because the node that led before
    may have delivered these messages without a record. 0: there are none.
    """

    __slots__ = ("_listeners", "_name", "_vhost", "counters", "redelivered_below", "unacked")

    def __init__(self, vhost: str, name: str, listeners: list[Listener]) -> None:
        self._vhost = vhost
        self._name = name
        self._listeners = listeners
        self.counters = Counters()
        self.unacked = 0
        self.redelivered_below = 0

    def copy_to(self, other: "QueueEvents") -> None:
        """Copy counters and listeners to the object that replaces this one."""
        other._vhost, other._name, other._listeners = self._vhost, self._name, self._listeners
        other.counters, other.unacked = self.counters, self.unacked
        other.redelivered_below = self.redelivered_below

    @property
    def has_listeners(self) -> bool:
        return bool(self._listeners)

    # -- octets: counted by `MeteredQueueEvents` alone ----------------------------------------------------------------

    @property
    def meter(self) -> Meter | None:
        """The meter of the queue's octets; None: octets are not counted."""
        return None

    @property
    def octets(self) -> int | None:
        """Octets of all messages: ready, scheduled and unacknowledged; None: not counted."""
        return None

    def octets_changed(self, difference: int, envelope: Envelope | None = None) -> None:
        """Count octets that were added to messages or (below 0) removed. `envelope`: that of a single message."""

    def recount(self, in_memory: Iterable[Message], paged: Iterable[tuple[int, int, bool]]) -> None:
        """Count the queue's contents again: messages in memory, and paged-out parts.

        `paged`: of each part the number of messages, their octets, and whether a restart brings them back.
        """

    def paged_out(self, count: int, octets: int, octets_paged: int, *, are_stored: bool) -> None:
        """Messages left memory, or (numbers below 0) came back. See `StoreOwner`."""

    def _came(self, envelope: Envelope, contents: Sequence[bytes]) -> None:
        """New messages of one envelope are in the queue."""

    def _went(self, envelope: Envelope, contents: Sequence[bytes]) -> None:
        """Messages left the queue without ever being ready."""

    def _left(self, messages: Collection[Message] | Freeable) -> None:
        """Messages in memory left the queue."""

    def _left_paged(self, count: int, octets: int | None) -> None:
        """Paged-out messages left the queue. `octets`: their size; None: all paged-out messages left."""

    # -- in ----------------------------------------------------------------------------------------------------------

    def restored(self, count: int) -> None:
        """`count` messages are back after a restart."""
        self.counters.enqueued += count

    def enqueued_run(self, first_id: int, envelope: Envelope, contents: Sequence[bytes], owner: int = 0) -> None:
        """A run of new messages. `owner`: see `EnqueuedEvent`."""
        count = len(contents)
        self.counters.enqueued += count
        if self._listeners:
            ids = range(first_id, first_id + count)
            self._emit(EnqueuedEvent(self._vhost, self._name, ids, envelope, owner))

    def enqueued_mixed(self, first_id: int, envelopes: Sequence[Envelope], contents: Sequence[bytes]) -> None:
        """A mixed run of new messages."""
        count = len(envelopes)
        self.counters.enqueued += count
        if self._listeners:
            ids = range(first_id, first_id + count)
            emit_mixed(self._listeners, MixedEnqueuedEvent(self._vhost, self._name, ids, envelopes))

    def enqueued(self, message: Message, owner: int = 0) -> None:
        """A new message. `owner`: see `EnqueuedEvent`."""
        self.counters.enqueued += 1
        self._came(message.envelope, (message.content,))
        if self._listeners:
            self._emit(EnqueuedEvent(self._vhost, self._name, (message.id,), (message,), owner))

    def scheduled(
        self, messages: Sequence[Message], due_ns: Sequence[int], *, why: str, counted: bool | None = None
    ) -> None:
        """Messages wait until they are due. `counted`: of returned ones, whether the delivery was a failed attempt."""
        if counted is not None:
            self.counters.delayed += len(messages)
        if self._listeners:
            ids = _ids(messages)
            self._emit(ScheduledEvent(self._vhost, self._name, ids, messages, why, due_ns, counted))

    def due(self, messages: Sequence[Message]) -> None:
        """The wait of scheduled messages is over."""
        if self._listeners:
            self._emit(DueEvent(self._vhost, self._name, _ids(messages), messages))

    def requeued(self, messages: Sequence[Message], *, why: str, counted: bool) -> None:
        """Deliveries came back, and are ready again. `counted`: they were failed attempts."""
        self.counters.requeued += len(messages)
        if self._listeners:
            self._emit(RequeuedEvent(self._vhost, self._name, _ids(messages), messages, why, counted))

    def lease_ended(self, messages: Sequence[Message], why: str) -> None:
        """Leases ended without acknowledgements. The next event tells what becomes of the messages."""
        self.counters.lease_ended += len(messages)
        if self._listeners:
            self._emit(LeaseEndedEvent(self._vhost, self._name, _ids(messages), messages, why))

    def transferred(self, messages: Sequence[Message], source: str, target: str, number: int) -> None:
        """Ready messages belong to another site now. `number`: the number of the target."""
        if self._listeners:
            self._emit(TransferredEvent(self._vhost, self._name, _ids(messages), messages, source, target, number))

    def notes_changed(self) -> None:
        """`Kind.notes` changed."""
        if self._listeners:
            self._emit(NotesEvent(self._vhost, self._name))

    def refused_by_journal(self, count: int) -> None:
        """`count` messages were refused because the journal cannot write. No event is emitted."""
        self.counters.dropped += count

    def refused(self, message: Message, reason: str) -> None:
        self.counters.dropped += 1
        if self._listeners:
            self._emit_left(EventKind.DROPPED, (message.id,), (message,), reason, came_in=False)

    # -- out ---------------------------------------------------------------------------------------------------------

    def delivered_run(
        self,
        consumer: Consumer,
        session: "Session",
        ids: Sequence[int],
        run: Envelope | Sequence[Message],
        contents: Sequence[bytes],
    ) -> None:
        """Messages that were never ready went to a consumer; a no-ack consumer settles them at once.

        `run`: the common envelope; for a mixed run the messages (without listeners perhaps only the envelopes).
        """
        count = len(contents)
        counters = self.counters
        counters.delivered += count
        if consumer.no_ack:
            counters.acknowledged += count
            counters.no_ack += count
        else:
            self.unacked += count
        if self._listeners:
            vhost, name, tag = self._vhost, self._name, consumer.tag
            self._emit(DeliveredEvent(vhost, name, ids, run, session, tag, contents))
            if consumer.no_ack:
                self._emit(AckedEvent(vhost, name, ids, run, client=session.client, consumer=tag))

    def delivered(
        self, messages: Sequence[Message], session: "Session", *, consumer: Consumer | None, no_ack: bool
    ) -> None:
        """Ready messages went to a consumer, or to a get (None). With `no_ack`, `acked` follows."""
        count, counters = len(messages), self.counters
        counters.delivered += count
        if not no_ack:
            self.unacked += count
        else:
            counters.no_ack += count
        if consumer is None:
            counters.got += count
            if no_ack:
                counters.got_no_ack += count
        if self._listeners:
            tag = None if consumer is None else consumer.tag
            event = DeliveredEvent(self._vhost, self._name, _ids(messages), messages, session, tag)
            event.redelivered_below = self.redelivered_below
            self._emit(event)

    def settled(self, count: int) -> None:
        """`count` deliveries are no longer unacknowledged; another event tells what became of them."""
        self.unacked -= count

    def acked(self, messages: Sequence[Message], *, kept: bool = False) -> None:
        """Deliveries were acknowledged. `kept`: their messages stay in the queue."""
        self.counters.acknowledged += len(messages)
        if self._listeners:
            self._emit(AckedEvent(self._vhost, self._name, _ids(messages), messages, kept))

    def replaced(self, older: Message | PagedEntry) -> None:
        """A message was dropped because the queue has a newer one with the same last-value key."""
        self.counters.replaced += 1
        if not isinstance(older, Message):
            self._left_unread(EventKind.REPLACED, (older,))
            return
        self._left((older,))
        if self._listeners:
            self._emit_left(EventKind.REPLACED, (older.id,), (older,))

    def evicted(
        self, messages: Sequence[Message], unread: Sequence[PagedEntry] = (), reason: str | None = None
    ) -> None:
        """Messages were dropped because a ring had no room; with a `reason`, because another bound had none."""
        self.counters.replaced += len(messages) + len(unread)
        if messages:
            self._left(messages)
            if self._listeners:
                self._emit_left(EventKind.EVICTED, _ids(messages), messages, reason)
        self._left_unread(EventKind.EVICTED, unread, reason)

    def evicted_run(self, first_id: int, envelope: Envelope, contents: Sequence[bytes]) -> None:
        """The first messages of a run that is longer than the ring were dropped."""
        count = len(contents)
        self.counters.replaced += count
        self._went(envelope, contents)
        if self._listeners:
            self._emit_left(EventKind.EVICTED, range(first_id, first_id + count), envelope)

    def died(self, messages: Sequence[Message], reason: str, target: str | None, *, came_in: bool = True) -> None:
        """Messages died. `reason`: rejected, expired, maxlen or delivery_limit.

        `target`: the exchange that gets the dead letters; None: none. `came_in`: they were in the queue before.
        """
        count, counters = len(messages), self.counters
        if came_in:
            self._left(messages)
        counters.died(reason, count, is_dead_lettered=target is not None)
        if reason == EXPIRED:
            kind = EventKind.EXPIRED
            counters.expired += count
        elif reason == MAXLEN and target is None:
            kind = EventKind.DROPPED
            counters.dropped += count
        else:
            kind = EventKind.DEAD_LETTERED if target is not None else EventKind.KILLED
            counters.killed += count
        if self._listeners:
            self._emit_left(kind, _ids(messages), messages, reason, target, came_in=came_in)

    def died_unread(self, unread: Sequence[PagedEntry], reason: str) -> None:
        """Messages whose content is only in the journal died. They become no dead letters."""
        self.counters.died(reason, len(unread), is_dead_lettered=False)
        if reason == EXPIRED:
            self.counters.expired += len(unread)
            self._left_unread(EventKind.EXPIRED, unread, reason)
        else:
            self.counters.dropped += len(unread)
            self._left_unread(EventKind.DROPPED, unread, reason)

    def segment_dropped(self, runs: Iterable[Sequence[int]], count: int, reason: str) -> None:
        """A stream dropped its oldest segment."""
        if reason == EXPIRED:
            kind = EventKind.EXPIRED
            self.counters.expired += count
        else:
            kind = EventKind.DROPPED
            self.counters.dropped += count
        if self._listeners:
            for ids in runs:
                self._emit_left(kind, ids, IN_JOURNAL, reason)

    def purged(
        self,
        messages: Collection[Message] | Freeable,
        unread: Sequence[PagedEntry] = (),
        *,
        reason: str | None = None,
        to: str | None = None,
    ) -> None:
        """Messages were purged, or (`reason`) moved or discarded. `unread`: those whose content is only in the journal.

        `to`: the target of moved messages.
        """
        self.counters.purged += len(messages) + len(unread)
        if len(messages):
            self._left(messages)
            if self._listeners:  # listeners get a copy of the list: the original is emptied in slices
                self._emit_left(EventKind.PURGED, _ids(messages), list(messages), reason, to)
        self._left_unread(EventKind.PURGED, unread)

    def deleted(self, messages: Sequence[Message], count: int) -> None:
        """The queue was deleted with `count` messages. `messages`: those in memory, ids rising."""
        self.counters.deleted += count
        self._left(messages)
        if self._listeners:
            self._emit_left(EventKind.DELETED, _ids(messages), messages)

    def dropped_paged(self, kind: EventKind, dropped: Dropped) -> int:
        """All paged-out messages were purged, or deleted with their queue; `deleted` follows. Returns how many."""
        if not (dropped.paged or dropped.runs):
            return 0
        self._left(dropped.paged)
        if self._listeners:
            for message in dropped.paged:
                self._emit_left(kind, (message.id,), (message,))
        for ids, envelope in dropped.runs:
            if self._listeners:
                self._emit_left(kind, ids, envelope)
        self._left_paged(sum(len(ids) for ids, _ in dropped.runs), dropped.paged_octets)
        if kind is EventKind.PURGED:
            self.counters.purged += dropped.paged_count
        return dropped.paged_count

    def cancelled(self, message: Message) -> None:
        """An operator deleted a scheduled message."""
        self.counters.cancelled += 1
        self._left((message,))
        if self._listeners:
            self._emit_left(EventKind.CANCELLED, (message.id,), (message,))

    # -- consumers, and emitting --------------------------------------------------------------------------------------

    def consumer_added(self, consumer: Consumer) -> None:
        if self._listeners:
            self._emit_consumer(EventKind.CONSUMER_ADDED, consumer)

    def consumers_removed(self, consumers: Iterable[Consumer]) -> None:
        if self._listeners:
            for consumer in consumers:
                self._emit_consumer(EventKind.CONSUMER_REMOVED, consumer)

    def _left_unread(self, kind: EventKind, unread: Sequence[PagedEntry], reason: str | None = None) -> None:
        if unread:
            self._left_paged(len(unread), sum(one.octets for one in unread))
            if self._listeners:
                self._emit_left(kind, [one.id for one in unread], IN_JOURNAL, reason)

    def _emit_left(
        self,
        kind: EventKind,
        ids: Sequence[int],
        run: Sequence[Message] | Envelope,
        reason: str | None = None,
        to: str | None = None,
        *,
        came_in: bool = True,
    ) -> None:
        self._emit(LeftEvent(kind, self._vhost, self._name, ids, run, reason, to, came_in))

    def _emit_consumer(self, kind: EventKind, consumer: Consumer) -> None:
        self._emit(ConsumerEvent(kind, self._vhost, self._name, consumer.tag, consumer.client))

    def _emit(self, event: Event) -> None:
        for listener in self._listeners:
            listener(event)


def _ids(messages: Iterable[Message]) -> list[int]:
    return list(map(id_of, messages))
