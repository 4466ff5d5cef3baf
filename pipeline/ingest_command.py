"""The ingest of a command: chooses journals by the command's options, and ingests them one after the other."""

import argparse
import os
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .engines.spark import is_one_process
from .error_texts import error_text
from .lazy_engines import LazyEngines
from .progress import Measure, Progress, say
from .schemas import TABLES

if TYPE_CHECKING:
    from .lake.ingest_sources import Choice, IngestSource


def choose_sources(options: argparse.Namespace) -> None:
    """Set options from --journal: `sources`, `lake`, and `problems`, a sentence for each journal that cannot be read.

    `follow` leaves out journals that clash, with a sentence in `problems`. Raises: ValueError, JournalError, OSError.
    """
    from .lake.delta_tables import absolute
    from .lake.ingest_sources import sources_named, with_names

    skips_clashes = options.job == "follow"
    sources, options.problems = sources_named(options.journal, skips_clashes=skips_clashes)
    if len(sources) > 1 and not options.lake:
        raise ValueError(f"{options.journal[0]} has several journals: --lake is needed beside them")
    options.lake = options.lake or default_lake(sources[0].copies[0])
    are_several = len(sources) + len(options.problems) > 1
    problems = options.problems if skips_clashes else None
    options.sources = with_names(sources, absolute(options.lake), are_several=are_several, problems=problems)


def default_lake(journal: str) -> str:
    """The default path of the lake of a journal: beside the broker's data directory."""
    from ..journal.disk.directory import find_journal

    directory = Path(find_journal(journal)).absolute()
    data = directory.parent if directory.name == "journal" else directory
    return str(data.with_name(f"{data.name}-lake"))


def runs_on_this_machine(options: argparse.Namespace) -> bool:
    """Whether processes of this machine read the journal, instead of a cluster's tasks."""
    return is_one_process(options.master)


def ingest_all(engines: LazyEngines, options: argparse.Namespace, payloads: bool) -> dict[str, Any]:
    """Ingest all sources, then drop old days if --retain is given.

    Returns the results; with several sources, `failed` has a sentence for each that cannot be read. Raises: as `ingest`
    for one source, ValueError for several.
    """
    result = _ingest_each(engines, options, payloads)
    days = getattr(options, "retain", None)
    if days is not None:
        from .lake.retention import retain_after_ingest  # slow to import, and most ingests do not need it

        with progress_of(options) as progress:
            result["dropped"] = retain_after_ingest(options.lake, days, progress)
    return result


def _ingest_each(engines: LazyEngines, options: argparse.Namespace, payloads: bool) -> dict[str, Any]:
    from ..journal import JournalError  # slow to import

    sources, failed = options.sources, list(options.problems)
    if len(sources) == 1 and not failed:
        return ingest_one(engines, options, payloads, sources[0])
    done: dict[str, dict[str, Any]] = {}
    for source in sources:
        try:
            done[source.name] = ingest_one(engines, options, payloads, source)
        except (JournalError, OSError, ValueError) as error:
            failed.append(f"node {source.name}: {error_text(error)}")
    for text in failed:
        say("ingest", text)
    if not done:
        raise ValueError("no journal was read")
    rows = {table: sum(one["rows"].get(table, 0) for one in done.values()) for table in TABLES}
    rows = {table: count for table, count in rows.items() if any(table in one["rows"] for one in done.values())}
    result = {"lake": options.lake, "rows": rows, "nodes": done}
    return {**result, "failed": failed} if failed else result


def ingest_one(
    engines: LazyEngines,
    options: argparse.Namespace,
    payloads: bool,
    source: "IngestSource",
    searched: dict[Any, Any] | None = None,
) -> dict[str, Any]:
    """Ingest one source. Of several copies, one after the other is read until the lake has the newest records of all.

    searched: see `fill_holes`. Raises: as `ingest`.
    """
    from .lake.delta_tables import absolute
    from .lake.ingest import lake_position

    rows: Counter[str] = Counter()
    for _ in source.copies:
        at = lake_position(absolute(options.lake), source.journal_id) if len(source.copies) > 1 else None
        copy = source.choose_copy(at)
        result = _ingest_copy(engines, options, payloads, source.name, copy, searched)
        rows.update(result["rows"])
        if copy.is_furthest:
            break
    return {**result, "rows": dict(rows)}


def _ingest_copy(
    engines: LazyEngines,
    options: argparse.Namespace,
    payloads: bool,
    name: str,
    copy: "Choice",
    searched: dict[Any, Any] | None,
) -> dict[str, Any]:
    from .lake.ingest import IngestOptions, ingest

    named = re.fullmatch(r"local\[(\d+)\b.*", options.master)
    processes = int(named[1]) if named else os.cpu_count() or 1
    spark = None if runs_on_this_machine(options) else engines.spark()
    with progress_of(options, engines.measure()) as progress:
        ingest_options = IngestOptions(
            copy.place,
            options.lake,
            payloads=payloads,
            max_bytes=options.max_bytes,
            processes=processes,
            strict=options.strict,
            past_deleted=options.past_deleted,
            node=name,
            copies=tuple(copy.others),
            searched=searched,
        )
        return ingest(spark, ingest_options, progress)


@contextmanager
def progress_of(options: argparse.Namespace, measure: Measure | None = None) -> Iterator[Progress]:
    """The progress of an ingest, also within another job. `follow` reports only news."""
    is_one_of_many = options.job == "follow"
    progress = Progress("follow" if is_one_of_many else "ingest", measure=measure, is_brief=is_one_of_many)
    try:
        yield progress
    finally:
        progress.close()
