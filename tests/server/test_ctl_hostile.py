"""`leveret ctl` and a server that is no broker, or a bad one: it ends, with one sentence and exit code 1."""

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from node_forge import leveret
from pamqp import commands, frame, header, heartbeat
from pamqp.body import ContentBody

from leveret.cli import control_client
from leveret.cli.control_client import REPLY_SIZE_MAX
from leveret.cli.node_commands import node_state
from leveret.testing import start_broker

BEFORE = b"".join(
    frame.marshal(method, channel)
    for channel, method in (
        (0, commands.Connection.Start(0, 9, {}, "PLAIN", "en_US")),
        (0, commands.Connection.Tune(2047, 131072, 0)),
        (0, commands.Connection.OpenOk()),
        (1, commands.Channel.OpenOk()),
        (1, commands.Basic.ConsumeOk("c")),
    )
)
HEARTBEAT = frame.marshal(heartbeat.Heartbeat(), 0)


def reply(body: bytes, size: int | None = None) -> bytes:
    """A delivery with this body, which says that it has `size`."""
    said = len(body) if size is None else size
    deliver = frame.marshal(commands.Basic.Deliver("c", 1, False, "", "x"), 1)
    parts = [body[at : at + 100_000] for at in range(0, len(body), 100_000)]
    return (
        deliver
        + frame.marshal(header.ContentHeader(0, said), 1)
        + b"".join(frame.marshal(ContentBody(part), 1) for part in parts)
    )


@contextmanager
def server(first: bytes, for_ever: bytes = b"") -> Iterator[str]:
    """Sends these, then the others again and again, to whoever comes. Yields: its URL."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        client, _ = listener.accept()
        with client:
            try:
                client.sendall(first)
                while for_ever:
                    client.sendall(for_ever)
                while client.recv(65536):
                    pass
            except OSError:
                pass

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"amqp://guest:guest@127.0.0.1:{listener.getsockname()[1]}/"
    finally:
        thread.join()
        listener.close()


def said_to(url: str, *words: str) -> str:
    """What `ctl` says on stderr: it must fail, in one line."""
    done = leveret("ctl", "--url", url, *words)
    assert (done.returncode, done.stdout) == (1, ""), done
    assert done.stderr.startswith("leveret ctl: ") and done.stderr.count("\n") == 1, done.stderr
    return done.stderr


@pytest.mark.parametrize("first", [b"", BEFORE], ids=["at once", "instead of an answer"])
@pytest.mark.parametrize("for_ever", [b"", HEARTBEAT], ids=["silence", "heartbeats"])
def test_a_server_that_never_answers(first: bytes, for_ever: bytes) -> None:
    """Octets that are no answer win it no time."""
    with server(first, for_ever) as url:
        assert "did not answer within 1 s (--timeout SECONDS)" in said_to(url, "--timeout", "1", "status")


def test_a_body_that_comes_for_ever() -> None:
    """Of the size that was said."""
    with server(BEFORE + reply(b"", REPLY_SIZE_MAX), frame.marshal(ContentBody(b"x"), 1)) as url:
        assert "did not answer within 1 s" in said_to(url, "--timeout", "1", "status")


def test_a_reply_that_is_too_large() -> None:
    """It is not taken in at all."""
    with server(BEFORE + reply(b"", 1 << 40), frame.marshal(ContentBody(bytes(100_000)), 1)) as url:
        assert "has an answer of 1099511627776 octets; 268435456 is the most" in said_to(url, "status")


@pytest.mark.parametrize(
    "answer",
    [
        b"\xff{", b"", b"[1]", b"null", b'{"ok": true, "result": ' + b"[" * 60_000 + b"]" * 60_000 + b"}",
        b'{"ok": true, "result": {"a": ' + b"9" * 6000 + b"}}",
    ],
    ids=["no text", "nothing", "list", "null", "deep", "number"],
)  # fmt: skip
def test_an_answer_that_is_none(answer: bytes) -> None:
    """One sentence for all of them."""
    with server(BEFORE + reply(answer)) as url:
        assert "does not speak AMQP 0-9-1 as a broker does" in said_to(url, "status")


@pytest.mark.parametrize("words", [("status",), ("definitions", "export"), ("explain", "q"), ("queues",)])
@pytest.mark.parametrize("result", [b"5", b"[5, null]", b'[{"a": 1}]', b"[" * 900 + b"]" * 900])
def test_an_answer_of_another_shape(words: tuple[str, ...], result: bytes) -> None:
    """It is shown, or there is one sentence; never a traceback."""
    with server(BEFORE + reply(b'{"ok": true, "result": ' + result + b"}")) as url:
        done = leveret("ctl", "--url", url, *words)
        assert "Traceback" not in done.stderr and done.stderr.count("\n") == done.returncode, done.stderr


@pytest.mark.parametrize("words", [("drain", "a"), ("handover",), ("revive", "a"), ("forget", "a"), ("reload",)])
@pytest.mark.parametrize("result", [b"5", b"[5]", b"{}", b'{"others": 5}', b'{"from": 5}'])
def test_a_change_of_a_node_that_is_answered_oddly(words: tuple[str, ...], result: bytes) -> None:
    """Also where more requests would follow; never a traceback."""
    with server(BEFORE + reply(b'{"ok": true, "result": ' + result + b"}")) as url:
        done = leveret("ctl", "--url", url, "--timeout", "1", *words)
        assert "Traceback" not in done.stderr and done.stderr.count("\n") == done.returncode, done.stderr


@pytest.mark.parametrize(
    "result",
    [b"5", b"[]", b"{}", b'{"changes": 5, "queues": []}', b'{"changes": [], "queues": [5], "more": 0}'],
)
def test_a_difference_of_another_shape(result: bytes, tmp_path: Path) -> None:
    """As of `ctl`."""
    (tmp_path / "new.toml").write_text("")
    with server(BEFORE + reply(b'{"ok": true, "result": ' + result + b"}")) as url:
        done = leveret("diff", "--live", "--url", url, str(tmp_path / "new.toml"))
    said = "leveret diff: the answer is not one that this program understands\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", said)


@pytest.mark.parametrize("command", ["definitions", "diff"])
def test_long_commands_have_more_time(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`leveret diff --live` has no option for it, and a broker with 100,000 queues compares them for minutes."""
    monkeypatch.setattr(control_client, "LONG_TIMEOUT_S", 0.2)
    with server(b"") as url, pytest.raises(control_client.ControlFailed, match="did not answer within 0.2 s"):
        control_client.request(url, command, {})


@pytest.mark.parametrize("ms", ["1" + "0" * 30, "-1" + "0" * 30, "1e300", "NaN"])
def test_an_answer_with_a_time_that_is_none(ms: str) -> None:
    """Behind the year 9999, or before the first one."""
    result = f'{{"node": "a", "since-ms": 0, "changes": [{{"at-ms": {ms}, "what": "led"}}]}}'
    with server(BEFORE + reply(b'{"ok": true, "result": ' + result.encode() + b"}")) as url:
        assert "is not one that this program understands" in said_to(url, "cluster", "history")


def test_a_test_server_whose_answer_is_too_deep() -> None:
    """It is none."""
    body = b"[" * 100_000
    with server(b"HTTP/1.0 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)) as url:
        place = url.removeprefix("amqp://guest:guest@").removesuffix("/")
        assert f"{place} is not a test server" in said_to(f"http://{place}", "info")


@pytest.mark.parametrize("frame_max", [4096, 131072])
def test_a_broker_with_small_frames(frame_max: int) -> None:
    """Requests and answers are divided as it wants: such a broker could not be managed at all."""
    names = [f"user{number:05}" for number in range(200)]
    users = {"users": [{"name": name, "password_hash": "", "tags": ""} for name in names]}
    with start_broker(config=f"[broker]\nframe-max = {frame_max}\n") as broker:
        control_client.request(broker.url, "definitions", {"action": "import", "definitions": users})
        found = control_client.request(broker.url, "users", {"action": "list"})
    assert {row["name"] for row in found} >= set(names)


@pytest.mark.parametrize("body", [b"5", b"[1]", b"null", b"{}", b'{"node": "a", "state": "x"}', b"[" * 60_000])
def test_a_server_that_tells_no_state_of_a_node(body: bytes) -> None:
    """It is no node that keeps its clients waiting."""
    with server(b"HTTP/1.0 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)) as url:
        assert node_state(url, 60) is None


@pytest.mark.parametrize("seconds", ["0", "-1", "x", "inf", "nan"])
def test_a_timeout_that_is_none(seconds: str) -> None:
    """Refused before anything is asked."""
    done = leveret("ctl", "--timeout", seconds, "status")
    assert done.returncode and "--timeout" in done.stderr and "Traceback" not in done.stderr


def test_looking_up_connecting_and_tls_share_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """What one of them takes, the others do not have; an address that refuses leaves the rest to the next one."""
    now = [100.0]
    waits: list[float | None] = []
    listener = socket.create_server(("127.0.0.1", 0))
    address = listener.getsockname()

    def look_up(*_: object, **__: object) -> list[object]:
        now[0] += 10
        free = socket.create_server(("127.0.0.1", 0))
        refusing = free.getsockname()
        free.close()
        return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", one) for one in (refusing, address)]

    class _Context:
        def wrap_socket(self, sock: socket.socket, server_hostname: str) -> socket.socket:
            waits.append(sock.gettimeout())
            raise TimeoutError

    monkeypatch.setattr(control_client, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    with listener, pytest.raises(control_client.ControlFailed, match="did not answer within 30 s"):
        control_client.request(
            f"amqps://a:b@broker:{address[1]}/", "status", {}, timeout_s=30, context=cast("ssl.SSLContext", _Context())
        )
    assert waits == [20.0]


def test_a_name_that_is_looked_up_for_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no time left for a connection."""
    now = [100.0]

    def look_up(*_: object, **__: object) -> list[object]:
        now[0] += 31
        return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", 1))]

    monkeypatch.setattr(control_client, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    with pytest.raises(control_client.ControlFailed, match="did not answer within 30 s"):
        control_client.request("amqp://a:b@broker:1/", "status", {}, timeout_s=30)
