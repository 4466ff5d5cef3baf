"""A TCP connection to a broker under test: sends frames, reads methods, and waits by round trips."""

from __future__ import annotations

import socket
import struct
import time
from dataclasses import dataclass, field
from functools import cache

from ..wire import raw_codec
from ..wire.raw_codec import BODY, HEADER, HEARTBEAT, METHOD, WITH_CONTENT, Content, Method, decode_method, method_frame

#: A broker without an answer for this time is silent, which is an observation. Virtual machines may stall for 15 s.
DEADLINE_SECONDS = 45.0
RESET_ON_CLOSE = struct.pack("ii", 1, 0)  # SO_LINGER with no time: close() sends RST
#: The consumer tag of the barrier: it is unused, and both brokers answer a cancel of it at once.
BARRIER_TAG = "barrier"
CAPABILITIES = {
    "authentication_failure_close": True,
    "basic.nack": True,
    "consumer_cancel_notify": True,
    "publisher_confirms": True,
}


class Silent(Exception):
    """The broker did not answer in time."""


@dataclass(slots=True)
class _Assembly:
    method: Method
    size: int = -1
    body: bytearray = field(default_factory=bytearray)


class Link:
    """A connection, which answers the broker's close methods at once.

    `open`: whether neither side has ended it. `channels`: the open ones.
    """

    def __init__(self, host: str, port: int, vhost: str, user: str = "guest", password: str = "guest") -> None:
        self.channels: set[int] = set()
        self.open = True
        self._closing = False  # the broker has sent connection.close, and will end the TCP connection
        self._socket = socket.create_connection((host, port), timeout=DEADLINE_SECONDS)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = b""
        self._assemblies: dict[int, _Assembly] = {}
        self._waiting: list[Method] = []
        self._barriers: set[int] = set()
        self._opening: set[int] = set()
        self.frame_max = 4096
        self._handshake(vhost, user, password)

    def _handshake(self, vhost: str, user: str, password: str) -> None:
        self.send(raw_codec.PROTOCOL_HEADER)
        self._until("connection.start", 0)
        response = f"\0{user}\0{password}".encode()
        properties = {"capabilities": CAPABILITIES}
        self.send(
            method_frame(0, "connection.start-ok", client_properties=properties, mechanism="PLAIN", response=response)
        )
        offer = self._until("connection.tune", 0)
        self.frame_max = offer["frame_max"]
        self.send(
            method_frame(0, "connection.tune-ok", channel_max=offer["channel_max"], frame_max=self.frame_max)
            + method_frame(0, "connection.open", virtual_host=vhost)
        )
        self._until("connection.open-ok", 0)

    # sending

    def send(self, octets: bytes) -> None:
        """Send octets. If the broker has ended the connection, the next read finds it out."""
        try:
            self._socket.sendall(octets)
        except OSError:
            pass

    def open_channel(self, channel: int) -> None:
        """Open a channel, unless it is open."""
        if self.open and channel not in self.channels:
            self.expect_open(channel)
            self.send(method_frame(channel, "channel.open"))
            self._until("channel.open-ok", channel)

    def expect_open(self, channel: int) -> None:
        """Note that channel.open was sent. Frames before its answer belong to an ended channel of this number."""
        if channel not in self.channels:
            self.channels.add(channel)
            self._opening.add(channel)

    def send_barrier(self, channel: int) -> None:
        """Begin a round trip through a channel, which ends when the broker has handled everything before it."""
        if self.open and channel in self.channels:
            self._barriers.add(channel)
            self.send(_barrier(channel))

    def drop(self, *, reset: bool) -> None:
        """Cut the TCP connection without closing it."""
        if reset:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
        self._end()

    # receiving

    def collect(self, *expected: tuple[str, int]) -> list[Method]:
        """The methods until all round trips have ended and all `expected` (method, channel) have arrived, unless their
        channel or the connection was closed. Raises: Silent.
        """
        missing = set(expected)
        collected, self._waiting = self._waiting, []
        for method in collected:
            missing.discard((method.name, method.channel))
        deadline = time.monotonic() + DEADLINE_SECONDS
        while self.open:
            self._barriers &= self.channels
            missing = {(name, channel) for name, channel in missing if channel == 0 or channel in self.channels}
            if not self._barriers and not missing and not self._closing:
                break
            for method in self._read(deadline):
                if method.name == "basic.cancel-ok" and method["consumer_tag"] == BARRIER_TAG:
                    self._barriers.discard(method.channel)
                    continue
                missing.discard((method.name, method.channel))
                collected.append(method)
        return collected

    def drain(self) -> list[Method]:
        """The methods up to the end of the connection. Raises: Silent."""
        collected, self._waiting = self._waiting, []
        deadline = time.monotonic() + DEADLINE_SECONDS
        while self.open:
            collected += self._read(deadline)
        return collected

    # inside

    def _until(self, name: str, channel: int) -> Method:
        """Wait for the method `name`. Others are kept for the next `collect`. Raises: Silent, ConnectionError."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while self.open:
            found = None
            for method in self._read(deadline):
                if found is None and (method.name, method.channel) == (name, channel):
                    found = method
                else:
                    self._waiting.append(method)
            if found is not None:
                return found
        raise ConnectionError(f"the connection ended instead of {name}: {self._waiting}")

    def _end(self) -> None:
        self.open = False
        self.channels.clear()
        self._socket.close()

    def _read(self, deadline: float) -> list[Method]:
        """The methods of one read. Close methods among them are answered."""
        self._socket.settimeout(max(0.001, deadline - time.monotonic()))
        try:
            octets = self._socket.recv(1 << 17)
        except TimeoutError:
            raise Silent(f"nothing after {DEADLINE_SECONDS} s; barriers left {self._barriers}") from None
        except OSError:
            octets = b""
        if not octets:
            self._end()
            return []
        data = self._received + octets
        at, methods = 0, []
        while len(data) - at >= 7:
            kind, channel, size = struct.unpack_from(">BHI", data, at)
            if len(data) - at < size + 8:
                break
            method = self._take(kind, channel, data[at + 7 : at + 7 + size])
            at += size + 8
            if method is not None and not self._is_late(method):
                methods.append(method)
                self._heed(method)
        self._received = data[at:]
        return methods

    def _is_late(self, method: Method) -> bool:
        """Whether a method belongs to a channel that the broker has ended."""
        if method.name == "channel.open-ok":
            self._opening.discard(method.channel)
        ended = method.channel != 0 and method.channel not in self.channels
        return (ended or method.channel in self._opening) and method.name != "channel.close"

    def _heed(self, method: Method) -> None:
        if method.name == "channel.close":
            self.channels.discard(method.channel)
            self.send(method_frame(method.channel, "channel.close-ok"))
        elif method.name == "channel.close-ok":
            self.channels.discard(method.channel)
        elif method.name == "connection.close":
            self.channels.clear()
            self._closing = True
            self.send(method_frame(0, "connection.close-ok"))
        elif method.name == "connection.close-ok":
            self._end()

    def _take(self, kind: int, channel: int, payload: bytes) -> Method | None:
        """The method that a frame completes; None: it is incomplete."""
        if kind == HEARTBEAT:
            return None
        if kind == METHOD:
            method = decode_method(payload, channel)
            if method.name not in WITH_CONTENT:
                return method
            self._assemblies[channel] = _Assembly(method)
            return None
        assembly = self._assemblies[channel]
        if kind == HEADER:
            assembly.size = int.from_bytes(payload[4:12])
            assembly.method.content = Content(payload[12:], b"")
        else:
            assert kind == BODY, f"the broker sent a frame of type {kind}"
            assembly.body += payload
        if len(assembly.body) < assembly.size:
            return None
        del self._assemblies[channel]
        assert assembly.method.content is not None
        assembly.method.content.body = bytes(assembly.body)
        return assembly.method


@cache
def _barrier(channel: int) -> bytes:
    """The octets of a round trip: a cancel of an unused consumer tag."""
    return method_frame(channel, "basic.cancel", consumer_tag=BARRIER_TAG)
