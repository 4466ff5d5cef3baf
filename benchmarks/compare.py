"""Measure leveret and RabbitMQ in turns, and report which goals are met.

    python benchmarks/compare.py [--rounds 3] [--only S1-16,S2] [--scale 1] [--out FILE.json]
    python benchmarks/compare.py --baseline "../before/.venv/bin/python -m leveret serve --memory \\
        --listen 127.0.0.1:{port}" --no-rabbitmq --only S1-16,S2
    python benchmarks/compare.py --quick

A whole run writes results/latest.json and latest.md, which the README cites; one that has less than these (fewer loads
or rounds, shorter ones, no RabbitMQ, another command) writes results/partial.json and partial.md, which are not kept.

Brokers are started fresh and take turns (A B A B), so that changes of the machine affect all alike; CPU per message is
more reliable than rates. Exit status 1: a check of the load generator failed (lost, repeated, reordered, damaged
messages), never a time.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import generator
from brokers import LEVERET as LEVERET_COMMAND
from brokers import BrokerFailed, Running, machine, portable, rss_kb, server_properties, started
from generator import CheckFailed, Figures
from report import BASELINE, BASELINE_AGAIN, LEVERET, RABBITMQ, Results, idle_verdicts, scenario_line, write
from scenarios import SCENARIOS, Scenario

import leveret

RUN_SECONDS = 1.3  # CPU time has a resolution of 10 ms: 1 s and a margin
PACED_SECONDS = 5.0  # at 2,000/s the broker is mostly idle: longer, for the same resolution
GROWTH_MAX = 20.0  # of the count from one calibrating run to the next
CALIBRATIONS_MAX = 5
STARTS = 5
RESULTS = Path(__file__).parent / "results"
QUICK_SHARE = 0.02  # of a scenario's first count
QUICK_SECONDS = 0.2
BYTES_PER_KB, BYTES_PER_MB = 1024, 1_000_000


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; returns its exit status."""
    options = _options(arguments)
    try:
        generator.build()
        return quick(options.command, options.only) if options.quick else compare(options)
    except BrokerFailed as error:
        print(f"FAILED {error}", file=sys.stderr)
        return 1
    except (FileNotFoundError, subprocess.CalledProcessError) as error:
        print(f"compare.py: {error}", file=sys.stderr)
        return 2


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", type=_names, default=list(SCENARIOS), help=f"of {','.join(SCENARIOS)}")
    parser.add_argument("--scale", type=float, default=1.0, help="length of a run, 1: at least a second")
    parser.add_argument("--out", type=Path, help="default: results/latest.json, of a part results/partial.json")
    parser.add_argument("--command", default=LEVERET_COMMAND, help="start leveret by this instead; {port} is filled in")
    parser.add_argument("--baseline", metavar="CMD", help="also an older tree, twice, to show the effect of a change")
    parser.add_argument("--no-rabbitmq", action="store_true", help="only the baseline to compare with")
    parser.add_argument(
        "--quick", action="store_true", help="seconds, leveret only: the generator's checks, no figures"
    )
    return parser.parse_args(arguments)


def _names(text: str) -> list[str]:
    names = text.split(",")
    unknown = [name for name in names if name not in SCENARIOS]
    if unknown:
        raise argparse.ArgumentTypeError(f"no scenario {', '.join(unknown)}; there are {', '.join(SCENARIOS)}")
    return names


def results_file(options: argparse.Namespace, folder: Path = RESULTS) -> Path:
    """Where results go. What is in latest.json is only replaced by what has at least as much."""
    if options.out is not None:
        return Path(options.out)
    latest = folder / "latest.json"
    none: dict[str, Any] = {"scenarios": {}, "rounds": 1, "scale": 1}
    kept: dict[str, Any] = json.loads(latest.read_text()) if latest.exists() else none
    is_whole = (
        not options.no_rabbitmq
        and options.command == LEVERET_COMMAND
        and set(options.only) >= set(kept["scenarios"])
        and options.rounds >= kept["rounds"]
        and options.scale >= kept["scale"]
    )
    return latest if is_whole else folder / "partial.json"


def quick(command: str, only: Sequence[str]) -> int:
    """Every scenario once and small, against leveret alone."""
    failed = False
    with started(command) as broker:
        for name in only:
            scenario = SCENARIOS[name]
            try:
                figures = generator.run(
                    scenario,
                    broker.port,
                    broker.pid,
                    count=int(scenario.count_first * QUICK_SHARE) or 1,
                    seconds=QUICK_SECONDS,
                )
                print(f"{name:11} ok, {figures.messages} messages")
            except CheckFailed as error:
                failed = True
                print(f"{name:11} FAILED {error}")
    return int(failed)


def compare(options: argparse.Namespace) -> int:
    """The whole comparison; prints as it goes, writes at the end."""
    with ExitStack() as stack:
        brokers = _start(stack, options)
        results = Results(facts=_facts(options, brokers))
        for name in options.only:
            results.runs[name] = _measure(SCENARIOS[name], brokers, options, results.failures)
            print(scenario_line(name, results.runs[name]), flush=True)
    _measure_start(options.command, results)
    for what, figure, goal, good in idle_verdicts(results):
        print(f"{what}: {figure}  goal {goal}: {'met' if good else 'MISSED'}")
    where = results_file(options)
    write(results, where)
    print(f"written: {portable([str(where)])}")
    for failure in results.failures:
        print(f"FAILED {failure}", file=sys.stderr)
    return int(bool(results.failures))


def _start(stack: ExitStack, options: argparse.Namespace) -> list[Running]:
    """All brokers, in the order in which they take turns."""
    brokers = []
    if not options.no_rabbitmq:
        from leveret.interop.brokers.peers import rabbitmq

        peer = stack.enter_context(rabbitmq())
        brokers.append(Running(RABBITMQ, peer.port, peer.pid))
    if options.baseline:
        brokers.append(stack.enter_context(started(options.baseline, name=BASELINE)))
    brokers.append(stack.enter_context(started(options.command, name=LEVERET)))
    if options.baseline:
        brokers.append(stack.enter_context(started(options.baseline, name=BASELINE_AGAIN)))
    return brokers


def _facts(options: argparse.Namespace, brokers: Sequence[Running]) -> dict[str, Any]:
    versions = {}
    for broker in brokers:
        # Leveret shows clients the version of the RabbitMQ that it follows.
        ours = broker.name == LEVERET
        versions[broker.name] = _revision() if ours else str(server_properties(broker.port).get("version", "unknown"))
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "machine": machine(),
        "brokers": versions,
        "idle RSS at the start, MB": {
            broker.name: round(rss_kb(broker.pid) * BYTES_PER_KB / BYTES_PER_MB, 1) for broker in brokers
        },
        "rounds": options.rounds,
        "scale": options.scale,
        "command": portable(["python", "benchmarks/compare.py", *sys.argv[1:]]),
    }


def _revision() -> str:
    """Version of this tree and, in a clone, its commit."""
    described = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=Path(__file__).parent, capture_output=True, text=True
    )
    return " ".join([leveret.__version__, *described.stdout.split()])


def _measure(
    scenario: Scenario, brokers: Sequence[Running], options: argparse.Namespace, failures: list[str]
) -> dict[str, list[Figures]]:
    """Rounds of one scenario. A broker that fails a check is listed in `failures` and skipped from then on."""
    runs: dict[str, list[Figures]] = {}
    counts: dict[str, int] = {}
    for broker in brokers:
        try:
            counts[broker.name] = _calibrate(scenario, broker, options.scale)
            runs[broker.name] = []
        except CheckFailed as error:
            failures.append(f"{scenario.name} {broker.name}: {error}")
    for _ in range(options.rounds):
        for broker in brokers:
            if broker.name not in runs:
                continue
            seconds = PACED_SECONDS * options.scale
            try:
                figures = generator.run(scenario, broker.port, broker.pid, count=counts[broker.name], seconds=seconds)
                runs[broker.name].append(figures)
            except CheckFailed as error:
                failures.append(f"{scenario.name} {broker.name}: {error}")
                del runs[broker.name]
    return runs


def _calibrate(scenario: Scenario, broker: Running, scale: float) -> int:
    """The number of messages that take this broker RUN_SECONDS; also its warm-up. Raises: CheckFailed."""
    if scenario.paced:
        return 0
    count, wanted = scenario.count_first, RUN_SECONDS * scale
    for _ in range(CALIBRATIONS_MAX):
        elapsed = generator.run(scenario, broker.port, broker.pid, count=count).elapsed_s
        factor = min(wanted * 1.1 / max(elapsed, 1e-4), GROWTH_MAX)
        if 1 / 3 < factor <= 1.1:
            break
        count = max(int(count * factor), 1)
        if 1.0 < factor < 3.0:
            break
    return count


def _measure_start(command: str, results: Results) -> None:
    """From spawn to connection.open-ok, and the memory then; the first start only warms caches."""
    for attempt in range(STARTS + 1):
        begin = time.monotonic()
        with started(command, wait=False) as broker:
            try:
                generator.call(["--mode", "ready", "--port", str(broker.port), "--drain-timeout", "20"])
            except CheckFailed as error:
                results.failures.append(f"start: {error}")
                return
            elapsed_ms = (time.monotonic() - begin) * 1000
            if attempt:
                results.start_ms.append(elapsed_ms)
                results.idle_rss_mb.append(rss_kb(broker.pid) * BYTES_PER_KB / BYTES_PER_MB)
    results.facts["start_ms"] = [round(value, 1) for value in results.start_ms]
    results.facts["idle_rss_mb"] = round(statistics.median(results.idle_rss_mb), 1)


if __name__ == "__main__":
    sys.exit(main())
