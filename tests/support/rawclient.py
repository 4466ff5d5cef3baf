"""A small blocking AMQP 0-9-1 client for tests: it sends exactly the octets it is told to and reads strictly.

It shares no code with the broker (its codec is `leveret.interop.wire.raw_codec`), so it is a second opinion and not a
mirror; values of field tables are written as there. Everything has a deadline and nothing sleeps: "nothing arrives" is
shown by a round trip (`collect`), never by waiting.

    client = Client.open("127.0.0.1", port)             # handshake done, channel 1 open
    client.call("queue.declare", queue="p.q", arguments={"x-message-ttl": ("l", 1000)})
    client.send("basic.ack", delivery_tag=99)
    assert client.expect("channel.close")["reply_code"] == 406
"""

from __future__ import annotations

import socket
import struct
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from leveret.interop.wire.raw_codec import (
    BODY,
    FRAME_END,
    HEADER,
    HEARTBEAT,
    METHOD,
    PROTOCOL_HEADER,
    WITH_CONTENT,
    Content,
    Frame,
    Method,
    decode_method,
    frame,
    header_payload,
    method_frame,
    properties_of,
)

#: Only a safety net: nothing is proved by it.
DEADLINE_SECONDS = 60.0


class Eof(Exception):
    """The broker closed the TCP connection, by FIN or by RST, between two frames."""


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

    def send_frame(self, kind: int, channel: int, payload: bytes) -> None:
        self.send_octets(frame(kind, channel, payload))

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
            if method.name in WITH_CONTENT:
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
