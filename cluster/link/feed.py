"""The octets that one follower has not got yet: from memory while it keeps up, else from the leader's files. Pure.

    position            start of the queue        tail
    |--- from files ----|------- in memory -------|

`written` moves the tail. A queue that would exceed its limit is dropped, and its octets are read from the files. When
little is left to read, octets that are written later are queued again: so nothing is missed where files and memory
meet, and nothing is sent twice.
"""

from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

from .frames import PIECE_MAX, Unlink, encode, octets_head

#: If fewer octets than this have to be read, all in the open segment, later octets are queued.
NEAR = 8 * 1024 * 1024
#: Frames are sent together up to this many octets, and this many parts: `sendmsg` takes 1024 on Linux.
BATCH = 256 * 1024
PARTS_MAX = 512


class Position(NamedTuple):
    """The position of an octet in a journal: base LSN of the segment, and offset in its file."""

    base_lsn: int
    offset: int


@dataclass(slots=True)
class _Piece:
    """Octets of one write. `sent`: the number of them that have been sent."""

    base_lsn: int
    offset: int
    octets: bytes | bytearray | memoryview
    sent: int = 0


class Feed:
    """Keeps the octets between a follower's position and the tail of the journal, or where to read them."""

    __slots__ = ("_limit", "_queue", "_start", "is_queued", "position", "queued_octets", "tail")

    def __init__(self, position: Position, tail: Position, limit: int) -> None:
        self.position = position  # of the next octet to be sent
        self.tail = tail  # behind the last octet that is written
        self.queued_octets = 0
        self.is_queued = False  # octets that are written later are queued
        self._start = tail  # of the queue
        self._limit = limit
        self._queue: deque[_Piece | Unlink] = deque()
        self._queue_if_near()

    def written(self, base_lsn: int, offset: int, octets: bytes | bytearray | memoryview) -> None:
        """Note octets that the journal's writer appended. Cost: 1 us."""
        size = len(octets)
        tail = self.tail
        end = Position(base_lsn, offset + size)
        if end <= tail:
            return  # written before this feed began
        follows = offset == tail.offset if base_lsn == tail.base_lsn else offset == 0
        self.tail = end
        if self.is_queued and follows and self.queued_octets + size <= self._limit:
            self._queue.append(_Piece(base_lsn, offset, octets))
            self.queued_octets += size
        else:
            self._drop_queue()

    def skip_to(self, tail: Position) -> None:
        """Move the tail. The octets before it have to be read from the files."""
        if tail > self.tail:
            self.tail = tail
            self._drop_queue()

    def put(self, message: Unlink) -> None:
        """Queue a message. It is sent after everything written before this call, perhaps also after later octets."""
        self._queue.append(message)

    @property
    def to_read(self) -> tuple[Position, Position] | None:
        """The start and end of what has to be read from the files next; None: the queue is next."""
        return (self.position, self._start) if self.position < self._start else None

    def was_read(self, end: Position) -> None:
        """Note that the octets up to `end` were read from the files, and are being sent."""
        assert self.position < end <= self._start
        self.position = end
        self._queue_if_near()

    def take_frames(self) -> list[bytes | memoryview]:
        """Remove the next frames from the queue, about `BATCH` octets. Returns their parts; empty: there are none."""
        if self.to_read is not None:
            return []
        queue = self._queue
        parts: list[bytes | memoryview] = []
        size = 0
        while queue and size < BATCH and len(parts) < PARTS_MAX:
            first = queue[0]
            if not isinstance(first, _Piece):
                queue.popleft()
                parts.append(encode(first))
                continue
            octets = memoryview(first.octets)[first.sent : first.sent + PIECE_MAX]
            parts.append(octets_head(first.base_lsn, first.offset + first.sent, len(octets)))
            parts.append(octets)
            size += len(octets)
            first.sent += len(octets)
            self.position = self._start = Position(first.base_lsn, first.offset + first.sent)
            if first.sent == len(first.octets):
                queue.popleft()
                self.queued_octets -= len(first.octets)
        return parts

    def _drop_queue(self) -> None:
        """Drop queued octets: everything that is not sent yet is read from the files."""
        self._queue = deque(one for one in self._queue if not isinstance(one, _Piece))
        self.queued_octets = 0
        self.is_queued = False
        self._start = self.tail
        self._queue_if_near()

    def _queue_if_near(self) -> None:
        """Queue octets that are written later, if little is left to read from the files."""
        position, tail = self.position, self.tail
        if not self.is_queued and position.base_lsn == tail.base_lsn and tail.offset - position.offset <= NEAR:
            self.is_queued = True
