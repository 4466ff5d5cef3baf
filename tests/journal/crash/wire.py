"""A connection whose contents are read as they come on the wire: header payloads stay octets."""

from __future__ import annotations

import select
from collections.abc import Iterator
from dataclasses import dataclass

from pamqp import base, commands, frame
from raw_client import RawClient, Unexpected

#: Whoever measures something else on this machine may stop us for long.
DEADLINE_SECONDS = 3600.0
_METHOD, _HEADER, _BODY = 1, 2, 3
_DELIVER = b"\x00\x3c\x00\x3c"
_GET_OK = b"\x00\x3c\x00\x47"
_ACK = b"\x00\x3c\x00\x50"


@dataclass(slots=True)
class Delivery:
    """A message as it was handed out."""

    channel: int
    consumer: str
    tag: int
    redelivered: bool
    header: bytes
    body: bytes


@dataclass(slots=True)
class Confirmed:
    """Publishes that the broker has taken over."""

    tag: int
    multiple: bool


class Wire(RawClient):
    """Sends what it is told; gives what comes as `Delivery`, `Confirmed`, or a pair of channel and pamqp's method."""

    def __init__(self, port: int, channels: int = 1, vhost: str = "/") -> None:
        super().__init__(port)
        self._socket.settimeout(DEADLINE_SECONDS)
        self._at = 0  # what is before it in `_received` was read
        self._half: dict[int, Delivery] = {}  # whose content is not whole yet
        self._missing: dict[int, int] = {}  # octets of body, by channel
        self.handshake(vhost)
        for channel in range(2, channels + 1):
            self.send(commands.Channel.Open(), channel=channel)
            self.expect(commands.Channel.OpenOk)

    def ask(self, method: base.Frame, kind: type[base.Frame], *, channel: int = 1) -> base.Frame:
        """Send a method and wait for its answer, when nothing else can come. Raises: Unexpected."""
        self.send(method, channel=channel)
        answer: base.Frame = self.expect(kind)
        return answer

    def what_came(self) -> Iterator[Delivery | Confirmed | tuple[int, base.Frame]]:
        """All that is there, without waiting. Raises: Unexpected at the end, OSError."""
        while True:
            yield from self._parsed()
            if not select.select([self._socket], [], [], 0)[0]:
                return
            self._receive()

    def wait(self) -> list[Delivery | Confirmed | tuple[int, base.Frame]]:
        """The same, but wait until something comes if nothing is there."""
        while not (events := list(self._parsed())):
            self._receive()
        return events

    def finish_politely(self) -> None:
        """With AMQP's farewell: what is out goes back, and was no attempt."""
        self.send(commands.Connection.Close(200, "", 0, 0), channel=0)
        self.expect(commands.Connection.CloseOk)
        self.finish()

    def _next_frame(self) -> object:
        self._received, self._at = self._received[self._at :], 0
        return super()._next_frame()

    def _receive(self) -> None:
        data = self._socket.recv(1 << 18)
        if not data:
            raise Unexpected("the broker closed the connection")
        self._received = self._received[self._at :] + data
        self._at = 0

    def _parsed(self) -> Iterator[Delivery | Confirmed | tuple[int, base.Frame]]:
        while len(self._received) - self._at >= 7:
            data, at = self._received, self._at
            end = at + 8 + int.from_bytes(data[at + 3 : at + 7], "big")
            if end > len(data):
                return
            kind, channel = data[at], int.from_bytes(data[at + 1 : at + 3], "big")
            payload = data[at + 7 : end - 1]
            self._at = end
            if kind == _METHOD:
                method = payload[:4]
                if method == _DELIVER:
                    self._half[channel] = _delivery(channel, payload)
                elif method == _GET_OK:
                    tag = int.from_bytes(payload[4:12], "big")
                    self._half[channel] = Delivery(channel, "", tag, bool(payload[12] & 1), b"", b"")
                elif method == _ACK:
                    yield Confirmed(int.from_bytes(payload[4:12], "big"), bool(payload[12]))
                else:
                    decoded = frame.unmarshal(data[at:end])[2]
                    assert isinstance(decoded, base.Frame)
                    yield channel, decoded
            elif kind == _HEADER:
                self._half[channel].header = payload
                self._missing[channel] = int.from_bytes(payload[4:12], "big")
            elif kind == _BODY:
                self._half[channel].body += payload
                self._missing[channel] -= len(payload)
            if kind in (_HEADER, _BODY) and not self._missing[channel]:
                yield self._half.pop(channel)


def _delivery(channel: int, payload: bytes) -> Delivery:
    end = 5 + payload[4]
    tag = int.from_bytes(payload[end : end + 8], "big")
    return Delivery(channel, payload[5:end].decode(), tag, bool(payload[end + 8] & 1), b"", b"")
