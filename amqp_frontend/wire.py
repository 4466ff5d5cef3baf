"""Frames as octets: constants, layouts, and the framing of stored content.

    0      1         3             7                  size+7  size+8
    +------+---------+-------------+------------------+-------+
    | type | channel | size        | payload          | 206   |
    +------+---------+-------------+------------------+-------+
Source: AMQP 0-9-1 4.2.3.
"""

from struct import Struct

METHOD, HEADER, BODY, HEARTBEAT = 1, 2, 3, 8
FRAME_END = 206
FRAME_END_OCTET = b"\xce"
FRAME_OVERHEAD = 8

PROTOCOL_HEADER = b"AMQP\x00\x00\x09\x01"
HEARTBEAT_FRAME = b"\x08\x00\x00\x00\x00\x00\x00\xce"

#: type, channel, payload size
FRAME_HEAD = Struct(">BHL")
#: type, channel, payload size, class and method id in one number
METHOD_HEAD = Struct(">BHLL")
#: type, channel, payload size, class, weight, body size
CONTENT_HEAD = Struct(">BHLHHQ")
#: delivery tag, bits, frame end
ACK_TAIL = Struct(">QBB")
#: a whole basic.ack frame
ACK_FRAME = Struct(">BHLLQBB")


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


class ContentFraming:
    """Blobs that are the content frames as they came in: header frame, then body frames, all on `channel`.

    They go out again as they are to peers on the same channel number whose frame_max is no smaller.
    """

    __slots__ = ("channel", "frame_max")

    def __init__(self, channel: int, frame_max: int) -> None:
        self.channel = channel
        self.frame_max = frame_max

    def split(self, blob: bytes) -> tuple[bytes, bytes]:
        """Header payload and body."""
        header_end = 7 + int.from_bytes(blob[3:7], "big")
        header = blob[7:header_end]
        position = header_end + 1
        if position == len(blob):
            return header, b""
        body_end = position + 7 + int.from_bytes(blob[position + 3 : position + 7], "big")
        if body_end + 1 == len(blob):
            return header, blob[position + 7 : body_end]
        parts = []
        while position < len(blob):
            body_end = position + 7 + int.from_bytes(blob[position + 3 : position + 7], "big")
            parts.append(blob[position + 7 : body_end])
            position = body_end + 1
        return header, b"".join(parts)

    def body_size(self, blob: bytes) -> int:
        """Octets of body, as the header announced them."""
        return int.from_bytes(blob[11:19], "big")

    def on_channel(self, blob: bytes, channel: int) -> bytes:
        """The same frames on another channel."""
        number = channel.to_bytes(2, "big")
        header_end = 8 + int.from_bytes(blob[3:7], "big")
        if header_end == len(blob):
            return b"\x02" + number + blob[3:]
        body_end = header_end + 8 + int.from_bytes(blob[header_end + 3 : header_end + 7], "big")
        if body_end == len(blob):  # one body frame: by far the most
            return b"".join((b"\x02", number, blob[3:header_end], b"\x03", number, blob[header_end + 3 :]))
        patched = bytearray(blob)
        position = 0
        while position < len(patched):
            patched[position + 1 : position + 3] = number
            position += 8 + int.from_bytes(patched[position + 3 : position + 7], "big")
        return bytes(patched)
