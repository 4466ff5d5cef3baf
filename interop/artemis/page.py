"""The page of what both brokers showed."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version

from .distribution import VERSION
from .run import Shown
from .table import Scenario

HEAD = """\
# Beside a real Artemis

Written by `make artemis` on {date}: Apache Artemis {artemis} through AMQP 1.0 (python-qpid-proton {proton}), Leveret
{leveret} through AMQP 0-9-1 (pika {pika}), Python {python}. Both load the same `broker.xml`, in real
time; order, counts and "not before" are compared, not exact times. The table:
[scenarios.toml](../interop/artemis/scenarios.toml).

A failed attempt is `modified` with `delivery-failed` there and `basic.nack` with requeue here; given back by choice is
`released` there and `basic.recover` here; rejected is `rejected` there and `basic.reject` without requeue here.

{agree} scenarios of {count} agree, {differ} differ as listed, {wrong} did something else.

| scenario | what holds | |
|---|---|---|
"""


def page(scenarios: Sequence[Scenario], results: Sequence[Shown]) -> str:
    """Markdown; a scenario that was not run on a broker counts as one that did something else."""
    faults = {(shown.scenario, shown.broker): shown.faults for shown in results}
    lines, agree, wrong = [], 0, 0
    for scenario in scenarios:
        what = [
            f"{broker}: {'; '.join(faults.get((scenario.name, broker), ('not run',)))}"
            for broker in ("artemis", "leveret")
            if faults.get((scenario.name, broker), ("not run",))
        ]
        if what:
            wrong += 1
            verdict = f"**other than the table says**: {' / '.join(what)}".replace("|", "\\|")
        elif scenario.why:
            verdict = f"differ: {scenario.why}"
        else:
            agree += 1
            verdict = "agree"
        lines.append(f"| {scenario.name} | {scenario.says} | {verdict} |")
    head = HEAD.format(
        date=datetime.now(UTC).date(),
        artemis=VERSION,
        proton=version("python-qpid-proton"),
        leveret=version("leveret"),
        pika=version("pika"),
        python=platform.python_version(),
        agree=agree,
        differ=len(scenarios) - agree - wrong,
        wrong=wrong,
        count=len(scenarios),
    )
    return head + "\n".join(lines) + "\n"
