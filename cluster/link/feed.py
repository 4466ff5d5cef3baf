"""The octets that one follower has yet to get: from memory while it keeps up, else from the leader's files. Pure.

    position            start of the queue        tail
    |--- from files ----|------- in memory -------|

`written` moves the tail. When the queue would exceed its limit, it is dropped, and the octets are read from the files.
Memory is used again as soon as little is left to be read, so that octets which are written meanwhile wait in the queue:
nothing is missed where files and memory meet, and nothing comes twice.
"""

from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

from .frames import PIECE_MAX, Needs, Unlink, encode, octets_head

#: Octets to be read from the open segment below which later ones are put into the queue.
NEAR = 8 * 1024 * 1024
#: Octets of frames that are sent together, and parts of them: a system takes 1024 parts in one call.
BATCH = 256 * 1024
PARTS_MAX = 512


class Position(NamedTuple):
    """An octet of a journal: base LSN of its segment, and offset in that file."""

    base_lsn: int
    offset: int


@dataclass(slots=True)
class _Piece:
    """Octets that were written. `taken`: how many of them have been sent."""

    base_lsn: int
    offset: int
    octets: bytes | bytearray | memoryview
    taken: int = 0


class Feed:
    """The octets between a follower's position and the tail of the journal."""

    __slots__ = ("_limit", "_queue", "_start", "is_queued", "position", "queued_octets", "tail")

    def __init__(self, position: Position, tail: Position, limit: int) -> None:
        self.position = position  # of the next octet to be sent
        self.tail = tail  # behind all that is written
        self.queued_octets = 0
        self.is_queued = False  # later octets are put into the queue
        self._start = tail  # of the queue
        self._limit = limit
        self._queue: deque[_Piece | Unlink | Needs] = deque()
        self._queue_if_near()

    def written(self, base_lsn: int, offset: int, octets: bytes | bytearray | memoryview) -> None:
        """The journal's writer appended octets. Cost: 1 us."""
        size = len(octets)
        tail = self.tail
        end = Position(base_lsn, offset + size)
        if end <= tail:
            return  # it was written before this feed began
        follows = offset == tail.offset if base_lsn == tail.base_lsn else offset == 0
        self.tail = end
        if self.is_queued and follows and self.queued_octets + size <= self._limit:
            self._queue.append(_Piece(base_lsn, offset, octets))
            self.queued_octets += size
        else:
            self._drop_queue()

    def skip_to(self, tail: Position) -> None:
        """Move the tail without the octets before it, which the files have."""
        if tail > self.tail:
            self.tail = tail
            self._drop_queue()

    def put(self, message: Unlink | Needs) -> None:
        """Send a message behind all that was written before. It may come later than what is written after it."""
        self._queue.append(message)

    @property
    def to_read(self) -> tuple[Position, Position] | None:
        """From where to where the files have to be read next; None: the queue goes on."""
        return (self.position, self._start) if self.position < self._start else None

    def was_read(self, end: Position) -> None:
        """The octets up to `end` were read from the files, and are sent."""
        assert self.position < end <= self._start
        self.position = end
        self._queue_if_near()

    def take(self) -> list[bytes | memoryview]:
        """The next frames from the queue, about `BATCH` octets, in parts; empty: there are none."""
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
            octets = memoryview(first.octets)[first.taken : first.taken + PIECE_MAX]
            parts.append(octets_head(first.base_lsn, first.offset + first.taken, len(octets)))
            parts.append(octets)
            size += len(octets)
            first.taken += len(octets)
            self.position = self._start = Position(first.base_lsn, first.offset + first.taken)
            if first.taken == len(first.octets):
                queue.popleft()
                self.queued_octets -= len(first.octets)
        return parts

    def _drop_queue(self) -> None:
        """Read from the files whatever was not sent yet."""
        self._queue = deque(one for one in self._queue if not isinstance(one, _Piece))
        self.queued_octets = 0
        self.is_queued = False
        self._start = self.tail
        self._queue_if_near()

    def _queue_if_near(self) -> None:
        """Queue the octets that are written later, if little is left to be read."""
        position, tail = self.position, self.tail
        if not self.is_queued and position.base_lsn == tail.base_lsn and tail.offset - position.offset <= NEAR:
            self.is_queued = True
