"""A codec of AMQP 0-9-1 that shares no code with the broker, so that it does not share its bugs.

It encodes any values, including invalid ones, and decodes strictly. Long strings are octets, short strings text.

A value of a field table is a Python value (bool t, int I or l, float d, str and bytes S, None V, dict F, list A) or a
pair (tag, value). With a tag that is not in the specification, the value is the octets after it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

PROTOCOL_HEADER = b"AMQP\x00\x00\x09\x01"
METHOD, HEADER, BODY, HEARTBEAT = 1, 2, 3, 8
FRAME_END = 0xCE

# All methods of AMQP 0-9-1 and RabbitMQ's extensions: (class id, method id, fields as NAME:TYPE).
_DECLARATIONS = """
connection.start 10 10 version_major:octet version_minor:octet server_properties:table mechanisms:longstr \
locales:longstr
connection.start-ok 10 11 client_properties:table mechanism:shortstr response:longstr locale:shortstr
connection.secure 10 20 challenge:longstr
connection.secure-ok 10 21 response:longstr
connection.tune 10 30 channel_max:short frame_max:long heartbeat:short
connection.tune-ok 10 31 channel_max:short frame_max:long heartbeat:short
connection.open 10 40 virtual_host:shortstr reserved_1:shortstr reserved_2:bit
connection.open-ok 10 41 reserved_1:shortstr
connection.close 10 50 reply_code:short reply_text:shortstr class_id:short method_id:short
connection.close-ok 10 51
connection.blocked 10 60 reason:shortstr
connection.unblocked 10 61
connection.update-secret 10 70 new_secret:longstr reason:shortstr
connection.update-secret-ok 10 71
channel.open 20 10 reserved_1:shortstr
channel.open-ok 20 11 reserved_1:longstr
channel.flow 20 20 active:bit
channel.flow-ok 20 21 active:bit
channel.close 20 40 reply_code:short reply_text:shortstr class_id:short method_id:short
channel.close-ok 20 41
access.request 30 10 realm:shortstr exclusive:bit passive:bit active:bit write:bit read:bit
access.request-ok 30 11 ticket:short
exchange.declare 40 10 ticket:short exchange:shortstr type:shortstr passive:bit durable:bit auto_delete:bit \
internal:bit nowait:bit arguments:table
exchange.declare-ok 40 11
exchange.delete 40 20 ticket:short exchange:shortstr if_unused:bit nowait:bit
exchange.delete-ok 40 21
exchange.bind 40 30 ticket:short destination:shortstr source:shortstr routing_key:shortstr nowait:bit arguments:table
exchange.bind-ok 40 31
exchange.unbind 40 40 ticket:short destination:shortstr source:shortstr routing_key:shortstr nowait:bit arguments:table
exchange.unbind-ok 40 51
queue.declare 50 10 ticket:short queue:shortstr passive:bit durable:bit exclusive:bit auto_delete:bit nowait:bit \
arguments:table
queue.declare-ok 50 11 queue:shortstr message_count:long consumer_count:long
queue.bind 50 20 ticket:short queue:shortstr exchange:shortstr routing_key:shortstr nowait:bit arguments:table
queue.bind-ok 50 21
queue.purge 50 30 ticket:short queue:shortstr nowait:bit
queue.purge-ok 50 31 message_count:long
queue.delete 50 40 ticket:short queue:shortstr if_unused:bit if_empty:bit nowait:bit
queue.delete-ok 50 41 message_count:long
queue.unbind 50 50 ticket:short queue:shortstr exchange:shortstr routing_key:shortstr arguments:table
queue.unbind-ok 50 51
basic.qos 60 10 prefetch_size:long prefetch_count:short global_:bit
basic.qos-ok 60 11
basic.consume 60 20 ticket:short queue:shortstr consumer_tag:shortstr no_local:bit no_ack:bit exclusive:bit nowait:bit \
arguments:table
basic.consume-ok 60 21 consumer_tag:shortstr
basic.cancel 60 30 consumer_tag:shortstr nowait:bit
basic.cancel-ok 60 31 consumer_tag:shortstr
basic.publish 60 40 ticket:short exchange:shortstr routing_key:shortstr mandatory:bit immediate:bit
basic.return 60 50 reply_code:short reply_text:shortstr exchange:shortstr routing_key:shortstr
basic.deliver 60 60 consumer_tag:shortstr delivery_tag:longlong redelivered:bit exchange:shortstr routing_key:shortstr
basic.get 60 70 ticket:short queue:shortstr no_ack:bit
basic.get-ok 60 71 delivery_tag:longlong redelivered:bit exchange:shortstr routing_key:shortstr message_count:long
basic.get-empty 60 72 reserved_1:shortstr
basic.ack 60 80 delivery_tag:longlong multiple:bit
basic.reject 60 90 delivery_tag:longlong requeue:bit
basic.recover-async 60 100 requeue:bit
basic.recover 60 110 requeue:bit
basic.recover-ok 60 111
basic.nack 60 120 delivery_tag:longlong multiple:bit requeue:bit
confirm.select 85 10 nowait:bit
confirm.select-ok 85 11
tx.select 90 10
tx.select-ok 90 11
tx.commit 90 20
tx.commit-ok 90 21
tx.rollback 90 30
tx.rollback-ok 90 31
"""
Fields = tuple[tuple[str, str], ...]
METHODS: dict[str, tuple[int, int, Fields]] = {}
for _line in _DECLARATIONS.strip().splitlines():
    _name, _class, _method, *_fields = _line.split()
    METHODS[_name] = int(_class), int(_method), tuple((f.split(":")[0], f.split(":")[1]) for f in _fields)
_NAME_OF = {(class_id, method_id): name for name, (class_id, method_id, _) in METHODS.items()}
WITH_CONTENT = {"basic.deliver", "basic.get-ok", "basic.return"}

# The content properties in the order of their flags, from bit 15 on.
PROPERTIES: Fields = (
    *(("content_type", "shortstr"), ("content_encoding", "shortstr"), ("headers", "table"), ("delivery_mode", "octet")),
    *(("priority", "octet"), ("correlation_id", "shortstr"), ("reply_to", "shortstr"), ("expiration", "shortstr")),
    *(("message_id", "shortstr"), ("timestamp", "longlong"), ("type", "shortstr"), ("user_id", "shortstr")),
    *(("app_id", "shortstr"), ("cluster_id", "shortstr")),
)


# ---------------------------------------------------------------------------------------------------------- encoding


def shortstr(value: str | bytes) -> bytes:
    """A short string. Octets may be invalid UTF-8."""
    octets = value.encode() if isinstance(value, str) else value
    return struct.pack(">B", len(octets)) + octets


def longstr(value: str | bytes) -> bytes:
    octets = value.encode() if isinstance(value, str) else value
    return struct.pack(">I", len(octets)) + octets


_NUMBERS = {
    "b": "b",
    "B": "B",
    "s": "h",
    "u": "H",
    "I": "i",
    "i": "I",
    "l": "q",
    "L": "q",
    "T": "Q",
    "f": "f",
    "d": "d",
}


def _tag_of(value: object) -> str:
    for kind, tag in ((bool, "t"), (float, "d"), (str, "S"), (bytes, "S"), (Mapping, "F"), (list, "A")):
        if isinstance(value, kind):
            return tag
    if value is None:
        return "V"
    assert isinstance(value, int), f"no field table tag for {value!r}"
    return "I" if -(2**31) <= value < 2**31 else "l"


def field_value(value: Any) -> bytes:
    """A value of a field table with its tag."""
    tag, value = value if isinstance(value, tuple) else (_tag_of(value), value)
    octets: bytes
    if tag in _NUMBERS:
        octets = struct.pack(">" + _NUMBERS[tag], value)
    elif tag == "t":
        octets = struct.pack(">B", value)
    elif tag == "D":
        octets = struct.pack(">BI", *value)  # (scale, unscaled)
    elif tag in "Sx":
        octets = longstr(value)
    elif tag == "A":
        octets = longstr(b"".join(field_value(item) for item in value))
    elif tag == "F":
        octets = table(value)
    elif tag == "V":
        octets = b""
    else:
        octets = bytes(value)
    return bytes(tag, "ascii") + octets


def table(values: Mapping[str, Any] | bytes) -> bytes:
    """A field table with its length. Octets are an encoded table."""
    if isinstance(values, bytes):
        return longstr(values)
    return longstr(b"".join(shortstr(name) + field_value(value) for name, value in values.items()))


_PLAIN: dict[str, tuple[Any, Callable[[Any], bytes]]] = {
    "octet": (0, lambda v: struct.pack(">B", v)),
    "short": (0, lambda v: struct.pack(">H", v)),
    "long": (0, lambda v: struct.pack(">I", v)),
    "longlong": (0, lambda v: struct.pack(">Q", v)),
    "shortstr": ("", shortstr),
    "longstr": (b"", longstr),
    "table": ({}, table),
}


def arguments_of(name: str, **values: Any) -> bytes:
    """The encoded arguments of a method. Missing ones are 0, empty or false. Consecutive bits share an octet."""
    _, _, fields = METHODS[name]
    unknown = values.keys() - {field_name for field_name, _ in fields}
    assert not unknown, f"{name} has no {unknown}"
    octets = b""
    bits: list[bool] = []
    for field_name, kind in fields:
        if kind == "bit":
            bits.append(bool(values.get(field_name, False)))
            continue
        octets += _bits(bits)
        bits = []
        default, encode = _PLAIN[kind]
        octets += encode(values.get(field_name, default))
    return octets + _bits(bits)


def _bits(bits: list[bool]) -> bytes:
    return bytes([sum(bit << index for index, bit in enumerate(bits))]) if bits else b""


def properties_of(**values: Any) -> bytes:
    """The property flags and list of a content header of class basic."""
    flags, octets = 0, b""
    for index, (name, kind) in enumerate(PROPERTIES):
        if name in values:
            flags |= 1 << (15 - index)
            octets += _PLAIN[kind][1](values.pop(name))
    assert not values, f"no such properties: {values}"
    return struct.pack(">H", flags) + octets


def method_frame(channel: int, name: str, **values: Any) -> bytes:
    class_id, method_id, _ = METHODS[name]
    return frame(METHOD, channel, struct.pack(">HH", class_id, method_id) + arguments_of(name, **values))


def header_payload(body_size: int, properties: bytes = b"\0\0", *, class_id: int = 60, weight: int = 0) -> bytes:
    """The payload of a content header frame. `properties`: encoded flags and list."""
    return struct.pack(">HHQ", class_id, weight, body_size) + properties


def frame(kind: int, channel: int, payload: bytes, end: int = FRAME_END) -> bytes:
    return struct.pack(">BHI", kind, channel, len(payload)) + payload + bytes([end])


# ---------------------------------------------------------------------------------------------------------- decoding


class _Reader:
    """Reads fields from octets. Too few or too many octets are the broker's fault."""

    def __init__(self, octets: bytes) -> None:
        self._octets = octets
        self._at = 0

    def take(self, count: int) -> bytes:
        assert self._at + count <= len(self._octets), f"field runs past the end of {self._octets!r}"
        self._at += count
        return self._octets[self._at - count : self._at]

    def number(self, form: str) -> Any:
        return struct.unpack(">" + form, self.take(struct.calcsize(">" + form)))[0]

    @property
    def rest(self) -> bytes:
        return self._octets[self._at :]

    def value(self, kind: str) -> Any:
        """A method argument or property. Short strings are text, long strings octets."""
        match kind:
            case "octet" | "short" | "long" | "longlong":
                return self.number({"octet": "B", "short": "H", "long": "I", "longlong": "Q"}[kind])
            case "shortstr":
                return self.take(self.number("B")).decode()
            case "longstr":
                return self.take(self.number("I"))
            case _:
                return self.table()

    def table(self) -> dict[str, Any]:
        inner = _Reader(self.take(self.number("I")))
        values: dict[str, Any] = {}
        while inner.rest:
            name = inner.take(inner.number("B")).decode()
            values[name] = inner.tagged()
        return values

    def tagged(self) -> Any:
        """A value of a field table as (tag, value)."""
        tag = self.take(1).decode("latin-1")
        if tag in _NUMBERS:
            return tag, self.number(_NUMBERS[tag])
        if tag == "t":
            return tag, self.number("B") != 0
        if tag == "D":
            return tag, (self.number("B"), self.number("I"))
        if tag in "Sx":
            return tag, self.take(self.number("I"))
        if tag == "F":
            return tag, self.table()
        if tag == "V":
            return tag, None
        assert tag == "A", f"unknown field table tag {tag!r}"
        inner = _Reader(self.take(self.number("I")))
        items = []
        while inner.rest:
            items.append(inner.tagged())
        return tag, items


@dataclass(slots=True)
class Content:
    """A content that the broker sent. `properties_octets`: encoded flags and list."""

    properties_octets: bytes
    body: bytes

    @property
    def properties(self) -> dict[str, Any]:
        reader = _Reader(self.properties_octets)
        flags = reader.number("H")
        found = {}
        for index, (name, kind) in enumerate(PROPERTIES):
            if flags & 1 << (15 - index):
                found[name] = reader.value(kind)
        assert not reader.rest, f"octets after the properties: {reader.rest!r}"
        return found

    @property
    def headers(self) -> dict[str, Any]:
        """The headers: name -> (tag, value)."""
        headers: dict[str, Any] = self.properties.get("headers", {})
        return headers


@dataclass(slots=True)
class Method:
    """A method that the broker sent, with its content if it has one."""

    name: str
    channel: int
    arguments: dict[str, Any]
    content: Content | None = None

    def __getitem__(self, argument: str) -> Any:
        return self.arguments[argument]

    @property
    def body(self) -> bytes:
        assert self.content is not None, f"{self.name} carries no content"
        return self.content.body


@dataclass(slots=True)
class Frame:
    kind: int
    channel: int
    payload: bytes


def decode_method(payload: bytes, channel: int) -> Method:
    class_id, method_id = struct.unpack(">HH", payload[:4])
    name = _NAME_OF.get((class_id, method_id))
    assert name is not None, f"the broker sent the unknown method {class_id},{method_id}"
    reader, values = _Reader(payload[4:]), {}
    octet, used = 0, 8
    for field_name, kind in METHODS[name][2]:
        if kind != "bit":
            used = 8
            values[field_name] = reader.value(kind)
            continue
        if used == 8:
            octet, used = reader.number("B"), 0
        values[field_name] = bool(octet & 1 << used)
        used += 1
    assert not reader.rest, f"octets after the arguments of {name}: {reader.rest!r}"
    return Method(name, channel, values)
