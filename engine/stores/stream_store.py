"""The store of a stream: a log with offsets and times of arrival, which drops whole segments from its head.

The newest messages are in memory. Of all messages, memory has sizes, and runs of ids and of times: 4 octets a message,
and 16 a run. Source: behaviour page 3.7; queues page F.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar

from ..messages.content import OFFSET
from ..messages.field_table import Field, integer_of
from ..messages.message import Envelope, Message
from .memory_budget import OVERHEAD
from .paged_run import HEADER_OCTETS, IN_JOURNAL, Numbers, Part, messages_of
from .read_windows import SCANNING, Reader, ReadWindows
from .storage import StoreOwner, share_of_log
from .store import Dropped, Scanned, StoreInMemory

#: Maximum octets of a segment (RabbitMQ's default), and maximum messages.
SEGMENT_OCTETS_DEFAULT = 500_000_000
SEGMENT_MESSAGES_MAX = 256_000
#: Octets of new messages between two comparisons of memory with the share.
MEASURE_OCTETS = 1024 * 1024


class Segment:
    """A part of the log that is dropped as a whole."""

    __slots__ = ("count", "last_ms", "octets")

    def __init__(self) -> None:
        self.count = 0
        self.octets = 0
        self.last_ms = 0  # wall time of the last message's arrival


class StreamStore(StoreInMemory):
    """Message number i of the log has the offset `first_offset` + i; times never fall. See `Store`, `Log`.

    `add` appends a message. Only `drop_oldest` (a segment) and `drop_all` remove messages. A position is an offset plus
    one. `_messages`: the messages from the offset `memory_offset` on. `segment_octets_max`: of contents, in the current
    segment and later ones.
    """

    expiring: ClassVar[bool] = False
    body_octets: ClassVar[int] = 0  # not used: `octets` limits a stream
    next_expiry_ns: ClassVar[int] = 0  # messages of a stream do not expire individually

    first_offset: int  # type: ignore[misc] #: offset of the oldest message, or of the next one if it is empty

    _messages: list[Message]

    def __init__(self, owner: StoreOwner) -> None:
        super().__init__(owner)
        self._storage = owner.storage
        self.segment_octets_max = SEGMENT_OCTETS_DEFAULT
        self._windows = ReadWindows(owner.storage)  # of messages that were read back, by position
        self.start(0)

    def start(self, first_offset: int) -> None:
        """Make the log empty, with this offset for the next message."""
        self.first_offset = self.memory_offset = first_offset
        self.octets = self.memory_octets = 0
        self._measured_at = 0  # `memory_octets` at the last comparison with the share
        self._messages = []
        self._windows.clear()
        self._sizes = array("I")  # octets of each body
        self._run_offsets, self._run_ids = array("q"), array("q")  # starts of runs whose ids rise by one
        self._time_offsets, self._times_ms = array("q"), array("q")  # offsets at which the time of arrival changes
        self._time_of: Callable[[int], int] | None = None  # id -> ms, for messages before the first of these offsets
        self._segments: deque[Segment] = deque([Segment()])

    def __len__(self) -> int:
        return len(self._sizes)

    @property
    def is_deep(self) -> bool:
        return self.memory_offset > self.first_offset

    has_tail = is_deep

    def paged_sizes(self, parts: Iterable[Part | Message]) -> Iterable[tuple[int, int, bool]]:
        return ()  # no meter counts a stream

    @property
    def held_octets(self) -> int:
        return self.memory_octets + OVERHEAD * len(self._messages)

    @property
    def next_offset(self) -> int:
        return self.first_offset + len(self._sizes)

    # -- in -----------------------------------------------------------------------------------------------------------

    def add(self, message: Message, wall_ms: int) -> bool:
        """Append a message that arrived at `wall_ms`, with its offset added as a header. The caller calls `measure`.

        Returns: whether this fills a segment.
        """
        offset = self.next_offset
        times, segment = self._times_ms, self._segments[-1]
        wall_ms = max(wall_ms, times[-1]) if times else wall_ms
        if not times or wall_ms > times[-1]:
            self._time_offsets.append(offset)
            times.append(wall_ms)
        self._note_id(offset, message.id)
        self._sizes.append(message.envelope.framing.body_size(message.content))
        add_offset(message, offset)
        self._messages.append(message)
        size = len(message.content)
        self.memory_octets += size
        segment.last_ms = wall_ms
        return self._grow(segment, 1, size)

    def _note_id(self, offset: int, id_: int) -> None:
        starts, ids = self._run_offsets, self._run_ids
        if not ids or ids[-1] + offset - starts[-1] != id_:
            starts.append(offset)
            ids.append(id_)

    def _grow(self, segment: Segment, count: int, octets: int) -> bool:
        segment.count += count
        segment.octets += octets
        self.octets += octets
        if segment.octets < self.segment_octets_max and segment.count < SEGMENT_MESSAGES_MAX:
            return False
        self._segments.append(Segment())
        return True

    def restore(self, first_id: int, sizes: Sequence[int]) -> None:
        """Append a run of messages of the journal, before any other message is added."""
        assert not self._messages
        self._note_id(self.next_offset, first_id)
        self._sizes.extend(sizes)
        start = 0
        while start < len(sizes):
            segment = self._segments[-1]
            count = min(SEGMENT_MESSAGES_MAX - segment.count, len(sizes) - start)
            octets = sum(sizes[start : start + count]) + count * HEADER_OCTETS
            if segment.octets + octets > self.segment_octets_max:  # the segment ends within these messages
                count, octets = 1, sizes[start] + HEADER_OCTETS
            self._grow(segment, count, octets)
            start += count
        self.memory_offset = self.next_offset

    def restored(self, time_of: Callable[[int], int]) -> None:
        """End the calls of `restore`. `time_of(id)`: time of a message's arrival in wall ms, which may read a file."""
        self._time_of = time_of
        offset = self.first_offset
        for segment in self._segments:
            offset += segment.count
            if segment.count:
                segment.last_ms = time_of(self.id_at(offset - 1))

    # -- contents -----------------------------------------------------------------------------------------------------

    def read(self, offset: int, count: int) -> list[Message]:
        """Up to `count` messages from `offset` on, which must not be below `memory_offset`."""
        start = offset - self.memory_offset
        return self._messages[start : start + count]

    def id_at(self, offset: int) -> int:
        at = bisect_right(self._run_offsets, offset) - 1
        return self._run_ids[at] + offset - self._run_offsets[at]

    def paged(self, offset: int, count: int, octets: int) -> list[range]:
        """The ids of up to `count` paged-out messages and `octets` of body from an offset on, at least one message."""
        stop = min(offset + count, self.memory_offset)
        for at in range(offset - self.first_offset, stop - self.first_offset):
            octets -= self._sizes[at]
            if octets <= 0:
                stop = self.first_offset + at + 1
                break
        return [ids for _, ids in self._runs(offset, stop)]

    def paged_parts(self) -> list[Part | Message]:
        found: list[Part | Message] = []
        for offset, ids in self._runs(self.first_offset, self.memory_offset):
            start = offset - self.first_offset
            # A copy, because dropping a segment removes the head of the array.
            sizes = self._sizes[start : start + len(ids)]
            found.append(Part(ids, Numbers(sizes, 0, len(sizes)), None, None, IN_JOURNAL, 0, 0))
        return found

    def _runs(self, start: int, stop: int) -> list[tuple[int, range]]:
        """(offset, ids) of the runs between two offsets whose ids rise by one."""
        runs: list[tuple[int, range]] = []
        at = bisect_right(self._run_offsets, start) - 1
        while start < stop:
            end = self._run_offsets[at + 1] if at + 1 < len(self._run_offsets) else stop
            end = min(end, stop)
            first = self._run_ids[at] + start - self._run_offsets[at]
            runs.append((start, range(first, first + end - start)))
            start = end
            at += 1
        return runs

    def offset_at(self, wall_ms: int) -> int:
        """The offset of the first message that arrived at that time or later; `next_offset` if there is none.

        It may read a few records of messages that a restart restored.
        """
        known = self._time_offsets[0] if self._time_offsets else self.next_offset
        if self._time_of is not None and self.first_offset < known:
            time_of = self._time_of
            if time_of(self.id_at(known - 1)) >= wall_ms:
                offsets = range(self.first_offset, known)
                return offsets[bisect_left(offsets, wall_ms, key=lambda offset: time_of(self.id_at(offset)))]
        at = bisect_left(self._times_ms, wall_ms)
        return max(self._time_offsets[at], self.first_offset) if at < len(self._times_ms) else self.next_offset

    # -- reading for consumers ----------------------------------------------------------------------------------------

    def read_for(self, reader: Reader, offset: int, count: int) -> list[Message]:
        """Up to `count` messages from an offset on, from memory or the reader's window; none: `fill` has to read."""
        if offset >= self.memory_offset:
            self._windows.forget(reader)
            return self.read(offset, count)
        found = self._windows.find_run(reader, offset + 1, count)
        if not found:
            self._windows.forget(reader)
        return found

    def fill(self, reader: Reader, after: int) -> None:
        offset = max(after, self.first_offset)
        if offset >= self.memory_offset:
            return
        pager = self._storage.pager
        assert pager is not None

        def read(count: int, octets: int) -> dict[int, Message]:
            messages: list[Message] = []
            for ids in self.paged(offset, count, octets):
                messages += messages_of(ids, pager.load(ids))
            for at, message in enumerate(messages, offset):
                add_offset(message, at)
            return dict(enumerate(messages, offset + 1))

        self._windows.fill(reader, offset + 1, read)

    def forget(self, reader: Reader) -> None:
        self._windows.forget(reader)

    # -- out ----------------------------------------------------------------------------------------------------------

    def drop_all(self) -> Dropped:
        messages = self._messages
        runs: list[tuple[Sequence[int], Envelope]] = [
            (ids, IN_JOURNAL) for _, ids in self._runs(self.first_offset, self.memory_offset)
        ]
        self.start(self.next_offset)  # offsets continue
        return Dropped(messages, runs, [], 0)

    def measure(self) -> None:
        """Page out the oldest messages if those in memory exceed the share. Called after new messages."""
        if self.memory_octets - self._measured_at < MEASURE_OCTETS:
            return
        share = share_of_log(self._owner)
        if share is not None and self.memory_octets > share:
            self._page_out_oldest(share // 2)
        self._measured_at = self.memory_octets

    def _page_out_oldest(self, octets: int) -> None:
        """Drop the oldest messages from memory, until these octets are left. The journal has all of them."""
        count = 0
        for message in self._messages:
            if self.memory_octets <= octets:
                break
            self.memory_octets -= len(message.content)
            count += 1
        del self._messages[:count]
        self.memory_offset += count

    def oldest(self) -> Segment | None:
        """The segment to drop next; None: there is only the current one."""
        return self._segments[0] if len(self._segments) > 1 else None

    def older_segments(self) -> list[Segment]:
        """The segments that may be dropped, the oldest first."""
        return list(self._segments)[:-1]

    def drop_oldest(self) -> list[range]:
        """Drop the oldest segment. Returns the ids of its messages."""
        segment = self._segments.popleft()
        start, stop = self.first_offset, self.first_offset + segment.count
        gone = [ids for _, ids in self._runs(start, stop)]
        self.first_offset = stop
        self.octets -= segment.octets
        del self._sizes[: segment.count]
        in_memory = max(stop - self.memory_offset, 0)
        self.memory_octets -= sum(len(message.content) for message in self._messages[:in_memory])
        del self._messages[:in_memory]
        self.memory_offset += in_memory
        self._measured_at = min(self._measured_at, self.memory_octets)
        for offsets, values in ((self._run_offsets, self._run_ids), (self._time_offsets, self._times_ms)):
            before = bisect_right(offsets, stop) - 1  # the entry of the first remaining message
            if before > 0:
                del offsets[:before], values[:before]
        return gone

    # -- selection, browsing, replay ----------------------------------------------------------------------------------

    def position_of(self, message: Message) -> int:
        offset = integer_of(message.envelope.headers(message.content), OFFSET)
        assert offset is not None
        return offset + 1

    def scan(self, after: int, count: int) -> Scanned:
        offset = max(after, self.first_offset)
        found: list[tuple[int, Message]] = []
        while len(found) < count and offset < self.next_offset:
            if offset >= self.memory_offset:
                some = self.read(offset, count - len(found))
            else:
                some = self._windows.find_run(SCANNING, offset + 1, count - len(found))
            if not some:
                return Scanned(found, True)
            found += enumerate(some, offset + 1)
            offset += len(some)
        return Scanned(found, False)

    def load_at(self, after: int, count: int) -> None:
        self.fill(SCANNING, after)


def add_offset(message: Message, offset: int) -> None:
    """Add the header with a message's offset."""
    message.content = message.envelope.spliced(message.content, {OFFSET: Field("l", offset)})
    message.envelope = message.envelope.for_added_headers()
