"""The results of a tool's checks on each broker, and the differences of Leveret."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..suites.comparison import matches


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a check on one broker. `reason`: why it failed.

    `facts`: what is compared. `keys`: the fields of the answer. Leveret's may have more.
    """

    passed: bool
    facts: Any = None
    keys: tuple[str, ...] = ()
    reason: str = ""


@dataclass(slots=True)
class Run:
    """The results of a tool's checks on one broker, by name."""

    results: dict[str, Result] = field(default_factory=dict)

    def figures(self) -> str:
        """The number of passed checks, and of all: `3 of 4`."""
        return f"{sum(result.passed for result in self.results.values())} of {len(self.results)}"


@dataclass(frozen=True, slots=True)
class Difference:
    """A check with another result than on RabbitMQ. `reason`: why, in `known.toml`; None: it is unexplained."""

    check: str
    text: str
    reason: str | None


def compare(ours: Run, theirs: Run, known: Mapping[str, str]) -> list[Difference]:
    """The differences in the checks that RabbitMQ ran, even if only Leveret passes."""
    found = []
    for check, expected in theirs.results.items():
        text = _difference(ours.results.get(check), expected)
        if text:
            reason = next((why for pattern, why in known.items() if matches(pattern, check)), None)
            found.append(Difference(check, text, reason))
    return found


def _difference(got: Result | None, expected: Result) -> str:
    if got is None:
        return "not run"
    if got.passed != expected.passed:
        return f"failed: {got.reason}" if expected.passed else f"passes; RabbitMQ: {expected.reason}"
    lacking = sorted(set(expected.keys) - set(got.keys))
    if lacking:
        return f"lacks {', '.join(lacking)}"
    if got.facts != expected.facts:
        return f"{_first(got.facts, expected.facts)}"
    return ""


def _first(got: Any, expected: Any) -> str:
    """The first place where two values differ."""
    if isinstance(got, list) and isinstance(expected, list):
        if len(got) != len(expected):
            return f"{len(got)} entries, RabbitMQ {len(expected)}: {_short(got)} / {_short(expected)}"
        return next(_first(one, other) for one, other in zip(got, expected) if one != other)
    if isinstance(got, dict) and isinstance(expected, dict):
        for key in sorted(got.keys() | expected.keys()):
            if got.get(key) != expected.get(key):
                return f"{key}: {_first(got.get(key), expected.get(key))}"
    return f"{_short(got)}, RabbitMQ {_short(expected)}"


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 200 else f"{text[:200]}..."


#: (pattern of text that differs from run to run, its replacement). Nodes a, b and c are those of `LocalCluster`.
_VOLATILE = (
    (re.compile(r"127\.0\.0\.1:\d+ -> 127\.0\.0\.1:\d+"), "CONNECTION"),
    (re.compile(r"\b(?:peer\d+|rabbit)@(?:localhost|[abc])\b"), "NODE"),
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[.\d]*(?:[+-]\d\d:\d\d|Z)?"), "TIME"),
    (re.compile(r"amq\.(?:gen-|ctag)[\w.-]+"), "GENERATED"),
)


def steady(text: str, *, hide: Mapping[str, str] | None = None) -> str:
    """A text without parts that differ from run to run. `hide`: further text -> its replacement."""
    for word, name in (hide or {}).items():
        text = text.replace(word, name)
    for pattern, name in _VOLATILE:
        text = pattern.sub(name, text)
    return text
