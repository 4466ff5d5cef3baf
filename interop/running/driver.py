"""The process of a driver, which gets operations and answers with observations, as lines of JSON."""

from __future__ import annotations

import json
import queue
import subprocess
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..brokers.processes import kill_group

GRACE_SECONDS = 5.0  # added to the time limit of an operation
STDERR_TAIL = 4000


class DriverFailed(Exception):
    """The driver ended or did not answer. The message has the end of its output."""


@dataclass(frozen=True, slots=True)
class Hello:
    """A driver's description of its client. `lacks`: what the client cannot do, by the keys of drivers/README.md."""

    client: str
    version: str
    language: str
    lacks: Mapping[str, str]
    reads_not: frozenset[str]


class Driver:
    """A driver's process. Only one thread at a time may call `ask`."""

    def __init__(self, command: Sequence[str], log: Path) -> None:
        self._log = log
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                start_new_session=True,
            )
        self._answers: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._number = 0
        threading.Thread(target=self._read, name="driver", daemon=True).start()
        hello = self._answer(60.0)
        self.hello = Hello(
            hello["client"], hello["version"], hello["language"], hello["lacks"], frozenset(hello.get("reads_not", ()))
        )

    def ask(self, operation: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        """The answer to an operation: {"ok": {...}}, {"error": {...}} or {"lacks": why}.

        Raises: DriverFailed: it ended, or did not answer in time.
        """
        self._number += 1
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"id": self._number, **operation}).encode() + b"\n")
            self._process.stdin.flush()
        except OSError as error:
            raise DriverFailed(f"the driver has ended: {self._tail()}") from error
        while True:
            answer = self._answer(seconds + GRACE_SECONDS)
            if answer.get("id") == self._number:
                return answer

    def end(self) -> None:
        """Kill the driver and its children."""
        kill_group(self._process)
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                try:
                    stream.close()
                except OSError:
                    pass

    def _read(self) -> None:
        assert self._process.stdout is not None
        try:
            for line in self._process.stdout:
                self._answers.put(line.decode(errors="replace"))
        except ValueError:
            pass  # closed by `end`
        self._answers.put(None)

    def _answer(self, seconds: float) -> dict[str, Any]:
        try:
            line = self._answers.get(timeout=seconds)
        except queue.Empty:
            raise DriverFailed(f"no answer within {seconds:.0f} s: {self._tail()}") from None
        if line is None:
            raise DriverFailed(f"the driver has ended: {self._tail()}")
        try:
            answer: dict[str, Any] = json.loads(line)
        except ValueError:
            raise DriverFailed(f"no JSON: {line[:200]!r}") from None
        return answer

    def _tail(self) -> str:
        return self._log.read_text(errors="replace")[-STDERR_TAIL:].strip() or "(it wrote nothing)"
