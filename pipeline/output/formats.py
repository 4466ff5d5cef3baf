"""Formats of an answer: text for people, JSON, CSV, Parquet files."""

import csv
import io
import json
from collections.abc import Mapping
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from ..answers import Answer, Table
from ..schemas import Columns

FORMATS = ("table", "json", "csv", "parquet")
SUFFIXES = {".txt": "table", ".json": "json", ".csv": "csv", ".parquet": "parquet"}
SUFFIX_OF = {format_: suffix for suffix, format_ in SUFFIXES.items()}
#: Suffixes of the files of reports.
PAGES = (".html", ".htm")
#: The default number of rows in a table for people.
ROWS = 20
CELL_MAX = 60
NUMBERS = ("bigint", "int", "smallint", "tinyint", "double")


def as_json(answer: Answer, rows: int | None) -> str:
    """An answer as one line of JSON: job, facts, number of rows, and at most `rows` rows."""
    result: dict[str, Any] = {"job": answer.job, **answer.facts}
    if answer.main is not None:
        result |= {"rows": answer.main.count(), "table": records(answer.main, rows)}
    return json.dumps(result, default=_json)


def records(table: Table, rows: int | None) -> list[dict[str, Any]]:
    """The first rows, with values as JSON has them."""
    return [{name: _json(value) for name, value in row.items()} for row in table.head(rows)]


def as_csv(table: Table, rows: int | None) -> str:
    """A table as CSV with a header: times in ISO 8601, arrays as JSON, null as an empty field."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    names = [column.name for column in table.columns]
    writer.writerow(names)
    for row in table.head(rows):
        writer.writerow([_cell(row[name]) for name in names])
    return text.getvalue()


def as_text(answer: Answer, rows: int | None) -> str:
    """An answer as text for people: facts, a line of them for each node, the first rows, and their number."""
    facts = {name: value for name, value in answer.facts.items() if name != "nodes"}
    parts = [_facts(facts)]
    parts += [f"{_printable(node)}: {_facts(some)}" for node, some in answer.facts.get("nodes", {}).items() if some]
    if answer.main is not None:
        count, limit = answer.main.count(), ROWS if rows is None else rows
        parts.append(aligned(answer.main.columns, list(answer.main.head(limit))))
        if count > limit:
            parts.append(f"{limit} of {count} rows; --rows N shows more, --format csv all")
    return "\n".join([answer.job, *filter(None, parts)]) + "\n"


def aligned(columns: Columns, rows: list[dict[str, Any]]) -> str:
    """A table with aligned columns, numbers to the right, and escaped control characters."""
    if not rows:
        return "no rows"
    cells = [[column.name for column in columns]]
    cells += [[_short(row[column.name]) for column in columns] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    right = [column.type in NUMBERS for column in columns]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if to in right and right[at] else cell.ljust(width)
            for at, (cell, width, to) in enumerate(zip(line, widths, right, strict=True))
        ).rstrip()
        for line in cells
    )


def is_one_file(out: str) -> bool:
    """Whether this is a file, for the first table of an answer, and not a directory for all of them."""
    return Path(out).suffix.lower() in SUFFIXES


def write(answer: Answer, out: str, format_: str | None, rows: int | None) -> list[str]:
    """Write the tables of an answer. Returns the paths.

    Args:   out: a file with the suffix of a format, for the first table; else a directory, with a file for each table.
            format_: None: by the suffix; without one, Parquet.
    Raises: ValueError, OSError.
    """
    if is_one_file(out):
        found, tables = SUFFIXES[Path(out).suffix.lower()], list(answer.tables.items())[:1]
        if format_ not in (None, found):
            raise ValueError(f"--out {out}: its name means {found}, but --format is {format_}")
        paths = [out]
    else:
        found, tables = format_ or "parquet", list(answer.tables.items())
        paths = [f"{out.rstrip('/')}/{name}{SUFFIX_OF[found]}" for name, _ in tables]
    if found != "parquet" and "://" in out:
        raise ValueError(f"--out {out}: only Parquet files can be written to a URI")
    for path, (name, table) in zip(paths, tables, strict=True):
        if found == "parquet":
            table.write_parquet(path)
            continue
        one = Answer(answer.job, {name: table}, answer.facts)
        if found == "csv":
            text = as_csv(table, rows)
        else:
            text = as_json(one, rows) + "\n" if found == "json" else as_text(one, rows)
        write_text(path, text)
    return paths


def write_text(path: str, text: str) -> None:
    """Write a file atomically: readers get the old one until the new one is complete. Raises: OSError."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f".{target.name}.part")
    try:
        part.write_text(text, encoding="utf-8")
        part.replace(target)
    except OSError as error:  # it names the part, or no file if the disk is full
        part.unlink(missing_ok=True)
        raise OSError(error.errno, error.strerror, path) from error


def _json(value: Any) -> Any:
    if isinstance(value, datetime):
        return (
            value.astimezone(UTC)
            .isoformat(timespec="milliseconds" if value.microsecond % 1000 == 0 else "auto")
            .replace("+00:00", "Z")
        )
    return value.isoformat() if isinstance(value, date) else value


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return json.dumps(value) if isinstance(value, list | dict) else str(_json(value))


def _printable(text: str) -> str:
    from ...settings.printable import printable  # imports all settings, 50 ms: only texts for people need it

    return printable(text)


def _short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}" if abs(value) < 1e6 else f"{value:.0f}"
    shown = _printable(_cell(value))
    return shown if len(shown) <= CELL_MAX else shown[: CELL_MAX - 1] + "…"


def _facts(facts: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}: {_fact(value)}" for name, value in facts.items())


def _fact(value: Any) -> str:
    if isinstance(value, Mapping):
        texts = (f"{name}: {one}" if isinstance(one, str) else f"{one} {name}" for name, one in value.items())
        return _printable(", ".join(texts)) or "none"
    if isinstance(value, list):
        return _printable("; ".join(map(str, value)))
    return _printable(str(value))
