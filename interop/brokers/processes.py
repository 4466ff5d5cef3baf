"""A broker's process: the leader of a process group that ends with the block, in a directory that is deleted with
it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any, Protocol

START_SECONDS_MAX = 120.0  # RabbitMQ takes 4 to 8 s on an idle machine; this is for a busy one
STOP_SECONDS_MAX = 30.0
POLL_SECONDS = 0.02
LAST_WORDS_MAX = 4_000  # characters of each log of a broker that ended


def unwind_on_sigterm() -> None:
    """Let SIGTERM raise SystemExit in the main thread, so that brokers and drivers end with this process."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))


class PeerFailed(Exception):
    """The broker ended, or did not answer in time; the message carries the end of its log."""


class Life(Protocol):
    """What ends and starts a broker that is one process or several."""

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The one that clients are connected to."""

    def restart(self, number: signal.Signals) -> None:
        """End it with a signal, and start it again."""

    def has_ended(self) -> bool:
        """Whether it has ended, for any reason."""

    def start_again(self) -> None:
        """Start it after it has ended, or hangs."""


class Restarts:
    """A broker's process and its successors; the last one is killed at the end of the block."""

    def __init__(
        self, run: Callable[[], AbstractContextManager[subprocess.Popen[bytes]]], ready: Callable[[], bool], log: Path
    ) -> None:
        self._run, self._ready, self._log = run, ready, log
        self._running = ExitStack()
        self.process: subprocess.Popen[bytes]

    def __enter__(self) -> Restarts:
        return self

    def __exit__(self, *_: object) -> None:
        self._running.close()

    def start(self) -> None:
        self.process = self._running.enter_context(self._run())
        wait_for(self._ready, self.process, self._log)

    def restart(self, number: signal.Signals) -> None:
        """Send the signal, wait for the end, start again. The process stays unreaped until its group is killed."""
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
    """A temporary directory; a process that is still being torn down may write while we delete, hence the flag."""
    with tempfile.TemporaryDirectory(prefix=f"leveret-{name}-", ignore_cleanup_errors=True) as directory:
        yield Path(directory)


@contextmanager
def started(
    command: Sequence[str], environment: Mapping[str, str], log: Path, directory: Path | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Run `command` as leader of a process group of its own; the whole group is killed at the end."""
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


def kill_group(process: subprocess.Popen[Any]) -> None:
    """SIGKILL to the leader of a process group, and to all that it started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def wait_for(fact: Callable[[], bool], process: subprocess.Popen[bytes], log: Path) -> None:
    """Return once `fact` is true; raise PeerFailed when the process has ended or after a timeout."""
    deadline = time.monotonic() + START_SECONDS_MAX
    while not fact():
        code = process.poll()
        if code is not None or time.monotonic() > deadline:
            what = "did not answer in time" if code is None else f"ended with {code}"
            raise PeerFailed(f"{process.args!r} {what}; it wrote:\n{end_of(log)}")
        time.sleep(POLL_SECONDS)


def text_of(log: Path) -> str:
    return log.read_text(errors="replace")


def end_of(log: Path) -> str:
    """The end of a log, for error messages."""
    return text_of(log)[-LAST_WORDS_MAX:]
