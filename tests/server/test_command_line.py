"""`leveret serve`, `check` and `ctl` as a person or a script meets them. Source: interfaces page."""

import json
import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pika
import pytest
from broker_process import leveret_serve
from node_forge import leveret

from leveret.__main__ import main
from leveret.serving.addresses import Address, AddressTaken, bind


@pytest.fixture
def own_logging() -> Iterator[None]:
    """A command that runs in this process sets up logging, which ends with it."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def test_ready_lines_come_in_the_order_given_with_real_ports(tmp_path: Path) -> None:
    """One line a listener on stdout: the real port also for :0, unix:PATH as it is."""
    listen = ("127.0.0.1:0", f"unix:{tmp_path}/s", "[::1]:0" if socket.has_ipv6 else "127.0.0.1:0")
    with leveret_serve(tmp_path, listen=listen) as broker:
        assert broker.lines[0] == f"leveret ready amqp://127.0.0.1:{broker.port}/"
        assert broker.port > 0
        assert broker.lines[1] == f"leveret ready unix:{tmp_path}/s"
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(f"{tmp_path}/s")
            client.sendall(b"AMQP\x00\x00\x09\x01")
            assert client.recv(4) == b"\x01\x00\x00\x00"
        assert broker.stop() == 0
        assert not os.path.exists(tmp_path / "s")


def test_sigterm_says_320_to_all_and_exits_0(tmp_path: Path) -> None:
    """connection.close 320 with RabbitMQ's text goes to every connection, then exit 0."""
    with leveret_serve(tmp_path) as broker:
        connections = [pika.BlockingConnection(pika.URLParameters(broker.url)) for _ in range(3)]
        broker.process.terminate()
        for connection in connections:
            with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as closed:
                connection.process_data_events(time_limit=60)
            assert closed.value.reply_code == 320
            assert closed.value.reply_text == (
                "CONNECTION_FORCED - broker forced connection closure with reason 'shutdown'"
            )
        assert broker.process.wait(timeout=60) == 0


def test_a_taken_port_is_exit_1_and_one_sentence(tmp_path: Path) -> None:
    """No traceback: what is wrong, in a line."""
    with leveret_serve(tmp_path) as broker:
        second = leveret("serve", "--memory", "--management", "off", "--listen", f"127.0.0.1:{broker.port}")
        assert second.returncode == 1
        assert second.stdout == ""
        (line,) = second.stderr.splitlines()
        assert line.startswith(f"leveret: cannot listen on 127.0.0.1:{broker.port}: ")
        assert line.endswith("; perhaps another broker runs: take another port, or 0 for any free one")


@pytest.mark.parametrize(
    "options, words",
    [
        ({}, "; 0.0.0.0 stands for all that it has"),
        ({"hint_if_foreign": "is node = 'c' right?"}, "; is node = 'c' right?"),
    ],
)
def test_an_address_of_another_machine_is_said_to_be_that(options: dict[str, str], words: str) -> None:
    """192.0.2.0/24 is for documentation: no machine has it."""
    with pytest.raises(AddressTaken) as refused:
        bind(Address("192.0.2.1", 5672), 1, **options)
    assert str(refused.value) == f"cannot listen on 192.0.2.1:5672: this machine does not have that address{words}"


@pytest.mark.usefixtures("own_logging")
def test_nothing_is_left_of_a_start_whose_addresses_are_taken(tmp_path: Path) -> None:
    """Also of the Unix sockets that were bound before, for AMQP or for the console."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = f"127.0.0.1:{taken.getsockname()[1]}"
        for option in ("--listen", "--management"):
            assert main(["serve", "--memory", "--listen", f"unix:{tmp_path}/first", option, port]) == 1
            assert not os.path.exists(tmp_path / "first")


def test_without_memory_the_journal_is_in_leveret_data(tmp_path: Path) -> None:
    """Made where it was started; a second broker there says so in one sentence, exit 1."""
    command = [sys.executable, "-m", "leveret", "serve", "--listen", "127.0.0.1:0", "--management", "off"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path) as process:
        assert process.stdout is not None and process.stdout.readline().startswith("leveret ready")
        second = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=60)
        process.terminate()
        process.communicate(timeout=60)
    assert process.returncode == 0
    assert list((tmp_path / "leveret-data").glob("*.log"))
    assert second.returncode == 1
    (line,) = (line for line in second.stderr.splitlines() if line.startswith("leveret: "))
    assert "leveret-data" in line


@pytest.mark.parametrize(
    "config, fault",
    [
        ("[broker]\nheartbeet = 5\n", ":2: heartbeet: unknown key in [broker], did you mean 'heartbeat'?"),
        ("[brokr]\n", ":1: brokr: unknown table, did you mean 'broker'?, expected one of "),
        (
            "listen = ['127.0.0.1:5672']\n",
            ":1: listen: is above every table, expected in [broker] and [management]",
        ),
        (
            "listeners.tcp.default = 5672\ndefault_user = shop\n",
            ":1: FILE: looks like rabbitmq.conf, which is not read: ",
        ),
        ("[broker]\n\nheartbeat = 'soon'\n", ":3: heartbeat: 'soon' is invalid, expected a duration"),
        ("[limits]\nmessage-size = -1\n", ":2: message-size: -1 is invalid, expected a size"),
        ("[broker]\nprofile = 'kafka'\n", ":2: profile: 'kafka' is invalid, expected one of leveret"),
        ("[broker]\nlisten = [1]\n", ":2: listen: [1] is invalid, expected a list of texts"),
        ("broker = 3\n", ":1: broker: expected a table [broker]"),
        ("[broker\n", ":1: TOML: "),
        ("[[policy]]\nname = 'x'\n", ":1: pattern: is missing in [[policy]]"),
    ],
)
@pytest.mark.usefixtures("own_logging")
def test_configuration_faults_name_file_line_and_key(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], config: str, fault: str
) -> None:
    """Exit 2 from serve and check alike, each fault as FILE:LINE: KEY: what is wrong, what was expected.

    In this process: a start of Python for each would take longer than all the rest.
    """
    file = tmp_path / "bad.toml"
    file.write_text(config)
    assert main(["serve", "--memory", "--config", str(file)]) == 2
    told = capsys.readouterr()
    assert told.err.startswith(f"{file}{fault}") and told.out == ""
    assert main(["check", str(file)]) == 2
    assert capsys.readouterr().out.startswith(f"{file}{fault}")


def test_all_faults_come_in_one_go(tmp_path: Path) -> None:
    """Nobody mends a file one fault at a time."""
    file = tmp_path / "bad.toml"
    file.write_text("[broker]\nheartbeet = 5\nprofile = 'x'\n[limits]\nmemory = 'much'\n")
    checked = leveret("check", str(file), str(tmp_path / "missing.toml"))
    assert checked.returncode == 2
    assert len(checked.stdout.splitlines()) == 4
    served = leveret("serve", "--memory", "--config", str(file))
    assert (served.returncode, served.stdout, len(served.stderr.splitlines())) == (2, "", 3)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
@pytest.mark.parametrize(
    "config",
    ["{}", '[broker]\ndefinitions = "{}"', '[tls]\ncertificate = "{}"', '[tls]\ncertificate = "own.pem"\nkey = "{}"'],
    ids=["configuration", "definitions", "certificate", "key"],
)
@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_check_waits_for_no_pipe_and_reads_no_device(tmp_path: Path, config: str, kind: str) -> None:
    """Neither has an end: a pipe may never get a writer."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "own.pem").write_text("-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n")
    file, named = tmp_path / "leveret.toml", str(tmp_path / "pipe") if kind == "pipe" else "/dev/zero"
    file.write_text(config.format(named))
    checked = leveret("check", named if config == "{}" else str(file))
    assert checked.returncode == 2
    assert checked.stdout.rstrip().endswith(f"cannot be read: it is a {'named pipe' if kind == 'pipe' else 'device'}")


@pytest.mark.skipif(not os.path.isdir("/dev/fd"), reason="this system has no /dev/fd")
def test_check_reads_a_pipe_of_the_shell(tmp_path: Path) -> None:
    """As of `leveret check <(make-configuration)`."""
    file = tmp_path / "leveret.toml"
    file.write_text("[broker]\nheartbeat = '30s'\n")
    line = f"{sys.executable} -m leveret check <(cat {file}) /dev/stdin /dev/null < <(cat {file} | grep broker)"
    checked = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=60)
    assert (checked.returncode, checked.stdout) == (0, "ok\n"), checked.stdout


def test_check_says_ok_and_warns_of_keys_without_effect(tmp_path: Path) -> None:
    """A right file is `ok`, exit 0; a key without meaning is accepted, with a warning."""
    file = tmp_path / "good.toml"
    file.write_text("[broker]\nheartbeat = '30s'\n[journal]\nfsync = 'never'\n[limits]\ntable-depth = 5\n")
    checked = leveret("check", str(file))
    assert checked.returncode == 0
    warning, ok = checked.stdout.splitlines()
    why = "The bound is always 64; a lower one would refuse valid tables."
    assert warning == f"warning: {file}:6: table-depth: accepted, but means nothing here: {why}"
    assert ok == "ok"


@pytest.mark.parametrize(
    "address",
    ["nonsense", "127.0.0.1", "127.0.0.1:99999", "x:" + "1" * 5000, "amqps://127.0.0.1:5671", "amqps://x", "unix:"],
)
def test_bad_addresses_are_exit_2(address: str) -> None:
    """What can't be listened on is said before anything starts."""
    served = leveret("serve", "--memory", "--listen", address)
    assert served.returncode == 2
    assert repr(address) in served.stderr
    assert "Traceback" not in served.stderr


@pytest.mark.parametrize("address", [b"\xff:5", b"x" * 300 + b":5", b"a..b:5", b"unix:\xff/s", b"unix:" + b"x" * 300])
def test_names_that_nobody_can_look_up_are_one_line(address: bytes) -> None:
    """No host is called so, and no path: exit 1, as where somebody else listens."""
    served = leveret("serve", "--memory", "--management", "off", "--listen", os.fsdecode(address))
    assert served.returncode == 1
    (line,) = served.stderr.splitlines()
    assert line.startswith("leveret: cannot listen on ")


def test_ctl_status_queues_and_reload(tmp_path: Path) -> None:
    """The control table over AMQP itself, as text and as JSON."""
    with leveret_serve(tmp_path, config="[broker]\nheartbeat = '60s'\n") as broker:
        connection = pika.BlockingConnection(pika.URLParameters(broker.url))
        channel = connection.channel()
        channel.queue_declare("work", durable=True)
        channel.basic_publish("", "work", b"one")
        channel.queue_declare("work", passive=True)
        status = json.loads(leveret("ctl", "--url", broker.url, "--json", "status").stdout)
        assert status["product"] == "leveret"
        assert status["ready"] == 1
        assert status["connections"] == 2  # pika and ctl itself
        queues = json.loads(leveret("ctl", "--url", broker.url, "--json", "queues").stdout)
        assert {queue["name"]: queue["ready"] for queue in queues}["work"] == 1
        head, work = leveret("ctl", "--url", broker.url, "queues", "vhost=/").stdout.splitlines()
        table = dict(zip(head.split(), work.split()))
        assert (table["name"], table["ready"], table["exclusive"]) == ("work", "1", "false")
        assert leveret("ctl", "--url", broker.url, "reload").returncode == 0
        (tmp_path / "leveret.toml").write_text("[broker]\nheartbeat = '7s'\n")
        assert leveret("ctl", "--url", broker.url, "reload").returncode == 0
        with socket.create_connection(("127.0.0.1", broker.port)) as client:
            client.sendall(b"AMQP\x00\x00\x09\x01")
            client.recv(4096)
            client.sendall(start_ok())
            assert client.recv(4096)[-3:-1] == b"\x00\x07"  # tune offers the new heartbeat
        (tmp_path / "leveret.toml").write_text("[broker]\nheartbeat = 'never'\n")
        refused = leveret("ctl", "--url", broker.url, "reload")
        assert refused.returncode == 1
        assert "nothing was changed" in refused.stderr and "leveret.toml:2: heartbeat" in refused.stderr
        connection.close()


def test_sighup_reloads_and_a_bad_file_changes_nothing(tmp_path: Path) -> None:
    """The broker goes on in any case, and the log says what happened."""
    with leveret_serve(tmp_path, config="[broker]\nheartbeat = '60s'\n") as broker:
        broker.process.send_signal(signal.SIGHUP)
        while "configuration reloaded" not in broker.log():
            leveret("ctl", "--url", broker.url, "status")
        (tmp_path / "leveret.toml").write_text("[broker]\nheartbeat = 'never'\n")
        broker.process.send_signal(signal.SIGHUP)
        while "nothing was changed" not in broker.log():
            assert leveret("ctl", "--url", broker.url, "status").returncode == 0
        assert broker.stop() == 0


STARTED_UNDER_SIGHUP = """
import os, signal, sys
from leveret.serving import listeners
bind = listeners.bind
def bind_later(*arguments):
    os.kill(os.getpid(), signal.SIGHUP)
    return bind(*arguments)
listeners.bind = bind_later
from leveret.__main__ import main
sys.exit(main(["serve", "--memory", "--listen", "127.0.0.1:0", "--management", "off"]))
"""


def test_sighup_does_not_end_a_broker_that_starts() -> None:
    """`systemctl reload` may come while the journal is read."""
    command = [sys.executable, "-c", STARTED_UNDER_SIGHUP]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as broker:
        assert broker.stdout is not None
        assert broker.stdout.readline().startswith("leveret ready ")
        broker.send_signal(signal.SIGTERM)
        assert broker.wait(60) == 0


def start_ok() -> bytes:
    """connection.start-ok for guest."""
    from pamqp import commands, frame

    return frame.marshal(commands.Connection.StartOk({}, "PLAIN", "\0guest\0guest", "en_US"), 0)


def test_ctl_refuses_what_it_does_not_know(tmp_path: Path) -> None:
    """One clear sentence, exit 1."""
    with leveret_serve(tmp_path) as broker:
        for arguments, message in (
            (("nonsense",), "unknown command 'nonsense'"),
            (("status", "x=1"), "status: unknown argument 'x'"),
            (("queues", "vhost=none"), "no virtual host 'none'"),
        ):
            done = leveret("ctl", "--url", broker.url, *arguments)
            assert done.returncode == 1
            assert message in done.stderr


def test_ctl_says_why_it_cannot_reach_the_broker(tmp_path: Path) -> None:
    """Nothing there, a wrong password, no AMQP: no traceback."""
    with leveret_serve(tmp_path) as broker:
        wrong = leveret("ctl", "--url", f"amqp://guest:wrong@127.0.0.1:{broker.port}/", "status")
        assert wrong.returncode == 1 and "ACCESS_REFUSED" in wrong.stderr
        port = broker.port
    gone = leveret("ctl", "--url", f"amqp://guest:guest@127.0.0.1:{port}/", "status")
    assert gone.returncode == 1 and "cannot reach" in gone.stderr
    bad = leveret("ctl", "--url", "not a url", "status")
    assert bad.returncode == 1 and "is not a URL" in bad.stderr


def test_only_administrators_publish_to_the_control_exchange(tmp_path: Path) -> None:
    """For everybody the exchange is there and internal; requests that are no JSON get an answer all the same."""
    with leveret_serve(tmp_path) as broker:
        connection = pika.BlockingConnection(pika.URLParameters(broker.url))
        channel = connection.channel()
        channel.exchange_declare("leveret.control", passive=True)
        queue = channel.queue_declare("", exclusive=True).method.queue
        for body in (b"{", b"[]", b"\xff", b'{"command": 3}', b'{"command": "status", "arguments": []}'):
            channel.basic_publish("leveret.control", "", body, pika.BasicProperties(reply_to=queue, correlation_id="7"))
            _, properties, answer = next(channel.consume(queue, auto_ack=True))
            assert properties.correlation_id == "7"
            assert json.loads(answer)["ok"] is False
        channel.cancel()
        channel.basic_publish("leveret.control", "", b"no reply wanted")
        assert channel.basic_get(queue) == (None, None, None)
        with pytest.raises(pika.exceptions.ChannelClosedByBroker) as closed:
            channel.exchange_delete("leveret.control")
        assert closed.value.reply_code == 403
        connection.close()


def test_scheduled_messages_are_seen_and_ruled(tmp_path: Path) -> None:
    """`leveret ctl scheduled`: list with due times; fire, cancel, reschedule one of them."""
    with leveret_serve(tmp_path) as broker:
        connection = pika.BlockingConnection(pika.URLParameters(broker.url))
        channel = connection.channel()
        channel.queue_declare("jobs", arguments={"x-redelivery-delay": 3_600_000})
        for body in (b"1", b"2", b"3"):
            channel.basic_publish("", "jobs", body)
            method, _, _ = channel.basic_get("jobs")
            channel.basic_nack(method.delivery_tag)
        channel.queue_declare("jobs", passive=True)

        def ctl(*arguments: str) -> "subprocess.CompletedProcess[str]":
            return leveret("ctl", "--url", broker.url, "--json", "scheduled", *arguments)

        waiting = json.loads(ctl("queue=jobs").stdout)
        assert [row["routing_key"] for row in waiting] == ["jobs"] * 3
        assert all(3_000_000 < row["due_in_ms"] <= 3_600_000 and row["attempts"] == 1 for row in waiting)
        first, second, third = (str(row["id"]) for row in waiting)
        assert json.loads(ctl("fire", "queue=jobs", f"id={second}").stdout)["done"] == "fire"
        assert channel.basic_get("jobs", auto_ack=True)[2] == b"2"
        assert ctl("cancel", "queue=jobs", f"id={first}").returncode == 0
        assert ctl("reschedule", "queue=jobs", f"id={third}", "delay=0").returncode == 0
        assert channel.basic_get("jobs", auto_ack=True)[2] == b"3"
        assert json.loads(ctl("list", "queue=jobs").stdout) == []
        for bad, message in (
            (("fire", "queue=jobs", f"id={first}"), f"no message {first} waits in queue 'jobs'"),
            (("fire", "queue=jobs", "id=x"), "id must be a number"),
            (("fire", "queue=none", "id=1"), "no queue 'none'"),
            (("burn", "queue=jobs", "id=1"), "unknown action 'burn'"),
        ):
            done = ctl(*bad)
            assert done.returncode == 1 and message in done.stderr
        connection.close()


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("serv", "unknown command 'serv', did you mean 'serve'?, expected one of serve, check,"),
        ("--versoin", "unknown option '--versoin', did you mean '--version'?"),
        ("/", "unknown command '/', expected one of serve,"),
    ],
)
def test_a_misspelt_first_word_gets_the_nearest(word: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2, as for every command line that cannot be read."""
    from leveret.__main__ import main

    with pytest.raises(SystemExit) as ended:
        main([word])
    assert ended.value.code == 2 and said in capsys.readouterr().err
