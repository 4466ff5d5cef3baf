"""A broker on a directory: a process of its own, begun anew or forked, and killed at some moment."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from operator import sub
from pathlib import Path

import leveret.amqp_frontend.edge.server
import leveret.serving.app
import leveret.serving.supervisor  # noqa: F401  (read here, all three, they need not be in each process that is forked)
from leveret.__main__ import main

from .truth import Broken

#: The most that a start may take, on a machine that others use.
START_SECONDS = 3600.0
#: How long at most something to aim at is waited for, and how often it is looked for.
AIM_SECONDS, LOOK_SECONDS = 0.5, 0.0005


#: Queues with limits, where publishers are blocked: one in octets, one in messages.
LIMITED = ("limited", "counted")
#: Little is held in memory, more in the temp store, and then the connection is not read. The temp store is never full:
#: transient messages would wait for it, also in a commit, which what comes on other channels passes.
LIMITS = """
[system-usage]
memory = "1GiB"
temp = "64MiB"
[flow]
hold-bytes = "8KiB"
hold-spool = "48KiB"
[[address-setting]]
match = "limited"
memory-limit = "48KiB"
cursor = "vm"
[[address-setting]]
match = "counted"
max-size-messages = 30
address-full-policy = "BLOCK"
"""


@dataclass(slots=True, frozen=True)
class Setup:
    """What the broker of a lane is configured with. `has_limits`: `LIMITS` hold."""

    directory: str
    fsync: str = "commit"
    memory: str = "256MiB"
    segment_size: str = "256KiB"
    scope: str = "durable"
    has_limits: bool = False
    caps: str = ""  # else: of what each queue may have in memory, as keys of an address-setting

    @property
    def journal(self) -> str:
        """Where its data are."""
        return f"{self.directory}/data"

    def arguments(self) -> list[str]:
        """Of the command line; writes the configuration."""
        config = Path(self.directory) / "leveret.toml"
        config.write_text(
            f'[journal]\nfsync = "{self.fsync}"\nsegment-size = "{self.segment_size}"\nscope = "{self.scope}"\n'
            f"reserve = 0\n"
            f'[limits]\nmemory = "{self.memory}"\nhandshake-timeout = "1h"\nfirst-octet-timeout = "1h"\n'
            + (LIMITS if self.has_limits else "")
            + (f'[[address-setting]]\nmatch = "#"\n{self.caps}\n' if self.caps and not self.has_limits else "")
        )
        return ["serve", "--listen", "127.0.0.1:0", "--data", self.journal, "--config", str(config)] + [
            "--log-level",
            "error",
            "--management",
            "off",
        ]


class Process:
    """A broker that runs, or is about to."""

    def __init__(self, setup: Setup, *, forked: bool) -> None:
        """`forked`: from this process, which has read all modules already: an eighth of the time of a new one."""
        self._read, write = os.pipe()
        arguments = setup.arguments()
        self._started: subprocess.Popen[bytes] | None = None
        if forked:
            self.pid = os.fork()
            if not self.pid:
                os.dup2(write, 1)
                _serve_and_leave(arguments)
        else:
            self._started = subprocess.Popen([sys.executable, "-m", "leveret", *arguments], stdout=write)
            self.pid = self._started.pid
        os.close(write)
        self._is_over = False

    def port(self) -> int:
        """When it takes connections. Raises: Broken, when it does not start."""
        text = b""
        until = time.monotonic() + START_SECONDS
        while b"\n" not in text:
            if not self.says_something(max(0.0, until - time.monotonic())):
                raise Broken(f"the broker did not start within {START_SECONDS} s")
            data = os.read(self._read, 4096)
            if not data:
                raise Broken("the broker did not start")
            text += data
        found = re.search(rb":(\d+)/\s*$", text)
        if found is None:
            raise Broken(f"the broker said {text!r}")
        return int(found[1])

    def says_something(self, seconds: float) -> bool:
        """Whether it says within this time that it takes connections; once it has, whether it ends."""
        return bool(select.select([self._read], [], [], seconds)[0])

    def stop(self, how: signal.Signals) -> None:
        """Send a signal and wait for the end."""
        if not self._is_over:
            os.kill(self.pid, how)
            self.wait()

    def wait(self) -> int:
        """For the end; returns the exit code."""
        code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1]) if self._started is None else self._started.wait()
        os.close(self._read)
        self._is_over = True
        return code


def _serve_and_leave(arguments: list[str]) -> None:
    """In the forked process."""
    sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", closefd=False)  # as for a new process
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    code = 1
    try:
        code = main(arguments)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


class Killer(threading.Thread):
    """Kills a broker after a time, whatever the client is doing; on request when the journal does something.

    Time in which the broker or the client waits for a processor does not count: on a loaded machine a round would do
    nothing that could be forgotten.

    `aim`: "roll": soon after a new segment came; "reclaim": soon after one went; "": just after the time.
    """

    def __init__(
        self, process: Process, setup: Setup, after_s: float, *, aim: str, lag_s: float, how: signal.Signals
    ) -> None:
        super().__init__()
        self._process = process
        self._how = how
        self._journal = setup.journal
        self._after_s = after_s
        self._aim = aim
        self._lag_s = lag_s
        self.has_hit = False  # what it aimed at
        self.has_struck = False
        self._is_called_off = threading.Event()

    def call_off(self) -> None:
        """There is nothing to kill any more; waits until it is over."""
        self._is_called_off.set()
        self.join()

    def run(self) -> None:
        called_off = self._is_called_off
        until, begun = time.monotonic() + self._after_s, self._waits_s()
        while (left_s := until + max(map(sub, self._waits_s(), begun)) - time.monotonic()) > 0:
            if called_off.wait(left_s):
                break
        if self._aim:
            known = self._segments()
            until = time.monotonic() + AIM_SECONDS
            while time.monotonic() < until:
                there = self._segments()
                if (there - known) if self._aim == "roll" else (known - there):
                    self.has_hit = True
                    break
                known = there
                if called_off.wait(LOOK_SECONDS):
                    break
        if not called_off.wait(self._lag_s):
            self.has_struck = True
            os.kill(self._process.pid, self._how)

    def _waits_s(self) -> list[float]:
        """How long the broker and the client have waited for a processor; 0 where the system does not say it."""
        try:
            texts = [Path(f"/proc/{pid}/schedstat").read_text() for pid in (self._process.pid, os.getpid())]
        except OSError:
            return [0.0]
        return [int(text.split()[1]) / 1e9 for text in texts]

    def _segments(self) -> set[str]:
        return {name for name in os.listdir(self._journal) if name.endswith(".log")}
