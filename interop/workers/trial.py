"""Run one framework's scenarios, inside the framework's own environment: `python trial.py APPLICATION [SCENARIO]...`.

This file and the application (`work_celery.py`, ...) are copied into an empty directory, so that nothing of Leveret can
be imported. They need only the framework and the standard library. The variable `BROKER_URL` is the broker, `LEDGER`
the file in which tasks note what they did. JSON objects are written to stdout, one a line: first the versions, then the
outcome of each scenario. `{"restart": true}` makes the parent process kill the broker and start it again, after which
it writes a line to stdin.

An application has `VERSIONS` (distributions), `WORKER` (the command of a worker) and `SCENARIOS`: functions that take a
`Trial` and return facts. Facts are compared between brokers, so they must not depend on time.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

SECONDS_MAX = 60.0  # for a condition, on a busy machine
POLL_SECONDS = 0.02


def note(what: str, **facts: Any) -> None:
    """Add a line about a task to the ledger. Several processes may write at the same time."""
    line = json.dumps({"what": what, "pid": os.getpid(), "at": time.time(), **facts}) + "\n"
    descriptor = os.open(os.environ["LEDGER"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, line.encode())
    finally:
        os.close(descriptor)


def ledger(what: str | None = None) -> list[dict[str, Any]]:
    """The entries of the ledger, oldest first: all, or those named `what`."""
    try:
        lines = Path(os.environ["LEDGER"]).read_text().splitlines()
    except FileNotFoundError:
        return []
    entries = [json.loads(line) for line in lines]
    return [entry for entry in entries if what is None or entry["what"] == what]


def wait_for(fact: Callable[[], Any], about: str, seconds: float = SECONDS_MAX) -> Any:
    """The first true result of `fact`. Raises: AssertionError: there was none in time."""
    deadline = time.monotonic() + seconds
    while not (answer := fact()):
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {seconds:g} s for {about}; the ledger: {ledger()[-20:]}")
        time.sleep(POLL_SECONDS)
    return answer


class Worker:
    """A worker process, which is the leader of a process group."""

    def __init__(self, command: list[str], log: Path) -> None:
        self._log = log
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
            )

    def log(self) -> str:
        """The output of the worker."""
        return self._log.read_text(errors="replace")

    def wait_for_log(self, text: str) -> None:
        """Wait until it has printed `text`. Raises: AssertionError: it ended, or took too long."""

        def printed() -> bool:
            if self.process.poll() is not None:
                raise AssertionError(f"the worker ended with {self.process.returncode}: {self.log()[-3000:]}")
            return text in self.log()

        try:
            wait_for(printed, f"{text!r} in the worker's log")
        except AssertionError as error:
            raise AssertionError(f"{error}; the log: {self.log()[-3000:]}") from None

    def kill(self) -> None:
        """Kill the worker and its children by SIGKILL."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()

    def stop(self) -> int:
        """Stop the worker by SIGTERM. Returns its exit code. Raises: subprocess.TimeoutExpired."""
        self.process.terminate()
        return self.process.wait(SECONDS_MAX)


class Trial:
    """Starts the workers of a scenario, and restarts the broker for it."""

    def __init__(self, application: Any, directory: Path) -> None:
        self._application = application
        self._directory = directory
        self._workers: list[Worker] = []

    def start_worker(self, *options: str, command: list[str] | None = None) -> Worker:
        """Start a worker, without waiting until it is ready. It is killed when the scenario ends."""
        log = self._directory / f"worker-{len(os.listdir(self._directory))}.log"
        self._workers.append(Worker([*(command or self._application.WORKER), *options], log))
        return self._workers[-1]

    @contextmanager
    def worker(self, *options: str, ready: str = "") -> Iterator[Worker]:
        """A worker that has printed `ready` (default: the application's `READY`). It is stopped after the block."""
        worker = self.start_worker(*options)
        worker.wait_for_log(ready or self._application.READY)
        yield worker
        worker.stop()

    def restart_broker(self) -> None:
        """Kill the broker, and wait until a new process serves the same port and files."""
        print(json.dumps({"restart": True}), flush=True)
        if not sys.stdin.readline():
            raise AssertionError("the broker did not come back")

    def close(self) -> None:
        """Kill all workers."""
        for worker in self._workers:
            worker.kill()

    def logs(self) -> str:
        """The ends of the logs of all workers."""
        return "\n".join(worker.log()[-1500:] for worker in self._workers)


def main(name: str, *wanted: str) -> None:
    """Run the scenarios of an application, each with an empty ledger."""
    application = importlib.import_module(name)
    print(json.dumps({"versions": {one: version(one) for one in application.VERSIONS}}), flush=True)
    home = Path(os.environ["LEDGER"]).parent
    for scenario in application.SCENARIOS:
        label = scenario.__name__
        if wanted and label not in wanted:
            continue
        os.environ["LEDGER"] = str(home / f"{label}.ledger")
        directory = home / label
        directory.mkdir()
        trial = Trial(application, directory)
        outcome: dict[str, Any] = {"scenario": label, "about": (scenario.__doc__ or "").split("\n")[0]}
        began = time.monotonic()
        try:
            outcome["facts"] = scenario(trial)
        except Exception as error:
            outcome["failed"] = f"{type(error).__name__}: {error}"
            outcome["detail"] = f"{traceback.format_exc()}\n{trial.logs()}"
        finally:
            trial.close()
        outcome["seconds"] = round(time.monotonic() - began, 2)
        print(json.dumps(outcome), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
