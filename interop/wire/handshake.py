"""The handshake of a connection: reads the server properties, and logs in."""

from __future__ import annotations

import socket
from typing import TypeVar

from pamqp import commands, frame
from pamqp.base import Frame
from pamqp.common import FieldTable

PROTOCOL_HEADER = b"AMQP\x00\x00\x09\x01"
FRAME_HEAD_SIZE, METHOD_FRAME, FRAME_END_SIZE = 7, 1, 1
SECONDS_MAX = 10.0
Method = TypeVar("Method", bound=Frame)


class NoBroker(Exception):
    """There is no AMQP 0-9-1 broker at the URL, or it refused the login. The message has its answer."""


class Handshake:
    """A connection with methods on channel 0 only. All functions raise NoBroker."""

    def __init__(self, host: str, port: int) -> None:
        self._where = f"{host}:{port}"
        self._rest = b""
        try:
            self._socket = socket.create_connection((host, port), timeout=SECONDS_MAX)
        except OSError as error:
            raise NoBroker(f"{self._where}: {error.strerror or error}") from error

    def __enter__(self) -> Handshake:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def greeting(self) -> dict[str, str]:
        """Read the server properties. Returns those that are text."""
        self._send(PROTOCOL_HEADER)
        start = self._receive("did not greet")
        if not isinstance(start, commands.Connection.Start):
            raise NoBroker(f"{self._where}: greeted with {start.name}")
        return {key: value for key, value in start.server_properties.items() if isinstance(value, str)}

    def login(self, user: str, password: str, vhost: str) -> None:
        """Log a user in to a virtual host, after `greeting`."""
        who = f"the broker did not let {user!r} into virtual host {vhost!r}"
        capabilities: FieldTable = {"capabilities": {"authentication_failure_close": True}}
        answer = commands.Connection.StartOk(capabilities, "PLAIN", f"\0{user}\0{password}", "en_US")
        self._send(frame.marshal(answer, 0))
        tune = self._answer(commands.Connection.Tune, who)
        self._send(frame.marshal(commands.Connection.TuneOk(tune.channel_max, tune.frame_max, 0), 0))
        self._send(frame.marshal(commands.Connection.Open(vhost), 0))
        self._answer(commands.Connection.OpenOk, who)
        self._send(frame.marshal(commands.Connection.Close(200, "", 0, 0), 0))
        self._receive(who)

    def _answer(self, kind: type[Method], who: str) -> Method:
        method = self._receive(who)
        if isinstance(method, commands.Connection.Close):
            raise NoBroker(f"{self._where}: {who}: {method.reply_code} {method.reply_text}")
        if not isinstance(method, kind):
            raise NoBroker(f"{self._where}: {who}: it answered {method.name}")
        return method

    def _send(self, octets: bytes) -> None:
        try:
            self._socket.sendall(octets)
        except OSError as error:
            raise NoBroker(f"{self._where}: {error.strerror or error}") from error

    def _receive(self, otherwise: str) -> Frame:
        """The next method. `otherwise`: the message of the exception if there is none."""
        data = self._rest
        while len(data) < FRAME_HEAD_SIZE or len(data) < _size(data):
            if data and data[0] != METHOD_FRAME:
                raise NoBroker(f"{self._where}: no AMQP 0-9-1: it answered {data[:40]!r}")
            try:
                part = self._socket.recv(65536)
            except TimeoutError:
                raise NoBroker(f"{self._where}: {otherwise}: no answer within {SECONDS_MAX:.0f} s") from None
            except OSError as error:
                raise NoBroker(f"{self._where}: {otherwise}: {error.strerror or error}") from error
            if not part:
                raise NoBroker(f"{self._where}: {otherwise}: it closed the line")
            data += part
        size = _size(data)
        self._rest = data[size:]
        try:
            method = frame.unmarshal(data[:size])[2]
        except Exception as error:  # pamqp raises its own exceptions, struct.error, KeyError
            raise NoBroker(f"{self._where}: no AMQP 0-9-1: {error}") from error
        if not isinstance(method, Frame):
            raise NoBroker(f"{self._where}: no AMQP 0-9-1: it answered {data[:40]!r}")
        return method


def _size(data: bytes) -> int:
    return FRAME_HEAD_SIZE + int.from_bytes(data[3:7], "big") + FRAME_END_SIZE
