"""Celery Flower with a real worker: compares what its pages and its API show about the broker."""

from __future__ import annotations

import json
import re
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from ..brokers.processes import started
from ..wire.loopback import LOOPBACK, free_ports
from .brokers import HttpBroker
from .results import Result, Run
from .tool import PROGRAMS, environment_of, python

REQUIREMENTS = ("flower==2.2.0", "celery==5.7.0", "kombu==5.7.0", "amqp==5.4.2")
#: The columns of a queue in Flower.
READ = ("name", "messages", "messages_ready", "messages_unacknowledged", "consumers")
SECONDS_MAX, POLL_SECONDS = 90.0, 0.2
_ROW = re.compile(r"<tr[^>]*>(.*?)</tr>", re.DOTALL)
_CELL = re.compile(r"<td[^>]*>(.*?)</td>", re.DOTALL)


def flower_version(work: Path) -> str:
    """The version of Flower. Raises: NotHere."""
    python("flower", work, *REQUIREMENTS)
    return REQUIREMENTS[0].partition("==")[2]


def run_flower(broker: HttpBroker, directory: Path, work: Path) -> Run:
    """Check Flower's page of the broker, and in its API the lengths of queues, the worker and a task."""
    interpreter = python("flower", work, *REQUIREMENTS)
    (directory / "flower_app.py").write_text((PROGRAMS / "flower_app.py").read_text())
    (port,) = free_ports(1)
    environment = environment_of(broker, directory) | {"FLOWER_UNAUTHENTICATED_API": "true"}
    celery = [str(interpreter), "-m", "celery", "-A", "flower_app"]
    api = broker.url.replace("http://", "http://guest:guest@") + "/api/"
    watch = ["flower", f"--address={LOOPBACK}", f"--port={port}", f"--broker-api={api}"]
    run = Run()
    with ExitStack() as stack:
        log = directory / "log"
        worker = ["worker", "-E", "-P", "solo", "-n", "w@localhost", "--loglevel=WARNING"]
        stack.enter_context(started([*celery, *worker], environment, log, directory))
        stack.enter_context(started([*celery, *watch], environment, log, directory))
        url = f"http://{LOOPBACK}:{port}"
        _check(run, "the page of the broker", lambda: _queues_of_page(_read(f"{url}/broker").decode()), log)
        _check(run, "api/queues/length", lambda: _lengths(json.loads(_read(f"{url}/api/queues/length"))), log)
        _check(run, "api/workers", lambda: sorted(json.loads(_read(f"{url}/api/workers?refresh=1"))), log)
        call = [str(interpreter), "-c", "from flower_app import add; add.delay(1, 2)"]
        subprocess.run(call, env=environment, cwd=directory, check=True)
        _check(run, "a task that was done", lambda: _done(json.loads(_read(f"{url}/api/tasks"))), log)
    return run


def _check(run: Run, name: str, facts: Callable[[], Any], log: Path) -> None:
    """Check an answer, which may be empty at first: Flower asks the broker only after a request."""
    deadline = time.monotonic() + SECONDS_MAX
    while time.monotonic() < deadline:
        try:
            found = facts()
        except (OSError, ValueError):
            found = None
        if found:
            run.results[name] = Result(True, found)
            return
        time.sleep(POLL_SECONDS)
    run.results[name] = Result(False, reason=f"nothing in {SECONDS_MAX:g} s: {log.read_text(errors='replace')[-300:]}")


def _read(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=30) as answer:
        return bytes(answer.read())


def _queues_of_page(page: str) -> list[list[str]]:
    """The page's row of the queue `celery` once its worker consumes; the other queues have random names."""
    rows = [[re.sub(r"<[^>]*>|\s+", "", cell) for cell in _CELL.findall(row)] for row in _ROW.findall(page)]
    named = [row[:5] for row in rows if row and row[0] == "celery"]
    return named if named and named[0][4:5] == ["1"] else []


def _lengths(answer: dict[str, Any]) -> list[Any]:
    return [{key: one[key] for key in READ} for one in answer["active_queues"] if one["name"] == "celery"]


def _done(answer: dict[str, Any]) -> list[str]:
    return sorted(f"{one['name']} {one['state']}" for one in answer.values() if one["state"] == "SUCCESS")
