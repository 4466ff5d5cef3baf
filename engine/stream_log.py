"""The messages of a stream: a log with offsets and times of arrival, dropped from its head by whole segments."""

from bisect import bisect_left
from collections import deque

from .field_table import Field
from .kept_ready import KeptReady
from .message import Message
from .stream_offset import OFFSET

#: RabbitMQ's default; a segment also ends after so many messages.
SEGMENT_OCTETS_DEFAULT = 500_000_000
SEGMENT_MESSAGES_MAX = 256_000


class Segment:
    """A run of the log that goes as one."""

    __slots__ = ("count", "last_ms", "octets")

    def __init__(self) -> None:
        self.count = 0
        self.octets = 0
        self.last_ms = 0  # when its last message came


class StreamLog(KeptReady):
    """Message number i of the log has the offset `first_offset` + i; times never fall."""

    __slots__ = ("_segments", "_times_ms", "first_offset", "octets", "segment_octets_max")

    def __init__(self, first_offset: int = 0) -> None:
        super().__init__()
        self.first_offset = first_offset
        self.segment_octets_max = SEGMENT_OCTETS_DEFAULT
        self.octets = 0
        self._times_ms: list[int] = []
        self._segments: deque[Segment] = deque([Segment()])

    @property
    def next_offset(self) -> int:
        """Of the message that comes next."""
        return self.first_offset + len(self)

    def append(self, message: Message) -> None:
        """A message that comes back after a restart: when it came first is not known."""
        self.add(message, 0)

    def add(self, message: Message, wall_ms: int) -> bool:
        """At the end; the message tells its offset from now on. True when a segment is full."""
        times, segment = self._times_ms, self._segments[-1]
        wall_ms = max(wall_ms, times[-1]) if times else wall_ms
        message.blob = message.envelope.spliced(message.blob, {OFFSET: Field("l", self.next_offset)})
        message.envelope = message.envelope.plain()
        self._messages.append(message)
        times.append(wall_ms)
        size = len(message.blob)
        segment.count += 1
        segment.octets += size
        segment.last_ms = wall_ms
        self.octets += size
        if segment.octets < self.segment_octets_max and segment.count < SEGMENT_MESSAGES_MAX:
            return False
        self._segments.append(Segment())
        return True

    def read(self, offset: int, count: int) -> list[Message]:
        """Up to `count` messages from `offset` on, which is not below `first_offset`."""
        start = offset - self.first_offset
        return self._messages[start : start + count]

    def offset_at(self, wall_ms: int) -> int:
        """The first message that came at that time or later; `next_offset` when there is none."""
        return self.first_offset + bisect_left(self._times_ms, wall_ms)

    def oldest(self) -> Segment | None:
        """The segment that is the next to go; None: there is only the one that is written to."""
        return self._segments[0] if len(self._segments) > 1 else None

    def drop_oldest(self) -> list[Message]:
        """Drop a segment. Returns its messages."""
        segment = self._segments.popleft()
        gone = self._messages[: segment.count]
        del self._messages[: segment.count], self._times_ms[: segment.count]
        self.first_offset += segment.count
        self.octets -= segment.octets
        return gone
