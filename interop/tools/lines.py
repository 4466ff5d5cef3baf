"""Runs the command lines of a tool on one broker, and compares exit status and output."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..wire.loopback import LOOPBACK
from .brokers import HttpBroker
from .results import Result, Run, steady

SECONDS_MAX = 120
#: What is compared of a command.
TEXT, FIELDS, JSON, STATUS = "text", "fields", "json", "status"


@dataclass(frozen=True, slots=True)
class Line:
    """A command line. `words`: the arguments, with {placeholders}. `status`: the expected exit status.

    `compared`: TEXT: the output, FIELDS: the names of the fields in its JSON, JSON: the whole JSON, STATUS: only the
    exit status.
    """

    words: str
    compared: str = TEXT
    status: int = 0


def run_lines(program: Sequence[str], lines: Iterable[Line], broker: HttpBroker, directory: Path) -> Run:
    """Run lines, each of which is a check. `directory`: for files that lines write ({dir})."""
    names = {
        "host": LOOPBACK,
        "port": str(broker.management),
        "amqp": str(broker.peer.port),
        "node": broker.node,
        "short": broker.node.partition("@")[2],
        "dir": str(directory),
    }
    hidden = {str(directory): "DIR", broker.url: "URL"}
    run = Run()
    for line in lines:
        words = [_filled(word, names) for word in line.words.split()]
        label = line.words
        while label in run.results:
            label += ", again"
        run.results[label] = _run([*(_filled(word, names) for word in program), *words], line, directory, hidden)
    return run


def _filled(word: str, names: Mapping[str, str]) -> str:
    """A word with values for its placeholders. `~` becomes a space."""
    for name, value in names.items():
        word = word.replace(f"{{{name}}}", value)
    return word.replace("~", " ")


def _run(command: Sequence[str], line: Line, directory: Path, hidden: Mapping[str, str]) -> Result:
    environment = {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(directory), "LANG": "C.UTF-8"}
    try:
        done = subprocess.run(
            command, env=environment, cwd=directory, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=SECONDS_MAX, errors="replace",
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return Result(False, reason=f"no end after {SECONDS_MAX} s")
    if done.returncode != line.status:
        *_, last = ["", *(done.stderr.strip() or done.stdout.strip()).splitlines()]
        return Result(False, reason=f"exit {done.returncode}: {steady(last, hide=hidden)[:300]}")
    if line.compared == STATUS:
        return Result(True)
    if line.compared == TEXT:
        return Result(True, [steady(text, hide=hidden) for text in (done.stdout + done.stderr).splitlines()])
    try:
        value = json.loads(steady(done.stdout, hide=hidden))
    except ValueError as error:
        return Result(False, reason=f"no JSON: {error}")
    return Result(True, value) if line.compared == JSON else Result(True, keys=fields_of(value))


def fields_of(value: Any) -> tuple[str, ...]:
    """The names of the fields of an object, or of the objects in a list: `name`, `message_stats.publish`."""
    found: set[str] = set()
    _collect(value, "", found)
    return tuple(sorted(found))


def _collect(value: Any, path: str, found: set[str]) -> None:
    if isinstance(value, dict):
        for key, inner in value.items():
            found.add(f"{path}{key}")
            _collect(inner, f"{path}{key}.", found)
    elif isinstance(value, list):
        for inner in value:
            _collect(inner, path, found)
