"""The recorder of `scope = "all"`: beside what recovery restores, everything else that happened, for audits.

Transient messages, deliveries, returns that count for nothing, what comes due, consumers, connections, transient queues
and exchanges. Such records lack the flag durable, so recovery passes over them, and no confirm waits for them.
Source: ruling 22; interfaces page, [journal].
"""

import json
from collections.abc import Container, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

from ...engine import REPLY_PREFIX, Envelope, Event, EventKind, Exchange, Message, Queue, ServiceExchange
from ..format.heap import encode_text
from ..format.record import CODE_OF, CONNECTION, CONSUMER, COUNTED, QUEUE, REDELIVERED, SETTINGS_CHANGED, Record
from .message_recorder import is_persistent, persistent_ids
from .recorder import Recorder


class FullRecorder(Recorder):
    """A listener like `Recorder`: it writes the same records in the same order, with more detail."""

    takes_transient = True

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._durable_ids: set[int] = set()  # of queues
        #: Virtual host and name of a client -> its id, and the ids of its consumers by tag.
        self._clients: dict[tuple[str, str], tuple[int, dict[str, int]]] = {}
        self._handlers |= {
            EventKind.DELIVERED: self._delivered,
            EventKind.DUE: self._due,
            EventKind.CONNECTION_OPENED: self._connection,
            EventKind.CONNECTION_CLOSED: self._connection,
            EventKind.CONSUMER_ADDED: self._consumer,
            EventKind.CONSUMER_REMOVED: self._consumer,
            EventKind.SETTINGS_CHANGED: self._settings_changed,
        }

    def begin(self, objects: Container[int]) -> None:
        """Also records that a broker starts here: earlier transient messages are gone."""
        super().begin(objects)
        text = json.dumps({"journal": {"scope": "all"}})
        self._journal.turns.append([Record(SETTINGS_CHANGED, heap=encode_text(text))])

    # -- messages -----------------------------------------------------------------------------------------------------

    def _queue_id(self, queue: Queue) -> int:
        id_ = super()._queue_id(queue)
        if queue.durable:
            self._durable_ids.add(id_)
        return id_

    def _id_of_queue(self, event: Event) -> int:
        key = (event.vhost, event.subject)
        found = self._queue_ids.get(key)
        if found is None:
            found = self._queue_ids[key] = self._journal.objects.define(
                QUEUE, self._vhost_id(event.vhost), event.subject
            )
        return found

    def _published(self, event: Event) -> None:
        envelope, detail = event.of, event.detail
        assert isinstance(envelope, Envelope) and detail is not None
        self._run_count = 0
        queues: Sequence[Queue] = detail["queues"]  # type: ignore[assignment]
        durable = any(queue.stores(envelope) for queue in queues)
        self._write_published(event, envelope, detail, [self._queue_id(queue) for queue in queues], durable)
        if not queues and not self._is_service(event.vhost, envelope.exchange):
            self._journal.messages.happened(
                EventKind.UNROUTABLE, 0, event.messages, durable=False, target_id=self._address_id(event, envelope)
            )

    def _address_id(self, event: Event, envelope: Envelope) -> int:
        return self._exchange_id(event.vhost, envelope.exchange)

    def _is_service(self, vhost: str, exchange: str) -> bool:
        found = self._broker.virtual_hosts.get(vhost)  # None: it is being taken down
        return found is not None and isinstance(found.exchanges.get(exchange), ServiceExchange)

    def _write_enqueued(self, event: Event, queue_id: int, offset: int, durable: bool = True) -> None:
        super()._write_enqueued(event, queue_id, offset, queue_id in self._durable_ids and is_persistent(event))

    def _settled(self, event: Event) -> None:
        """What is durable as `Recorder` writes it; the rest as history only."""
        if event.messages:  # not a duplicate that never had an id
            self._write_all_settled(event, event.detail or {}, self._id_of_queue(event))
        if event.kind is EventKind.DELETED and event.subject.startswith(REPLY_PREFIX):
            queue_id = self._queue_ids.pop((event.vhost, event.subject), None)
            if queue_id is not None:
                self._journal.objects.forget(queue_id)  # no event reports that it is undeclared

    def _write_all_settled(self, event: Event, detail: dict[str, Any], queue_id: int) -> None:
        reason = str(detail.get("reason", ""))
        kind = event.kind
        if detail.get("came_in") is False:
            kind = EventKind.DROPPED  # also when it is dead-lettered: it was never in this queue
        has_been = detail.get("came_in", True) and not detail.get("kept", False)
        is_durable = has_been and queue_id in self._durable_ids
        for part, consumer_id, conn_id in self._by_holder(event):
            durable_ids = persistent_ids(part) if is_durable else ()
            if durable_ids:
                self._write_settled(part, queue_id, durable_ids, reason, consumer_id, conn_id)
            if len(durable_ids) == len(part.messages):
                continue
            known = set(durable_ids)
            ids = [id_ for id_ in part.messages if id_ not in known] if known else part.messages
            more: dict[str, Any] = {"reason": reason, "consumer_id": consumer_id, "conn_id": conn_id, "durable": False}
            if len(ids) > 1 and has_been and (kind is EventKind.DELETED or isinstance(ids, range)):
                self._journal.messages.settled_range(kind, queue_id, ids, **more)
            else:
                self._journal.messages.happened(kind, queue_id, ids, kept=bool(detail.get("kept")), **more)

    def _by_holder(self, event: Event) -> Iterator[tuple[Event, int, int]]:
        """(the event for some of its messages, ids of the consumer and the connection that held them)."""
        if event.of is None or isinstance(event.of, Envelope):
            yield event, *self._told(event)
            return
        for holder, run in groupby(event.of, key=_holder_of):
            messages = list(run)
            part = Event(event.kind, event.vhost, event.subject, [one.id for one in messages], event.detail, messages)
            if holder is None:
                yield part, 0, 0
            else:
                client = holder.session.client
                yield part, self._consumer_id(client, getattr(holder, "tag", "")), self._client_id(client)

    def _delivered(self, event: Event) -> None:
        queue_id = self._id_of_queue(event)
        consumer_id, conn_id = self._told(event)
        can_count = self._persists_deliveries and queue_id in self._durable_ids
        if isinstance(event.of, Envelope):
            counted = can_count and event.of.facts.persistent
            runs: Iterable[tuple[tuple[int, int, bool], Sequence[int]]] = [((1, 0, counted), event.messages)]
        else:
            runs = _runs(
                (one.deliveries, one.uncounted, can_count and self._survives(one), one.id) for one in event.of or ()
            )
        for (deliveries, uncounted, counted), ids in runs:
            self._journal.messages.happened(
                event.kind,
                queue_id,
                ids,
                durable=counted,
                deliveries=deliveries,
                uncounted=uncounted,
                flags=(COUNTED if counted else 0) | (REDELIVERED if deliveries > 1 else 0),
                consumer_id=consumer_id,
                conn_id=conn_id,
            )

    def _requeued(self, event: Event) -> None:
        assert event.detail is not None
        self._write_returned(event, None, is_state=bool(event.detail["counted"]))

    def _returned(self, event: Event, due_ns: Sequence[int] | None) -> None:
        self._write_returned(event, due_ns, is_state=True)

    def _write_returned(self, event: Event, due_ns: Sequence[int] | None, *, is_state: bool) -> None:
        """`is_state`: recovery needs it, of messages that it restores."""
        assert event.detail is not None and not isinstance(event.of, Envelope)
        queue_id = self._id_of_queue(event)
        can_be_state = is_state and queue_id in self._durable_ids
        due_ms = [0 if due_ns is None else self.wall_ms(due_ns[index]) for index in range(len(event.messages))]
        runs = _runs(
            (one.deliveries, one.uncounted, can_be_state and self._survives(one), due, one.id)
            for one, due in zip(event.of or (), due_ms)
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
                reason=str(event.detail["why"]),
            )

    def _survives(self, message: Message) -> bool:
        return message.envelope.facts.persistent and self._is_counted_so_far(message)

    def _due(self, event: Event) -> None:
        self._journal.messages.happened(event.kind, self._id_of_queue(event), event.messages, durable=False)

    # -- connections, consumers, topology -----------------------------------------------------------------------------

    def _told(self, event: Event) -> tuple[int, int]:
        """Ids of the consumer and the connection that the event names; 0: none."""
        detail = event.detail or {}
        client = detail.get("client")
        if client is None:
            return 0, 0
        return self._consumer_id(client, str(detail.get("consumer", ""))), self._client_id(client)

    def _known(self, client: Any) -> tuple[int, dict[str, int]]:
        key = (client.vhost.name, client.name)
        found = self._clients.get(key)
        if found is None:
            id_ = self._journal.objects.define_another(CONNECTION, self._vhost_id(key[0]), key[1])
            found = self._clients[key] = (id_, {})
        return found

    def _client_id(self, client: Any) -> int:
        return self._known(client)[0]

    def _consumer_id(self, client: Any, tag: str) -> int:
        if not tag:
            return 0
        consumers = self._known(client)[1]
        found = consumers.get(tag)
        if found is None:
            found = consumers[tag] = self._journal.objects.define_another(
                CONSUMER, self._vhost_id(client.vhost.name), tag
            )
        return found

    def _connection(self, event: Event) -> None:
        key = (event.vhost, event.subject)
        if event.kind is EventKind.CONNECTION_OPENED:
            id_ = self._journal.objects.define_another(CONNECTION, self._vhost_id(event.vhost), event.subject)
            self._clients[key] = (id_, {})
        id_, consumers = self._clients.get(key, (0, {}))
        self._journal.turns.append([Record(CODE_OF[event.kind], conn_id=id_, heap=encode_text(event.subject))])
        if event.kind is EventKind.CONNECTION_CLOSED:
            self._clients.pop(key, None)
            for gone in (id_, *consumers.values()):
                self._journal.objects.forget(gone)

    def _consumer(self, event: Event) -> None:
        assert event.detail is not None
        client, tag = event.detail["client"], str(event.detail["tag"])
        self._journal.turns.append(
            [
                Record(
                    CODE_OF[event.kind],
                    queue_id=self._id_of_queue(event),
                    consumer_id=self._consumer_id(client, tag),
                    conn_id=self._client_id(client),
                    heap=encode_text(tag),
                )
            ]
        )

    def _settings_changed(self, event: Event) -> None:
        self._journal.turns.append([Record(SETTINGS_CHANGED, arg=self._vhost_id(event.vhost))])

    # -- topology -----------------------------------------------------------------------------------------------------

    def _declared(self, event: Event) -> None:
        super()._declared(event)
        assert event.detail is not None
        subject = event.detail.get(str(event.detail["what"]))
        if isinstance(subject, Queue | Exchange) and not subject.durable:
            self._write_object(subject, False)

    def _undeclared(self, event: Event) -> None:
        assert event.detail is not None
        subject = event.detail.get(str(event.detail["what"]))
        ids = self._queue_ids if isinstance(subject, Queue) else self._exchange_ids
        id_ = ids.get((event.vhost, event.subject))
        super()._undeclared(event)
        if id_ is not None and isinstance(subject, Queue | Exchange):
            self._durable_ids.discard(id_)

    def _transient_gone(self, id_: int, what: int) -> None:
        self._journal.objects.undeclared(id_, what)

    def _bound(self, event: Event) -> None:
        super()._bound(event)
        self._transient_binding(event, self._journal.objects.bound)

    def _unbound(self, event: Event) -> None:
        super()._unbound(event)
        assert event.detail is not None
        if self._knows(event.vhost, event.detail["binding"]):
            self._transient_binding(event, self._journal.objects.unbound)

    def _transient_binding(self, event: Event, write: Any) -> None:
        assert event.detail is not None
        binding: Any = event.detail["binding"]
        if not (binding.source.durable and binding.destination.durable):
            source_id = self._exchange_id(event.vhost, binding.source.name)
            write(source_id, self._bound_of(event.vhost, binding), durable=False)


def _holder_of(message: Message) -> Any:
    return message.holder


def _runs(states: Iterable[tuple[Any, ...]]) -> Iterator[tuple[tuple[Any, ...], list[int]]]:
    """(what they share, ids) of neighbours that differ in nothing but their id, which is last."""
    for like, run in groupby(states, key=lambda state: state[:-1]):
        yield like, [state[-1] for state in run]
