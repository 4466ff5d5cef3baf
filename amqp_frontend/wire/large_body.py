"""A large body while it arrives: its frames are read into the final buffer, and only their heads are checked.

The engine keeps a content as the frames that were received (`ContentFraming`), so the octets of the socket are stored
as they are. They are read into one buffer of the announced size. The system assigns memory to it page by page as it is
written to: a body that is announced and never sent takes none. Any frame that is not the next one of this body is read
with all checks, which also find its errors. Source: AMQP 0-9-1 4.2.3, 4.2.6; benchmarks/README.md, "Large bodies".
"""

from enum import Enum, auto
from io import BytesIO

from .layout import BODY, FRAME_END, FRAME_HEAD, FRAME_OVERHEAD, HEADER, frame

#: Bodies of at least this many octets are read in this way.
LARGE_MIN = 32 * 1024
#: Body frames of fewer octets are joined (channel_reader.py): the heads of tiny frames would outweigh their payloads.
PIECE_MIN = 1024
#: Maximum octets of one read of the socket: other connections have their turns in between.
STEP = 1024 * 1024


class Progress(Enum):
    """Progress of a body. OTHER: the next frame is not one of this body, is damaged, or cannot be kept as it arrives.
    EXCESS: see `LargeBody.check`.
    """

    WHOLE = auto()
    MORE = auto()
    OTHER = auto()
    EXCESS = auto()


WHOLE, MORE, OTHER, EXCESS = Progress


class LargeBody:
    """A body that is arriving on channel `number`. `capacity`: octets of its buffer.

    Up to `checked` there are whole frames; up to `filled` there are octets after them. Octets are read into `room`, or
    added with `put`; `check` checks them.
    """

    __slots__ = ("_end", "_file", "_payload", "_payload_max", "_start", "_view", "checked", "filled", "number")

    def __init__(self, number: int, header: bytes, body_size: int, payload: int, payload_max: int) -> None:
        """Args:

        header: payload of the header frame. payload: octets in the first body frame, which the following ones are
            expected to have, too. payload_max: octets in any body frame at most.
        Raises: MemoryError.
        """
        start = frame(HEADER, number, header)
        self._end = len(start) + _framed_size(body_size, payload)
        # `bytes` of zeros come from calloc, untouched. There is no other reference to them, so `BytesIO` lets them be
        # written, and returns the same object at the end: there is no other way to read into `bytes`.
        self._file = BytesIO(bytes(self._end))
        self._view = self._file.getbuffer()
        self._view[: len(start)] = start
        self.number = number
        self._payload = payload
        self._payload_max = payload_max
        self._start = self.checked = self.filled = len(start)

    @property
    def capacity(self) -> int:
        """Octets of the buffer."""
        return len(self._view)

    @property
    def room(self) -> memoryview:
        """The part of the buffer for the next octets. Empty: all expected octets are there."""
        return self._view[self.filled : min(self._end, self.filled + STEP)]

    def put(self, data: memoryview) -> int:
        """Copy octets into the buffer. Returns: the number of octets that had room."""
        count = min(len(data), self._end - self.filled)
        self._view[self.filled : self.filled + count] = data[:count]
        self.filled += count
        return count

    def check(self, remaining: int, allowed: int) -> tuple[Progress, int]:
        """Check the frames that have arrived, and move `checked` after them.

        remaining: octets of payload missing at `checked`. allowed: octets that may still come while the body
            is incomplete.
        Returns: the progress, and the octets that are still missing. EXCESS: more than allowed are in memory.
        """
        view, filled, position = self._view, self.filled, self.checked
        progress = MORE
        while filled - position >= FRAME_HEAD.size:
            kind, number, payload = FRAME_HEAD.unpack_from(view, position)
            if (
                kind != BODY
                or number != self.number
                or not can_keep_frame(payload, remaining, self._payload_max)
                or position + _framed_size(remaining, payload) > len(view)
            ):
                progress = OTHER
                break
            self._payload = payload
            end = position + payload + FRAME_OVERHEAD
            if end > filled:
                break
            if view[end - 1] != FRAME_END:
                progress = OTHER
                break
            position = end
            remaining -= payload
            allowed -= payload
            if not remaining:
                progress = WHOLE
                break
            if allowed < 0:
                progress = EXCESS
                break
        self.checked = position
        self._end = min(position + _framed_size(remaining, self._payload), len(view))
        return progress, remaining

    def take_tail(self) -> bytes:
        """Remove and return the octets after the checked frames."""
        tail = bytes(self._view[self.checked : self.filled])
        self.filled = self.checked
        return tail

    def content(self) -> bytes:
        """Return all frames. Nothing can be added afterwards."""
        self._view.release()
        self._file.truncate(self.checked)
        return self._file.getvalue()

    def payloads(self) -> list[bytes]:
        """The payload of each body frame so far, copied."""
        found = []
        position = self._start
        while position < self.checked:
            end = position + FRAME_HEAD.size + int.from_bytes(self._view[position + 3 : position + 7], "big")
            found.append(bytes(self._view[position + FRAME_HEAD.size : end]))
            position = end + 1
        return found


def can_keep_frame(size: int, remaining: int, payload_max: int) -> bool:
    """Whether a body frame of `size` octets can be kept as it arrives, when `remaining` octets are missing."""
    return size <= remaining and size <= payload_max and (size >= PIECE_MIN or size == remaining)


def _framed_size(octets: int, payload: int) -> int:
    """Octets of the frames for a body of `octets`, with `payload` octets in each."""
    return octets + FRAME_OVERHEAD * -(-octets // payload)
