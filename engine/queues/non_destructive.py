"""Non-destructive queues: acknowledged messages stay, and each consumer sees all of them.

Messages go only by expiry, ring, limit, last value, purge and delete, or by failing for good. What is out is a copy of
the entry, so that consumers do not get in each other's way; each has its own place in the queue.
With a journal the oldest ones are left to it beyond the queue's share of memory, and read back where somebody wants
them: for consumers between turns (`Broker.feed`), for a get and for dead letters at once.
Source: address-settings page 3.4, 4.2, 4.5 (rule 13); rulings, "Events" (acked, `kept`); queues page F.
"""

from bisect import insort
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import islice
from typing import Any, ClassVar

from ..delivery import rota
from ..delivery.consumer import Consumer
from ..events import EventKind
from ..messages.deaths import DELIVERY_LIMIT
from ..messages.field_table import FieldTable
from ..messages.message import Message
from ..stores.kept_log import KeptLog
from ..stores.last_value import Key, header_value
from ..stores.paged_places import stretches
from ..stores.paged_run import IN_JOURNAL, Part
from ..stores.ready import Ready
from . import kept_heads
from .limits import arm, expire
from .queue import Queue
from .returns import is_own_dead_letter_target

#: How many messages one consumer gets before the next one has its turn.
BATCH = 256
#: Octets of new messages after which memory is looked at, where the share is large.
LOOK_OCTETS = 1024 * 1024
#: Keys of last values that nobody has any more are looked for when there are so many more keys than messages.
SPARE_KEYS = 1000


class NonDestructiveQueue(Queue):
    """A queue whose rules are non-destructive."""

    keeps: ClassVar[bool] = True

    __slots__ = ("_again", "_by_key", "_key_of", "_look_at", "_next_turn", "_seen", "_starved")

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._seen: dict[Consumer, int] = {}  # id of the last message that a consumer had
        self._again: dict[Consumer, list[Message]] = {}  # came back from a consumer: it gets them again first
        key = self.rules.last_value_key
        self._key_of = None if key is None else header_value(key)
        self._by_key: dict[Key, int] = {}
        self._look_at = 0  # octets in memory at which they are compared with their share
        self._starved: dict[Consumer, None] = {}  # want what is in no window
        self._next_turn: Consumer | None = None  # who is the first to be served by the next dispatch

    def _empty_ready(self) -> Ready:
        return KeptLog(self.broker)

    @property
    def kept(self) -> KeptLog:
        """What is here."""
        assert isinstance(self.ready, KeptLog)
        return self.ready

    def take_ready(self) -> Ready:
        """See `Queue`."""
        self._by_key.clear()
        self._look_at = 0
        return super().take_ready()

    def _counted(self, messages: Iterable[Message]) -> int | None:
        octets = super()._counted(messages)
        return None if octets is None or not isinstance(self.ready, KeptLog) else octets + self.kept.places.blob_octets

    # -- what only the journal has ------------------------------------------------------------------------------------

    @property
    def is_deep(self) -> bool:
        """See `Queue`."""
        return bool(self.kept.places)

    def paged_parts(self) -> list[Part | Message]:
        """See `Queue`."""
        return self.kept.places.parts()

    @property
    def first_paged_id(self) -> int | None:
        """See `Queue`."""
        return self.kept.places.first_id if self.kept.places else None

    def drop_paged(self, kind: EventKind) -> int:
        """See `Queue`."""
        places = self.kept.places
        if self.octets is not None:
            self.octets -= places.blob_octets
        gone = places.take_all()
        if gone and self.broker.listeners:
            runs = list(stretches(gone))
            for ids in [gone] if len(runs) * 4 > len(gone) else runs:
                self.broker.emit_run(kind, self, ids, IN_JOURNAL)
        return len(gone)

    def measure(self) -> None:
        """See `Queue`: the oldest messages leave memory."""
        log, pager, durability = self.kept, self.broker.pager, self.broker.durability
        if log.memory_octets < self._look_at:
            return
        if pager is not None and self.durable and not (durability is not None and durability.is_behind):
            share = pager.budget() // 2  # the other half is for windows
            if log.memory_octets > share:
                log.page_out(share // 2, self._can_leave)
            step = min(LOOK_OCTETS, share // 4)
        else:
            step = LOOK_OCTETS
        self._look_at = log.memory_octets + max(step, log.memory_octets // 8)

    def _can_leave(self, message: Message) -> bool:
        """Whether the journal has it as it is here."""
        pager = self.broker.pager
        return self.stores(message.envelope) and not message.deliveries and pager is not None and pager.has(message.id)

    def is_hungry(self) -> bool:
        """See `Queue`."""
        return bool(self._starved)

    def load(self) -> None:
        """See `Queue`: the next window of the consumer that waits longest."""
        consumer = next(iter(self._starved))
        del self._starved[consumer]
        if consumer in self._seen:
            self.kept.windows.fill(consumer, self.kept.places, self._seen[consumer])

    def know_contents(self) -> None:
        """After a restart: read once what only the contents say, where somebody asks for it. Raises: Unreadable."""
        if self._key_of is None and self.octets is None:
            return
        places, windows, last = self.kept.places, self.kept.windows, 0
        while places and last < places.last_id:
            windows.fill(None, places, last)
            for message in windows.all(None):
                self._know_key(message)
                if self.octets is not None:
                    places.tell_octets(message.id, len(message.blob))
                    self.octets += len(message.blob)
                last = message.id
        windows.forget(None)
        for message in self.kept:
            self._know_key(message)

    def _know_key(self, message: Message) -> None:
        if self._key_of is not None and (key := self._key_of(message)) is not None:
            self._by_key[key] = max(message.id, self._by_key.get(key, 0))

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
        id_ = self._by_key.get(key, 0)
        self._by_key[key] = message.id
        older = self.kept.take(id_) or self.kept.places.take(id_)
        if isinstance(older, Message):
            self.replaced(older)
        elif older is not None:
            self.counters.replaced += 1
            kept_heads.forget(self, [older], EventKind.REPLACED)
        elif len(self._by_key) > 2 * len(self.kept) + SPARE_KEYS:
            self._by_key = {key: id_ for key, id_ in self._by_key.items() if id_ == message.id or self.kept.has(id_)}

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
            if self.deleted or not self.kept.has(message.id):
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
        gone = [one for message in messages if (one := self._take(message)) is not None]
        if gone:
            self.lose(gone, reason)

    def _take(self, copy: Message) -> Message | None:
        """The entry that this is a copy of; None: it is gone. One that is not in memory has the copy's content.

        A copy says more only in x-delivery-count, which no dead letter has.
        """
        message = self.kept.take(copy.id)
        if message is None and (left := self.kept.places.take(copy.id)) is not None:
            message = copy_of(copy)
            message.expires_ns = left.expires_ns
            if self.octets is not None:
                self.octets += len(message.blob) - left.octets  # it is counted out as it is
        return message

    def dispatch(self) -> None:
        """Give each consumer with credit what it has not seen, in batches, round and round."""
        if self.expiring:
            expire(self)
            arm(self)
            if 0 < self.kept.head_expires_ns <= self.broker.clock.monotonic_ns():
                return  # more of them go first
        if self.held:
            return
        consumers = self.consumers[:1] if self.rules.single_active_consumer else list(self.consumers)
        if self._next_turn in consumers:
            at = consumers.index(self._next_turn)
            consumers = consumers[at:] + consumers[:at]
        is_busy = True
        while is_busy:
            is_busy = False
            for at, consumer in enumerate(consumers, 1):
                is_shared = consumer.session.prefetch_total > 0
                batch = self._next_for(consumer, rota.limit(self, consumer, BATCH)) if consumer.credit() > 0 else ()
                if batch:
                    consumer.session.deliver_ready(consumer, batch)
                    is_busy = True
                    self._next_turn = consumers[at % len(consumers)]
                    if is_shared and rota.gives_way(self, consumer):
                        return
                if is_shared and consumer in self._starved:
                    self._next_turn = consumer  # whom it shares its limit with must not come before it
                    return

    def _next_for(self, consumer: Consumer, count: int) -> list[Message]:
        """What a consumer gets next: what it gave back, then copies of what it has not seen."""
        if count <= 0:
            return []
        again = self._again.get(consumer)
        if again:
            taken = [message for message in again[:count] if self.kept.has(message.id)]
            del again[:count]
            if taken:
                return taken
        room = consumer.client.room()
        copies: list[Message] = []
        for message in self._unseen(consumer, count):
            copies.append(copy_of(message))
            room -= len(message.blob)
            if room <= 0:
                break
        if copies:
            self._seen[consumer] = copies[-1].id
        return copies

    def _unseen(self, consumer: Consumer, count: int) -> Iterable[Message]:
        """What it has not seen, up to so many; it will be asked again, where the journal has to be read."""
        log, seen = self.kept, self._seen.get(consumer, 0)
        if seen >= log.places.last_id:
            log.windows.forget(consumer)
            return log.after(seen, count)
        return islice(log.between(seen, count, partial(self._read_back, consumer)), count)

    def _read_back(self, consumer: Consumer, id_: int) -> Message | None:
        message = self.kept.windows.find(consumer, id_)
        if message is None:
            self._starved[consumer] = None
            self.broker.hungry[self] = None
        return message

    def pop(self) -> Message | None:
        """A get always sees the head."""
        self.touch()
        if self.expiring:
            expire(self)
            arm(self)
        id_ = self.kept.first_alive(self.broker.clock.monotonic_ns())
        if id_ is None:
            return None
        here = self.kept.after(id_ - 1, 1)
        return copy_of(here[0] if here and here[0].id == id_ else self.kept.read_head(id_, 1))

    def add_consumer(self, consumer: Consumer) -> None:
        """It begins at the head. Raises: ExclusiveConsumerRefused, ConsumersMaxReached."""
        rota.join(self, consumer)
        self._seen[consumer] = 0

    def remove_consumers(self, consumers: Sequence[Consumer]) -> None:
        """Their places are forgotten."""
        for consumer in consumers:
            self._seen.pop(consumer, None)
            self._again.pop(consumer, None)
            self._starved.pop(consumer, None)
            if isinstance(self.ready, KeptLog):
                self.ready.windows.forget(consumer)
        rota.leave(self, consumers)


def copy_of(message: Message) -> Message:
    """What goes out to one consumer."""
    return Message(message.id, message.blob, message.envelope)


def _id_of(message: Message) -> int:
    return message.id
