"""The events of a queue: its counters, what is unacknowledged, its octets, and the announcing of what happens to it.

Nothing is counted or announced but here: one method an event. With nobody listening an event costs an addition a run.
Source: rulings, "Events".
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from operator import attrgetter

from ..delivery.consumer import Consumer, Receiver
from ..events import Counters, EventKind
from ..flow.meter import Meter
from ..messages.deaths import EXPIRED, MAXLEN
from ..messages.event import Event, Listener, emit_mixed
from ..messages.message import Envelope, Message
from ..stores.paged_places import Left
from ..stores.paged_run import IN_JOURNAL
from ..stores.store import Dropped, Ready
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
)

_id_of: Callable[[Message], int] = attrgetter("id")

_ID = attrgetter("id")


class QueueEvents:
    """`unacked`: deliveries that are out. What is in the queue in octets only a `MeteredQueueEvents` knows."""

    __slots__ = ("_listeners", "_name", "_vhost", "counters", "unacked")

    def __init__(self, vhost: str, name: str, listeners: list[Listener]) -> None:
        self._vhost = vhost
        self._name = name
        self._listeners = listeners
        self.counters = Counters()
        self.unacked = 0

    def hand_over(self, other: "QueueEvents") -> None:
        """Another one goes on with what this one has counted."""
        other._vhost, other._name, other._listeners = self._vhost, self._name, self._listeners
        other.counters, other.unacked = self.counters, self.unacked

    @property
    def has_listeners(self) -> bool:
        """Whether anybody listens."""
        return bool(self._listeners)

    # -- octets: nobody asks for them here --------------------------------------------------------------------------

    @property
    def meter(self) -> Meter | None:
        """What is in the queue in octets, where somebody asks."""
        return None

    @property
    def octets(self) -> int | None:
        """Of all messages, ready, waiting or out; None: nobody asks."""
        return None

    def octets_changed(self, difference: int, envelope: Envelope | None = None) -> None:
        """Messages of the queue take so many octets more, or less; `envelope`: of the one that it is."""

    def recount(self, in_memory: Iterable[Message], paged: Iterable[tuple[int, int, bool]]) -> None:
        """Count from nothing what is in the queue: messages in memory; parts that are paged out.

        Of each part: count, octets, whether a restart brings it back.
        """

    def paged_out(self, count: int, octets: int, octets_paged: int, *, are_stored: bool) -> None:
        """Messages left memory, or (below 0) came back. See `stores.surroundings.Owner`."""

    def _came(self, envelope: Envelope, blobs: Sequence[bytes]) -> None:
        """New messages of one envelope."""

    def _went(self, envelope: Envelope, blobs: Sequence[bytes]) -> None:
        """Messages left that were never ready."""

    def _left(self, messages: Collection[Message] | Ready) -> None:
        """Messages left that were in memory."""

    def _left_paged(self, count: int, octets: int | None) -> None:
        """Messages left that were paged out; None: all that were."""

    # -- in ----------------------------------------------------------------------------------------------------------

    def restored(self, count: int) -> None:
        """So many messages are back after a restart."""
        self.counters.enqueued += count

    def enqueued_run(self, first_id: int, envelope: Envelope, blobs: Sequence[bytes]) -> None:
        """A run of new messages."""
        count = len(blobs)
        self.counters.enqueued += count
        if self._listeners:
            ids = range(first_id, first_id + count)
            self._emit(EnqueuedEvent(self._vhost, self._name, ids, envelope))

    def enqueued_mixed(self, first_id: int, envelopes: Sequence[Envelope], blobs: Sequence[bytes]) -> None:
        """A mixed run of new messages, else as `enqueued_run`."""
        count = len(envelopes)
        self.counters.enqueued += count
        if self._listeners:
            ids = range(first_id, first_id + count)
            emit_mixed(self._listeners, MixedEnqueuedEvent(self._vhost, self._name, ids, envelopes))

    def enqueued(self, message: Message) -> None:
        """A new message."""
        self.counters.enqueued += 1
        self._came(message.envelope, (message.blob,))
        if self._listeners:
            self._emit(EnqueuedEvent(self._vhost, self._name, (message.id,), (message,)))

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
        """Their wait is over."""
        if self._listeners:
            self._emit(DueEvent(self._vhost, self._name, _ids(messages), messages))

    def requeued(self, messages: Sequence[Message], *, why: str, counted: bool) -> None:
        """Deliveries came back, and are ready again. `counted`: they were failed attempts."""
        self.counters.requeued += len(messages)
        if self._listeners:
            self._emit(RequeuedEvent(self._vhost, self._name, _ids(messages), messages, why, counted))

    def lease_ended(self, messages: Sequence[Message], why: str) -> None:
        """Leases ended otherwise than by their holders' acknowledgements. What became of the messages is told next."""
        self.counters.lease_ended += len(messages)
        if self._listeners:
            self._emit(LeaseEndedEvent(self._vhost, self._name, _ids(messages), messages, why))

    def notes_changed(self) -> None:
        """What the journal keeps of the queue beside its declaration is other than before."""
        if self._listeners:
            self._emit(NotesEvent(self._vhost, self._name))

    def refused_unsafe(self, count: int) -> None:
        """So many messages were refused because the journal takes nothing now. That is not announced."""
        self.counters.dropped += count

    def refused(self, message: Message, reason: str) -> None:
        """A message did not come in."""
        self.counters.dropped += 1
        if self._listeners:
            self._emit_left(EventKind.DROPPED, (message.id,), (message,), reason, came_in=False)

    # -- out ---------------------------------------------------------------------------------------------------------

    def delivered_run(
        self,
        consumer: Consumer,
        session: Receiver,
        ids: Sequence[int],
        of: Envelope | Sequence[Message],
        blobs: Sequence[bytes],
    ) -> None:
        """Messages that were never ready went to a consumer; without acknowledgements that settles them.

        `of`: the envelope that they share; of a mixed run the messages, which may be missing if nobody listens.
        """
        count = len(blobs)
        counters = self.counters
        counters.delivered += count
        if consumer.no_ack:
            counters.acknowledged += count
            counters.no_ack += count
        else:
            self.unacked += count
        if self._listeners:
            vhost, name, tag = self._vhost, self._name, consumer.tag
            self._emit(DeliveredEvent(vhost, name, ids, of, session, tag, blobs))
            if consumer.no_ack:
                self._emit(AckedEvent(vhost, name, ids, of, client=session.client, consumer=tag))

    def delivered(
        self, messages: Sequence[Message], session: Receiver, *, consumer: Consumer | None, no_ack: bool
    ) -> None:
        """Messages that were ready went to a consumer, or to a get (None). Without acknowledgements see `acked`."""
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
            self._emit(DeliveredEvent(self._vhost, self._name, _ids(messages), messages, session, tag))

    def settled(self, count: int) -> None:
        """So many deliveries are no longer out, whatever becomes of them."""
        self.unacked -= count

    def acked(self, messages: Sequence[Message], *, kept: bool = False) -> None:
        """Deliveries were acknowledged: gone for good, or (`kept`) here as before."""
        self.counters.acknowledged += len(messages)
        if self._listeners:
            self._emit(AckedEvent(self._vhost, self._name, _ids(messages), messages, kept))

    def replaced(self, older: Message | Left) -> None:
        """There is a newer value than a message's, whether that came before or now."""
        self.counters.replaced += 1
        if not isinstance(older, Message):
            self._left_unread(EventKind.REPLACED, (older,))
            return
        self._left((older,))
        if self._listeners:
            self._emit_left(EventKind.REPLACED, (older.id,), (older,))

    def evicted(self, messages: Sequence[Message], unread: Sequence[Left] = (), reason: str | None = None) -> None:
        """A ring had no room for them. `reason`: something else had none."""
        self.counters.replaced += len(messages) + len(unread)
        if messages:
            self._left(messages)
            if self._listeners:
                self._emit_left(EventKind.EVICTED, _ids(messages), messages, reason)
        self._left_unread(EventKind.EVICTED, unread, reason)

    def evicted_run(self, first_id: int, envelope: Envelope, blobs: Sequence[bytes]) -> None:
        """New messages came and went within a run that was longer than the ring."""
        count = len(blobs)
        self.counters.replaced += count
        self._went(envelope, blobs)
        if self._listeners:
            self._emit_left(EventKind.EVICTED, range(first_id, first_id + count), envelope)

    def lost(self, messages: Sequence[Message], reason: str, target: str | None, *, came_in: bool = True) -> None:
        """Messages came to a bad end. `reason`: rejected, expired, maxlen or delivery_limit.

        `target`: where they go as dead letters. `came_in`: they were in the queue before.
        """
        count, counters = len(messages), self.counters
        if came_in:
            self._left(messages)
        counters.died(reason, count, goes_on=target is not None)
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

    def lost_unread(self, unread: Sequence[Left], reason: str) -> None:
        """The same with messages whose content is only in the journal, and is not wanted: no dead letters."""
        self.counters.died(reason, len(unread), goes_on=False)
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
        messages: Collection[Message] | Ready,
        unread: Sequence[Left] = (),
        *,
        reason: str | None = None,
        to: str | None = None,
    ) -> None:
        """Messages in memory were purged; of those `unread` the content is only in the journal.

        `reason`: an operator took these out; `to`: and put them there.
        """
        self.counters.purged += len(messages) + len(unread)
        if len(messages):
            self._left(messages)
            if self._listeners:  # they get a list of their own: the messages are freed meanwhile
                self._emit_left(EventKind.PURGED, _ids(messages), list(messages), reason, to)
        self._left_unread(EventKind.PURGED, unread)

    def purged_paged(self, dropped: Dropped) -> int:
        """What was paged out was purged. Returns how many messages."""
        count = self._dropped_paged(EventKind.PURGED, dropped)
        self.counters.purged += count
        return count

    def deleted_paged(self, dropped: Dropped) -> int:
        """What was paged out was deleted with its queue. Returns how many messages; see `deleted`."""
        return self._dropped_paged(EventKind.DELETED, dropped)

    def deleted(self, messages: Sequence[Message], count: int) -> None:
        """The queue is deleted with so many messages; these are the ones in memory, ids rising."""
        self.counters.deleted += count
        self._left(messages)
        if self._listeners:
            self._emit_left(EventKind.DELETED, _ids(messages), messages)

    def _dropped_paged(self, kind: EventKind, dropped: Dropped) -> int:
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
        return dropped.paged_count

    def cancelled(self, message: Message) -> None:
        """An operator took a waiting message out for good."""
        self.counters.cancelled += 1
        self._left((message,))
        if self._listeners:
            self._emit_left(EventKind.CANCELLED, (message.id,), (message,))

    # -- consumers, and how it is told --------------------------------------------------------------------------------

    def consumer_added(self, consumer: Consumer) -> None:
        """A subscription began."""
        if self._listeners:
            self._emit_consumer(EventKind.CONSUMER_ADDED, consumer)

    def consumers_removed(self, consumers: Iterable[Consumer]) -> None:
        """Subscriptions ended."""
        if self._listeners:
            for consumer in consumers:
                self._emit_consumer(EventKind.CONSUMER_REMOVED, consumer)

    def _left_unread(self, kind: EventKind, unread: Sequence[Left], reason: str | None = None) -> None:
        if unread:
            self._left_paged(len(unread), sum(one.octets for one in unread))
            if self._listeners:
                self._emit_left(kind, [one.id for one in unread], IN_JOURNAL, reason)

    def _emit_left(
        self,
        kind: EventKind,
        ids: Sequence[int],
        of: Sequence[Message] | Envelope,
        reason: str | None = None,
        to: str | None = None,
        *,
        came_in: bool = True,
    ) -> None:
        self._emit(LeftEvent(kind, self._vhost, self._name, ids, of, reason, to, came_in))

    def _emit_consumer(self, kind: EventKind, consumer: Consumer) -> None:
        self._emit(ConsumerEvent(kind, self._vhost, self._name, consumer.tag, consumer.client))

    def _emit(self, event: Event) -> None:
        for listener in self._listeners:
            listener(event)


def _ids(messages: Iterable[Message]) -> list[int]:
    return list(map(_id_of, messages))
