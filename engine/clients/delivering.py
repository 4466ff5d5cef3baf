"""How a session hands messages over: numbered, counted, and noted until they are settled. In runs.

Source: behaviour page 2.7; performance page 4.
"""

from collections.abc import Iterable, Sequence
from itertools import groupby, repeat
from operator import attrgetter
from typing import TYPE_CHECKING, Any, cast

from ..delivery.consumer import Consumer, Holder, Receiver
from ..messages.message import Envelope, Message
from ..messages.mixed import Envelopes
from ..queues.queue import queue_of
from .effects import Delivered, DeliveredLeases
from .session_counts import SessionCounts
from .unacked import Unacked

if TYPE_CHECKING:
    from ..messages.lease_headers import RunHeaders  # see `DeliveredLeases`
    from .client import Client

DELIVERY_OVERHEAD = 64  # octets on the wire beside the content, roughly

_BLOB, _ENVELOPE, _DELIVERIES = attrgetter("blob"), attrgetter("envelope"), attrgetter("deliveries")


class Delivering(SessionCounts):
    """The part of a `Session` that queues deliver to. `unacked`: what is out, by tag."""

    __slots__ = ("client", "next_tag", "unacked", "unacked_by_consumers")

    def __init__(self, client: "Client") -> None:
        super().__init__()
        self.client = client
        self.next_tag = 1
        self.unacked = Unacked()
        self.unacked_by_consumers = 0

    def deliver_new(
        self,
        consumer: Consumer,
        ids: Sequence[int],
        envelopes: Envelopes,
        blobs: Sequence[bytes],
        octets: int,
    ) -> None:
        """Hand over messages that were never in a store, `octets` in all. The hot path of an idle queue."""
        count = len(blobs)
        tag = self.next_tag
        self.next_tag = tag + count
        events, session = queue_of(consumer).events, cast(Receiver, self)
        is_mixed = type(envelopes) is not Envelope
        of: Any = envelopes
        if not consumer.no_ack or (is_mixed and events.has_listeners):
            # No loop: the constructor and both zips run in C (0.25 us a message instead of 0.45).
            each: Iterable[Any] = of if is_mixed else repeat(of)
            made: Iterable[Message] = map(Message, ids, blobs, each, repeat(consumer), repeat(1))
            if is_mixed:
                of = made = list(made)
            if not consumer.no_ack:
                self.unacked.update(zip(range(tag, tag + count), made))
                consumer.unacked += count
                self.unacked_by_consumers += count
        if consumer.no_ack:
            self.no_ack += count
        self.client.put(Delivered(consumer, tag, envelopes, False, blobs), octets + count * DELIVERY_OVERHEAD)
        events.delivered_run(consumer, session, ids, of, blobs)

    def deliver_ready(self, consumer: Consumer, messages: Sequence[Message]) -> None:
        """Hand over messages that were ready, as runs of one redelivered flag."""
        queue, session = queue_of(consumer), cast(Receiver, self)
        count = len(messages)
        client = self.client
        client.broker.effort.spent += count
        tag = first_tag = self.next_tag
        self.next_tag = tag + count
        is_new = not any(map(_DELIVERIES, messages))
        for redelivered, run in ((False, messages),) if is_new else _by_redelivered(messages):
            blobs = list(map(_BLOB, run))
            envelopes = list(map(_ENVELOPE, run))
            first = envelopes[0]
            is_shared = first is envelopes[-1] and envelopes.count(first) == len(run)
            effect = Delivered(consumer, tag, first if is_shared else envelopes, redelivered, blobs)
            client.put(effect, sum(map(len, blobs)) + len(blobs) * DELIVERY_OVERHEAD)
            tag += len(run)
        if is_new:
            for message in messages:
                message.deliveries = 1
                message.holder = consumer
        else:
            again = sum(message.deliveries > 0 for message in messages)
            queue.counters.redelivered += again
            self.redelivered += again
            for message in messages:
                message.deliveries += 1
                message.holder = consumer
        queue.events.delivered(messages, session, consumer=consumer, no_ack=consumer.no_ack)
        if consumer.no_ack:
            self.no_ack += count
            queue.acknowledged(messages)
        else:
            self.unacked.update(zip(range(first_tag, first_tag + count), messages))
            consumer.unacked += count
            self.unacked_by_consumers += count

    def deliver_leases(self, consumer: Consumer, messages: Sequence[Message], headers: "RunHeaders") -> None:
        """Hand over leases of messages with one envelope; where nothing is acknowledged, the queue settles them."""
        count = len(messages)
        client, tag = self.client, self.next_tag
        client.broker.effort.spent += count
        self.next_tag = tag + count
        blobs = list(map(_BLOB, messages))
        effect = DeliveredLeases(consumer, tag, messages[0].envelope, blobs, headers)
        client.put(effect, sum(map(len, blobs)) + count * (DELIVERY_OVERHEAD + headers.size))
        if headers.deliveries > 1:
            queue_of(consumer).counters.redelivered += count
            self.redelivered += count
        for message in messages:
            message.deliveries = headers.deliveries
            message.holder = consumer
        self._note_leases(consumer, tag, messages)

    def deliver_leases_alone(
        self, consumer: Consumer, messages: Sequence[Message], envelopes: Sequence[Envelope], blobs: Sequence[bytes]
    ) -> None:
        """The same of any messages, each as it goes out. `envelopes`, `blobs`: what goes out for each."""
        tag = self.next_tag
        self.next_tag = tag + len(messages)
        self.client.broker.effort.spent += len(messages)
        for start, stop, redelivered in _stretches(messages):
            run = blobs[start:stop]
            effect = Delivered(consumer, tag + start, envelopes[start:stop], redelivered, run)
            self.client.put(effect, sum(map(len, run)) + len(run) * DELIVERY_OVERHEAD)
        again = sum(message.deliveries > 0 for message in messages)
        queue_of(consumer).counters.redelivered += again
        self.redelivered += again
        for message in messages:
            message.deliveries += 1
            message.holder = consumer
        self._note_leases(consumer, tag, messages)

    def _note_leases(self, consumer: Consumer, first_tag: int, messages: Sequence[Message]) -> None:
        session, count = cast(Receiver, self), len(messages)
        queue_of(consumer).events.delivered(messages, session, consumer=consumer, no_ack=consumer.no_ack)
        if consumer.no_ack:
            self.no_ack += count
        else:
            self.unacked.update(zip(range(first_tag, first_tag + count), messages))
            consumer.unacked += count
            self.unacked_by_consumers += count

    def deliver_beside(self, consumer: Consumer, messages: Sequence[Message], past: Holder) -> None:
        """Hand over messages that count nowhere: an acknowledgement of them does nothing. `past` has them."""
        tag = self.next_tag
        self.next_tag = tag + len(messages)
        blobs = list(map(_BLOB, messages))
        effect = Delivered(consumer, tag, list(map(_ENVELOPE, messages)), False, blobs)
        self.client.put(effect, sum(map(len, blobs)) + len(blobs) * DELIVERY_OVERHEAD)
        if not consumer.no_ack:
            for message in messages:
                message.holder = past
                message.blob = b""  # the tag is all that matters of it
            self.unacked.update(zip(range(tag, self.next_tag), messages))


def _stretches(messages: Sequence[Message]) -> Iterable[tuple[int, int, bool]]:
    """Offsets of runs that were all delivered before or never: of the first message, and behind the last."""
    start = 0
    for redelivered, run in groupby(messages, lambda one: one.deliveries > 0):
        stop = start + len(list(run))
        yield start, stop, redelivered
        start = stop


def _by_redelivered(messages: Sequence[Message]) -> Iterable[tuple[bool, Sequence[Message]]]:
    """The messages in order, as runs that were all delivered before or never."""
    if all(map(_DELIVERIES, messages)):
        return ((True, messages),)
    return [(redelivered, list(run)) for redelivered, run in groupby(messages, lambda one: one.deliveries > 0)]
