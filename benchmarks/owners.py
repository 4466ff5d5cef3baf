"""Leased queues whose messages have owners, beside a leased queue of a broker alone (docs/from-amps.md).

    python benchmarks/owners.py [--count 1000000] [--quick] [--only cpu,memory,recovery] [--out FILE]

The engine alone, in one process. CPU, never time: others may use the machine. Each part takes its forms in turn.

- `cpu`: microseconds a message, published in runs of 20, delivered and acknowledged, with three publishers and three
  consumers: of a broker alone; of a cluster with all of them at one node; with one of each at three nodes; with the
  publishers at one node and the consumers at two others, so that all messages are transferred. Goals, beside one node:
  1.15 and 1.5.
- `memory`: octets of a ready message beside one of a broker alone, in memory and paged out, published by three nodes
  in turn, one by one and in runs of 20. Goal: 2.
- `recovery`: microseconds a message until a broker has what is in the journal, after an orderly end and after a kill.
  Goal: 1.2 of a broker alone.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

from brokers import machine

from leveret.engine import Client, Route, Session
from leveret.serving.collector import THRESHOLDS
from leveret.testing.harness import Harness, messages

SITES = ("n1", "n2", "n3")
RUN = 20
#: Messages of a turn that fills a queue: with a journal it waits for the disk.
TURN = 2000
#: Messages of one form before the next one has its turn.
SLICE = 20_000
ONE_SITE = ("n1", "n1", "n1")
#: Octets of a message beside one of a broker alone.
OCTETS_MAX = 2.0
MESSAGES = {count: messages([b"0123456789abcdef"] * count, {"delivery_mode": 2}) for count in (1, RUN)}


class Bench(Harness):
    """A leased queue `q`: of a broker alone, or distributed over three nodes."""

    def __init__(self, *, is_cluster: bool, **more: Any) -> None:
        self.is_cluster = is_cluster
        where: dict[str, Any] = {"site": "n1", "groups": dict.fromkeys(SITES, "")} if is_cluster else {}
        super().__init__(kind="amps", **where, **more)

    def begin(self) -> None:
        super().begin()
        self.routes: dict[Session, Route] = {}  # as frontends keep them
        self.at = {site: self.connect(site=site if self.is_cluster else None) for site in SITES}
        if "q" not in self.vhost.queues:
            more: dict[str, Any] = {"x_replication": "distributed"} if self.is_cluster else {}
            self.queue("q", x_max_backlog_per_consumer=1 << 40, **more)

    def read(self, client: Client) -> None:
        """Drop what goes out."""
        client.take_outbox()
        client.drained()

    def send(self, session: Session, count: int) -> None:
        """A run of messages of 16 octets."""
        summary, contents = MESSAGES[count]
        route = self.routes.get(session)
        if route is None or route.is_stale:
            route = self.routes[session] = self.route("q", "", session.client)
        session.publish(route, self.envelope("", "q", summary), contents, mandatory=False)

    def fill(self, count: int, run: int) -> None:
        """Messages of each site in turn."""
        for number in range(count // run):
            self.send(self.at[SITES[number % 3]], run)
            if (number + 1) * run % TURN == 0:
                self.end_turn()
        self.end_turn()


class Working(Bench):
    """Publishers at some sites, in turn, and a consumer at each of others."""

    def __init__(self, *, is_cluster: bool, publishers: tuple[str, ...], consumers: tuple[str, ...]) -> None:
        super().__init__(is_cluster=is_cluster)
        self.publishers = [self.connect(site=site if is_cluster else None) for site in publishers]
        self.readers = [self.connect(site=site if is_cluster else None) for site in consumers]
        self.delivered = self.cpu_ns = 0
        for session in self.readers:
            self.consume(by=session, prefetch=1000)
        self.run(20 * RUN)
        self.delivered = self.cpu_ns = 0

    def run(self, count: int) -> None:
        """Publish, deliver and acknowledge messages."""
        begin_ns = time.process_time_ns()
        for number in range(count // RUN):
            self.send(self.publishers[number % len(self.publishers)], RUN)
            self.end_turn()
            for session in self.readers:
                if session.unacked:
                    self.delivered += len(session.unacked)
                    session.ack(0, multiple=True)
            self.end_turn()
        self.cpu_ns += time.process_time_ns() - begin_ns
        self.clock.advance_ns(1_000_000)


def cpu(count: int) -> dict[str, Any]:
    """Microseconds a message, and beside a cluster with all clients at one node."""
    forms = {
        "alone": Working(is_cluster=False, publishers=ONE_SITE, consumers=ONE_SITE),
        "one node": Working(is_cluster=True, publishers=ONE_SITE, consumers=ONE_SITE),
        "three nodes": Working(is_cluster=True, publishers=SITES, consumers=SITES),
        "transferred": Working(is_cluster=True, publishers=ONE_SITE, consumers=("n2", "n3", "n2")),
    }
    slices: dict[str, list[float]] = {name: [] for name in forms}
    size = min(SLICE, count)
    for _ in range(count // size):
        for name, bench in forms.items():
            before = bench.cpu_ns
            bench.run(size)
            slices[name].append((bench.cpu_ns - before) / size / 1000)
    for name, bench in forms.items():
        assert bench.delivered == len(slices[name]) * size, f"{name}: {bench.delivered}"
    found: dict[str, Any] = {
        name: {"mean": sum(some) / len(some), "median": statistics.median(some)} for name, some in slices.items()
    }
    for name in ("three nodes", "transferred"):
        found[name]["ratio"] = found[name]["median"] / found["one node"]["median"]
    return found


def octets(count: int, run: int, *, is_cluster: bool, memory: int | None) -> float:
    """What a ready message takes. `memory`: octets of contents that stay; None: all of them."""
    with tempfile.TemporaryDirectory() as directory:
        bench = Bench(is_cluster=is_cluster, memory=memory, journal=None if memory is None else Path(directory))
        bench.fill(1000, RUN)
        gc.collect()
        tracemalloc.start()
        bench.fill(count, run)
        gc.collect()
        used = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        assert bench.named().ready_count == count + 1000
        bench.close()
    return used / count


def memory(count: int) -> dict[str, Any]:
    """Octets a message beyond those of a broker alone."""
    found: dict[str, Any] = {}
    for where, limit in (("in memory", None), ("paged out", 1 << 20)):
        for run in (1, RUN):
            alone = octets(count, run, is_cluster=False, memory=limit)
            found[f"{where}, runs of {run}"] = octets(count, run, is_cluster=True, memory=limit) - alone
    return found


def recovery(count: int) -> dict[str, Any]:
    """Microseconds a message, and beside a broker alone."""
    found: dict[str, Any] = {}
    for run in (1, RUN):
        taken: dict[tuple[bool, str], float] = {}
        for is_cluster in (False, True):
            with tempfile.TemporaryDirectory() as directory:
                bench = Bench(is_cluster=is_cluster, memory=1 << 20, journal=Path(directory))
                bench.fill(count, run)
                for how in ("killed", "ended"):
                    some = []
                    for _ in range(3):
                        if how == "killed":
                            bench.crash()
                        else:
                            bench.checkpoint()
                            bench.close()
                        gc.collect()
                        begin = time.process_time()
                        bench.begin()
                        some.append((time.process_time() - begin) * 1e6 / count)
                        assert bench.named().ready_count == count
                    taken[is_cluster, how] = min(some)
                bench.close()
        for how in ("killed", "ended"):
            alone, cluster = taken[False, how], taken[True, how]
            found[f"{how}, runs of {run}"] = {"alone": alone, "cluster": cluster, "ratio": cluster / alone}
    return found


def is_beyond(results: dict[str, Any]) -> bool:
    """Whether a goal is missed by memory, the one that does not depend on the machine."""
    return any(value > OCTETS_MAX for value in results.get("memory", {}).values())


def main() -> int:
    """Measure, print, and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts: dict[str, Callable[[int], dict[str, Any]]] = {"cpu": cpu, "memory": memory, "recovery": recovery}
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--quick", action="store_true", help="seconds: the checks, no figures")
    parser.add_argument("--only", type=lambda text: text.split(","), default=list(parts))
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    gc.set_threshold(*THRESHOLDS)  # as the server does
    results: dict[str, Any] = {"machine": machine()}
    for name in options.only:
        results[name] = _rounded(parts[name](500 if options.quick else options.count))
        print(name, json.dumps(results[name]), flush=True)
    if options.out is not None:
        options.out.write_text(json.dumps(results, indent=1) + "\n")
    return int(not options.quick and is_beyond(results))


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(one) for key, one in value.items()}
    return round(value, 2) if isinstance(value, float) else value


if __name__ == "__main__":
    sys.exit(main())
