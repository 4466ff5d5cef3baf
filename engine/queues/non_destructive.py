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

from ..delivery.consumer import Consumer
from ..messages.deaths import DELIVERY_LIMIT
from ..messages.field_table import FieldTable
from ..messages.message import Message
from ..stores.kept_store import KeptStore
from ..stores.last_value import header_value
from ..stores.paged_run import Part
from ..stores.store import Store
from .expiry import arm, expire
from .queue import Queue, Restorer
from .returns import is_own_dead_letter_target

#: How many messages one consumer gets before the next one has its turn.
BATCH = 256


class NonDestructiveQueue(Queue):
    """A queue whose rules are non-destructive. `kept`: its store."""

    keeps: ClassVar[bool] = True

    __slots__ = ("_again", "_next_turn", "_seen", "_starved", "kept")

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._seen: dict[Consumer, int] = {}  # id of the last message that a consumer had
        self._again: dict[Consumer, list[Message]] = {}  # came back from a consumer: it gets them again first
        self._starved: dict[Consumer, None] = {}  # want what is in no window
        self._next_turn: Consumer | None = None  # who is the first to be served by the next dispatch

    def _make_store(self) -> Store:
        key = self.rules.last_value_key
        self.kept = KeptStore(self, None if key is None else header_value(key))
        return self.kept

    # -- what only the journal has ------------------------------------------------------------------------------------

    def is_hungry(self) -> bool:
        """See `Queue`."""
        return bool(self._starved)

    def load(self) -> None:
        """See `Queue`: the next window of the consumer that waits longest."""
        consumer = next(iter(self._starved))
        del self._starved[consumer]
        if consumer in self._seen:
            self.kept.windows.fill(consumer, self.kept.places, self._seen[consumer])

    def restore_by(self, restorer: Restorer) -> int:
        """See `Queue`."""
        return restorer.restore_kept(self)

    def know_contents(self) -> None:
        """After a restart: read once what only the contents say, where somebody asks for it. Raises: Unreadable."""
        self.ledger.octets_changed(self.kept.know_contents(self.ledger.octets is not None))

    def _paged_sizes(self, parts: Iterable[Part | Message]) -> Iterable[tuple[int, int]]:
        return ((len(self.kept.places), self.kept.places.blob_octets),)

    # -- in -----------------------------------------------------------------------------------------------------------

    def take_in(self, message: Message) -> bool:
        """Count a new message in. It is never the first consumer's alone, and replaces an older one of its key."""
        self.ledger.enqueued(message)
        older = self.kept.supersede(message)
        if isinstance(older, Message):
            self.ledger.replaced(older)
        elif older is not None:
            self.ledger.replaced_unread(older)
        self.mark()
        return False

    def acknowledged(self, messages: Sequence[Message]) -> None:
        """Counted, and kept."""
        self.ledger.acked(messages, kept=True)

    def place_due(self, messages: list[Message]) -> None:
        """Delayed messages whose time has come, at the places of their ids; every consumer gets them."""
        for message in messages:
            self.kept.put_last(message)
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
            self.ledger.requeued(back, why=why, counted=False)  # copies
            self.mark()
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
        entry = self.kept.take_id(copy.id)
        if entry is None or isinstance(entry, Message):
            return entry
        message = copy_of(copy)
        message.expires_ns = entry.expires_ns
        self.ledger.octets_changed(len(message.blob) - entry.octets)  # it is counted out as it is
        return message

    # -- out ----------------------------------------------------------------------------------------------------------

    def dispatch(self) -> None:
        """Give each consumer with credit what it has not seen, in batches, round and round."""
        rota = self.rota
        if self.store.expiring:
            is_done = expire(self)
            arm(self)
            if not is_done:
                return  # more of them go first
        if rota.waits:
            return
        consumers = list(rota.served)
        if self._next_turn in consumers:
            at = consumers.index(self._next_turn)
            consumers = consumers[at:] + consumers[:at]
        is_busy = True
        while is_busy:
            is_busy = False
            for at, consumer in enumerate(consumers, 1):
                is_shared = consumer.session.prefetch_total > 0
                batch = self._next_for(consumer, rota.limit(consumer, BATCH)) if consumer.credit() > 0 else ()
                if batch:
                    consumer.session.deliver_ready(consumer, batch)
                    is_busy = True
                    self._next_turn = consumers[at % len(consumers)]
                    if is_shared and rota.gives_way(consumer):
                        self.mark()
                        return
                if is_shared and consumer in self._starved:
                    self._next_turn = consumer  # those that share its limit must not come before it
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
            self.surroundings.feed_later(self)
        return message

    def pop(self) -> Message | None:
        """A get always sees the head."""
        self.touch()
        if self.store.expiring:
            expire(self)
            arm(self)
        message = self.kept.head(self.surroundings.clock.monotonic_ns())
        return None if message is None else copy_of(message)

    def add_consumer(self, consumer: Consumer) -> None:
        """It begins at the head. Raises: ExclusiveConsumerRefused, ConsumersMaxReached."""
        super().add_consumer(consumer)
        self._seen[consumer] = 0

    def remove_consumers(self, leaving: Sequence[Consumer]) -> None:
        """Their places are forgotten."""
        for consumer in leaving:
            self._seen.pop(consumer, None)
            self._again.pop(consumer, None)
            self._starved.pop(consumer, None)
            self._forget_window(consumer)
        super().remove_consumers(leaving)

    def _forget_window(self, consumer: Consumer) -> None:
        self.kept.windows.forget(consumer)


def copy_of(message: Message) -> Message:
    """What goes out to one consumer."""
    return Message(message.id, message.blob, message.envelope)


def _id_of(message: Message) -> int:
    return message.id
