"""The end of an answer that is sent piece by piece. Source: management page 20."""

from collections.abc import Generator
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from leveret.console.connection import ANSWER_S, Connection
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
    """Sends one request. It reads the answer, or all but its end."""

    def __init__(self, *, reads_end: bool) -> None:
        self._reads_end = reads_end
        self._requests = [b"GET /api/stream HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"]
        self.received = b""

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        return self._requests.pop() if self._requests else b""

    async def send_all(self, data: Any) -> None:
        if data.endswith(END) and not self._reads_end:
            await trio.sleep_forever()
        self.received += data

    async def wait_send_all_might_not_block(self) -> None:
        """Not called here."""

    async def aclose(self) -> None:
        """Not called here."""


def _steps(*pieces: bytes) -> Generator[None, None, Answer]:
    yield
    return Answer(200, stream=_Pieces(*pieces))


async def _serve(peer: _Peer, *pieces: bytes) -> None:
    """Serve the peer's request with a stream of these pieces."""

    async def go_on() -> None:
        """Nobody suspends the broker here."""

    call = SimpleNamespace(body_max=0, work=Work.METRICS, reads=False, steps=lambda body: _steps(*pieces))
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


def _seconds_to_serve(peer: _Peer, *pieces: bytes) -> float:
    async def main() -> float:
        began_s = trio.current_time()
        with trio.move_on_after(10 * ANSWER_S):
            await _serve(peer, *pieces)
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
