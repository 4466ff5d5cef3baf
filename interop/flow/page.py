"""The page with what each client saw."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import version

from ..running.driver import Hello
from .row import Row
from .trial import CHAPTERS, DIFFERS, LACKS, Result

HEAD = """\
# What clients see when the broker is full

Written by `make interop`: rows of the queues page, G.E, over sockets, against Leveret {leveret}. T5, T12 and T13 are
rows of its decision table, M4 is one of its modes. Where all saw the same there is one line. The clients:
{clients}.

How to write a publisher that copes: [when-the-broker-is-full.md](../../docs/when-the-broker-is-full.md). The rows:
[interop/flow](../../interop/flow).
"""


def page(rows: Sequence[Row], results: Sequence[Result], hellos: Sequence[Hello], skipped: Mapping[str, str]) -> str:
    """The page in Markdown. `skipped`: clients that are not on this machine, and why."""
    clients = ", ".join(f"{hello.client} {hello.version}" for hello in hellos)
    parts = [HEAD.format(clients=clients, leveret=version("leveret"))]
    for title, module in CHAPTERS.items():
        parts.append(f"\n## {title}\n\n| row | what it says | client | what it saw |\n|---|---|---|---|\n")
        for row in rows:
            if row.play.__module__ == module.__name__:
                parts += [f"{line}\n" for line in _lines(row, [one for one in results if one.row == row.name])]
    if skipped:
        parts.append("\nNot on the machine: " + ", ".join(skipped) + ".\n")
    return "".join(parts)


def _lines(row: Row, results: Sequence[Result]) -> list[str]:
    """The lines of a row: one for all clients that saw the same."""
    saw: dict[str, list[str]] = {}
    for one in results:
        text = {LACKS: f"(cannot: {one.what})", DIFFERS: f"**differs: {one.what}**"}.get(one.verdict, one.what)
        saw.setdefault(text.replace("|", "\\|"), []).append(one.client)
    head = f"| {row.name} | {' '.join(row.says.split())} |"
    lines = []
    for text, clients in saw.items():
        who = "all" if len(clients) == len(results) > 1 else ", ".join(clients)
        lines.append(f"{head} {who} | {text} |")
        head = "| | |"
    return lines
