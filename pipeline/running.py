"""From options to an exit code: bring the lake up to date, run the jobs, hand out what they answer."""

import argparse
import json
import os
import re
import sys
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .answers import EXIT_FAILED, EXIT_FAULT, EXIT_HOLDS, EXIT_OK
from .last_words import last_words, plain_words, words_of_cluster
from .options import JOBS, WITH_CONTENTS
from .output.results import hand_out, holding, outputs_of, tell, tell_lineage
from .progress import Progress
from .schemas import TABLES, Columns

if TYPE_CHECKING:
    from .lake.members import Choice
    from .output.conditions import Condition

#: Of several jobs' codes the first of these that one has.
GRAVEST = (EXIT_FAILED, EXIT_FAULT, EXIT_HOLDS, EXIT_OK)


def run(options: argparse.Namespace) -> int:
    """Returns: the exit code. Faults of the user's or of the data are a sentence on stderr."""
    if options.job == "forget":
        return _guarded(options.job, lambda: _forget(options))
    if options.job == "readers":
        return _guarded(options.job, lambda: _readers(options))
    if options.job in ("compact", "retain", "migrate"):
        return _guarded(options.job, lambda: _keep_up(options))
    for setting in options.conf:
        if "=" not in setting:
            return fail(options.job, f"--conf {setting}: expected NAME=VALUE")
    engines = Engines(options)
    try:
        return _guarded(options.job, lambda: run_in(engines, options, check(options)), _cluster(options))
    finally:
        engines.close()


class Engines:
    """What computes: Spark and DuckDB, each started when something needs it first. `session`: one of Spark's that is
    there; it stays."""

    def __init__(self, options: argparse.Namespace, session: Any = None) -> None:
        self._options = options
        self._given, self._session = session, session
        self._local: Any = None

    def spark(self) -> Any:
        """Raises: ValueError (it is not installed), NoJava, PermissionError."""
        if self._session is None:
            try:
                from .session import SessionOptions, open_session
            except ImportError as error:
                raise ValueError(f"{error}; this needs pip install 'leveret[spark]'") from error
            options = self._options
            asked = SessionOptions(
                master=options.master,
                name=f"leveret {options.job}",
                driver_memory=options.driver_memory,
                log_level="error" if os.environ.get("LEVERET_TRACEBACK") else "off",  # its error is reported here
                more=dict(setting.split("=", 1) for setting in options.conf),
            )
            self._session = open_session(asked)
        return self._session

    def of_lake(self) -> Any:
        """The engine for the lake. Raises: ValueError, OSError, and what `spark` does."""
        from .engines.spark import SparkEngine
        from .jobs.opening import LOCAL, choose_engine

        options = self._options
        if choose_engine(options.lake, options.engine, master=options.master, tell=partial(say, options.job)) != LOCAL:
            return SparkEngine(self.spark())
        if self._local is None:
            try:
                from .engines.local import LocalEngine

                self._local = LocalEngine()
            except ImportError as error:
                raise ValueError(f"{error}; this needs pip install 'leveret[pipeline]'") from error
        return self._local

    def measure(self) -> Callable[[], tuple[int, int]] | None:
        """For the bar."""
        return None if self._session is None else tasks_of(self._session)

    def close(self) -> None:
        """Stop what was started."""
        if self._local is not None:
            self._local.close()
        if self._session is not None and self._given is None:
            self._session.stop()


def check(options: argparse.Namespace) -> dict[str, "list[Condition]"]:
    """Checks that need not wait for Spark. Returns the conditions of --fail-if. Raises: ValueError, JournalError,
    OSError."""
    from .lake.lake import absolute, is_lake

    failures: dict[str, list[Condition]] = {}
    if options.jobs[0] in JOBS:
        from .jobs.commands import COLUMNS

        tables = {name: [*(one.name for one in COLUMNS[name]), "node"] for name in options.jobs if name in COLUMNS}
        if options.fail_if:
            from .output.conditions import conditions

            failures = conditions(options.fail_if, tables)
    if options.journal:
        from .lake.ingest import check_journal, reached
        from .lake.members import members_of, named
        from .reading.positions import JournalPlan

        members, options.gone = members_of(options.journal)
        if len(members) > 1 and not options.lake:
            raise ValueError(f"{options.journal[0]} has several journals: --lake is needed beside them")
        options.lake = options.lake or lake_beside(members[0].copies[0])
        options.members = named(members, absolute(options.lake), are_several=len(members) + len(options.gone) > 1)
        for one in members if len(members) == 1 else ():  # of several each is refused for itself
            if "://" not in options.lake:
                lake = absolute(options.lake)
                place = one.chosen(reached(lake, one.journal_id)).place
                check_journal(lake, JournalPlan(place, strict=options.strict), one.name)
    elif "://" not in options.lake and not is_lake(options.lake):
        fill = f"`leveret pipeline ingest --journal DIR --lake {options.lake}` fills one"
        raise ValueError(f"{options.lake}: no lake here; {fill}")
    if options.job == "replay" and options.go and not options.url:
        raise ValueError("--go needs --url")
    if options.job == "whatif" and options.settings:
        from .jobs.simulation import read_settings

        read_settings(Path(options.settings).read_text())
    return failures


def lake_beside(journal: str) -> str:
    """Where the lake of a journal is unless somebody says so: beside the broker's data directory."""
    from ..journal.disk.directory import find_journal

    directory = Path(find_journal(journal)).absolute()
    data = directory.parent if directory.name == "journal" else directory
    return str(data.with_name(f"{data.name}-lake"))


def run_in(engines: Engines, options: argparse.Namespace, failures: dict[str, "list[Condition]"]) -> int:
    """The same with engines. `failures`: by job."""
    if options.job == "ingest":
        result = _ingest(engines, options, options.payloads)
        tell(json.dumps(result) + "\n")
        filled = {f"{options.lake}/{name}": (TABLES[name], rows) for name, rows in result["rows"].items()}
        _tell(options, "ingest", filled)
        return EXIT_FAILED if result.get("failed") else EXIT_OK
    from .jobs.commands import Opened
    from .jobs.commands import run as run_job

    codes, opened = [], Opened()
    if options.journal and _ingest(engines, options, _wants_contents(options)).get("failed"):
        codes.append(EXIT_FAILED)
    engine = engines.of_lake()
    for job in options.jobs:

        def one(job: str = job) -> int:
            progress = Progress(job, measure=engines.measure())
            try:
                answer = run_job(engine, job, options, progress, opened)
                held = holding(answer, failures.get(job, ()))
            except Exception as error:
                _tell(options, job, {}, last_words(error))
                raise
            finally:
                progress.close()
            paths = hand_out(answer, options, {"fail_if": held} if held else {})
            _tell(options, job, outputs_of(answer, paths))
            return answer.code or (EXIT_HOLDS if held else EXIT_OK)

        codes.append(_guarded(job, one, _cluster(options)))
    return next(code for code in GRAVEST if code in codes)


def tasks_of(spark: Any) -> Callable[[], tuple[int, int]]:
    """How many of Spark's tasks are done, of those of the stages that are at work."""
    tracker = spark.sparkContext.statusTracker()

    def measure() -> tuple[int, int]:
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        known = [one for one in stages if one is not None]
        return sum(one.numCompletedTasks for one in known), sum(one.numTasks for one in known)

    return measure


def _is_here(options: argparse.Namespace) -> bool:
    """Whether this machine's processes read the journal; a cluster's tasks do if one is named."""
    return bool(options.master.startswith("local"))


def _cluster(options: argparse.Namespace) -> str:
    return "" if _is_here(options) else str(options.master)


def _ingest(engines: Engines, options: argparse.Namespace, payloads: bool) -> dict[str, Any]:
    """All journals, one after the other, and the retention that was asked for. Of several one that cannot be read does
    not keep the others back: `failed` has what is wrong with it. Raises: as `ingest`, of an only one."""
    result = _ingest_all(engines, options, payloads)
    days = getattr(options, "retain", None)
    if days is not None:
        from .lake.retention import retain_after_ingest  # dear to import: most ingests have none

        progress = Progress("ingest")
        try:
            result["dropped"] = retain_after_ingest(options.lake, days, progress)
        finally:
            progress.close()
    return result


def _ingest_all(engines: Engines, options: argparse.Namespace, payloads: bool) -> dict[str, Any]:
    from ..journal import JournalError

    members, failed = options.members, list(options.gone)
    if len(members) == 1 and not failed:
        return _ingest_one(engines, options, payloads, members[0])
    done: dict[str, dict[str, Any]] = {}
    for member in members:
        try:
            done[member.name] = _ingest_one(engines, options, payloads, member)
        except (JournalError, OSError, ValueError) as error:
            failed.append(f"node {member.name}: {error}")
    for text in failed:
        say("ingest", text)
    if not done:
        raise ValueError("no journal was read")
    rows = {table: sum(one["rows"].get(table, 0) for one in done.values()) for table in TABLES}
    rows = {table: count for table, count in rows.items() if any(table in one["rows"] for one in done.values())}
    result = {"lake": options.lake, "rows": rows, "nodes": done}
    return {**result, "failed": failed} if failed else result


def _ingest_one(engines: Engines, options: argparse.Namespace, payloads: bool, member: Any) -> dict[str, Any]:
    """One journal: of several copies another one, too, if only that has the newest records, and not the oldest."""
    from .lake.ingest import reached
    from .lake.lake import absolute

    rows: Counter[str] = Counter()
    for _ in member.copies:
        copy = member.chosen(reached(absolute(options.lake), member.journal_id))
        result = _ingest_copy(engines, options, payloads, member.name, copy)
        rows.update(result["rows"])
        if copy.is_furthest:
            break
    return {**result, "rows": dict(rows)}


def _ingest_copy(
    engines: Engines, options: argparse.Namespace, payloads: bool, name: str, copy: "Choice"
) -> dict[str, Any]:
    from .lake.ingest import IngestOptions, ingest

    is_here = _is_here(options)
    named = re.fullmatch(r"local\[(\d+)\b.*", options.master)
    processes = int(named[1]) if named else os.cpu_count() or 1
    spark = None if is_here else engines.spark()
    progress = Progress("ingest", measure=engines.measure())
    try:
        asked = IngestOptions(
            copy.place,
            options.lake,
            payloads,
            options.max_bytes,
            processes,
            options.strict,
            options.past_deleted,
            name,
            tuple(copy.others),
        )
        return ingest(spark, asked, progress)
    finally:
        progress.close()


def _wants_contents(options: argparse.Namespace) -> bool:
    """Whether a lake that is brought up to date on the way gets messages' contents, too."""
    from .lake.lake import has_begun

    asked = options.payloads or any(job in WITH_CONTENTS for job in options.jobs)
    return bool(asked or has_begun(options.lake, "payloads"))


def _tell(
    options: argparse.Namespace, job: str, outputs: dict[str, tuple[Columns, int]], error: str | None = None
) -> None:
    failure = tell_lineage(options, job, outputs, error)
    if failure:
        say(job, failure)


def _readers(options: argparse.Namespace) -> int:
    """Run `readers`, which needs neither lake nor engine."""
    from .output.conditions import conditions
    from .readers import READERS, drop, readers

    failures = conditions(options.fail_if, {"readers": [one.name for one in READERS]})
    if options.drop:
        drop(options.journal, options.drop)
    answer = readers(options.journal)
    for text in answer.facts.get("failed", ()):
        say(options.job, text)
    held = holding(answer, failures.get("readers", ()))
    hand_out(answer, options, {"fail_if": held} if held else {})
    return answer.code or (EXIT_HOLDS if held else EXIT_OK)


def _keep_up(options: argparse.Namespace) -> int:
    """Run `compact`, `retain` or `migrate`, which need no Spark."""
    from .lake.compact import compact
    from .lake.lake import locked
    from .lake.retention import days_ago, retain, today
    from .lake.spark_log import migrate

    check(options)
    progress = Progress(options.job)
    if options.job == "compact":
        result = compact(options.lake, progress, options.keep_hours)
    elif options.job == "retain":
        before = options.before or days_ago(options.days, today())
        result = retain(options.lake, before, progress, options.keep_hours, is_dry=options.dry_run)
    else:
        with locked(options.lake):
            result = {"lake": options.lake, "migrated": migrate(options.lake, progress)}
    progress.close()
    tell(json.dumps(result) + "\n")
    return EXIT_OK


def _forget(options: argparse.Namespace) -> int:
    """Run `forget`, which needs no Spark."""
    from .readers import forget

    result = forget(options.journal, options.lake)
    for text in result.get("failed", ()):
        say(options.job, text)
    tell(json.dumps(result) + "\n")
    return EXIT_FAILED if "failed" in result else EXIT_OK


def _guarded(job: str, work: Callable[[], int], master: str = "") -> int:
    """What `work` returns; what it raises becomes a sentence. `master`: of the cluster that works, if one does."""
    try:
        return work()
    except ValueError as error:
        return fail(job, str(error))
    except OSError as error:
        if lost := words_of_cluster(error, master) if master else None:
            return fail(job, lost)
        return fail(job, f"{error.filename}: {error.strerror}" if error.filename else plain_words(str(error)))
    except Exception as error:  # for anything that Spark's Java or a task raised, print one line, not a hundred
        from ..journal import JournalError  # dear to import, and needed only now
        from .java import NoJava
        from .lake.lake import LakeBusy

        if isinstance(error, JournalError | NoJava | LakeBusy):
            return fail(job, str(error))
        if os.environ.get("LEVERET_TRACEBACK"):
            raise
        return fail(job, (words_of_cluster(error, master) if master else None) or last_words(error))


def say(job: str, text: str) -> None:
    """A sentence on stderr."""
    from ..settings.printable import printable  # brings all settings along, 50 ms

    print(printable(f"leveret pipeline {job}: {text}"), file=sys.stderr, flush=True)


def fail(job: str, text: str) -> int:
    """The same, with the exit code of a failure."""
    say(job, text)
    return EXIT_FAILED
