"""Restores a broker's objects and messages from its journal. Source: ruling 21; address-settings page 4.5, 5.7."""

import logging
from array import array
from bisect import bisect_left
from functools import partial
from heapq import merge

from ...engine import (
    AHEAD_MS_MAX,
    MS,
    PLAIN,
    Broker,
    Envelope,
    FieldTable,
    Message,
    Queue,
    decode_table,
    integer_of,
    scan_properties,
)
from ...engine.state import HEADER_OCTETS, KeptStore, Left, TopicLog, know_contents, stream
from ...settings import Policy
from ..appending.journal import Journal
from ..format.heap import IS_AUTO_DELETE, IS_INTERNAL
from ..format.record import EXCHANGE, OPERATOR_POLICY, PARAMETER, POLICY, QUEUE, USER, VHOST
from ..recovery.recovered import RecoveredMessage, RecoveredQueue
from ..recovery.replay import Recovered
from .access_records import limits_of, parameter_names, parameter_of, policy_of, user_of
from .object_recorder import ADDRESS, AUTO_CREATED, FIRST_OFFSET, LAST_ID, MAKES_NO_QUEUES, NOTES, RECOVERY
from .recorder import Recorder

logger = logging.getLogger("leveret.journal")


def restore(broker: Broker, journal: Journal, recorder: Recorder) -> int:
    """Make the recovered objects and messages, then add the recorder as a listener. Returns the number of messages.

    Rings are trimmed as by arrivals, so that at most ring-size messages are ready. The trimming is recorded and
    committed with the first turn, and so are dead letters of messages that expired while the broker was stopped.
    """
    found = journal.recovered
    _restore_what_operators_set(broker, found)
    queues: list[tuple[int, Queue]] = []
    first_offsets: dict[int, int] = {}
    for id_, declared in found.objects.items():
        name = found.names.text(id_)
        if declared.what not in (EXCHANGE, QUEUE):
            continue
        vhost = broker.virtual_hosts.create(found.names.vhost_text(id_))
        arguments: FieldTable = decode_table(declared.arguments, 0)[0] if declared.arguments else {}
        if declared.what == EXCHANGE:
            exchange = vhost.exchanges.declare(
                name,
                declared.type,
                durable=True,
                auto_delete=bool(declared.properties & IS_AUTO_DELETE),
                internal=bool(declared.properties & IS_INTERNAL),
                arguments=arguments,
            )
            recorder.remember(exchange)
        elif declared.what == QUEUE:
            address = arguments.pop(ADDRESS, None)
            is_auto_created = arguments.pop(AUTO_CREATED, None) is not None
            may_make_queues = arguments.pop(MAKES_NO_QUEUES, None) is None
            first_offsets[id_] = integer_of(arguments, FIRST_OFFSET) or 0
            last_id = integer_of(arguments, LAST_ID) or 0
            for key in (FIRST_OFFSET, LAST_ID):
                arguments.pop(key, None)
            notes, recovery = arguments.pop(NOTES, None), arguments.pop(RECOVERY, None)
            queue = vhost.queues.restore(
                name,
                auto_delete=bool(declared.properties & IS_AUTO_DELETE),
                arguments=arguments,
                address=None if address is None else address.text,
                is_auto_created=is_auto_created,
                may_make_queues=may_make_queues,
            )
            if recovery is not None:
                queue.restore_recovery(recovery.text)
            if (messages := found.queues.get(id_)) is not None:
                last_id = max(last_id, messages.last_id)
            queue.restore_newest_id(last_id)
            if notes is not None and isinstance(notes.value, bytes):
                queue.restore_notes(notes.value)
            queues.append((id_, queue))
            recorder.remember(queue)
    for source_id, bound in found.bindings:
        vhost = broker.virtual_hosts[found.names.vhost_text(source_id)]
        source, target = found.names.text(source_id), found.names.text(bound.target_id)
        arguments = decode_table(bound.arguments, 0)[0] if bound.arguments else {}
        kind = "queue" if bound.what == QUEUE else "exchange"
        vhost.bindings.add(kind, target, source, bound.routing_key.decode(), arguments)
        recorder.remember(vhost.exchanges.named(source))  # predefined ones, too
        if bound.what == EXCHANGE:
            recorder.remember(vhost.exchanges.named(target))
    for id_ in found.queues.keys() - {id_ for id_, _ in queues}:  # of a virtual host that was being deleted
        journal.ledger.settled(found.queues.pop(id_).ids())
    broker.context.next_id = max(broker.context.next_id, found.next_message_id)
    _index_contents(recorder, [messages for messages in found.queues.values() if len(messages)])
    count = 0
    restoring = _Restoring(broker, journal, recorder)
    for id_, queue in queues:
        restoring.begin(found.queues.get(id_) or RecoveredQueue(), first_offsets[id_])
        count += queue.restore_by(restoring)
    found.queues.clear()
    recorder.duplicate_ids.restore(found)
    recorder.begin(found.objects)
    broker.context.listeners.append(recorder)
    broker.context.storage.durability = recorder
    broker.context.storage.open_log = partial(_open_log, broker, journal, recorder)
    for queue, exhausted in restoring.exhausted:
        queue.return_exhausted(exhausted)
    for queue, older in restoring.replaced:
        queue.events.replaced(older)
    for _, queue in queues:
        queue.finish_restore()
    return count


def _open_log(broker: Broker, journal: Journal, recorder: Recorder) -> TopicLog:
    from .topic_log import JournalLog  # imported here because few brokers replay

    return JournalLog(broker, journal, recorder)


def _restore_what_operators_set(broker: Broker, found: Recovered) -> None:
    """Restore virtual hosts, users, policies and parameters first: queues depend on them. Raises: BadRecord."""
    policies: list[Policy] = []
    for id_, declared in found.objects.items():
        name = found.names.text(id_)
        if declared.what == VHOST:
            vhost = broker.virtual_hosts.create(name)
            broker.virtual_hosts.limit(vhost, limits_of(declared.arguments))
        elif declared.what == USER:
            broker.connections.replace_user(user_of(name, declared.arguments))
        elif declared.what in (POLICY, OPERATOR_POLICY):
            policies.append(policy_of(declared.what, found.names.vhost_text(id_), name, declared.arguments))
        elif declared.what == PARAMETER:
            identity = (found.names.vhost_text(id_), *parameter_names(name))
            broker.parameters.set(identity, parameter_of(declared.arguments))
    broker.reloading.replace_policies(broker.context.policies.with_these(policies))


def _index_contents(recorder: Recorder, queues: list[RecoveredQueue]) -> None:
    """Fill the recorder's content index, in the order of ids."""
    runs = [((first, lsn, count) for _, first, lsn, count in queue.runs()) for queue in queues]
    add = recorder.contents.add
    next_id = 0
    for first, lsn, count in runs[0] if len(runs) == 1 else merge(*runs):
        known = max(next_id - first, 0)  # by a run of another queue
        if known < count:
            add(first + known, count - known, lsn + known)
            next_id = first + count


class _Restoring:
    """Puts messages back into one queue after another, see `Restorer`. `begin` sets the messages of the next queue."""

    def __init__(self, broker: Broker, journal: Journal, recorder: Recorder) -> None:
        self._journal = journal
        self._recorder = recorder
        self._now_ns, self._wall_ms = broker.context.clock.monotonic_ns(), broker.context.clock.wall_ms()
        self._envelopes: dict[tuple[int, bytes, object, int], Envelope] = {}
        self._memory = broker.context.storage.pager.budget() // 2 if broker.context.storage.pager is not None else 0
        self._pages = broker.context.storage.pager is not None
        self._recovered = RecoveredQueue()
        self._first_offset = 0
        self.exhausted: list[tuple[Queue, list[Message]]] = []  # at the delivery limit
        self.replaced: list[tuple[Queue, Message | Left]] = []  # superseded by a newer value

    def begin(self, recovered: RecoveredQueue, first_offset: int) -> None:
        """Set the recovered messages of the next queue, and the offset of the first one if it is a stream."""
        self._recovered, self._first_offset = recovered, first_offset

    def restore_ready(self, queue: Queue) -> int:
        """Restore the ready messages in their order; of a deep queue, load only the first ones into memory."""
        recovered, store = self._recovered, queue.store
        self._set_exhausted_aside(queue)
        if self._pages and store.may_page:
            self._fill_tail(queue, recovered)
            if self._memory > 0:
                store.load()
                self._memory -= store.held_octets
        else:
            self._fill_each(queue, recovered)
        queue.events.restored(len(recovered))
        return len(recovered)

    def _set_exhausted_aside(self, queue: Queue) -> None:
        """Move messages that have reached the delivery limit, with the last attempt counted, to `exhausted`."""
        limit, recovered = queue.rules.max_delivery_attempts, self._recovered
        ids = [
            id_
            for id_, state in recovered.states.items()
            if limit is not None and state.deliveries - state.uncounted >= limit and not state.due_ms
        ]
        if ids:
            wanted = frozenset(ids)
            found = [self._restored(queue, one) for one in recovered.messages() if one.id in wanted]
            self.exhausted.append((queue, [one for one in reversed(found) if one is not None]))
            for id_ in ids:
                recovered.remove(id_)

    def forget_attempts(self) -> None:
        states = self._recovered.states
        for id_, state in list(states.items()):
            if state.due_ms:
                states[id_] = state._replace(deliveries=0, uncounted=0)
            else:
                del states[id_]

    def restore_kept(self, queue: Queue) -> int:
        """Restore the locations only, if contents may stay in the journal."""
        if self._pages:
            self._fill_kept(queue, self._recovered)
        else:
            self._fill_each(queue, self._recovered)
        self.replaced += [(queue, older) for older in know_contents(queue)]
        queue.events.restored(len(self._recovered))
        return len(self._recovered)

    def _fill_each(self, queue: Queue, recovered: RecoveredQueue) -> None:
        for one in recovered.messages():
            message = self._restored(queue, one)
            if message is not None and (older := queue.store.put_last(message)) is not None:
                self.replaced.append((queue, older))

    def _fill_kept(self, queue: Queue, recovered: RecoveredQueue) -> None:
        """Restore the locations only, except of messages with delivery counts or due times."""
        ids, _, sizes, expires = recovered.columns()
        special = {id_ for id_, state in recovered.states.items() if state.deliveries or state.due_ms}
        rows = array("q", (at for at, id_ in enumerate(ids) if id_ not in special)) if special else range(len(ids))
        if expires is not None:
            queue.store.expect_expiry()
        store = queue.store
        assert isinstance(store, KeptStore)
        store.places.extend(
            array("q", (ids[at] for at in rows)) if special else ids,
            array("I", (sizes[at] for at in rows)) if special else sizes,
            array("I", (sizes[at] + HEADER_OCTETS for at in rows)),
            None if expires is None else array("q", (self._expires_ns(expires[at]) for at in rows)),
        )
        if special:
            for one in recovered.messages():
                if (
                    one.id in special
                    and (message := self._restored(queue, one)) is not None
                    and (older := queue.store.put_last(message)) is not None
                ):
                    self.replaced.append((queue, older))

    def restore_stream(self, queue: Queue) -> int:
        """Restore a stream's messages with their offsets."""
        recovered, first_offset = self._recovered, self._first_offset
        waiting = {id_ for id_, state in recovered.states.items() if state.due_ms > self._wall_ms}
        if self._pages and not waiting:
            _, _, sizes, _ = recovered.columns()
            runs = [(first, sizes[start : start + count]) for start, first, _, count in recovered.runs()]
            stream.restore(queue, first_offset, runs, self._time_ms)
        else:
            stream.restore(queue, first_offset, (), self._time_ms)
            for one in recovered.messages():
                message = self._restored(queue, one)
                if message is not None:
                    stream.restore_message(queue, message, self._time_ms(one.id))
        queue.events.restored(len(recovered))
        return len(recovered)

    def _time_ms(self, id_: int) -> int:
        """When the message was recorded, in wall ms; not later than now."""
        lsn = self._recorder.contents.lsn_of(id_)
        assert lsn is not None
        return min(self._journal.contents.read_message(lsn)[0].ts_us // 1000, self._wall_ms)

    def _fill_tail(self, queue: Queue, recovered: RecoveredQueue) -> None:
        """Restore the locations only, except of scheduled messages."""
        _, _, sizes, expires = recovered.columns()
        store = queue.store
        level_max = store.level_max
        priorities = recovered.priorities if level_max else None
        states = recovered.states

        def extend(first: int, start: int, stop: int, attempts: int = 0) -> None:
            due = None if expires is None else list(map(self._expires_ns, expires[start:stop]))
            if priorities is None:
                store.restore_run(first, sizes[start:stop], due, deliveries=attempts)
                return
            for at in range(start, stop):
                one_due = None if due is None else due[at - start : at - start + 1]
                level = min(priorities[at], level_max)
                store.restore_run(first + at - start, (sizes[at],), one_due, level=level, deliveries=attempts)

        special = sorted(states)
        for start, first, lsn, count in recovered.runs():
            done = 0
            for id_ in special[bisect_left(special, first) : bisect_left(special, first + count)]:
                at, state = id_ - first, states[id_]
                extend(first + done, start + done, start + at)
                if state.due_ms > self._wall_ms:
                    expires_ms = 0 if expires is None else expires[start + at]
                    self._restored(queue, RecoveredMessage(id_, lsn + at, sizes[start + at], expires_ms, state))
                else:
                    extend(id_, start + at, start + at + 1, state.deliveries - state.uncounted)
                done = at + 1
            extend(first + done, start + done, start + count)

    def _due_ns(self, wall_ms: int) -> int:
        """Monotonic ns of a recorded wall time, limited: a journal may hold a time that no clock accepts."""
        return self._now_ns + min(wall_ms - self._wall_ms, AHEAD_MS_MAX) * MS

    def _expires_ns(self, expires_ms: int) -> int:
        return max(1, self._due_ns(expires_ms)) if expires_ms else 0

    def _restored(self, queue: Queue, one: RecoveredMessage) -> Message | None:
        """Restore one message; None: it is scheduled and was put there."""
        message = self._message(queue, one)
        if one.expires_ms:
            message.expires_ns = self._expires_ns(one.expires_ms)
            queue.store.expect_expiry()
        message.deliveries = attempts = one.state.deliveries - one.state.uncounted  # sets redelivered (5.7)
        queue.loaded([message], attempts)
        if one.state.due_ms > self._wall_ms:
            queue.restore_waiting(message, self._due_ns(one.state.due_ms))
            return None
        return message

    def _message(self, queue: Queue, one: RecoveredMessage) -> Message:
        journal = self._journal
        record, content = journal.contents.read_message(one.content_lsn)
        header, _ = PLAIN.split(content.content)
        facts = scan_properties(header[12:])._replace(persistent=True)  # a quorum queue stores the others, too
        key = (record.address_id, content.routing_key, facts, content.cause_id)
        envelope = self._envelopes.get(key)
        if envelope is None:
            exchange = journal.names.text(record.address_id)
            envelope = self._envelopes[key] = Envelope(exchange, content.routing_key.decode(), facts)
            envelope.cause_id = envelope.first_id = content.cause_id
        return queue.message_for(one.id, content.content, envelope)
