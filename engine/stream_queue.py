"""Streams: a log that consumers read from where they say, without taking anything out of it.

Built on the non-destructive queue; what consumers do with deliveries gives them room for more and nothing else.
Messages carry their offset as a header from the moment they arrive. In memory for now.
Source: behaviour page 3.7.
"""

from collections.abc import Sequence
from typing import Any

from . import rota
from .consumer import Consumer
from .deaths import EXPIRED, MAXLEN
from .events import EventKind
from .field_table import integer_of
from .message import Envelope, Message
from .non_destructive import NonDestructiveQueue, copy_of
from .ready import Ready
from .rules import effective_arguments, plain_arguments
from .stream_log import SEGMENT_OCTETS_DEFAULT, StreamLog
from .stream_offset import AGO, AT_OFFSET, AT_TIME, FIRST, LAST, OFFSET, age_ms, start_of

#: Where nobody says how large a segment is, a bounded stream has at least so many: nearer to its bound than RabbitMQ.
SEGMENTS_MIN = 8


class StreamQueue(NonDestructiveQueue):
    """A queue of type stream. Of the rules of other queues none holds; `x-max-age` and `x-max-length-bytes` do.

    `_seen` is, for each consumer, the offset of what it gets next.
    """

    __slots__ = ("_chunk_offset", "_max_age_ms", "_max_octets")

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._chunk_offset = 0  # where the last run of messages begins
        self._read_limits()

    def _read_limits(self) -> None:
        """What it declared, and what its policy says."""
        age = self.effective.get("x-max-age")
        self._max_age_ms = age_ms(age.value) if age is not None and isinstance(age.value, bytes) else None
        self._max_octets = integer_of(self.effective, "x-max-length-bytes")
        segment = integer_of(self.effective, "x-stream-max-segment-size-bytes")
        if segment is None:
            segment = SEGMENT_OCTETS_DEFAULT
            if self._max_octets is not None:
                segment = min(segment, self._max_octets // SEGMENTS_MIN)
        self._log.segment_octets_max = segment

    def _empty_ready(self) -> Ready:
        return StreamLog()

    @property
    def _log(self) -> StreamLog:
        assert isinstance(self.ready, StreamLog)
        return self.ready

    def take_ready(self) -> Ready:
        """See `Queue`; offsets go on."""
        gone = self._log
        self.ready = StreamLog(gone.next_offset)
        self._log.segment_octets_max = gone.segment_octets_max
        return gone

    def settings_changed(self) -> None:
        """Addresses' settings are for other queues."""

    def policy_changed(self, *, always: bool = False) -> None:
        """See `Queue`: how long and how much is kept."""
        self.policy = self.broker.policies.of_queue(self.name, self.type, self.vhost.name)
        self.layer = self.policy.layer(plain_arguments(self.arguments))
        self.effective = effective_arguments(self.arguments, self.layer)
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
        count = len(blobs)
        self.counters.enqueued += count
        if self.broker.listeners:
            self.broker.emit_run(EventKind.ENQUEUED, self, range(first_id, first_id + count), envelope)
        self._chunk_offset = self._log.next_offset
        for offset, blob in enumerate(blobs):
            self._append(first_id + offset, envelope, blob)
        self.broker.mark(self)
        return ()

    def place_due(self, messages: list[Message]) -> None:
        """Delayed messages arrive when they are due."""
        self._chunk_offset = self._log.next_offset
        for message in messages:
            self._append(message.id, message.envelope, message.blob)

    def _append(self, id_: int, envelope: Envelope, blob: bytes) -> None:
        if self._log.add(Message(id_, blob, envelope), self.broker.clock.wall_ms()):
            self._retain()

    def _retain(self) -> None:
        """A segment is full: those that are too old or too many go."""
        log = self._log
        now_ms = self.broker.clock.wall_ms()
        while (oldest := log.oldest()) is not None:
            if self._max_octets is not None and log.octets > self._max_octets:
                gone = log.drop_oldest()
                self.counters.dropped += len(gone)
                kind = EventKind.DROPPED
            elif self._max_age_ms is not None and oldest.last_ms < now_ms - self._max_age_ms:
                gone = log.drop_oldest()
                self.counters.expired += len(gone)
                kind = EventKind.EXPIRED
            else:
                break
            if self.broker.listeners:
                self.broker.emit(kind, self, gone, reason=MAXLEN if kind is EventKind.DROPPED else EXPIRED)

    # -- back -------------------------------------------------------------------------------------------------------

    def requeue(self, messages: list[Message], *, why: str, counted: bool = False, delayed: bool = False) -> None:
        """Deliveries came back. The log has them all the time; whoever wants them again says from where."""
        for message in messages:
            message.holder = None

    # -- out --------------------------------------------------------------------------------------------------------

    def _next_for(self, consumer: Consumer, count: int) -> list[Message]:
        if count <= 0:
            return []
        offset = max(self._seen[consumer], self._log.first_offset)
        room = consumer.client.room()
        copies: list[Message] = []
        for message in self._log.read(offset, count):
            copies.append(copy_of(message))
            room -= len(message.blob)
            if room <= 0:
                break
        if copies:
            self._seen[consumer] = offset + len(copies)
        return copies

    def add_consumer(self, consumer: Consumer) -> None:
        """It begins where its argument says; that it wants to be exclusive is passed over. Raises: nothing."""
        consumer.exclusive = False
        rota.join(self, consumer)
        self._seen[consumer] = self._start(consumer)

    def _start(self, consumer: Consumer) -> int:
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
            return log.offset_at(self.broker.clock.wall_ms() - start.value)
        return log.next_offset
