"""Streams: a log that consumers read from where they say, without taking anything out of it.

Built on the non-destructive queue; what consumers do with deliveries gives them room for more and nothing else.
Messages carry their offset as a header from the moment they arrive. With a journal only the newest ones stay in memory;
a consumer that reads further back has a window of its own, which is filled between turns (`Broker.feed`).
Source: behaviour page 3.7; queues page F.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ..delivery import rota
from ..delivery.consumer import Consumer
from ..events import EventKind
from ..messages.content import OFFSET
from ..messages.deaths import EXPIRED, MAXLEN
from ..messages.field_table import integer_of
from ..messages.message import Envelope, Message
from ..rules.queue_rules import effective_arguments, plain_arguments
from ..rules.stream_offset import AGO, AT_OFFSET, AT_TIME, FIRST, LAST, age_ms, start_of
from ..stores.paged_run import IN_JOURNAL, Part, messages_of
from ..stores.ready import Ready
from ..stores.stream_log import SEGMENT_OCTETS_DEFAULT, StreamLog, tell_offset
from .non_destructive import NonDestructiveQueue, copy_of

#: Where nobody says how large a segment is, a bounded stream has at least so many: nearer to its bound than RabbitMQ.
SEGMENTS_MIN = 8
#: Octets of new messages after which memory is looked at, ...
LOOK_OCTETS = 1024 * 1024
#: ... and what a window takes from the journal at once.
WINDOW_MESSAGES, WINDOW_OCTETS = 1000, 1024 * 1024


class Window(NamedTuple):
    """Messages from `offset` on, read back for a consumer."""

    offset: int
    messages: list[Message]

    def read(self, offset: int, count: int) -> list[Message]:
        """Up to `count` from there on; none when it is outside."""
        start = offset - self.offset
        return self.messages[start : start + count] if start >= 0 else []


class StreamQueue(NonDestructiveQueue):
    """A queue of type stream. Of the rules of other queues none holds; `x-max-age` and `x-max-length-bytes` do.

    `_seen` is, for each consumer, the offset of what it gets next.
    """

    __slots__ = ("_chunk_offset", "_looked_at", "_max_age_ms", "_max_octets", "_windows")

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._chunk_offset = 0  # where the last run of messages begins
        self._looked_at = 0  # octets in memory when they were last compared with their share
        self._windows: dict[Consumer, Window] = {}
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
        self._start_log(gone.next_offset)
        return gone

    def _start_log(self, offset: int) -> None:
        before = self._log.segment_octets_max
        self.ready = StreamLog(offset)
        self._log.segment_octets_max = before
        self._looked_at = 0
        self._windows.clear()

    def restore(
        self, first_offset: int, runs: Sequence[tuple[int, Sequence[int]]], time_of: Callable[[int], int]
    ) -> None:
        """After a restart: runs of messages, which the journal has, as (first id, sizes); `time_of(id)`: wall ms."""
        self._start_log(first_offset)
        for first_id, sizes in runs:
            self._log.restore(first_id, sizes)
        self._log.restored(time_of)
        self._chunk_offset = max(self._log.next_offset - 1, first_offset)

    @property
    def first_offset(self) -> int:
        """Of the oldest message that is there, or of the next one."""
        return self._log.first_offset

    # -- what only the journal has ------------------------------------------------------------------------------------

    @property
    def is_deep(self) -> bool:
        """See `Queue`."""
        return self._log.memory_offset > self._log.first_offset

    def paged_parts(self) -> list[Part | Message]:
        """See `Queue`."""
        return self._log.parts()

    @property
    def first_paged_id(self) -> int | None:
        """See `Queue`."""
        return self._log.id_at(self._log.first_offset) if self.is_deep else None

    def drop_paged(self, kind: EventKind) -> int:
        """See `Queue`."""
        gone = self._log.drop_paged()
        self._tell_gone(kind, gone)
        return sum(map(len, gone))

    def _tell_gone(self, kind: EventKind, gone: list[range], **detail: object) -> None:
        if self.broker.listeners:
            for ids in gone:
                self.broker.emit_run(kind, self, ids, IN_JOURNAL, **detail)

    def _page(self) -> None:
        """More came into memory than its share: old messages leave it."""
        pager, log = self.broker.pager, self._log
        self._looked_at = log.memory_octets
        durability = self.broker.durability
        if pager is None or not self.durable or (durability is not None and durability.is_behind):
            return
        share = pager.budget() // 2  # the other half is for windows
        if log.memory_octets > share:
            log.page_out(share // 2)
            self._looked_at = log.memory_octets

    def is_hungry(self) -> bool:
        """See `Queue`."""
        return bool(self._starved)

    def load(self) -> None:
        """See `Queue`: the next window of the consumer that waits longest."""
        consumer = next(iter(self._starved))
        del self._starved[consumer]
        offset = self._position(consumer)
        log, pager = self._log, self.broker.pager
        if consumer not in self._seen or offset >= log.memory_offset:
            return
        for window in self._windows.values():
            if window.read(offset, 1):
                self._windows[consumer] = window
                return
        assert pager is not None
        octets = min(WINDOW_OCTETS, pager.budget() // 2 // (len(self._windows) + 1))
        messages: list[Message] = []
        for ids in log.paged(offset, WINDOW_MESSAGES, octets):
            messages += messages_of(ids, pager.load(ids))
        for at, message in enumerate(messages):
            tell_offset(message, offset + at)
        self._windows[consumer] = Window(offset, messages)

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
        wall_ms = self.broker.clock.wall_ms()
        for offset, blob in enumerate(blobs):
            self.append(Message(first_id + offset, blob, envelope), wall_ms)
        self.broker.mark(self)
        return ()

    def place_due(self, messages: list[Message]) -> None:
        """Delayed messages arrive when they are due."""
        self._chunk_offset = self._log.next_offset
        wall_ms = self.broker.clock.wall_ms()
        for message in messages:
            self.append(Message(message.id, message.blob, message.envelope), wall_ms)

    def append(self, message: Message, wall_ms: int) -> None:
        """A message that came at that time."""
        log = self._log
        if log.add(message, wall_ms):
            self._retain()
        if log.memory_octets - self._looked_at >= LOOK_OCTETS:
            self._page()

    def _retain(self) -> None:
        """A segment is full: those that are too old or too many go."""
        log = self._log
        now_ms = self.broker.clock.wall_ms()
        while (oldest := log.oldest()) is not None:
            if self._max_octets is not None and log.octets > self._max_octets:
                self.counters.dropped += oldest.count
                kind = EventKind.DROPPED
            elif self._max_age_ms is not None and oldest.last_ms < now_ms - self._max_age_ms:
                self.counters.expired += oldest.count
                kind = EventKind.EXPIRED
            else:
                break
            self._tell_gone(kind, log.drop_oldest(), reason=MAXLEN if kind is EventKind.DROPPED else EXPIRED)
            self._looked_at = min(self._looked_at, log.memory_octets)

    # -- back -------------------------------------------------------------------------------------------------------

    def requeue(self, messages: list[Message], *, why: str, counted: bool = False, delayed: bool = False) -> None:
        """Deliveries came back. The log has them all the time; whoever wants them again says from where."""
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
        if offset >= self._log.memory_offset:
            self._windows.pop(consumer, None)
            return self._log.read(offset, count)
        window = self._windows.get(consumer)
        found = window.read(offset, count) if window is not None else []
        if not found:
            self._windows.pop(consumer, None)
            self._starved[consumer] = None
            self.broker.hungry[self] = None
        return found

    def add_consumer(self, consumer: Consumer) -> None:
        """It begins where its argument says; that it wants to be exclusive is passed over. Raises: nothing."""
        consumer.exclusive = False
        rota.join(self, consumer)
        self._seen[consumer] = self._start(consumer)

    def remove_consumers(self, consumers: Sequence[Consumer]) -> None:
        """Their places are forgotten."""
        for consumer in consumers:
            self._windows.pop(consumer, None)
        super().remove_consumers(consumers)

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
