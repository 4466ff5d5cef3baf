"""Answers to peers that read slowly, and the end of one that is sent piece by piece. Source: management page 20."""

from collections.abc import Generator
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from leveret.console.connection import ANSWER_S, SENT_IN_TIME, Connection
from leveret.console.http_messages import Answer, Peer, Work

END = b"0\r\n\r\n"


class _Pieces:
    """A stream of these pieces."""

    has_piece = True

    def __init__(self, *pieces: bytes) -> None:
        self._pieces = [*pieces]

    def piece(self) -> bytes | None:
        return self._pieces.pop(0) if self._pieces else None


class _Peer(trio.abc.Stream):
    """Sends one request. It reads the answer, or all but its end. `rate`: octets a second; 0: no limit."""

    def __init__(self, *, reads_end: bool, rate: int = 0) -> None:
        self._reads_end = reads_end
        self._rate = rate
        self._requests = [b"GET /api/stream HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"]
        self.received = b""

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        return self._requests.pop() if self._requests else b""

    async def send_all(self, data: Any) -> None:
        if data.endswith(END) and not self._reads_end:
            await trio.sleep_forever()
        if self._rate:
            await trio.sleep_until(trio.current_time() + len(data) / self._rate)
        self.received += data

    async def wait_send_all_might_not_block(self) -> None:
        """Not called here."""

    async def aclose(self) -> None:
        """Not called here."""


def _steps(*pieces: bytes) -> Generator[None, None, Answer]:
    yield
    return Answer(200, stream=_Pieces(*pieces))


def _whole(*parts: bytes) -> Generator[None, None, Answer]:
    yield
    return Answer(200, body=[*parts])


async def _serve(peer: _Peer, *pieces: bytes, is_stream: bool = True) -> None:
    """Serve the peer's request with a stream of these pieces, or with these parts of a body."""

    async def go_on() -> None:
        """Nobody suspends the broker here."""

    steps = _steps if is_stream else _whole
    call = SimpleNamespace(body_max=0, work=Work.METRICS, reads=False, steps=lambda body: steps(*pieces))
    runtime = SimpleNamespace(has_resigned=False, end_turn=lambda: None, wait_while_suspended=go_on)
    state: Any = SimpleNamespace(
        open=lambda request: call,
        turn=trio.Lock(),
        runtime=runtime,
        streams=0,
        answering=nullcontext,
        streaming=nullcontext,
        at_work=lambda work: nullcontext(),
        options=lambda: SimpleNamespace(proxies=(), origins=()),
    )
    slot: Any = SimpleNamespace(at_work=nullcontext)
    await Connection(state, peer, Peer("127.0.0.1", True), slot, is_metrics=False).serve()


def _seconds_to_serve(peer: _Peer, *pieces: bytes, is_stream: bool = True) -> float:
    async def main() -> float:
        began_s = trio.current_time()
        with trio.move_on_after(100 * ANSWER_S):
            await _serve(peer, *pieces, is_stream=is_stream)
        return trio.current_time() - began_s

    return trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


def test_who_does_not_read_the_end_is_given_up() -> None:
    """Like a peer that does not read a piece."""
    assert _seconds_to_serve(_Peer(reads_end=False), b"piece") == pytest.approx(ANSWER_S)


@pytest.mark.parametrize("pieces", [(), (b"piece",)])
def test_a_stream_is_a_whole_answer(pieces: tuple[bytes, ...]) -> None:
    """Also one that has already ended when it begins, because its session has."""
    peer = _Peer(reads_end=True)
    _seconds_to_serve(peer, *pieces)
    assert peer.received.startswith(b"HTTP/1.1 200 ")
    assert peer.received.endswith(b"".join(b"%x\r\n%s\r\n" % (len(one), one) for one in pieces) + END)


@pytest.mark.parametrize("is_stream", [False, True])
def test_who_reads_slowly_gets_the_whole_answer(is_stream: bool) -> None:
    """Definitions of 2 MB at 2 KB a second. They were cut after 30 seconds."""
    parts = [b"\1" * 1_000_000, b"\2" * 1_000_000]
    peer = _Peer(reads_end=True, rate=2048)
    assert _seconds_to_serve(peer, *parts, is_stream=is_stream) > 30 * ANSWER_S
    assert (peer.received.count(b"\1"), peer.received.count(b"\2")) == (1_000_000, 1_000_000)


@pytest.mark.parametrize("is_stream", [False, True])
def test_who_reads_next_to_nothing_is_given_up(is_stream: bool) -> None:
    """It would keep the whole answer in memory for days."""
    peer = _Peer(reads_end=True, rate=SENT_IN_TIME // 31)
    assert _seconds_to_serve(peer, b"x" * 2_000_000, is_stream=is_stream) == pytest.approx(ANSWER_S, rel=0.1)
