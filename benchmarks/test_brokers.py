"""Test brokers compared: eight questions to each, and what a start, its memory and a reset cost.

    python benchmarks/test_brokers.py [--only leveret,test-server,rabbitmq,kombu,amqp-mock,mock-amqplib] [--rounds 3]

Leveret, RabbitMQ and amqp-mock are asked by pika through a socket; kombu's memory:// and mock-amqplib, which have none,
by their own API. The packages of others are installed into a temporary directory. One that this machine cannot have
is left out with the reason. Prints the rows of docs/test-brokers-compared.md. Needs `leveret[interop]` and pika.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pika

sys.path.insert(0, str(Path(__file__).parent))

from broker_questions import QUESTIONS, ask

PROGRAMS = Path(__file__).with_name("test_broker_programs")
NAMES = ("leveret", "test-server", "rabbitmq", "kombu", "amqp-mock", "mock-amqplib")
#: A broker in the test's own process, in one of its own: seconds of the first start and of later ones, bytes, seconds
#: of a reset.
LEVERET = """
import json, os, sys, time
import pika
from leveret.testing import start_broker
def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
before, starts = resident(), []
for start in range(5):
    since = time.perf_counter()
    with start_broker() as broker:
        pika.BlockingConnection(pika.URLParameters(broker.url)).close()
        starts.append(time.perf_counter() - since)
        if not start:
            memory = resident() - before
        with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
            connection.channel().queue_declare("q")
        since = time.perf_counter()
        broker.reset()
        reset = time.perf_counter() - since
print(json.dumps({"ready": starts[0], "next": min(starts[1:]), "memory": memory, "reset": reset}))
"""


class NotHere(Exception):
    """What this machine lacks, or what could not be installed."""


@dataclass(slots=True)
class Answers:
    """Of one broker. `said`: by question, `yes` or what happened instead; times in seconds, memory in bytes."""

    version: str = ""
    ready: list[float] = field(default_factory=list)
    following: float | None = None
    memory: int | None = None
    reset: float | None = None
    said: dict[str, str] = field(default_factory=dict)


def memory_of(pid: int) -> int:
    """Resident, in bytes."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def run(command: list[str], **more: str) -> str:
    """Its output. Raises: NotHere."""
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **more})
    if done.returncode:
        raise NotHere(f"{' '.join(command[:4])}: {(done.stderr or done.stdout).strip()[-300:]}")
    return done.stdout


# -- brokers -----------------------------------------------------------------------------------------------------------


def leveret(work: Path, rounds: int) -> Answers:
    """In the process of the tests."""
    from leveret import __version__
    from leveret.testing import start_broker

    found = Answers(__version__)
    for _ in range(rounds):
        measured = json.loads(run([sys.executable, "-c", LEVERET]))
        found.ready.append(measured["ready"])
        found.following, found.memory, found.reset = measured["next"], measured["memory"], measured["reset"]
    with start_broker() as broker:
        found.said = ask(broker.url)
    return found


def test_server(work: Path, rounds: int) -> Answers:
    """A process of its own, virtual time."""
    from leveret import __version__

    found = Answers(__version__)
    for _ in range(rounds):
        since = time.perf_counter()
        command = [sys.executable, "-m", "leveret", "test-server"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                there = json.loads(process.stdout.readline())
                _connect(there["url"])
                found.ready.append(time.perf_counter() - since)
                found.memory = memory_of(process.pid)
                # By pika as the others are; time is the broker's own, so what waits is brought about by its control.
                control = [sys.executable, "-m", "leveret", "ctl", "--url", there["control"]]
                token = {"LEVERET_TEST_TOKEN": there["token"]}
                found.said = ask(there["url"], wait=partial(run, [*control, "clock.advance", "seconds=2"], **token))
            finally:
                process.terminate()
    return found


def rabbitmq(work: Path, rounds: int) -> Answers:
    """Without a container, its script's own start."""
    from leveret.interop.brokers import peers

    if peers.find_rabbitmq() is None:
        raise NotHere(peers.WITHOUT_RABBITMQ)
    found = Answers()
    for _ in range(rounds):
        since = time.perf_counter()
        with peers.rabbitmq() as peer:
            _connect(peer.url)
            found.ready.append(time.perf_counter() - since)
            found.memory = memory_of(peer.pid)
            with pika.BlockingConnection(pika.URLParameters(peer.url)) as connection:
                told = connection._impl.server_properties  # pika keeps what the broker said of itself there alone
                version = told["version"]
                found.version = version.decode() if isinstance(version, bytes) else version
            found.said = ask(peer.url)
    return found


def kombu(work: Path, rounds: int) -> Answers:
    return _program([_environment(work, "kombu"), str(PROGRAMS / "ask_kombu.py")])


def amqp_mock(work: Path, rounds: int) -> Answers:
    """A broker in the process that its program runs in; pika asks from this one."""
    python = _environment(work, "amqp-mock")
    found = Answers()
    command = [python, str(PROGRAMS / "serve_amqp_mock.py")]
    for question in QUESTIONS:  # a new one for each: a question that it does not survive is one answer, not all
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                line = process.stdout.readline()
                if not line:
                    raise NotHere("amqp-mock did not start")
                there = json.loads(line)
                found.version = there["version"]
                found.ready.append(there["ready"])
                found.said |= ask(f"amqp://guest:guest@127.0.0.1:{there['port']}/", only=question)
            finally:
                process.kill()
    return found


def mock_amqplib(work: Path, rounds: int) -> Answers:
    npm, node = shutil.which("npm"), shutil.which("node")
    if npm is None or node is None:
        raise NotHere("no Node on this machine")
    home = work / "node"
    home.mkdir()
    run([npm, "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(home), "mock-amqplib"])
    return _program([node, str(PROGRAMS / "ask_mock_amqplib.js")], NODE_PATH=str(home / "node_modules"))


BROKERS: dict[str, Callable[[Path, int], Answers]] = dict(
    zip(NAMES, (leveret, test_server, rabbitmq, kombu, amqp_mock, mock_amqplib))
)


# -- leaves ------------------------------------------------------------------------------------------------------------


def _connect(url: str) -> None:
    pika.BlockingConnection(pika.URLParameters(url)).close()


def _environment(work: Path, package: str) -> str:
    """Python with the newest `package`."""
    place = work / package
    run([sys.executable, "-m", "venv", str(place)])
    run([str(place / "bin" / "pip"), "install", "--quiet", package])
    return str(place / "bin" / "python")


def _program(command: list[str], **more: str) -> Answers:
    """A program that prints its answers as JSON."""
    told = json.loads(run(command, **more))
    assert told["said"].keys() == QUESTIONS.keys(), told
    return Answers(told["version"], [told["ready"]], said=told["said"])


def table(answers: dict[str, Answers]) -> Iterator[str]:
    """Rows of the page."""
    yield "| | " + " | ".join(f"{name} {one.version}" for name, one in answers.items()) + " |"
    yield "|---" * (len(answers) + 1) + "|"
    yield _row("ready in", answers, _ready)
    yield _row("memory", answers, lambda one: "" if one.memory is None else f"{one.memory / 1e6:.0f} MB")
    yield _row("as new", answers, lambda one: "" if one.reset is None else f"{one.reset * 1000:.1f} ms")
    for question in QUESTIONS:
        yield _row(question, answers, lambda one, question=question: one.said[question])  # type: ignore[misc]


def _row(title: str, answers: dict[str, Answers], cell: Callable[[Answers], str]) -> str:
    return f"| {title} | " + " | ".join(cell(one) for one in answers.values()) + " |"


def _ready(one: Answers) -> str:
    if not one.ready:
        return ""
    text = f"{statistics.median(one.ready):.3g} s"
    return text if one.following is None else f"{text}, the next {one.following:.2g} s"


@contextmanager
def _directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="leveret-test-brokers-", ignore_cleanup_errors=True) as directory:
        yield Path(directory)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(NAMES))
    parser.add_argument("--rounds", type=int, default=3, help="starts of Leveret, test-server and RabbitMQ")
    options = parser.parse_args()
    wanted = options.only.split(",")
    if set(wanted) - set(NAMES):
        parser.error(f"--only knows {', '.join(NAMES)}")
    answers: dict[str, Answers] = {}
    with _directory() as work:
        for name in wanted:
            try:
                answers[name] = BROKERS[name](work, options.rounds)
            except NotHere as reason:
                print(f"{name}: left out: {reason}", file=sys.stderr)
    print(f"{time.strftime('%Y-%m-%d')}, {os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f}", flush=True)
    for line in table(answers):
        print(line)
    return 0 if answers else 2


if __name__ == "__main__":
    sys.exit(main())
