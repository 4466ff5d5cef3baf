"""Large messages as output: content frames in parts that are slices of a content, sent without joining them.

Small parts are joined, because an entry of a vector costs about as much as copying some KiB; so are the frames of a
body in many small frames, because their heads would cost more.
Source: AMQP 0-9-1 4.2.3, 4.2.6; sendmsg(2), "msg_iov"; benchmarks/README.md, "Large bodies".
"""

import os
from collections.abc import Iterable, Sequence
from typing import Protocol

from .layout import BODY, FRAME_END_OCTET, FRAME_HEAD, FRAME_OVERHEAD, HEADER, frame

#: Types of output.
Octets = bytes | bytearray | memoryview

#: Octets below which parts are joined with their neighbors, up to `JOINED_MAX` octets.
PART_MIN = 8 * 1024
JOINED_MAX = 128 * 1024
#: Average octets of a part from which output is sent as a vector.
AVERAGE_MIN = 8 * 1024
#: Entries of a vector in one call of the kernel.
ENTRIES_MAX = min(os.sysconf("SC_IOV_MAX"), 1024) if "SC_IOV_MAX" in getattr(os, "sysconf_names", {}) else 16


class Vectored(Protocol):
    """The method of a non-blocking socket that `Gathered` calls."""

    def sendmsg(self, buffers: Sequence[Octets], /) -> int:
        """Raises: BlockingIOError, OSError."""


class Gathered:
    """Parts that are sent to a socket; sent ones are freed at once. `sent`: octets sent."""

    __slots__ = ("_entries", "sent")

    def __init__(self, parts: Sequence[Octets]) -> None:
        self._entries = joined(parts)
        self.sent = 0
        self._entries.reverse()  # the next one is last, so that removing it is cheap

    def send(self, sock: Vectored) -> bool:
        """Send what the kernel takes. Returns: whether it took all. Raises: OSError, also if it takes nothing."""
        entries = self._entries
        while entries:
            sent = sock.sendmsg(entries[: -ENTRIES_MAX - 1 : -1])
            self.sent += sent
            while entries and sent >= len(entries[-1]):
                sent -= len(entries.pop())
            if sent:
                entries[-1] = memoryview(entries[-1])[sent:]
                return False
        return True


def joined(parts: Sequence[Octets]) -> list[Octets]:
    """The same octets, with small parts joined."""
    found: list[Octets] = []
    small: list[Octets] = []
    octets = 0
    for part in parts:
        size = len(part)
        if size < PART_MIN:
            if octets + size > JOINED_MAX:
                found.append(b"".join(small))
                small.clear()
                octets = 0
            small.append(part)
            octets += size
            continue
        if small:
            found.append(b"".join(small))
            small.clear()
            octets = 0
        found.append(part)
    if small:
        found.append(b"".join(small))
    return found


#: Octets below which a content is copied as a whole when its frames have to change.
LARGE = 64 * 1024
#: Average octets below which frames are copied and patched in place, because slices cost more.
FRAME_MIN = 8 * 1024


def for_channel(content: bytes, channel: int) -> Sequence[Octets]:
    """A content of `ContentFraming` as frames on another channel."""
    number = channel.to_bytes(2, "big")
    starts = _frame_starts(content)
    if len(content) < len(starts) * FRAME_MIN:
        patched = bytearray(content)
        for start in starts:
            patched[start + 1 : start + 3] = number
        return (patched,)
    view = memoryview(content)
    parts: list[Octets] = []
    for start, end in zip(starts, [*starts[1:], len(content)]):
        parts += (content[start : start + 1] + number, view[start + 3 : end])
    return parts


def body_parts(content: bytes) -> tuple[bytes, list[memoryview]]:
    """Payloads of a content of `ContentFraming`: of its header frame, and of its body frames as slices."""
    view = memoryview(content)
    header_end = 7 + int.from_bytes(content[3:7], "big")
    starts = _frame_starts(content)[1:]
    ends = [*starts[1:], len(content)] if starts else []
    return content[7:header_end], [view[start + 7 : end - 1] for start, end in zip(starts, ends)]


def framed(channel: int, header: bytes, body: Iterable[memoryview], frame_max: int) -> list[Octets]:
    """Like `layout.content_frames`, for a body in slices."""
    payload_max = frame_max - FRAME_OVERHEAD
    body = list(body)
    left = sum(map(len, body))
    parts: list[Octets] = [frame(HEADER, channel, header)]
    room = 0  # of the body frame that is being filled
    for piece in body:
        position = 0
        while position < len(piece):
            if not room:
                room = min(payload_max, left)
                parts.append(FRAME_HEAD.pack(BODY, channel, room))
            taken = piece[position : position + room]
            position, room, left = position + len(taken), room - len(taken), left - len(taken)
            parts.append(taken)
            if not room:
                parts.append(FRAME_END_OCTET)
    return parts


def _frame_starts(content: bytes) -> list[int]:
    starts = []
    position, size = 0, len(content)
    while position < size:
        starts.append(position)
        position += FRAME_OVERHEAD + int.from_bytes(content[position + 3 : position + 7], "big")
    return starts
