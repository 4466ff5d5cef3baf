"""The page about tools: their commands, the checks that passed on each broker, and differences."""

from __future__ import annotations

import datetime
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from .results import Difference, Result, Run, compare
from .tool import Tool

HEAD = """\
# Tools of others at the console

Tools that were written for RabbitMQ's HTTP API, run by the same commands against a real RabbitMQ and a Leveret, both
fresh for each tool; the answers are compared. Drawn by `make tools` ({system}, Python {python}).

A check is one command, one call or one test of the tool's own suite. It differs when it passes on one broker alone,
when a field of an answer is missing at Leveret, or when the answer itself is another one where the tool prints it.

| tool | version | command | RabbitMQ passed | Leveret passed | differences | date |
|---|---|---|---|---|---|---|
"""


@dataclass(frozen=True, slots=True)
class Entry:
    """The runs of a tool by broker. `left_out`: why there are none; "": there are."""

    tool: Tool
    version: str
    runs: dict[str, Run]
    differences: list[Difference]
    left_out: str = ""
    date: str = field(default_factory=lambda: datetime.date.today().isoformat())

    def as_data(self) -> dict[str, Any]:
        runs = {broker: asdict(run)["results"] for broker, run in self.runs.items()}
        told = {"version": self.version, "left_out": self.left_out, "date": self.date}
        return {**told, "runs": runs, "differences": [asdict(one) for one in self.differences]}


def entry_of(tool: Tool, data: dict[str, Any], known: Mapping[str, Mapping[str, str]]) -> Entry:
    """The inverse of `as_data`. Differences are compared again, because reasons may have been added."""
    runs = {
        broker: Run({check: Result(**{**one, "keys": tuple(one["keys"])}) for check, one in results.items()})
        for broker, results in data["runs"].items()
    }
    both = len(runs) > 1
    found = compare(runs["leveret"], runs["rabbitmq"], known.get(tool.name, {})) if both else []
    return Entry(tool, data["version"], runs, found, data["left_out"], data["date"])


def render(entries: Sequence[Entry]) -> str:
    """The page in Markdown."""
    lines = [HEAD.format(system=_system(), python=platform.python_version()).rstrip()]
    for entry in entries:
        tool = entry.tool
        first = f"**{tool.name}**: {tool.about}"
        if entry.left_out:
            lines.append(f"| {first} | | `{tool.command}` | | | not run: {_cell(entry.left_out)} | {entry.date} |")
            continue
        figures = [entry.runs[broker].figures() if broker in entry.runs else "" for broker in ("rabbitmq", "leveret")]
        cells = [first, entry.version, f"`{tool.command}`", *figures, _counts(entry), entry.date]
        lines.append(f"| {' | '.join(cells)} |")
    for entry in entries:
        if entry.differences:
            lines += ["", f"## {entry.tool.name}: differences", "", "| check | what differs | why |", "|---|---|---|"]
            for one in entry.differences:
                lines.append(f"| `{_cell(one.check)}` | {_cell(one.text)} | {one.reason or '**not explained**'} |")
    both = [entry for entry in entries if entry.runs]
    failed = [
        (entry.tool.name, check, result.reason)
        for entry in both
        if "rabbitmq" in entry.runs
        for check, result in entry.runs["rabbitmq"].results.items()
        if not result.passed and not any(one.check == check for one in entry.differences)
    ]
    if failed:
        lines += ["", "## Fails on both alike", "", "| tool | check | what RabbitMQ says |", "|---|---|---|"]
        lines += [f"| {name} | `{_cell(check)}` | {_cell(reason)} |" for name, check, reason in failed]
    return "\n".join(lines) + "\n"


def _counts(entry: Entry) -> str:
    unexplained = sum(one.reason is None for one in entry.differences)
    counts = f"{len(entry.differences)} with reason" if not unexplained else f"{unexplained} not explained"
    return counts if entry.differences else "none"


def _cell(text: str) -> str:
    """A text as a cell of a Markdown table."""
    clean = " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
    return clean if len(clean) <= 300 else f"{clean[:300]}..."


def _system() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except OSError:
        return platform.system()
