"""A proxy for a connection of a scenario, which forwards the octets and reads the frames.

It shows what clients do not report, such as heartbeats and the octets of content headers. It can cut the connection, or
keep it open without forwarding what the client sends.
"""

from __future__ import annotations

import select
import selectors
import socket
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from .loopback import LOOPBACK
from .raw_codec import BODY, HEADER, METHOD, PROTOCOL_HEADER

FRAME_HEAD = struct.Struct(">BHI")
METHOD_IDS = struct.Struct(">HH")
READ_SIZE = 1 << 18
BROKER_SECONDS_MAX, RETRY_SECONDS = 30.0, 0.05


@dataclass(slots=True)
class Content:
    """A content: the payload of its header frame, and its body."""

    header: bytes
    body: bytearray = field(default_factory=bytearray)


@dataclass(slots=True)
class Direction:
    """Frames in one direction: their count by type, when each method came (monotonic, in seconds), by class and number,
    and the contents, oldest first."""

    counts: dict[int, int] = field(default_factory=dict)
    methods: dict[tuple[int, int], list[float]] = field(default_factory=dict)
    contents: list[Content] = field(default_factory=list)
    _rest: bytearray = field(default_factory=bytearray)
    _open: dict[int, Content] = field(default_factory=dict)
    _begun: bool = False

    def feed(self, data: bytes) -> None:
        """Read octets that are forwarded. An incomplete frame is kept for the next call."""
        rest = self._rest
        rest += data
        if not self._begun:
            if rest[:4] == b"AMQP"[: len(rest)]:
                if len(rest) < len(PROTOCOL_HEADER):
                    return
                del rest[: len(PROTOCOL_HEADER)]
            self._begun = True
        begin = 0
        while len(rest) - begin >= FRAME_HEAD.size:
            kind, channel, size = FRAME_HEAD.unpack_from(rest, begin)
            end = begin + FRAME_HEAD.size + size + 1
            if len(rest) < end:
                break
            self._frame(kind, channel, bytes(rest[begin + FRAME_HEAD.size : end - 1]))
            begin = end
        del rest[:begin]

    def _frame(self, kind: int, channel: int, payload: bytes) -> None:
        self.counts[kind] = self.counts.get(kind, 0) + 1
        if kind == METHOD:
            self.methods.setdefault(METHOD_IDS.unpack_from(payload), []).append(time.monotonic())
        elif kind == HEADER:
            content = self._open[channel] = Content(payload)
            self.contents.append(content)
        elif kind == BODY and channel in self._open:
            self._open[channel].body += payload


class Tap:
    """Listens on a port of 127.0.0.1 and forwards connections to the broker, one after the other.

    `opaque`: octets are not read, because they are TLS.
    """

    def __init__(self, host: str, port: int, *, opaque: bool = False) -> None:
        self._target = host, port
        self._opaque = opaque
        self._listener = socket.create_server((LOOPBACK, 0))
        self.port: int = self._listener.getsockname()[1]
        self.from_client, self.from_broker = Direction(), Direction()
        self.connections = 0
        self.ended_by: list[str] = []  # which side ended each connection: "client" or "broker"
        self._silent = False
        self._pairs: dict[socket.socket, tuple[socket.socket, Direction, str]] = {}
        self._changed = threading.Condition()
        self._stop, self._stopped = socket.socketpair()
        self._selector = selectors.DefaultSelector()
        for readable in (self._listener, self._stopped):
            self._selector.register(readable, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, name="tap", daemon=True)
        self._thread.start()

    def __enter__(self) -> Tap:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.close()
        self._thread.join()

    def wait_for(self, fact: Callable[[Tap], bool], seconds: float) -> bool:
        """Wait until `fact` is true. Returns False if the time is over."""
        with self._changed:
            return self._changed.wait_for(lambda: fact(self), seconds)

    def cut(self) -> None:
        """Reset both connections without AMQP's close. New ones are accepted."""
        with self._changed:
            for one in self._pairs:
                one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                try:
                    one.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass

    def silence(self) -> None:
        """Forward nothing from the client to the broker, and keep the connection open."""
        with self._changed:
            self._silent = True

    def _run(self) -> None:
        try:
            while True:
                for key, _ in self._selector.select():
                    if key.fileobj is self._stopped:
                        return
                    pair = self._connect() if key.fileobj is self._listener else None
                    with self._changed:
                        if pair is not None:
                            self._join(*pair)
                        elif key.fileobj in self._pairs:
                            assert isinstance(key.fileobj, socket.socket)
                            self._pass_on(key.fileobj)
                        self._changed.notify_all()
        finally:
            for one in [*self._pairs, self._listener, self._stopped]:
                one.close()
            self._selector.close()

    def _connect(self) -> tuple[socket.socket, socket.socket] | None:
        """Accept a client and connect to the broker, which may be restarting."""
        client, _ = self._listener.accept()
        deadline = time.monotonic() + BROKER_SECONDS_MAX
        while True:
            try:
                return client, socket.create_connection(self._target, timeout=10)
            except OSError:
                stopped = select.select([self._stopped], [], [], RETRY_SECONDS)[0]
                if stopped or time.monotonic() > deadline:
                    client.close()
                    return None

    def _join(self, client: socket.socket, broker: socket.socket) -> None:
        self.connections += 1
        for one in (client, broker):
            one.settimeout(20)
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._selector.register(one, selectors.EVENT_READ)
        self.from_client, self.from_broker = Direction(), Direction()
        self._pairs[client] = broker, self.from_client, "client"
        self._pairs[broker] = client, self.from_broker, "broker"

    def _pass_on(self, source: socket.socket) -> None:
        target, direction, side = self._pairs[source]
        try:
            data = source.recv(READ_SIZE)
            if data and not (self._silent and side == "client"):
                if not self._opaque:
                    direction.feed(data)
                target.sendall(data)
        except OSError:
            data = b""
        if not data:
            self.ended_by.append(side)
            for one in (source, target):
                self._selector.unregister(one)
                del self._pairs[one]
                one.close()
