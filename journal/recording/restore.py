"""Restores a broker's objects and messages from its journal. Source: ruling 21; address-settings page 4.5, 5.7."""

import logging
from functools import partial
from heapq import merge

from ...engine import NATIVE, NOTE_PREFIX, Broker, Envelope, FieldTable, Queue, VirtualHost, decode_table, text_of
from ...engine.state import Restorer, TopicLog
from ...settings import Policy
from ..appending.journal import Journal
from ..format.heap import IS_AUTO_DELETE, IS_INTERNAL
from ..format.record import EXCHANGE, OPERATOR_POLICY, PARAMETER, POLICY, QUEUE, USER, VHOST
from ..recovery.recovered import RecoveredQueue
from ..recovery.replay import Recovered
from .access_records import limits_of, parameter_names, parameter_of, policy_of, user_of
from .object_recorder import ADDRESS, AUTO_CREATED, MAKES_NO_QUEUES, USED
from .pager import EnvelopeCache
from .recorder import Recorder

logger = logging.getLogger("leveret.journal")


def restore(broker: Broker, journal: Journal, recorder: Recorder, *, took_over: bool = False) -> int:
    """Make the recovered objects and messages, then add the recorder as a listener. Returns the number of messages.

    `took_over`: another node led before, and may have delivered messages without a record of that.

    Rings are trimmed as by arrivals, so that at most ring-size messages are ready. The trimming is recorded and
    committed with the first turn, and so are dead letters of messages that expired while the broker was stopped.
    Raises: BadRecord.
    """
    found = journal.recovered
    _restore_operators_objects(broker, found)
    queues = _restore_objects(broker, found, recorder)
    _restore_bindings(broker, found, recorder)
    for id_ in found.queues.keys() - {id_ for id_, *_ in queues}:  # of a virtual host that was being deleted
        journal.usage.settled(found.queues.pop(id_).ids())
    broker.context.next_id = max(broker.context.next_id, found.next_message_id)
    _index_contents(recorder, [messages for messages in found.queues.values() if len(messages)])
    restorer = Restorer(
        broker.context,
        _Contents(broker, journal, recorder),
        redelivered_below=broker.context.next_id if took_over else 0,
        counts_are_exact=recorder.messages.counts_each_delivery,
    )
    empty = RecoveredQueue()
    count = sum(restorer.restore(queue, found.queues.get(id_, empty), notes) for id_, queue, notes in queues)
    found.queues.clear()
    recorder.duplicate_ids.restore(found)
    recorder.begin(found.objects)
    for part in (found.objects, found.bindings, found.ids, found.segments):
        part.clear()  # the broker and the journal have it; `found` stays as long as the journal is open
    broker.context.listeners.append(recorder)
    broker.context.storage.durability = recorder
    broker.context.storage.open_log = partial(_open_log, broker, journal, recorder)
    restorer.finish()
    return count


def _open_log(broker: Broker, journal: Journal, recorder: Recorder) -> TopicLog:
    from .topic_log import JournalLog  # imported here because few brokers replay

    return JournalLog(broker, journal, recorder)


def _restore_operators_objects(broker: Broker, found: Recovered) -> None:
    """Restore virtual hosts, users, policies and parameters first: queues depend on them. Raises: BadRecord."""
    policies: list[Policy] = []
    for id_, declared in found.objects.items():
        name = found.names.text(id_)
        if declared.object_type == VHOST:
            vhost = broker.virtual_hosts.create(name)
            broker.virtual_hosts.limit(vhost, limits_of(declared.arguments))
        elif declared.object_type == USER:
            broker.connections.replace_user(user_of(name, declared.arguments))
        elif declared.object_type in (POLICY, OPERATOR_POLICY):
            policies.append(policy_of(declared.object_type, found.names.vhost_text(id_), name, declared.arguments))
        elif declared.object_type == PARAMETER:
            identity = (found.names.vhost_text(id_), *parameter_names(name))
            broker.parameters.set(identity, parameter_of(declared.arguments))
    broker.reloading.replace_policies(broker.context.policies.with_these(policies))


def _restore_objects(broker: Broker, found: Recovered, recorder: Recorder) -> list[tuple[int, Queue, FieldTable]]:
    """Declare the exchanges and queues. Returns the id of each queue, the queue, its notes (see `_restore_queue`)."""
    queues: list[tuple[int, Queue, FieldTable]] = []
    for id_, declared in found.objects.items():
        if declared.object_type not in (EXCHANGE, QUEUE):
            continue
        name, vhost = found.names.text(id_), broker.virtual_hosts.create(found.names.vhost_text(id_))
        arguments: FieldTable = decode_table(declared.arguments, 0)[0] if declared.arguments else {}
        auto_delete = bool(declared.properties & IS_AUTO_DELETE)
        if declared.object_type == EXCHANGE:
            internal = bool(declared.properties & IS_INTERNAL)
            exchange = vhost.exchanges.declare(
                name, declared.type, durable=True, auto_delete=auto_delete, internal=internal, arguments=arguments
            )
            recorder.objects.remember(exchange)
        else:
            queue, notes = _restore_queue(vhost, name, arguments, auto_delete=auto_delete)
            queues.append((id_, queue, notes))
            recorder.objects.remember(queue)
    return queues


def _restore_queue(
    vhost: VirtualHost, name: str, arguments: FieldTable, *, auto_delete: bool
) -> tuple[Queue, FieldTable]:
    """Declare a queue. Returns it and the notes of its kind: facts that only such queues record, such as an offset.

    `arguments`: also has the notes and the queue's other attributes, which are taken out.
    """
    address = text_of(arguments, ADDRESS)
    is_auto_created = arguments.pop(AUTO_CREATED, None) is not None
    may_make_queues = arguments.pop(MAKES_NO_QUEUES, None) is None
    was_used = arguments.pop(USED, None) is not None
    notes = {key: arguments.pop(key) for key in list(arguments) if key.startswith(NOTE_PREFIX)}
    queue = vhost.queues.restore(
        name,
        auto_delete=auto_delete,
        arguments=arguments,
        address=address,
        is_auto_created=is_auto_created,
        may_make_queues=may_make_queues,
    )
    queue.was_used = was_used
    return queue, notes


def _restore_bindings(broker: Broker, found: Recovered, recorder: Recorder) -> None:
    for source_id, bound in found.bindings:
        vhost = broker.virtual_hosts[found.names.vhost_text(source_id)]
        source, target = found.names.text(source_id), found.names.text(bound.target_id)
        arguments = decode_table(bound.arguments, 0)[0] if bound.arguments else {}
        kind = "queue" if bound.object_type == QUEUE else "exchange"
        vhost.bindings.add(kind, target, source, bound.routing_key.decode(), arguments)
        recorder.objects.remember(vhost.exchanges.named(source))  # predefined ones, too
        if bound.object_type == EXCHANGE:
            recorder.objects.remember(vhost.exchanges.named(target))


def _index_contents(recorder: Recorder, queues: list[RecoveredQueue]) -> None:
    """Fill the recorder's content index, in the order of ids."""
    runs = [((first, lsn, count) for _, first, lsn, count in queue.runs()) for queue in queues]
    add = recorder.messages.contents.add
    next_id = 0
    for first, lsn, count in runs[0] if len(runs) == 1 else merge(*runs):
        known = max(next_id - first, 0)  # ids that a run of another queue has added
        if known < count:
            add(first + known, count - known, lsn + known)
            next_id = first + count


class _Contents:
    """The contents of recovered messages, for the engine."""

    def __init__(self, broker: Broker, journal: Journal, recorder: Recorder) -> None:
        self._journal = journal
        self._lsn_of = recorder.messages.contents.lsn_of
        self._wall_ms = broker.context.clock.wall_ms()
        self._envelopes = EnvelopeCache(journal.names)

    def read(self, location: int) -> tuple[Envelope, bytes]:
        record, content = self._journal.contents.read_message(location)
        header, _ = NATIVE.split(content.content)
        envelope = self._envelopes.of(record.address_id, content.routing_key, header[12:], content.cause_id)
        return envelope, content.content

    def time_ms(self, id_: int) -> int:
        lsn = self._lsn_of(id_)
        assert lsn is not None
        return min(self._journal.contents.read_message(lsn)[0].ts_us // 1000, self._wall_ms)
