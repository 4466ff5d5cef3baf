"""`leveret test-server`: its HTTP interface, what is wrong and hostile there, and its clients in other languages."""

import base64
import http.client
import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pika
import pytest

from leveret.testing.broker import RunningBroker
from leveret.testing.host import Host
from leveret.testing.options import read_options
from leveret.testing.remote.values import json_of

PROGRAMS = Path(__file__).parent / "remote_programs"
SERVER = [sys.executable, "-m", "leveret", "test-server"]


class Remote:
    """A client as bare as can be."""

    def __init__(self, ready: dict[str, str]) -> None:
        self.url, self.token = ready["url"], ready["token"]
        self.address = urlsplit(ready["control"]).hostname or "", urlsplit(ready["control"]).port or 0

    def ask(
        self, operation: str, body: bytes = b"{}", method: str = "POST", **headers: str
    ) -> tuple[int, dict[str, Any]]:
        connection = http.client.HTTPConnection(*self.address, timeout=60)
        given = {"Authorization": f"Bearer {self.token}", **headers}
        connection.request(method, f"/v1/{operation}", body, given)
        answer = connection.getresponse()
        content = json.loads(answer.read())
        connection.close()
        return answer.status, content

    def call(self, operation: str, **arguments: Any) -> Any:
        status, content = self.ask(operation, json.dumps(arguments).encode())
        assert status == 200, content
        return content["result"]

    def error(self, operation: str, **arguments: Any) -> tuple[int, str]:
        status, content = self.ask(operation, json.dumps(arguments).encode())
        return status, content["error"]


@contextmanager
def served(*options: str, **environment: str) -> Iterator[Remote]:
    with subprocess.Popen(
        [*SERVER, "--with-parent", *options],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        yield Remote(json.loads(process.stdout.readline()))
        process.stdin.close()
        assert process.wait(60) == 0


@pytest.fixture(scope="module")
def remote() -> Iterator[Remote]:
    with served() as remote:
        yield remote


def test_a_client_is_watched_and_time_turns(remote: Remote) -> None:
    """Publishes of a real client are seen, asserted and expire; octets that are no text go through."""
    made = remote.call("vhosts.create")
    vhost = made["name"]
    connection = pika.BlockingConnection(pika.URLParameters(made["url"]))
    channel = connection.channel()
    channel.queue_declare("q", arguments={"x-message-ttl": 3_600_000})
    for body in (b"text", b"\xff\x00"):
        channel.basic_publish("", "q", body, pika.BasicProperties(headers={"n": 1}, priority=0, app_id=""))
    remote.call("assert_queue", name="q", ready=2, within=5, vhost=vhost)
    first, second = remote.call("published", vhost=vhost)
    assert (first["body"], second["body"]) == ("text", {"base64": base64.b64encode(b"\xff\x00").decode()})
    assert first["properties"] == {"headers": {"n": 1}, "priority": 0, "app_id": ""} and first["queues"] == ["q"]
    remote.call("assert_queue", name="q", ready=["text", second["body"]], vhost=vhost)
    remote.call("assert_published", body={"$any": True}, headers={"n": 1}, count=2, vhost=vhost)
    status, why = remote.error("assert_queue", name="q", ready=3, vhost=vhost)
    assert status == 417 and "2" in why
    before = remote.call("clock")["elapsed"]
    assert remote.call("clock.advance", hours=2)["elapsed"] == before + 7200
    assert remote.call("queue", name="q", vhost=vhost)["ready"] == []
    expired = remote.call("history", kinds=["expired"], queue="q", vhost=vhost)
    assert [event["subject"] for event in expired] == ["q", "q"]
    connection.close()
    remote.call("vhosts.delete", name=vhost)
    assert remote.error("queues", vhost=vhost)[0] == 400


def test_faults_last_until_they_are_stopped(remote: Remote) -> None:
    """By id; a reset ends them all."""
    with pytest.raises(pika.exceptions.AMQPConnectionError):
        fault = remote.call("faults.start", fault="refuse_connections")
        pika.BlockingConnection(pika.URLParameters(remote.url))
    remote.call("faults.stop", id=fault["id"])
    pika.BlockingConnection(pika.URLParameters(remote.url)).close()
    remote.call("faults.start", fault="nack_confirms", times=1)
    remote.call("reset")
    assert remote.call("faults") == []
    assert remote.error("faults.stop", id=fault["id"]) == (400, f"no fault {fault['id']} is running")


@pytest.mark.parametrize("way", ["reset", "vhosts.delete"])
def test_faults_of_a_virtual_host_end_with_it(remote: Remote, way: str) -> None:
    """They are no longer listed, and cannot be stopped; those of others stay."""
    name = remote.call("vhosts.create")["name"]
    gone = remote.call("faults.start", fault="nack_confirms", vhost=name)
    other = remote.call("faults.start", fault="nack_confirms", vhost="/")
    remote.call(way, **{"vhost" if way == "reset" else "name": name})
    assert remote.call("faults") == [other]
    assert remote.error("faults.stop", id=gone["id"]) == (400, f"no fault {gone['id']} is running")
    remote.call("faults.stop", id=other["id"])


@pytest.mark.parametrize(
    ("operation", "arguments", "status", "text"),
    [
        ("asert_queue", {}, 404, "no operation 'asert_queue', did you mean 'assert_queue'?"),
        ("__init__", {}, 404, "no operation '__init__'"),
        ("published", {"exchang": "x"}, 400, "published: unknown argument 'exchang', did you mean 'exchange'?"),
        ("queue", {}, 400, "queue: missing a required argument: 'name'"),
        ("queue", {"name": "none"}, 400, "no queue 'none' in virtual host '/'"),
        ("queues", {"vhost": "none"}, 400, "no virtual host 'none'"),
        ("history", {"kinds": ["deliverd"]}, 400, "'deliverd' is invalid, did you mean 'delivered'?"),
        ("faults.start", {"fault": "blok"}, 400, "no fault 'blok', did you mean 'block'?"),
        ("faults.start", {"fault": "_start"}, 400, "no fault '_start'"),
        ("faults.start", {"fault": "block", "reson": "x"}, 400, "block: unknown argument 'reson', did you mean"),
        ("faults.start", {"fault": "chaos", "seed": 1, "drop": 7}, 400, "drop: 7 is invalid"),
        ("clock.advance", {"seconds": -1}, 400, ""),
        ("clock.advance", {"days": 1e30}, 400, "expected at most 1000 years"),
        ("clock.advance", {"days": float("nan")}, 400, "the body is no JSON object"),
        ("history", {"kinds": "delivered"}, 400, "history: kinds: 'delivered' is invalid, expected a list of kinds"),
        ("inject", {"routing_key": "q", "headers": [1]}, 400, "headers: [1] is invalid, expected a table"),
        ("clock.travel_to", {"when": "tomorrow"}, 400, "Invalid isoformat string: 'tomorrow'"),
        ("assert_published", {"body": {"base64": "?"}}, 400, "base64: this is not base64"),
        ("assert_published", {"colour": "x"}, 400, "unknown property 'colour'"),
        ("inject", {"routing_key": 7}, 400, "inject: routing_key: 7 is invalid, expected str"),
        ("history", {"queue": ["q"]}, 400, "history: queue: ['q'] is invalid, expected str or null"),
        ("assert_queue", {"name": "q", "within": True}, 400, "within: True is invalid, expected float"),
    ],
)
def test_wrong_arguments_are_named(
    remote: Remote, operation: str, arguments: dict[str, Any], status: int, text: str
) -> None:
    """With the nearest name, as in Python; the server goes on."""
    answered, why = remote.error(operation, **arguments)
    assert (answered, text in why) == (status, True), why
    assert remote.call("info")["clock"] == "virtual"


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"{", {}, 400),
        (b"[]", {}, 400),
        (b"[" * 100_000, {}, 400),
        (b'{"body": ' + b'{"a":' * 900 + b"1" + b"}" * 901, {}, 400),
        (b"\xff", {}, 400),
        (b'{"body": -Infinity}', {}, 400),
        (b'{"body": 1e999}', {}, 400),
        (b'{"body": ' + b"1" * 31 + b"}", {}, 400),
        (b"{}", {"Authorization": "Bearer no"}, 401),
        (b"{}", {"Authorization": "Bearer \xff"}, 401),
        (b"{}", {"Host": "evil.example"}, 403),
        (b"", {"Content-Length": "99999999"}, 413),
        (b"", {"Content-Length": "-1"}, 411),
        (b"", {"Content-Length": "1" * 30}, 413),
        (b"", {"Transfer-Encoding": "chunked"}, 411),
    ],
)
def test_hostile_requests(remote: Remote, body: bytes, headers: dict[str, str], status: int) -> None:
    """Each is answered with JSON, and nothing of it is done."""
    assert remote.ask("assert_published", body, **headers)[0] == status
    assert remote.call("info")["clock"] == "virtual"


def test_a_number_that_json_does_not_have() -> None:
    """A client may publish one; the answer has null in its place, as the broker's lists have."""
    assert json_of({"x": float("nan"), "y": [float("-inf")], "z": 0.5}) == {"x": None, "y": [None], "z": 0.5}


def test_requests_that_are_no_post(remote: Remote) -> None:
    """A list of the operations; nothing else, and nothing without the token."""
    status, content = remote.ask("", method="GET")
    assert status == 200 and content["result"]["queue"].startswith("(name: str, *, vhost:")
    assert remote.ask("queues", method="GET")[0] == 404
    assert remote.ask("", method="GET", Authorization="") == (
        401,
        {"error": "expected the header Authorization: Bearer TOKEN"},
    )
    assert remote.ask("", method="GET", Authorization="Bearer x")[1]["error"] == "the token is not that of this server"
    for method in ("PUT", "DELETE", "PATCH", "OPTIONS"):
        assert remote.ask("queues", method=method)[0] == 405
    assert remote.ask("queues", method="BREW")[0] == 501
    for words in (b"GARBAGE", b"GET /v1/ HTTP/9", b"GET /" + b"a" * 70_000 + b" HTTP/1.1"):
        with socket.create_connection(remote.address, timeout=60) as sock, sock.makefile("rb") as answer:
            sock.sendall(words + b"\r\n\r\n")
            text = answer.read()
        assert json.loads(text.rpartition(b"\r\n")[2])["error"], text
    with socket.create_connection(remote.address) as sock:  # as `curl -X POST`: no body, and no length of it
        host, port = remote.address
        head = f"POST /v1/info HTTP/1.1\r\nHost: {host}:{port}\r\nAuthorization: Bearer {remote.token}\r\n\r\n"
        sock.sendall(head.encode())
        assert sock.makefile("rb").readline() == b"HTTP/1.1 200 OK\r\n"
    with socket.create_connection(remote.address) as sock:
        sock.sendall(b"POST /v1/reset HTTP/1.1\r\nContent-Length: 50\r\n")  # and no more comes
    assert remote.call("info")


def test_the_token_may_come_from_the_environment_and_ports_may_be_fixed() -> None:
    """As for containers."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = subprocess.run([*SERVER, "--port", str(port)], capture_output=True, text=True, timeout=60)
        assert done.returncode == 2 and str(port) in done.stderr and "Traceback" not in done.stderr
        done = subprocess.run([*SERVER, "--control-port", str(port)], capture_output=True, text=True, timeout=60)
        assert done.returncode == 2 and str(port) in done.stderr and "Traceback" not in done.stderr
    done = subprocess.run([*SERVER, "--quiet-ms", "-1"], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (
        2,
        "leveret test-server: quiet_ms: -1.0 is invalid, expected milliseconds\n",
    )
    options = ("--port", str(port), "--clock", "real", "--quiet-ms", "7.5")
    with served(*options, LEVERET_TEST_TOKEN="secret") as remote:
        assert (remote.token, urlsplit(remote.url).port) == ("secret", port)
        assert remote.error("clock.advance", seconds=1)[0] == 400


def test_a_broker_for_other_machines_lets_guest_in_from_there() -> None:
    """As in a container, whose ports are published; on loopback guest is from loopback only."""
    for host, is_local in (("127.0.0.1", True), ("0.0.0.0", False)):
        broker = RunningBroker(Host(read_options(host=host))).start()
        user = broker.runtime.broker.users.find("guest")
        assert user is not None and user.loopback_only is is_local
        broker.stop()


def test_another_address_is_that_of_the_line() -> None:
    """Whoever starts it connects to what the line says."""
    with served("--host", "127.0.0.2") as remote:
        assert urlsplit(remote.url).hostname == remote.address[0] == "127.0.0.2"
        pika.BlockingConnection(pika.URLParameters(remote.url)).close()
        assert remote.call("queues") == []


def test_the_command_line_of_the_container() -> None:
    """With free ports: the line that Testcontainers waits for, both ports, and the token; SIGTERM ends it."""
    recipe = (Path(__file__).resolve().parents[2] / "deploy" / "test-server.Containerfile").read_text()
    (line,) = (line for line in recipe.splitlines() if line.startswith("ENTRYPOINT "))
    words = json.loads(line.removeprefix("ENTRYPOINT "))
    assert words[:2] == ["leveret", "test-server"] and "EXPOSE 5672 15675" in recipe
    options = ["0" if word in ("5672", "15675") else word for word in words[2:]]
    environment = {**os.environ, "LEVERET_TEST_TOKEN": "secret"}
    with subprocess.Popen([*SERVER, *options], stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        ready = process.stdout.readline()
        assert '"control"' in ready
        there = {name: value.replace("0.0.0.0", "127.0.0.1") for name, value in json.loads(ready).items()}
        remote = Remote(there)
        assert remote.token == "secret" and remote.call("info")["clock"] == "virtual"
        pika.BlockingConnection(pika.URLParameters(there["url"])).close()
        process.terminate()
        assert process.wait(60) == 0


def test_ctl_talks_to_a_test_server(remote: Remote, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the token in the environment, or in the URL."""
    host, port = remote.address

    def ctl(url: str, *words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "leveret", "ctl", "--url", url, *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=60)

    url = f"http://:{remote.token}@{host}:{port}"
    assert json.loads(ctl(url, "--json", "info").stdout)["clock"] == "virtual"
    assert ctl(url, "vhosts.create", "name=ctl").returncode == 0
    assert ctl(url, "vhosts.create", "name=NaN").returncode == 0  # no JSON, so text
    assert json.loads(ctl(url, "--vhost", "ctl", "queues").stdout) == []
    assert json.loads(ctl(url, "clock.advance", "hours=2", "minutes=1").stdout)["mode"] == "virtual"
    for words, said in (
        ((url, "asert_queue"), "no operation 'asert_queue', did you mean 'assert_queue'?"),
        ((url, "assert_queue", "name=q"), "no queue 'q' in virtual host '/'"),
        ((url, "queue", "q"), "'q': expected NAME=VALUE"),
        ((f"http://{host}:{port}", "info"), "expected the header Authorization"),
        (("http://127.0.0.1:1", "info"), "127.0.0.1:1: Connection refused"),
        ((remote.url.replace("amqp", "http"), "info"), "is not a test server"),
        (("http://127.0.0.1", "info"), "--url: expected http://HOST:PORT"),
    ):
        done = ctl(*words)
        assert (done.returncode, said in done.stderr) == (1, True), done.stderr
    monkeypatch.setenv("LEVERET_TEST_TOKEN", remote.token)
    assert ctl(f"http://{host}:{port}", "vhosts.delete", "name=ctl").returncode == 0


def client(language: str) -> str:
    return subprocess.run(
        [*SERVER, "--client", language], capture_output=True, text=True, check=True, timeout=60
    ).stdout


def run(directory: Path, *command: str) -> str:
    """In an environment where `leveret` is this one."""
    program = directory / "leveret"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m leveret "$@"\n')
    program.chmod(0o755)
    environment = {**os.environ, "LEVERET": str(program)}
    done = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(shutil.which("node") is None, reason="no node on the PATH")
def test_node(tmp_path: Path) -> None:
    """The client is one file."""
    (tmp_path / "leveret.mjs").write_text(client("node"))
    shutil.copy(PROGRAMS / "story.mjs", tmp_path)
    assert run(tmp_path, "node", "story.mjs") == "ok\n"


@pytest.mark.toolchain
@pytest.mark.skipif(shutil.which("go") is None, reason="no go on the PATH")
def test_go(tmp_path: Path) -> None:
    """The client is one package of one file."""
    (tmp_path / "leverettest").mkdir()
    (tmp_path / "leverettest" / "leverettest.go").write_text(client("go"))
    (tmp_path / "go.mod").write_text("module story\n\ngo 1.20\n")
    shutil.copy(PROGRAMS / "story.go", tmp_path)
    assert run(tmp_path, "go", "run", ".") == "ok\n"


@pytest.mark.toolchain
@pytest.mark.skipif(shutil.which("javac") is None, reason="no javac on the PATH")
def test_java(tmp_path: Path) -> None:
    """The client is one class of one file."""
    (tmp_path / "LeveretTest.java").write_text(client("java"))
    shutil.copy(PROGRAMS / "Story.java", tmp_path)
    run(tmp_path, "javac", "-Xlint:all", "-Werror", "--release", "17", "Story.java", "LeveretTest.java")
    assert run(tmp_path, "java", "-XX:TieredStopAtLevel=1", "-cp", ".", "Story") == "ok\n"
