"""Leased queues beside plain ones: rate, memory, ends of leases, recovery, browsing (docs/leases.md).

    python benchmarks/leased.py [--quick] [--rounds 5] [--only rate,memory,ends,recovery,browse] [--out FILE]

- `rate`: the loads S2 and S4 on a plain and on a leased queue of one server, in turns. Goal: 0.5x.
- `memory`: octets that a message takes ready, with a priority, and leased, beside a plain queue, by tracemalloc.
  Goals: 1, 16 and 300.
- `ends`: how late leases end while very many are out, each of which ends and begins again. Goal: 50 ms.
- `recovery`: from the start of a server until it answers, with so many messages in a leased and in a plain queue.
  Goal: 5 s for a million.
- `browse`: the longest turn while a consumer looks through a queue. Goal: 5 ms.

Exit status 1: a check of the load generator failed, a lease ended early, or memory is beyond its bound; never a time.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import shlex
import signal
import statistics
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import generator
from brokers import LEVERET, BrokerFailed, machine, rss_kb, started
from generator import Figures
from long_turns import Stage, method, publish
from pamqp import commands
from scenarios import SCENARIOS

from leveret.engine import (
    MS,
    NATIVE,
    Broker,
    DeliveredEvent,
    Envelope,
    Event,
    Field,
    LeaseEndedEvent,
    Session,
    User,
    encode_header,
)
from leveret.engine.messages.field_table import FieldTable
from leveret.engine.stores import topic_log
from leveret.serving.collector import THRESHOLDS
from leveret.serving.runtime import SystemClock

LEASED = {"x-queue-type": "amps", "x-max-backlog-per-consumer": 1 << 40}
RUN_SECONDS = 1.3
#: Octets of a message beside that of a plain queue: ready, ready with a priority, and for its lease.
READY_MAX, RANKED_MAX, LEASE_MAX = 1.0, 16.0, 300.0
BATCH = 100


# -- rate -------------------------------------------------------------------------------------------------------------


def rate(*, rounds: int, quick: bool) -> dict[str, Any]:
    """Ratios of rate and of CPU, leased to plain: medians of the rounds' own, with the lowest and the highest."""
    results: dict[str, Any] = {}
    with started(LEVERET) as broker:
        for name in ("S2", "S4"):
            plain = SCENARIOS[name]
            kinds = {"plain": plain, "leased": replace(plain, flags=(*plain.flags, "--leased"))}
            count = 2000 if quick else plain.count_first
            if not quick:
                warm = generator.run(plain, broker.port, broker.pid, count=count)
                count = int(RUN_SECONDS * warm.rate)
            runs: dict[str, list[Figures]] = {kind: [] for kind in kinds}
            for _ in range(rounds):
                for kind, scenario in kinds.items():
                    runs[kind].append(generator.run(scenario, broker.port, broker.pid, count=count))
            pairs = list(zip(runs["leased"], runs["plain"]))
            results[name] = {
                "rate": _spread([leased.rate / plain.rate for leased, plain in pairs]),
                **{f"{kind}_rate": statistics.median(one.rate for one in some) for kind, some in runs.items()},
            }
            if not quick:  # the clock of processes counts in steps of 10 ms
                cpu = [leased.cpu_s_per_million / plain.cpu_s_per_million for leased, plain in pairs]
                results[name]["cpu"] = _spread(cpu)
                for kind, some in runs.items():
                    results[name][f"{kind}_cpu"] = statistics.median(one.cpu_s_per_million for one in some)
    return results


def _spread(values: list[float]) -> dict[str, float]:
    return {"median": statistics.median(values), "low": min(values), "high": max(values)}


# -- memory -----------------------------------------------------------------------------------------------------------


class Bench:
    """A broker in this process, and a queue `q`."""

    def __init__(self, arguments: dict[str, Any]) -> None:
        self.broker = Broker(SystemClock())
        self.vhost = self.broker.virtual_hosts["/"]
        table: FieldTable = {
            key: Field("S", value.encode()) if isinstance(value, str) else Field("l", value)
            for key, value in arguments.items()
        }
        self.queue = self.vhost.queues.declare("q", client=None, durable=True, arguments=table)
        self.client = self.broker.connections.open("/", User("u"), name="c", flush=self.read)
        self.session: Session = self.client.open_session()
        self.first_id = 1

    def read(self) -> None:
        """Drop what goes out."""
        self.client.take_outbox()
        self.client.drained()

    def fill(self, count: int) -> None:
        """Messages of 16 octets."""
        envelope, header = Envelope("", "q"), encode_header(16)
        for start in range(0, count, BATCH):
            contents = [NATIVE.join(header, b"%016d" % number) for number in range(start, start + BATCH)]
            self.queue.enqueue(self.first_id, envelope, contents)
            self.first_id += BATCH
        self.settle()

    def consume(self) -> None:
        """As many as there are, without acknowledging any."""
        arguments: FieldTable = {} if self.queue.rules.extra is None else {"x-max-backlog": Field("l", 1 << 40)}
        self.session.consume(self.queue, "t", no_ack=False, exclusive=False, arguments=arguments)
        self.settle()

    def settle(self) -> None:
        """Turns until nothing is left to do."""
        while self.broker.end_turn():
            pass
        self.read()


def octets(arguments: dict[str, Any], count: int) -> tuple[float, float]:
    """What a message takes: ready, and what it takes more when it is out."""
    bench = Bench(arguments)
    tracemalloc.start()
    gc.collect()
    begin = tracemalloc.get_traced_memory()[0]
    bench.fill(count)
    gc.collect()
    ready = tracemalloc.get_traced_memory()[0]
    bench.consume()
    gc.collect()
    out = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert len(bench.session.unacked) == count, f"{len(bench.session.unacked)} of {count} are out"
    return (ready - begin) / count, (out - ready) / count


def memory(*, rounds: int, quick: bool) -> dict[str, Any]:
    """Octets a message, beyond those in a plain queue, and of a lease, by itself and beyond a plain delivery.

    Without the log that a broker without a journal has in memory: at most 2 MiB, however many messages there are.
    """
    topic_log.MEMORY_OCTETS = 0
    count = 5_000 if quick else 1_000_000
    plain_ready, plain_out = octets({}, count)
    ready, lease = octets({**LEASED, "x-lease-period": 60_000}, count)
    ranked, ranked_lease = octets({**LEASED, "x-lease-period": 60_000, "x-priority-expr": "BOOKMARK * 1000"}, count)
    return {
        "ready": ready - plain_ready,
        "ready with a priority": ranked - plain_ready,
        "lease": lease,
        "lease with a priority": ranked_lease,
        "lease beyond a delivery": lease - plain_out,
    }


def is_beyond(found: dict[str, Any]) -> bool:
    """Whether more memory is used than the goals allow."""
    leases = max(found["lease"], found["lease with a priority"])
    return bool(found["ready"] > READY_MAX or found["ready with a priority"] > RANKED_MAX or leases > LEASE_MAX)


# -- ends of leases ---------------------------------------------------------------------------------------------------


def ends(*, rounds: int, quick: bool) -> dict[str, Any]:
    """Milliseconds from when a lease should end until it does, and the CPU that all of it takes.

    Leases begin evenly over a period, so that as many end each second; each message is leased again at once.
    """
    count, period_ms, periods = (2000, 300, 1) if quick else (100_000, 10_000, 2)
    bench = Bench({**LEASED, "x-lease-period": period_ms})
    clock, broker = bench.broker.context.clock, bench.broker
    due_ns: dict[int, int] = {}
    late: list[int] = []

    def heard(event: Event) -> None:
        now_ns = clock.monotonic_ns()
        if isinstance(event, LeaseEndedEvent):
            late.extend(now_ns - due_ns.pop(id_) for id_ in event.messages)
        elif isinstance(event, DeliveredEvent):
            due_ns.update((id_, now_ns + period_ms * MS) for id_ in event.messages)

    bench.consume()
    broker.context.listeners.append(heard)
    envelope, content = Envelope("", "q"), NATIVE.join(encode_header(16), bytes(16))
    gc.freeze()
    begin_ns, cpu, first_id = clock.monotonic_ns(), time.process_time(), 1
    stop_ns = begin_ns + (periods + 1) * period_ms * MS
    while (now_ns := clock.monotonic_ns()) < stop_ns:
        wanted = min(count, (now_ns - begin_ns) * count // (period_ms * MS))
        if first_id <= wanted:
            bench.queue.enqueue(first_id, envelope, [content] * (wanted + 1 - first_id))
            first_id = wanted + 1
        next_ns = broker.next_deadline_ns()
        if not broker.end_turn():
            pause_ns = min(10 * MS, max(0, (next_ns or stop_ns) - clock.monotonic_ns()))
            if pause_ns:
                time.sleep(pause_ns / 1e9)
        broker.advance()
        bench.read()
    assert min(late) >= 0, f"a lease ended {-min(late)} ns early"
    late.sort()
    return {
        "live": count,
        "ends": len(late),
        "late_ms_median": late[len(late) // 2] / MS,
        "late_ms_max": late[-1] / MS,
        "late_ms_99.9%": late[len(late) * 999 // 1000] / MS,
        "cpu_us_an_end": (time.process_time() - cpu) * 1e6 / len(late),
    }


def together(count: int, period_ms: int = 1000) -> dict[str, float]:
    """All leases end at one instant: the longest turn (milliseconds of CPU), and all of them."""
    bench = Bench({**LEASED, "x-lease-period": period_ms})
    bench.fill(count)
    bench.consume()
    gc.collect()
    gc.freeze()
    time.sleep((period_ms + 100) / 1000)
    turns: list[float] = []
    bench.broker.advance()
    is_more = True
    while is_more:
        start = time.thread_time()
        is_more = bench.broker.end_turn()
        turns.append(time.thread_time() - start)
        bench.read()
    return {"ended_together": count, "longest_turn_ms": max(turns) * 1000, "all_ms": sum(turns) * 1000}


# -- recovery ---------------------------------------------------------------------------------------------------------


def recovery(*, rounds: int, quick: bool) -> dict[str, Any]:
    """Seconds from the start of a server to its first answer, after it was stopped, or killed; its memory then."""
    count = 20_000 if quick else 1_000_000
    results: dict[str, Any] = {"count": count}
    for kind, flags in {"plain": (), "leased": ("--leased",)}.items():
        with tempfile.TemporaryDirectory() as directory:
            command = f"{shlex.quote(sys.executable)} -m leveret serve --management off --data {directory}/data"
            command += " --listen 127.0.0.1:{port}"
            name = [
                "--queue-name",
                "tracked",
                "--persistent",
                "--durable",
                "--count",
                str(count),
                "--keep",
                "--prefetch",
                "1000",
            ]
            name += flags
            with suppress(BrokerFailed), started(command) as broker:
                where = ["--port", str(broker.port), "--pid", str(broker.pid)]
                generator.call(["--mode", "publish", "--size", "64", "--confirm", "2000", *name, *where])
                os.kill(broker.pid, signal.SIGKILL)
                os.waitid(os.P_PID, broker.pid, os.WEXITED | os.WNOWAIT)
            found: list[float] = []
            for turn in range(rounds + 1):
                begin = time.monotonic()
                with started(command) as broker:
                    found.append(time.monotonic() - begin)
                    results[f"{kind}_rss_mib"] = rss_kb(broker.pid) / 1024
                    if turn == rounds:
                        where = ["--port", str(broker.port), "--pid", str(broker.pid)]
                        generator.call(["--mode", "consume", "--size", "64", "--ack", "100", *name, *where])
            results[f"{kind}_after_kill_s"], results[f"{kind}_after_stop_s"] = found[0], _spread(found[1:])
    return results


# -- browse -----------------------------------------------------------------------------------------------------------


def browse(*, rounds: int, quick: bool) -> dict[str, Any]:
    """Milliseconds of CPU: the longest turn, and all of it."""
    count = 5000 if quick else 100_000
    longest: list[float] = []
    whole: list[float] = []
    for _ in range(rounds):
        stage = Stage(None)
        session = stage.connect()
        arguments: Any = {"x-queue-type": "amps"}
        stage.send(session, method(1, commands.Queue.Declare(0, "q", durable=True, arguments=arguments)))
        stage.send(session, publish("q", bytes(64)) * count)
        queue = stage.broker.virtual_hosts["/"].queues["q"]
        assert queue.ready_count == count
        with stage.measured():
            stage.send(session, method(1, commands.Basic.Consume(0, "q", "b", arguments={"x-browse": True})))
        assert queue.ready_count == count and not queue.consumers, "the browser has not seen all of it"
        longest.append(max(stage.turns) * 1000)
        whole.append(sum(stage.turns) * 1000)
    return {"count": count, "longest_turn_ms": _spread(longest), "all_ms": _spread(whole)}


def main() -> int:
    """Measure, print, and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts: dict[str, Callable[..., dict[str, Any]]] = {
        "rate": rate, "memory": memory, "ends": ends, "recovery": recovery, "browse": browse
    }  # fmt: skip
    parser.add_argument("--quick", action="store_true", help="seconds: the checks, no figures")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", type=lambda text: text.split(","), default=list(parts))
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    generator.build()
    gc.set_threshold(*THRESHOLDS)  # as the server does
    results: dict[str, Any] = {"machine": machine()}
    for name in options.only:
        results[name] = parts[name](rounds=1 if options.quick else options.rounds, quick=options.quick)
        if name == "ends":
            results["together"] = together(*((2000, 100) if options.quick else (100_000, 1000)))
            print("together", json.dumps(_rounded(results["together"])), flush=True)
        print(name, json.dumps(_rounded(results[name])), flush=True)
    if options.out is not None:
        options.out.write_text(json.dumps(_rounded(results), indent=1) + "\n")
    return int("memory" in results and is_beyond(results["memory"]))


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(one) for key, one in value.items()}
    return round(value, 2) if isinstance(value, float) else value


if __name__ == "__main__":
    sys.exit(main())
