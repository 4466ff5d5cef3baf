"""Writes an answer as the options say, to files and stdout; checks conditions; sends lineage."""

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..answers import Answer
from ..schemas import Columns
from .formats import as_csv, as_json, as_text, write
from .lineage import emit, event

if TYPE_CHECKING:
    from .conditions import Condition  # imports the room `expressions`, which few commands need


def write_answer(answer: Answer, options: argparse.Namespace, more: Mapping[str, Any]) -> list[str]:
    """Write the files of --out, and print. `more`: additional facts. Returns the paths. Raises: ValueError, OSError."""
    form = options.format or ("table" if sys.stdout.isatty() else "json")
    shown = Answer(answer.job, answer.tables, {**answer.facts, **more}, answer.code)
    paths: list[str] = []
    if options.out and answer.main is not None:
        paths = write(answer, options.out, options.format, options.rows)
        facts = {**shown.facts, "rows": answer.main.count(), "out": paths}
        shown = Answer(answer.job, {}, facts, answer.code)
        form = "table" if sys.stdout.isatty() else "json"
    if form == "csv" and shown.main is not None:
        text = as_csv(shown.main, options.rows)
    else:
        text = as_text(shown, options.rows) if form == "table" else as_json(shown, options.rows) + "\n"
    print_text(text)
    return paths


def print_text(text: str) -> None:
    """Print on stdout. A reader that has closed it, as `head` does, is not a failure. Raises: OSError."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        nowhere = os.open(os.devnull, os.O_WRONLY)  # for the rest of Python's buffer, written when it ends
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def conditions_met(answer: Answer, conditions: "Sequence[Condition]") -> list[str]:
    """The texts of the conditions that the answer's first table meets."""
    return [one.text for one in conditions if _is_met(one, answer)]


def _is_met(condition: "Condition", answer: Answer) -> bool:
    assert answer.main is not None, "conditions are on jobs with tables"
    return condition.is_met(answer.main.head(), answer.main.count())


def send_lineage(
    options: argparse.Namespace, job: str, outputs: Mapping[str, tuple[Columns, int]], error: str | None
) -> str | None:
    """Send the event of a job to the target of --lineage. Returns why that failed, which does not fail the job."""
    if not options.lineage:
        return None
    if job == "ingest":
        inputs = list(options.journal)
    else:
        inputs = [options.lake] if options.lake else list(options.journal)
    try:
        emit(event(job, inputs=inputs, outputs=outputs, error=error), options.lineage)
    except (OSError, ValueError) as failure:
        why = failure.strerror if isinstance(failure, OSError) and failure.filename else failure
        return f"--lineage {options.lineage}: {why}"
    return None


def outputs_of(answer: Answer, paths: Sequence[str]) -> dict[str, tuple[Columns, int]]:
    """The files of an answer: path -> columns, number of rows. The pages of a report have no columns."""
    if "file" in answer.facts:
        pages = [answer.facts, *answer.facts.get("nodes", {}).values()]
        return {str(one["file"]): ((), 0) for one in pages}
    tables = list(answer.tables.values())
    return {path: (table.columns, table.count()) for path, table in zip(paths, tables, strict=False)}
