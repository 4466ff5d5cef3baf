"""Runs jobs for the command line, on the only node of a lake or on several."""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..answers import Answer
from ..engines.protocol import Engine
from ..lake.nodes import Node, chosen_nodes, first_node, nodes_of
from ..output.formats import is_one_file, write_text
from ..progress import Progress
from ..retries import retry_slow_workers
from .fleet import NodeAnswers, node_page_path, unknown_everywhere
from .functions import JOBS, JobContext, page_path, selected_tables
from .opening import open_log, open_tables, until_text
from .replay import LOG
from .tables import EmptyLake, NotRecorded, Tables
from .trace import Trail, replays_in

if TYPE_CHECKING:
    from ..report.model import Report

#: Jobs that read `lives`.
JOBS_WITH_LIVES = ("audit", "latency", "depth")


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
    answers = NodeAnswers(engine, job, writes_all=bool(options.out) and not is_one_file(options.out))
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
    log = replays_in(engine, LOG, first_node(options.lake))
    trail = Trail(every, lambda node: opened.tables(engine, "trace", options, node), log)
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
    until_us = options.selection.until_us
    own = node or nodes_of(options.lake)[0]
    texts = [missing, None if until_us is None else until_text(options.lake, own.journal, until_us)]
    for text in filter(None, texts):
        progress.say("missing", what=text, **of_node)
    work = JobContext(job, selected_tables(whole, job, options, unknown), options, progress)
    lost = work.tables.holes_text()
    if lost:
        progress.say("holes", what=lost, **of_node)
    run_it = partial(JOBS[job], work)
    answer = run_it() if job == "replay" else retry_slow_workers(run_it, progress)  # a replay retries its steps itself
    for text in answer.facts.get("missing", ()):
        progress.say("missing", what=text, **of_node)
    gaps = "; ".join(filter(None, [*texts, *answer.facts.get("missing", ())]))
    more = {"missing": gaps} if gaps else {}
    more |= {"holes": lost} if lost else {}
    return replace(answer, facts={**answer.facts, "seconds": progress.seconds, **more})


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
