"""A client that goes while its request is answered: what only reads ends, and frees its slot; what changes goes on.

Source: management page 20; RFC 9112, 9.6: a client may close its sending side and wait for the answer.
"""

import json
import socket
import struct
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from api_client import ApiClient, basic

from leveret.console import connection as connections
from leveret.console import state
from leveret.operator.control import ControlTable

WAIT_S = 60


@dataclass
class LongCommand:
    """A command that takes as long as a test wants."""

    began: threading.Event = field(default_factory=threading.Event)
    released: threading.Event = field(default_factory=threading.Event)
    ended: threading.Event = field(default_factory=threading.Event)
    is_done: bool = False

    def steps(self) -> Iterator[None]:
        self.began.set()
        try:
            while not self.released.is_set():
                yield
            self.is_done = True
        finally:
            self.ended.set()


@pytest.fixture
def long(monkeypatch: pytest.MonkeyPatch) -> Iterator[LongCommand]:
    """In the place of `search` and of `purge`; one request is answered at once."""
    one, others = LongCommand(), ControlTable.steps

    def steps(table: ControlTable, name: object, arguments: object = None) -> Any:
        if name not in ("search", "purge"):
            return (yield from others(table, name, arguments))
        yield from one.steps()
        return {"found": name}

    monkeypatch.setattr(ControlTable, "steps", steps)
    monkeypatch.setattr(state, "REQUESTS_MAX", 1)
    yield one
    one.released.set()


def request(method: str, path: str, value: Any = None, *, version: str = "1.1") -> bytes:
    body = b"" if value is None else json.dumps(value).encode()
    head = f"{method} /api/{path} HTTP/{version}\r\nhost: localhost\r\nauthorization: {basic('guest', 'guest')}\r\n"
    return f"{head}content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body


def search(version: str = "1.1") -> bytes:
    return request("POST", "leveret/search/messages", {"text": "x"}, version=version)


def asked(api: ApiClient, long: LongCommand, octets: bytes) -> socket.socket:
    """A connection whose first request is being answered."""
    peer = socket.create_connection(api.address, timeout=WAIT_S)
    peer.sendall(octets)
    assert long.began.wait(WAIT_S)
    return peer


def rest_of(peer: socket.socket) -> bytes:
    with peer:
        return b"".join(iter(lambda: peer.recv(65536), b""))


@pytest.mark.parametrize("is_reset", [False, True])
def test_a_search_ends_with_its_client(api: ApiClient, long: LongCommand, *, is_reset: bool) -> None:
    """Whether the connection is closed, as by a page that cancels, or reset; the slot is free then."""
    peer = asked(api, long, search())
    assert api.ask("GET", "whoami").status == 503
    if is_reset:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.close()
    assert long.ended.wait(WAIT_S) and not long.is_done
    assert api.ask("GET", "whoami").status == 200


def test_a_half_closed_client_gets_its_answers(api: ApiClient, long: LongCommand) -> None:
    """Also that of the request behind. It is told meanwhile to wait: that shows whether it is still there."""
    peer = asked(api, long, search() + request("GET", "whoami"))
    peer.shutdown(socket.SHUT_WR)
    begin = peer.recv(25, socket.MSG_WAITALL)
    assert begin == b"HTTP/1.1 100 Continue\r\n\r\n"
    long.released.set()
    assert rest_of(peer).count(b"HTTP/1.1 200 OK") == 2


def test_an_old_client_is_told_nothing_meanwhile(
    api: ApiClient, long: LongCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """HTTP/1.0 has no interim responses."""
    monkeypatch.setattr(connections, "PROBE_S", 0.0)
    monkeypatch.setattr(state, "REQUESTS_MAX", 2)
    peer = asked(api, long, search("1.0"))
    peer.shutdown(socket.SHUT_WR)
    for _ in range(3):
        assert api.ask("GET", "whoami").status == 200
    long.released.set()
    assert rest_of(peer).startswith(b"HTTP/1.1 200 OK")


def test_requests_behind_a_long_one_are_answered(api: ApiClient, long: LongCommand) -> None:
    """What comes meanwhile is not lost; a client that sends much is not read without an end."""
    peer = asked(api, long, search())
    others = 200
    peer.sendall(request("GET", "whoami") * others)
    peer.sendall(request("GET", "whoami").replace(b"\r\n", b"\r\nconnection: close\r\n", 1))
    long.released.set()
    assert rest_of(peer).count(b"HTTP/1.1 200 OK") == others + 2


def test_a_change_goes_on_without_its_client(
    api: ApiClient, long: LongCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not left half done."""
    monkeypatch.setattr(state, "REQUESTS_MAX", 2)
    api.ask("PUT", "queues/%2F/purged", {})
    peer = asked(api, long, request("DELETE", "queues/%2F/purged/contents"))
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.close()
    for _ in range(3):
        assert api.ask("GET", "whoami").status == 200
    assert not long.ended.is_set()
    long.released.set()
    assert long.ended.wait(WAIT_S) and long.is_done
