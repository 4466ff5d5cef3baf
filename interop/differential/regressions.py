"""Programs that once showed a difference, in files with the operations and the reference's observations.

    {"title": ..., "reference": "RabbitMQ 3.10.8", "operations": [...], "expected": [...]}

A replay needs only the subject, and compares it with `expected`, the observations of the reference. A file about an
intended difference also has `subject`, the expected observations of the subject.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .channel_state import Operation
from .comparison import Difference, replay
from .side import Observation, Performer


@dataclass(frozen=True, slots=True)
class Regression:
    """A recorded program."""

    title: str
    reference: str
    operations: Sequence[Operation]
    expected: Sequence[Observation]
    subject: Sequence[Observation] | None = None

    def check(self, side: Performer) -> Difference | None:
        """Replay on the subject. Returns the first difference from the expected observations."""
        return _first_difference(self.operations, self.expected if self.subject is None else self.subject, side)

    def check_reference(self, side: Performer) -> Difference | None:
        """Replay on the reference. Returns the first difference from the recorded observations."""
        return _first_difference(self.operations, self.expected, side)


def load(path: Path) -> Regression:
    """Read a file that `save` wrote. Raises: KeyError, json.JSONDecodeError."""
    stored = json.loads(path.read_text())
    return Regression(
        stored["title"], stored["reference"], stored["operations"], stored["expected"], stored.get("subject")
    )


def save(path: Path, regression: Regression) -> None:
    """Write a file, with one line for each operation and observation."""
    path.parent.mkdir(parents=True, exist_ok=True)
    parts = [f' "title": {_line(regression.title)}', f' "reference": {_line(regression.reference)}']
    lists: list[tuple[str, Sequence[Any] | None]] = [
        ("operations", regression.operations),
        ("expected", regression.expected),
        ("subject", regression.subject),
    ]
    for name, items in lists:
        if items is not None:
            parts.append(f' "{name}": [\n  ' + ",\n  ".join(map(_line, items)) + "\n ]")
    path.write_text("{\n" + ",\n".join(parts) + "\n}\n")


def record(title: str, version: str, program: Sequence[Operation], reference: Performer) -> Regression:
    """Run a program on the reference and record its observations."""
    return Regression(title, version, list(program), replay(program, reference))


def _first_difference(
    operations: Sequence[Operation], expected: Sequence[Observation], side: Performer
) -> Difference | None:
    for step, (wanted, got) in enumerate(zip(expected, replay(operations, side), strict=True)):
        if json.loads(json.dumps(got)) != wanted:
            return Difference(step, operations[step], wanted, got)
    return None


def _line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
