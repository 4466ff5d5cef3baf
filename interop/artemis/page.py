"""The page with the results of both brokers."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

from ..brokers.maven import java_version
from .distribution import VERSION
from .run import Result
from .table import BROKERS, Scenario

HEAD = """\
# Compared with a real Artemis

Written by `make artemis` on {date}: Apache Artemis {artemis} (Java {java}) through AMQP 1.0 (qpid-proton {proton}),
Leveret {leveret} (Python {python}) through AMQP 0-9-1 (pika {pika}). Both load the same `broker.xml`, in real
time; order, counts and "not before" are compared, not exact times. The table:
[scenarios.toml](../../interop/artemis/scenarios.toml).

A failed attempt is `modified` with `delivery-failed` in Artemis and `basic.nack` with requeue in Leveret; a released
message is `released` and `basic.recover`; a rejected one is `rejected` and `basic.reject` without requeue.

{agree} scenarios of {count} agree, {differ} differ as listed, {wrong} failed.

## What differs

| scenario | what it tests | |
|---|---|---|
{differences}

## What agrees

| scenario | common behaviour |
|---|---|
{agreements}
"""


def page(scenarios: Sequence[Scenario], results: Sequence[Result]) -> str:
    """The page in Markdown. A scenario that was not run on a broker counts as failed."""
    faults = {(result.scenario, result.broker): result.faults for result in results}
    differences, agreements, wrong = [], [], 0
    for scenario in scenarios:
        what = [
            f"{broker}: {'; '.join(faults.get((scenario.name, broker), ('not run',)))}"
            for broker in BROKERS
            if faults.get((scenario.name, broker), ("not run",))
        ]
        row = f"| {scenario.name} | {scenario.says} |"
        if what:
            wrong += 1
            verdict = f"**not as in the table**: {' / '.join(what)}".replace("|", "\\|")
            differences.append(f"{row} {verdict} |")
        elif scenario.why:
            differences.append(f"{row} {scenario.why}. {_results(scenario)} |")
        else:
            agreements.append(row)
    return HEAD.format(
        date=datetime.now(UTC).date(),
        artemis=VERSION,
        proton=version("python-qpid-proton"),
        leveret=version("leveret"),
        pika=version("pika"),
        python=platform.python_version(),
        java=java_version(),
        agree=len(agreements),
        differ=len(differences) - wrong,
        wrong=wrong,
        count=len(scenarios),
        differences="\n".join(differences),
        agreements="\n".join(agreements),
    )


def _results(scenario: Scenario) -> str:
    """The expected results of both brokers, where they differ."""
    lines = []
    for step in scenario.steps:
        if step.differs:
            theirs = " or ".join(_text(value) for value in step.allowed("artemis"))
            lines.append(f"{step.verb} {step.what}: Artemis {theirs}, Leveret {_text(step.expected('leveret'))}")
    return "; ".join(lines)


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {count}" for key, count in value.items())
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return value or "nothing"
