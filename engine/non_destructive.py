"""Non-destructive queues: acknowledged messages stay, and each consumer sees all of them.

Messages go only by expiry, ring, limit, last value, purge and delete, or by failing for good. What is out is a copy of
the entry, so that consumers do not get in each other's way; each has its own place in the queue.
Source: address-settings page 3.4, 4.2, 4.5 (rule 13); rulings, "Events" (acked, `kept`).
"""

from bisect import insort
from collections.abc import Sequence
from typing import Any, ClassVar

from . import rota
from .consumer import Consumer
from .deaths import DELIVERY_LIMIT
from .events import EventKind
from .field_table import FieldTable
from .kept_ready import KeptReady
from .last_value import Key, header_value
from .limits import arm, expire
from .message import Message
from .queue import Queue
from .ready import Ready
from .returns import is_own_dead_letter_target

#: How many messages one consumer gets before the next one has its turn.
BATCH = 256


class NonDestructiveQueue(Queue):
    """A queue whose rules are non-destructive."""

    keeps: ClassVar[bool] = True

    __slots__ = ("_again", "_by_key", "_key_of", "_seen")

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._seen: dict[Consumer, int] = {}  # id of the last message that a consumer had
        self._again: dict[Consumer, list[Message]] = {}  # came back from a consumer: it gets them again first
        key = self.rules.last_value_key
        self._key_of = None if key is None else header_value(key)
        self._by_key: dict[Key, int] = {}

    def _empty_ready(self) -> Ready:
        return KeptReady()

    @property
    def _kept(self) -> KeptReady:
        assert isinstance(self.ready, KeptReady)
        return self.ready

    def take_in(self, message: Message) -> bool:
        """Count a new message in. It is never the first consumer's alone."""
        self.counters.enqueued += 1
        if self.octets is not None:
            self.octets += len(message.blob)
        if self.broker.listeners:
            self.broker.emit(EventKind.ENQUEUED, self, (message,))
        if self._key_of is not None:
            self._replace_older(message, self._key_of(message))
        self.broker.mark(self)
        return False

    def _replace_older(self, message: Message, key: Key | None) -> None:
        """Consumers that saw the old value are to see the new one: it goes to the tail."""
        if key is None:
            return
        older = self._kept.take(self._by_key.get(key, 0))
        self._by_key[key] = message.id
        if older is not None:
            self.replaced(older)

    def acknowledged(self, messages: Sequence[Message]) -> None:
        """Counted, and kept."""
        self.counters.acknowledged += len(messages)
        if self.broker.listeners:
            self.broker.emit(EventKind.ACKED, self, messages, kept=True)

    def place_due(self, messages: list[Message]) -> None:
        """Delayed messages whose time has come, at the places of their ids; nobody misses them."""
        for message in messages:
            self.ready.append(message)
            for consumer, seen in self._seen.items():
                if message.id < seen:
                    insort(self._again.setdefault(consumer, []), copy_of(message), key=_id_of)

    def requeue(self, messages: list[Message], *, why: str, counted: bool = False, delayed: bool = False) -> None:
        """Deliveries came back: their consumer, if it is still there, gets what is still here again, without delay."""
        rules = self.rules
        dead: list[Message] = []
        back: list[Message] = []
        for message in sorted(messages, key=_id_of):
            consumer, message.holder = message.holder, None
            if self.deleted or not self._kept.has(message.id):
                continue
            message.uncounted += not counted
            attempts = message.deliveries - message.uncounted
            limit = rules.max_delivery_attempts
            if limit is not None and attempts >= limit and not is_own_dead_letter_target(self):
                dead.append(message)
                continue
            back.append(message)
            if attempts > 0 and rules.counts_deliveries:
                self.tell_count(message, attempts)
            if isinstance(consumer, Consumer) and consumer in self._seen:
                insort(self._again.setdefault(consumer, []), message, key=_id_of)
        if back:
            self.counters.requeued += len(back)
            if self.broker.listeners:
                self.broker.emit(EventKind.REQUEUED, self, back, why=why, counted=False)  # copies
            self.broker.mark(self)
        self.kill(dead, reason=DELIVERY_LIMIT)

    def add_headers(self, message: Message, added: FieldTable) -> None:
        """To a copy that is out: the entry stays as it is, and so does what it counts for."""
        message.blob = message.envelope.spliced(message.blob, added)
        message.envelope = message.envelope.plain()

    def kill(self, messages: list[Message], *, reason: str) -> None:
        """What failed for good goes, for every consumer; what went before stays gone."""
        taken = [self._kept.take(message.id) for message in messages]
        gone = [message for message in taken if message is not None]
        if gone:
            self.lose(gone, reason)

    def dispatch(self) -> None:
        """Give each consumer with credit what it has not seen, in batches, round and round."""
        if self.expiring:
            expire(self)
            arm(self)
        if self.held:
            return
        is_busy = True
        while is_busy:
            is_busy = False
            for consumer in self.consumers[:1] if self.rules.single_active_consumer else list(self.consumers):
                batch = self._next_for(consumer, min(consumer.credit(), BATCH))
                if batch:
                    consumer.session.deliver_ready(consumer, batch)
                    is_busy = True

    def _next_for(self, consumer: Consumer, count: int) -> list[Message]:
        """What a consumer gets next: what it gave back, then copies of what it has not seen."""
        if count <= 0:
            return []
        again = self._again.get(consumer)
        if again:
            taken = [message for message in again[:count] if self._kept.has(message.id)]
            del again[:count]
            if taken:
                return taken
        fresh = self._kept.after(self._seen.get(consumer, 0), count)
        room = consumer.client.room()
        copies: list[Message] = []
        for message in fresh:
            copies.append(copy_of(message))
            room -= len(message.blob)
            if room <= 0:
                break
        if copies:
            self._seen[consumer] = copies[-1].id
        return copies

    def pop(self) -> Message | None:
        """A get always sees the head."""
        self.touch()
        if self.expiring:
            expire(self)
            arm(self)
        return copy_of(self.ready[0]) if self.ready else None

    def add_consumer(self, consumer: Consumer) -> None:
        """It begins at the head. Raises: ExclusiveConsumerRefused, ConsumersMaxReached."""
        rota.join(self, consumer)
        self._seen[consumer] = 0

    def remove_consumer(self, consumer: Consumer) -> None:
        """Its place is forgotten."""
        self._seen.pop(consumer, None)
        self._again.pop(consumer, None)
        rota.leave(self, consumer)


def copy_of(message: Message) -> Message:
    """What goes out to one consumer."""
    return Message(message.id, message.blob, message.envelope)


def _id_of(message: Message) -> int:
    return message.id
