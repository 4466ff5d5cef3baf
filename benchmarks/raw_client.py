"""A client that sends any octets or pamqp frames, and can be cut off at any time."""

from __future__ import annotations

import random
import socket
import struct
from contextlib import suppress
from typing import Any

from pamqp import base, body, commands, frame, header

LOOPBACK = "127.0.0.1"
DEADLINE_SECONDS = 20.0
FRAME_HEAD = struct.Struct(">BHI")
FRAME_OVERHEAD = FRAME_HEAD.size + 1
BODY = 3
RESET_ON_CLOSE = struct.pack("ii", 1, 0)  # SO_LINGER with no time: close() sends RST


class Unexpected(Exception):
    """The broker did not behave as AMQP specifies."""


class RawClient:
    """A connection that sends any octets, even parts of frames, and can be cut at any time."""

    def __init__(
        self, port: int, *, receive_buffer_bytes: int | None = None, deadline_seconds: float = DEADLINE_SECONDS
    ) -> None:
        self._socket = socket.socket()
        if receive_buffer_bytes is not None:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        self._socket.settimeout(deadline_seconds)
        self._socket.connect((LOOPBACK, port))
        self._received = b""

    @property
    def socket(self) -> socket.socket:
        """For those who read it themselves."""
        return self._socket

    def handshake(self, vhost: str = "/") -> None:
        """Log in and open channel 1."""
        self.write(b"AMQP\0\0\x09\x01")
        self.expect(commands.Connection.Start)
        self.send(commands.Connection.StartOk({}, "PLAIN", "\0guest\0guest", "en_US"), channel=0)
        tune = self.expect(commands.Connection.Tune)
        self.send(commands.Connection.TuneOk(tune.channel_max, tune.frame_max, 0), channel=0)
        self.send(commands.Connection.Open(vhost), channel=0)
        self.expect(commands.Connection.OpenOk)
        self.send(commands.Channel.Open())
        self.expect(commands.Channel.OpenOk)

    def write(self, octets: bytes | bytearray) -> None:
        """Send octets as they are."""
        self._socket.sendall(octets)

    def send(self, method: base.Frame, *, channel: int = 1) -> None:
        """Send one method."""
        self.write(frame.marshal(method, channel))

    def expect(self, kind: type[base.Frame]) -> Any:
        """The next method, which must be of this kind; frames of contents are skipped. Raises: Unexpected."""
        while True:
            received = self._next_frame()
            if isinstance(received, kind):
                return received
            if isinstance(received, base.Frame):
                raise Unexpected(f"{received.name} instead of {kind.__name__}")

    def expect_body(self) -> bytes:
        """The content of a delivery that was expected, which is in one frame."""
        while not isinstance(received := self._next_frame(), body.ContentBody):
            pass
        return received.value or b""

    def wait_for(self, kind: type[base.Frame]) -> None:
        """Skip everything up to the next method of this kind."""
        while not isinstance(self._next_frame(), kind):
            pass

    def fileno(self) -> int:
        """For `select`."""
        return self._socket.fileno()

    def receive_bodies(self) -> list[bytes]:
        """Read once; the body frames that are whole now, other frames are skipped. Raises: Unexpected."""
        data = self._socket.recv(65536)
        if not data:
            raise Unexpected("the broker closed the connection")
        data = self._received + data
        bodies: list[bytes] = []
        position = 0
        while len(data) >= position + FRAME_OVERHEAD:
            kind, _, size = FRAME_HEAD.unpack_from(data, position)
            end = position + FRAME_OVERHEAD + size
            if len(data) < end:
                break
            if kind == BODY:
                bodies.append(data[position + FRAME_HEAD.size : end - 1])
            position = end
        self._received = data[position:]
        return bodies

    def read_to_end(self) -> bytes:
        """Everything until the broker closes; a reset counts as closing."""
        octets = self._received
        with suppress(ConnectionError):
            while data := self._socket.recv(65536):
                octets += data
        return octets

    def finish(self) -> None:
        """Close the TCP connection without connection.close."""
        self._socket.close()

    def reset(self) -> None:
        """Close it with RST."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
        self._socket.close()

    def leave(self, chance: random.Random) -> None:
        """Close it in one of these ways."""
        chance.choice((self.finish, self.reset))()

    def _next_frame(self) -> object:
        while len(self._received) < 7 or len(self._received) < 8 + int.from_bytes(self._received[3:7]):
            data = self._socket.recv(65536)
            if not data:
                raise Unexpected("the broker closed the connection")
            self._received += data
        size, _, received = frame.unmarshal(self._received)
        self._received = self._received[size:]
        return received


def publish_octets(exchange: str, routing_key: str, body: bytes, *, mandatory: bool = False) -> bytes:
    """A publish with its content, as frames on channel 1."""
    method = commands.Basic.Publish(exchange=exchange, routing_key=routing_key, mandatory=mandatory)
    content = header.ContentHeader(body_size=len(body), properties=commands.Basic.Properties(delivery_mode=1))
    octets = frame.marshal(method, 1) + frame.marshal(content, 1)
    return octets + (struct.pack(">BHI", 3, 1, len(body)) + body + b"\xce" if body else b"")
