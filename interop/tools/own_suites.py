"""Runs the tests of clients of the HTTP API: those of amqpstorm (Python) and rabbit-hole (Go)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..brokers.processes import run_limited
from ..running.toolchains import NotHere
from ..suites.__main__ import install
from ..suites.comparison import PASSED, SKIPPED, read_junit
from ..suites.pinned import Suite
from ..wire.loopback import LOOPBACK
from .brokers import HttpBroker
from .http import ask
from .results import Result, Run, steady
from .tool import PROGRAMS, SECONDS_MAX, environment_of, found, output_of

AMQPSTORM = Suite(
    "amqpstorm",
    "3.1.4",
    "8c4c81430b3e3f06c88474a8ed883b48a62068f14490e339d6e0fc3329f030d3",
    arguments=("amqpstorm/tests/functional/management", "amqpstorm/tests/functional/test_web_based.py"),
    requires=("requests>=2,<3",),
)
RABBIT_HOLE, RABBIT_HOLE_VERSION = "github.com/michaelklishin/rabbit-hole/v2", "v2.12.0"
#: Literals in its tests -> expressions that read the environment.
LITERALS = (
    ('"http://127.0.0.1:15672"', "toolsURL"),
    ('guest@localhost:5672/"', 'guest@" + toolsAMQP + "/"'),
    ('"@localhost:5672/%2f"', '"@" + toolsAMQP + "/%2f"'),
    ("HealthCheckPortListener(5672)", "HealthCheckPortListener(uint(toolsPort))"),
    ("BeEquivalentTo(5672)", "BeEquivalentTo(toolsPort)"),
)
PLACE_GO = """\
package rabbithole

import (
\t"os"
\t"strconv"
)

var (
\ttoolsURL     = os.Getenv("TOOLS_URL")
\ttoolsAMQP    = "127.0.0.1:" + os.Getenv("TOOLS_AMQP_PORT")
\ttoolsPort, _ = strconv.Atoi(os.Getenv("TOOLS_AMQP_PORT"))
)
"""


def amqpstorm_version(work: Path) -> str:
    """Raises: NotHere."""
    try:
        install(AMQPSTORM, work)
    except (subprocess.CalledProcessError, OSError) as error:
        raise NotHere(f"amqpstorm: {error}") from None
    return AMQPSTORM.version


def run_amqpstorm(broker: HttpBroker, directory: Path, work: Path) -> Run:
    """Run the functional tests of amqpstorm's management client."""
    installed = install(AMQPSTORM, work)
    shutil.copy(PROGRAMS / "amqpstorm_port.py", directory)
    command: list[str | Path] = [
        installed.python,
        "-m",
        "pytest",
        "-q",
        "-p",
        "amqpstorm_port",
        "-p",
        "no:cacheprovider",
    ]
    command += ["-W", "ignore", "--timeout=120", f"--junitxml={directory / 'junit.xml'}", *AMQPSTORM.arguments]
    variables = {
        "AMQP_HOST": LOOPBACK,
        "AMQP_USERNAME": "guest",
        "AMQP_PASSWORD": "guest",
        "AMQP_URI": f"{broker.peer.url}%2F",
        "AMQP_HTTP_URL": broker.url,
        "PYTHONPATH": str(directory),
    }
    return _run(command, installed.sources, broker, directory, variables)


def rabbit_hole_version(work: Path) -> str:
    """The version of rabbit-hole, whose tests are built. Raises: NotHere."""
    _built(work)
    return RABBIT_HOLE_VERSION.removeprefix("v")


def _built(work: Path) -> Path:
    """The program of rabbit-hole's tests, with our address in place of the usual one."""
    home = work / "rabbit-hole"
    program = home / "suite.test"
    if program.exists():
        return program
    go = found("go", package="golang-go")
    shutil.rmtree(home, ignore_errors=True)
    (home / "fetch").mkdir(parents=True)
    output_of([go, "mod", "init", "fetch"], cwd=home / "fetch")
    told = output_of([go, "mod", "download", "-json", f"{RABBIT_HOLE}@{RABBIT_HOLE_VERSION}"], cwd=home / "fetch")
    sources = home / "sources"
    shutil.copytree(json.loads(told)["Dir"], sources)
    for path in (sources, *sources.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    for test in sources.glob("*_test.go"):
        text = test.read_text()
        for literal, ours in LITERALS:
            text = text.replace(literal, ours)
        test.write_text(text)
    (sources / "place_test.go").write_text(PLACE_GO)
    output_of([go, "test", "-c", "-o", str(program), "."], cwd=sources, env={**os.environ, "GOFLAGS": "-mod=mod"})
    return program


def run_rabbit_hole(broker: HttpBroker, directory: Path, work: Path) -> Run:
    """Run the tests of rabbit-hole after their usual set-up: a second virtual host for guest."""
    for path, body in (
        ("vhosts/rabbit%2Fhole", {}),
        ("permissions/rabbit%2Fhole/guest", dict.fromkeys(("configure", "write", "read"), ".*")),
    ):
        ask(broker.url, "PUT", path, body)
    command: list[str | Path] = [
        _built(work),
        f"-ginkgo.reportFile={directory / 'junit.xml'}",
        "-ginkgo.noColor",
        "-ginkgo.seed=1",
    ]
    return _run(command, work / "rabbit-hole" / "sources", broker, directory, {})


def _run(
    command: Sequence[str | Path], cwd: Path, broker: HttpBroker, directory: Path, variables: Mapping[str, str]
) -> Run:
    """Run a suite. Each test is a check, except skipped ones; without results the whole suite is a failed one."""
    run_limited(command, {**environment_of(broker, directory), **variables}, directory / "log", cwd, SECONDS_MAX)
    outcomes = read_junit(directory / "junit.xml").outcomes
    run = Run()
    for test, outcome in outcomes.items():
        name = test.split("::", 1)[1].removeprefix("RabbitMQ HTTP API client ")
        if outcome.verdict != SKIPPED:
            run.results[name] = Result(outcome.verdict == PASSED, reason=steady(outcome.reason, hide={f"{cwd}/": ""}))
    if not run.results:
        run.results["the whole suite"] = Result(
            False, reason=steady((directory / "log").read_text(errors="replace")[-500:], hide={f"{cwd}/": ""})
        )
    return run
