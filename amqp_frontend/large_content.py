"""Content frames of one large message for another channel, or of other sizes, in parts that are slices of its blob.

Nothing of the body is copied here; a body in many small frames is, once, because their heads would weigh more.
Source: AMQP 0-9-1 4.2.3, 4.2.6.
"""

from collections.abc import Iterable, Sequence

from .gathered import Octets
from .wire import BODY, FRAME_END_OCTET, FRAME_HEAD, FRAME_OVERHEAD, HEADER, frame

#: Blobs with less are copied as a whole when something about their frames has to change.
LARGE = 64 * 1024
#: Frames that are smaller on average are copied, to be patched in place: slices cost more.
FRAME_MIN = 8 * 1024


def on_channel(blob: bytes, channel: int) -> Sequence[Octets]:
    """A blob of `ContentFraming` as frames on another channel."""
    number = channel.to_bytes(2, "big")
    starts = _frame_starts(blob)
    if len(blob) < len(starts) * FRAME_MIN:
        patched = bytearray(blob)
        for start in starts:
            patched[start + 1 : start + 3] = number
        return (patched,)
    view = memoryview(blob)
    parts: list[Octets] = []
    for start, end in zip(starts, [*starts[1:], len(blob)]):
        parts += (blob[start : start + 1] + number, view[start + 3 : end])
    return parts


def body_parts(blob: bytes) -> tuple[bytes, list[memoryview]]:
    """A blob of `ContentFraming`: the payload of its header frame, and those of its body frames as slices."""
    view = memoryview(blob)
    header_end = 7 + int.from_bytes(blob[3:7], "big")
    starts = _frame_starts(blob)[1:]
    ends = [*starts[1:], len(blob)] if starts else []
    return blob[7:header_end], [view[start + 7 : end - 1] for start, end in zip(starts, ends)]


def framed(channel: int, header: bytes, body: Iterable[memoryview], frame_max: int) -> list[Octets]:
    """As `content_frames`, of a body in slices."""
    payload_max = frame_max - FRAME_OVERHEAD
    body = list(body)
    left = sum(map(len, body))
    parts: list[Octets] = [frame(HEADER, channel, header)]
    room = 0  # of the body frame that is being filled
    for piece in body:
        at = 0
        while at < len(piece):
            if not room:
                room = min(payload_max, left)
                parts.append(FRAME_HEAD.pack(BODY, channel, room))
            taken = piece[at : at + room]
            at, room, left = at + len(taken), room - len(taken), left - len(taken)
            parts.append(taken)
            if not room:
                parts.append(FRAME_END_OCTET)
    return parts


def _frame_starts(blob: bytes) -> list[int]:
    starts = []
    position, size = 0, len(blob)
    while position < size:
        starts.append(position)
        position += FRAME_OVERHEAD + int.from_bytes(blob[position + 3 : position + 7], "big")
    return starts
