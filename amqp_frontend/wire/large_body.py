"""A large body while it comes: its frames are read to where they will stay, and only their heads are looked at.

A blob is content frames as they were received (`ContentFraming`), so what the socket gives is the blob. It is read into
one buffer of the announced size. The system gives memory to it page by page as it is written to: a body that is
announced and never sent takes none. Any frame that is not the next one of this body goes the careful way, which also
finds what is wrong with it. Source: AMQP 0-9-1 4.2.3, 4.2.6; benchmarks/README.md, "Large bodies".
"""

from enum import Enum, auto
from io import BytesIO

from .layout import BODY, FRAME_END, FRAME_HEAD, FRAME_OVERHEAD, HEADER, frame

#: Bodies of so many octets, in all, are read in this way.
LARGE_MIN = 32 * 1024
#: Body frames with less are joined (channel_reader.py): their heads would weigh more than they do.
PIECE_MIN = 1024
#: The most that one read of the socket brings: other connections have their turns in between.
STEP = 1024 * 1024


class Progress(Enum):
    """How far the frames go. OTHER: a frame that does not belong, or cannot stay as it is; EXCESS: see `look`."""

    WHOLE = auto()
    MORE = auto()
    OTHER = auto()
    EXCESS = auto()


WHOLE, MORE, OTHER, EXCESS = Progress


class LargeBody:
    """One on its way, on channel `number`. `capacity`: octets of its buffer.

    Up to `checked` there are whole frames; up to `filled` there is what came after them. Octets go to `room`, or
    through `put`; `look` says what they were.
    """

    __slots__ = ("_end", "_file", "_payload", "_payload_max", "_start", "_view", "checked", "filled", "number")

    def __init__(self, number: int, header: bytes, body_size: int, payload: int, payload_max: int) -> None:
        """Args:

        header: payload of the header frame. payload: octets in the first body frame, which those that follow are
            expected to have, too. payload_max: the most that any may have.
        Raises: MemoryError.
        """
        start = frame(HEADER, number, header)
        self._end = len(start) + _framed_size(body_size, payload)
        # `bytes` of zeros come from calloc, untouched. Nobody else refers to them, so the file gives them out for
        # writing, and in the end as they are: there is no other way to read into `bytes`.
        self._file = BytesIO(bytes(self._end))
        self._view = self._file.getbuffer()
        self._view[: len(start)] = start
        self.number = number
        self._payload = payload
        self._payload_max = payload_max
        self._start = self.checked = self.filled = len(start)

    @property
    def capacity(self) -> int:
        """Octets of its buffer."""
        return len(self._view)

    @property
    def room(self) -> memoryview:
        """Where the next octets belong; empty until `look` is called, if they are all there."""
        return self._view[self.filled : min(self._end, self.filled + STEP)]

    def put(self, data: memoryview) -> int:
        """Copy octets to where they belong. Returns: how many of them there was room for."""
        count = min(len(data), self._end - self.filled)
        self._view[self.filled : self.filled + count] = data[:count]
        self.filled += count
        return count

    def look(self, remaining: int, allowed: int) -> tuple[Progress, int]:
        """Look at the frames that have come.

        remaining: octets of payload missing at `checked`. allowed: how many of them may be in memory without the last.
        Returns: what now stands at `checked`, and what is missing there. EXCESS: more than allowed are in memory.
        """
        view, filled, at = self._view, self.filled, self.checked
        progress = MORE
        while filled - at >= FRAME_HEAD.size:
            kind, number, payload = FRAME_HEAD.unpack_from(view, at)
            if (
                kind != BODY
                or number != self.number
                or not stays(payload, remaining, self._payload_max)
                or at + _framed_size(remaining, payload) > len(view)
            ):
                progress = OTHER
                break
            self._payload = payload
            end = at + payload + FRAME_OVERHEAD
            if end > filled:
                break
            if view[end - 1] != FRAME_END:
                progress = OTHER
                break
            at = end
            remaining -= payload
            allowed -= payload
            if not remaining:
                progress = WHOLE
                break
            if allowed < 0:
                progress = EXCESS
                break
        self.checked = at
        self._end = min(at + _framed_size(remaining, self._payload), len(view))
        return progress, remaining

    def take_tail(self) -> bytes:
        """What came behind the frames that were looked at, taken out."""
        tail = bytes(self._view[self.checked : self.filled])
        self.filled = self.checked
        return tail

    def blob(self) -> bytes:
        """All frames; nothing can be added."""
        self._view.release()
        self._file.truncate(self.checked)
        return self._file.getvalue()

    def payloads(self) -> list[bytes]:
        """The payload of each body frame so far, copied."""
        found = []
        at = self._start
        while at < self.checked:
            end = at + FRAME_HEAD.size + int.from_bytes(self._view[at + 3 : at + 7], "big")
            found.append(bytes(self._view[at + FRAME_HEAD.size : end]))
            at = end + 1
        return found


def stays(payload: int, remaining: int, payload_max: int) -> bool:
    """Whether a body frame of so many octets can stay as it came, when `remaining` are missing."""
    return payload <= remaining and payload <= payload_max and (payload >= PIECE_MIN or payload == remaining)


def _framed_size(octets: int, payload: int) -> int:
    """Octets of frames that bring so many, `payload` in each."""
    return octets + FRAME_OVERHEAD * -(-octets // payload)
