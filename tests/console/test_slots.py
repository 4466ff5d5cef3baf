"""Who gets a connection and an answer when there are many: nobody keeps others, or health checks, out."""

import select
import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from api_client import ApiClient, basic

from leveret.console import api as apis
from leveret.console import server as servers
from leveret.console import state
from leveret.console.slots import NoSlot, Slot, Slots
from leveret.testing import start_broker

HALF_A_LOGIN = (
    "POST /api/login HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/x-www-form-urlencoded\r\n"
    "content-length: 100\r\n\r\nusername="
)
LOGIN = f"authorization: {basic('guest', 'guest')}\r\n"
PROBES = ["/health/live", "/health/ready", "/api/health/checks/alarms", "/api/healthchecks/node", "/metrics"]


class _Peers:
    """Connections by name, with who lost its place."""

    def __init__(self, share: int = 20) -> None:
        self.slots = Slots(share)
        self.lost: list[str] = []

    def enter(self, name: str, origin: str, *, slots: int = 100, is_shared: bool = False) -> Slot:
        return self.slots.enter(origin, lambda: self.lost.append(name), slots=slots, is_shared=is_shared)


def test_an_address_has_its_share() -> None:
    """Its own oldest one makes room, one that is at work does not."""
    peers = _Peers(share=3)
    first = peers.enter("a", "x")
    peers.enter("b", "x")
    peers.enter("c", "x")
    with first.at_work():
        peers.enter("d", "x")
    assert peers.lost == ["b"]
    peers.enter("e", "x")
    assert peers.lost == ["b", "c"]  # the first one waits since it has been answered
    peers.enter("f", "y")
    assert peers.lost == ["b", "c"]


def test_who_has_most_makes_room() -> None:
    """With all places taken; of this machine and of proxies there may be many, who are first to go."""
    peers = _Peers(share=2)
    peers.enter("far", "far")
    for name in "abc":
        peers.enter(name, "here", slots=4, is_shared=True)
    assert peers.lost == []  # beyond the share of one address
    peers.enter("late", "late", slots=4)
    assert peers.lost == ["a"]


def test_who_has_lost_its_place_does_not_come_back() -> None:
    """Nor twice: what it was doing ends later."""
    peers = _Peers(share=1)
    slot = peers.enter("a", "x")
    other = peers.enter("b", "x")
    with slot.at_work(), other.at_work(), pytest.raises(NoSlot, match="1 connections from x are at work"):
        peers.enter("c", "x")
    slot.leave()
    other.leave()
    other.leave()
    peers.enter("d", "x")
    assert peers.lost == ["a"]


@pytest.fixture
def many() -> Iterator[ExitStack]:
    """Connections that end with the test."""
    with ExitStack() as stack:
        yield stack


def _opened(stack: ExitStack, address: tuple[str, int], text: str) -> socket.socket:
    peer = stack.enter_context(socket.create_connection(address, timeout=30))
    peer.sendall(text.encode())
    return peer


@pytest.mark.parametrize(
    "text",
    [
        HALF_A_LOGIN,
        f"POST /api/definitions HTTP/1.1\r\nhost: localhost\r\n{LOGIN}content-length: 100\r\n\r\n{{",
        f"PUT /api/queues/%2F/q HTTP/1.1\r\nhost: localhost\r\n{LOGIN}transfer-encoding: chunked\r\n\r\n5\r\n{{",
    ],
)
def test_half_a_request_keeps_nobody_out(
    api: ApiClient, many: ExitStack, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    """It takes no slot before it is whole, with a login or without."""
    monkeypatch.setattr(state, "REQUESTS_MAX", 1)
    for _ in range(12):
        _opened(many, api.address, text)
        assert api.ask("GET", "whoami").status == 200


def test_connections_that_say_nothing_are_closed_for_others() -> None:
    """The oldest first, also where half a request or a request that was answered stands."""
    with ExitStack() as stack:
        broker = stack.enter_context(start_broker(management=True, config={"management": {"max-connections": 4}}))
        api = ApiClient(broker.management_url)
        texts = ["", HALF_A_LOGIN, "OPTIONS /api/overview HTTP/1.1\r\nhost: localhost\r\n\r\n", "GET /api/"]
        peers = [_opened(stack, api.address, text) for text in texts]
        assert peers[2].recv(100).startswith(b"HTTP/1.1 200")
        for _ in peers:
            assert api.ask("GET", "whoami").status == 200
        for _ in range(300):
            _opened(stack, api.address, "GET /")
        assert api.ask("GET", "whoami").status == 200
        assert _end_of(peers[0]) == b""


def _end_of(peer: socket.socket) -> bytes:
    try:
        return peer.recv(100)
    except ConnectionResetError:
        return b""


@pytest.mark.parametrize("path", PROBES)
def test_health_has_room_when_the_console_has_none(api: ApiClient, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    """All slots are taken by requests; the probes have others."""
    monkeypatch.setattr(state, "REQUESTS_MAX", 0)
    assert api.ask("GET", "queues").status == 503
    assert api.ask("GET", path).status == 200


@pytest.mark.parametrize("path", PROBES[:-1])
def test_health_does_not_wait_for_metrics(api: ApiClient, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    """All that are scraped at once leave health its own; pages wait for them as little."""
    monkeypatch.setattr(state, "METRICS_MAX", 0)
    assert api.ask("GET", "/metrics").status == 503
    assert api.ask("GET", path).status == 200
    monkeypatch.setattr(state, "PROBES_MAX", 0)
    assert api.ask("GET", "whoami").status == 200


@pytest.mark.parametrize("path", PROBES)
def test_slow_bodies_beside_health_probes(
    api: ApiClient, many: ExitStack, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    """Bodies that come octet by octet, from more peers than requests may be answered at once: probes are answered."""
    monkeypatch.setattr(state, "REQUESTS_MAX", 1)
    head = f"PUT /api/queues/%2F/q HTTP/1.1\r\nhost: localhost\r\n{LOGIN}content-length: 1000\r\n\r\n{{"
    peers = [_opened(many, api.address, head) for _ in range(15)]
    for _ in range(5):
        for peer in peers:
            peer.sendall(b" ")
        assert api.ask("GET", path).status == 200
    answered, _, _ = select.select(peers, [], [], 0)
    assert answered == []  # they still send


def test_the_port_of_the_metrics_has_places_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many are at the console's port."""
    monkeypatch.setattr(servers, "METRICS_MAX", 2)
    with ExitStack() as stack:
        broker = stack.enter_context(start_broker(management=True, config={"management": {"max-connections": 2}}))
        console, metrics = ApiClient(broker.management_url), ApiClient(broker.metrics_url)
        for _ in range(4):
            _opened(stack, console.address, "GET /")
        idle = [_opened(stack, metrics.address, "") for _ in range(2)]
        assert metrics.ask("GET", "/health/ready", user=None).status == 200
        assert _end_of(idle[0]) == b""
        assert console.ask("GET", "whoami").status == 200


def test_a_stranger_sends_little(api: ApiClient) -> None:
    """The form of a login is short; what others may send is much."""
    form = {"content-type": "application/x-www-form-urlencoded"}
    answer = api.ask("POST", "login", b"x" * (apis.OPEN_BODY_MAX + 1), user=None, headers=form)
    assert (answer.status, answer.reason) == (400, f"the body is larger than {apis.OPEN_BODY_MAX} octets")


def test_unfinished_bodies_have_an_end_together(many: ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
    """As much as the requests that there may be at once, each with a whole body."""
    monkeypatch.setattr(state, "REQUESTS_MAX", 2)
    with start_broker(management=True, config={"management": {"max-body": 1000}}) as broker:
        api = ApiClient(broker.management_url)
        head = f"PUT /api/queues/%2F/q HTTP/1.1\r\nhost: localhost\r\n{LOGIN}content-length: 1000\r\n\r\n"
        peers = [_opened(many, api.address, head + " " * 900) for _ in range(3)]
        answered, _, _ = select.select(peers, [], [], 30)
        assert [peer.recv(100)[:12] for peer in answered] == [b"HTTP/1.1 503"]
        assert api.ask("PUT", "queues/%2F/q", {}).status == 201
