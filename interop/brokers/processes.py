"""Processes of brokers: leaders of process groups that are killed, and temporary directories that are deleted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

START_SECONDS_MAX = 120.0  # RabbitMQ takes 4 to 8 s on an idle machine
STOP_SECONDS_MAX = 30.0
POLL_SECONDS = 0.02
LAST_WORDS_MAX = 4_000  # characters of the log of a broker that ended


def unwind_on_sigterm() -> None:
    """Make SIGTERM raise SystemExit in the main thread, so that brokers and drivers end with this process."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))


class PeerFailed(Exception):
    """A broker, or a program for it, failed or was not ready in time. The message has the end of its log, if any."""


class Lifecycle(Protocol):
    """Ends and starts a broker, which is one process or several."""

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The process that clients are connected to."""

    def restart(self, number: signal.Signals) -> None:
        """End it with a signal, and start it again."""

    def has_ended(self) -> bool:
        """Whether it has ended, for any reason."""

    def start_again(self) -> None:
        """Start it after it has ended, or hangs."""


class RestartableProcess:
    """A process that can be started again. It is killed at the end of the block."""

    def __init__(
        self, run: Callable[[], AbstractContextManager[subprocess.Popen[bytes]]], ready: Callable[[], bool], log: Path
    ) -> None:
        self._run, self._ready, self._log = run, ready, log
        self._running = ExitStack()
        self.process: subprocess.Popen[bytes]

    def __enter__(self) -> RestartableProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self._running.close()

    def start(self) -> None:
        self.process = self._running.enter_context(self._run())
        wait_for(self._ready, self.process, self._log)

    def restart(self, number: signal.Signals) -> None:
        """Send the signal, wait for the end, and start again. The process is reaped after its group is killed."""
        os.kill(self.process.pid, number)
        deadline = time.monotonic() + STOP_SECONDS_MAX
        while not self.has_ended():
            if time.monotonic() > deadline:
                raise PeerFailed(f"{self.process.args!r} did not end after {number.name}")
            time.sleep(POLL_SECONDS)
        self.start_again()

    def has_ended(self) -> bool:
        """Whether the process has ended, for any reason."""
        return os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None

    def start_again(self) -> None:
        """Replace a process that has ended or hangs."""
        self._running.close()
        self._running = ExitStack()
        self.start()


@contextmanager
def directory_for(name: str) -> Iterator[Path]:
    """A temporary directory. Errors of its deletion are ignored: a process that is ending may still write there."""
    with tempfile.TemporaryDirectory(prefix=f"leveret-{name}-", ignore_cleanup_errors=True) as directory:
        yield Path(directory)


@contextmanager
def started(
    command: Sequence[str | Path], environment: Mapping[str, str], log: Path, directory: Path | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Run `command` as leader of a new process group, which is killed at the end."""
    with log.open("ab") as output:
        process = subprocess.Popen(
            command,
            env=dict(environment),
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        kill_group(process)


def run_limited(
    command: Sequence[str | Path], environment: Mapping[str, str], log: Path, directory: Path, seconds: float
) -> None:
    """Run a program to its end. It is killed if it has not ended in time."""
    with started(command, environment, log, directory) as process, suppress(subprocess.TimeoutExpired):
        process.wait(seconds)


def kill_group(process: subprocess.Popen[Any]) -> None:
    """Kill the process group that a process leads, and wait for the process."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def wait_for(fact: Callable[[], bool], process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until `fact` is true. Raises: PeerFailed: the process has ended, or the time is over."""
    deadline = time.monotonic() + START_SECONDS_MAX
    while not fact():
        code = process.poll()
        if code is not None or time.monotonic() > deadline:
            what = "did not answer in time" if code is None else f"ended with {code}"
            raise PeerFailed(f"{process.args!r} {what}; it wrote:\n{end_of(log)}")
        time.sleep(POLL_SECONDS)


def await_fact(fact: Callable[[], bool], what: str, logs: Iterable[Path] = ()) -> None:
    """Wait until `fact` is true. Raises: PeerFailed: the time is over; with the ends of the logs."""
    deadline = time.monotonic() + START_SECONDS_MAX
    while not fact():
        if time.monotonic() > deadline:
            ends = "".join(f"\n{log.stem}: {end_of(log)}" for log in logs)
            raise PeerFailed(f"not within {START_SECONDS_MAX:g} s: {what}{ends}")
        time.sleep(POLL_SECONDS)


def text_of(log: Path) -> str:
    return log.read_text(errors="replace")


def end_of(log: Path) -> str:
    """The last characters of a log, for error messages."""
    return text_of(log)[-LAST_WORDS_MAX:]
