"""Compares the results of a suite on two brokers, test by test, with the known differences."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

PASSED, FAILED, SKIPPED, MISSING = "passed", "failed", "skipped", "not run"
VARIES = "varies"  # prefix of entries for tests that sometimes fail on RabbitMQ
WAITING_FILE = Path(__file__).with_name("waiting.toml")


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a test. `reason`: the first line of its failure; "": it passed."""

    verdict: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class SuiteRun:
    """The outcomes of a suite on one broker, by test id, and its duration."""

    outcomes: Mapping[str, Outcome]
    seconds: float

    def figures(self) -> str:
        """`passed of collected (failed, skipped)`."""
        counts = Counter(outcome.verdict for outcome in self.outcomes.values())
        return (
            f"{counts[PASSED]} of {len(self.outcomes)} ({counts[FAILED]} failed, {counts[SKIPPED]} skipped) "
            f"in {self.seconds:.1f} s"
        )


@dataclass(frozen=True, slots=True)
class Difference:
    """A test that passes on RabbitMQ and not on leveret. `feature`: why, in `waiting.toml`; None: it is unexplained."""

    test: str
    outcome: Outcome
    feature: str | None


@dataclass(frozen=True, slots=True)
class Comparison:
    """The runs of one suite; None: there is no run on that broker."""

    suite: str
    rabbitmq: SuiteRun | None
    leveret: SuiteRun | None
    differences: tuple[Difference, ...] = ()
    done: tuple[str, ...] = ()  # patterns of `waiting.toml` that no difference needs

    @property
    def unexplained(self) -> tuple[Difference, ...]:
        return tuple(difference for difference in self.differences if difference.feature is None)


def read_junit(path: Path) -> SuiteRun:
    """Read pytest's JUnit XML. Without a file, because the run was killed, there are no tests.

    A test may be listed twice, once for its teardown: the worse verdict counts.
    """
    outcomes: dict[str, Outcome] = {}
    seconds = 0.0
    if path.exists():
        root = ElementTree.parse(path).getroot()
        seconds = sum(float(suite.get("time", 0)) for suite in root.iter("testsuite"))
        for case in root.iter("testcase"):
            test = f"{case.get('classname')}::{case.get('name')}"
            outcome = _outcome(case)
            if outcome.verdict == FAILED or test not in outcomes:
                outcomes[test] = outcome
    return SuiteRun(outcomes, seconds)


def _outcome(case: ElementTree.Element) -> Outcome:
    for tag, verdict in (("failure", FAILED), ("error", FAILED), ("skipped", SKIPPED)):
        found = case.find(tag)
        if found is not None:
            lines = (found.get("message") or found.text or "").strip().splitlines()
            return Outcome(verdict, lines[0][:160] if lines else "")
    return Outcome(PASSED)


def read_known(file: Path, line: str) -> dict[str, dict[str, str]]:
    """The known differences: suite or tool -> pattern -> feature or reason. `line`: the form of a line, for the error.

    Raises: ValueError: the file is invalid.
    """
    tables = tomllib.loads(file.read_text())
    for name, table in tables.items():
        if not isinstance(table, dict) or not all(isinstance(reason, str) and reason for reason in table.values()):
            raise ValueError(f"{file.name}: [{name}] is to hold lines of the form {line}")
    return tables


def compare(
    suite: str, rabbitmq: SuiteRun | None, leveret: SuiteRun | None, waiting: Mapping[str, str], *, partial: bool
) -> Comparison:
    """Compare two runs of a suite.

    `partial`: leveret ran a selection (`-k`), so tests that it did not run are no differences, and patterns without a
    difference are not reported as obsolete.
    """
    if rabbitmq is None or leveret is None:
        return Comparison(suite, rabbitmq, leveret)
    differences = []
    for test, expected in rabbitmq.outcomes.items():
        got = leveret.outcomes.get(test, Outcome(MISSING))
        if expected.verdict == PASSED and got.verdict != PASSED and not (partial and got.verdict == MISSING):
            feature = next((why for pattern, why in waiting.items() if matches(pattern, test)), None)
            differences.append(Difference(test, got, feature))
    done = [
        pattern
        for pattern, why in waiting.items()
        if not why.startswith(VARIES) and not any(matches(pattern, d.test) for d in differences)
    ]
    return Comparison(suite, rabbitmq, leveret, tuple(differences), () if partial else tuple(done))


def matches(pattern: str, test: str) -> bool:
    """Whether a pattern matches a whole test id. Only * is special, because test ids contain brackets."""
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), test, re.DOTALL) is not None


def render(comparisons: Iterable[Comparison]) -> str:
    """The report in Markdown: a table of figures, then the tests that pass on RabbitMQ only."""
    comparisons = list(comparisons)
    lines = ["| suite | RabbitMQ | leveret | waiting | unexplained |", "|---|---|---|---|---|"]
    for c in comparisons:
        rabbitmq, leveret = (run.figures() if run else "not run" for run in (c.rabbitmq, c.leveret))
        counts = (
            f"{len(c.differences) - len(c.unexplained)} | {len(c.unexplained)}" if c.rabbitmq and c.leveret else "|"
        )
        lines.append(f"| {c.suite} | {rabbitmq} | {leveret} | {counts} |")
    for c in comparisons:
        if c.unexplained:
            lines += ["", f"## {c.suite}: passes on RabbitMQ, not on leveret, unexplained", ""]
            lines += [f"- `{d.test}`: {d.outcome.verdict} {d.outcome.reason}".rstrip() for d in c.unexplained]
        features = sorted({d.feature for d in c.differences if d.feature is not None})
        if features:
            lines += ["", f"## {c.suite}: waiting", ""]
        for feature in features:
            lines.append(f"- {feature}")
            lines += [f"  - `{d.test}`" for d in c.differences if d.feature == feature]
        if c.done:
            lines += ["", f"## {c.suite}: waits for nothing any more (take it out of {WAITING_FILE.name})", ""]
            lines += [f"- `{pattern}`" for pattern in c.done]
        if c.leveret is None and c.rabbitmq is not None:
            lines += _failures(c.suite, "RabbitMQ", c.rabbitmq)
        if c.rabbitmq is None and c.leveret is not None:
            lines += _failures(c.suite, "leveret", c.leveret)
    return "\n".join(lines) + "\n"


def _failures(suite: str, broker: str, run: SuiteRun) -> list[str]:
    """The lines about failed tests, if only one broker was run."""
    failed = [f"- `{test}`: {o.reason}" for test, o in run.outcomes.items() if o.verdict == FAILED]
    return ["", f"## {suite}: fails on {broker}", "", *failed] if failed else []
