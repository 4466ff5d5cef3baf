"""The parts of streams: a log that consumers read from an offset of their choice, without removing messages.

Settling a delivery gives a consumer credit and has no other effect. A message gets its offset as a header when it
arrives. With a journal only the newest messages stay in memory. A consumer that reads older ones has a window, which is
filled between turns (`Scheduler.load`). A message is delivered only when it is on disk, so that no offset is used twice
(docs/decisions/0018-safe-offsets.md). Of the rules for queues only `x-max-age` and `x-max-length-bytes` apply. Source:
behaviour page 3.7; queues page F.
"""

from collections import deque
from collections.abc import Generator, Sequence
from operator import length_hint
from typing import TYPE_CHECKING, NamedTuple

from ..delivery.consumer import Consumer
from ..messages.content import OFFSET
from ..messages.dead_letter import EXPIRED, MAXLEN
from ..messages.field_table import Field, FieldTable, integer_of
from ..messages.message import Envelope, Message
from ..rules.arguments import AGO, AT_OFFSET, AT_TIME, FIRST, LAST, age_ms, start_of
from ..stores.stream_store import SEGMENT_OCTETS_DEFAULT, Segment, StreamStore
from . import scheduled
from .classic import ClassicSettlement
from .declaration import Declaration
from .non_destructive import BATCH, LogDispatch, ReadPositions
from .parts import Intake

if TYPE_CHECKING:
    from .queue import Queue
    from .restore import Restorer

#: Key of the notes for the journal.
FIRST_OFFSET = "leveret first-offset"
#: Reason in the events of a delayed message that is due: it leaves the queue, and is published again.
DUE = "due"
#: Minimum number of segments of a bounded stream without a declared segment size, so that it exceeds its bound by at
#: most an eighth. RabbitMQ may exceed the bound more.
SEGMENTS_MIN = 8


class LogEnd:
    """The end of the part of a log that consumers may read.

    `chunk_offset`: the offset of the first message of the last run (RabbitMQ: the last chunk).
    `_safe_offset`: messages below it are on disk.
    `_unsafe`: pairs (LSN, offset), rising: messages below the offset are on disk when the journal is safe up to the
    LSN.
    """

    def __init__(self, log: StreamStore) -> None:
        self._log = log
        self.chunk_offset = 0
        self._safe_offset = 0
        self._unsafe: deque[tuple[int, int]] = deque()

    def restored(self, queue: "Queue") -> None:
        """Begin after a restart. The last message counts as the last run, because runs are not recorded."""
        end, durability = self._log.next_offset, queue.context.broker.storage.durability
        self.chunk_offset = max(end - 1, self._log.first_offset)
        if durability is None or not durability.delays_deliveries:  # else other nodes of the cluster may lack them
            self._safe_offset = end

    def advance_safe_offset(self, queue: "Queue") -> int:
        """Advance the offset below which all messages are on disk, and return it.

        If later messages are not on disk yet, the queue is dispatched again when they are.
        """
        durability, end, unsafe = queue.context.broker.storage.durability, self._log.next_offset, self._unsafe
        if durability is None:
            return end
        while unsafe and unsafe[0][0] <= durability.safe_lsn:
            self._safe_offset = unsafe.popleft()[1]
        if end > (unsafe[-1][1] if unsafe else self._safe_offset):
            sync_lsn = durability.sync_lsn_of_all()
            if sync_lsn:
                unsafe.append((sync_lsn, end))
            elif not unsafe:
                self._safe_offset = end  # all are on disk; or the disk is full, and consumers may read on
        if unsafe:
            queue.context.broker.scheduler.await_journal(queue)
        return self._safe_offset


class Retention(NamedTuple):
    """The limits of a stream; None: no such limit."""

    max_octets: int | None
    max_age_ms: int | None

    @classmethod
    def of(cls, effective: FieldTable) -> "Retention":
        """The limits in the arguments and the policy of a stream."""
        age = effective.get("x-max-age")
        max_age_ms = age_ms(age.value) if age is not None and isinstance(age.value, bytes) else None
        return cls(integer_of(effective, "x-max-length-bytes"), max_age_ms)

    def reason(self, oldest: Segment, octets: int, now_ms: int) -> str | None:
        """Why the oldest segment of a log with these octets is dropped; None: it stays."""
        if self.max_octets is not None and octets > self.max_octets:
            return MAXLEN
        if self.max_age_ms is not None and oldest.last_ms < now_ms - self.max_age_ms:
            return EXPIRED
        return None


def forecast(queue: "Queue", declaration: Declaration) -> Generator[None, None, int]:
    """Count the messages of a stream that another declaration would drop at once."""
    yield from ()  # a generator, like the forecasts of other kinds, which work in steps
    intake = queue.intake
    return intake.forecast(queue, declaration.effective) if isinstance(intake, StreamIntake) else 0


class StreamIntake(Intake):
    """Appends all messages to the log. Drops old segments by age and by octets."""

    def __init__(self, queue: "Queue", log: StreamStore, end: LogEnd) -> None:
        self._log = log
        self._end = end
        self._read_limits(queue)

    def message_for(self, queue: "Queue", id_: int, content: bytes, envelope: Envelope) -> Message:
        return queue.store.new_message(id_, content, envelope)

    def admit(
        self, queue: "Queue", first_id: int, envelope: Envelope, contents: Sequence[bytes], due_ns: int | None
    ) -> Sequence[int]:
        if due_ns is not None:
            for index, content in enumerate(contents):
                scheduled.schedule_new(queue, Message(first_id + index, content, envelope), due_ns)
            scheduled.await_due(queue)
            return ()
        queue.events.enqueued_run(first_id, envelope, contents)
        self._end.chunk_offset = self._log.next_offset
        wall_ms = queue.context.broker.clock.wall_ms()
        for index, content in enumerate(contents):
            self.append(queue, Message(first_id + index, content, envelope), wall_ms)
        queue.mark()
        return ()

    def place_due(self, queue: "Queue", messages: list[Message]) -> None:
        """Publish due messages again with new ids, because a restart derives offsets from the order of ids."""
        queue.events.purged(messages, reason=DUE)
        for message in messages:
            queue.context.queues.publish_again(queue, message, DUE)

    def append(self, queue: "Queue", message: Message, wall_ms: int) -> None:
        """Append a message that arrived at `wall_ms`. If it fills a segment, old segments may be dropped."""
        if self._log.add(message, wall_ms):
            self._retain(queue)
        self._log.measure()

    def rules_changed(self, queue: "Queue") -> None:
        """Apply other limits of age and octets."""
        self._read_limits(queue)
        self._retain(queue)

    def restore(self, queue: "Queue", restorer: "Restorer") -> None:
        restorer.restore_stream(queue, self, self._log)

    def restored(self, queue: "Queue") -> None:
        self._end.restored(queue)

    def _read_limits(self, queue: "Queue") -> None:
        """Read the limits from the declared arguments and the policy."""
        effective = queue.declaration.effective
        self._retention = Retention.of(effective)
        segment = integer_of(effective, "x-stream-max-segment-size-bytes")
        if segment is None:
            segment = SEGMENT_OCTETS_DEFAULT
            if self._retention.max_octets is not None:
                segment = min(segment, self._retention.max_octets // SEGMENTS_MIN)
        self._log.segment_octets_max = segment

    def _retain(self, queue: "Queue") -> None:
        """Drop the oldest segments while they are too old, or the log has too many octets."""
        log = self._log
        now_ms = queue.context.broker.clock.wall_ms()
        while (oldest := log.oldest()) is not None:
            reason = self._retention.reason(oldest, log.octets, now_ms)
            if reason is None:
                break
            queue.events.segment_dropped(log.drop_oldest(), oldest.count, reason)

    def forecast(self, queue: "Queue", effective: FieldTable) -> int:
        """Count the messages that `rules_changed` would drop with these arguments."""
        retention, now_ms = Retention.of(effective), queue.context.broker.clock.wall_ms()
        dropped, octets = 0, self._log.octets
        for segment in self._log.older_segments():
            if retention.reason(segment, octets, now_ms) is None:
                break
            dropped, octets = dropped + segment.count, octets - segment.octets
        return dropped


class StreamDispatch(LogDispatch[StreamStore]):
    """Each consumer reads from its offset to the end."""

    def __init__(self, positions: ReadPositions, log: StreamStore, end: LogEnd) -> None:
        super().__init__(positions, log)
        self._end = end

    def joined(self, queue: "Queue", consumer: Consumer) -> None:
        """The consumer begins at the offset that its x-stream-offset argument names."""
        self._positions.seen[consumer] = self._first_offset_of(queue, consumer)

    def _first_offset_of(self, queue: "Queue", consumer: Consumer) -> int:
        start, log = start_of(consumer.arguments.get(OFFSET)), self._log
        assert start is not None  # checked when it subscribed
        if start.kind == FIRST:
            return log.first_offset
        if start.kind == LAST:
            return max(self._end.chunk_offset, log.first_offset)
        if start.kind == AT_OFFSET:
            return start.value
        if start.kind == AT_TIME:
            return log.offset_at(start.value)
        if start.kind == AGO:
            return log.offset_at(queue.context.broker.clock.wall_ms() - start.value)
        return log.next_offset

    def pop(self, queue: "Queue") -> Message | None:
        raise AssertionError("a client cannot get messages of a stream")

    def _position(self, consumer: Consumer) -> int:
        return max(self._positions.seen.get(consumer, 0), self._log.first_offset)

    def _next_for(self, queue: "Queue", consumer: Consumer, count: int) -> list[Message]:
        if count <= 0:
            return []
        offset = self._position(consumer)
        count_max = self._end.advance_safe_offset(queue) - offset
        if count_max <= 0:
            return []
        found = self._read(queue, consumer, offset, min(count_max, count if consumer.filter is None else BATCH))
        messages = iter(found)
        copies, _ = self._copies_for(queue, consumer, messages, count)
        self._positions.seen[consumer] = offset + len(found) - length_hint(messages)  # of a list: how many are left
        return copies

    def _read(self, queue: "Queue", consumer: Consumer, offset: int, count: int) -> list[Message]:
        """Read from memory or the consumer's window. Empty: messages have to be read back; a dispatch follows."""
        found = self._log.read_for(consumer, offset, count)
        if not found and offset < self._log.memory_offset:
            self._positions.waiting[consumer] = None
            queue.context.broker.scheduler.load_later(queue)
        return found


class StreamSettlement(ClassicSettlement):
    """Keeps all messages. To get a message again, a consumer subscribes at its offset."""

    def acknowledged(self, queue: "Queue", messages: Sequence[Message]) -> None:
        queue.events.acked(messages, kept=True)

    def requeue(
        self, queue: "Queue", messages: list[Message], why: str, *, counted: bool, with_redelivery_delay: bool
    ) -> None:
        for message in messages:
            message.holder = None

    def reject(self, queue: "Queue", messages: list[Message], reason: str) -> None:
        raise AssertionError("a client cannot reject messages of a stream")


def notes_of(queue: "Queue", is_whole: bool) -> FieldTable:
    """The offset of a stream's oldest message, for the journal."""
    first_offset = queue.first_offset
    return {FIRST_OFFSET: Field("l", first_offset)} if first_offset else {}
