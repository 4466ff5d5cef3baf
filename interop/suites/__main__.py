"""Run the clients' own test suites against a fresh RabbitMQ and a fresh leveret, and compare test by test.

    python -m leveret.interop.suites [--only aio-pika,kombu] [--broker leveret|rabbitmq|both] [-k EXPRESSION]
                                      [--follower]

A suite is in its client's sdist. It is installed once, in its own environment in the work directory, and run by the
same command on both brokers. Results are stored there: with `--broker leveret` they are compared with RabbitMQ's last
full run. With `--follower` leveret is a cluster of three nodes, and the suite is connected to a follower. Exit code 1:
a test passes on RabbitMQ and not on leveret, and `waiting.toml` does not explain it. 2: a suite could not be run.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from ..brokers.follower import leveret_follower
from ..brokers.peers import Peer, leveret, rabbitmq
from ..brokers.processes import PeerFailed, run_limited
from ..running.foreign import BROKERS, Environment, parse, parser
from ..wire.loopback import LOOPBACK
from .comparison import WAITING_FILE, Comparison, SuiteRun, compare, read_junit, read_known, render
from .pinned import PYTEST, SUITES, Suite

PLUGIN = Path(__file__).with_name("client_plugin.py")
GRACE_SECONDS = 30  # extra time for a suite to write its results


@dataclass(frozen=True, slots=True)
class Installed:
    """An installed suite: the Python of its environment, and its sources."""

    python: Path
    sources: Path


def main(arguments: Sequence[str] | None = None) -> int:
    made = parser("suites", __doc__ or "", SUITES, ".peers/clients", "report.md")
    made.add_argument("-k", default="", help="only the tests which pytest selects by this; prints their output")
    options, brokers = parse(made, arguments)
    work, waiting = options.work.resolve(), read_known(WAITING_FILE, '"test id" = "feature"')
    comparisons = []
    for name in options.only or SUITES:
        try:
            comparisons.append(_compare_suite(SUITES[name], brokers, work, options, waiting.get(name, {})))
        except (PeerFailed, subprocess.CalledProcessError) as error:
            print(f"{name} could not be run: {error}", file=sys.stderr)
            return 2
    report = render(comparisons)
    print(report)
    (options.out or work / "report.md").write_text(report)
    return 1 if any(comparison.unexplained for comparison in comparisons) else 0


def _compare_suite(
    suite: Suite, brokers: Sequence[str], work: Path, options: argparse.Namespace, waiting: dict[str, str]
) -> Comparison:
    """Run a suite on the requested brokers one after the other. RabbitMQ's last full run stands in for one now."""
    installed = install(suite, work)
    keyword, kept = options.k, work / "results"
    runs: dict[str, SuiteRun | None] = {}
    for broker in BROKERS:
        if broker in brokers:
            print(f"{suite.name} {suite.version} on {broker} ...", end=" ", flush=True)
            place = kept / "selected" if keyword else kept
            is_follower = options.follower and broker == "leveret"
            run = run_suite(
                suite, installed, broker, place / "follower" if is_follower else place, keyword, is_follower=is_follower
            )
            print(run.figures(), flush=True)
            runs[broker] = run
        else:
            earlier = kept / f"{suite.name}-{broker}.xml"
            runs[broker] = read_junit(earlier) if earlier.exists() else None
    if "leveret" not in brokers:
        runs["leveret"] = None  # without a run of leveret now, there is nothing to compare
    return compare(suite.name, runs["rabbitmq"], runs["leveret"], waiting, partial=bool(keyword))


def install(suite: Suite, work: Path) -> Installed:
    """Fetch an sdist, unpack it and install it with the requirements of its tests, unless it is installed.

    Raises: subprocess.CalledProcessError: pip failed (its output is on stderr).
    """
    requirement = f"{suite.name}=={suite.version} --hash=sha256:{suite.sha256}\n"
    environment = Environment(work / suite.name, requirement, *suite.requires, *PYTEST)
    home = environment.home
    installed = Installed(environment.python, home / "sources")
    if environment.is_made:
        return installed
    environment.begin(f"{suite.name} {suite.version}")
    (home / "download").mkdir()
    (home / "requirement").write_text(requirement)
    # Only this package from source: with `--no-binary :all:` pip would also build the build tools from source.
    download = ["download", "--no-deps", "--no-binary", suite.name, "--require-hashes"]
    environment.pip(*download, "--dest", home / "download", "--requirement", home / "requirement")
    (sdist,) = (home / "download").iterdir()
    shutil.unpack_archive(sdist, home / "unpacked")
    (unpacked,) = (home / "unpacked").iterdir()
    unpacked.rename(installed.sources)
    environment.pip("install", "--use-pep517", sdist, *suite.requires, *PYTEST)
    environment.finish()
    return installed


def run_suite(
    suite: Suite, installed: Installed, broker: str, results: Path, keyword: str = "", *, is_follower: bool = False
) -> SuiteRun:
    """Run a suite on a fresh broker. Its output and the broker's are stored in `results`. `is_follower`: of a cluster.

    pytest-timeout ends a test that hangs. Fixtures and reports are not in its time: it would end pytest itself if a
    report came late. A suite that exceeds its time ends early, without the other tests.
    """
    results.mkdir(parents=True, exist_ok=True)
    stem = f"{suite.name}-{broker}"
    junit, log = results / f"{stem}.xml", results / f"{stem}.log"
    for file in (junit, log):
        file.unlink(missing_ok=True)
    command = [
        *(installed.python, "-m", "pytest", "-p", PLUGIN.stem, "-p", "no:cacheprovider", "-o", "log_cli=false"),
        *("--tb=short", "-rfEs", "-W", "ignore", f"--junitxml={junit}"),
        *(f"--timeout={suite.test_seconds_max}", "-o", "timeout_func_only=true"),
        *(("-k", keyword) if keyword else ()),
        *suite.arguments,
    ]
    with _broker(broker, is_follower) as peer:
        plugins = peer.directory / "plugin"  # so that nothing else of Leveret can be imported
        plugins.mkdir()
        shutil.copy(PLUGIN, plugins)
        run_limited(
            command,
            _environment(suite, peer, plugins),
            log,
            installed.sources,
            suite.suite_seconds_max + 2 * suite.test_seconds_max + GRACE_SECONDS,
        )
        shutil.copy(peer.log, results / f"{stem}-broker.log")
    if keyword:
        print("", log.read_text(errors="replace"), sep="\n")
    return read_junit(junit)


def _broker(name: str, is_follower: bool) -> AbstractContextManager[Peer]:
    if name == "rabbitmq":
        return rabbitmq()
    return leveret_follower() if is_follower else leveret()


def _environment(suite: Suite, peer: Peer, plugins: Path) -> dict[str, str]:
    """The environment of a suite: the variables for its broker, and our search path."""
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(peer.directory),
        "PYTHONPATH": str(plugins),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PEER_PORT": str(peer.port),
        "PEER_SECONDS": str(suite.suite_seconds_max),
        "PEER_DESELECT": "\n".join(suite.deselect),
        "PEER_STAND_IN": suite.stand_in,
        "RABBITMQ_HOST": LOOPBACK,  # kombu, py-amqp
        "RABBITMQ_5672_TCP": str(peer.port),
        "RABBITMQ_URL": f"{peer.url}%2f",  # rabbitpy
    }


if __name__ == "__main__":
    sys.exit(main())
