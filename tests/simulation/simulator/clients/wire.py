"""The octets that simulated clients send and read most, faster than the codec of `interop` would; it does the rest."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from struct import Struct

from leveret.interop.wire.raw_codec import frame, properties_of, shortstr

from ..books.settlements import Word

METHOD, HEADER, BODY, HEARTBEAT = 1, 2, 3, 8
_FRAME = Struct(">BHI")
_HEADER = Struct(">BHIHHQ")
_ACK = Struct(">BHIHHQBB")
_DELIVERED = Struct(">QB")
END = b"\xce"
HEARTBEAT_FRAME = frame(HEARTBEAT, 0, b"")

DELIVER, GET_OK, RETURN = b"\x00\x3c\x00\x3c", b"\x00\x3c\x00\x47", b"\x00\x3c\x00\x32"
ACK, NACK = b"\x00\x3c\x00\x50", b"\x00\x3c\x00\x78"
WITH_CONTENT = frozenset({DELIVER, GET_OK, RETURN})


def publish_method(channel: int, exchange: str, routing_key: str, *, mandatory: bool = False) -> bytes:
    """The method frame of a publish; the same for many messages."""
    payload = b"\x00\x3c\x00\x28\0\0" + shortstr(exchange) + shortstr(routing_key) + bytes([mandatory])
    return frame(METHOD, channel, payload)


def content(channel: int, properties: bytes, body: bytes, frame_max: int, cuts: Random | None = None) -> bytes:
    """Header and body frames. `properties`: flags and list; `cuts`: frames are of all sizes, by lot."""
    parts = [_HEADER.pack(HEADER, channel, 12 + len(properties), 60, 0, len(body)), properties, END]
    room, start = frame_max - 8, 0
    while start < len(body):
        piece = body[start : start + (room if cuts is None else cuts.choice((1, 30, 600, room)))]
        parts += (_FRAME.pack(BODY, channel, len(piece)), piece, END)
        start += len(piece)
    return b"".join(parts)


def properties(*, persistent: bool, **others: object) -> bytes:
    """Flags and list of a content header."""
    return properties_of(delivery_mode=2 if persistent else 1, **others)


def settle(method: int, channel: int, tag: int, bits: int) -> bytes:
    """basic.ack (80; bit 0: multiple), nack (120; and bit 1: requeue), reject (90; bit 0: requeue)."""
    return _ACK.pack(METHOD, channel, 13, 60, method, tag, bits, 0xCE)


def word_of(settlement: bytes) -> Word:
    """What a frame of `settle` says of its deliveries."""
    method, bits = int.from_bytes(settlement[9:11], "big"), settlement[19]
    if method == 80:
        return Word.ACK
    return Word.REQUEUE if bits & (2 if method == 120 else 1) else Word.REJECT


def frames_in(buffer: bytearray) -> Iterator[tuple[int, int, bytes]]:
    """Type, channel and payload of each whole frame, which is taken out. Raises: AssertionError."""
    start = 0
    try:
        while start + 7 <= len(buffer):
            kind, channel, size = _FRAME.unpack_from(buffer, start)
            end = start + 8 + size
            if end > len(buffer):
                break
            assert buffer[end - 1] == 0xCE, "a frame of the broker does not end with its end octet"
            payload = bytes(buffer[start + 7 : end - 1])
            start = end
            yield kind, channel, payload
    finally:
        del buffer[:start]


def read_delivery(payload: bytes) -> tuple[str, int, bool]:
    """Consumer tag, delivery tag and whether redelivered, of a basic.deliver."""
    size = payload[4]
    tag, redelivered = _DELIVERED.unpack_from(payload, 5 + size)
    return payload[5 : 5 + size].decode(), tag, bool(redelivered)


def address_of(payload: bytes) -> bytes:
    """Exchange and routing key of a basic.deliver or get-ok, as two short strings."""
    start = 5 + payload[4] + 9 if payload[:4] == DELIVER else 13
    key_start = start + 1 + payload[start]
    return payload[start : key_start + 1 + payload[key_start]]


def read_settled(payload: bytes) -> tuple[int, bool]:
    """Tag and whether multiple, of an ack or nack."""
    return int.from_bytes(payload[4:12], "big"), bool(payload[12] & 1)
