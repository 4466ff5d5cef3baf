"""`python -m leveret.pipeline JOB ...`: what `leveret pipeline` runs as a process of its own.

Progress is on stderr (a bar on a terminal, else lines of JSON), the result on stdout. Exit 0: done; 1: failed, with a
sentence on stderr, or nothing was found; 2: the audit found a fault; 3: a --fail-if holds; 130: interrupted. Spark's
Java ends with it in every case.
"""

import os
import signal
import sys
import threading
from collections.abc import Sequence
from typing import Any

from .answers import EXIT_INTERRUPTED
from .options import Refused, parse
from .running import run, say


def main(arguments: Sequence[str] | None = None) -> int:
    """Run jobs; returns the exit code."""
    try:
        options = parse(arguments)
    except Refused as refused:
        return refused.code
    _end_with_parent()
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        return run(options)
    except KeyboardInterrupt:
        say(options.job, "interrupted")
        return EXIT_INTERRUPTED


def _interrupt(*_: Any) -> None:
    raise KeyboardInterrupt


def _end_with_parent() -> None:
    """Under `leveret` stdin is an empty pipe: when it ends, the parent was killed, and this process ends, too."""
    if os.environ.get("LEVERET_PIPELINE_CHILD") != "1":
        return

    def watch() -> None:
        while os.read(0, 1):  # not sys.stdin: its lock would be held when the interpreter ends
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()


if __name__ == "__main__":
    sys.exit(main())
