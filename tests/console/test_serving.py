"""One connection to the console: what is read of a request, and what becomes of its answer, while others send bodies,
streams are open, or the node is suspended or resigns. Source: management page 20."""

from __future__ import annotations

import select
import socket
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import partial
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import pytest
import trio
import trio.testing
from api_client import ApiClient, basic

from leveret.console import state as states
from leveret.console.connection import PIECE_S, Connection
from leveret.console.http_messages import Answer, Peer, Refusal, Work
from leveret.console.slots import NoSlot, Slots
from leveret.testing import start_broker

NAME = "leveret.example"
LOGIN = f"authorization: {basic('guest', 'guest')}\r\n"
HEAD = f"PUT /api/queues/%2F/serving HTTP/1.1\r\nhost: localhost\r\n{LOGIN}"


class Pieces:
    """A stream of pieces without an end. `sent`: how many were asked for; `then`: is done before the next one."""

    has_piece = True

    def __init__(self, then: Callable[[], object]) -> None:
        self.sent = 0
        self._then = then

    def piece(self) -> bytes | None:
        self._then()
        self.sent += 1
        return b"piece" if self.sent < 100 else None


class Stage:
    """A connection with one request, in virtual time. `received`: the octets of its answer."""

    def __init__(self, steps: Callable[[bytes], Generator[None, None, Answer]], work: Work = Work.METRICS) -> None:
        self.call = SimpleNamespace(body_max=0, work=work, reads=False, steps=steps)
        self.runtime = SimpleNamespace(
            has_resigned=False, end_turn=lambda: None, wait_while_suspended=self._wait_while_suspended
        )
        self.resumed: trio.Event | None = None
        self.received = b""
        self.leads: Iterator[bool] = iter(())
        self.slots = Slots(10)
        self.slot = self.slots.enter("a", lambda: None, slots=1, is_shared=False)

    async def _wait_while_suspended(self) -> None:
        if self.resumed is not None:
            await self.resumed.wait()

    async def _wait_for_leadership(self) -> None:
        if not next(self.leads):
            raise Refusal(503, "not_leading", "this node no longer leads")

    async def serve(self) -> None:
        own, other = trio.testing.memory_stream_pair()
        await other.send_all(b"GET /api/overview HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        state: Any = SimpleNamespace(
            open=lambda request: self.call,
            turn=trio.Lock(),
            runtime=self.runtime,
            streams=0,
            answering=nullcontext,
            streaming=nullcontext,
            at_work=lambda work: nullcontext(),
            wait_for_leadership=self._wait_for_leadership,
            options=lambda: SimpleNamespace(proxies=(), origins=()),
        )
        try:
            await Connection(state, own, Peer("127.0.0.1", True), self.slot, is_metrics=False).serve()
        finally:
            await own.aclose()
            self.received = bytes(await _all(other))


async def _all(stream: trio.abc.ReceiveStream) -> bytearray:
    found = bytearray()
    while data := await stream.receive_some():
        found += data
    return found


def played(story: Callable[[], Any]) -> None:
    trio.run(story, clock=trio.testing.MockClock(autojump_threshold=0))


def streamed(then: Callable[[], object]) -> tuple[Stage, Pieces]:
    pieces = Pieces(then)

    def steps(body: bytes) -> Generator[None, None, Answer]:
        yield
        return Answer(200, stream=pieces)

    return Stage(steps), pieces


def test_a_stream_ends_when_the_node_leads_no_longer() -> None:
    """What it would tell is of a broker that has ended. The client asks again, and finds the node that leads."""

    def resign() -> None:
        stage.runtime.has_resigned = pieces.sent == 2

    stage, pieces = streamed(resign)
    played(stage.serve)
    assert pieces.sent == 3 and stage.received.endswith(b"0\r\n\r\n"), "it ends as a whole answer"


def test_a_stream_tells_nothing_while_the_node_is_suspended() -> None:
    """It may not lead any more. When it does, the stream goes on."""

    def suspend() -> None:
        if pieces.sent == 2:
            stage.resumed = trio.Event()

    stage, pieces = streamed(suspend)

    async def story() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stage.serve)
            await trio.sleep_until(trio.current_time() + 100 * PIECE_S)
            assert pieces.sent == 3
            assert stage.resumed is not None
            stage.resumed.set()

    played(story)
    assert pieces.sent == 100


def test_a_stream_keeps_its_slot() -> None:
    """It is no idle connection: another one finds no slot, and ends nothing."""

    def another() -> None:
        with pytest.raises(NoSlot):
            stage.slots.enter("b", lambda: None, slots=1, is_shared=False)

    stage, _ = streamed(another)
    played(stage.serve)
    assert stage.received.endswith(b"0\r\n\r\n")


def test_who_is_at_work_makes_no_room() -> None:
    """However many connections an address has: one of those that are idle ends, wherever it is from."""
    slots, ended = Slots(10), list[str]()
    with ExitStack() as stack:
        for origin in ("a", "a", "b"):
            slot = slots.enter(origin, partial(ended.append, origin), slots=3, is_shared=False)
            if origin == "a":
                stack.enter_context(slot.at_work())
        slots.enter("c", lambda: None, slots=3, is_shared=False)
    assert ended == ["b"]


@pytest.mark.parametrize("leads, is_done", [((False,), False), ((True, False), True)])
def test_a_node_that_resigns_tells_of_no_change(leads: tuple[bool, ...], is_done: bool) -> None:
    """Neither of one that it did not begin, nor of one that another leader may not have: 503, ask again."""
    done = []

    def steps(body: bytes) -> Generator[None, None, Answer]:
        yield
        done.append(True)
        return Answer(204)

    stage = Stage(steps, Work.REQUEST)
    stage.leads = iter(leads)
    played(stage.serve)
    assert stage.received.startswith(b"HTTP/1.1 503 ") and bool(done) is is_done


# -- bodies, through a socket -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def small() -> Iterator[ApiClient]:
    """A console with a name that takes bodies of a thousand octets."""
    with start_broker(management=True, config={"management": {"max-body": 1000, "hosts": [NAME]}}) as broker:
        yield ApiClient(broker.management_url)


def said(api: ApiClient, *octets: str) -> AbstractContextManager[socket.socket]:
    peer = socket.create_connection(api.address, timeout=30)
    for some in octets:
        peer.sendall(some.encode())
    return peer


def answer_of(peer: socket.socket) -> bytes:
    """All octets until the end of an answer's head."""
    found = b""
    while b"\r\n\r\n" not in found and (data := peer.recv(1000)):
        found += data
    return found


def test_connections_that_have_ended_take_no_room() -> None:
    """One that is idle stays open, however many others come and go."""
    with start_broker(management=True, config={"management": {"max-connections": 10}}) as broker:
        api = ApiClient(broker.management_url)
        text = f"HEAD /api/whoami HTTP/1.1\r\nhost: localhost\r\n{LOGIN}\r\n"
        with said(api, text) as idle:
            assert answer_of(idle).startswith(b"HTTP/1.1 200 ")
            for _ in range(30):
                assert api.ask("GET", "whoami").status == 200
            idle.sendall(text.encode())
            assert answer_of(idle).startswith(b"HTTP/1.1 200 ")


def test_bodies_that_are_read_take_no_room(small: ApiClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit of all together is about those that are still coming, however many came before."""
    monkeypatch.setattr(states, "REQUESTS_MAX", 1)
    for _ in range(3):
        assert small.ask("PUT", "queues/%2F/serving", b"{" + b" " * 900 + b"}").status in (201, 204)


def test_a_body_of_unknown_length_has_a_limit(small: ApiClient) -> None:
    """It is refused when it exceeds that, not when it ends."""
    with said(small, HEAD + "transfer-encoding: chunked\r\n\r\n", "400\r\n" + " " * 1024 + "\r\n") as peer:
        assert answer_of(peer).startswith(b"HTTP/1.1 400 ")


def test_a_length_beside_an_encoding_is_refused(small: ApiClient) -> None:
    """A proxy may go by the other of the two, and take the rest for the next request (RFC 9112, 6.1)."""
    twice = "content-length: 7\r\ntransfer-encoding: chunked\r\n\r\n"
    with said(small, HEAD + twice + "2\r\n{}\r\n0\r\n\r\n") as peer:
        found = answer_of(peer)
        assert found.startswith(b"HTTP/1.1 400 ") and b"\r\nconnection: close\r\n" in found.lower()


def test_who_waits_to_be_asked_for_a_body_is_asked(small: ApiClient) -> None:
    """As curl does before a long one (RFC 9110, 10.1.1)."""
    with said(small, HEAD + "content-length: 2\r\nexpect: 100-continue\r\n\r\n") as peer:
        assert answer_of(peer).startswith(b"HTTP/1.1 100 ")
        peer.sendall(b"{}")
        assert answer_of(peer)[:12] in (b"HTTP/1.1 201", b"HTTP/1.1 204")


def test_who_is_not_asked_for_a_body_sends_none(small: ApiClient) -> None:
    """A refusal before that ends the connection: what follows could be the body, or the next request."""
    with said(small, HEAD + "content-length: 2000\r\nexpect: 100-continue\r\n\r\n") as peer:
        found = answer_of(peer)
        assert b"\r\nconnection: close\r\n" in found.lower() and b" 100 " not in found


def test_who_sends_all_before_it_reads_gets_the_refusal(small: ApiClient) -> None:
    """The console reads on for a while, though it drops it: closing at once would reset the connection."""
    with socket.socket() as peer:
        peer.settimeout(30)
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        peer.connect(small.address)
        peer.sendall((HEAD + "content-length: 900000\r\n\r\n").encode())
        assert select.select([peer], [], [], 30)[0], "it has been refused"
        peer.sendall(b" " * 900_000)
        assert answer_of(peer).startswith(b"HTTP/1.1 400 ")


def test_a_body_that_an_editor_has_marked(small: ApiClient) -> None:
    """The octets EF BB BF before a text in UTF-8 are no part of it."""
    assert small.ask("PUT", "queues/%2F/marked", b"\xef\xbb\xbf{}").status in (201, 204)


def test_an_answer_without_content_has_no_length(small: ApiClient) -> None:
    """As RFC 9110, 8.6 wants it of 204."""
    small.ask("PUT", "queues/%2F/serving", {})
    answer = small.ask("DELETE", "queues/%2F/serving")
    assert answer.status == 204 and "content-length" not in answer.headers


def test_the_length_of_a_stream_is_not_told(small: ApiClient) -> None:
    """Nobody knows it: to HEAD, too."""
    answer = small.ask("HEAD", "leveret/events", headers={"accept": "text/event-stream"})
    assert answer.status == 200 and "content-length" not in answer.headers


def test_more_streams_than_there_may_be(small: ApiClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """A further one is refused, and told to come again."""
    monkeypatch.setattr("leveret.console.connection.STREAMS_MAX", 1)
    text = f"GET /api/leveret/events HTTP/1.1\r\nhost: localhost\r\n{LOGIN}accept: text/event-stream\r\n\r\n"
    with ExitStack() as stack:
        first = stack.enter_context(said(small, text))
        assert answer_of(first).startswith(b"HTTP/1.1 200 ")
        second = answer_of(stack.enter_context(said(small, text)))
        assert second.startswith(b"HTTP/1.1 503 ") and b"\r\nretry-after: 5\r\n" in second.lower()


# -- paths, queries and lists -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [".", "..", "\0."], ids=["dot", "dots", "NUL"])
def test_a_name_of_dots_is_sent_behind_a_nul(small: ApiClient, name: str) -> None:
    """Browsers would resolve it. Names of NULs and dots have one more."""
    path = f"queues/%2F/{quote(chr(0) + name)}"
    assert small.ask("PUT", path, {}).status in (201, 204)
    assert small.get(path)["name"] == name
    assert small.ask("DELETE", path).status == 204


def test_the_first_of_several_values_counts(small: ApiClient) -> None:
    """As in RabbitMQ, whatever a link has added behind it."""
    assert small.get("queues?page=1&page_size=7&page=2&page_size=9")["page_size"] == 7


def test_a_list_of_nothing(small: ApiClient) -> None:
    """Whole, or a page of it."""
    small.ask("PUT", "vhosts/empty")
    assert small.get("queues/empty") == []
    assert small.get("queues/empty?page=1")["items"] == []


@pytest.mark.parametrize("host, status", [(NAME, 200), (f"{NAME}:15672", 200), ("evil.example", 421), ("", 200)])
def test_which_names_the_console_has(small: ApiClient, host: str, status: int) -> None:
    """Those that are listed: any other may lead a browser here that was at a page of its owner."""
    assert small.ask("GET", "whoami", headers={"host": host}).status == status


def test_the_last_page_by_offset_names_no_next_one(small: ApiClient) -> None:
    """Also if it is as long as all others."""
    small.ask("PUT", "queues/%2F/paged", {"durable": True})
    for _ in range(4):
        message = {
            "routing_key": "paged",
            "payload": "x",
            "payload_encoding": "string",
            "properties": {"headers": {"x-delay": 3_600_000}},
        }
        assert small.ask("POST", "exchanges/%2F/amq.default/publish", message).json == {"routed": True}
    pages = [small.get(f"leveret/scheduled/%2F/paged?count=2&after={after}") for after in (0, 2)]
    assert [(len(page["items"]), page["next"]) for page in pages] == [(2, 2), (2, None)]
