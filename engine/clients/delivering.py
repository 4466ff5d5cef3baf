"""The deliveries of a session, in runs: numbered, counted, and kept until they are settled.

Source: behaviour page 2.7; performance page 4.
"""

from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Any, cast

from ..delivery.consumer import Consumer, Holder
from ..delivery.effects import DELIVERY_OVERHEAD, Delivered, by_redelivered
from ..messages.message import Envelope, Envelopes, Message, content_of, envelope_of
from .session_counts import SessionCounts
from .unacked import Unacked

if TYPE_CHECKING:
    from .client import Client
    from .session import Session


class Delivering(SessionCounts):
    """The part of a `Session` that queues deliver to. `unacked`: unacknowledged messages by tag."""

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
        contents: Sequence[bytes],
        octets: int,
    ) -> None:
        """Deliver new messages that were never in a store, `octets` in all. The hot path of an idle queue."""
        count = len(contents)
        tag = self.next_tag
        self.next_tag = tag + count
        events, session = consumer.queue.events, cast("Session", self)
        is_mixed = type(envelopes) is not Envelope
        of: Any = envelopes
        if not consumer.no_ack or (is_mixed and events.has_listeners):
            # No loop: the constructor and both zips run in C (0.25 us a message instead of 0.45).
            each: Iterable[Any] = of if is_mixed else repeat(of)
            made: Iterable[Message] = map(Message, ids, contents, each, repeat(consumer), repeat(1))
            if is_mixed:
                of = made = list(made)
            if not consumer.no_ack:
                self._note_unacked(consumer, tag, count, made)
        if consumer.no_ack:
            self.no_ack += count
        self.client.put(Delivered(consumer, tag, envelopes, False, contents), octets + count * DELIVERY_OVERHEAD)
        events.delivered_run(consumer, session, ids, of, contents)

    def deliver_ready(self, consumer: Consumer, messages: Sequence[Message]) -> None:
        """Deliver ready messages, as runs with one redelivered flag."""
        effects = []
        for redelivered, run in by_redelivered(messages, consumer.queue.events.redelivered_below):
            envelopes = list(map(envelope_of, run))
            first = envelopes[0]
            is_shared = first is envelopes[-1] and envelopes.count(first) == len(run)
            of = first if is_shared else envelopes
            effects.append(Delivered(consumer, 0, of, redelivered, list(map(content_of, run))))
        self.deliver(consumer, messages, effects)
        if consumer.no_ack:
            consumer.queue.acknowledged(messages)

    def deliver(self, consumer: Consumer, messages: Sequence[Message], effects: Sequence[Delivered]) -> None:
        """Deliver messages by these effects, in order; for a no-ack consumer the caller settles them."""
        queue, first_tag = consumer.queue, self.next_tag
        count = self._send(effects)
        self.client.broker.turn.effort += count
        again = sum(len(effect.contents) for effect in effects if effect.redelivered)
        if again:
            queue.counters.redelivered += again
            self.redelivered += again
            for message in messages:
                message.deliveries += 1
                message.holder = consumer
        else:
            for message in messages:
                message.deliveries = 1
                message.holder = consumer
        queue.events.delivered(messages, cast("Session", self), consumer=consumer, no_ack=consumer.no_ack)
        if consumer.no_ack:
            self.no_ack += count
        else:
            self._note_unacked(consumer, first_tag, count, messages)

    def deliver_beside(
        self, consumer: Consumer, messages: Sequence[Message], past: Holder, *, redelivered: bool = False
    ) -> None:
        """Deliver copies that need no settlement; acknowledgements of their tags are ignored. `past`: their holder."""
        broker = self.client.broker
        durability = broker.storage.durability
        if durability is not None and durability.holds_deliveries and (sync_lsn := durability.sync_lsn_of_all()):
            self.client.send_after(sync_lsn, cast("Session", self).number)
        tag = self.next_tag
        envelopes, contents = list(map(envelope_of, messages)), list(map(content_of, messages))
        self._send((Delivered(consumer, tag, envelopes, redelivered, contents),))
        if not consumer.no_ack:
            for message in messages:
                message.holder = past
                message.content = b""  # only the tag is needed
            self.unacked.update(zip(range(tag, self.next_tag), messages))

    def _send(self, effects: Sequence[Delivered]) -> int:
        """Number deliveries, and put them into the client's outbox. Returns their number."""
        first_tag = tag = self.next_tag
        for effect in effects:
            contents = effect.contents
            count = len(contents)
            effect.first_tag = tag
            tag += count
            self.client.put(effect, sum(map(len, contents)) + count * effect.overhead)
        self.next_tag = tag
        return tag - first_tag

    def _note_unacked(self, consumer: Consumer, first_tag: int, count: int, messages: Iterable[Message]) -> None:
        """Count deliveries as unacknowledged: they take credit until they are settled."""
        self.unacked.update(zip(range(first_tag, first_tag + count), messages))
        consumer.unacked += count
        self.unacked_by_consumers += count
