"""The begin of leases: deliveries to a consumer, and their notes in the book. Source: queues page A.2, A.5.

The unit of work is a run: messages with one envelope and equal delivery counts share headers that are made once.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...settings.leases.leased_settings import IMMEDIATE
from ..delivery.consumer import Consumer
from ..delivery.effects import Delivered, by_redelivered
from ..messages.message import Message, content_of, deliveries_of, envelope_of, id_of, stretches_alike
from .ending import TIME_LIMIT, arm, await_end, expire_for
from .headers import DeliveredLeases, lease_entries, run_headers, with_entries
from .ranked_store import is_barrier
from .state import Leases, bookmark_of

if TYPE_CHECKING:
    from ..clients.session import Session

#: Average length of stretches of equal envelopes from which each stretch is delivered as a run.
ALIKE_MIN = 3
#: Units of effort to make the headers of one delivery, in addition to the delivery itself.
HEADERS_EFFORT = 2


def grant(leases: Leases, consumer: Consumer, messages: Sequence[Message]) -> None:
    """Deliver messages that left the store to a consumer, and lease them; a no-ack consumer settles them at once."""
    if not messages:
        return
    until_ms = None if consumer.no_ack else _until_ms(leases)
    envelopes, first = list(map(envelope_of, messages)), messages[0].envelope
    if envelopes.count(first) == len(messages):
        _deliver(leases, consumer, messages, until_ms)
    else:
        stretches = list(stretches_alike(envelopes))
        if len(stretches) * ALIKE_MIN <= len(messages):
            for start, stop, _ in stretches:
                _deliver(leases, consumer, messages[start:stop], until_ms)
        else:
            _deliver_each(leases, consumer, messages, until_ms)
    if consumer.no_ack:
        leases.count_acked(messages)
    else:
        begin(leases, messages, consumer.session)


def _deliver(leases: Leases, consumer: Consumer, messages: Sequence[Message], until_ms: int | None) -> None:
    """Deliver messages of one envelope, as one run if their headers differ only in the id, and ids are equally long."""
    deliveries, cancels = list(map(deliveries_of, messages)), leases.book.cancels
    below = leases.queue.events.redelivered_below
    if deliveries.count(deliveries[0]) == len(messages):
        ids = list(map(id_of, messages))
        is_alike = not below or (min(ids) < below) == (max(ids) < below)  # in the redelivered flag
        if is_alike and (not cancels or cancels.keys().isdisjoint(ids)):  # none was given back
            topic = leases.topic_of(messages[0].envelope)
            headers = run_headers(topic, ids, deliveries[0] + 1, until_ms)
            if headers is not None:
                contents = list(map(content_of, messages))
                effect = DeliveredLeases(consumer, 0, messages[0].envelope, contents, headers)
                effect.redelivered |= ids[0] < below
                consumer.session.deliver(consumer, messages, (effect,))
                return
    _deliver_each(leases, consumer, messages, until_ms)


def _deliver_each(leases: Leases, consumer: Consumer, messages: Sequence[Message], until_ms: int | None) -> None:
    """Deliver messages, each with headers made for it."""
    leases.queue.context.broker.turn.effort += HEADERS_EFFORT * len(messages)
    contents = [with_lease_headers(leases, message, message.deliveries + 1, until_ms) for message in messages]
    envelopes = [message.envelope.for_added_headers() for message in messages]
    effects, start = [], 0
    for redelivered, run in by_redelivered(messages, leases.queue.events.redelivered_below):
        stop = start + len(run)
        effects.append(Delivered(consumer, 0, envelopes[start:stop], redelivered, contents[start:stop]))
        start = stop
    consumer.session.deliver(consumer, messages, effects)


def runs_of(dealt: Sequence[Consumer], messages: Sequence[Message]) -> list[tuple[Consumer, list[Message]]]:
    """The messages of each consumer. If consumers share a session, the runs keep the order of the queue."""
    if len({consumer.session for consumer in dealt}) == len(set(dealt)):
        by_consumer: dict[Consumer, list[Message]] = {}
        for consumer, message in zip(dealt, messages):
            by_consumer.setdefault(consumer, []).append(message)
        return list(by_consumer.items())
    runs: list[tuple[Consumer, list[Message]]] = []
    for consumer, message in zip(dealt, messages):
        if not runs or runs[-1][0] is not consumer:
            runs.append((consumer, []))
        runs[-1][1].append(message)
    return runs


def drop_expired(leases: Leases, messages: list[Message]) -> list[Message]:
    """Expire the dead ones of messages that have left the store, and return the live ones."""
    if not leases.queue.store.expiring:
        return messages
    now_ns = leases.queue.context.broker.clock.monotonic_ns()
    dead = [message for message in messages if 0 < message.expires_ns < now_ns]
    if dead:
        expire_for(leases, dead, (TIME_LIMIT,))
        return [message for message in messages if not 0 < message.expires_ns < now_ns]
    return messages


def begin(leases: Leases, messages: Sequence[Message], session: "Session") -> None:
    """Begin leases of delivered messages; with at-most-once, begin slots and remove the messages."""
    queue, book, settings = leases.queue, leases.book, leases.rules.settings
    now_ns = queue.context.broker.clock.monotonic_ns()
    if settings.is_at_most_once:
        await_end(leases, book.slots.begin(messages, now_ns))
        leases.count_acked(messages)
        durability = queue.context.broker.storage.durability
        if durability is not None and (sync_lsn := durability.sync_lsn_of_all()):  # of the removal (queues page A.4)
            session.client.send_after(sync_lsn, session.number)
        return
    await_end(leases, book.leases.begin(messages, now_ns))
    if queue.store.expiring and settings.expire_leased == IMMEDIATE:
        for message in messages:
            if message.expires_ns > now_ns:  # a message with a lifetime of 0 was taken in time
                book.expect_leased(message)
        arm(leases)


def _until_ms(leases: Leases) -> int | None:
    """When leases that begin now end (wall ms); None: not by time."""
    period_ms = leases.rules.settings.lease_period_ms
    return None if period_ms is None else leases.queue.context.broker.clock.wall_ms() + period_ms


def with_lease_headers(leases: Leases, message: Message, deliveries: int, until_ms: int | None) -> bytes:
    """The content of a message in its delivery `deliveries`, with the lease's headers, in the engine's framing."""
    cancels = leases.book.cancels.get(message.id, 0)
    is_one = is_barrier(leases.rules.barrier, message)
    topic = leases.topic_of(message.envelope)
    entries = lease_entries(topic, bookmark_of(message.id), deliveries, cancels, until_ms, is_barrier=is_one)
    return with_entries(message.envelope, message.content, entries)


def presented(leases: Leases, message: Message) -> Message:
    """A copy of a delivered message, as basic.get shows it."""
    until_ms = None if message.holder is None else _until_ms(leases)
    content = with_lease_headers(leases, message, message.deliveries, until_ms)
    return Message(message.id, content, message.envelope.for_added_headers(), message.holder, message.deliveries)
