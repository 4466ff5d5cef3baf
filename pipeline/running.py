"""Runs a command: brings the lake up to date, runs the jobs, writes their answers, returns the exit code."""

import argparse
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .answers import EXIT_FAILED, EXIT_FAULT, EXIT_HOLDS, EXIT_OK
from .error_texts import error_text, lost_cluster_text, spark_error_text
from .ingest_command import choose_sources, ingest_all, runs_on_this_machine
from .lazy_engines import LazyEngines
from .options import JOBS, WITH_CONTENTS
from .output.results import conditions_met, outputs_of, print_text, send_lineage, write_answer
from .progress import Progress, say
from .schemas import TABLES, Columns

if TYPE_CHECKING:
    from .output.conditions import Condition

#: Exit codes, the worst first: the code of several jobs is the worst of theirs.
WORST_FIRST = (EXIT_FAILED, EXIT_FAULT, EXIT_HOLDS, EXIT_OK)


def run(options: argparse.Namespace, open_shared: Callable[[], Any] | None = None) -> int:
    """Run a command. Returns the exit code. Errors are printed on stderr, each as a sentence.

    open_shared: as for `LazyEngines`.
    """
    if options.job == "forget":
        return _guarded(options.job, lambda: _forget_lake(options))
    if options.job == "readers":
        return _guarded(options.job, lambda: _list_readers(options))
    if options.job in ("compact", "retain", "migrate", "iceberg"):
        return _guarded(options.job, lambda: _maintain(options))
    engines = LazyEngines(options, open_shared)
    try:
        return _guarded(options.job, lambda: run_with(engines, options, check(options)), _master_of(options))
    finally:
        engines.close()


def check(options: argparse.Namespace) -> dict[str, "list[Condition]"]:
    """Check the options and choose the sources, before Spark starts. Returns the conditions of --fail-if, by job.

    Raises: ValueError, JournalError, OSError.
    """
    from .lake.lake import is_lake

    conditions_by_job: dict[str, list[Condition]] = {}
    if options.jobs[0] in JOBS and options.fail_if:
        from .jobs.functions import COLUMNS
        from .output.conditions import conditions

        tables = {name: [*(one.name for one in COLUMNS[name]), "node"] for name in options.jobs if name in COLUMNS}
        conditions_by_job = conditions(options.fail_if, tables)
    if options.journal:
        _choose_sources(options)
    elif "://" not in options.lake and not is_lake(options.lake):
        fill = f"`leveret pipeline ingest --journal DIR --lake {options.lake}` fills one"
        raise ValueError(f"{options.lake}: no lake here; {fill}")
    if options.job == "replay" and options.go and not options.url:
        raise ValueError("--go needs --url")
    if options.job == "whatif" and options.settings:
        from .jobs.simulation import read_settings

        read_settings(Path(options.settings).read_text())
    return conditions_by_job


def _choose_sources(options: argparse.Namespace) -> None:
    """Choose the sources. Check a single journal here; several are checked by the ingest, one after the other."""
    from ..journal import JournalError
    from .lake.delta_tables import absolute
    from .lake.ingest import check_journal, lake_position
    from .reading.positions import JournalPlan

    try:
        choose_sources(options)
    except (JournalError, OSError):
        if options.job != "follow":
            raise
        options.sources = []  # each round of `follow` reports the missing journal, and waits for it
    if len(options.sources) == 1 and "://" not in options.lake:
        (source,), lake = options.sources, absolute(options.lake)
        place = source.choose_copy(lake_position(lake, source.journal_id)).place
        check_journal(lake, JournalPlan(place, strict=options.strict), source.name)


def run_with(engines: LazyEngines, options: argparse.Namespace, conditions_by_job: dict[str, "list[Condition]"]) -> int:
    """Bring the lake up to date, and run the jobs. `conditions_by_job`: of --fail-if. Returns the exit code."""
    if options.job == "ingest":
        result = ingest_all(engines, options, options.payloads)
        print_text(json.dumps(result) + "\n")
        filled = {f"{options.lake}/{name}": (TABLES[name], rows) for name, rows in result["rows"].items()}
        _report_lineage(options, "ingest", filled)
        return EXIT_FAILED if result.get("failed") else EXIT_OK
    if options.job == "follow":
        from .follow_command import JournalFollower

        print_text(json.dumps(JournalFollower(engines, options).follow()) + "\n")
        return EXIT_OK
    from .jobs.commands import OpenTables
    from .jobs.commands import run as run_job

    codes, opened = [], OpenTables()
    if options.journal and ingest_all(engines, options, _wants_contents(options)).get("failed"):
        codes.append(EXIT_FAILED)
    engine = engines.engine_for_lake()
    for job in options.jobs:

        def run_one(job: str = job) -> int:
            progress = Progress(job, measure=engines.measure())
            try:
                answer = run_job(engine, job, options, progress, opened)
                met = conditions_met(answer, conditions_by_job.get(job, ()))
            except Exception as error:
                _report_lineage(options, job, {}, spark_error_text(error))
                raise
            finally:
                progress.close()
            paths = write_answer(answer, options, {"fail_if": met} if met else {})
            _report_lineage(options, job, outputs_of(answer, paths))
            return answer.code or (EXIT_HOLDS if met else EXIT_OK)

        codes.append(_guarded(job, run_one, _master_of(options)))
    return worst_code(codes)


def worst_code(codes: Sequence[int]) -> int:
    """The exit code of several jobs, or commands."""
    return next(code for code in WORST_FIRST if code in codes)


def _master_of(options: argparse.Namespace) -> str:
    """The master of Spark's cluster; "" if processes of this machine do the work."""
    return "" if runs_on_this_machine(options) else str(options.master)


def _wants_contents(options: argparse.Namespace) -> bool:
    """Whether the ingest before the jobs also stores contents of messages."""
    from .lake.lake import has_begun

    asked = options.payloads or any(job in WITH_CONTENTS for job in options.jobs)
    return bool(asked or has_begun(options.lake, "payloads"))


def _report_lineage(
    options: argparse.Namespace, job: str, outputs: dict[str, tuple[Columns, int]], error: str | None = None
) -> None:
    failure = send_lineage(options, job, outputs, error)
    if failure:
        say(job, failure)


def _list_readers(options: argparse.Namespace) -> int:
    from .journal_readers import READERS, drop, readers
    from .output.conditions import conditions

    wanted = conditions(options.fail_if, {"readers": [one.name for one in READERS]})
    if options.drop:
        drop(options.journal, options.drop)
    answer = readers(options.journal)
    for text in answer.facts.get("failed", ()):
        say(options.job, text)
    met = conditions_met(answer, wanted.get("readers", ()))
    write_answer(answer, options, {"fail_if": met} if met else {})
    return answer.code or (EXIT_HOLDS if met else EXIT_OK)


def _maintain(options: argparse.Namespace) -> int:
    from .lake.compact import compact
    from .lake.lake import lake_lock
    from .lake.retention import days_ago, retain, today
    from .lake.spark_log import migrate

    check(options)
    progress = Progress(options.job)
    if options.job == "compact":
        result = compact(options.lake, progress, options.keep_hours)
    elif options.job == "retain":
        before = options.before or days_ago(options.days, today())
        result = retain(options.lake, before, progress, options.keep_hours, is_dry=options.dry_run)
    elif options.job == "iceberg":
        from .lake.iceberg import offer  # imports pyarrow

        result = offer(options.lake, options.catalog, options.namespace, progress)
    else:
        with lake_lock(options.lake):
            result = {"lake": options.lake, "migrated": migrate(options.lake, progress)}
    progress.close()
    print_text(json.dumps(result) + "\n")
    return EXIT_OK


def _forget_lake(options: argparse.Namespace) -> int:
    from .journal_readers import forget

    result = forget(options.journal, options.lake)
    for text in result.get("failed", ()):
        say(options.job, text)
    print_text(json.dumps(result) + "\n")
    return EXIT_FAILED if "failed" in result else EXIT_OK


def _guarded(job: str, work: Callable[[], int], master: str = "") -> int:
    """Run `work`, and print a sentence if it raises. Returns the exit code. `master`: as `_master_of`."""
    try:
        return work()
    except ValueError as error:
        return fail(job, str(error))
    except OSError as error:
        if lost := lost_cluster_text(error, master) if master else None:
            return fail(job, lost)
        return fail(job, error_text(error))
    except Exception as error:  # one line for Spark's hundred lines
        from ..journal import JournalError  # slow to import, and seldom needed
        from .java import NoJava
        from .lake.lake import LakeBusy

        if isinstance(error, JournalError | NoJava | LakeBusy):
            return fail(job, str(error))
        if os.environ.get("LEVERET_TRACEBACK"):
            raise
        return fail(job, (lost_cluster_text(error, master) if master else None) or spark_error_text(error))


def fail(job: str, text: str) -> int:
    """Print why a job failed. Returns the exit code for that."""
    say(job, text)
    return EXIT_FAILED
