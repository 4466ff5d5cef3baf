"""`python -m leveret.pipeline JOB ...`: what `leveret pipeline` runs as a process of its own.

Progress is lines of JSON on stderr, the result one line of JSON on stdout. Exit 0: done; 1: it could not be done, with
a sentence on stderr; 2: done, and the audit found a fault; 130: interrupted. However it ends, Spark's Java ends, too.
"""

import argparse
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

EXIT_OK, EXIT_FAILED, EXIT_FAULT, EXIT_INTERRUPTED = 0, 1, 2, 130

Job = Callable[[Any, argparse.Namespace], tuple[dict[str, Any], int]]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one job; returns its exit code."""
    options = parser().parse_args(arguments)
    _end_with_parent()
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        return _run(options)
    except KeyboardInterrupt:
        _say(options.job, "interrupted")
        return EXIT_INTERRUPTED


def parser() -> argparse.ArgumentParser:
    """The command line."""
    found = argparse.ArgumentParser(prog="leveret pipeline", description="The journal on Spark.")
    jobs = found.add_subparsers(required=True, metavar="JOB", dest="job")
    one = jobs.add_parser("ingest", help="bring a lake of Parquet tables up to where the journal is")
    one.add_argument("--journal", required=True, metavar="DIR", help="a journal, or a broker's data directory; or URI")
    one.add_argument("--lake", "--out", required=True, metavar="DIR", help="where the tables are; or URI")
    one.add_argument("--payloads", action="store_true", help="also the messages' contents")
    one.add_argument("--max-bytes", type=int, default=None, metavar="N", help="octets of journal a micro-batch")
    add_spark_options(one)
    one.set_defaults(run=_ingest)
    return found


def add_spark_options(one: argparse.ArgumentParser) -> None:
    """What every job takes."""
    one.add_argument("--master", default="local[*]", metavar="URL", help="local[N], spark://HOST:PORT, yarn, ...")
    one.add_argument("--driver-memory", default="4g", metavar="SIZE", help="of Spark's Java on this machine")
    one.add_argument("--conf", action="append", default=[], metavar="NAME=VALUE", help="a setting of Spark's own")


def _run(options: argparse.Namespace) -> int:
    for setting in options.conf:
        if "=" not in setting:
            return _fail(options.job, f"--conf {setting}: expected NAME=VALUE")
    try:
        from ..journal.errors import JournalError
        from .java import NoJava
        from .lake import LakeBusy
        from .positions import JournalPlan
        from .session import SessionOptions, open_session
    except ImportError as error:
        return _fail(options.job, f"{error}; the pipeline needs pip install 'leveret[spark]'")
    session_options = SessionOptions(
        master=options.master,
        name=f"leveret {options.job}",
        driver_memory=options.driver_memory,
        more=dict(setting.split("=", 1) for setting in options.conf),
    )
    spark: Any = None
    try:
        if getattr(options, "journal", None) is not None:
            JournalPlan(options.journal)  # what can be said at once need not wait for Spark
        spark = open_session(session_options)
        result, code = options.run(spark, options)
        print(json.dumps(result), flush=True)
        return int(code)
    except (JournalError, NoJava, LakeBusy, ValueError, OSError) as error:
        return _fail(options.job, str(error))
    except Exception as error:  # whatever Spark's Java or a task raised: its last words, not its hundred lines
        if os.environ.get("LEVERET_TRACEBACK"):
            raise
        return _fail(options.job, _last_words(error))
    finally:
        if spark is not None:
            spark.stop()


def _ingest(spark: Any, options: argparse.Namespace) -> tuple[dict[str, Any], int]:
    from .ingest import MAX_BYTES, IngestOptions, ingest
    from .progress import Progress

    said = IngestOptions(options.journal, options.lake, options.payloads, options.max_bytes or MAX_BYTES)
    return ingest(spark, said, Progress("ingest")), EXIT_OK


def _last_words(error: Exception) -> str:
    """The sentence of ours within Spark's report, or its first line."""
    text = str(error)
    for line in text.splitlines():
        words = line.strip()
        if words.startswith("leveret.") and ": " in words:
            return words.split(": ", 1)[1]
    return (text.strip().splitlines() or [type(error).__name__])[0]


def _say(job: str, text: str) -> None:
    print(f"leveret pipeline {job}: {text}", file=sys.stderr, flush=True)


def _fail(job: str, text: str) -> int:
    _say(job, text)
    return EXIT_FAILED


def _interrupt(*_: Any) -> None:
    raise KeyboardInterrupt


def _end_with_parent() -> None:
    """Under `leveret` stdin is a pipe that says nothing: when it ends, the parent was killed, and this ends, too."""
    if os.environ.get("LEVERET_PIPELINE_CHILD") != "1":
        return

    def watch() -> None:
        while os.read(0, 1):  # not sys.stdin: its lock would be held when the interpreter ends
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()


if __name__ == "__main__":
    sys.exit(main())
