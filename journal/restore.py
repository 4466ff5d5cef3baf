"""Restoring: a broker gets back what the journal says was there. Source: rulings 21; address-settings page 4.5, 5.7."""

import logging
from heapq import merge

from ..engine import Broker, Envelope, Message, Queue, deep
from ..engine.content import PLAIN, scan_properties
from ..engine.field_table import FieldTable, decode_table
from ..engine.limits import MS, trim
from ..engine.returns import tell_count, trim_ring
from ..engine.tail import Tail
from .heap import IS_AUTO_DELETE, IS_INTERNAL
from .journal import Journal
from .record import EXCHANGE, QUEUE, VHOST
from .recorder import ADDRESS, AUTO_CREATED, Recorder
from .recovered import RecoveredMessage, RecoveredQueue

logger = logging.getLogger("leveret.journal")


def restore(broker: Broker, journal: Journal, recorder: Recorder) -> int:
    """Make what was recovered; returns how many messages that are. The recorder listens from then on.

    Rings are trimmed as by arrivals, so that at most ring-size messages are ready; that is recorded.
    """
    found = journal.recovered
    queues: list[tuple[int, Queue]] = []
    for id_, declared in found.objects.items():
        name = found.names.text(id_)
        if declared.what == VHOST:
            broker.create_virtual_host(name)
            continue
        vhost = broker.create_virtual_host(found.names.vhost_text(id_))
        arguments: FieldTable = decode_table(declared.arguments, 0)[0] if declared.arguments else {}
        if declared.what == EXCHANGE:
            exchange = vhost.declare_exchange(
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
            queue = vhost.restore_queue(
                name,
                auto_delete=bool(declared.properties & IS_AUTO_DELETE),
                arguments=arguments,
                address=None if address is None else address.text,
                is_auto_created=is_auto_created,
            )
            queues.append((id_, queue))
            recorder.remember(queue)
    for source_id, bound in found.bindings:
        vhost = broker.virtual_hosts[found.names.vhost_text(source_id)]
        source, target = found.names.text(source_id), found.names.text(bound.target_id)
        arguments = decode_table(bound.arguments, 0)[0] if bound.arguments else {}
        bind = vhost.bind_queue if bound.what == QUEUE else vhost.bind_exchange
        bind(target, source, bound.routing_key.decode(), arguments)
    broker.next_id = max(broker.next_id, found.next_message_id)
    _index_contents(recorder, [messages for messages in found.queues.values() if len(messages)])
    count = 0
    envelopes: dict[tuple[int, bytes, object], Envelope] = {}
    for id_, queue in queues:
        messages = found.queues.get(id_)
        if messages is not None:
            count += _fill(broker, journal, queue, messages, envelopes)
    found.queues.clear()
    recorder.begin(found.objects)
    broker.listeners.append(recorder)
    broker.durability = recorder
    for _, queue in queues:
        _settle_in(queue)
    journal.commit()
    return count


def _index_contents(recorder: Recorder, queues: list[RecoveredQueue]) -> None:
    """Where contents are, in order of ids."""
    columns = [zip(*queue.columns()[:2]) for queue in queues]
    add = recorder.contents.add
    last = 0
    for id_, lsn in columns[0] if len(columns) == 1 else merge(*columns):
        if id_ != last:
            add(id_, 1, lsn)
            last = id_


def _fill(
    broker: Broker,
    journal: Journal,
    queue: Queue,
    recovered: RecoveredQueue,
    envelopes: dict[tuple[int, bytes, object], Envelope],
) -> int:
    """Put a queue's messages back where they were; of many only the first ones into memory. Returns how many."""
    clock = broker.clock
    now_ns, wall_ms = clock.monotonic_ns(), clock.wall_ms()
    count = len(recovered)
    budget = broker.pager.budget() if broker.pager is not None and deep.may_have_tail(queue) else None
    for at, one in enumerate(recovered.messages()):
        message = _message(journal, one, envelopes)
        if one.expires_ms:
            message.expires_ns = max(1, now_ns + (one.expires_ms - wall_ms) * MS)
            queue.expiring = True
        message.deliveries = attempts = one.state.deliveries - one.state.uncounted  # redelivered: tried before (5.7)
        if queue.octets is not None:
            queue.octets += len(message.blob)
        if attempts > 0 and queue.rules.counts_deliveries:
            tell_count(queue, message, attempts)
        if one.state.due_ms > wall_ms:
            queue.scheduled.add(now_ns + (one.state.due_ms - wall_ms) * MS, message)
        else:
            queue.ready.append(message)
        if budget is not None:
            budget -= len(message.blob) + deep.OVERHEAD
            if budget < 0 and at >= deep.DEEP_MIN and at + 1 < count:
                _fill_tail(journal, queue, recovered, at + 1, envelopes, now_ns, wall_ms)
                break
    queue.counters.enqueued += count
    return count


def _fill_tail(
    journal: Journal,
    queue: Queue,
    recovered: RecoveredQueue,
    start: int,
    envelopes: dict[tuple[int, bytes, object], Envelope],
    now_ns: int,
    wall_ms: int,
) -> None:
    """What is behind the memory's share: by place only, but for messages that something happened to."""
    tail = queue.tail = Tail()
    ids, _, sizes, expires = recovered.columns()
    special = set(recovered.states)
    if expires is not None:
        special |= {id_ for id_, expires_ms in zip(ids, expires) if expires_ms}
    at, end = start, len(ids)
    while at < end:
        stop = min(at + 4096, end)
        part = ids[at:stop]
        if part[-1] - part[0] == len(part) - 1 and (not special or special.isdisjoint(part)):
            tail.extend(part[0], sizes[at:stop])
        else:
            for offset, id_ in enumerate(part, at):
                if id_ not in special:
                    tail.extend(id_, sizes[offset : offset + 1])
        at = stop
    if special:
        _fill_special(journal, queue, tail, recovered, set(ids[start:]) & special, envelopes, now_ns, wall_ms)


def _fill_special(
    journal: Journal,
    queue: Queue,
    tail: Tail,
    recovered: RecoveredQueue,
    special: set[int],
    envelopes: dict[tuple[int, bytes, object], Envelope],
    now_ns: int,
    wall_ms: int,
) -> None:
    """Messages behind the memory's share that expire, wait, or were delivered before: into memory all the same."""
    for one in recovered.messages():
        if one.id not in special:
            continue
        message = _message(journal, one, envelopes)
        if one.expires_ms:
            message.expires_ns = max(1, now_ns + (one.expires_ms - wall_ms) * MS)
            queue.expiring = True
        message.deliveries = one.state.deliveries - one.state.uncounted
        if one.state.due_ms > wall_ms:
            queue.scheduled.add(now_ns + (one.state.due_ms - wall_ms) * MS, message)
        else:
            queue.ready.append(message)


def _message(journal: Journal, one: RecoveredMessage, envelopes: dict[tuple[int, bytes, object], Envelope]) -> Message:
    record, content = journal.contents.read_message(one.content_lsn)
    header, _ = PLAIN.split(content.content)
    facts = scan_properties(header[12:])
    key = (record.address_id, content.routing_key, facts)
    envelope = envelopes.get(key)
    if envelope is None:
        exchange = journal.names.text(record.address_id)
        envelope = envelopes[key] = Envelope(exchange, content.routing_key.decode(), facts)
    return Message(one.id, content.content, envelope)


def _settle_in(queue: Queue) -> None:
    """What limits and times do to what came back."""
    queue.await_due()
    if queue.expiring:
        queue.expire_due()
    if queue.rules.ring_size is not None:
        trim_ring(queue, len(queue.ready))
    if queue.rules.has_limit:
        trim(queue)
