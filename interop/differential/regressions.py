"""Programs that once showed a difference, as files: the operations, and the reference's observations.

    {"title": ..., "reference": "RabbitMQ 3.10.8", "operations": [...], "expected": [...]}

A replay compares with `expected`, the reference's observations, so that it needs only the subject. A file about an
intended difference also has `subject`: the subject's expected observations.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .channel_state import Operation
from .comparison import Difference, replay
from .side import Observation, Peer


@dataclass(frozen=True, slots=True)
class Regression:
    """A recorded program."""

    title: str
    reference: str
    operations: Sequence[Operation]
    expected: Sequence[Observation]
    subject: Sequence[Observation] | None = None

    def check(self, side: Peer) -> Difference | None:
        """Replay on the subject: differences from the expected observations."""
        return _first_difference(self.operations, self.expected if self.subject is None else self.subject, side)

    def check_reference(self, side: Peer) -> Difference | None:
        """Replay on the reference: differences from the recorded observations."""
        return _first_difference(self.operations, self.expected, side)


def load(path: Path) -> Regression:
    """Raises: KeyError, json.JSONDecodeError: not a file of `save`."""
    stored = json.loads(path.read_text())
    return Regression(
        stored["title"], stored["reference"], stored["operations"], stored["expected"], stored.get("subject")
    )


def save(path: Path, regression: Regression) -> None:
    """Write the file; one line for each operation and observation."""
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


def record(title: str, version: str, program: Sequence[Operation], reference: Peer) -> Regression:
    """Run a program on the reference and record its observations."""
    return Regression(title, version, list(program), replay(program, reference))


def _first_difference(
    operations: Sequence[Operation], expected: Sequence[Observation], side: Peer
) -> Difference | None:
    for step, (wanted, got) in enumerate(zip(expected, replay(operations, side), strict=True)):
        if json.loads(json.dumps(got)) != wanted:
            return Difference(step, operations[step], wanted, got)
    return None


def _line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
