"""What `leveret ctl` and its neighbours say: names that steer no terminal, help and refusals from the command table."""

import json
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import node_forge
import pika
import pytest
from broker_process import BrokerProcess, leveret_serve
from configured_broker import load
from socket_broker import SocketBroker

from leveret.__main__ import main
from leveret.cli.ctl_command import as_text
from leveret.operator.command_table import COMMANDS, find
from leveret.serving.logs import PrintableFormatter
from leveret.settings.printable import printable, printable_lines
from leveret.testing import start_broker

#: Clears the screen, rings, ends a C string, clears by a control of Latin-1, turns the direction, breaks lines.
EVIL = "a\x1b[2J\x07\x00\x9b2J\u202egpj\u2028\u200b\r\n"
SHOWN = "a\\x1b[2J\\x07\\x00\\x9b2J\\u202egpj\\u2028\\u200b\\r\\n"
STEERING = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069]")


def leveret(*arguments: str, **environment: str) -> "subprocess.CompletedProcess[bytes]":
    """Run one command to its end; with an environment of its own, in the long way."""
    if not environment:
        done = node_forge.leveret(*arguments)
        return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.encode(), done.stderr.encode())
    command = [sys.executable, "-m", "leveret", *arguments]
    return subprocess.run(command, capture_output=True, timeout=180, env={**os.environ, **environment})


@pytest.mark.parametrize(
    "text, shown",
    [
        ("plain", "plain"),
        ("grün 日本 🐇 a b", "grün 日本 🐇 a b"),
        ("back\\slash", "back\\slash"),
        (EVIL, SHOWN),
        ("\x7f\u2066\ufeff\xa0", "\\x7f\\u2066\\ufeff\\xa0"),
        ("\ud800", "\\ud800"),
    ],
)
def test_what_has_no_glyph_is_written_out(text: str, shown: str) -> None:
    """One line for each name, whatever is in it; the rest stays as it is."""
    assert printable(text) == shown
    assert printable_lines(f"{text}\nx".replace("\r\n", "")) == f"{shown}\nx".replace("\\r\\n", "")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """With a queue of an evil name."""
    with leveret_serve(tmp_path_factory.mktemp("words")) as process:
        connection = pika.BlockingConnection(pika.URLParameters(f"{process.url}?heartbeat=0"))
        channel = connection.channel()
        channel.queue_declare(EVIL.rstrip("\r\n"))
        channel.queue_declare("jobs")
        yield process
        connection.close()


def ctl(broker: BrokerProcess, *arguments: str) -> "subprocess.CompletedProcess[bytes]":
    """On that broker."""
    return leveret("ctl", "--url", broker.url, *arguments)


@pytest.mark.parametrize("words", [("queues",), ("--json", "queues"), ("definitions", "export"), ("explain",)])
def test_names_of_clients_steer_no_terminal(broker: BrokerProcess, words: tuple[str, ...]) -> None:
    """Tables, explanations, JSON: no octet of theirs is a control."""
    name = EVIL.rstrip("\r\n").replace("\x00", "")
    if words == ("explain",):
        words = ("explain", name)  # an address that is there for nobody but this test: no NUL on a command line
    done = ctl(broker, *words)
    assert done.returncode == 0, done.stderr
    text = done.stdout.decode()
    assert not STEERING.search(text)
    assert "gpj" in text


def test_refusals_steer_no_terminal(broker: BrokerProcess) -> None:
    """What is quoted from the command line comes back written out."""
    for words in (("explain", "x", f"vhost={EVIL[:6]}"), (f"x{EVIL[:6]}",), ("ring", f"x{EVIL[:6]}", "5")):
        done = ctl(broker, *words)
        assert done.returncode == 1
        assert not STEERING.search(done.stderr.decode())
        assert "\\x1b" in done.stderr.decode()


def test_files_steer_no_terminal(tmp_path: Path) -> None:
    """check, explain and diff of a configuration with such names; the log, too."""
    one, other = tmp_path / "one.toml", tmp_path / "other.toml"
    name = json.dumps("q\x1b[2J\u202e")  # TOML has the same escapes
    one.write_text(f"[[address]]\nname = {name}\n[[address.queue]]\nname = {name}\nring-size = 3\n")
    other.write_text(f"[[address]]\nname = {name}\n[broker]\n{name} = 1\n")
    better = tmp_path / "better.toml"
    better.write_text(f"[[address]]\nname = {name}\n[[address.queue]]\nname = {name}\nring-size = 4\n")
    for words in (
        ("check", str(other)),
        ("explain", str(one), "q\x1b[2J\u202e"),
        ("diff", str(one), str(better)),
        ("check", f"{tmp_path}/\x1b[2J"),
        ("journal", "verify", f"{tmp_path}/\x1b[2J"),
        ("serve", "--memory", "--listen", "\x1b[2J"),
    ):
        done = leveret(*words)
        said = done.stdout.decode() + done.stderr.decode()
        assert said and not STEERING.search(said), words
        assert "Traceback" not in said


def test_log_lines_steer_no_terminal() -> None:
    """Whatever is logged: tracebacks keep their lines."""
    import logging

    record = logging.LogRecord("leveret", logging.INFO, "f", 1, "queue %s\nnext", ("\x1b[2J",), None)
    assert PrintableFormatter("%(message)s").format(record) == "queue \\x1b[2J\nnext"


def test_failing_assertions_steer_no_terminal() -> None:
    """The test broker's texts: names, tags, connections and bodies of several lines."""
    with start_broker() as broker:
        parameters = pika.URLParameters(broker.url)
        parameters.client_properties = {"connection_name": "c\x1b[2J"}
        connection = pika.BlockingConnection(parameters)
        channel = connection.channel()
        channel.queue_declare("q\x1b[2J")
        channel.basic_consume("q\x1b[2J", lambda *_: None, consumer_tag="t\x1b[2J")
        channel.basic_publish("", "q\x1b[2J", b"one\nline\x1b[2J")
        texts = []
        for fails in (
            lambda: broker.assert_queue("q\x1b[2J", consumers=5, ready=[b"x"], within=0),
            lambda: broker.assert_published("", "q\x1b[2J", "one\nother"),
            lambda: broker.settled(timeout=0.01),
            lambda: broker.queue("none"),
        ):
            with pytest.raises((AssertionError, LookupError)) as failed:
                fails()
            texts.append(str(failed.value))
        texts += [*broker.leaks(timeout=0), str(broker.history()), str(broker.queue("q\x1b[2J"))]
        connection.close()
    assert "\\x1b" in texts[0]
    for text in texts:
        assert not STEERING.search(text), text


def test_a_terminal_that_lacks_letters_gets_no_traceback(broker: BrokerProcess) -> None:
    """The encoding is what the environment says."""
    done = leveret("ctl", "--url", broker.url, "explain", "日本", PYTHONIOENCODING="ascii")
    assert done.returncode == 0
    assert b"\\u65e5\\u672c" in done.stdout


# -- the command table ----------------------------------------------------------------------------------------------


def test_help_shows_every_command_with_its_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    """`ctl --help` all of them; `ctl COMMAND --help` one, with what each argument is. No broker is asked."""
    assert main(["ctl", "--help"]) == 0
    text = capsys.readouterr().out
    for actions in COMMANDS.values():
        for command in actions.values():
            assert f"  {command.usage}\n" in text
    assert "ring QUEUE SIZE [vhost=NAME]" in text
    assert main(["ctl", "scheduled", "--help"]) == 0
    text = capsys.readouterr().out
    assert "usage: leveret ctl scheduled reschedule QUEUE ID DELAY [vhost=NAME]" in text
    assert "ms from now" in text and "ring" not in text
    assert main(["ctl"]) == 1


@pytest.mark.parametrize(
    "words, said",
    [
        (["scheduled"], "scheduled list: expected queue=NAME\nusage: scheduled list QUEUE [after=NUMBER]"),
        (["scheduled", "fire", "jobs"], "scheduled fire: expected id=NUMBER[,NUMBER]\nusage: scheduled fire QUEUE ID"),
        (["scheduled", "jobs"], "scheduled: unknown action 'jobs', expected one of list, fire, cancel, reschedule"),
        (["scheduled", "cancle", "jobs", "1"], "scheduled: unknown action 'cancle', did you mean 'cancel'?"),
        (["xylophone", "bills"], "unknown command 'xylophone', expected one of status, queues"),
        (["quues"], "unknown command 'quues', did you mean 'queues'?"),
        (["ring", "q"], "ring: expected size=NUMBER\nusage: ring QUEUE SIZE [vhost=NAME]"),
        (["ring", "q", "3", "4"], "ring: '4' is one too many\nusage: ring QUEUE SIZE"),
        (["ring", "q", "siez=3"], "ring: unknown argument 'siez', did you mean 'size'?"),
        (["users", "add", "naem=x"], "users add: unknown argument 'naem', did you mean 'name'?"),
        (["status", "--vhost", "/"], "status: unknown argument 'vhost'\nusage: status"),
        (["queues", "vhost="], "queues: expected vhost=NAME"),
        (["="], "unknown command '='"),
        (["add_user", "ann", "opensesame"], "users add: give the password on standard input"),
        (["change_password", "ann", "opensesame"], "users passwd: give the password on standard input"),
        (["ring", "-p", "v", "q", "--json", "3", "4"], "ring: '4' is one too many\nusage: ring QUEUE SIZE"),
        (["ring", "-p", "v", "q", "--", "-3", "4"], "ring: '4' is one too many\nusage: ring QUEUE SIZE"),
        (["definitions", "import", "/none"], "/none: No such file or directory"),
        (["definitions", "import"], "definitions import: expected definitions=FILE\nusage: definitions import FILE"),
        (["action=fly", "x"], "unknown command 'action=fly'"),
        (["users", "action=fly"], "users: unknown action 'fly'"),
        (["explain", "\udcff"], "the command line is not text in UTF-8"),
    ],
)
def test_misuse_is_said_before_a_broker_is_asked(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is missing, unknown or misspelt, with the nearest word or the usage line; exit 1."""
    assert main(["ctl", "--url", "amqp://127.0.0.1:1/", *words]) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"leveret ctl: {said}"), error
    assert "opensesame" not in error


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, object]]:
    """What `leveret ctl` asks of a broker: commands with their arguments."""
    found: list[tuple[str, object]] = []

    def request(url: str, name: str, arguments: object, **_: object) -> dict[str, object]:
        found.append((name, arguments))
        return {}

    monkeypatch.setattr("leveret.cli.control_client.request", request)
    return found


@pytest.mark.parametrize(
    "words",
    [
        ["-p", "v", "set_permissions", "ann", ".*", ".*", "-"],
        ["set_permissions", "-p", "v", "ann", ".*", ".*", "-"],
        ["set_permissions", "--json", "ann", "-p", "v", ".*", "--", ".*", "-"],
        ["set_permissions", "ann", ".*", ".*", "-", "-p", "v"],
    ],
)
def test_options_may_stand_between_words(words: list[str], asked: list[tuple[str, object]]) -> None:
    """As rabbitmqctl takes them."""
    assert main(["ctl", *words]) == 0
    given = {"action": "set", "vhost": "v", "user": "ann", "configure": ".*", "write": ".*", "read": "-"}
    assert asked == [("permissions", given)]


@pytest.mark.parametrize(
    "words, name, given",
    [
        (
            ["set_policy", "-p", "v", "ttl", "^a", '{"message-ttl": 1}', "--priority", "3", "--apply-to", "queues"],
            "policies",
            {"action": "set", "vhost": "v", "name": "ttl", "pattern": "^a", "definition": '{"message-ttl": 1}',
             "priority": "3", "apply-to": "queues"},
        ),
        (["set_user_tags", "ann", "monitoring"], "users", {"action": "tags", "name": "ann", "tags": "monitoring"}),
        (["set_user_tags", "ann", "a", "b"], "users", {"action": "tags", "name": "ann", "tags": "a,b"}),
        (
            ["set_topic_permissions", "ann", "amq.topic", ".*", "-"],
            "topic-permissions",
            {"action": "set", "user": "ann", "exchange": "amq.topic", "write": ".*", "read": "-"},
        ),
        (
            ["set_parameter", "-p", "v", "shovel", "s", "{}"],
            "parameters",
            {"action": "set", "vhost": "v", "component": "shovel", "name": "s", "value": "{}"},
        ),
    ],
)  # fmt: skip
def test_what_operators_of_rabbitmq_type(
    words: list[str], name: str, given: dict[str, str], asked: list[tuple[str, object]]
) -> None:
    """Lines for rabbitmqctl do the same here."""
    assert main(["ctl", *words]) == 0
    assert asked == [(name, given)]


@pytest.mark.parametrize(
    "words, begin", [(["help"], "usage: leveret [-h]"), (["help", "check"], "usage: leveret check")]
)
def test_help_of_the_programs_commands(words: list[str], begin: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Without dashes, as people type it first."""
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 0 and capsys.readouterr().out.startswith(begin)


def test_help_is_a_command_too(capsys: pytest.CaptureFixture[str]) -> None:
    """As with rabbitmqctl: of all commands, or of one."""
    assert main(["ctl", "help", "purge"]) == 0
    assert capsys.readouterr().out.startswith("usage: leveret ctl purge ")
    assert main(["ctl", "help"]) == 0
    assert "usage: leveret ctl " in capsys.readouterr().out


def test_definitions_are_exported_to_a_file_as_by_rabbitmqctl(broker: BrokerProcess, tmp_path: Path) -> None:
    """A script that makes backups gets the file that it names, or an exit code of 1; `-` is the standard output."""
    file = tmp_path / "definitions.json"
    done = ctl(broker, "export_definitions", str(file))
    assert (done.returncode, done.stdout.decode().strip()) == (0, f"exported to {file}")
    assert {queue["name"] for queue in json.loads(file.read_text())["queues"]} >= {"jobs"}
    assert json.loads(ctl(broker, "export_definitions", "-").stdout) == json.loads(file.read_text())
    of_one = ctl(broker, "export_definitions", str(file), "-p", "/")
    assert of_one.returncode == 0 and "users" not in json.loads(file.read_text())
    refused = ctl(broker, "export_definitions", str(tmp_path / "missing" / "file"))
    assert (refused.returncode, refused.stdout) == (1, b"")
    assert refused.stderr.decode().strip().endswith("missing/file: No such file or directory")


def test_a_queue_that_is_not_there_has_a_nearest_one(broker: BrokerProcess) -> None:
    """The broker knows its queues."""
    done = ctl(broker, "scheduled", "list", "queue=job")
    assert done.stderr.decode().strip().endswith("no queue 'job' in virtual host '/', did you mean 'jobs'?")


@pytest.mark.parametrize("name, arguments", [(3, {}), (None, {}), (["x"], {}), ("users", {"action": 3})])
def test_requests_of_other_shapes_are_refused(name: object, arguments: dict[str, object]) -> None:
    """Whatever JSON brings."""
    from leveret.operator.command_error import CommandError

    with pytest.raises(CommandError, match="unknown"):
        find(name, dict(arguments))


# -- what is no broker ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        "amqp://[",
        "amqp://[::1",
        "amqp://",
        "https://127.0.0.1/",
        "amqp://h:99999/",
        "amqp://h:x/",
        "amqp://" + "u" * 256 + "@h/",
        "amqp://h/" + "v" * 300,
        "amqp://\udcff/",
    ],
)
def test_a_url_that_is_none(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """One sentence with the form of one; a password in it is not repeated."""
    assert main(["ctl", "--url", url, "status"]) == 1
    assert " is not a URL like amqp://guest:guest@127.0.0.1:5672/" in capsys.readouterr().err
    assert main(["ctl", "--url", "amqp://me:secret@[", "status"]) == 1
    assert "secret" not in capsys.readouterr().err


@pytest.mark.parametrize("host", ["..", "a" * 64 + ".x"])
def test_a_host_that_is_none(host: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Names that cannot be looked up."""
    assert main(["ctl", "--url", f"amqp://{host}/", "status"]) == 1
    assert f"leveret ctl: cannot reach {host}:5672: " in capsys.readouterr().err


def answering(octets: bytes) -> "tuple[int, Callable[[], None]]":
    """A server that says so much and hangs up: its port, and what ends it."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with listener, listener.accept()[0] as peer:
            peer.recv(8)
            peer.sendall(octets)
            peer.shutdown(socket.SHUT_WR)
            while peer.recv(4096):
                pass

    thread = threading.Thread(target=serve)
    thread.start()
    return listener.getsockname()[1], thread.join


@pytest.mark.parametrize(
    "octets, said",
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "does not speak AMQP 0-9-1"),
        (b"AMQP\x00\x01\x00\x00", "does not speak AMQP 0-9-1"),
        (b"\x01\x00\x00\x00\x00\x00\x04\xff\xff\xff\xff\xce", "is not AMQP 0-9-1"),
        (b"\x01\x00\x00\x00\x00\x00\x06\x00\x0a\x00\x0a\x00\x09\xce", "does not speak AMQP 0-9-1"),
        (b"\x01\x00\x00\xff\xff\xff\xff", "does not speak AMQP 0-9-1"),
        (b"", "closed the connection"),
    ],
)
def test_a_server_that_is_no_broker(octets: bytes, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """One sentence, no traceback, no memory for what it announces."""
    port, end = answering(octets)
    assert main(["ctl", "--url", f"amqp://127.0.0.1:{port}/", "status"]) == 1
    end()
    assert said in capsys.readouterr().err


def test_a_broker_that_is_no_leveret(capsys: pytest.CaptureFixture[str]) -> None:
    """Any other broker has no such exchange: this one is without its services."""
    with SocketBroker(load("")) as broker:
        assert main(["ctl", "--url", broker.url, "status"]) == 1
    error = capsys.readouterr().err
    assert re.search(r"leveret ctl: 127\.0\.0\.1:\d+ is no Leveret \(\S+ \S+\): it has no exchange", error), error


def test_a_user_who_is_no_administrator(broker: BrokerProcess) -> None:
    """Is told so, and not of an exchange."""
    assert ctl(broker, "users", "add", "ann", "password=x").returncode == 0
    assert ctl(broker, "permissions", "set", "ann", ".*", ".*", ".*").returncode == 0
    done = leveret("ctl", "--url", f"amqp://ann:x@127.0.0.1:{broker.port}/", "status")
    assert done.returncode == 1
    assert f"user 'ann' is not an administrator at 127.0.0.1:{broker.port}" in done.stderr.decode()


@pytest.mark.parametrize(
    "words",
    [
        ["diff", "=", "--", "--"],
        ["diff", "--", "--", "--"],
        ["explain", "--", "--", "--"],
        ["explain", "x", "--", "--"],
        ["ctl", "--", "--"],
        ["check", "--", "--", "--"],
        ["journal", "verify", "--", "--"],
        ["journal", "repair", "--out", "x", "--", "--"],
        ["serve", "--listen", "amqp://["],
        ["serve", "--memory", "--config", ""],
    ],
)
def test_no_command_line_is_a_traceback(words: list[str]) -> None:
    """Whatever fingers or scripts do to it."""
    done = leveret(*words)
    said = done.stdout.decode() + done.stderr.decode()
    assert done.returncode in (1, 2)
    assert said and "Traceback" not in said


def test_limits_and_who_waits_are_tables() -> None:
    """What `status` says of flow control can be read; what is not there is said."""
    row = {"destination": "broker", "limit": "memory", "used": 5, "max": 10, "low": 9, "full": False, "waiting": 0}
    text = as_text({"alarm": None, "usage": [row, {**row, "limit": "temp", "used": 12}], "blocked": []}, "status")
    assert text.splitlines() == [
        "alarm: none",
        "usage: ",
        "  destination  limit   used  max  low  full   waiting",
        "  broker       memory  5     10   9    false  0",
        "  broker       temp    12    10   9    false  0",
        "blocked: none",
    ]


def test_growth_is_not_known_without_a_console(capsys: pytest.CaptureFixture[str]) -> None:
    """The refusal says where to look instead."""
    with start_broker() as broker:
        assert main(["ctl", "--url", broker.url, "growing"]) == 1
    assert "the console, which samples queues, is off; see `ctl --watch queues`" in capsys.readouterr().err
