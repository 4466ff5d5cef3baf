"""All tools with pinned versions: their sources, their commands for the page, and the functions that run them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from . import admin_lines
from .brokers import HttpBroker
from .exchanged import run_exchange
from .flower import flower_version, run_flower
from .own_suites import amqpstorm_version, rabbit_hole_version, run_amqpstorm, run_rabbit_hole
from .permissions import run_permissions
from .requests import run_requests
from .results import Run
from .tool import PROGRAMS, Tool, found, of_lines, output_of, package_version, python, run_program

PYRABBIT2 = ("pyrabbit2==1.0.7",)
RABBITMQ_ADMIN = ("rabbitmq-admin==0.2",)
RABBITMQADMIN_2 = "2.35.0"
#: Debian's packages with plug-ins of Nagios and Centreon.
NAGIOS, CENTREON = "nagios-plugins-rabbitmq", "centreon-plugins"
CENTREON_PROGRAM = "/usr/lib/nagios/plugins/centreon_plugins.pl"


def rabbitmqadmin_1() -> str:
    """Raises: NotHere."""
    return found("rabbitmqadmin", "/usr/lib/rabbitmq/bin/rabbitmqadmin", package="rabbitmq-server")


def _admin_1(work: Path) -> Sequence[str]:
    return (sys.executable, rabbitmqadmin_1(), "-H", "{host}", "-P", "{port}")


def _admin_2(work: Path) -> Sequence[str]:
    return (str(work / "cargo" / "bin" / "rabbitmqadmin"), "-H", "{host}", "-P", "{port}", "--non-interactive")


def _make_admin_2(work: Path) -> str:
    """Build rabbitmqadmin 2 once, which takes about ten minutes. Raises: NotHere."""
    root = work / "cargo"
    if not (root / "bin" / "rabbitmqadmin").exists():
        cargo = found("cargo", package="cargo")
        print(f"building rabbitmqadmin {RABBITMQADMIN_2} ...", flush=True)
        words = ["nice", cargo, "install", "--quiet", "--locked", "--root", str(root), "rabbitmqadmin"]
        output_of([*words, "--version", RABBITMQADMIN_2])
    return RABBITMQADMIN_2


def _centreon(work: Path) -> Sequence[str]:
    words = ("--hostname={host}", "--port={port}", "--proto=http", "--username=guest", "--password=guest")
    return ("perl", CENTREON_PROGRAM, "--plugin=apps::mq::rabbitmq::restapi::plugin", *words)


def _program_of_package(package: str, program: str) -> str:
    found(program, package=package)
    return package_version(package)


def _in_python(
    name: str, requirements: tuple[str, ...], program: str, broker: HttpBroker, directory: Path, work: Path
) -> Run:
    return run_program([python(name, work, *requirements), program], broker, directory)


def _pinned_python(name: str, requirements: tuple[str, ...], work: Path) -> str:
    python(name, work, *requirements)
    return requirements[0].partition("==")[2]


def _node_modules(work: Path) -> Path:
    """Raises: NotHere."""
    home = work / "node"
    if not (home / "node_modules" / "http-rabbitmq-manager").exists():
        npm = found("npm", package="npm")
        home.mkdir(parents=True, exist_ok=True)
        for name in ("package.json", "package-lock.json"):
            (home / name).write_text((PROGRAMS / name).read_text())
        output_of([npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"], cwd=home)
    return home / "node_modules"


def _node_version(work: Path) -> str:
    _node_modules(work)
    return "0.0.4 and 1.2.4"


def _run_node(broker: HttpBroker, directory: Path, work: Path) -> Run:
    return run_program(["node", "calls_node.js"], broker, directory, NODE_PATH=str(_node_modules(work).resolve()))


def _exchange(broker: HttpBroker, directory: Path, work: Path) -> Run:
    other = "leveret" if broker.name == "rabbitmq" else "rabbitmq"
    return run_exchange(broker, directory, work, admin=rabbitmqadmin_1(), other=other)


def _of_rabbitmq(work: Path) -> str:
    rabbitmqadmin_1()
    return package_version("rabbitmq-server")


# fmt: off
_TOOLS = (
    Tool("rabbitmqadmin 1", "RabbitMQ's command line, from its own package (Python)",
        "rabbitmqadmin -H 127.0.0.1 -P PORT COMMAND", _of_rabbitmq, of_lines(_admin_1, admin_lines.V1)),
    Tool("rabbitmqadmin 2", "its successor, from its crate (Rust)",
        "rabbitmqadmin -H 127.0.0.1 -P PORT COMMAND", _make_admin_2, of_lines(_admin_2, admin_lines.V2)),
    Tool("rabbit-hole",
        "the Go client under the Terraform provider and Kubernetes' topology operator: its own tests",
        "go test ./...", rabbit_hole_version, run_rabbit_hole, needs_scene=False),
    Tool("amqpstorm", "a Python client with a management client: its own tests of that",
        "pytest amqpstorm/tests/functional/management", amqpstorm_version, run_amqpstorm, needs_scene=False),
    Tool("pyrabbit2", "a Python client of the HTTP API",
        "calls_pyrabbit2.py", partial(_pinned_python, "pyrabbit2", PYRABBIT2),
        partial(_in_python, "pyrabbit2", PYRABBIT2, "calls_pyrabbit2.py")),
    Tool("rabbitmq-admin", "another one",
        "calls_rabbitmq_admin.py", partial(_pinned_python, "rabbitmq-admin", RABBITMQ_ADMIN),
        partial(_in_python, "rabbitmq-admin", RABBITMQ_ADMIN, "calls_rabbitmq_admin.py")),
    Tool("http-rabbitmq-manager", "and rabbitmq-stats: clients in JavaScript",
        "node calls_node.js", _node_version, _run_node),
    Tool("Celery Flower", "beside a real worker",
        "celery flower --broker-api=http://guest:guest@127.0.0.1:PORT/api/", flower_version, run_flower,
        needs_scene=False),
    Tool("Nagios", "plug-ins of Debian's nagios-plugins-rabbitmq (Perl)",
        "check_rabbitmq_CHECK -H 127.0.0.1 --port PORT",
        lambda work: _program_of_package(NAGIOS, "check_rabbitmq_server"),
        of_lines(lambda work: (), admin_lines.NAGIOS)),
    Tool("Centreon", "plug-ins of Debian's centreon-plugins (Perl)",
        "centreon_plugins.pl --plugin=apps::mq::rabbitmq::restapi::plugin --mode=MODE",
        lambda work: _program_of_package(CENTREON, CENTREON_PROGRAM), of_lines(_centreon, admin_lines.CENTREON)),
    Tool("requests of others", "as KEDA, Helm charts, Telegraf, Datadog, Zabbix, Docker and Spring Cloud make them",
        "GET /api/...", lambda work: "management page 11", run_requests),
    Tool("permissions step by step", "topic permissions with and without permissions, set and cleared in every order",
        "PUT, DELETE /api/permissions/V/U, /api/topic-permissions/V/U, ...",
        lambda work: "management page 7", run_permissions, needs_scene=False),
    Tool("definitions both ways", "exported by one broker, imported by the other, with rabbitmqadmin 1",
        "rabbitmqadmin export FILE; rabbitmqadmin import FILE", _of_rabbitmq, _exchange, needs_scene=False),
)
# fmt: on
TOOLS = {tool.name: tool for tool in _TOOLS}
