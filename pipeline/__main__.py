"""`python -m leveret.pipeline JOB ...`: what `leveret pipeline` runs as a process of its own.

Progress is lines of JSON on stderr, the result one line of JSON on stdout. Exit 0: done; 1: failed, with a sentence on
stderr; 2: done, and the audit found a fault; 130: interrupted. Spark's Java ends with it in every case.
"""

import argparse
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from math import inf
from pathlib import Path
from typing import Any, TypeVar

from ..settings.printable import printable
from .last_words import last_words

N = TypeVar("N", int, float)
EXIT_OK, EXIT_FAILED, EXIT_FAULT, EXIT_INTERRUPTED = 0, 1, 2, 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one job; returns its exit code."""
    try:
        options = parser().parse_args(arguments)
        if getattr(options, "message", "") == []:  # argparse makes an empty list of a second "--"
            parser().error("MESSAGE is missing: '--' is none")
    except SystemExit as end:  # argparse exits with 2, which here means that an audit found a fault
        return EXIT_FAILED if end.code else EXIT_OK
    _end_with_parent()
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        return _run(options)
    except KeyboardInterrupt:
        _say(options.job, "interrupted")
        return EXIT_INTERRUPTED


def parser() -> argparse.ArgumentParser:
    """The command line."""
    found = argparse.ArgumentParser(prog="leveret pipeline", description="Read the journal with Spark.")
    jobs = found.add_subparsers(required=True, metavar="JOB", dest="job")
    one = jobs.add_parser("ingest", help="bring a lake of Parquet tables up to date with the journal")
    one.add_argument("--journal", required=True, metavar="DIR", help="a journal, or a broker's data directory; or URI")
    one.add_argument("--lake", "--out", required=True, metavar="DIR", help="directory of the tables; or URI")
    one.add_argument("--payloads", action="store_true", help="also store the contents of messages")
    one.add_argument("--max-bytes", type=_positive, default=None, metavar="N", help="octets of journal per micro-batch")
    add_spark_options(one)
    one.set_defaults(run=_ingest)
    one = jobs.add_parser(
        "forget", help="release a lake that is no longer wanted: the journal keeps nothing more for it"
    )
    one.add_argument("--journal", required=True, metavar="DIR", help="a journal, or a broker's data directory")
    one.add_argument("--lake", required=True, metavar="DIR", help="the lake, which need not exist any more; or URI")
    one.set_defaults(run=None, conf=[])
    for name, text in JOBS.items():
        one = jobs.add_parser(name, help=text)
        one.add_argument("--lake", required=True, metavar="DIR", help="a lake that ingest filled; or URI")
        one.add_argument("--out", metavar="PATH", help="write the whole result there (Parquet; a report: HTML)")
        one.add_argument("--rows", type=_count, default=20, metavar="N", help="rows to print (20)")
        one.add_argument("--window", type=_positive, default=60, metavar="SECONDS", help="of tables by time (60)")
        if name == "trace":
            one.add_argument("message", metavar="MESSAGE", help="an id, a correlation or message id, or HEADER=VALUE")
        if name == "redelivery":
            one.add_argument(
                "--poison-attempts", type=_positive, default=5, metavar="N", help="attempts of a poison message"
            )
        if name == "whatif":
            one.add_argument("--settings", required=True, metavar="FILE", help="TOML, as for serve --config")
        if name == "replay":
            _add_replay_options(one)
        add_spark_options(one)
        one.set_defaults(run=_job)
    return found


#: Jobs on a lake, with their help.
JOBS = {
    "audit": "was anything lost, duplicated, reordered? exit code 2 if so",
    "latency": "how long messages waited and were processed",
    "depth": "how much was waiting, over time",
    "redelivery": "which messages keep failing",
    "loss": "what rings, expiry and limits discarded",
    "fairness": "how many messages each consumer got",
    "blocked": "which publishers waited for room, where, and how long",
    "trace": "one message's whole story",
    "deadletters": "why messages died, and where they went",
    "whatif": "what another configuration would have done with the same arrivals",
    "replay": "publish chosen messages again; a dry run without --go",
    "report": "one HTML page with plots",
}


def _positive(text: str) -> int:
    return _number(text, int, 1)


def _count(text: str) -> int:
    return _number(text, int, 0)


def _rate(text: str) -> float:
    return _number(text, float, 0)


def _number(text: str, kind: Callable[[str], N], least: int) -> N:
    try:
        number = kind(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no number") from None
    if not least <= number < inf:
        raise argparse.ArgumentTypeError(f"must be {least} or more")
    return number


def _add_replay_options(one: argparse.ArgumentParser) -> None:
    one.add_argument("--where", required=True, metavar="SQL", help="SQL over the columns of events and payloads")
    one.add_argument("--go", action="store_true", help="send; without it only show what would be sent")
    one.add_argument("--url", metavar="URL", help="the broker: amqp://USER:PASSWORD@HOST:PORT/VHOST")
    one.add_argument(
        "--rate", type=_rate, default=100.0, metavar="N", help="messages per second (100); 0: as fast as possible"
    )
    one.add_argument("--id", metavar="ID", help="continue the replay with this id: what it has sent is not sent again")
    one.add_argument(
        "--replays-max", type=_positive, default=3, metavar="N", help="skip messages that were replayed this often (3)"
    )


def _job(spark: Any, options: argparse.Namespace) -> tuple[dict[str, Any], int]:
    from .jobs.commands import run

    return run(spark, options)


def _check(options: argparse.Namespace) -> None:
    """Checks that need not wait for Spark. Raises: ValueError, JournalError, OSError."""
    from .lake.commits import CHECKPOINTS, LocalFiles, check_journal
    from .lake.lake import absolute
    from .reading.positions import JournalPlan

    if options.job == "ingest":
        plan = JournalPlan(options.journal)
        if "://" not in options.lake:
            check_journal(LocalFiles(), absolute(options.lake), plan)
        return
    if "://" not in options.lake and not Path(options.lake, CHECKPOINTS).is_dir():
        fill = f"`leveret pipeline ingest --journal DIR --lake {options.lake}` fills one"
        raise ValueError(f"{options.lake}: no lake here; {fill}")
    if options.job == "replay" and options.go and not options.url:
        raise ValueError("--go needs --url")
    if options.job == "whatif":
        from .jobs.simulation import read_settings

        read_settings(Path(options.settings).read_text())


def add_spark_options(one: argparse.ArgumentParser) -> None:
    """The options of every job."""
    one.add_argument("--master", default="local[*]", metavar="URL", help="local[N], spark://HOST:PORT, yarn, ...")
    one.add_argument("--driver-memory", default="4g", metavar="SIZE", help="heap of Spark's Java on this machine")
    one.add_argument("--conf", action="append", default=[], metavar="NAME=VALUE", help="a setting of Spark")


def _forget(options: argparse.Namespace) -> int:
    """Run `forget`, which needs no Spark."""
    from ..journal import JournalError, forget_reader, reader_offsets
    from ..journal.disk.directory import find_journal, read_identity
    from .lake.lake import reader_prefix

    try:
        directory = find_journal(options.journal)
        read_identity(directory)
        gone = [name for name in reader_offsets(directory) if name.startswith(reader_prefix(options.lake))]
        for name in gone:
            forget_reader(directory, name)
    except (JournalError, OSError) as error:
        return _fail(options.job, str(error))
    if not gone:
        return _fail(options.job, f"{directory} keeps nothing for a lake {options.lake}")
    print(json.dumps({"forgotten": gone}))
    return EXIT_OK


def _run(options: argparse.Namespace) -> int:
    if options.job == "forget":
        return _forget(options)
    for setting in options.conf:
        if "=" not in setting:
            return _fail(options.job, f"--conf {setting}: expected NAME=VALUE")
    try:
        from ..journal.format.errors import JournalError
        from .java import NoJava
        from .lake.lake import LakeBusy
        from .session import SessionOptions, open_session
    except ImportError as error:
        return _fail(options.job, f"{error}; the pipeline needs pip install 'leveret[spark]'")
    session_options = SessionOptions(
        master=options.master,
        name=f"leveret {options.job}",
        driver_memory=options.driver_memory,
        log_level="error" if os.environ.get("LEVERET_TRACEBACK") else "off",  # its error is reported below
        more=dict(setting.split("=", 1) for setting in options.conf),
    )
    spark: Any = None
    try:
        _check(options)
        spark = open_session(session_options)
        result, code = options.run(spark, options)
        print(json.dumps(result), flush=True)
        return int(code)
    except (JournalError, NoJava, LakeBusy, ValueError) as error:
        return _fail(options.job, str(error))
    except OSError as error:
        return _fail(options.job, f"{error.filename}: {error.strerror}" if error.filename else str(error))
    except Exception as error:  # for anything that Spark's Java or a task raised, print one line, not a hundred
        if os.environ.get("LEVERET_TRACEBACK"):
            raise
        return _fail(options.job, last_words(error))
    finally:
        if spark is not None:
            spark.stop()


def _ingest(spark: Any, options: argparse.Namespace) -> tuple[dict[str, Any], int]:
    from .lake.ingest import MAX_BYTES, IngestOptions, ingest
    from .progress import Progress

    ingest_options = IngestOptions(options.journal, options.lake, options.payloads, options.max_bytes or MAX_BYTES)
    return ingest(spark, ingest_options, Progress("ingest")), EXIT_OK


def _say(job: str, text: str) -> None:
    print(printable(f"leveret pipeline {job}: {text}"), file=sys.stderr, flush=True)


def _fail(job: str, text: str) -> int:
    _say(job, text)
    return EXIT_FAILED


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
