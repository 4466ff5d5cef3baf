"""The scenarios by real clients against a real `leveret serve`, and what is said when something is invalid."""

import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from leveret import __version__
from leveret.interop.__main__ import main
from leveret.interop.brokers.broker import Broker
from leveret.interop.brokers.fresh import FRESH
from leveret.interop.running import scenario as scenarios
from leveret.interop.running.run import FAILED, NOT_RUN, PASSED
from leveret.interop.running.scenario import ScenarioError, read_features
from leveret.interop.running.suite import Driven, Suite
from leveret.interop.running.toolchains import CLIENTS, NotHere

AT_LEAST = 60
NOT_RUN_HERE = {"a file system to fill can be mounted by root alone"}
SCALED = ("content", "publishing", "transactions")


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with FRESH["leveret"]() as broker:
        yield broker


@pytest.fixture(scope="module")
def pika_driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driven]:
    work = tmp_path_factory.mktemp("drivers")
    driven = Driven(CLIENTS["pika"].prepare(work, print), work / "pika.log")
    yield driven
    driven.end()


@pytest.mark.parametrize("feature", [feature.name for feature in read_features()])
def test_scenarios_pass_with_pika(broker: Broker, pika_driver: Driven, feature: str) -> None:
    """Every scenario of every feature, but for what pika has no call for."""
    (chosen,) = (one for one in read_features() if one.name == feature)
    results = Suite(broker, {"pika": pika_driver}, seconds=60).run(chosen.scenarios)
    assert {(r.scenario, r.reason) for r in results if r.verdict == FAILED} == set()
    assert {r.reason for r in results if r.verdict == NOT_RUN} <= NOT_RUN_HERE
    assert [r for r in results if r.verdict == PASSED]


@pytest.mark.parametrize("client", ["amqp", "kombu", "aio-pika", "amqpstorm", "librabbitmq", "php-amqplib"])
def test_other_clients_pass(broker: Broker, tmp_path: Path, client: str) -> None:
    """A part of the scenarios, by the clients that need no long build, where they are here."""
    try:
        driven = Driven(CLIENTS[client].prepare(tmp_path, print), tmp_path / "log")
    except NotHere as error:
        pytest.skip(str(error))
    try:
        chosen = [one for feature in read_features() if feature.name in SCALED for one in feature.scenarios]
        results = Suite(broker, {client: driven}, seconds=60).run(chosen)
    finally:
        driven.end()
    assert {(r.scenario, r.reason) for r in results if r.verdict == FAILED} == set()
    assert sum(r.verdict == PASSED for r in results) > 20


def test_a_broker_that_cannot_be_had_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without Java and Maven its column is skipped with the reason."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="no Java"), FRESH["qpid"]():
        pass


def test_a_broker_that_is_not_here_is_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The others are run; with none left that is the fault."""
    monkeypatch.setenv("PATH", str(tmp_path))
    options = ["--client", "pika", "--only", "tx-commit", "--work", str(tmp_path)]
    assert main(["--broker", "qpid,leveret,garagemq", *options]) == 0
    out = capsys.readouterr().out
    assert f"leveret {__version__}: 1 passed" in out
    assert "skipped qpid: no Java" in out and "skipped garagemq: no garagemq on this machine" in out
    assert main(["--broker", "qpid", *options]) == 2
    assert "qpid: no Java" in capsys.readouterr().err


def test_there_are_enough_and_their_names_are_unique() -> None:
    """read_features refuses a name that is there twice."""
    every = [scenario for feature in read_features() for scenario in feature.scenarios]
    done = {step.what for scenario in every for step in scenario.steps if step.kind == "do"}
    assert len(done) == len(scenarios.OPERATIONS), "every operation is in some scenario"
    assert len(every) >= AT_LEAST


WRONG = [
    ('{ do = "basic.get", queue = "@q", ok = { body = "x" } }', "step 2 (basic.get): body: missing"),
    ('{ do = "basic.get", queue = "@none", ok = { empty = true } }', "step 2 (basic.get): refused"),
    ('{ do = "queue.purge", queue = "@q", ok = { message_count = 1 } }', "message_count: 0 instead of 1"),
    ('{ do = "queue.purge", queue = "@q", error = { code = 404 } }', "nothing was refused"),
    ('{ do = "queue.purge", queue = "@none", error = { code = 406 } }', "code: 404 instead of 406"),
    ('{ do = "queue.purge", queue = "@q", until = { message_count = 1 } }', "message_count: 0 instead of 1"),
    ('{ wait = "delivery", count = 1 }', "0 of 1 came"),
    ('{ ended = "broker" }', "the broker did not end the connection"),
    ('{ frames = "heartbeat", from = "client" }', "no heartbeat from the client"),
]


@pytest.mark.parametrize(("step", "reason"), WRONG)
def test_what_is_not_right_is_told(broker: Broker, pika_driver: Driven, tmp_path: Path, step: str, reason: str) -> None:
    """A scenario that says otherwise than the broker does fails at its step, with what came instead."""
    declare = '{ do = "queue.declare", queue = "@q", exclusive = true }'
    (tmp_path / "wrong.toml").write_text(
        f'title = "t"\n[[scenario]]\nname = "wrong"\nsays = "s"\nsteps = [{declare}, {step}]\n'
    )
    (feature,) = read_features(tmp_path)
    (result,) = Suite(broker, {"pika": pika_driver}, seconds=0.5).run(feature.scenarios)
    assert result.verdict == FAILED
    assert reason in result.reason


def test_other_octets_are_told(broker: Broker, pika_driver: Driven, tmp_path: Path) -> None:
    """`same = "content"` compares what went over the line, not what the clients made of it."""
    publish = '{ do = "basic.publish", routing_key = "@q", body = "x", headers = { a = 1 } }'
    get = '{ do = "basic.get", queue = "@q", by = "reader", no_ack = true, until = { body = "x" } }'
    other = publish.replace("a = 1", "a = 2")
    declare = (
        '{ do = "queue.declare", queue = "@q", auto_delete = true }'  # the second time: the publish went before it
    )
    (tmp_path / "wrong.toml").write_text(
        'title = "t"\n[[scenario]]\nname = "wrong"\nsays = "s"\nroles = ["writer", "reader"]\n'
        f'steps = [{declare}, {publish}, {get}, {other}, {declare}, {{ same = "content" }}]\n'
    )
    (feature,) = read_features(tmp_path)
    (result,) = Suite(broker, {"pika": pika_driver}, seconds=5).run(feature.scenarios)
    assert "the content header differs" in result.reason


@pytest.mark.parametrize(
    ("steps", "fault"),
    [
        ('[{ do = "queue.eat" }]', "there is no do 'queue.eat'"),
        ('[{ wait = "delivery", cuont = 1 }]', "what is cuont"),
        ('[{ do = "basic.get", wait = "delivery" }]', "a step is one of"),
        ('[{ do = "basic.get", by = "nobody" }]', "there is no role"),
        ('[{ do = "basic.get", ok = {}, error = {} }]', "one of ok, error, until"),
        ("[{", "Invalid"),
    ],
)
def test_a_faulty_scenario_is_told(tmp_path: Path, steps: str, fault: str) -> None:
    """By file and name, before anything runs."""
    (tmp_path / "faulty.toml").write_text(f'title = "t"\n[[scenario]]\nname = "n"\nsays = "s"\nsteps = {steps}\n')
    with pytest.raises(ScenarioError, match="faulty.toml") as told:
        read_features(tmp_path)
    assert fault in str(told.value)


def test_the_command_line(broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A broker that somebody runs, by its URL: what passed, what was not run and why, and the scorecard."""
    url = f"amqp://guest:guest@127.0.0.1:{broker.port}/"
    options = ["--client", "pika", "--work", str(tmp_path), "--scorecard", str(tmp_path / "card")]
    assert main(["--url", url, *options, "--only", "tx-*", "--only", "tls-*", "--only", "durable-*"]) == 0
    out = capsys.readouterr().out
    assert "tx-commit pika: passed" in out
    assert "not ours to restart" in out and "--tls-port" in out
    card = json.loads((tmp_path / "card.json").read_text())
    assert card["brokers"][0]["passed"]["tx-commit"] == ["pika"]
    page = (tmp_path / "card.md").read_text()
    assert "| [Transactions](../../interop/scenarios/transactions.toml) | 6 | all 6 |" in page
    assert main(["--url", url, *options, "--only", "tx-*", "--only", "tls-*", "--only", "durable-*"]) == 0
    assert (tmp_path / "card.md").read_text() == page, "the same again takes the same column's place"


@pytest.mark.parametrize(
    ("user", "fault"),
    [
        ("guest:wrong@127.0.0.1:{port}/", "did not let 'guest' into virtual host '/': 403 ACCESS_REFUSED"),
        ("guest:guest@127.0.0.1:{port}/none", "into virtual host 'none': 530 NOT_ALLOWED - vhost none not found"),
    ],
)
def test_who_is_not_let_in_is_told(
    broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str], user: str, fault: str
) -> None:
    """Once, before anything is built, and not by every scenario."""
    url = f"amqp://{user.format(port=broker.port)}"
    assert main(["--url", url, "--work", str(tmp_path / "work")]) == 2
    assert fault in capsys.readouterr().err
    assert not (tmp_path / "work").exists()


@pytest.mark.parametrize(
    ("greeting", "fault"),
    [
        (b"", "closed the line"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "no AMQP 0-9-1: it answered b'HTTP"),
        (b"AMQP\0\0\0\0", "no AMQP 0-9-1"),
        (b"\1\0\0\0\0\0\4\0\0\0\0\xce", "no AMQP 0-9-1"),
        (b"\1\0\0\0\0\0\4\0\x0a\0\x0b", "closed the line"),
    ],
)
def test_what_is_no_broker_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], greeting: bytes, fault: str
) -> None:
    """Something listens and says something else."""

    def serve() -> None:
        line, _ = listener.accept()
        with line:
            line.recv(8)
            line.sendall(greeting)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        assert main(["--url", f"amqp://127.0.0.1:{listener.getsockname()[1]}/", "--work", str(tmp_path)]) == 2
        thread.join()
    assert fault in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        (["--url", "amqp://127.0.0.1:99999/"], "Port out of range"),
        (["--url", "http://127.0.0.1:1/"], "amqp://USER:PASSWORD@HOST:PORT/VHOST is needed"),
        (["--url", "amqp://127.0.0.1:1/"], "refused"),
        (["--broker", "hare"], "no such broker: hare"),
        (["--broker", "leveret", "--client", "telepathy"], "no such client: telepathy"),
        (["--broker", "leveret", "--only", "nothing-like-it"], "no scenario is called nothing-like-it"),
    ],
)
def test_what_cannot_be_run_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], fault: str
) -> None:
    """Exit code 2 and one line."""
    if "--client" not in arguments:
        arguments = [*arguments, "--client", "pika"]
    assert main([*arguments, "--work", str(tmp_path)]) == 2
    assert fault in capsys.readouterr().err
