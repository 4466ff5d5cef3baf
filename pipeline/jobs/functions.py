"""The functions of the jobs: from tables and options to answers."""

import argparse
import os
import secrets
import shlex
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..answers import EXIT_FAULT, EXIT_OK, Answer
from ..engines.protocol import Engine, Row, value
from ..error_texts import spark_error_text
from ..lake.delta_tables import absolute
from ..lake.nodes import first_node
from ..output.formats import PAGES, write_text
from ..progress import Progress
from ..retries import retry_slow_workers
from ..schemas import Columns, columns
from ..selection import Selection
from . import outputs
from .audit import allowed, audit, fates, unknown
from .backlog import NO_CHECKPOINT, blocked, depth
from .engine_table import EngineTable, counts
from .failures import POISON_ATTEMPTS, deadletters, loss, redelivery
from .opening import is_known, open_log
from .replay import CHOSEN, ORDER, ReplayOptions, batches, choose, log_of, send, urls, vhosts_chosen
from .tables import Tables
from .timing import fairness, latency
from .trace import trace, trace_messages

if TYPE_CHECKING:
    from ..report.model import Report

#: Messages that a replay sends between two entries in its log. After a kill it may send up to this many again.
REPLAY_BATCH = 1000
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
class JobContext:
    """The argument of the functions in `JOBS`: a job, and what it works on."""

    job: str
    tables: Tables
    options: argparse.Namespace
    progress: Progress

    @property
    def engine(self) -> Engine:
        return self.tables.engine

    @property
    def selection(self) -> Selection:
        found: Selection = self.options.selection
        return found


def selected_tables(
    whole: Tables, job: str, options: argparse.Namespace, missing: set[tuple[str, str]] | None = None
) -> Tables:
    """The part of the tables that the options select.

    missing: gets ("virtual host" or "queue", name) for each selected name that the tables do not have. Raises:
    ValueError (a name is lacking, and `missing` is None).
    """
    selection: Selection = options.selection
    if not selection:
        return whole
    engine, dialect = whole.engine, whole.engine.dialect
    for column, names in (("vhost", selection.vhosts), ("queue", selection.queues)):
        for name in names:
            if not is_known(whole, column, name):
                what = {"vhost": "virtual host", "queue": "queue"}[column]
                if missing is not None:
                    missing.add((what, name))
                    continue
                raise ValueError(f"the lake knows no {what} {name!r}")
    conditions = {
        "events": selection.events_condition(job, options.window, dialect),
        "snapshots": selection.snapshots_condition(dialect),
    }
    if selection.until_us is not None:
        until = dialect.timestamp(selection.until_us)
        last = value(engine, f"SELECT max(lsn) FROM whole_events WHERE ts < {until}") or 0
        conditions["checkpoints"] = f"end_lsn <= {last}"
        conditions["holes"] = f"first_lsn <= {last}"
    return whole.part({name: text for name, text in conditions.items() if text})


def _selected_rows(sql: str, work: JobContext) -> str:
    """SQL of the rows of an answer that the options select."""
    selection, dialect = work.selection, work.engine.dialect
    condition = selection.rows_condition(work.job, work.options.window, dialect)
    if work.job == "audit" and selection.since_us is not None:
        since = value(work.engine, f"SELECT min(lsn) FROM events WHERE ts >= {dialect.timestamp(selection.since_us)}")
        newer = "false" if since is None else f"lsn >= {since}"
        condition = f"{condition} AND {newer}" if condition else newer
    return f"SELECT * FROM ({sql}) AS answer WHERE {condition}" if condition else sql


def _audit(work: JobContext) -> Answer:
    engine = work.engine
    audited = audit(work.tables)
    found = EngineTable(engine, "audit", _selected_rows(audited.faults, work), outputs.FAULTS)
    tables = {"faults": found}
    if work.tables.holes():
        tables["unknown"] = EngineTable(engine, "unknown", _selected_rows(unknown(work.tables), work), outputs.FAULTS)
    by_fault = found.counts("fault")
    work.progress.say("faults", **by_fault)
    every, fated = fates(work.tables), audited.fates
    if work.selection.since_us is not None:
        since = engine.dialect.timestamp(work.selection.since_us)
        every = f"SELECT * FROM ({every}) AS fated WHERE coalesce(enqueued_ts, finished_ts) >= {since}"
        fated = counts(engine, "fate", f"({every})")
    facts = {
        "fates": fated,
        "faults": by_fault,
        "checkpoints": len(work.tables.checkpoints()),
    }
    first_leads = 1 if work.tables.first_lsn() <= 1 else 0  # of the first leader, which took over from nobody
    if len(led := work.tables.takeovers()) > first_leads:
        tables["allowed"] = EngineTable(engine, "allowed", _selected_rows(allowed(work.tables), work), outputs.ALLOWED)
        facts["leaders"] = [f"LSN {row['lsn']}, {row['ts'].isoformat()}: {row['reason']}" for row in led]
        facts["allowed"] = tables["allowed"].counts("duplicate")
    if "unknown" in tables:
        facts["unknown"] = tables["unknown"].counts("fault")
    tables["message_fate"] = EngineTable(engine, "fates", every, outputs.MESSAGE_FATE, cached=False)
    return Answer("audit", tables, facts, EXIT_FAULT if by_fault else EXIT_OK)


def _table(make: Callable[[Tables, argparse.Namespace], str]) -> Callable[[JobContext], Answer]:
    """The function of a job whose answer is one table. `make`: returns the SQL of that table."""

    def run_it(work: JobContext) -> Answer:
        found = _selected_rows(make(work.tables, work.options), work)
        return Answer(work.job, {work.job: EngineTable(work.engine, work.job, found, COLUMNS[work.job])})

    return run_it


def _depth(work: JobContext) -> Answer:
    answer = _table(lambda tables, o: depth(tables, o.window))(work)
    if not work.tables.missing_text() or work.tables.checkpoints():
        return answer
    return replace(answer, facts={"missing": [NO_CHECKPOINT]})


def _with_contents(make: Callable[[JobContext], Answer]) -> Callable[[JobContext], Answer]:
    """The function of a job that needs contents. Its answer says which ones the lake lacks."""

    def run_it(work: JobContext) -> Answer:
        answer, lacking = make(work), work.tables.contents_text()
        return replace(answer, facts={**answer.facts, "missing": [lacking]}) if lacking else answer

    return run_it


def _trace(work: JobContext) -> Answer:
    """Raises: ValueError (no such message; not with a trail), NotRecorded."""
    tables, message = work.tables, work.options.message
    trail = getattr(work.options, "trail", None)  # set by `commands.py` for a lake of several nodes
    story = trace(tables, message) if trail is None else trace_messages(tables, trail)
    found = EngineTable(work.engine, "trace", _selected_rows(story, work), outputs.TRACE)
    if trail is None and not found.count():
        more = "; correlation ids, message ids and headers are in a lake only with `ingest --payloads`"
        texts = (tables.contents_text(), tables.missing_text(), tables.holes_text())
        gone = "".join(f"; {words}" for words in texts if words)
        raise ValueError(f"no message {message!r} in the lake{'' if tables.has_contents() else more}{gone}")
    return Answer("trace", {"trace": found})


def _replay(work: JobContext) -> Answer:
    options, engine = work.options, work.engine
    selected = work.selection.rows_condition(work.job, options.window, engine.dialect) or "true"
    replay_id = options.id or secrets.token_hex(8)
    settings = ReplayOptions(replay_id, options.where, options.rate, options.replays_max, selected)
    path = open_log(options.lake, engine)
    first = first_node(options.lake).name if work.tables.node else ""
    count, sent = retry_slow_workers(partial(choose, work.tables, settings, first), work.progress), 0
    if options.go and count:
        urls(vhosts_chosen(work.tables), options.url)  # raises, if it has to, before anything is sent
        everything = f"SELECT msg_id FROM {CHOSEN}"
        engine.append(log_of(work.tables, everything, settings, 0), path)  # for a run after a kill
        for batch in batches(work.tables, REPLAY_BATCH):
            _send(batch, settings, options.url, f"at least {sent} of {count} messages were sent")
            some = ", ".join(str(row["msg_id"]) for row in batch)
            engine.append(log_of(work.tables, some, settings, 1), path)
            sent += len(batch)
            work.progress.say("sent", messages=sent)
    facts = {"replay_id": settings.replay_id, "chosen": count, "sent": sent, "dry": not options.go}
    shown = outputs.conform(engine.dialect, f"SELECT * FROM {CHOSEN}", COLUMNS["replay"])
    return Answer("replay", {"replay": EngineTable(engine, "replay", shown, COLUMNS["replay"], order=ORDER)}, facts)


def _send(batch: list[Row], settings: ReplayOptions, url: str, so_far: str) -> None:
    """Send a batch. Raises: ValueError (why that failed, and how to send the rest)."""
    try:
        send(batch, settings, url)
    except Exception as error:
        if os.environ.get("LEVERET_TRACEBACK"):
            raise
        more = f"{so_far}, and --id {settings.replay_id} sends the others (up to {len(batch)} of them again)"
        raise ValueError(f"{spark_error_text(error)}; {more}") from error


def _whatif(work: JobContext) -> Answer:
    from .whatif import DIFFERENT, left_out, whatif  # imports the broker's engine

    options, engine = work.options, work.engine
    settings = Path(options.settings).read_text(encoding="utf-8") if options.settings else ""
    found = _selected_rows(whatif(work.tables, settings), work)
    facts: dict[str, Any] = {}
    which = work.selection.rows_condition(work.job, options.window, engine.dialect)
    if without := left_out(work.tables, which):
        work.progress.say("left_out", what=without, **({"node": work.tables.node} if work.tables.node else {}))
        facts["left_out"] = without
    if not options.verify:
        return Answer("whatif", {"whatif": EngineTable(engine, "whatif", found, COLUMNS["whatif"])}, facts)
    engine.view("compared", found, cached=True)  # Spark would simulate again for each question
    differing = EngineTable(engine, "whatif", f"SELECT * FROM compared WHERE {DIFFERENT}", COLUMNS["whatif"])
    facts |= {"compared": value(engine, "SELECT count(*) FROM compared"), "differing": differing.count()}
    is_fault = facts["differing"] and work.tables.holes_text() is None  # lost records may explain it
    return Answer("whatif", {"whatif": differing}, facts, EXIT_FAULT if is_fault else EXIT_OK)


def page_path(options: argparse.Namespace) -> str:
    """The path of the page of a report. Raises: ValueError."""
    path: str = options.out or "report.html"
    if "://" in path:
        raise ValueError(f"--out {path}: a page cannot be written to a URI")
    return path if path.endswith(PAGES) else f"{path.rstrip('/')}/report.html"


def _report(work: JobContext) -> Answer:
    """Write a page with the answers of other jobs. Each reads its own part of the lake."""
    from ..report.page import render
    from .report import ReportRequest, collect  # slow to import

    options = work.options
    whole = work.tables.part({})

    lacking: set[tuple[str, str]] = set()  # `commands.py` checks the names; a node may lack what another one has

    def answer(job: str, window_s: int) -> Answer:
        given = argparse.Namespace(**{**vars(options), "window": window_s, "poison_attempts": POISON_ATTEMPTS})
        return JOBS[job](JobContext(job, selected_tables(whole, job, given, lacking), given, work.progress))

    path = page_path(options)
    part = selected_tables(whole, "depth", options, lacking)
    source = (options.journal or [options.lake])[0]
    of_node = f" --node {shlex.quote(part.node)}" if part.node else ""
    trace = f"leveret pipeline trace --lake {shlex.quote(absolute(options.lake))}{of_node}"
    asked = ReportRequest(part.node or source, work.selection, part, answer, trace)
    # set by `commands.py` for a lake of several nodes
    reports: dict[str, Report] | None = getattr(options, "reports", None)
    found = collect(asked, options.window if options.is_window_given or reports is not None else None, work.progress)
    write_text(path, render(found))
    if reports is not None:
        reports[part.node] = found
    return Answer("report", facts={"file": path})


JOBS: dict[str, Callable[[JobContext], Answer]] = {
    "audit": _audit,
    "latency": _table(lambda tables, o: latency(tables, o.window)),
    "depth": _depth,
    "redelivery": _table(lambda tables, o: redelivery(tables, o.poison_attempts)),
    "loss": _table(lambda tables, o: loss(tables, o.window)),
    "fairness": _table(lambda tables, o: fairness(tables)),
    "blocked": _table(lambda tables, o: blocked(tables)),
    "trace": _trace,
    "deadletters": _with_contents(_table(lambda tables, o: deadletters(tables))),
    "whatif": _whatif,
    "replay": _with_contents(_replay),
    "report": _report,
}
