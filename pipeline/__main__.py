"""`python -m leveret.pipeline JOB ...`: the process that `leveret pipeline` starts.

Progress is on stderr (a bar on a terminal, else lines of JSON), the result on stdout. Exit codes: 0: done; 1: failed,
with a sentence on stderr, or nothing was found; 2: the audit found a fault; 3: a condition of --fail-if is true; 130:
interrupted. Spark's Java process ends with this one.
"""

import os
import signal
import sys
import threading
from collections.abc import Sequence
from io import FileIO, TextIOWrapper
from typing import Any

from .answers import EXIT_INTERRUPTED
from .options import Refused, parse
from .progress import say
from .running import run
from .serve_command import serve


def main(arguments: Sequence[str] | None = None) -> int:
    """Run jobs. Returns the exit code."""
    try:
        options = parse(arguments)
    except Refused as refused:
        return refused.code
    _end_with_command()
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        return serve(options, sys.stdin or ()) if options.job == "serve" else run(options)
    except KeyboardInterrupt:
        say(options.job, "interrupted")
        return EXIT_INTERRUPTED


def _interrupt(*_: Any) -> None:
    raise KeyboardInterrupt


def _end_with_command() -> None:
    """End when the parent, `leveret`, ends: that closes this process's stdin, a pipe to which nothing is written."""
    if os.environ.get("LEVERET_PIPELINE_CHILD") != "1":
        return

    def watch() -> None:
        while os.read(0, 1):  # not sys.stdin, whose lock this thread would still hold when the interpreter ends
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()


def _main_of_process() -> int:
    """Run as a process: replace closed streams, and escape what a stream's character set lacks."""
    while (nowhere := os.open(os.devnull, os.O_RDWR)) <= 2:  # else a file that is opened later would become stdout
        pass
    os.close(nowhere)
    sys.stdout = sys.stdout or TextIOWrapper(FileIO(1, "w"), encoding="utf-8")
    sys.stderr = sys.stderr or TextIOWrapper(FileIO(2, "w"), encoding="utf-8")
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    return main()


if __name__ == "__main__":
    sys.exit(_main_of_process())
