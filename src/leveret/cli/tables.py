"""Answers as tables: a head with the names of the columns that are not empty, and a line for each row.

The first column identifies the row. In a terminal every line fits: texts are cut in the middle, lists and objects take
several lines, and the last columns are left out if the first one would otherwise be cut.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import zip_longest
from typing import Any

from ..settings.printable import printable
from .times import time_text

#: Columns that come first, and columns that come last and are the first to be left out.
FIRST = (
    "connection_name", "name", "queue", "cause", "origin", "state", "destination", "limit", "blocked_by", "waiting_ms",
    "held", "ready", "in/s", "out/s", "ack/s", "unacked", "oldest_unacked_since_ms",
)  # fmt: skip
LAST = (
    "kind", "command", "batch", "is_current", "user", "vhost", "since_ms", "prefetch_total", "channels", "channel",
    "number", "priority", "durable", "configured", "exclusive", "auto_delete", "internal", "ack", "confirm",
    "transactional", "flowing", "policy", "operator_policy", "effective_policy_definition", "peer", "product",
    "version", "connection",
)  # fmt: skip
#: Never shown in a table; `--json` has them.
HIDDEN = frozenset({"counters"})
#: Columns whose objects a terminal shows as NAME=VALUE; others are JSON, which can be copied into a command.
AS_PAIRS = frozenset({"held"})
#: Columns whose texts take several lines, as lists and objects do.
WRAPPED = frozenset({"destination"})
#: Minimum width of a column that is cut, and of one whose cells take several lines.
COLUMN_MIN, WRAPPED_MIN = 12, 24
GAP = "  "


def as_table(rows: Sequence[Any], width: int | None) -> str:
    """The rows as text. `width`: columns of the terminal; None: nothing is cut, as for a pipe."""
    if not all(isinstance(row, dict) for row in rows):
        return "\n".join(printable(str(row)) for row in rows)
    rows = [_named(row) for row in rows]
    today = None if width is None else datetime.now().strftime("%Y-%m-%d")
    names = [name for name in _ordered(rows) if any(cell(row.get(name)) for row in rows)]
    if width is not None:
        names = names[:1] + [name for name in names[1:] if not _is_usual(name, rows)]
    columns = [[_heading(name), *(cell(row.get(name), name, today) for row in rows)] for name in names]
    full = [max(map(_width_of, column)) for column in columns]
    long = [name in WRAPPED or any(isinstance(row.get(name), dict | list) for row in rows) for name in names]
    widths = full if width is None else _fitting_widths(full, list(map(_least_width, names, columns, long)), width)
    lines = [_line(cells, widths, long) for cells in zip(*columns[: len(widths)])]
    if (missing := names[len(widths) :]) and width is not None:
        more = "1 more column" if len(missing) == 1 else f"{len(missing)} more columns"
        lines.append(_cut(f"({more} in a wider terminal or a pipe: {', '.join(missing)})", width).rstrip())
    return "\n".join(lines)


def cell(value: Any, name: str = "", today: str | None = None) -> str:
    """A value on one line. `today`: for a terminal, the date that times leave out; None: nothing is left out."""
    if name.endswith("_ms") and isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return time_text(value, name, today or "")
    if value is None or value == {} or value == []:
        return ""
    if today is not None and isinstance(value, dict) and name in AS_PAIRS:
        return _pairs(value)
    if today is not None and isinstance(value, list) and all(isinstance(one, dict) for one in value):
        return "; ".join(map(_change if name == "differs" else _pairs, value))
    return json.dumps(value) if isinstance(value, bool | dict | list) else printable(str(value))


def _line(cells: Sequence[str], widths: Sequence[int], long: Sequence[bool]) -> str:
    """A row as lines: more than one if a cell in a column of lists or objects is longer than the column is wide."""
    parts = [_wrapped(text, width) if is_long else [text] for text, width, is_long in zip(cells, widths, long)]
    rows = zip_longest(*parts, fillvalue="")
    return "\n".join(GAP.join(map(_cut, row, widths)).rstrip() for row in rows)


def _wrapped(text: str, width: int) -> list[str]:
    """The lines of a text, which is broken at spaces. A word that is longer than a line stays whole."""
    lines = [""]
    for word in text.split(" "):
        longer = f"{lines[-1]} {word}" if lines[-1] else word
        if _width_of(longer) <= width or not lines[-1]:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines


def _change(one: Mapping[str, Any]) -> str:
    """What one field of an object was, and what it is instead."""
    before, after = (cell(one.get(name)) for name in ("now", "then"))
    return f"{cell(one.get('key'))}: {f'{before} → ' if before else ''}{after or 'nothing'}"


def _pairs(value: Mapping[str, Any]) -> str:
    return " ".join(f"{printable(_heading(name))}={cell(one, name)}" for name, one in value.items() if cell(one))


def _named(row: dict[str, Any]) -> dict[str, Any]:
    """The row with a `connection_name`: if the client gave none, the name of the connection."""
    if "connection_name" not in row or row["connection_name"]:
        return row
    return {**row, "connection_name": row.get("connection") or row.get("name")}


def _ordered(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    names = dict.fromkeys(name for row in rows for name in row if name not in HIDDEN)
    last = (*LAST, "name") if "connection_name" in names else LAST  # a connection's name has two long addresses
    yield from (name for name in FIRST if name in names and name not in last)
    yield from (name for name in names if name not in FIRST and name not in last)
    yield from (name for name in last if name in names)


def _is_usual(name: str, rows: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a column has only usual values: false everywhere, or the default virtual host."""
    values = [row.get(name) for row in rows]
    return all(value is False for value in values) or (name == "vhost" and all(value == "/" for value in values))


def _heading(name: str) -> str:
    return name.removesuffix("_ms")


def _least_width(name: str, column: Sequence[str], is_long: bool) -> int:
    """The least width of a column. Times are not cut."""
    width = max(map(_width_of, column[1:]))
    least = WRAPPED_MIN if is_long else COLUMN_MIN
    return width if name.endswith("_ms") else min(max(width, _width_of(column[0])), least)


def _fitting_widths(full: Sequence[int], least: Sequence[int], room: int) -> list[int]:
    """The widths of the columns that fit in a terminal. The first one is cut only if it alone is too wide."""
    if not full:
        return []
    least = list(least)
    if full[0] <= room:
        least[0] = full[0]
    count = len(full)
    while count > 1 and sum(least[:count]) + len(GAP) * (count - 1) > room:
        count -= 1
    widths, spare = list(full[:count]), room - len(GAP) * (count - 1)
    while sum(widths) > spare:
        cuttable = [index for index in range(count) if widths[index] > least[index]]
        if not cuttable:
            return [max(1, spare)]  # one column, which is too wide
        widths[max(cuttable, key=widths.__getitem__)] -= 1
    return widths


# -- widths in a terminal -------------------------------------------------------------------------------------------


def _width_of(text: str) -> int:
    """Columns that a text takes: two for wide characters of East Asia, none for combining ones."""
    if text.isascii():
        return len(text)
    return sum(map(_char_width, text))


def _char_width(char: str) -> int:
    from unicodedata import combining, east_asian_width

    return 2 if east_asian_width(char) in "WF" else 0 if combining(char) else 1


def _cut(text: str, width: int) -> str:
    """The text padded to this width, or cut to it with an ellipsis in the middle."""
    if (own := _width_of(text)) <= width:
        return text + " " * (width - own)
    room = width - 1
    head = _start_of_width(text, (room + 1) // 2)
    tail = _start_of_width(text[::-1], room - _width_of(head))[::-1]
    shown = f"{head}…{tail}"
    return shown + " " * (width - _width_of(shown))


def _start_of_width(text: str, width: int) -> str:
    used = 0
    for index, char in enumerate(text):
        used += _char_width(char)
        if used > width:
            return text[:index]
    return text
