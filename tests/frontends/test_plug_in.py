"""A frontend is a plug-in found by entry point, and the engine's façade is all it needs."""

import socket
import sys
from pathlib import Path

import pytest
import trio

from leveret.amqp_frontend.edge.server import serve as serve_amqp
from leveret.engine import Broker
from leveret.engine.messages.content import NATIVE
from leveret.serving.composition import default_users
from leveret.serving.frontends import FrontendMissing, find_frontend
from leveret.serving.runtime import Runtime, SystemClock


@pytest.fixture
def toy_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A distribution that registers the toy frontend, as pip would have installed it."""
    metadata = tmp_path / "toy-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: toy\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[leveret.frontends]\ntoy = toy_frontend:serve\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    monkeypatch.delitem(sys.modules, "toy_frontend", raising=False)


def test_frontends_are_found_by_entry_point(toy_installed: None) -> None:
    """amqp is registered like any other; a name that nobody registers is a clear error."""
    assert find_frontend("amqp") is serve_amqp
    assert find_frontend("toy").__module__ == "toy_frontend"
    with pytest.raises(FrontendMissing, match="no frontend 'stomp' is installed"):
        find_frontend("stomp")


def test_a_toy_frontend_and_amqp_share_a_broker(toy_installed: None) -> None:
    """What telnet puts, an AMQP-side session gets, and the other way round, through the façade alone."""
    frontend = find_frontend("toy")

    async def main() -> list[bytes]:
        runtime = Runtime(Broker(SystemClock(), default_users()))
        listener = socket.create_server(("127.0.0.1", 0))
        stopping = trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(runtime.run)

            async def serve(task_status: "trio.TaskStatus[None]") -> None:
                await frontend(runtime, [listener], stopping=stopping, task_status=task_status)

            await nursery.start(serve)
            guest = runtime.broker.users.identify("guest", mechanism="TEST", is_loopback=True)
            other = runtime.broker.connections.open("/", guest, name="other", flush=lambda: None)
            queue = other.vhost.queues.declare("q", client=other)
            stream = await trio.open_tcp_stream("127.0.0.1", listener.getsockname()[1])
            lines: list[bytes] = []
            buffer = b""
            await stream.send_all(b"PUT q one\nTAKE q\nPUT q two\nTAKE nothing\n")
            while len(lines) < 3:
                buffer += await stream.receive_some()
                *lines, _ = buffer.split(b"\n")
            await stream.aclose()
            while queue.consumers:
                await trio.lowlevel.checkpoint()
            stopping.set()
            nursery.cancel_scope.cancel()
        return sorted(lines)

    assert trio.run(main) == [b"ERROR QueueNotFound", b"q one", b"q two"]


def test_plain_content_is_framed_for_amqp() -> None:
    """A content of the engine's own framing splits into what was joined."""
    assert NATIVE.split(NATIVE.join(b"header", b"body")) == (b"header", b"body")
