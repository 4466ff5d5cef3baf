"""Streams: a log that consumers read from where they say, without taking anything out of it.

Built on the non-destructive queue; what consumers do with deliveries gives them room for more and nothing else.
Messages carry their offset as a header from the moment they arrive. With a journal only the newest ones stay in memory;
a consumer that reads further back has a window of its own, which is filled between turns (`Broker.feed`).
Source: behaviour page 3.7; queues page F.
"""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from ..delivery.consumer import Consumer
from ..messages.content import OFFSET
from ..messages.deaths import EXPIRED, MAXLEN
from ..messages.field_table import integer_of
from ..messages.message import Envelope, Message
from ..rules.stream_offset import AGO, AT_OFFSET, AT_TIME, FIRST, LAST, age_ms, start_of
from ..stores.store import Store
from ..stores.stream_store import SEGMENT_OCTETS_DEFAULT, StreamStore
from .non_destructive import NonDestructiveQueue, copy_of
from .queue import Restorer

#: Where nobody says how large a segment is, a bounded stream has at least so many: nearer to its bound than RabbitMQ.
SEGMENTS_MIN = 8


class StreamQueue(NonDestructiveQueue):
    """A queue of type stream. Of the rules of other queues none holds; `x-max-age` and `x-max-length-bytes` do.

    `_seen` is, for each consumer, the offset of what it gets next.
    """

    is_limited: ClassVar[bool] = False

    __slots__ = ("_chunk_offset", "_log", "_max_age_ms", "_max_octets")

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._chunk_offset = 0  # where the last run of messages begins
        self._read_limits()

    def _read_limits(self) -> None:
        """What it declared, and what its policy says."""
        age = self.terms.effective.get("x-max-age")
        self._max_age_ms = age_ms(age.value) if age is not None and isinstance(age.value, bytes) else None
        self._max_octets = integer_of(self.terms.effective, "x-max-length-bytes")
        segment = integer_of(self.terms.effective, "x-stream-max-segment-size-bytes")
        if segment is None:
            segment = SEGMENT_OCTETS_DEFAULT
            if self._max_octets is not None:
                segment = min(segment, self._max_octets // SEGMENTS_MIN)
        self._log.bound_segments(segment)

    def _make_store(self) -> Store:
        self._log = StreamStore(self)
        return self._log

    def restore(
        self, first_offset: int, runs: Sequence[tuple[int, Sequence[int]]], time_of: Callable[[int], int]
    ) -> None:
        """After a restart: runs of messages, which the journal has, as (first id, sizes); `time_of(id)`: wall ms."""
        self._log.start(first_offset)
        for first_id, sizes in runs:
            self._log.restore(first_id, sizes)
        self._log.restored(time_of)
        self._chunk_offset = max(self._log.next_offset - 1, first_offset)

    @property
    def first_offset(self) -> int | None:
        """Of the oldest message that is there, or of the next one."""
        return self._log.first_offset

    def restore_by(self, restorer: Restorer) -> int:
        """See `Queue`."""
        return restorer.restore_stream(self)

    # -- what only the journal has ------------------------------------------------------------------------------------

    def load(self) -> None:
        """See `Queue`: the next window of the consumer that waits longest."""
        consumer = next(iter(self._starved))
        del self._starved[consumer]
        if consumer in self._seen:
            self._log.fill(consumer, self._position(consumer))

    def settings_changed(self) -> None:
        """The settings of addresses are for other queues."""

    def policy_changed(self, *, always: bool = False) -> None:
        """See `Queue`: how long and how much is kept."""
        self.terms.follow_policy(self.surroundings)
        self._read_limits()
        self._retain()

    # -- in ---------------------------------------------------------------------------------------------------------

    def enqueue(
        self, first_id: int, envelope: Envelope, blobs: Sequence[bytes], due_ns: int | None = None
    ) -> Sequence[int]:
        """Take a run at the end of the log, or when it is due. Nothing is ever refused."""
        if self.stores_all:
            envelope = envelope.persisted()
        if due_ns is not None:
            for offset, blob in enumerate(blobs):
                self.take_in_waiting(Message(first_id + offset, blob, envelope), due_ns)
            self.await_due()
            return ()
        self.ledger.enqueued_run(first_id, envelope, blobs)
        self._chunk_offset = self._log.next_offset
        wall_ms = self.surroundings.clock.wall_ms()
        for offset, blob in enumerate(blobs):
            self.append(Message(first_id + offset, blob, envelope), wall_ms)
        self.mark()
        return ()

    def enqueue_mixed(self, first_id: int, envelopes: Sequence[Envelope], blobs: Sequence[bytes]) -> Sequence[int]:
        """See `Queue`."""
        return self.enqueue_stretches(first_id, envelopes, blobs)

    def place_due(self, messages: list[Message]) -> None:
        """Delayed messages arrive when they are due."""
        self._chunk_offset = self._log.next_offset
        wall_ms = self.surroundings.clock.wall_ms()
        for message in messages:
            self.append(Message(message.id, message.blob, message.envelope), wall_ms)

    def append(self, message: Message, wall_ms: int) -> None:
        """A message that came at that time."""
        log = self._log
        if log.add(message, wall_ms):
            self._retain()
        log.measure()

    def _retain(self) -> None:
        """A segment is full: those that are too old or too many go."""
        log = self._log
        now_ms = self.surroundings.clock.wall_ms()
        while (oldest := log.oldest()) is not None:
            if self._max_octets is not None and log.octets > self._max_octets:
                reason = MAXLEN
            elif self._max_age_ms is not None and oldest.last_ms < now_ms - self._max_age_ms:
                reason = EXPIRED
            else:
                break
            self.ledger.segment_dropped(log.drop_oldest(), oldest.count, reason)

    # -- back -------------------------------------------------------------------------------------------------------

    def requeue(self, messages: list[Message], *, why: str, counted: bool = False, delayed: bool = False) -> None:
        """Deliveries came back. The log has them all the time; a consumer that wants them again says from where."""
        for message in messages:
            message.holder = None

    # -- out --------------------------------------------------------------------------------------------------------

    def _position(self, consumer: Consumer) -> int:
        return max(self._seen.get(consumer, 0), self._log.first_offset)

    def _next_for(self, consumer: Consumer, count: int) -> list[Message]:
        if count <= 0:
            return []
        offset = self._position(consumer)
        copies: list[Message] = []
        room = consumer.client.room()
        for message in self._read(consumer, offset, count):
            copies.append(copy_of(message))
            room -= len(message.blob)
            if room <= 0:
                break
        if copies:
            self._seen[consumer] = offset + len(copies)
        return copies

    def _read(self, consumer: Consumer, offset: int, count: int) -> list[Message]:
        """From memory or the consumer's window; none, and it will be asked again, where the journal has to be read."""
        found = self._log.read_for(consumer, offset, count)
        if not found and offset < self._log.memory_offset:
            self._starved[consumer] = None
            self.surroundings.feed_later(self)
        return found

    def add_consumer(self, consumer: Consumer) -> None:
        """It begins where its argument says; that it wants to be exclusive is passed over. Raises: nothing."""
        consumer.exclusive = False
        super().add_consumer(consumer)
        self._seen[consumer] = self._first_offset_of(consumer)

    def _forget_window(self, consumer: Consumer) -> None:
        self._log.forget(consumer)

    def _first_offset_of(self, consumer: Consumer) -> int:
        start, log = start_of(consumer.arguments.get(OFFSET)), self._log
        assert start is not None  # checked
        if start.kind == FIRST:
            return log.first_offset
        if start.kind == LAST:
            return max(self._chunk_offset, log.first_offset)
        if start.kind == AT_OFFSET:
            return start.value
        if start.kind == AT_TIME:
            return log.offset_at(start.value)
        if start.kind == AGO:
            return log.offset_at(self.surroundings.clock.wall_ms() - start.value)
        return log.next_offset
