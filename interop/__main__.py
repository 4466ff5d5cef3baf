"""Scenarios by real clients against a broker.

    python -m leveret.interop --url amqp://guest:guest@localhost:5672/ [--client pika,amqplib] [--only 'queue-*']
    python -m leveret.interop --broker leveret,rabbitmq,garagemq --scorecard benchmarks/results/scorecard
    python -m leveret.interop --broker leveret --leases --scorecard benchmarks/results/lease-clients

With --url the broker is one that is already running; with --broker a fresh one is started here. Clients whose toolchain
is not on this machine are skipped, and the summary says which and why. Exit code 1: a scenario failed (with
--scorecard: on RabbitMQ or Leveret). 2: it could not be run.
"""

from __future__ import annotations

import argparse
import fnmatch
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, nullcontext
from pathlib import Path

from .brokers.broker import Broker, external
from .brokers.fresh import FRESH
from .brokers.processes import PeerFailed, unwind_on_sigterm
from .running import scorecard
from .running.driven_clients import driven_clients
from .running.run import FAILED, LACKS, NOT_RUN, PASSED, Result
from .running.scenario import FOLDER, LEASES, Feature, Scenario, ScenarioError, read_features
from .running.scorecard import Column, has_failed, write
from .running.suite import Driven, Suite
from .running.toolchains import CLIENTS
from .wire.handshake import NoBroker

FRAIL_AT_ONCE = 6  # maximum brokers at a time, if each client has its own


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    unwind_on_sigterm()
    try:
        features = read_features(LEASES if options.leases else FOLDER)
        scenarios = _chosen(features, options.only)
        if options.list:
            for scenario in scenarios:
                print(f"{scenario.name}: {scenario.says}")
            return 0
        given, names = _given(options), _names(options)  # checked before drivers are built, which takes time
        with ExitStack() as stack:
            wanted = options.client.split(",") if options.client else list(CLIENTS)
            clients, skipped = driven_clients(wanted, options.work, stack)
            columns = []
            absent: dict[str, str] = {}
            for name in names:
                try:
                    with nullcontext(given) if given else FRESH[name]() as broker:
                        columns.append(_column(broker, clients, skipped, scenarios, options))
                except (FileNotFoundError, PeerFailed) as error:
                    absent[name] = str(error)
        if not columns:
            raise NoBroker("; ".join(f"{name}: {why}" for name, why in absent.items()))
    except (ScenarioError, NoBroker, ValueError) as error:
        print(f"leveret.interop: {error}", file=sys.stderr)
        return 2
    if options.scorecard:
        write(options.scorecard, features, columns, scorecard.LEASES if options.leases else scorecard.SCENARIOS)
    _summary(columns, absent | skipped)
    return 1 if any(has_failed(column, on_scorecard=bool(options.scorecard)) for column in columns) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m leveret.interop",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    target = parser.add_mutually_exclusive_group(required=True)
    target.add_argument("--url", help="a running broker")
    target.add_argument("--broker", help=f"fresh ones, by comma: {', '.join(FRESH)}")
    target.add_argument("--list", action="store_true", help="list the scenarios")
    parser.add_argument("--client", help=f"by comma: {', '.join(CLIENTS)} (default: all)")
    parser.add_argument("--only", action="append", default=[], metavar="GLOB", help="names of scenarios; repeatable")
    parser.add_argument("--leases", action="store_true", help="scenarios of leased queues instead, for Leveret alone")
    parser.add_argument("--work", type=Path, default=Path(".peers/drivers"), help="where drivers are built")
    parser.add_argument("--seconds", type=float, default=15.0, help="time limit of an answer (default: 15)")
    parser.add_argument("--scorecard", type=Path, metavar="STEM", help="write STEM.md and STEM.json")
    parser.add_argument("--quiet", action="store_true", help="only failures and the summary")
    parser.add_argument("--tls-port", type=int, default=0, help="with --url: its port with TLS")
    parser.add_argument("--ca", type=Path, help="with --tls-port: the authority of its certificate (for localhost)")
    parser.add_argument("--restart", default="", metavar="COMMAND", help="with --url: restarts it, ready at the end")
    parser.add_argument("--alarm-on", default="", metavar="COMMAND", help="with --url: makes it block publishers")
    parser.add_argument("--alarm-off", default="", metavar="COMMAND", help="with --url: ends that")
    parser.add_argument("--disk-full", default="", metavar="COMMAND", help="with --url: makes its disk seem full")
    parser.add_argument("--disk-free", default="", metavar="COMMAND", help="with --url: ends that")
    return parser


def _chosen(features: list[Feature], globs: list[str]) -> list[Scenario]:
    """The scenarios whose names match. Raises: ScenarioError: there is none."""
    chosen = [
        scenario
        for feature in features
        for scenario in feature.scenarios
        if not globs or any(fnmatch.fnmatch(scenario.name, glob) for glob in globs)
    ]
    if not chosen:
        raise ScenarioError(f"no scenario is called {' or '.join(globs)} (--list names them)")
    return chosen


def _names(options: argparse.Namespace) -> list[str]:
    """The names of the brokers. Raises: ValueError: there is no such broker."""
    if options.url:
        return [options.url]
    names = str(options.broker).split(",")
    unknown = [name for name in names if name not in FRESH]
    if unknown:
        raise ValueError(f"no such broker: {', '.join(unknown)} (there are {', '.join(FRESH)})")
    return names


def _given(options: argparse.Namespace) -> Broker | None:
    """The broker of --url, if it is given. Raises: ValueError, NoBroker."""
    if not options.url:
        return None
    commands = {"restart": options.restart, "crash": options.restart}
    commands |= {"alarm-on": options.alarm_on, "alarm-off": options.alarm_off}
    commands |= {"disk-full": options.disk_full, "disk-free": options.disk_free}
    return external(options.url, options.tls_port, options.ca, commands)


def _column(
    broker: Broker,
    clients: dict[str, Driven],
    skipped: dict[str, str],
    scenarios: list[Scenario],
    options: argparse.Namespace,
) -> Column:
    def tell(result: Result) -> None:
        if result.verdict == FAILED or not options.quiet:
            who, why = " -> ".join(result.clients), f": {result.reason}" if result.reason else ""
            print(f"{broker.name} {result.scenario} {who}: {result.verdict}{why}", flush=True)

    print(f"{broker.name} {broker.version} with {', '.join(clients)}", flush=True)
    hellos = [client.hello for client in clients.values()]
    if not broker.is_frail:
        results = Suite(broker, clients, options.seconds, tell).run(scenarios)
        return Column(broker.name, broker.version, hellos, dict(skipped), results)

    def alone(name: str) -> list[Result]:
        with FRESH[broker.name]() as one:
            return Suite(one, {name: clients[name]}, options.seconds, tell).run(scenarios)

    with ThreadPoolExecutor(FRAIL_AT_ONCE) as pool:
        results = [result for results in pool.map(alone, clients) for result in results]
    remark = "each client has a broker of its own, since one that hangs for one would hang for all; pairs: with itself"
    return Column(broker.name, broker.version, hellos, dict(skipped), results, remark=remark)


def _summary(columns: list[Column], skipped: dict[str, str]) -> None:
    for column in columns:
        counts = {
            verdict: sum(result.verdict == verdict for result in column.results)
            for verdict in (PASSED, FAILED, LACKS, NOT_RUN)
        }
        print(
            f"{column.broker} {column.version}: {counts[PASSED]} passed, {counts[FAILED]} failed, "
            f"{counts[LACKS]} that the client has no call for, {counts[NOT_RUN]} not run"
        )
        for reason in sorted({result.reason for result in column.results if result.verdict == NOT_RUN}):
            print(f"  not run: {reason}")
    for name, why in skipped.items():
        print(f"skipped {name}: {why}")


if __name__ == "__main__":
    sys.exit(main())
