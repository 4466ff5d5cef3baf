"""Hours of mixed traffic in minutes: does the broker free everything that its clients made it allocate?

    python benchmarks/soak.py [--minutes 5 | --rounds 40] [--seed 1]
    python benchmarks/soak.py --quick
    python benchmarks/soak.py --attach PORT:PID             # a broker that is running already
    python benchmarks/soak.py --minutes 95 --pause 5 --long # with a journal, reloads and a probe

A round is every act of soak_clients.py, in an order drawn from the seed, in several threads at once. Between rounds
there are no clients, and memory and descriptors are measured. After the warm-up (caches fill, the allocator finds its
size) memory must stay on its plateau. Exit status 1: a client was not served as AMQP specifies, memory grew beyond
--growth-mb, or a descriptor, connection, queue, consumer, message, deadline, task or thread remains at the end.

With --long the broker has a journal and a configuration, which another one replaces (SIGHUP) before each round, and a
client publishes and consumes at a steady pace all the time: its latency in the first and in the last ten minutes is
printed, of the clock and of the broker's thread.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from brokers import LEVERET, LOOPBACK, BrokerFailed, Running, descriptor_count, is_running, rss_kb, started
from probe_client import Probe, latency_between, probing
from soak_clients import ACTS, Actor

THREADS = 4
WARM_UP_SHARE = 0.5  # of the rounds
QUICK_ROUNDS = 12
ROUNDS_WITHOUT_END = 1_000_000
SAMPLE_SECONDS = 0.1
SETTLE_SECONDS_MAX = 60.0  # beyond the handshake timeout of 10 s
SETTLE_POLL_SECONDS = 0.2
STATUS_SECONDS_MAX = 30.0
FAILURES_SHOWN = 5
#: With --long.
LONG = f"-m leveret serve --management off --data {{data}} --listen {LOOPBACK}:{{port}}"
PROBE_INTERVAL_NS = 20_000_000
TEN_MINUTES_NS = 600_000_000_000
CONFIGURATIONS = tuple(
    f'[[address-setting]]\nmatch = "soak.#"\nmax-delivery-attempts = {attempts}\n' for attempts in (10, 5, -1)
)
LEFT_WHEN_MORE = (
    "connections",
    "vhosts",
    "exchanges",
    "queues",
    "consumers",
    "ready",
    "unacked",
    "deadlines",
    "tasks",
    "threads",
)


@dataclass(slots=True)
class Soak:
    """Observations so far."""

    broker: Running
    seed: int
    counts: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    quiet_rss_mb: list[float] = field(default_factory=list)  # after each round, all clients gone
    peak_rss_mb: float = 0.0
    peak_descriptors: int = 0
    configuration: Path | None = None  # to be replaced before each round
    pause_s: float = 0.0  # after each round

    def rss_mb(self) -> float:
        """Resident memory now."""
        return rss_kb(self.broker.pid) * 1024 / 1_000_000


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; returns its exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, help="default 5, unless --rounds is given")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--growth-mb", type=float, default=4.0, help="allowed above the plateau of the warm-up")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--command", default=LEVERET, help="start the broker by this instead; {port} is filled in")
    parser.add_argument("--attach", metavar="PORT:PID", help="no broker is started: this one")
    parser.add_argument("--pause", type=float, default=0.0, help="seconds after each round")
    parser.add_argument("--long", action="store_true", help="journal, reloads, and a probe all the time")
    parser.add_argument("--quick", action="store_true", help="a few rounds, at most 20 s, and twice the growth allowed")
    options = parser.parse_args(arguments)
    if options.quick:
        options.rounds, options.growth_mb = QUICK_ROUNDS, 2 * options.growth_mb
    minutes = options.minutes or (ROUNDS_WITHOUT_END if options.rounds else 5.0)
    try:
        with tempfile.TemporaryDirectory() as directory:
            configuration = Path(directory) / "soak.toml"
            configuration.write_text(CONFIGURATIONS[0])
            if options.long:
                options.command = f"{shlex.quote(sys.executable)} {LONG} --config {shlex.quote(str(configuration))}"
            with _broker(options) as broker:
                soak = Soak(broker, options.seed, pause_s=options.pause)
                rounds = options.rounds or ROUNDS_WITHOUT_END
                if not options.long:
                    return run(soak, rounds, minutes, options.growth_mb)
                soak.configuration = configuration
                with probing(broker.port, broker.pid, confirms=False, interval_ns=PROBE_INTERVAL_NS) as probe:
                    begin_ns = time.monotonic_ns()
                    status = run(soak, rounds, minutes, options.growth_mb)
                    end_ns = time.monotonic_ns()
                _print_latency(probe, begin_ns, end_ns)
                return status
    except BrokerFailed as error:
        print(f"soak.py: {error}", file=sys.stderr)
        return 1


def _reload(soak: Soak, number: int) -> None:
    """The other configuration is in force from now on."""
    if soak.configuration is not None:
        new = soak.configuration.with_suffix(".new")
        new.write_text(CONFIGURATIONS[number % len(CONFIGURATIONS)])
        new.replace(soak.configuration)
        os.kill(soak.broker.pid, signal.SIGHUP)


def _print_latency(probe: Probe, begin_ns: int, end_ns: int) -> None:
    """Of the first ten minutes and of the last ten, or of halves if there are not so many."""
    part = min(TEN_MINUTES_NS, (end_ns - begin_ns) // 2)
    for what, samples in (("by the clock", probe.samples.deliveries), ("of the broker's thread", probe.samples.work)):
        first = latency_between(samples, begin_ns, begin_ns + part)
        last = latency_between(samples, end_ns - part, end_ns)
        ratio = last.p99 / first.p99 if first.p99 else 0.0
        print(
            f"latency {what}, first and last {part / 60e9:.1f} minutes: p50 {first.p50} and {last.p50} ms,"
            f" p99 {first.p99} and {last.p99} ms: {ratio:.2f}x ({first.count} and {last.count} messages)"
        )


@contextmanager
def _broker(options: argparse.Namespace) -> Iterator[Running]:
    if options.attach:
        port, _, pid = options.attach.partition(":")
        yield Running("attached", int(port), int(pid))
    else:
        with started(options.command) as broker:
            yield broker


def run(soak: Soak, rounds: int, minutes: float, growth_mb_max: float) -> int:
    """Rounds up to the given number or time; then the verdict."""
    begin = time.monotonic()
    before, descriptors_before = _status(soak.broker), descriptor_count(soak.broker.pid)
    print(f"before: {soak.rss_mb():.1f} MB, {descriptors_before} descriptors, {_shown(before)}", flush=True)
    for number in range(rounds):
        if time.monotonic() - begin > minutes * 60 and number:
            break
        _reload(soak, number)
        _round(soak, number)
        if not is_running(soak.broker.pid):
            print(f"FAILED: the broker ended in round {number + 1}", flush=True)
            return 1
        left = _settle(soak.broker, None, descriptors_before)
        soak.quiet_rss_mb.append(soak.rss_mb())
        print(
            f"round {number + 1}: {soak.quiet_rss_mb[-1]:.1f} MB (peak {soak.peak_rss_mb:.1f}), descriptors "
            f"{descriptors_before}{_more(left)} (peak {soak.peak_descriptors}), {time.monotonic() - begin:.0f} s",
            flush=True,
        )
        time.sleep(soak.pause_s)
    left = _settle(soak.broker, before, descriptors_before)
    elapsed = time.monotonic() - begin
    print(f"after {elapsed:.0f} s: {soak.rss_mb():.1f} MB, {_shown(_status(soak.broker))}")
    print("served: " + ", ".join(f"{count:,} {what}" for what, count in sorted(soak.counts.items())))
    return _verdict(soak, left, growth_mb_max)


def _verdict(soak: Soak, left: Counter[str], growth_mb_max: float) -> int:
    faults = [f"left at the end: {count} {what}" for what, count in left.items()]
    warm_up = max(int(len(soak.quiet_rss_mb) * WARM_UP_SHARE), 1)
    plateau, end = max(soak.quiet_rss_mb[:warm_up]), soak.rss_mb()
    growth = end - plateau
    print(f"memory: plateau {plateau:.1f} MB (of {warm_up} rounds), end {end:.1f} MB, growth {growth:+.1f}", end="")
    print(f" (at most {growth_mb_max:g})")
    if growth > growth_mb_max:
        faults.append(f"memory grew by {growth:.1f} MB")
    if soak.failures:
        faults.append(f"{len(soak.failures)} acts failed")
        print("\n".join(soak.failures[:FAILURES_SHOWN]))
    for fault in faults:
        print(f"FAILED: {fault}")
    return int(bool(faults))


def _round(soak: Soak, number: int) -> None:
    """All acts in every thread, with the broker sampled meanwhile."""
    actors = [
        Actor(soak.broker.port, random.Random(f"{soak.seed}/{number}/{index}"), f"{number}.{index}")
        for index in range(THREADS)
    ]
    threads = [threading.Thread(target=_act_all, args=(actor, soak.failures)) for actor in actors]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads) and is_running(soak.broker.pid):
        soak.peak_rss_mb = max(soak.peak_rss_mb, soak.rss_mb())
        soak.peak_descriptors = max(soak.peak_descriptors, descriptor_count(soak.broker.pid))
        time.sleep(SAMPLE_SECONDS)
    for thread, actor in zip(threads, actors):
        thread.join()
        soak.counts.update(actor.counts)


def _act_all(actor: Actor, failures: list[str]) -> None:
    """Every act once. One that fails is reported, and the others continue."""
    try:
        for act in actor.chance.sample(ACTS, len(ACTS)):
            try:
                act(actor)
                actor.counts["acts"] += 1
            except Exception:  # whatever a client library raises is the finding
                failures.append(f"{act.__name__} in {actor.name}: {traceback.format_exc(limit=-3)}")
    finally:
        actor.drop_held()


def _settle(broker: Running, before: dict[str, int] | None, descriptors_before: int) -> Counter[str]:
    """Wait until the broker is back in its former state; what still remains after SETTLE_SECONDS_MAX."""
    deadline = time.monotonic() + SETTLE_SECONDS_MAX
    while True:
        now = _status(broker) if before else {}
        left = Counter({what: now[what] - count for what, count in (before or {}).items() if now.get(what, 0) > count})
        more = descriptor_count(broker.pid) - descriptors_before
        if more > 0:
            left["descriptors"] = more
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(SETTLE_POLL_SECONDS)


def _status(broker: Running) -> dict[str, int]:
    """The broker's counts from `leveret ctl status`; empty for other brokers."""
    command = [sys.executable, "-m", "leveret", "ctl", "--url", broker.url, "status", "--json"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=STATUS_SECONDS_MAX)
        status = json.loads(done.stdout)
    except (subprocess.TimeoutExpired, ValueError):
        return {}
    counts = {name: int(status[name]) for name in LEFT_WHEN_MORE if name in status}
    return counts | {"threads": len(os.listdir(f"/proc/{broker.pid}/task"))}


def _shown(status: dict[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in status.items()) or "no status"


def _more(left: Counter[str]) -> str:
    return f" + {left['descriptors']}" if left["descriptors"] else ""


if __name__ == "__main__":
    sys.exit(main())
