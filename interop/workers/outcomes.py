"""The outcomes of a framework's scenarios on each broker, and where they differ."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ..running.foreign import BROKERS


@dataclass(slots=True)
class Run:
    """The outcomes of an application on one broker by scenario, as `trial.py` prints them."""

    versions: dict[str, str] = field(default_factory=dict)
    outcomes: dict[str, dict[str, Any]] = field(default_factory=dict)


def differences(name: str, runs: dict[str, Run]) -> list[str]:
    """Scenarios that failed on leveret, and outcomes that differ from RabbitMQ's."""
    lines = []
    ours, theirs = runs.get("leveret"), runs.get("rabbitmq")
    for label, outcome in (ours.outcomes if ours else {}).items():
        peer = theirs.outcomes.get(label, {}) if theirs else {}
        if "failed" in outcome and "failed" not in peer:
            lines.append(f"{name}: {label} failed on leveret: {outcome['failed']}\n{outcome['detail']}")
        elif theirs and outcome.get("facts") != peer.get("facts"):
            lines.append(f"{name}: {label}: leveret {outcome.get('facts')}, rabbitmq {peer.get('facts', peer)}")
    return lines


def render(results: dict[str, dict[str, Run]]) -> str:
    """The table of benchmarks/results/workers.md: a row for each scenario, with the seconds on each broker."""
    lines = ["| | scenario | RabbitMQ | Leveret |", "|---|---|---|---|"]
    for runs in results.values():
        some = next(iter(runs.values()))
        versions = ", ".join(f"{one} {number}" for one, number in some.versions.items())
        for index, (label, outcome) in enumerate(some.outcomes.items()):
            words = [word(runs[broker].outcomes.get(label)) if broker in runs else "" for broker in BROKERS]
            about = f"`{label}`: {outcome['about']}"
            lines.append(f"| {versions if index == 0 else ''} | {about} | {words[0]} | {words[1]} |")
    return "\n".join(lines)


def word(outcome: dict[str, Any] | None) -> str:
    if outcome is None:
        return "not run"
    return f"{'FAILED' if 'failed' in outcome else 'as expected'} ({outcome['seconds']:.1f} s)"
