"""The recorder of `scope = "all"`: records all events, for audits, not only those that recovery restores.

The additional events are those of transient messages, deliveries, requeues that count no attempt, scheduled messages
that become due, consumers, connections, transient queues and exchanges. Their records lack the flag durable, so
recovery ignores them, and no confirm waits for them.
Source: ruling 22; interfaces page, [journal].
"""

import json
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

from ...engine import (
    REPLY_PREFIX,
    AckedEvent,
    BlockedEvent,
    Broker,
    Client,
    ConnectionEvent,
    Consumer,
    ConsumerEvent,
    DeliveredEvent,
    DueEvent,
    EnqueuedEvent,
    Envelope,
    Event,
    EventKind,
    Exchange,
    LeaseEndedEvent,
    LeftEvent,
    Message,
    PublishedEvent,
    Queue,
    RequeuedEvent,
    ScheduledEvent,
    ServiceExchange,
    SettingsEvent,
    TransferredEvent,
    holder_of,
)
from ..appending.journal import Journal
from ..format.heap import encode_text
from ..format.record import CODE_OF, CONNECTION, CONSUMER, COUNTED, QUEUE, REDELIVERED, SETTINGS_CHANGED, Record
from .message_recorder import (
    MessageRecorder,
    PublishedRun,
    alike,
    is_contiguous,
    is_gone,
    is_persistent,
    persistent_ids,
    reason_of,
)
from .object_recorder import ObjectRecorder
from .recorder import Recorder


class FullObjectRecorder(ObjectRecorder):
    """Also records transient objects, connections and consumers. `durable_ids`: ids of durable queues."""

    takes_transient = True

    def __init__(self, broker: Broker, journal: Journal) -> None:
        super().__init__(broker, journal)
        self.durable_ids: set[int] = set()
        #: Virtual host and name of a client -> its id, and the ids of its consumers by tag.
        self._clients: dict[tuple[str, str], tuple[int, dict[str, int]]] = {}

    def queue_id(self, queue: Queue) -> int:
        id_ = super().queue_id(queue)
        if queue.durable:
            self.durable_ids.add(id_)
        return id_

    def id_of_queue(self, event: Event) -> int:
        key = (event.vhost, event.subject)
        found = self.queue_ids.get(key)
        if found is None:
            found = self.queue_ids[key] = self._journal.objects.define(QUEUE, self.vhost_id(event.vhost), event.subject)
        return found

    def holder_ids(self, vhost: str, client: Client | None, tag: str | None) -> tuple[int, int]:
        """Ids of a consumer by its tag (0: a basic.get), and of its connection (0: none)."""
        if client is None:
            return 0, 0
        client_id, consumers = self._client(vhost, client.name)
        if not tag:
            return 0, client_id
        found = consumers.get(tag)
        if found is None:
            found = consumers[tag] = self._journal.objects.define_another(CONSUMER, self.vhost_id(vhost), tag)
        return found, client_id

    def _client(self, vhost: str, name: str) -> tuple[int, dict[str, int]]:
        key = (vhost, name)
        found = self._clients.get(key)
        if found is None:
            id_ = self._journal.objects.define_another(CONNECTION, self.vhost_id(vhost), name)
            found = self._clients[key] = (id_, {})
        return found

    def connection(self, event: ConnectionEvent) -> None:
        key = (event.vhost, event.subject)
        if event.kind is EventKind.CONNECTION_OPENED:
            id_ = self._journal.objects.define_another(CONNECTION, self.vhost_id(event.vhost), event.subject)
            self._clients[key] = (id_, {})
        id_, consumers = self._clients.get(key, (0, {}))
        self._journal.turns.append(Record(CODE_OF[event.kind], conn_id=id_, heap=encode_text(event.subject)))
        if event.kind is EventKind.CONNECTION_CLOSED:
            self._clients.pop(key, None)
            for gone in (id_, *consumers.values()):
                self._journal.objects.forget(gone)

    def consumer(self, event: ConsumerEvent) -> None:
        queue_id = self.id_of_queue(event)
        consumer_id, conn_id = self.holder_ids(event.vhost, event.client, event.tag)
        self._journal.turns.append(
            Record(
                CODE_OF[event.kind],
                queue_id=queue_id,
                consumer_id=consumer_id,
                conn_id=conn_id,
                heap=encode_text(event.tag),
            )
        )

    def blocked(self, event: BlockedEvent) -> None:
        id_, _ = self._client(event.vhost, event.subject)
        text = json.dumps({"connection": event.subject, **event.detail})
        self._journal.turns.append(Record(CODE_OF[event.kind], conn_id=id_, heap=encode_text(text)))

    def settings_changed(self, event: SettingsEvent) -> None:
        self._journal.turns.append(Record(SETTINGS_CHANGED, arg=self.vhost_id(event.vhost)))

    def _undeclared(self, subject: Queue | Exchange, id_: int | None, object_type: int) -> None:
        super()._undeclared(subject, id_, object_type)
        if id_ is not None:
            self.durable_ids.discard(id_)


class FullMessageRecorder(MessageRecorder):
    """Writes the records of `MessageRecorder` in the same order, and more of them, with more detail."""

    takes_transient = True

    def __init__(self, broker: Broker, journal: Journal, objects: ObjectRecorder, **options: Any) -> None:
        super().__init__(broker, journal, objects, **options)
        assert isinstance(objects, FullObjectRecorder)
        self._objects: FullObjectRecorder = objects

    def _record_published(self, event: PublishedEvent) -> None:
        envelope, queues = event.run, event.queues
        durable = any(queue.stores(envelope) for queue in queues)
        self._write_published(event, [self._objects.queue_id(queue) for queue in queues], durable)
        if not queues and not self._is_service(event.vhost, envelope.exchange):
            self._journal.messages.happened(
                EventKind.UNROUTABLE,
                0,
                event.messages,
                durable=False,
                target_id=self._objects.exchange_id(event.vhost, envelope.exchange),
            )

    def _is_service(self, vhost: str, exchange: str) -> bool:
        found = self._virtual_hosts.get(vhost)
        return found is not None and isinstance(found.exchanges.get(exchange), ServiceExchange)

    def _write_enqueued(self, event: EnqueuedEvent, queue_id: int, run: PublishedRun, durable: bool = True) -> None:
        super()._write_enqueued(event, queue_id, run, queue_id in self._objects.durable_ids and is_persistent(event))

    def _durable_id(self, key: tuple[str, str]) -> int | None:
        queue_id = super()._durable_id(key)
        return queue_id if queue_id in self._objects.durable_ids else None

    def settled(self, event: AckedEvent | LeftEvent) -> None:
        """Write durable messages as `MessageRecorder` does, the others for audits only."""
        if event.messages:
            self._write_all_settled(event, self._objects.id_of_queue(event))
        if event.kind is EventKind.DELETED and event.subject.startswith(REPLY_PREFIX):
            queue_id = self._queue_ids.pop((event.vhost, event.subject), None)
            if queue_id is not None:
                self._journal.objects.forget(queue_id)  # no event reports that it is undeclared

    def _write_all_settled(self, event: AckedEvent | LeftEvent, queue_id: int) -> None:
        reason, kind = reason_of(event), event.kind
        if isinstance(event, LeftEvent) and not event.came_in:
            kind = EventKind.DROPPED  # also when it is dead-lettered: it was never in this queue
        is_kept = isinstance(event, AckedEvent) and event.kept
        was_in_queue = is_gone(event)
        is_durable = was_in_queue and queue_id in self._objects.durable_ids
        key = event.vhost, event.subject
        if was_in_queue and not is_durable and key in self.recalled_into:
            self._journal.usage.settled(self.recorded(key, persistent_ids(event)))
        for part, consumer_id, conn_id in self._by_holder(event):
            durable_ids = persistent_ids(part) if is_durable else ()
            if durable_ids:
                self._write_settled(part, queue_id, durable_ids, reason, consumer_id, conn_id)
            if len(durable_ids) == len(part.messages):
                continue
            known = set(durable_ids)
            ids = [id_ for id_ in part.messages if id_ not in known] if known else part.messages
            more: dict[str, Any] = {"reason": reason, "consumer_id": consumer_id, "conn_id": conn_id, "durable": False}
            if len(ids) > 1 and was_in_queue and (kind is EventKind.DELETED or is_contiguous(ids)):
                self._journal.messages.settled_range(kind, queue_id, ids, **more)
            else:
                self._journal.messages.happened(kind, queue_id, ids, kept=is_kept, **more)

    def _by_holder(self, event: AckedEvent | LeftEvent) -> Iterator[tuple[AckedEvent | LeftEvent, int, int]]:
        """(the event for some of its messages, ids of the consumer and the connection to which they were delivered)."""
        if isinstance(event.run, Envelope):
            if isinstance(event, AckedEvent):
                yield event, *self._objects.holder_ids(event.vhost, event.client, event.consumer)
            else:
                yield event, 0, 0
            return
        for holder, run in groupby(event.run, key=holder_of):
            messages = list(run)
            part = replace(event, messages=[one.id for one in messages], run=messages)
            client = None if holder is None else holder.session.client
            tag = holder.tag if isinstance(holder, Consumer) else None
            yield part, *self._objects.holder_ids(event.vhost, client, tag)

    def delivered(self, event: DeliveredEvent) -> None:
        queue_id = self._objects.id_of_queue(event)
        consumer_id, conn_id = self._objects.holder_ids(event.vhost, event.session.client, event.consumer)
        can_count = (
            self.counts_each_delivery and queue_id in self._objects.durable_ids and self.restores_delivery_counts(event)
        )
        has_counted = False
        if isinstance(event.run, Envelope):
            counted = can_count and event.run.summary.persistent
            runs: Iterable[tuple[tuple[int, int, bool, bool], Sequence[int]]] = [
                ((1, 0, counted, False), event.messages)
            ]
        else:
            runs = alike(
                (one.deliveries, one.uncounted, can_count and self._has_state(one), event.is_redelivery(one), one.id)
                for one in event.run
            )
        for (deliveries, uncounted, counted, redelivered), ids in runs:
            has_counted |= counted
            self._journal.messages.happened(
                event.kind,
                queue_id,
                ids,
                durable=counted,
                deliveries=deliveries,
                uncounted=uncounted,
                flags=(COUNTED if counted else 0) | (REDELIVERED if redelivered else 0),
                consumer_id=consumer_id,
                conn_id=conn_id,
            )
        if has_counted:
            self.changes.note_changed(event)
            self.send_after(event)

    def requeued(self, event: RequeuedEvent) -> None:
        is_state = event.counted or (self.counts_each_delivery and self.restores_delivery_counts(event))
        self._write_returned(event, None, is_state=is_state)

    def _returned(self, event: RequeuedEvent | ScheduledEvent, due_ns: Sequence[int] | None) -> None:
        self._write_returned(event, due_ns, is_state=True)

    def _write_returned(
        self, event: RequeuedEvent | ScheduledEvent, due_ns: Sequence[int] | None, *, is_state: bool
    ) -> None:
        """`is_state`: recovery needs the record if it restores the message."""
        queue_id = self._objects.id_of_queue(event)
        can_be_state = is_state and queue_id in self._objects.durable_ids
        if can_be_state:
            self.changes.note_changed(event)
        due_ms = [0 if due_ns is None else self.wall_ms(due_ns[index]) for index in range(len(event.messages))]
        runs = alike(
            (one.deliveries, one.uncounted, can_be_state and self._is_restored(one, due), due, one.id)
            for one, due in zip(event.run, due_ms)
        )
        for (deliveries, uncounted, durable, due), ids in runs:
            self._journal.messages.happened(
                event.kind,
                queue_id,
                ids,
                durable=durable,
                deliveries=deliveries,
                uncounted=uncounted,
                due_ms=due,
                reason=event.why,
            )

    def _is_restored(self, message: Message, due_ms: int) -> bool:
        """Whether recovery needs this state of a message."""
        return self._has_state(message) or (due_ms > 0 and message.envelope.summary.persistent)

    def _transfer_text(self, event: TransferredEvent) -> str:
        return json.dumps(event.detail)

    def lease_ended(self, event: LeaseEndedEvent) -> None:
        """For audits only: neither leases nor their delivery counts survive a restart (queues page C.2)."""
        queue_id = self._objects.id_of_queue(event)
        for (deliveries,), ids in alike((one.deliveries, one.id) for one in event.run):
            self._journal.messages.happened(
                event.kind, queue_id, ids, durable=False, deliveries=deliveries, reason=event.why
            )

    def due(self, event: DueEvent) -> None:
        self._journal.messages.happened(event.kind, self._objects.id_of_queue(event), event.messages, durable=False)


class FullRecorder(Recorder):
    """Records all events."""

    object_recorder = FullObjectRecorder
    message_recorder = FullMessageRecorder

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        objects, messages = self.objects, self.messages
        assert isinstance(objects, FullObjectRecorder) and isinstance(messages, FullMessageRecorder)
        self._on(DeliveredEvent, messages.delivered)
        self._on(DueEvent, messages.due)
        self._on(LeaseEndedEvent, messages.lease_ended)
        self._on(ConnectionEvent, objects.connection)
        self._on(ConsumerEvent, objects.consumer)
        self._on(BlockedEvent, objects.blocked)
        self._on(SettingsEvent, objects.settings_changed)

    def begin(self, objects: Container[int]) -> None:
        """Also record the start of a broker: earlier transient messages are gone."""
        super().begin(objects)
        text = json.dumps({"journal": {"scope": "all"}})
        self._journal.turns.append(Record(SETTINGS_CHANGED, heap=encode_text(text)))
