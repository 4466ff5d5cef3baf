"""Parts of the page as HTML: values, tables, and elements for charts."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from html import escape
from typing import Any

from ...settings.printable import printable

_UNITS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s"))
_OCTETS = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def plain(value: Any) -> str:
    """A client's text, escaped and without control characters. <bdi> isolates its writing direction."""
    return "" if value is None else f"<bdi>{escape(printable(str(value)))}</bdi>"


def number(value: float) -> str:
    """A number with three significant digits, or all digits before the point if these are more."""
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"


def count(value: int | None) -> str:
    """An integer with a thin space every three digits."""
    return "" if value is None else f"{int(value):,}".replace(",", "\u202f")


def duration(ms: float | None) -> str:
    """Milliseconds as text, in the largest unit that is not above the value."""
    if ms is None:
        return ""
    for size, unit in _UNITS:
        if ms >= size:
            return f"{number(ms / size)} {unit}"
    return f"{number(ms)} ms"


def octets(value: int | None) -> str:
    """Octets as text, in the largest unit that is not above the value: B, KiB, MiB, ..."""
    if value is None:
        return ""
    for size, unit in _OCTETS:
        if value >= size:
            return f"{number(value / size)} {unit}"
    return f"{value} B"


def instant(second: int) -> str:
    """A time in UTC, to the second."""
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%d %H:%M:%S")


def bar(share: float) -> str:
    """A share, from 0 to 1, as a bar and in per cent."""
    return f'<meter min="0" max="1" value="{share:.4f}"></meter> {100 * share:.1f} %'


def chart(title: str, figures: str, unit: str, *, peaks: bool = False, bars: bool = False) -> str:
    """The element in which page.js draws a chart. `figures`: the path to its lines in `model.charts`. `unit`: count,
    rate or ms. `peaks`, `bars`: how they are drawn.
    """
    caption = f"<figcaption>{escape(title)}</figcaption>" if title else ""
    more = f"{' data-peaks' if peaks else ''}{' data-bars' if bars else ''}"
    return f'<figure>{caption}<div class="chart" data-figures="{figures}" data-unit="{unit}"{more}></div></figure>\n'


def choice(name: str, choices: Iterable[tuple[str, str]], chosen: str, title: str) -> str:
    """Radio buttons that choose the lines of the charts whose `figures` begin with `name`."""
    buttons = "".join(
        f'<label><input type="radio" name="{name}" value="{value}"{" checked" * (value == chosen)}> {label}</label>'
        for value, label in choices
    )
    return f'<fieldset class="choice" data-of="{name}"><legend>{title}</legend>{buttons}</fieldset>\n'


def table(head: Sequence[str], rows: Iterable[Sequence[str]], right: Iterable[int] = ()) -> str:
    """A table. `rows`: cells in HTML. `right`: indexes of the columns with numbers."""
    right = set(right)
    sides = ['<{0} class="n">' if at in right else "<{0}>" for at in range(len(head))]
    lines = "".join(
        "<tr>" + "".join(f"{side.format('td')}{cell}</td>" for side, cell in zip(sides, row, strict=True)) + "</tr>\n"
        for row in rows
    )
    heads = "".join(f"{side.format('th')}{escape(name)}</th>" for side, name in zip(sides, head, strict=True))
    return f'<div class="table"><table><thead><tr>{heads}</tr></thead><tbody>\n{lines}</tbody></table></div>\n'


def commands(summary: str, lines: Sequence[str]) -> str:
    """A text that opens lines to paste into a shell; a click chooses a whole line. `summary`: in HTML."""
    shown = "".join(f"<code>{escape(printable(line))}</code>" for line in lines)
    return f"<details><summary>{summary}</summary>{shown}</details>" if lines else summary
