"""Runs jobs for the command line: from options to answers."""

import argparse
import os
import secrets
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..answers import EXIT_FAULT, EXIT_OK, Answer
from ..engines.protocol import Engine, Row, value
from ..error_texts import spark_error_text
from ..lake.delta_tables import absolute
from ..lake.nodes import Node, chosen_nodes, nodes_of
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
from .fleet import NodeAnswers, node_page_path, unknown_everywhere
from .opening import is_known, open_log, open_tables
from .replay import CHOSEN, LOG, ORDER, ReplayOptions, batches, choose, log_of, send, urls, vhosts_chosen
from .tables import EmptyLake, NotRecorded, Tables
from .timing import fairness, latency
from .trace import Trail, replays_in, trace, trace_messages

if TYPE_CHECKING:
    from ..report.model import Report

#: Messages that a replay sends between two entries in its log. After a kill it may send up to this many again.
REPLAY_BATCH = 1000
#: Jobs that read `lives`.
JOBS_WITH_LIVES = ("audit", "latency", "depth")
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


class OpenTables:
    """Keeps the tables of a command open, with their cached views, for the next job that reads the same times."""

    def __init__(self) -> None:
        self._of: object = None
        self._tables: Tables | None = None

    def tables(self, engine: Engine, job: str, options: argparse.Namespace, node: Node | None = None) -> Tables:
        """The tables with the times that a job reads. `node`: which one, of several. Raises: as `open_tables`."""
        read = options.selection.times_to_read(job, options.window)
        if self._tables is None or self._of != (engine, read, node):
            since, until = read
            self._of = engine, read, node
            self._tables = open_tables(options.lake, engine, since, until, node)
            self._tables.is_shared = sum(one in JOBS_WITH_LIVES for one in options.jobs) > 1
        return self._tables


def run(
    engine: Engine, job: str, options: argparse.Namespace, progress: Progress, opened: OpenTables | None = None
) -> Answer:
    """Run one job on the chosen nodes. Raises: ValueError (also NotRecorded, EmptyLake), and Spark's exceptions."""
    opened = opened or OpenTables()
    nodes = chosen_nodes(options.lake, options.node)
    if len(nodes_of(options.lake)) == 1:
        return _run_on(None, engine, job, options, progress, opened)
    if job == "replay":
        if len(nodes) > 1:
            names = ", ".join(one.name for one in nodes)
            raise ValueError(f"a replay reads one node: choose it with --node; there are {names}")
        return _run_on(nodes[0], engine, job, options, progress, opened)
    return _run_on_nodes(nodes, engine, job, options, progress, opened)


def _run_on_nodes(
    nodes: Sequence[Node],
    engine: Engine,
    job: str,
    options: argparse.Namespace,
    progress: Progress,
    opened: OpenTables,
) -> Answer:
    """Run one job on each node, and join the answers. Nodes that cannot answer are reported.

    A trace also follows messages to nodes that were not chosen. Raises: as `run`; NotRecorded, EmptyLake only if no
    node can answer.
    """
    answers = NodeAnswers(engine, job, is_written=bool(options.out))
    unknown: list[set[tuple[str, str]]] = []
    unanswered: dict[str, ValueError] = {}
    trails = _trail(engine, options, nodes, opened, unanswered) if job == "trace" else {}
    for name, error in unanswered.items():
        progress.say("missing", what=f"node {name}: {error}")
    nodes = [one for one in nodes_of(options.lake) if one.name in trails] or nodes
    pages = NodePages(options, nodes) if job == "report" else None
    for node in [one for one in nodes if one.name not in unanswered]:
        given = argparse.Namespace(**{**vars(options), "trail": trails.get(node.name)})
        if pages is not None:
            given.out, given.window, given.reports = pages.path(node.name), pages.window_s, pages.reports
        unknown_here: set[tuple[str, str]] = set()
        try:
            answers.add(node, _run_on(node, engine, job, given, progress, opened, unknown_here))
        except (NotRecorded, EmptyLake) as error:
            unanswered[node.name] = error
            progress.say("missing", what=f"node {node.name}: {error}")
        else:
            unknown.append(unknown_here)
    for what, name in unknown_everywhere(unknown):
        raise ValueError(f"the lake knows no {what} {name!r}")
    if not answers and unanswered:
        raise next(iter(unanswered.values()))
    if job == "trace" and not answers:
        raise ValueError(f"no message {options.message!r} in the lake")
    texts = {name: str(error) for name, error in unanswered.items()}
    more: dict[str, Any] = {"unanswered": texts} if texts else {}
    if pages is not None:
        more["file"] = pages.write(texts)
    return answers.answer({**more, "seconds": progress.seconds})


def _trail(
    engine: Engine,
    options: argparse.Namespace,
    nodes: Sequence[Node],
    opened: OpenTables,
    unanswered: dict[str, ValueError],
) -> dict[str, dict[int, int]]:
    """Follow a message from node to node. Returns node -> messages, as `Trail.follow`.

    unanswered: this adds the nodes that cannot answer. Raises: NotRecorded, EmptyLake, ValueError.
    """
    open_log(options.lake, engine)
    every = nodes_of(options.lake)
    trail = Trail(every, lambda node: opened.tables(engine, "trace", options, node), replays_in(engine, LOG, every))
    found = {name: way for name, way in trail.follow(options.message, nodes).items() if way}
    unanswered.update((name, error) for name, error in trail.unanswered.items() if name not in found)
    return found


def _run_on(
    node: Node | None,
    engine: Engine,
    job: str,
    options: argparse.Namespace,
    progress: Progress,
    opened: OpenTables,
    unknown: set[tuple[str, str]] | None = None,
) -> Answer:
    """Run one job on one node; None: the only one of the lake.

    unknown: this adds the names of the selection that the node does not know; None: they are an error.
    """
    whole = opened.tables(engine, job, options, node)
    of_node = {} if node is None else {"node": node.name}
    progress.say("begin", lake=options.lake, engine=engine.name, **of_node)
    missing = whole.missing_text()
    if missing:
        progress.say("missing", what=missing, **of_node)
    work = JobContext(job, selected_tables(whole, job, options, unknown), options, progress)
    lost = work.tables.holes_text()
    if lost:
        progress.say("holes", what=lost, **of_node)
    run_it = partial(JOBS[job], work)
    answer = run_it() if job == "replay" else retry_slow_workers(run_it, progress)  # a replay retries its steps itself
    more = {"missing": "; ".join([missing, *answer.facts.get("missing", ())])} if missing else {}
    more |= {"holes": lost} if lost else {}
    return replace(answer, facts={**answer.facts, "seconds": progress.seconds, **more})


def selected_tables(
    whole: Tables, job: str, options: argparse.Namespace, unknown: set[tuple[str, str]] | None = None
) -> Tables:
    """The part of the tables that the options select. `unknown`: as for `_run_on`.

    Raises: ValueError (an unknown queue or virtual host).
    """
    selection: Selection = options.selection
    if not selection:
        return whole
    engine, dialect = whole.engine, whole.engine.dialect
    for column, names in (("vhost", selection.vhosts), ("queue", selection.queues)):
        for name in names:
            if not is_known(whole, column, name):
                what = {"vhost": "virtual host", "queue": "queue"}[column]
                if unknown is not None:
                    unknown.add((what, name))
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
    if len(led := work.tables.takeovers()) > 1:
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
    work.progress.say("missing", what=NO_CHECKPOINT)
    return replace(answer, facts={"missing": [NO_CHECKPOINT]})


def _trace(work: JobContext) -> Answer:
    """Raises: ValueError (no such message), NotRecorded."""
    tables, message = work.tables, work.options.message
    trail = getattr(work.options, "trail", None)
    story = trace(tables, message) if trail is None else trace_messages(tables, trail)
    found = EngineTable(work.engine, "trace", _selected_rows(story, work), outputs.TRACE)
    if trail is None and not found.count():
        more = "; correlation ids, message ids and headers are in a lake only with `ingest --payloads`"
        gone = "".join(f"; {words}" for words in (tables.missing_text(), tables.holes_text()) if words)
        raise ValueError(f"no message {message!r} in the lake{'' if tables.has_contents() else more}{gone}")
    return Answer("trace", {"trace": found})


def _replay(work: JobContext) -> Answer:
    options, engine = work.options, work.engine
    settings = ReplayOptions(options.id or secrets.token_hex(8), options.where, options.rate, options.replays_max)
    path = open_log(options.lake, engine)
    count, sent = retry_slow_workers(partial(choose, work.tables, settings), work.progress), 0
    if options.go and count:
        urls(vhosts_chosen(work.tables), options.url)  # raises, if it has to, before anything is sent
        everything = f"SELECT msg_id FROM {CHOSEN}"
        engine.append(log_of(work.tables, everything, settings, 0), path)  # for a run after a kill
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
    """Send a batch. Raises: ValueError (why that failed, and how to send the rest)."""
    try:
        send(batch, settings, url)
    except Exception as error:
        if os.environ.get("LEVERET_TRACEBACK"):
            raise
        more = f"{so_far}, and --id {settings.replay_id} sends the others"
        raise ValueError(f"{spark_error_text(error)}; {more}") from error


def _whatif(work: JobContext) -> Answer:
    from .whatif import DIFFERENT, left_out, whatif  # imports the broker's engine

    options, engine = work.options, work.engine
    settings = Path(options.settings).read_text(encoding="utf-8") if options.settings else ""
    found = _selected_rows(whatif(work.tables, settings), work)
    facts: dict[str, Any] = {}
    if without := left_out(work.tables):
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


class NodePages:
    """The pages of a report over several nodes: one of each node, and one with the nodes beside each other.

    reports: filled by `_report`, node -> its figures. window_s: the width of windows on all pages.
    """

    def __init__(self, options: argparse.Namespace, nodes: Sequence[Node]) -> None:
        from .report import common_window  # slow to import

        self._options, self._path = options, page_path(options)
        given = options.window if options.is_window_given else None
        self.window_s = common_window(options.lake, nodes, options.selection, given)
        self.reports: dict[str, Report] = {}

    def path(self, node: str) -> str:
        return node_page_path(self._path, node)

    def write(self, unanswered: Mapping[str, str]) -> str:
        """Write the page of all nodes. Returns its path. `unanswered`: nodes that could not answer, and why."""
        from ..report.fleet_page import render_fleet

        notes = [f"{node}: {why}" for node, why in unanswered.items()]
        notes += [f"{node}: {note}" for node, report in self.reports.items() for note in report.notes]
        files = {node: Path(self.path(node)).name for node in self.reports}
        write_text(self._path, render_fleet(self._options.lake, self.reports, files, notes))
        return self._path


def _report(work: JobContext) -> Answer:
    """Write a page with the answers of other jobs. Each reads its own part of the lake."""
    from ..report.page import render
    from .report import ReportRequest, collect  # slow to import

    options = work.options
    whole = work.tables.part({})

    def answer(job: str, window_s: int) -> Answer:
        given = argparse.Namespace(**{**vars(options), "window": window_s, "poison_attempts": POISON_ATTEMPTS})
        return JOBS[job](JobContext(job, selected_tables(whole, job, given), given, work.progress))

    path = page_path(options)
    part = selected_tables(whole, "depth", options)
    source = (options.journal or [options.lake])[0]
    of_node = f" --node {shlex.quote(part.node)}" if part.node else ""
    trace = f"leveret pipeline trace --lake {shlex.quote(absolute(options.lake))}{of_node}"
    asked = ReportRequest(part.node or source, work.selection, part, answer, trace)
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
    "deadletters": _table(lambda tables, o: deadletters(tables)),
    "whatif": _whatif,
    "replay": _replay,
    "report": _report,
}
