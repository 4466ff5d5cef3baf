"""The handshake of a connection: reads the server properties, and logs in."""

from __future__ import annotations

import socket
import struct

from .raw_codec import METHOD, PROTOCOL_HEADER, Method, decode_method, method_frame

FRAME_HEAD_SIZE, FRAME_END_SIZE = 7, 1
SECONDS_MAX = 10.0


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
        if start.name != "connection.start":
            raise NoBroker(f"{self._where}: greeted with {start.name}")
        properties = start["server_properties"].items()
        return {key: value.decode(errors="replace") for key, (tag, value) in properties if tag == "S"}

    def login(self, user: str, password: str, vhost: str) -> None:
        """Log a user in to a virtual host, after `greeting`."""
        who = f"the broker did not let {user!r} into virtual host {vhost!r}"
        properties = {"capabilities": {"authentication_failure_close": True}}
        login = {"mechanism": "PLAIN", "response": f"\0{user}\0{password}", "locale": "en_US"}
        self._send(method_frame(0, "connection.start-ok", client_properties=properties, **login))
        tune = self._answer("connection.tune", who)
        tuned = {name: tune[name] for name in ("channel_max", "frame_max")}
        self._send(method_frame(0, "connection.tune-ok", **tuned))
        self._send(method_frame(0, "connection.open", virtual_host=vhost))
        self._answer("connection.open-ok", who)
        self._send(method_frame(0, "connection.close", reply_code=200))
        self._receive(who)

    def _answer(self, name: str, who: str) -> Method:
        method = self._receive(who)
        if method.name == "connection.close":
            raise NoBroker(f"{self._where}: {who}: {method['reply_code']} {method['reply_text']}")
        if method.name != name:
            raise NoBroker(f"{self._where}: {who}: it answered {method.name}")
        return method

    def _send(self, octets: bytes) -> None:
        try:
            self._socket.sendall(octets)
        except OSError as error:
            raise NoBroker(f"{self._where}: {error.strerror or error}") from error

    def _receive(self, otherwise: str) -> Method:
        """The next method. `otherwise`: the message of the exception if there is none."""
        data = self._rest
        while len(data) < FRAME_HEAD_SIZE or len(data) < _size(data):
            try:
                part = self._socket.recv(65536)
            except TimeoutError:
                raise NoBroker(f"{self._where}: {otherwise}: no answer within {SECONDS_MAX:.0f} s") from None
            except OSError as error:
                raise NoBroker(f"{self._where}: {otherwise}: {error.strerror or error}") from error
            if not part:
                raise NoBroker(f"{self._where}: {otherwise}: it closed the line")
            data += part
            if data[0] != METHOD:
                raise NoBroker(f"{self._where}: no AMQP 0-9-1: it answered {data[:40]!r}")
        size = _size(data)
        self._rest = data[size:]
        try:
            return decode_method(data[FRAME_HEAD_SIZE : size - FRAME_END_SIZE], 0)
        except (AssertionError, UnicodeDecodeError, struct.error) as error:
            raise NoBroker(f"{self._where}: no AMQP 0-9-1: {error}") from error


def _size(data: bytes) -> int:
    return FRAME_HEAD_SIZE + int.from_bytes(data[3:7], "big") + FRAME_END_SIZE
