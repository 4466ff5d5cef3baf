"""What a message costs over the depth of a queue, the number of queues and the number of connections: flat, or where
it rises.

    python benchmarks/curves.py [--only depth,queues,connections] [--rounds 3] [--deepest 1000000] [--rabbitmq]
        [--command "... serve --memory --listen 127.0.0.1:{port}"] [--out benchmarks/results/curves.json]
    python benchmarks/curves.py --quick

CPU of the broker, microseconds a message, medians of the rounds; all points of a curve take turns, so that changes of
the machine affect them alike. Curves that are not asked for stay in the file as they are. `--deepest 10000000` needs
some 12 GB of disk. `--command` replaces the broker in memory.
Exit status 1: a check of the load generator failed (lost, repeated, reordered, damaged messages), never a time.
"""

from __future__ import annotations

import argparse
import json
import shlex
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import generator
from brokers import LEVERET, BrokerFailed, Running, machine, portable, started
from generator import CheckFailed

COUNT, COUNT_QUICK = 100_000, 2_000
DEPTHS = (1_000, 10_000, 100_000, 1_000_000, 10_000_000)
DEEPEST, DEEPEST_QUICK = 1_000_000, 3_000
QUEUES = (1, 2, 10, 100, 500, 1_000)
CONNECTIONS = (2, 10, 100, 500, 2_000)
QUICK_MAX = 100  # queues and connections with --quick
MEMORY = "256MiB"
#: Each message has a queue of its own in turn, over one connection on each side.
OVER_QUEUES = ("--rotate", "--ack", "1", "--prefetch", "100", "--confirm", "200", "--size", "1024")
#: As the scenario `many`: pairs of connections, each pair with a queue of its own.
OVER_CONNECTIONS = ("--mixed", "--unique", "--ack", "1", "--prefetch", "20", "--confirm", "50")

#: What was measured at a point -> microseconds a message.
Costs = dict[str, float]


@dataclass(frozen=True, slots=True)
class Curve:
    """`measure(broker, point, count)`: the costs at a point, of at least `count` messages."""

    title: str
    points: tuple[int, ...]
    measure: Callable[[Running, int, int], Costs]


def _call(broker: Running, count: int, flags: Sequence[str]) -> float:
    where = ["--port", str(broker.port), "--pid", str(broker.pid), "--count", str(count)]
    return float(generator.call([*flags, *where])["run_us_per_msg"])


def at_depth(broker: Running, depth: int, count: int) -> Costs:
    """Fill a queue with confirms to that depth and drain it, as often as `count` asks for."""
    times = max(1, count // depth)
    queue = ("--queue-name", "deep", "--size", "1024", "--persistent", "--durable")
    drain_flags = ("--ack", "100", "--prefetch", "1000")
    fill = drain = 0.0
    for turn in range(times):
        keep = ("--keep",) if turn + 1 < times else ()
        fill += _call(broker, depth, ("--mode", "publish", "--confirm", "2000", "--keep", *queue))
        drain += _call(broker, depth, ("--mode", "consume", *drain_flags, *keep, *queue))
    return {"fill": fill / times, "drain": drain / times}


def over_queues(broker: Running, queues: int, count: int) -> Costs:
    """One publisher and one consumer, with every queue in turn."""
    return {"message": _call(broker, count, (*OVER_QUEUES, "--queues", str(queues)))}


def over_connections(broker: Running, connections: int, count: int) -> Costs:
    """Publishers and consumers in halves, each pair with a queue of its own."""
    half = str(connections // 2)
    pairs = ("--producers", half, "--consumers", half, "--queues", half)
    return {"message": _call(broker, count, (*OVER_CONNECTIONS, *pairs))}


CURVES = {
    "depth": Curve("messages in the queue (1 KiB, persistent, journal)", DEPTHS, at_depth),
    "queues": Curve("queues, each message in another one (1 KiB, acked, confirmed)", QUEUES, over_queues),
    "connections": Curve("connections (mixed, own ids, acked, confirmed)", CONNECTIONS, over_connections),
}


@contextmanager
def journaled() -> Iterator[Running]:
    """A broker with a journal and a memory limit."""
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as config:
        config.write(f'[limits]\nmemory = "{MEMORY}"\n')
        config.flush()
        serve = f"{shlex.quote(sys.executable)} -m leveret serve --management off"
        serve += f" --data {{data}} --config {config.name} --listen 127.0.0.1:{{port}}"
        with started(serve) as broker:
            yield broker


@contextmanager
def rabbitmq() -> Iterator[Running]:
    """The one that is installed."""
    from leveret.interop.brokers.peers import rabbitmq as peer_started

    with peer_started() as peer:
        yield Running("rabbitmq", peer.port, peer.pid)


@contextmanager
def brokers_for(name: str, options: argparse.Namespace) -> Iterator[list[Running]]:
    """Those that a curve is measured with. Each curve has fresh ones."""
    with journaled() if name == "depth" else started(options.command) as broker:
        if options.rabbitmq:
            with rabbitmq() as peer:
                yield [broker, peer]
        else:
            yield [broker]


def measured(name: str, options: argparse.Namespace) -> dict[str, dict[str, Costs]]:
    """Broker -> point -> the median costs of all rounds. Raises: CheckFailed."""
    curve = CURVES[name]
    deepest = DEEPEST_QUICK if options.quick else options.deepest
    most = deepest if name == "depth" else QUICK_MAX if options.quick else curve.points[-1]
    points = [point for point in curve.points if point <= most]
    found: dict[str, dict[int, list[Costs]]] = {}
    with brokers_for(name, options) as brokers:
        for broker in brokers:  # the first run warms up
            curve.measure(broker, points[0], options.count // 10)
        for _ in range(options.rounds):
            for point in points:
                for broker in brokers:
                    costs = curve.measure(broker, point, options.count)
                    found.setdefault(broker.name, {}).setdefault(point, []).append(costs)
    return {broker: {str(point): _median(rounds) for point, rounds in at.items()} for broker, at in found.items()}


def _median(rounds: Sequence[Costs]) -> Costs:
    return {what: round(statistics.median(one[what] for one in rounds), 3) for what in rounds[0]}


def table(name: str, figures: dict[str, dict[str, Costs]]) -> str:
    """A curve as lines of text: a row for each point, with its ratio to the first point."""
    lines = [f"us of CPU a message over {CURVES[name].title}"]
    for broker, at in figures.items():
        first = next(iter(at.values()))
        for point, costs in at.items():
            cells = [f"{what} {cost:8.2f} ({cost / first[what]:4.2f}x)" for what, cost in costs.items() if first[what]]
            lines.append(f"  {broker:9} {int(point):>10,}  " + "  ".join(cells))
    return "\n".join(lines)


def _names(text: str) -> list[str]:
    names = text.split(",")
    unknown = [name for name in names if name not in CURVES]
    if unknown:
        raise argparse.ArgumentTypeError(f"no curve {', '.join(unknown)}; there are {', '.join(CURVES)}")
    return names


def main() -> int:
    """Print and perhaps write the curves."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", type=_names, default=list(CURVES), help=f"of {','.join(CURVES)}")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--count", type=int, default=COUNT, help="messages of each run, at least")
    parser.add_argument("--deepest", type=int, default=DEEPEST, help=f"the deepest queue, up to {DEPTHS[-1]:,}")
    parser.add_argument("--command", default=LEVERET, help="start the broker in memory by this; {port} is filled in")
    parser.add_argument("--rabbitmq", action="store_true", help="RabbitMQ, too")
    parser.add_argument("--quick", action="store_true", help="seconds: the generator's checks, no figures")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.count = 1, COUNT_QUICK
    results: dict[str, Any] = {}
    try:
        generator.build()
        for name in options.only:
            figures = measured(name, options)
            print(table(name, figures), flush=True)
            results[name] = {
                "over": CURVES[name].title,
                "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
                "rounds": options.rounds,
                "command": portable(["python", "benchmarks/curves.py", *sys.argv[1:]]),
                "cpu_us": figures,
            }
    except (BrokerFailed, CheckFailed) as error:
        print(f"FAILED {error}", file=sys.stderr)
        return 1
    except (FileNotFoundError, subprocess.CalledProcessError) as error:
        print(f"curves.py: {error}", file=sys.stderr)
        return 2
    if options.out is not None:
        before = json.loads(options.out.read_text()) if options.out.exists() else {}
        options.out.write_text(json.dumps({**before, "machine": machine(), **results}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
