"""Large bodies, from a publisher through a queue to a consumer: CPU a message and throughput, beside RabbitMQ.

    python benchmarks/large_bodies.py [--rounds 3] [--sizes 64KiB,1MiB,20MiB,128MiB] [--no-rabbitmq] [--out FILE]
    python benchmarks/large_bodies.py --baseline "../before/.venv/bin/python -m leveret serve --memory \\
        --listen 127.0.0.1:{port}"
    python benchmarks/large_bodies.py --quick

One publisher and one consumer without acknowledgements, 64 MiB on their way at most, or two messages. Each body has
its number in it, and every octet of it is checked. Brokers take turns; medians of the rounds are shown, ratios are
computed per round. `--quick`: leveret alone and few messages, for the checks. Exit status 1: a check failed.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from brokers import LEVERET, BrokerFailed, Running, machine, rss_kb, started
from large_client import Consumer, Damaged, Publisher, messages_on_their_way
from raw_client import Unexpected

KIB, MIB = 1024, 1024 * 1024
SIZES = {"64KiB": 64 * KIB, "1MiB": MIB, "20MiB": 20 * MIB, "128MiB": 128 * MIB}
#: What one run moves, so that the clock of processes, 10 ms, is fine enough.
RUN_OCTETS = {"64KiB": 512 * MIB, "1MiB": 1536 * MIB, "20MiB": 1500 * MIB, "128MiB": 1536 * MIB}
QUICK_COUNT = 3
STUCK_SECONDS = 120.0
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


class CheckFailed(Exception):
    """A body was damaged, out of order, or did not come at all."""


@dataclass(frozen=True, slots=True)
class Figures:
    """One run."""

    cpu_ms: float  # of the broker, a message
    mib_per_s: float
    rss_mb: float  # of the broker afterwards


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; returns its exit status."""
    options = _options(arguments)
    try:
        return quick(options) if options.quick else compare(options)
    except (BrokerFailed, CheckFailed) as error:
        print(f"FAILED {error}", file=sys.stderr)
        return 1


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sizes", type=lambda text: text.split(","), default=list(SIZES), help=f"of {','.join(SIZES)}")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the messages of a run")
    parser.add_argument("--command", default=LEVERET, help="start leveret by this instead; {port} is filled in")
    parser.add_argument("--baseline", metavar="CMD", help="also an older tree, to show the effect of a change")
    parser.add_argument("--no-rabbitmq", action="store_true")
    parser.add_argument("--quick", action="store_true", help="leveret alone, few messages: the checks, no figures")
    parser.add_argument("--other-channel", action="store_true", help="the consumer has another channel number")
    parser.add_argument("--out", type=Path)
    return parser.parse_args(arguments)


def quick(options: argparse.Namespace) -> int:
    """Each size with a few messages."""
    with started(options.command) as broker:
        for name in options.sizes:
            for channel in (1, 2):
                measure(broker, SIZES[name], QUICK_COUNT, channel)
            print(f"{name:7} ok")
    return 0


def compare(options: argparse.Namespace) -> int:
    """All brokers in turns; prints as it goes, writes at the end."""
    results: dict[str, Any] = {"date": f"{datetime.now(UTC):%Y-%m-%d}", "machine": machine(), "sizes": {}}
    channel = 2 if options.other_channel else 1
    with ExitStack() as stack:
        brokers = _start(stack, options)
        for name in options.sizes:
            size = SIZES[name]
            count = max(QUICK_COUNT, int(RUN_OCTETS[name] / size * options.scale))
            for broker in brokers:
                measure(broker, size, max(2, count // 10), channel)  # the warm-up
            runs: dict[str, list[Figures]] = {broker.name: [] for broker in brokers}
            for _ in range(options.rounds):
                for broker in brokers:
                    runs[broker.name].append(measure(broker, size, count, channel))
            results["sizes"][name] = summary(runs)
            _show(name, results["sizes"][name])
    if options.out is not None:
        options.out.write_text(json.dumps(results, indent=1) + "\n")
    return 0


def _start(stack: ExitStack, options: argparse.Namespace) -> list[Running]:
    brokers = [stack.enter_context(started(options.command))]
    if options.baseline:
        brokers.append(stack.enter_context(started(options.baseline, name="baseline")))
    if not options.no_rabbitmq:
        from leveret.interop.brokers.peers import rabbitmq

        peer = stack.enter_context(rabbitmq())
        brokers.append(Running("rabbitmq", peer.port, peer.pid))
    return brokers


def measure(broker: Running, size: int, count: int, channel: int) -> Figures:
    """Move `count` messages of `size` octets; the consumer takes them on `channel`. Raises: CheckFailed."""
    failures: list[BaseException] = []
    consumer = Consumer(broker.port, channel)
    publisher = Publisher(broker.port, consumer.queue, size)
    on_their_way = threading.Semaphore(messages_on_their_way(size))

    def publish() -> None:
        try:
            for number in range(count):
                if not on_their_way.acquire(timeout=STUCK_SECONDS):
                    raise Unexpected(f"message {number} waits for {STUCK_SECONDS:g} s")
                publisher.publish(number)
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=publish, daemon=True)
    cpu, begin = _cpu_seconds(broker.pid), time.monotonic()
    thread.start()
    try:
        for number in range(count):
            consumer.receive(number, publisher.body)
            on_their_way.release()
    except (Damaged, Unexpected, OSError) as error:
        raise CheckFailed(f"{broker.name}, {size} octets: {error!r} {failures or ''}") from error
    elapsed, cpu = time.monotonic() - begin, _cpu_seconds(broker.pid) - cpu
    thread.join(STUCK_SECONDS)
    if failures:
        raise CheckFailed(f"{broker.name}, {size} octets: {failures[0]!r}")
    publisher.close()
    consumer.close()
    return Figures(cpu * 1000 / count, size * count / MIB / elapsed, rss_kb(broker.pid) / 1000)


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_SECOND


def summary(runs: dict[str, list[Figures]]) -> dict[str, Any]:
    """Medians of each broker, and the ratios of leveret to the others, median, lowest and highest of the rounds."""
    found: dict[str, Any] = {}
    ours = runs["leveret"]
    for name, figures in runs.items():
        one = found[name] = {
            "cpu_ms": round(statistics.median(run.cpu_ms for run in figures), 4),
            "mib_per_s": round(statistics.median(run.mib_per_s for run in figures), 1),
            "rss_mb": round(max(run.rss_mb for run in figures), 1),
        }
        if figures is not ours:
            ratios = sorted(mine.cpu_ms / max(other.cpu_ms, 1e-6) for mine, other in zip(ours, figures))
            one["leveret_cpu_to_it"] = [round(x, 3) for x in (statistics.median(ratios), ratios[0], ratios[-1])]
    return found


def _show(size: str, found: dict[str, Any]) -> None:
    for name, one in found.items():
        line = f"{size:7} {name:9} {one['cpu_ms']:9.3f} ms CPU {one['mib_per_s']:8,.0f} MiB/s, {one['rss_mb']:4.0f} MB"
        if ratios := one.get("leveret_cpu_to_it"):
            line += f"   leveret's CPU to it: {ratios[0]:.2f}x ({ratios[1]:.2f} to {ratios[2]:.2f})"
        print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
