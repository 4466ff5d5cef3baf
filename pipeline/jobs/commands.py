"""The jobs on the command line: from arguments to answers."""

import argparse
import os
import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from ..answers import EXIT_FAULT, EXIT_OK, Answer
from ..engines.protocol import Engine, Row, rows, value
from ..last_words import last_words
from ..output.formats import PAGES
from ..patience import patiently
from ..progress import Progress
from ..schemas import Columns, columns
from ..selection import Selection
from . import outputs
from .audit import audit, fates, judged_fates, unknown
from .backlog import depth
from .blocked import blocked
from .engine_table import EngineTable
from .losses import loss
from .opening import is_known, open_log, open_tables
from .redelivery import POISON_ATTEMPTS, redelivery
from .replay import CHOSEN, ORDER, ReplayOptions, batches, choose, log_of, send, urls, vhosts_chosen
from .story import deadletters, trace
from .tables import Tables
from .timing import fairness, latency
from .waiting import UNTOLD, is_told

#: Messages sent between two entries in the log: a replay that is killed may send this many again.
REPLAY_BATCH = 1000
#: Jobs that fold the lives of messages.
FOLDED = ("audit", "latency", "depth")
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


@dataclass(frozen=True, slots=True)
class Work:
    """What a job works with."""

    job: str
    tables: Tables
    options: argparse.Namespace
    progress: Progress

    @property
    def engine(self) -> Engine:
        """Who computes."""
        return self.tables.engine

    @property
    def selection(self) -> Selection:
        """What of the lake was asked for."""
        found: Selection = self.options.selection
        return found


class Opened:
    """The tables of a start of several jobs: what the one before has opened, and folded, is there for the next."""

    def __init__(self) -> None:
        self._of: object = None
        self._tables: Tables | None = None

    def tables(self, engine: Engine, job: str, options: argparse.Namespace) -> Tables:
        """Of the times that a job reads. Raises: as `open_tables`."""
        read = options.selection.read(job, options.window)
        if self._tables is None or self._of != (engine, read):
            self._of, self._tables = (engine, read), open_tables(options.lake, engine, *read)
            self._tables.is_shared = sum(one in FOLDED for one in options.jobs) > 1
        return self._tables


def run(
    engine: Engine, job: str, options: argparse.Namespace, progress: Progress, opened: Opened | None = None
) -> Answer:
    """Run one job. Raises: ValueError (such as NotRecorded), and Spark's exceptions."""
    whole = (opened or Opened()).tables(engine, job, options)
    progress.say("begin", lake=options.lake, engine=engine.name)
    missing = whole.missing()
    if missing:
        progress.say("missing", what=missing)
    work = Work(job, chosen_part(whole, job, options), options, progress)
    lost = work.tables.lost()
    if lost:
        progress.say("holes", what=lost)
    one = partial(JOBS[job], work)
    answer = one() if job == "replay" else patiently(one, progress)  # a replay tries its steps again
    more = {"missing": "; ".join([missing, *answer.facts.get("missing", ())])} if missing else {}
    more |= {"holes": lost} if lost else {}
    return replace(answer, facts={**answer.facts, "seconds": progress.seconds, **more})


def chosen_part(whole: Tables, job: str, options: argparse.Namespace) -> Tables:
    """What of the lake the job looks at. Raises: ValueError (a queue or virtual host that the lake does not know)."""
    selection: Selection = options.selection
    if not selection:
        return whole
    engine, dialect = whole.engine, whole.engine.dialect
    for column, names in (("vhost", selection.vhosts), ("queue", selection.queues)):
        for name in names:
            if not is_known(whole, column, name):
                what = {"vhost": "virtual host", "queue": "queue"}[column]
                raise ValueError(f"the lake knows no {what} {name!r}")
    conditions = {
        "events": selection.events(job, options.window, dialect),
        "snapshots": selection.snapshots(dialect),
    }
    if selection.until_us is not None:
        last = value(engine, f"SELECT max(lsn) FROM whole_events WHERE ts < {dialect.moment(selection.until_us)}") or 0
        conditions["checkpoints"] = f"end_lsn <= {last}"
        conditions["holes"] = f"first_lsn <= {last}"
    return whole.part({name: text for name, text in conditions.items() if text})


def _rows_of(sql: str, work: Work) -> str:
    """The rows of an answer that were asked for."""
    selection, dialect = work.selection, work.engine.dialect
    condition = selection.rows(work.job, work.options.window, dialect)
    if work.job == "audit" and selection.since_us is not None:
        since = value(work.engine, f"SELECT min(lsn) FROM events WHERE ts >= {dialect.moment(selection.since_us)}")
        newer = "false" if since is None else f"lsn >= {since}"
        condition = f"{condition} AND {newer}" if condition else newer
    return f"SELECT * FROM ({sql}) AS answer WHERE {condition}" if condition else sql


def _audit(work: Work) -> Answer:
    engine = work.engine
    found = EngineTable(engine, "audit", _rows_of(audit(work.tables), work), outputs.FAULTS)
    tables = {"faults": found}
    if work.tables.holes():
        tables["unknown"] = EngineTable(engine, "unknown", _rows_of(unknown(work.tables), work), outputs.FAULTS)
    by_fault = _counts(engine, "fault", found.name)
    work.progress.say("faults", **by_fault)
    every, counted = fates(work.tables), judged_fates(work.tables)
    if work.selection.since_us is not None:
        since = engine.dialect.moment(work.selection.since_us)
        every = counted = f"SELECT * FROM ({every}) AS fated WHERE coalesce(enqueued_ts, finished_ts) >= {since}"
    facts = {
        "fates": _counts(engine, "fate", f"({counted})"),
        "faults": by_fault,
        "checkpoints": value(engine, "SELECT count(*) FROM checkpoints"),
    }
    if "unknown" in tables:
        facts["unknown"] = _counts(engine, "fault", tables["unknown"].name)
    tables["message_fate"] = EngineTable(engine, "fates", every, outputs.MESSAGE_FATE, kept=False)
    return Answer("audit", tables, facts, EXIT_FAULT if by_fault else EXIT_OK)


def _counts(engine: Engine, name: str, among: str) -> dict[str, int]:
    counted = f"SELECT {name} AS what, count(*) AS n FROM {among} AS counted GROUP BY {name} ORDER BY {name}"
    return {row["what"]: row["n"] for row in rows(engine, counted)}


def _table(make: Callable[[Tables, argparse.Namespace], str]) -> Callable[[Work], Answer]:
    """A job that is one table."""

    def run_it(work: Work) -> Answer:
        found = _rows_of(make(work.tables, work.options), work)
        return Answer(work.job, {work.job: EngineTable(work.engine, work.job, found, COLUMNS[work.job])})

    return run_it


def _depth(work: Work) -> Answer:
    answer = _table(lambda tables, o: depth(tables, o.window))(work)
    if not work.tables.missing() or is_told(work.tables):
        return answer
    work.progress.say("missing", what=UNTOLD)
    return replace(answer, facts={"missing": [UNTOLD]})


def _trace(work: Work) -> Answer:
    """Raises: ValueError (there is no such message), NotRecorded."""
    tables, message = work.tables, work.options.message
    found = EngineTable(work.engine, "trace", _rows_of(trace(tables, message), work), outputs.TRACE)
    if not found.count():
        more = "; correlation ids, message ids and headers are in a lake only with `ingest --payloads`"
        gone = "".join(f"; {words}" for words in (tables.missing(), tables.lost()) if words)
        raise ValueError(f"no message {message!r} in the lake{'' if tables.are_contents_there() else more}{gone}")
    return Answer("trace", {"trace": found})


def _replay(work: Work) -> Answer:
    options, engine = work.options, work.engine
    settings = ReplayOptions(options.id or secrets.token_hex(8), options.where, options.rate, options.replays_max)
    path = open_log(options.lake, engine)
    count, sent = patiently(partial(choose, work.tables, settings), work.progress), 0
    if options.go and count:
        urls(vhosts_chosen(work.tables), options.url)  # refused before anything is sent
        everything = f"SELECT msg_id FROM {CHOSEN}"
        engine.append(log_of(work.tables, everything, settings, 0), path)  # about to be sent, in case this is killed
        for batch in batches(work.tables, REPLAY_BATCH):
            _send(batch, settings, options.url, f"{sent} of {count} messages were sent")
            some = ", ".join(str(row["msg_id"]) for row in batch)
            engine.append(log_of(work.tables, some, settings, 1), path)
            sent += len(batch)
            work.progress.say("sent", messages=sent)
    facts = {"replay_id": settings.replay_id, "chosen": count, "sent": sent, "dry": not options.go}
    shown = outputs.conform(engine.dialect, f"SELECT * FROM {CHOSEN}", COLUMNS["replay"])
    return Answer("replay", {"replay": EngineTable(engine, "replay", shown, COLUMNS["replay"], order=ORDER)}, facts)


def _send(batch: list[Row], settings: ReplayOptions, url: str, so_far: str) -> None:
    """Raises: ValueError (with the reason, and how to go on)."""
    try:
        send(batch, settings, url)
    except Exception as error:
        if os.environ.get("LEVERET_TRACEBACK"):
            raise
        raise ValueError(f"{last_words(error)}; {so_far}, and --id {settings.replay_id} sends the others") from error


def _whatif(work: Work) -> Answer:
    from .whatif import DIFFERENT, left_out, whatif  # it brings the broker's engine along

    options, engine = work.options, work.engine
    settings = Path(options.settings).read_text(encoding="utf-8") if options.settings else ""
    found = _rows_of(whatif(work.tables, settings), work)
    facts: dict[str, Any] = {}
    if without := left_out(work.tables):
        work.progress.say("left_out", what=without)
        facts["left_out"] = without
    if not options.verify:
        return Answer("whatif", {"whatif": EngineTable(engine, "whatif", found, COLUMNS["whatif"])}, facts)
    engine.view("compared", found, kept=True)  # Spark would simulate again for each question
    differing = EngineTable(engine, "whatif", f"SELECT * FROM compared WHERE {DIFFERENT}", COLUMNS["whatif"])
    facts |= {"compared": value(engine, "SELECT count(*) FROM compared"), "differing": differing.count()}
    return Answer("whatif", {"whatif": differing}, facts, EXIT_FAULT if facts["differing"] else EXIT_OK)


def _report(work: Work) -> Answer:
    """The other jobs' answers, each of the part of the lake that it looks at."""
    from .report import Asked, write_report  # the page is dear to import

    options = work.options
    whole = work.tables.part({})

    def answer(job: str, window_s: int) -> Answer:
        given = argparse.Namespace(**{**vars(options), "window": window_s, "poison_attempts": POISON_ATTEMPTS})
        return JOBS[job](Work(job, chosen_part(whole, job, given), given, work.progress))

    path = options.out or "report.html"
    if not path.endswith(PAGES):
        path = f"{path.rstrip('/')}/report.html"
    part = chosen_part(whole, "depth", options)
    asked = Asked(options.journal or options.lake, work.selection, part, answer)
    write_report(asked, path, options.window if options.is_window_given else None, work.progress)
    return Answer("report", facts={"file": path})


JOBS: dict[str, Callable[[Work], Answer]] = {
    "audit": _audit,
    "latency": _table(lambda tables, o: latency(tables, o.window)),
    "depth": _depth,
    "redelivery": _table(lambda tables, o: redelivery(tables, o.poison_attempts)),
    "loss": _table(lambda tables, o: loss(tables, o.window)),
    "fairness": _table(lambda tables, o: fairness(tables)),
    "blocked": _table(lambda tables, o: blocked(tables)),
    "trace": _trace,
    "deadletters": _table(lambda tables, o: deadletters(tables)),
    "whatif": _whatif,
    "replay": _replay,
    "report": _report,
}
