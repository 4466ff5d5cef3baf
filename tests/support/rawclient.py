"""A small blocking AMQP 0-9-1 client for tests: it sends exactly the octets it is told to and reads strictly.

It shares no code with the broker (its codec is its own), so it is a second opinion and not a mirror. Everything has a
deadline and nothing sleeps: "nothing arrives" is shown by a round trip (`collect`), never by waiting.

    client = Client.open("127.0.0.1", port)             # handshake done, channel 1 open
    client.call("queue.declare", queue="p.q", arguments={"x-message-ttl": ("l", 1000)})
    client.send("basic.ack", delivery_tag=99)
    assert client.expect("channel.close")["reply_code"] == 406

A value of a field table is a Python value (bool t, int I or l, float d, str and bytes S, None V, dict F, list A) or a
pair (tag, value) that names the tag; with a tag outside of the specification the value is the octets that follow it.
"""

from __future__ import annotations

import socket
import struct
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

PROTOCOL_HEADER = b"AMQP\x00\x00\x09\x01"
METHOD, HEADER, BODY, HEARTBEAT = 1, 2, 3, 8
FRAME_END = 0xCE
DEADLINE_SECONDS = 20.0

# Every method of AMQP 0-9-1 and of RabbitMQ's extensions: (class id, method id, fields as NAME:TYPE).
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
_WITH_CONTENT = {"basic.deliver", "basic.get-ok", "basic.return"}

# Content properties in the order of their flags, the first is bit 15.
PROPERTIES: Fields = (
    *(("content_type", "shortstr"), ("content_encoding", "shortstr"), ("headers", "table"), ("delivery_mode", "octet")),
    *(("priority", "octet"), ("correlation_id", "shortstr"), ("reply_to", "shortstr"), ("expiration", "shortstr")),
    *(("message_id", "shortstr"), ("timestamp", "longlong"), ("type", "shortstr"), ("user_id", "shortstr")),
    *(("app_id", "shortstr"), ("cluster_id", "shortstr")),
)


class Eof(Exception):
    """The broker closed the TCP connection, by FIN or by RST, between two frames."""


# ---------------------------------------------------------------------------------------------------------- encoding


def shortstr(value: str | bytes) -> bytes:
    """A short string; octets are taken as they are, so that invalid UTF-8 can be sent."""
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
    """One tagged value of a field table."""
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
    """A field table with its length; octets are taken as an already encoded table body."""
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
    """The arguments of the method `name`; what is not given is 0, empty or false. Consecutive bits share an octet."""
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
    """Property flags and property list of a content header of class basic."""
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
    """Payload of a content header frame; `properties` are flags and list, octet for octet."""
    return struct.pack(">HHQ", class_id, weight, body_size) + properties


def frame(kind: int, channel: int, payload: bytes, end: int = FRAME_END) -> bytes:
    return struct.pack(">BHI", kind, channel, len(payload)) + payload + bytes([end])


# ---------------------------------------------------------------------------------------------------------- decoding


class _Reader:
    """Reads fields off an octet string; running past its end or leaving a rest is the broker's fault."""

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
        """One method argument or property; short strings come as text, long strings as octets."""
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
        """A value as (tag, value), so that a test sees which type travelled."""
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
    """A content as it arrived; `properties_octets` are flags and list, undecoded."""

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
        """The headers as name -> (tag, value); empty when there are none."""
        headers: dict[str, Any] = self.properties.get("headers", {})
        return headers


@dataclass(slots=True)
class Method:
    """A method that the broker sent, with its content when it carries one."""

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


# ------------------------------------------------------------------------------------------------------------ client


@dataclass(slots=True)
class _Assembly:
    method: Method
    body_size: int | None = None
    body: list[bytes] = field(default_factory=list)


CAPABILITIES: Mapping[str, bool] = {
    "authentication_failure_close": True,
    "basic.nack": True,
    "connection.blocked": True,
    "consumer_cancel_notify": True,
    "exchange_exchange_bindings": True,
    "publisher_confirms": True,
}


class Client:
    """One TCP connection to a broker."""

    def __init__(self, host: str, port: int, deadline_seconds: float = DEADLINE_SECONDS) -> None:
        self._socket = socket.create_connection((host, port), timeout=deadline_seconds)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._deadline_seconds = deadline_seconds
        self._received = bytearray()
        self._assemblies: dict[int, _Assembly] = {}
        self._methods: deque[Method] = deque()
        self.frame_max = 4096
        self.declared: list[tuple[str, str]] = []  # ("queue" or "exchange", name), for cleaning up
        self.running = False

    @classmethod
    def open(cls, host: str, port: int, **options: Any) -> Client:
        """Connect, log in, open the virtual host and channel 1; `options` as of `handshake`."""
        client = cls(host, port)
        client.handshake(**options)
        client.call("channel.open")
        return client

    # the handshake, in steps

    def start(self, header: bytes = PROTOCOL_HEADER) -> Method:
        self.send_octets(header)
        return self.expect("connection.start", channel=0)

    def start_ok(
        self,
        *,
        mechanism: str = "PLAIN",
        response: bytes = b"\0guest\0guest",
        capabilities: Mapping[str, Any] | None = CAPABILITIES,
    ) -> None:
        properties = {"product": "rawclient"} if capabilities is None else {"capabilities": dict(capabilities)}
        self.send(
            "connection.start-ok",
            channel=0,
            client_properties=properties,
            mechanism=mechanism,
            response=response,
            locale="en_US",
        )

    def log_in(self, **options: Any) -> Method:
        """Up to the broker's tune; `options` as of `start_ok`."""
        self.start()
        self.start_ok(**options)
        return self.expect("connection.tune", channel=0)

    def tune_ok(self, offer: Method, **values: int) -> None:
        """Accept the offer, `values` of the fields apart; no heartbeat unless asked for."""
        agreed = {**offer.arguments, "heartbeat": 0, **values}
        self.send("connection.tune-ok", channel=0, **agreed)
        self.frame_max = agreed["frame_max"]

    def handshake(self, *, tune: Mapping[str, int] | None = None, vhost: str = "/", **options: Any) -> None:
        self.tune_ok(self.log_in(**options), **(tune or {}))
        self.call("connection.open", channel=0, virtual_host=vhost)
        self.running = True

    # sending

    def send_octets(self, octets: bytes) -> None:
        self._socket.sendall(octets)

    def send_frame(self, kind: int, channel: int, payload: bytes, end: int = FRAME_END) -> None:
        self.send_octets(frame(kind, channel, payload, end))

    def method(self, channel: int, class_id: int, method_id: int, arguments: bytes = b"") -> None:
        """A method frame with any ids and any octets as arguments."""
        self.send_frame(METHOD, channel, struct.pack(">HH", class_id, method_id) + arguments)

    def send(self, name: str, *, channel: int = 1, **values: Any) -> None:
        if name in ("queue.declare", "exchange.declare") and not values.get("passive"):
            kind = name.split(".")[0]
            self.declared.append((kind, values.get(kind, "")))
        self.send_octets(method_frame(channel, name, **values))

    def publish(
        self,
        exchange: str,
        routing_key: str,
        body: bytes = b"",
        *,
        channel: int = 1,
        mandatory: bool = False,
        immediate: bool = False,
        properties_octets: bytes | None = None,
        **properties: Any,
    ) -> None:
        """basic.publish with its content, in one write; the body is split at the agreed frame size."""
        octets = method_frame(
            channel,
            "basic.publish",
            exchange=exchange,
            routing_key=routing_key,
            mandatory=mandatory,
            immediate=immediate,
        )
        encoded = properties_of(**properties) if properties_octets is None else properties_octets
        octets += frame(HEADER, channel, header_payload(len(body), encoded))
        step = self.frame_max - 8
        octets += b"".join(frame(BODY, channel, body[at : at + step]) for at in range(0, len(body), step))
        self.send_octets(octets)

    # receiving

    def read_frame(self, deadline_seconds: float | None = None) -> Frame:
        """The next frame. Raises: Eof: the connection is closed. TimeoutError: nothing came before the deadline."""
        deadline = time.monotonic() + (deadline_seconds or self._deadline_seconds)
        head = self._exactly(7, deadline, between_frames=True)
        kind, channel, size = struct.unpack(">BHI", head)
        rest = self._exactly(size + 1, deadline, between_frames=False)
        assert rest[-1] == FRAME_END, f"frame ends with {rest[-1]:#x}"
        assert size <= max(self.frame_max, 4096) - 8, f"the broker sent a frame of {size} octets"
        return Frame(kind, channel, rest[:-1])

    def read(self) -> Method:
        """The next method, complete with its content; heartbeats are skipped. Raises as `read_frame`."""
        deadline = time.monotonic() + self._deadline_seconds
        while not self._methods:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError("heartbeats only before the deadline")
            self._assemble(self.read_frame(left))
        return self._methods.popleft()

    def expect(self, name: str, *, channel: int = 1) -> Method:
        """The next method, which must be `name` on `channel`."""
        method = self.read()
        assert (method.name, method.channel) == (name, channel), f"expected {name} on {channel}, got {method}"
        return method

    def expect_eof(self) -> None:
        """The connection is closed and nothing came before."""
        try:
            method = self.read()
        except Eof:
            return
        raise AssertionError(f"expected the end of the connection, got {method}")

    def read_octets_to_eof(self) -> bytes:
        """Everything up to the end of the connection, undecoded."""
        deadline = time.monotonic() + self._deadline_seconds
        while self._fill(deadline):
            pass
        octets = bytes(self._received)
        self._received.clear()
        return octets

    def drain_until_close(self) -> list[Method]:
        """All methods up to the end of the connection; a connection.close among them is answered."""
        methods = []
        while True:
            try:
                methods.append(self.read())
            except Eof:
                return methods
            if methods[-1].name == "connection.close":
                self.send("connection.close-ok", channel=0)

    # conversations

    def call(self, name: str, *, channel: int = 1, **values: Any) -> Method:
        """Send a synchronous method and return its -ok, which must be the very next method."""
        self.send(name, channel=channel, **values)
        return self.expect(f"{name}-ok", channel=channel)

    def get(self, queue: str, *, channel: int = 1, no_ack: bool = True) -> Method | None:
        """basic.get: the get-ok, or None when the queue is empty."""
        self.send("basic.get", channel=channel, queue=queue, no_ack=no_ack)
        method = self.read()
        assert method.name in ("basic.get-ok", "basic.get-empty") and method.channel == channel, method
        return method if method.name == "basic.get-ok" else None

    def take(self, queue: str, *, channel: int = 1, no_ack: bool = False) -> Method:
        """basic.get of a message that must be there."""
        method = self.get(queue, channel=channel, no_ack=no_ack)
        assert method is not None, f"{queue} is empty"
        return method

    def deliveries(self, count: int, *, channel: int = 1) -> list[Method]:
        """The next `count` methods, which must be deliveries."""
        return [self.expect("basic.deliver", channel=channel) for _ in range(count)]

    def bodies(self, queue: str, *, channel: int = 1) -> list[bytes]:
        """All ready messages of a queue, taken without acknowledgement, oldest first."""
        return [method.body for method in iter(lambda: self.get(queue, channel=channel), None)]

    def count(self, queue: str, *, channel: int = 1) -> tuple[int, int]:
        """Ready messages and consumers, by passive declare."""
        reply = self.call("queue.declare", channel=channel, queue=queue, passive=True)
        return reply["message_count"], reply["consumer_count"]

    def wait_for_ready(self, queue: str, count: int, *, channel: int = 1) -> None:
        """Look until the queue has `count` ready messages; each look is a round trip.

        RabbitMQ may answer a passive declare ahead of the publishes that came before it on the same channel.
        """
        deadline = time.monotonic() + self._deadline_seconds
        while (ready := self.count(queue, channel=channel)[0]) != count:
            assert time.monotonic() < deadline, f"{ready} messages in {queue}, expected {count}"

    def collect(self, queue: str | None = None, *, channel: int = 1) -> list[Method]:
        """Everything that the broker had to say on `channel` so far, found by round trips instead of by waiting.

        The first round trip goes through `queue` (its deliveries are then on their way in any broker), the second one
        through the channel alone and thereby behind these deliveries.
        """
        seen: list[Method] = []
        if queue is not None:
            self.send("queue.declare", channel=channel, queue=queue, passive=True)
            seen += self._until("queue.declare-ok", channel)
        self.send("basic.cancel", channel=channel, consumer_tag="nobody has this tag")
        return seen + self._until("basic.cancel-ok", channel)

    def close(self) -> None:
        """connection.close and its reply; what was still under way is dropped."""
        self.send("connection.close", channel=0, reply_code=200)
        self._until("connection.close-ok", 0)
        self.running = False
        self.abort()

    def abort(self) -> None:
        """Drop the TCP connection without a word."""
        self.running = False
        self._socket.close()

    # inside

    def _until(self, name: str, channel: int) -> list[Method]:
        seen = []
        while (method := self.read()).name != name or method.channel != channel:
            assert method.name not in ("channel.close", "connection.close"), method
            seen.append(method)
        return seen

    def _assemble(self, received: Frame) -> None:
        if received.kind == HEARTBEAT:
            assert (received.channel, received.payload) == (0, b""), received
            return
        assembly = self._assemblies.get(received.channel)
        if received.kind == METHOD:
            assert assembly is None, f"method inside the content of {assembly}"
            method = decode_method(received.payload, received.channel)
            if method.name in _WITH_CONTENT:
                self._assemblies[received.channel] = _Assembly(method)
            else:
                self._methods.append(method)
            if method.name == "queue.declare-ok" and method["queue"].startswith("amq.gen-"):
                self.declared.append(("queue", method["queue"]))
            return
        assert assembly is not None, f"content without a method: {received}"
        if received.kind == HEADER:
            assert assembly.body_size is None, "second content header"
            class_id, weight, assembly.body_size = struct.unpack(">HHQ", received.payload[:12])
            assert (class_id, weight) == (60, 0), received
            assembly.method.content = Content(received.payload[12:], b"")
        else:
            assert received.kind == BODY and assembly.body_size is not None, received
            assembly.body.append(received.payload)
        assert assembly.method.content is not None
        body = b"".join(assembly.body)
        assert len(body) <= assembly.body_size, "body longer than its header said"
        if len(body) == assembly.body_size:
            assembly.method.content.body = body
            self._methods.append(assembly.method)
            del self._assemblies[received.channel]

    def _exactly(self, count: int, deadline: float, *, between_frames: bool) -> bytes:
        while len(self._received) < count:
            if not self._fill(deadline):
                if between_frames and not self._received:
                    raise Eof
                raise AssertionError(f"connection closed inside a frame: {bytes(self._received)!r}")
        octets = bytes(self._received[:count])
        del self._received[:count]
        return octets

    def _fill(self, deadline: float) -> bool:
        """Read once; False at the end of the connection."""
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError(f"nothing from the broker; so far {bytes(self._received)!r}")
        self._socket.settimeout(left)
        try:
            octets = self._socket.recv(1 << 20)
        except (ConnectionResetError, BrokenPipeError):
            return False
        finally:
            self._socket.settimeout(self._deadline_seconds)
        self._received += octets
        return bool(octets)
