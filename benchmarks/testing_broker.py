"""The speed of the test broker: imports, start-up, reset, and a thousand tests over two virtual hours each.

    python benchmarks/testing_broker.py [--tests 1000] [--rounds 11] [--runs 3]

Prints one line per figure. Imports are measured in processes of their own, with existing byte code; each figure is the
best and the median of its rounds. The thousand tests are whole pytest runs, with two and three workers (pytest-xdist)
and without. Figures with machine and date: benchmarks/README.md.
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

import pika

from leveret.testing import start_broker

#: What one of the thousand tests does: its own virtual host, 5 messages, 3 retries, then the dead-letter queue.
SCENARIO = """
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


#: Byte code is written, as it is for most users.
ENVIRONMENT = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}


def in_python(code: str) -> float:
    """Run code that prints a number of milliseconds, in a process of its own."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=ENVIRONMENT)
    return float(done.stdout)


def import_ms(module: str) -> float:
    """Importing a module into an empty process."""
    return in_python(
        f"import time; since = time.perf_counter(); import {module}; print((time.perf_counter() - since) * 1000)"
    )


def plugin_ms() -> float:
    """The plugin's cost in a pytest run that does not use it: its import, after pytest's."""
    return in_python(
        "import pytest, time; since = time.perf_counter(); import leveret.pytest_plugin; "
        "print((time.perf_counter() - since) * 1000)"
    )


def first_start_ms() -> float:
    """start_broker to open-ok, the first in its process, once leveret.testing and pika are imported."""
    return in_python(
        "import pika, time; from leveret.testing import start_broker; since = time.perf_counter()\n"
        "with start_broker() as broker:\n"
        "    connection = pika.BlockingConnection(pika.URLParameters(broker.url))\n"
        "    took = time.perf_counter() - since\n"
        "    connection.close()\n"
        "print(took * 1000)"
    )


def next_start_ms() -> float:
    """The same, later in the process."""
    since = time.perf_counter()
    with start_broker() as broker:
        connection = pika.BlockingConnection(pika.URLParameters(broker.url))
        took = time.perf_counter() - since
        connection.close()
    return took * 1000


def reset_ms() -> float:
    """A reset with a thousand queues, ten of them with ten messages each."""
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
    return took * 1000


def scenario_s(tests: int, *arguments: str) -> float:
    """The thousand tests, as a user would run them: the whole pytest process."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "test_scenario.py").write_text(SCENARIO % tests)
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "-o",
            "amqp_clock=virtual",
            *arguments,
        ]
        since = time.perf_counter()
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=ENVIRONMENT)
        took = time.perf_counter() - since
        assert f"{tests} passed" in done.stdout, done.stdout[-3000:] + done.stderr
    return took


def report(name: str, rounds: list[float], unit: str, limit: float) -> None:
    """One line."""
    best, median = min(rounds), statistics.median(rounds)
    print(f"{name:<62} best {best:8.2f} {unit}  median {median:8.2f} {unit}  (asked for: {limit:g} {unit})", flush=True)


def main() -> None:
    """All figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tests", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--runs", type=int, default=3, help="of the thousand tests")
    options = parser.parse_args()
    print(f"Python {platform.python_version()} at {time.strftime('%Y-%m-%d %H:%M')}, {os.cpu_count()} cores")
    rounds = range(options.rounds)
    for module in ("trio", "leveret.testing"):
        import_ms(module)  # writes the byte code
        report(f"import {module}", [import_ms(module) for _ in rounds], "ms", 150)
    plugin_ms()
    report("the plugin's import in a run that does not use it", [plugin_ms() for _ in rounds], "ms", 10)
    first_start_ms()
    report("start_broker() to open-ok, first in the process", [first_start_ms() for _ in rounds], "ms", 50)
    report("start_broker() to open-ok, later", [next_start_ms() for _ in rounds], "ms", 50)
    report("reset with 1,000 queues", [reset_ms() for _ in rounds], "ms", 1)
    for label, arguments in (("2 workers", ("-n", "2")), ("3 workers", ("-n", "3")), ("1 process", ())):
        runs = [scenario_s(options.tests, *arguments) for _ in range(options.runs)]
        report(f"{options.tests} tests over 2 virtual hours each, {label}", runs, "s", 20)


if __name__ == "__main__":
    main()
