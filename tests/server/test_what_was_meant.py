"""What people bring or type by mistake: it is named, with what was meant; nothing hides behind it."""

import logging
import re
from pathlib import Path

import pytest
from desk import C, VirtualDesk

from leveret.__main__ import main
from leveret.engine import Field
from leveret.serving.flow_log import log_flow
from leveret.settings.faults import in_order

_ERLANG = (
    "[{rabbit, [{tcp_listeners, [5672]}]}].\n",
    '%% our broker\n[\n  %% the core\n  {rabbit, [{default_user, <<"guest">>}]},\n  {kernel, []}\n].\n',
    "[\n {'rabbit', []}\n].",
    "[rabbitmq_management,rabbitmq_shovel].\n",
    "[].\n",
)


def checked(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, list[str]]:
    """What `leveret check` returns, and its lines."""
    code = main(["check", *words])
    return code, capsys.readouterr().out.splitlines()


def typed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """What the command line says to a mistake."""
    with pytest.raises(SystemExit) as ended:
        main(list(words))
    assert ended.value.code in (1, 2)
    return capsys.readouterr().err


@pytest.mark.parametrize(
    "text, said",
    [
        *((text, "is RabbitMQ's configuration in Erlang terms (rabbitmq.config, advanced.config)") for text in _ERLANG),
        ('{"rabbit_version": "3.8.9", "users": []}', "is a file of RabbitMQ's definitions: name it in a configuration"),
        ('\ufeff{\n "queues": []}', "`leveret ctl definitions import FILE`"),
        ('{"a": 1}', "looks like JSON, expected TOML, XML or key=value lines"),
        ("listeners.tcp.default = 5672\nheartbeat = 60\n", "looks like rabbitmq.conf, which is not read"),
        ("definitions.import_backend = local_filesystem\n", "looks like rabbitmq.conf, which is not read"),
        ("# ours\nauth_backends.1 = ldap\nlog.file = false\n", "`leveret init` writes a file to begin with"),
    ],
)
def test_files_of_other_systems(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, said: str) -> None:
    """One line, which says what the file is and what to do."""
    file = tmp_path / "given"
    file.write_text(text)
    code, (line,) = checked(capsys, str(file))
    assert code == 2 and line.startswith(f"{file}:1: FILE: ") and said in line


@pytest.mark.parametrize("text", ["[broker]\n", "\n# %\n[broker]\n", "[[queue]]\nname = 'q'\n", "[tls]\n"])
def test_toml_is_not_taken_for_them(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str) -> None:
    """Tables begin with a bracket, too."""
    file = tmp_path / "ours.toml"
    file.write_text(text)
    assert checked(capsys, str(file)) == (0, ["ok"])


WRONG = """\
[broker]
heartbeat = "abc"
profile = "rabitmq-4.0"
definitions = "DEFINITIONS"
[[queue]]
name = "q"
arguments = { x-max-lenght = 3, x-overflow = "drop-haed" }
[[address-setting]]
match = "a.#"
address-full-policy = "DORP"
max-delivery-attemps = 3
[[user]]
name = "x"
password-hash = "abc"
[[policy]]
name = "p"
pattern = "("
definition = { max-lenght = 3 }
[[queue]]
name = "p"
type = "quorum"
arguments = { x-max-priority = 5 }
[tls]
certificate = "/nope"
"""


def test_nothing_hides_behind_another_fault(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever part of the broker would find it; in the order of the lines, also over two files."""
    definitions = tmp_path / "d.json"
    definitions.write_text('{"queues": [1,]}')
    file, other = tmp_path / "leveret.toml", tmp_path / "a.toml"
    file.write_text(WRONG.replace("DEFINITIONS", str(definitions)))
    other.write_text("[limits]\nmemmory = 1\n")
    code, lines = checked(capsys, str(file), str(other))
    assert code == 2
    placed = [re.match(r".*/([a-z.]+):(\d+): ([\w-]+):", line) for line in lines]
    assert [(one[1], int(one[2]), one[3]) for one in placed if one] == [
        ("leveret.toml", 2, "heartbeat"),
        ("leveret.toml", 3, "profile"),
        ("leveret.toml", 7, "x-overflow"),
        ("leveret.toml", 10, "address-full-policy"),
        ("leveret.toml", 11, "max-delivery-attemps"),
        ("leveret.toml", 14, "password-hash"),
        ("leveret.toml", 17, "pattern"),
        ("leveret.toml", 18, "max-lenght"),
        ("leveret.toml", 22, "x-max-priority"),
        ("leveret.toml", 24, "certificate"),
        ("a.toml", 2, "memmory"),
        ("d.json", 1, "FILE"),
    ]


def test_a_line_that_is_no_toml_hides_nothing_before_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The tables that are whole are read; the one that is not is not."""
    file = tmp_path / "leveret.toml"
    file.write_text('[broker]\nheartbeet = 1\n[[user]]\nname = "u"\npasword = "p"\n[limits\nmemory = 5\nmemmory = 5\n')
    code, lines = checked(capsys, str(file))
    assert code == 2
    assert [line.split(": ")[0].rpartition(":")[2] for line in lines if "heartbeet" in line or "pasword" in line] == [
        "2",
        "5",
    ]
    assert lines[-1].startswith(f"{file}:6: TOML: ") and "memmory" not in "".join(lines)


def test_lines_are_put_in_order() -> None:
    """By file in the order given, then by number, not by text; what has no place comes first; nothing twice."""
    lines = ["b:10: x", "b:9: y", "a:1: z", "no place", "c:1: w", "b:9: y"]
    assert in_order(lines, ["b", "a"]) == ["no place", "b:9: y", "b:10: x", "a:1: z", "c:1: w"]


@pytest.mark.parametrize(
    "words, said",
    [
        (("serve", "--confg", "x.toml"), "leveret serve: error: unknown option '--confg', did you mean '--config'?"),
        (("serve", "--confg=x.toml"), "did you mean '--config'?"),
        (("serve", "--memry"), "did you mean '--memory'?"),
        (("serve", "--log-level", "inof"), "--log-level: 'inof' is invalid, did you mean 'info'?"),
        (("check", "x.toml", "--strct"), "did you mean '--strict'?"),
        (("journal", "verfy", "x"), "'verfy' is invalid, did you mean 'verify'?"),
        (("journal", "cat", "--jsno", "x"), "leveret journal cat: error: unknown option '--jsno'"),
        (("ctl", "--ulr", "x", "status"), "did you mean '--url'?"),
        (("init", "--oot"), "leveret init: error: unknown option '--oot'"),
        (("doctor", "--dta", "x"), "did you mean '--data'?"),
        (("test-server", "--lissen", "x"), "leveret test-server: error: unknown option '--lissen'"),
        (("explain", "--profle", "x", "y"), "leveret explain: error: unknown option '--profle'"),
    ],
)
def test_misspelt_words_of_the_command_line(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], said: str
) -> None:
    """Commands of commands, options and their values, also where something else is missing on the line."""
    assert said in typed(capsys, *words)


@pytest.mark.parametrize("words", [("serve", "--conf"), ("check", "--stri")])
def test_beginnings_of_options_are_no_mistakes(capsys: pytest.CaptureFixture[str], words: tuple[str, ...]) -> None:
    """As argparse has it: what is missing is another word."""
    assert "unknown option" not in typed(capsys, *words)


def test_unknown_arguments_of_a_client_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """One line for each argument that nobody knows, however many queues have it; the near one is named."""
    desk = VirtualDesk()
    log_flow(desk.pair.broker)
    vhost = desk.pair.broker.virtual_hosts["/"]
    with caplog.at_level(logging.WARNING, "leveret.amqp"):
        for name in ("one", "two"):
            odd = {"x-max-lenght": Field("I", 3), "x-mine": Field("I", 1), "note": Field("I", 1)}
            vhost.queues.declare(name, client=None, arguments=odd | {"x-max-length": Field("I", 3)})
        vhost.queues.declare("three", client=None, arguments={"x-redelivery-dealy": Field("I", 1)})
        vhost.queues.declare("four", client=None, arguments={"x-expires": Field("I", 1)})
    assert [record.getMessage() for record in caplog.records] == [
        "queue 'one' in vhost '/': arguments without a meaning here: x-max-lenght (did you mean x-max-length?), x-mine",
        "queue 'three' in vhost '/': arguments without a meaning here: x-redelivery-dealy "
        "(did you mean x-redelivery-delay?)",
    ]


def test_names_that_clients_invent(caplog: pytest.LogCaptureFixture) -> None:
    """About a thousand of them are logged, each in one line of printable characters."""
    desk = VirtualDesk()
    log_flow(desk.pair.broker)
    queues = desk.pair.broker.virtual_hosts["/"].queues
    with caplog.at_level(logging.WARNING, "leveret.amqp"):
        queues.declare("first", client=None, arguments={"x-max-\nlenght": Field("I", 3)})
        for number in range(12):
            odd = {f"x-{number}-{each}": Field("I", 1) for each in range(100)}
            queues.declare(str(number), client=None, arguments=odd)
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 11 and all(line.isprintable() for line in lines)
    assert "did you mean x-max-length?" in lines[0]


def test_unknown_arguments_of_consumers_and_exchanges(caplog: pytest.LogCaptureFixture) -> None:
    """They have arguments of their own, and one line for each that nobody knows; what queues have, others may not."""
    desk = VirtualDesk()
    log_flow(desk.pair.broker)
    vhost = desk.pair.broker.virtual_hosts["/"]
    desk.declare("q")
    with caplog.at_level(logging.WARNING, "leveret.amqp"):
        for tag in ("a", "b"):
            odd = {"x-priorty": 1, "x-max-length": 3, "x-priority": 1, "note": 1}
            desk.peer.call(1, C.Basic.Consume, queue="q", consumer_tag=tag, arguments=odd)
            odd = {"x-delayed-typ": "direct", "alternate-exchange": "f", "x-mine": 1}
            desk.peer.call(1, C.Exchange.Declare, exchange=tag, arguments=odd)
        for name, known in {"x-max-backlog": 5, "x-filter": "/a = 1"}.items():
            vhost.queues.declare(name, client=None, durable=True, arguments={"x-queue-type": Field("S", b"amps")})
            desk.peer.call(1, C.Basic.Consume, queue=name, consumer_tag=name, arguments={name: known})
    assert [record.getMessage() for record in caplog.records] == [
        "consumer of queue 'q' in vhost '/': arguments without a meaning here: x-max-length, x-priorty "
        "(did you mean x-priority?)",
        "exchange 'a' in vhost '/': arguments without a meaning here: x-delayed-typ (did you mean x-delayed-type?), "
        "x-mine",
    ]


def test_unknown_arguments_of_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In a configuration and in definitions: a warning with its line."""
    file, definitions = tmp_path / "leveret.toml", tmp_path / "d.json"
    definitions.write_text('{"queues": [\n{"name": "d", "vhost": "/", "arguments": {"x-message-tll": 1}}]}')
    file.write_text(
        f"[broker]\ndefinitions = '{definitions}'\n"
        "[[queue]]\nname = 'q'\narguments = { x-max-lenght = 3, x-mine = 1 }\n"
    )
    code, lines = checked(capsys, str(file))
    assert code == 0
    assert lines == [
        f"warning: {file}:5: x-max-lenght: no queue has this argument, did you mean 'x-max-length'?",
        f"warning: {file}:5: x-mine: no queue has this argument",
        f"warning: {definitions}:2: queues[0]: 'x-message-tll': no queue has this argument, "
        "did you mean 'x-message-ttl'?",
        "ok",
    ]
