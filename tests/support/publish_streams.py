"""Streams of publishes for tests of the frame reader: alike, with ids of their own, of many kinds, and damaged."""

from __future__ import annotations

import random

from leveret.engine.messages.content import PropertyValue, encode_header
from leveret.engine.messages.field_table import Field
from leveret.interop.wire.raw_codec import frame

KEYS = (b"q", b"orders.eu", b"k" * 20, b"logs", b"x" * 200, b"y" * 250)


def publish_of(channel: int, key: bytes, properties: dict[str, PropertyValue], body: bytes) -> bytes:
    """basic.publish with its content, the body in one frame."""
    arguments = b"\x00\x3c\x00\x28\x00\x00\x00" + bytes((len(key),)) + key + b"\x00"
    header = frame(2, channel, encode_header(len(body), properties))
    return frame(1, channel, arguments) + header + (frame(3, channel, body) if body else b"")


def properties_of(sort: int, number: int) -> dict[str, PropertyValue]:
    """Properties of the sort that clients send. `number`: of the message, in its ids."""
    id_ = b"%016x" % number
    return [
        {"delivery_mode": 2},
        {"message_id": id_, "timestamp": number, "delivery_mode": 2},
        {"message_id": b"%d" % number, "content_type": b"text/plain"},
        {
            "headers": {"trace": Field("S", id_), "n": Field("I", 1)},
            "correlation_id": id_,
            "reply_to": b"amq.gen-" + id_,
        },
        {"headers": {"trace": Field("S", id_), "t": Field("F", {"a": Field("B", number % 3)})}},
        {"headers": {"CC": Field("A", [Field("S", b"other")])}, "message_id": id_},
        {"expiration": b"%d" % (1000 + number % 3), "message_id": id_},
        {"reply_to": b"amq.rabbitmq.reply-to" if number % 7 == 0 else b"amq.rabbitmq.reply-tx", "message_id": id_},
        {"priority": number % 2, "user_id": b"guest", "app_id": id_},
        {},
    ][sort]  # type: ignore[return-value]


SORTS = 10


def messages(chance: random.Random, count: int) -> list[bytes]:
    """Publishes of few kinds, in stretches of one kind or in any order. Of them few have no body, or are oversized."""
    kinds = [
        (chance.choice((1, 1, 1, 3)), chance.choice(KEYS), chance.randrange(SORTS)) for _ in range(chance.randint(1, 6))
    ]
    stretch = chance.choice((1, 1, 3, 20, 100))
    sizes = chance.choice(((16,), (1, 5, 40), (0, 16, 16, 16), (10, 20, 300, 301)))
    found: list[bytes] = []
    while len(found) < count:
        channel, key, sort = chance.choice(kinds)
        for _ in range(chance.randint(1, stretch)):
            body = chance.randbytes(chance.choice(sizes))
            found.append(publish_of(channel, key, properties_of(sort, len(found) * 37), body))
    return found[:count]


def damaged(chance: random.Random, message: bytes) -> bytes:
    """A message with one thing wrong, or one octet changed where it may matter or not."""
    octets = bytearray(message)
    match chance.randrange(4):
        case 0:
            del octets[chance.randrange(len(octets))]
        case 1:
            octets.insert(chance.randrange(len(octets)), chance.randrange(256))
        case 2:
            octets[chance.randrange(len(octets))] ^= 1 << chance.randrange(8)
        case _:
            octets[chance.randrange(len(octets))] = chance.choice((0, 1, 2, 3, 206, 255))
    return bytes(octets)
