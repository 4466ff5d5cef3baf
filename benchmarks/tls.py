"""The cost of TLS: the same loads over TLS to RabbitMQ and to leveret, and without TLS to leveret.

    python benchmarks/tls.py [--rounds 3] [--only S1-1k,S2] [--no-rabbitmq]

They take turns as in compare.py; lines show medians of the rounds, ratios are computed per round. Needs OpenSSL's
headers when the generator is built, and the openssl command, which makes an ECDSA certificate for a day. Exit status 1:
a check of the generator failed.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import generator
from brokers import LEVERET, LOOPBACK, BrokerFailed, free_port, machine, started
from generator import CheckFailed, Figures
from scenarios import SCENARIOS, Scenario

SECONDS = 1.3
COUNT_MAX_GROWTH = 20.0
CALIBRATIONS = 3
SCENARIOS_SHOWN = ("S1-1k", "S2", "S8")


@dataclass(frozen=True, slots=True)
class Target:
    """The target of a load, over TLS or not; `pid`: the process whose CPU is measured."""

    name: str
    port: int
    pid: int
    is_tls: bool


def main() -> int:
    """Run the program; returns its exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", type=lambda text: text.split(","), default=list(SCENARIOS_SHOWN))
    parser.add_argument("--no-rabbitmq", action="store_true")
    options = parser.parse_args()
    try:
        generator.build()
        with ExitStack() as stack:
            targets = _start(stack, with_rabbitmq=not options.no_rabbitmq)
            print(machine())
            for name in options.only:
                _show(name, _measure(SCENARIOS[name], targets, options.rounds))
    except (BrokerFailed, CheckFailed, FileNotFoundError, subprocess.CalledProcessError) as error:
        print(f"FAILED {error}", file=sys.stderr)
        return 1
    return 0


def _start(stack: ExitStack, *, with_rabbitmq: bool) -> list[Target]:
    directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    certificate, key = directory / "server.pem", directory / "server.key"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "1"]
        + ["-subj", "/CN=localhost", "-keyout", str(key), "-out", str(certificate)],
        check=True,
        stderr=subprocess.DEVNULL,
    )
    targets = []
    if with_rabbitmq:
        from leveret.interop.brokers.peers import rabbitmq

        port = free_port()
        config = (
            f"listeners.ssl.1 = {LOOPBACK}:{port}\nssl_options.cacertfile = {certificate}\n"
            f"ssl_options.certfile = {certificate}\nssl_options.keyfile = {key}\nssl_options.verify = verify_none\n"
        )
        peer = stack.enter_context(rabbitmq(config=config))
        targets.append(Target("RabbitMQ, TLS", port, peer.pid, True))
    port = free_port()
    (directory / "leveret.toml").write_text(f"[tls]\ncertificate = {str(certificate)!r}\nkey = {str(key)!r}\n")
    command = f"{LEVERET} --listen amqps://{LOOPBACK}:{port} --config {directory / 'leveret.toml'}"
    broker = stack.enter_context(started(command))
    targets.append(Target("leveret, TLS", port, broker.pid, True))
    targets.append(Target("leveret, plain", broker.port, broker.pid, False))
    return targets


def _measure(scenario: Scenario, targets: list[Target], rounds: int) -> dict[str, list[Figures]]:
    counts = {target: _calibrate(scenario, target) for target in targets}
    runs: dict[str, list[Figures]] = {target.name: [] for target in targets}
    for _ in range(rounds):
        for target in targets:
            runs[target.name].append(_run(scenario, target, counts[target]))
    return runs


def _run(scenario: Scenario, target: Target, count: int) -> Figures:
    flags = (*scenario.flags, "--tls") if target.is_tls else scenario.flags
    return generator.run(replace(scenario, flags=flags), target.port, target.pid, count=count)


def _calibrate(scenario: Scenario, target: Target) -> int:
    """The number of messages that take about SECONDS; also the warm-up."""
    count = scenario.count_first
    for _ in range(CALIBRATIONS):
        elapsed = _run(scenario, target, count).elapsed_s
        count = max(1, int(count * min(SECONDS / max(elapsed, 1e-4), COUNT_MAX_GROWTH)))
    return count


def _show(scenario: str, runs: dict[str, list[Figures]]) -> None:
    ours = runs["leveret, TLS"]
    for name, figures in runs.items():
        rate = statistics.median(one.rate for one in figures)
        cpu = statistics.median(one.cpu_s_per_million for one in figures)
        line = f"{scenario:6} {name:15} {rate:9,.0f}/s {cpu:8.2f} us CPU"
        if figures is not ours:
            rates = sorted(mine.rate / other.rate for mine, other in zip(ours, figures))
            cpus = sorted(mine.cpu_s_per_million / other.cpu_s_per_million for mine, other in zip(ours, figures))
            line += f"   leveret over TLS to it: rate {_spread(rates)}, CPU {_spread(cpus)}"
        print(line, flush=True)


def _spread(ratios: list[float]) -> str:
    return f"{statistics.median(ratios):.2f}x ({ratios[0]:.2f} to {ratios[-1]:.2f})"


if __name__ == "__main__":
    sys.exit(main())
