"""The progress of a job on stderr: a bar on a terminal, else a line of JSON for each step."""

import json
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TextIO

WIDTH = 24
#: Seconds between two drawings of the bar on a terminal.
TICK_SECONDS = 0.2
#: Steps that each ingest has, and that `follow` does not report.
ROUTINE = ("begin", "part", "batch", "copy")
#: Steps with sentences: on a terminal their lines stay.
SENTENCES = ("missing", "holes", "copy", "retry")
Measure = Callable[[], tuple[int, int]]


class Progress:
    """Reports the steps of one job.

    stream: by default stderr. measure: returns (done, total) for the bar. is_brief: leave out the steps in `ROUTINE`.
    """

    def __init__(
        self, job: str, stream: TextIO | None = None, measure: Measure | None = None, *, is_brief: bool = False
    ) -> None:
        self.job = job
        self._is_brief = is_brief
        self._stream = stream if stream is not None else sys.stderr
        self._began = time.monotonic()
        self._is_terminal = self._stream.isatty()
        self._measure = measure
        self._step = "starting"
        self._drawing = threading.Lock()
        self._over = threading.Event()
        if self._is_terminal and measure:
            threading.Thread(target=self._tick, daemon=True).start()

    def say(self, step: str, **facts: Any) -> None:
        """Report a step. `facts`: more fields of the line."""
        if self._is_brief and step in ROUTINE:
            return
        if self._is_terminal:
            words = [f"{value}" if name in ("what", "why") else f"{name} {value}" for name, value in facts.items()]
            if step in SENTENCES:
                self._line(f"{self.job}: {step}: {', '.join(words)}\n")
            else:
                self._step = ", ".join([step, *words])
            self.draw()
            return
        line = {"job": self.job, "seconds": self.seconds, "step": step, **facts}
        self._write(json.dumps(line) + "\n")

    def draw(self) -> None:
        """Draw the step and the time, and the bar if there is a measure."""
        done, total = self._measure() if self._measure else (0, 0)
        filled = WIDTH * done // total if total else 0
        bar = f"{'█' * filled}{'░' * (WIDTH - filled)} {done}/{total}  " if total else ""
        self._line(f"{self.job}  {bar}{self._step}  {self.seconds:.0f} s")

    def close(self) -> None:
        """Remove the bar, and stop measuring."""
        self._over.set()
        if self._is_terminal:
            self._line("")

    @property
    def seconds(self) -> float:
        return round(time.monotonic() - self._began, 1)

    def _line(self, text: str) -> None:
        shown = "".join(one for one in text if one.isprintable() or one == "\n")
        with self._drawing:
            self._write(f"\r\x1b[K{shown[:200]}")

    def _write(self, text: str) -> None:
        """Write to the stream. The job continues if the stream's reader is gone, or a disk is full."""
        with suppress(OSError, ValueError):
            self._stream.write(text)
            self._stream.flush()

    def _tick(self) -> None:
        while not self._over.wait(TICK_SECONDS):
            try:
                self.draw()
            except Exception:  # the measured session has ended
                return


def say(job: str, text: str) -> None:
    """Print a sentence on stderr."""
    from ..settings.printable import printable  # imports all settings, 50 ms

    print(printable(f"leveret pipeline {job}: {text}"), file=sys.stderr, flush=True)
