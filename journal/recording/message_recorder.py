"""Writes events of messages as records: those of persistent messages in durable queues.

full_recorder.py writes the others.
Source: rulings 21 and 22; address-settings page 5.7 (delivery counts).
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby, repeat
from operator import attrgetter
from typing import Any, ClassVar, NamedTuple

from ...engine import (
    MS,
    AckedEvent,
    Broker,
    DeliveredEvent,
    EnqueuedEvent,
    Envelope,
    Event,
    EventKind,
    LeftEvent,
    Message,
    MixedEnqueuedEvent,
    MixedPublishedEvent,
    PublishedEvent,
    Queue,
    RequeuedEvent,
    ScheduledEvent,
    TransferredEvent,
    bounded_ms,
)
from ..appending.journal import Journal
from ..format.record import COUNTED, REASON_CODES, TIME_MAX
from ..recovery.recovered import MessageState, RecoveredMessage
from .message_index import ContentIndex
from .object_recorder import ObjectRecorder

_ENVELOPE = attrgetter("envelope")
#: Kinds after which the first offset of a stream is recorded again, in the same block.
FROM_THE_HEAD = frozenset({EventKind.DROPPED, EventKind.EXPIRED, EventKind.PURGED})


class PublishedRun(NamedTuple):
    """Messages with consecutive ids whose contents are recorded: ids, LSN of the first content, sizes of bodies."""

    first: int
    stop: int
    lsn: int
    sizes: Sequence[int]

    def part(self, ids: Sequence[int]) -> tuple[int, Sequence[int]]:
        """LSN of the first content, and sizes, of some consecutive messages of the run."""
        offset, sizes = ids[0] - self.first, self.sizes
        return self.lsn + offset, sizes if len(ids) == len(sizes) else sizes[offset : offset + len(ids)]


class QueueChanges(NamedTuple):
    """Changes of a queue since a checkpoint began to state it.

    `gone`: ids of messages that left it. `changed`: message id -> the message, whose counts changed, and its due time
    (monotonic ns, 0: none).
    """

    gone: set[int]
    changed: dict[int, tuple[Message, int]]


class ConcurrentChanges:
    """Notes changes while `watch` or `departures` needs them; otherwise each call costs a comparison with None."""

    def __init__(self) -> None:
        self._of_queue: QueueChanges | None = None
        self._queue = ("", "")  # virtual host and name of that queue
        self._departed: set[tuple[int, int]] | None = None
        self._departed_below = 0

    def watch(self, queue: Queue | None) -> QueueChanges:
        """Note the later changes of this queue in the returned value; None: stop."""
        changes = QueueChanges(set(), {})
        self._of_queue = None if queue is None else changes
        self._queue = ("", "") if queue is None else (queue.vhost_name, queue.name)
        return changes

    @contextmanager
    def departures(self, below: int) -> Iterator[set[tuple[int, int]]]:
        """Note (queue id, message id) of each message with an id below this one that leaves a durable queue.

        Departures while the journal takes no records are not noted.
        """
        self._departed, self._departed_below = set(), below
        try:
            yield self._departed
        finally:
            self._departed = None

    def note_gone(self, event: Event, queue_id: int, ids: Sequence[int]) -> None:
        """Note that persistent messages left a durable queue."""
        if self._of_queue is not None and self._queue == (event.vhost, event.subject):
            self._of_queue.gone.update(ids)
        if self._departed is not None:
            below = self._departed_below
            if isinstance(ids, range):
                ids = range(ids.start, min(ids.stop, below), ids.step)
            self._departed.update((queue_id, id_) for id_ in ids if id_ < below)

    def note_changed(self, event: DeliveredEvent | RequeuedEvent | ScheduledEvent) -> None:
        """Note that delivery counts or due times of messages changed."""
        if self._of_queue is None or isinstance(event.run, Envelope):
            return
        if self._queue == (event.vhost, event.subject):
            due_ns = event.due_ns if isinstance(event, ScheduledEvent) else repeat(0)
            self._of_queue.changed.update((message.id, (message, due)) for message, due in zip(event.run, due_ns))


class MessageRecorder:
    """Records messages. `persists_deliveries`: delivery counts are written at each delivery. `counts_max`: the largest
    count that is written; -1: there is no limit.
    """

    #: Whether messages that no restart restores are recorded, too.
    takes_transient: ClassVar[bool] = False

    def __init__(
        self, broker: Broker, journal: Journal, objects: ObjectRecorder, *, persists_deliveries: bool, counts_max: int
    ) -> None:
        self._virtual_hosts = broker.virtual_hosts
        self._context = broker.context
        self._journal = journal
        self._objects = objects
        self._queue_ids = objects.queue_ids
        self._counts_max = counts_max
        self.counts_each_delivery = persists_deliveries and counts_max != 0
        self.contents = ContentIndex()
        self._runs: deque[PublishedRun] = deque()  # of the messages that are being published
        self.is_behind = False  # see the engine's `Durability`
        #: Id of a message that `record_late` wrote -> virtual host and name of the queues for which it is counted.
        self.late: dict[int, set[tuple[str, str]]] = {}
        #: Virtual host and name of queues into which messages came back while the journal took no records.
        self.recalled_into: set[tuple[str, str]] = set()
        self.changes = ConcurrentChanges()

    def published(self, event: PublishedEvent) -> None:
        self._runs.clear()
        self._record_published(event)

    def _record_published(self, event: PublishedEvent) -> None:
        queue_ids = [self._objects.queue_id(queue) for queue in event.queues if queue.stores(event.run)]
        if queue_ids:
            self._write_published(event, queue_ids)

    def _write_published(self, event: PublishedEvent, queue_ids: Sequence[int], durable: bool = True) -> None:
        envelope = event.run
        contents = envelope.framing.columns(event.contents)
        lsn = self._journal.messages.published(
            event.messages,
            self._objects.exchange_id(event.vhost, envelope.exchange),
            envelope.routing_key.encode(),
            contents,
            queue_ids=queue_ids,
            expires_ms=self._expires_ms(envelope),
            cause_id=envelope.cause_id,
            priority=envelope.summary.priority or 0,
            durable=durable,
        )
        self._note_published(event.messages, lsn, contents.body_sizes, durable)

    def _note_published(self, ids: Sequence[int], lsn: int, sizes: Sequence[int], durable: bool) -> None:
        self._runs.append(PublishedRun(ids[0], ids[0] + len(ids), lsn, sizes))
        if durable:
            self.contents.add(ids[0], len(ids), lsn)
            self._context.turn.records += 1

    def published_while_low(self, event: PublishedEvent) -> None:
        """Record only publishes of the broker itself (dead letters, ...), as queues refuse those of clients."""
        self._runs.clear()
        if event.cause is not None:
            self.published(event)

    def recall(self, vhost: str, queue: str, id_: int, location: int, size: int) -> None:
        """See the engine's `Durability`."""
        lsn = self.contents.recall(id_, location)
        if id_ in self.late:  # the event that follows counts it for this queue
            self.late[id_].add((vhost, queue))
        self._runs.clear()
        self._runs.append(PublishedRun(id_, id_ + 1, lsn, (size,)))

    def published_mixed(self, event: MixedPublishedEvent) -> None:
        """Record a mixed run in one call if all its messages are stored and framed alike, else run by run."""
        self._runs.clear()
        distinct = set(event.envelopes)
        stored = [one for one in distinct if event.queue.stores(one)]
        if not (stored or self.takes_transient):
            return
        framing = event.envelopes[0].framing
        if len(stored) < len(distinct) or self.takes_transient or any(one.framing is not framing for one in distinct):
            for stretch in event.stretches():
                self._record_published(stretch)
            return
        exchange_id = self._objects.exchange_id
        routes = {
            one: (exchange_id(event.vhost, one.exchange), one.routing_key.encode(), one.summary.priority or 0)
            for one in distinct
        }
        contents = framing.columns(event.contents)
        lsn = self._journal.messages.published_mixed(
            event.messages,
            list(map(routes.__getitem__, event.envelopes)),
            contents,
            queue_ids=(self._objects.queue_id(event.queue),),
        )
        self._note_published(event.messages, lsn, contents.body_sizes, durable=True)

    def enqueued(self, event: EnqueuedEvent) -> None:
        run = self._run_of(event.messages[0])
        if run is None or not (self.takes_transient or is_persistent(event)):
            return  # transient, or its content is not recorded
        queue_id = self._queue_ids.get((event.vhost, event.subject))
        if queue_id is not None:
            self._write_enqueued(event, queue_id, run)
        elif self.is_behind:  # the checkpoint has not stated the queue yet
            self.note_recalled(event)

    def _run_of(self, id_: int) -> PublishedRun | None:
        """The run in which a message was published. Drops the runs before it."""
        runs = self._runs
        while len(runs) > 1 and id_ >= runs[0].stop:
            runs.popleft()
        return runs[0] if runs and runs[0].first <= id_ < runs[0].stop else None

    def _write_enqueued(self, event: EnqueuedEvent, queue_id: int, run: PublishedRun, durable: bool = True) -> None:
        expires_ms = 0
        if isinstance(event.run, Envelope):
            envelope = event.run
        else:
            envelope = event.run[0].envelope
            expires_ms = self.wall_ms(event.run[0].expires_ns)
        self._journal.messages.enqueued(
            queue_id,
            event.messages,
            *run.part(event.messages),
            expires_ms=expires_ms,
            priorities=envelope.summary.priority or 0,
            durable=durable,
            owner=event.owner,
        )

    def transferred(self, event: TransferredEvent) -> None:
        """Record that messages belong to another site. Not durable: a restart may give them to the former site."""
        queue_id = self._queue_ids.get((event.vhost, event.subject))
        if queue_id is not None:
            self._journal.messages.happened(
                event.kind,
                queue_id,
                event.messages,
                durable=False,
                uncounted=event.number,
                reason=self._transfer_text(event),
            )

    def _transfer_text(self, event: TransferredEvent) -> str:
        """The text of a record of `transferred`; empty unless all events are recorded."""
        return ""

    def enqueued_mixed(self, event: MixedEnqueuedEvent) -> None:
        if not self._runs:
            return
        run = self._run_of(event.messages[0])
        if run is None or run.stop <= event.messages[-1] or self.takes_transient:
            for stretch in event.stretches():
                self.enqueued(stretch)
            return
        queue_id = self._queue_ids.get((event.vhost, event.subject))
        if queue_id is not None:
            priorities = [one.summary.priority or 0 for one in event.envelopes]
            self._journal.messages.enqueued(queue_id, event.messages, *run.part(event.messages), priorities=priorities)

    def settled(self, event: AckedEvent | LeftEvent) -> None:
        queue_id, ids = self.departures(event)
        if not ids:
            return
        if queue_id is None:  # no record has stated that they are in the queue
            self._journal.usage.settled(self.recorded((event.vhost, event.subject), ids))
        else:
            self._write_settled(event, queue_id, ids, reason_of(event))

    def departures(self, event: AckedEvent | LeftEvent) -> tuple[int | None, Sequence[int]]:
        """The journal's id of the queue (None: it has none), and the ids of the counted messages that leave it."""
        key = event.vhost, event.subject
        queue_id = self._durable_id(key)
        if not is_gone(event) or (queue_id is None and key not in self.recalled_into):
            return None, ()  # they stay, or were never in it, or are not counted
        return queue_id, persistent_ids(event)

    def _durable_id(self, key: tuple[str, str]) -> int | None:
        """The journal's id of a durable queue; None: it has none yet."""
        return self._queue_ids.get(key)

    def note_recalled(self, event: EnqueuedEvent) -> None:
        """Count messages that came back from the log while the journal takes no records, or has none of the queue.

        The next checkpoint states them with their old contents, whose segments must stay for them.
        """
        run = self._run_of(event.messages[0])
        queue = self._virtual_hosts.find_queue(event.vhost, event.subject)
        if run is not None and queue is not None and queue.durable and is_persistent(event):
            self._journal.usage.enqueued(event.messages, run.part(event.messages)[0])
            self.recalled_into.add((event.vhost, event.subject))

    def _write_settled(
        self,
        event: AckedEvent | LeftEvent,
        queue_id: int,
        ids: Sequence[int],
        reason: str,
        consumer_id: int = 0,
        conn_id: int = 0,
    ) -> None:
        self.changes.note_gone(event, queue_id, ids)
        if self.is_behind:  # messages that arrived while the journal took no records need no record of leaving
            ids = self.recorded((event.vhost, event.subject), ids)
            if not ids:
                return
        self._context.turn.records += 1
        more: dict[str, Any] = {"reason": reason, "consumer_id": consumer_id, "conn_id": conn_id}
        if len(ids) > 1 and (event.kind is EventKind.DELETED or is_contiguous(ids)):
            self._journal.messages.settled_range(event.kind, queue_id, ids, **more)
        elif len(ids) > 1 and reason in REASON_CODES and are_consecutive(ids):
            self._journal.messages.settled_range(event.kind, queue_id, range(ids[0], ids[-1] + 1), **more)
        else:
            self._journal.messages.happened(event.kind, queue_id, ids, **more)
        if event.kind in FROM_THE_HEAD:
            queue = self._virtual_hosts.find_queue(event.vhost, event.subject)
            if queue is not None and queue.first_offset is not None:
                self._objects.state_object(queue, restated=True)

    def recorded(self, queue: tuple[str, str], ids: Sequence[int]) -> Sequence[int]:
        """The ids of the messages that a queue has according to records. A late one may be recorded in other queues.

        `queue`: its virtual host and its name.
        """
        late = self.late
        return [id_ for id_ in ids if self.contents.lsn_of(id_) is not None and (id_ not in late or queue in late[id_])]

    def requeued(self, event: RequeuedEvent) -> None:
        """Write a count if it has changed: the requeue counts an attempt, or the delivery's count was written."""
        if event.counted or (self.counts_each_delivery and self.restores_delivery_counts(event)):
            self._returned(event, None)

    def scheduled(self, event: ScheduledEvent) -> None:
        self._returned(event, event.due_ns)

    def _returned(self, event: RequeuedEvent | ScheduledEvent, due_ns: Sequence[int] | None) -> None:
        queue_id = self._queue_ids.get((event.vhost, event.subject))
        if queue_id is None:
            return
        self.changes.note_changed(event)
        states: list[tuple[int, int, int, int]] = []
        for index, message in enumerate(event.run):
            due_ms = 0 if due_ns is None else self.wall_ms(due_ns[index])
            if self._has_state(message):
                states.append((message.deliveries, message.uncounted, due_ms, message.id))
            elif due_ms and message.envelope.summary.persistent:  # the recorded counts stay as they are
                states.append((0, 0, due_ms, message.id))
        for (deliveries, uncounted, due_ms), ids in alike(states):
            self._journal.messages.happened(
                event.kind, queue_id, ids, deliveries=deliveries, uncounted=uncounted, due_ms=due_ms
            )

    def _has_state(self, message: Message) -> bool:
        """Whether the message's delivery count is recorded, and restored. Due times always are."""
        count_max = self._counts_max
        is_counted = count_max < 0 or message.deliveries - message.uncounted <= count_max
        return is_counted and message.envelope.summary.persistent

    def delivered(self, event: DeliveredEvent) -> None:
        """Write counts (persist-delivery-count-before-delivery); the deliveries are sent once these are safe."""
        queue_id = self._queue_ids.get((event.vhost, event.subject))
        if queue_id is None or not self.restores_delivery_counts(event):
            return
        if isinstance(event.run, Envelope):
            if event.run.summary.persistent:
                self._journal.messages.happened(event.kind, queue_id, event.messages, deliveries=1, flags=COUNTED)
                self.send_after(event)
            return
        self.changes.note_changed(event)
        states = [(one.deliveries, one.uncounted, one.id) for one in event.run if self._has_state(one)]
        for (deliveries, uncounted), ids in alike(states):
            self._journal.messages.happened(
                event.kind, queue_id, ids, deliveries=deliveries, uncounted=uncounted, flags=COUNTED
            )
        if states:
            self.send_after(event)

    def restores_delivery_counts(self, event: DeliveredEvent | RequeuedEvent) -> bool:
        """Whether delivery counts of the queue's messages survive a restart."""
        queue = self._virtual_hosts.find_queue(event.vhost, event.subject)
        return queue is not None and queue.kind.restores_delivery_counts

    def send_after(self, event: DeliveredEvent) -> None:
        """Send nothing to the client before the records so far are on the disk."""
        turns = self._journal.turns
        turns.is_awaited = True
        event.session.client.send_after(turns.next_lsn, event.session.number)

    def wall_ms(self, monotonic_ns: int) -> int:
        """Wall time in ms of a time of the monotonic clock, for a record; 0: none."""
        if not monotonic_ns:
            return 0
        clock = self._context.clock
        return min(TIME_MAX, clock.wall_ms() + -(-(monotonic_ns - clock.monotonic_ns()) // MS))

    def _expires_ms(self, envelope: Envelope) -> int:
        """When a message expires by its own TTL, in wall ms; 0: never."""
        wait_ms = envelope.expiration_ms
        return 0 if wait_ms is None else self._context.clock.wall_ms() + bounded_ms(wait_ms)

    def message_of(self, message: Message, due_ns: int) -> RecoveredMessage | None:
        """The message as recovery would restore it; None: it is not in the journal."""
        lsn = self.contents.lsn_of(message.id)
        if lsn is None:
            return None
        is_out = message.holder is not None and not self.counts_each_delivery
        state = MessageState(
            message.deliveries - is_out - message.uncounted,  # a delivery counts once it was requeued
            0,
            self.wall_ms(due_ns),
            message.envelope.summary.priority or 0,
        )
        size = message.body_octets
        return RecoveredMessage(message.id, lsn, size, self.wall_ms(message.expires_ns), state)

    def record_late(self, queue: Queue, message: Message) -> None:
        """Record a message, such as a dead letter, that entered a durable queue while the journal took no records."""
        id_, envelope = message.id, message.envelope
        lsn = self.contents.lsn_of(id_)
        queue_id, key = self._objects.queue_id(queue), (queue.vhost_name, queue.name)
        if (lsn is not None and id_ not in self.late) or key in self.late.get(id_, ()):
            return
        if lsn is None:
            lsn = self._journal.messages.published(
                (id_,),
                self._objects.exchange_id(queue.vhost_name, envelope.exchange),
                envelope.routing_key.encode(),
                envelope.framing.columns((message.content,)),
                queue_ids=(queue_id,),
                expires_ms=self._expires_ms(envelope),
                cause_id=envelope.cause_id,
                priority=envelope.summary.priority or 0,
            )
            self.contents.move(id_, lsn)
        self.late.setdefault(id_, set()).add(key)
        size = envelope.framing.body_size(message.content)
        self._journal.messages.enqueued(
            queue_id,
            (id_,),
            lsn,
            (size,),
            expires_ms=self.wall_ms(message.expires_ns),
            priorities=envelope.summary.priority or 0,
        )


def alike(states: Iterable[tuple[Any, ...]]) -> Iterator[tuple[tuple[Any, ...], list[int]]]:
    """(common fields, ids) of neighbors that differ only in their last field, the id."""
    for like, run in groupby(states, key=lambda state: state[:-1]):
        yield like, [state[-1] for state in run]


def is_persistent(event: EnqueuedEvent) -> bool:
    """Whether the event's messages, which are alike, are persistent."""
    envelope = event.run if isinstance(event.run, Envelope) else event.run[0].envelope
    return envelope.summary.persistent


def is_gone(event: AckedEvent | LeftEvent) -> bool:
    """Whether the messages left the queue: it did not keep them after the ack, nor refuse them on arrival."""
    return not event.kept if isinstance(event, AckedEvent) else event.came_in


def reason_of(event: AckedEvent | LeftEvent) -> str:
    """Reason why messages left their queue; empty: the kind of the event is the reason."""
    return event.reason or "" if isinstance(event, LeftEvent) else ""


def persistent_ids(event: AckedEvent | LeftEvent) -> Sequence[int]:
    """Ids of the event's persistent messages, which are in the journal if their queue is durable."""
    if isinstance(event.run, Envelope):
        return event.messages if event.run.summary.persistent else ()
    if all(envelope.summary.persistent for envelope in set(map(_ENVELOPE, event.run))):
        return event.messages
    return [message.id for message in event.run if message.envelope.summary.persistent]


def is_contiguous(ids: Sequence[int]) -> bool:
    """Whether these are a range without gaps. Consumers that share a run may have ranges with steps."""
    return isinstance(ids, range) and ids.step == 1


def are_consecutive(ids: Sequence[int]) -> bool:
    """Whether these distinct ids fill the range from the first to the last. Those between may be in any order."""
    return ids[-1] - ids[0] + 1 == len(ids) and min(ids) == ids[0] and max(ids) == ids[-1]
