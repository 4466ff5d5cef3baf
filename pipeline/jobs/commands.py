"""The jobs on the command line: from arguments to answers."""

import argparse
import os
import secrets
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from ..answers import EXIT_FAULT, EXIT_OK, Answer
from ..lake.lake import absolute
from ..last_words import last_words
from ..patience import patiently
from ..progress import Progress
from ..schemas import Columns, columns
from ..selection import Selection, SparkSql
from . import outputs
from .audit import audit, fates
from .backlog import depth, loss
from .blocked import blocked
from .frames import Frames
from .lives import lives
from .redelivery import redelivery
from .replay import ReplayOptions, batches, chosen, log_of, send, urls
from .spark_table import SparkTable, kept
from .story import deadletters, trace
from .timing import fairness, latency
from .whatif import whatif

#: Messages sent between two entries in the log: a replay that is killed may send this many again.
REPLAY_BATCH = 1000
SQL = SparkSql()
#: The columns of the table that a job prints.
COLUMNS: dict[str, Columns] = {
    "audit": outputs.FAULTS,
    "latency": outputs.LATENCY,
    "depth": outputs.DEPTH,
    "redelivery": outputs.REDELIVERY,
    "loss": outputs.LOSS,
    "fairness": outputs.FAIRNESS,
    "blocked": outputs.BLOCKED,
    "trace": outputs.TRACE,
    "deadletters": outputs.DEADLETTERS,
    "whatif": outputs.WHATIF,
    "replay": columns("msg_id bigint, source_lsn bigint, vhost string, exchange string, routing_key string"),
}
Make = Callable[[Frames, argparse.Namespace], Any]


def run(spark: Any, job: str, options: argparse.Namespace, progress: Progress) -> Answer:
    """Run one job. Raises: ValueError (such as NotRecorded), and Spark's exceptions."""
    whole = Frames.of_lake(spark, options.lake)
    progress.say("begin", lake=options.lake)
    missing = whole.missing()
    if missing:
        progress.say("missing", what=missing)
    frames = chosen_part(whole, job, options)
    work = partial(JOBS[job], spark, frames, options, progress)
    answer = work() if job == "replay" else patiently(work, progress)  # a replay tries its steps again
    more = {"missing": missing} if missing else {}
    return replace(answer, facts={**answer.facts, "seconds": progress.seconds, **more})


def chosen_part(frames: Frames, job: str, options: argparse.Namespace) -> Frames:
    """What of the lake the job looks at. Raises: ValueError (a queue or virtual host that the lake does not know)."""
    selection: Selection = options.selection
    if not selection:
        return frames
    for column, names in (("vhost", selection.vhosts), ("queue", selection.queues)):
        for name in names:
            if frames.events.where(f"{column} = {SQL.text(name)}").isEmpty():
                what = {"vhost": "virtual host", "queue": "queue"}[column]
                raise ValueError(f"the lake knows no {what} {name!r}")
    if selection.until_us is not None:
        last = frames.events.where(f"ts < {SQL.moment(selection.until_us)}").agg({"lsn": "max"}).first()[0] or 0
        frames = replace(frames, checkpoints=frames.checkpoints.where(f"end_lsn <= {last}"))
    events = selection.events(job, options.window, SQL)
    snapshots = selection.snapshots(SQL)
    if events:
        frames = replace(frames, events=frames.events.where(events))
    return replace(frames, snapshots=frames.snapshots.where(snapshots)) if snapshots else frames


def _rows_of(frame: Any, job: str, options: argparse.Namespace, frames: Frames) -> Any:
    """The rows of an answer that were asked for."""
    selection: Selection = options.selection
    condition = selection.rows(job, options.window, SQL)
    frame = frame.where(condition) if condition else frame
    if job == "audit" and selection.since_us is not None:
        since = frames.events.where(f"ts >= {SQL.moment(selection.since_us)}").agg({"lsn": "min"}).first()[0]
        frame = frame.where("false" if since is None else f"lsn >= {since}")
    return frame


def _audit(spark: Any, frames: Frames, options: argparse.Namespace, progress: Progress) -> Answer:
    folded = kept(lives(frames.events))
    found = kept(_rows_of(audit(frames, folded), "audit", options, frames))
    by_fault = {row["fault"]: row["count"] for row in found.groupBy("fault").count().collect()}
    progress.say("faults", **by_fault)
    selection: Selection = options.selection
    every = fates(frames, folded)
    if selection.since_us is not None:
        every = every.where(f"coalesce(enqueued_ts, finished_ts) >= {SQL.moment(selection.since_us)}")
    by_fate = {row["fate"]: row["count"] for row in every.groupBy("fate").count().collect()}
    facts = {
        "fates": dict(sorted(by_fate.items())),
        "faults": dict(sorted(by_fault.items())),
        "checkpoints": frames.checkpoints.count(),
    }
    tables = {
        "faults": SparkTable(found.orderBy("msg_id", "vhost", "queue", "lsn", "fault"), outputs.FAULTS),
        "message_fate": SparkTable(every.orderBy("msg_id", "vhost", "queue"), outputs.MESSAGE_FATE),
    }
    return Answer("audit", tables, facts, EXIT_FAULT if by_fault else EXIT_OK)


def _table(job: str, make: Make, *order: str) -> Callable[..., Answer]:
    """A job that is one table. `order`: by which columns, unless `make` sorts it."""

    def run_it(spark: Any, frames: Frames, options: argparse.Namespace, progress: Progress) -> Answer:
        found = _rows_of(make(frames, options), job, options, frames)
        return Answer(job, {job: SparkTable(found.orderBy(*order) if order else found, COLUMNS[job])})

    return run_it


def _traced(frames: Frames, message: str) -> Any:
    """Raises: ValueError (there is no such message), NotRecorded."""
    found = kept(trace(frames, message))
    if found.isEmpty():
        more = "; correlation ids, message ids and headers are in a lake only with `ingest --payloads`"
        raise ValueError(f"no message {message!r} in the lake{more if frames.payloads.isEmpty() else ''}")
    return found


def _replay(spark: Any, frames: Frames, options: argparse.Namespace, progress: Progress) -> Answer:
    settings = ReplayOptions(options.id or secrets.token_hex(8), options.where, options.rate, options.replays_max)
    path = f"{absolute(options.lake).rstrip('/')}/replay_log"
    # The log grows; the chosen messages stay.
    rows = patiently(chosen(frames, settings, _log(spark, path)).localCheckpoint, progress)
    count, sent = rows.count(), 0
    if options.go and count:
        urls(rows, options.url)  # refused before anything is sent
        log_of(rows, settings, 0).write.mode("append").parquet(path)  # about to be sent, in case this is killed
        for batch in batches(rows, REPLAY_BATCH):
            _send(batch, settings, options.url, f"{sent} of {count} messages were sent", progress)
            log_of(batch, settings, 1).write.mode("append").parquet(path)
            sent += batch.count()
            progress.say("sent", messages=sent)
    facts = {"replay_id": settings.replay_id, "chosen": count, "sent": sent, "dry": not options.go}
    shown = rows.select(*(column.name for column in COLUMNS["replay"]))
    return Answer("replay", {"replay": SparkTable(shown, COLUMNS["replay"])}, facts)


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


def _report(spark: Any, frames: Frames, options: argparse.Namespace, progress: Progress) -> Answer:
    from .report import write_report

    path = options.out or "report.html"
    write_report(frames, path, options.window, progress)
    return Answer("report", facts={"file": path})


JOBS: dict[str, Callable[..., Answer]] = {
    "audit": _audit,
    "latency": _table(
        "latency",
        lambda frames, o: latency(lives(frames.with_deliveries("latency").events), o.window),
        *("vhost", "queue", "window_start"),
    ),
    "depth": _table("depth", lambda frames, o: depth(lives(frames.events), o.window, frames.span()[1])),
    "redelivery": _table("redelivery", lambda frames, o: redelivery(frames, o.poison_attempts)),
    "loss": _table(
        "loss", lambda frames, o: loss(lives(frames.events), o.window), "vhost", "queue", "window_start", "cause"
    ),
    "fairness": _table("fairness", lambda frames, o: fairness(frames), "vhost", "queue", "consumer", "conn_id"),
    "blocked": _table("blocked", lambda frames, o: blocked(frames)),
    "trace": _table("trace", lambda frames, o: _traced(frames, o.message)),
    "deadletters": _table("deadletters", lambda frames, o: deadletters(frames)),
    "whatif": _table(
        "whatif",
        lambda frames, o: whatif(frames, Path(o.settings).read_text(encoding="utf-8")),
        *("vhost", "queue", "what"),
    ),
    "replay": _replay,
    "report": _report,
}
