"""The speed of the test broker: imports, start-up, reset, and thousands of tests, with virtual time and without.

    python benchmarks/testing_broker.py [--tests 2000] [--rounds 11] [--runs 3] [--only small,virtual,real]
    python benchmarks/testing_broker.py --only small --baseline OLD-TREE/.venv/bin/python

Prints one line per figure: the best and the median of its rounds. The small figures are measured in processes of their
own, with existing byte code; with `--baseline` the old tree takes turns with this one, twice. The tests are
whole pytest runs, with two and three workers (pytest-xdist) and without; a run in which one test fails ends the
program. Figures with machine and date: benchmarks/README.md.
"""

import argparse
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

#: What a test with virtual time does: its own virtual host, 5 messages, 3 retries, then the dead-letter queue.
WITH_TIME_TRAVEL = """
import pika
import pytest

ARGUMENTS = {
    "x-redelivery-delay": 900_000, "x-redelivery-delay-multiplier": 2, "x-max-redelivery-delay": 3_600_000,
    "x-max-delivery-attempts": 4, "x-dead-letter-address": "dead",
}

@pytest.mark.parametrize("number", range(%d))
def test_retries(amqp_broker, amqp_url, number):
    connection = pika.BlockingConnection(pika.URLParameters(amqp_url))
    channel = connection.channel()
    channel.queue_declare("dead", auto_delete=True)
    channel.queue_declare("jobs", auto_delete=True, arguments=ARGUMENTS)
    for message in range(5):
        channel.basic_publish("", "jobs", b"%%d" %% message)
    for hours in (0, 0.25, 0.5, 1.25):
        if hours:
            amqp_broker.clock.advance(hours=hours)
        for message in range(5):
            method, _, _ = channel.basic_get("jobs")
            channel.basic_nack(method.delivery_tag, requeue=True)
    amqp_broker.assert_queue("dead", ready=["0", "1", "2", "3", "4"])
    assert amqp_broker.clock.elapsed == 7200
    connection.close()
"""

#: The same without delays and without virtual time.
WITHOUT_TIME_TRAVEL = """
import pika
import pytest

ARGUMENTS = {"x-max-delivery-attempts": 4, "x-dead-letter-address": "dead"}

@pytest.mark.parametrize("number", range(%d))
def test_attempts(amqp_broker, amqp_url, number):
    connection = pika.BlockingConnection(pika.URLParameters(amqp_url))
    channel = connection.channel()
    channel.queue_declare("dead", auto_delete=True)
    channel.queue_declare("jobs", auto_delete=True, arguments=ARGUMENTS)
    for message in range(5):
        channel.basic_publish("", "jobs", b"%%d" %% message)
    for attempt in range(4):
        for method, _, _ in [channel.basic_get("jobs") for message in range(5)]:
            channel.basic_nack(method.delivery_tag, requeue=True)
    amqp_broker.assert_queue("dead", ready=["0", "1", "2", "3", "4"])
    connection.close()
"""

#: By the name of the clock: source, what they are, and the goal for 2,000 of them with two workers, in seconds.
TESTS = {
    "virtual": (WITH_TIME_TRAVEL, "over 2 virtual hours each", 32),
    "real": (WITHOUT_TIME_TRAVEL, "without time travel", 25),
}

#: Byte code is written, as it is for most users.
ENVIRONMENT = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}

IMPORT = """
import time
since = time.perf_counter()
import {module}
print((time.perf_counter() - since) * 1000)
"""

PLUGIN = """
import pytest, time
since = time.perf_counter()
import leveret.pytest_plugin
print((time.perf_counter() - since) * 1000)
"""

#: `earlier` starts before the one that is timed.
START = """
import pika, time
from leveret.testing import start_broker
for earlier in range({earlier} + 1):
    since = time.perf_counter()
    with start_broker() as broker:
        connection = pika.BlockingConnection(pika.URLParameters(broker.url))
        took = time.perf_counter() - since
        connection.close()
print(took * 1000)
"""

#: A thousand queues, ten of them with ten messages each.
RESET = """
import pika, time
from leveret.testing import start_broker
with start_broker() as broker:
    connection = pika.BlockingConnection(pika.URLParameters(broker.url))
    channel = connection.channel()
    for number in range(1000):
        channel.queue_declare(f"q{number}")
    for number in range(100):
        channel.basic_publish("", f"q{number % 10}", b"x")
    connection.close()
    assert len(broker.queues()) == 1000
    since = time.perf_counter()
    broker.reset()
    took = time.perf_counter() - since
    assert broker.queues() == ()
print(took * 1000)
"""

#: Name, code that prints milliseconds, and the goal.
SMALL = (
    ("import trio", IMPORT.format(module="trio"), 150),
    ("import leveret.testing", IMPORT.format(module="leveret.testing"), 150),
    ("the plugin's import in a run that does not use it", PLUGIN, 10),
    ("start_broker() to open-ok, first in the process", START.replace("{earlier}", "0"), 50),
    ("start_broker() to open-ok, later", START.replace("{earlier}", "10"), 50),
    ("reset with 1,000 queues", RESET, 1),
)


def milliseconds(python: str, code: str) -> float:
    """Run code that prints a number of milliseconds, in a process of its own."""
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True, env=ENVIRONMENT)
    return float(done.stdout)


def tests_s(source: str, clock: str, tests: int, *arguments: str) -> float:
    """The tests, as a user would run them: the whole pytest process."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "test_scenario.py").write_text(source % tests)
        options = ["-q", "-p", "no:cacheprovider", "-o", f"amqp_clock={clock}", *arguments]
        since = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *options], cwd=folder, capture_output=True, text=True, env=ENVIRONMENT
        )
        took = time.perf_counter() - since
        if f"\n{tests} passed" not in done.stdout:
            raise SystemExit(f"not all tests passed:\n{done.stdout[-5000:]}{done.stderr}")
    return took


def report(name: str, rounds: list[float], unit: str, goal: float | None) -> None:
    """One line."""
    best, median = min(rounds), statistics.median(rounds)
    asked = "" if goal is None else f"  (goal: {goal:g} {unit})"
    print(f"{name:<72} best {best:8.2f} {unit}  median {median:8.2f} {unit}{asked}", flush=True)


def measure_small(rounds: int, baseline: str | None) -> None:
    """Imports, starts and resets; the old tree's twice, before and after the new one's."""
    trees = {"": sys.executable}
    if baseline is not None:
        trees = {", old": baseline, ", new": sys.executable, ", old again": baseline}
    for name, code, goal in SMALL:
        for python in trees.values():
            milliseconds(python, code)  # writes the byte code
        figures: dict[str, list[float]] = {tree: [] for tree in trees}
        for _ in range(rounds):
            for tree, python in trees.items():
                figures[tree].append(milliseconds(python, code))
        for tree, values in figures.items():
            report(name + tree, values, "ms", goal)


def main() -> None:
    """All figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tests", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=11, help="of the small figures")
    parser.add_argument("--runs", type=int, default=3, help="of the tests")
    parser.add_argument("--only", default="small,virtual,real", help="small, virtual, real")
    parser.add_argument("--workers", default="2,3,0", help="of the tests; 0: without pytest-xdist")
    parser.add_argument("--baseline", help="another tree's Python, for the small figures")
    options = parser.parse_args()
    print(f"Python {platform.python_version()} at {time.strftime('%Y-%m-%d %H:%M')}, {os.cpu_count()} cores")
    chosen = options.only.split(",")
    if "small" in chosen:
        measure_small(options.rounds, options.baseline)
    for kind, (source, what, goal_s) in TESTS.items():
        for workers in options.workers.split(",") if kind in chosen else ():
            runs = [tests_s(source, kind, options.tests, "-n", workers) for _ in range(options.runs)]
            goal = goal_s * options.tests / 2000 if workers == "2" else None
            report(f"{options.tests} tests {what}, {workers} workers, {options.runs} runs", runs, "s", goal)


if __name__ == "__main__":
    main()
