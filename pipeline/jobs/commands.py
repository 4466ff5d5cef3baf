"""The jobs on the command line: from arguments to (output, exit code)."""

import argparse
import json
import os
import secrets
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from ..lake.lake import absolute
from ..last_words import last_words
from ..patience import patiently
from ..progress import Progress
from .audit import audit, fates
from .backlog import depth, loss
from .blocked import blocked
from .frames import Frames
from .lives import lives
from .redelivery import redelivery
from .replay import ReplayOptions, batches, chosen, log_of, send, urls
from .story import deadletters, trace
from .timing import fairness, latency
from .whatif import whatif

EXIT_OK, EXIT_FAULT = 0, 2
#: Messages sent between two entries in the log: a replay that is killed may send this many again.
REPLAY_BATCH = 1000
Outcome = tuple[dict[str, Any], int]


def run(spark: Any, options: argparse.Namespace) -> Outcome:
    """Run one job. Raises: ValueError (such as NotRecorded), and Spark's exceptions."""
    frames = Frames.of_lake(spark, options.lake)
    progress = Progress(options.job)
    progress.say("begin", lake=options.lake)
    missing = frames.missing()
    if missing:
        progress.say("missing", what=missing)
    work = partial(JOBS[options.job], spark, frames, options, progress)
    result, code = work() if options.job == "replay" else patiently(work, progress)  # a replay tries its steps again
    return ({**result, "missing": missing} if missing else result), code


def kept(frame: Any) -> Any:
    """Computed once; what does not fit into memory is on disk."""
    from pyspark import StorageLevel

    return frame.persist(StorageLevel.MEMORY_AND_DISK)


def _audit(spark: Any, frames: Frames, options: argparse.Namespace, progress: Progress) -> Outcome:
    folded = kept(lives(frames.events))
    found = kept(audit(frames, folded))
    by_fault = {row["fault"]: row["count"] for row in found.groupBy("fault").count().collect()}
    progress.say("faults", **by_fault)
    by_fate = {row["fate"]: row["count"] for row in fates(frames, folded).groupBy("fate").count().collect()}
    if options.out:
        _write(found, options.out, "faults")
        _write(fates(frames, folded), options.out, "message_fate")
    result = {
        "job": "audit",
        "fates": by_fate,
        "faults": by_fault,
        "found": _rows(found.orderBy("msg_id", "queue", "lsn"), options.rows),
        "checkpoints": frames.checkpoints.count(),
        "seconds": progress.seconds,
    }
    return result, EXIT_FAULT if by_fault else EXIT_OK


def _table(make: Callable[[Frames, argparse.Namespace], Any]) -> Callable[..., Outcome]:
    """A job that is one table."""

    def run_it(spark: Any, frames: Frames, options: argparse.Namespace, progress: Progress) -> Outcome:
        found = kept(make(frames, options))
        count = found.count()
        if options.out:
            _write(found, options.out, options.job)
        result = {"job": options.job, "rows": count, "table": _rows(found, options.rows), "seconds": progress.seconds}
        return result, EXIT_OK

    return run_it


def _traced(frames: Frames, message: str) -> Any:
    """Raises: ValueError (there is no such message), NotRecorded."""
    found = kept(trace(frames, message))
    if found.isEmpty():
        more = "; correlation ids, message ids and headers are in a lake only with `ingest --payloads`"
        raise ValueError(f"no message {message!r} in the lake{more if frames.payloads.isEmpty() else ''}")
    return found


def _replay(spark: Any, frames: Frames, options: argparse.Namespace, progress: Progress) -> Outcome:
    settings = ReplayOptions(options.id or secrets.token_hex(8), options.where, options.rate, options.replays_max)
    path = f"{absolute(options.lake).rstrip('/')}/replay_log"
    # The log grows; the chosen messages stay.
    rows = patiently(chosen(frames, settings, _log(spark, path)).localCheckpoint, progress)
    count = rows.count()
    result = {"job": "replay", "replay_id": settings.replay_id, "chosen": count, "sent": 0, "dry": not options.go}
    result["table"] = _rows(rows.select("msg_id", "source_lsn", "vhost", "exchange", "routing_key"), options.rows)
    if options.go and count:
        urls(rows, options.url)  # refused before anything is sent
        log_of(rows, settings, 0).write.mode("append").parquet(path)  # about to be sent, in case this is killed
        for batch in batches(rows, REPLAY_BATCH):
            _send(batch, settings, options.url, f"{result['sent']} of {count} messages were sent", progress)
            log_of(batch, settings, 1).write.mode("append").parquet(path)
            result["sent"] += batch.count()
            progress.say("sent", messages=result["sent"])
    return result, EXIT_OK


def _send(rows: Any, settings: ReplayOptions, url: str, so_far: str, progress: Progress) -> None:
    """Raises: ValueError (with the reason, and how to go on)."""
    try:
        send(rows, settings, url, progress)
    except Exception as error:
        if os.environ.get("LEVERET_TRACEBACK"):
            raise
        raise ValueError(f"{last_words(error)}; {so_far}, and --id {settings.replay_id} sends the others") from error


def _log(spark: Any, path: str) -> Any:
    from pyspark.errors import AnalysisException

    try:
        return spark.read.parquet(path)
    except AnalysisException:
        return None  # nothing was ever replayed from this lake


def _report(spark: Any, frames: Frames, options: argparse.Namespace, progress: Progress) -> Outcome:
    from .report import write_report

    write_report(frames, options.out or "report.html", options.window, progress)
    return {"job": "report", "file": options.out or "report.html", "seconds": progress.seconds}, EXIT_OK


def _rows(frame: Any, count: int) -> list[dict[str, Any]]:
    return [json.loads(text) for text in frame.limit(count).toJSON().collect()]


def _write(frame: Any, out: str, name: str) -> None:
    frame.write.mode("overwrite").parquet(f"{absolute(out).rstrip('/')}/{name}")


JOBS: dict[str, Callable[..., Outcome]] = {
    "audit": _audit,
    "latency": _table(lambda frames, o: latency(lives(frames.with_deliveries("latency").events), o.window)),
    "depth": _table(lambda frames, o: depth(lives(frames.events), o.window, frames.span()[1])),
    "redelivery": _table(lambda frames, o: redelivery(frames, o.poison_attempts)),
    "loss": _table(lambda frames, o: loss(lives(frames.events), o.window)),
    "fairness": _table(lambda frames, o: fairness(frames)),
    "blocked": _table(lambda frames, o: blocked(frames)),
    "trace": _table(lambda frames, o: _traced(frames, o.message)),
    "deadletters": _table(lambda frames, o: deadletters(frames)),
    "whatif": _table(lambda frames, o: whatif(frames, Path(o.settings).read_text(encoding="utf-8"))),
    "replay": _replay,
    "report": _report,
}
