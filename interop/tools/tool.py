"""A tool: how it is installed, and how it runs on a broker."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..brokers.processes import kill_group
from ..running.foreign import Environment
from ..running.toolchains import NotHere
from ..wire.loopback import LOOPBACK
from .brokers import HttpBroker
from .lines import Line, run_lines
from .results import Result, Run, steady

PROGRAMS = Path(__file__).parents[1] / "drivers" / "console"
SECONDS_MAX = 1200
BUILD_SECONDS_MAX = 3600


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool. `version`: returns its version, and installs the tool from its package registry if necessary.

    `run`: runs its checks on a broker, in an empty directory. `command`: what users would type, for the page.
    `needs_scene`: its checks need the objects of `scene`.
    """

    name: str
    about: str
    command: str
    version: Callable[[Path], str]
    run: Callable[[HttpBroker, Path, Path], Run]
    needs_scene: bool = True


def output_of(command: Sequence[str | Path], **more: object) -> str:
    """The output of a program. Raises: NotHere: it is not on this machine, or fails."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=BUILD_SECONDS_MAX, stdin=subprocess.DEVNULL, **more
        )  # type: ignore[call-overload]
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotHere(f"{command[0]}: {error}") from None
    if done.returncode:
        raise NotHere(f"{' '.join(map(str, command))}: {(done.stderr or done.stdout).strip()[-600:]}")
    return str(done.stdout)


def found(program: str, *elsewhere: str, package: str) -> str:
    """The path of a program. Raises: NotHere, with the name of Debian's package."""
    for candidate in (shutil.which(program), *elsewhere):
        if candidate is not None and Path(candidate).exists():
            return candidate
    raise NotHere(f"no {program} on this machine (Debian: apt install {package})")


def package_version(package: str) -> str:
    """The version of a Debian package. Raises: NotHere."""
    return output_of(["dpkg-query", "-W", "-f", "${Version}", package])


def environment_of(broker: HttpBroker, directory: Path) -> dict[str, str]:
    """The environment of programs: the variables for the broker, and our search path."""
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(directory),
        "LANG": "C.UTF-8",
        "PYTHONDONTWRITEBYTECODE": "1",
        "TOOLS_URL": broker.url,
        "TOOLS_HOST": LOOPBACK,
        "TOOLS_PORT": str(broker.management),
        "TOOLS_NODE": broker.node,
        "TOOLS_AMQP_PORT": str(broker.peer.port),
        "BROKER_URL": f"{broker.peer.url}%2F",
    }


def python(name: str, work: Path, *requirements: str) -> Path:
    """The Python of a tool's environment, which is created if necessary. Raises: NotHere."""
    try:
        return Environment(work / name, *requirements).install()
    except subprocess.CalledProcessError as error:
        raise NotHere(f"pip: {error}") from None


def run_program(command: Sequence[str | Path], broker: HttpBroker, directory: Path, **variables: str) -> Run:
    """Run a program that prints a JSON object for each check (drivers/console/calls.py)."""
    shutil.copytree(PROGRAMS, directory, dirs_exist_ok=True)
    run = Run()
    process = subprocess.Popen(
        command,
        cwd=directory,
        env=environment_of(broker, directory) | variables,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=sys.stderr,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=SECONDS_MAX)
    finally:
        kill_group(process)
    for line in output.splitlines():
        entry = json.loads(steady(line, hide={broker.url: "URL"}))
        run.results[entry["check"]] = _result(entry)
    if process.returncode:
        run.results["the whole program"] = Result(False, reason=f"exit {process.returncode}")
    return run


def _result(entry: Mapping[str, object]) -> Result:
    if "failed" in entry:
        return Result(False, reason=str(entry["failed"]))
    return Result(True, entry.get("facts"))


def of_lines(
    program: Callable[[Path], Sequence[str]], lines: Sequence[Line]
) -> Callable[[HttpBroker, Path, Path], Run]:
    """The function `run` of a tool with command lines."""
    return lambda broker, directory, work: run_lines(program(work), lines, broker, directory)
