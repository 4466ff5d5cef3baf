"""Frames as octets: constants, layouts, and the framing of stored content.

    0      1         3             7                  size+7  size+8
    +------+---------+-------------+------------------+-------+
    | type | channel | size        | payload          | 206   |
    +------+---------+-------------+------------------+-------+
Source: AMQP 0-9-1 4.2.3.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from struct import Struct

from ...engine import ContentColumns
from ...settings.slotted import slotted

METHOD, HEADER, BODY, HEARTBEAT = 1, 2, 3, 8
FRAME_END = 206
FRAME_END_OCTET = b"\xce"
FRAME_OVERHEAD = 8

PROTOCOL_HEADER = b"AMQP\x00\x00\x09\x01"
#: Protocol headers that are accepted: of 0-9-1, and of 0-9, which Perl's Net::AMQP sends. RabbitMQ accepts both.
HEADERS_ACCEPTED = frozenset({PROTOCOL_HEADER, b"AMQP\x01\x01\x00\x09"})
HEARTBEAT_FRAME = b"\x08\x00\x00\x00\x00\x00\x00\xce"

#: type, channel, payload size
FRAME_HEAD = Struct(">BHL")
#: type, channel, payload size, class and method id in one number
METHOD_HEAD = Struct(">BHLL")
#: type, channel, payload size, class, weight, body size
CONTENT_HEAD = Struct(">BHLHHQ")
FRAME_HEAD_SIZE, METHOD_HEAD_SIZE = FRAME_HEAD.size, METHOD_HEAD.size
#: Octets of a header frame before its property list.
HEADER_FIXED = CONTENT_HEAD.size
#: delivery tag, bits, frame end
ACK_TAIL = Struct(">QBB")
#: a whole basic.ack frame
ACK_FRAME = Struct(">BHLLQBB")
ACK_SIZE = ACK_FRAME.size
#: the delivery tag of such a frame
ACK_TAG = Struct(">11xQ2x")


def frame(kind: int, channel: int, payload: bytes) -> bytes:
    """One frame."""
    return FRAME_HEAD.pack(kind, channel, len(payload)) + payload + FRAME_END_OCTET


def content_frames(channel: int, header: bytes, body: bytes, frame_max: int) -> bytes:
    """Header and body frames of a content, none larger than `frame_max` octets in all."""
    frames = [frame(HEADER, channel, header)]
    payload_max = frame_max - FRAME_OVERHEAD
    for start in range(0, len(body), payload_max):
        frames.append(frame(BODY, channel, body[start : start + payload_max]))
    return b"".join(frames)


def around_body(channel: int, header: bytes, size: int) -> tuple[bytes, bytes]:
    """The octets before and after a body of `size` octets that fits into one frame. As `content_frames`."""
    start = frame(HEADER, channel, header)
    return (start + FRAME_HEAD.pack(BODY, channel, size), FRAME_END_OCTET) if size else (start, b"")


def plain_content_frames(channel: int, contents: Sequence[bytes], frame_max: int) -> list[bytes]:
    """Like `content_frames`, for a run of contents of the engine's framing. 0.3 us each if they are of one size.

    The first four octets of such a content are the size of its header, as in the head of a frame.
    """
    payload_max = frame_max - FRAME_OVERHEAD
    start = FRAME_HEAD.pack(HEADER, channel, 0)[:3]
    size, length, end = -1, b"", 0
    middle = tail = FRAME_END_OCTET
    join, found = b"".join, []
    for content in contents:
        if len(content) != size or not content.startswith(length):
            size, length = len(content), content[:4]
            end = 4 + int.from_bytes(length, "big")
            has_body = size > end
            middle = FRAME_END_OCTET + FRAME_HEAD.pack(BODY, channel, size - end) if has_body else FRAME_END_OCTET
            tail = FRAME_END_OCTET if has_body else b""
        if size - end <= payload_max:
            found.append(join((start, content[:end], middle, content[end:], tail)))
        else:
            found.append(content_frames(channel, content[4:end], content[end:], frame_max))
    return found


@slotted
class ContentFraming:
    """Contents that are content frames as they were received: header frame, then body frames, all on `channel`.

    They are sent unchanged on the same channel number to peers whose frame_max is no smaller.
    """

    channel: int
    frame_max: int

    def split(self, content: bytes) -> tuple[bytes, bytes]:
        """Header payload and body."""
        header_end = 7 + int.from_bytes(content[3:7], "big")
        header = content[7:header_end]
        position = header_end + 1
        if position == len(content):
            return header, b""
        body_end = position + 7 + int.from_bytes(content[position + 3 : position + 7], "big")
        if body_end + 1 == len(content):
            return header, content[position + 7 : body_end]
        parts = []
        while position < len(content):
            body_end = position + 7 + int.from_bytes(content[position + 3 : position + 7], "big")
            parts.append(content[position + 7 : body_end])
            position = body_end + 1
        return header, b"".join(parts)

    def body_size(self, content: bytes) -> int:
        """Octets of body, as the header announced them."""
        return int.from_bytes(content[11:19], "big")

    def body_sizes(self, contents: Sequence[bytes]) -> list[int]:
        return [int.from_bytes(content[11:19], "big") for content in contents]

    def columns(self, contents: Sequence[bytes]) -> ContentColumns:
        """See `Framing`. 0.2 us each when they are of one size, with headers of one size, and of one body frame."""
        first = contents[0]
        size, count = len(first), len(contents)
        header_size, body_size = int.from_bytes(first[3:7], "big"), int.from_bytes(first[11:19], "big")
        if size == header_size + body_size + 2 * FRAME_OVERHEAD and set(map(len, contents)) == {size}:
            fixed, properties, payloads = zip(*map(_parts(header_size, body_size), contents))
            if fixed.count(fixed[0]) == count:
                return ContentColumns(
                    (fixed, properties, payloads), [4 + header_size + body_size] * count, [body_size] * count
                )
        headers: list[bytes] = []
        bodies: list[bytes] = []
        for content in contents:
            header_end = 7 + int.from_bytes(content[3:7], "big")
            headers.append(content[3:header_end])
            if len(content) == header_end + FRAME_OVERHEAD + int.from_bytes(content[11:19], "big") + 1:
                bodies.append(content[header_end + 8 : -1])
            else:  # no body, or several frames
                bodies.append(self.split(content)[1])
        return ContentColumns.of(headers, bodies)

    def on_channel(self, content: bytes, channel: int) -> bytes:
        """The same frames on another channel."""
        number = channel.to_bytes(2, "big")
        header_end = 8 + int.from_bytes(content[3:7], "big")
        if header_end == len(content):
            return b"\x02" + number + content[3:]
        body_end = header_end + 8 + int.from_bytes(content[header_end + 3 : header_end + 7], "big")
        if body_end == len(content):  # one body frame, as most contents have
            return b"".join((b"\x02", number, content[3:header_end], b"\x03", number, content[header_end + 3 :]))
        patched = bytearray(content)
        position = 0
        while position < len(patched):
            patched[position + 1 : position + 3] = number
            position += 8 + int.from_bytes(patched[position + 3 : position + 7], "big")
        return bytes(patched)


@lru_cache(512)
def _parts(header_size: int, body_size: int) -> Callable[[bytes], tuple[bytes, bytes, bytes]]:
    """A function that cuts a header and a body frame into: header size up to body size, property list, body."""
    return Struct(f">3x16s{header_size - 12}s8x{body_size}sx").unpack
