"""Progress of a job: lines of JSON on stderr, one per step; its result is one line on stdout."""

import json
import sys
import time
from typing import Any, TextIO


class Progress:
    """`stream`: where to, stderr unless given."""

    def __init__(self, job: str, stream: TextIO | None = None) -> None:
        self.job = job
        self._stream = stream if stream is not None else sys.stderr
        self._began = time.monotonic()

    def say(self, step: str, **facts: Any) -> None:
        """One line: the job, seconds since it began, the step, and more fields."""
        line = {"job": self.job, "seconds": round(time.monotonic() - self._began, 1), "step": step, **facts}
        print(json.dumps(line), file=self._stream, flush=True)

    @property
    def seconds(self) -> float:
        """Since it began."""
        return round(time.monotonic() - self._began, 1)
