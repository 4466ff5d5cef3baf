"""The scorecard: a feature a row, a broker a column, with date and versions; as a page and for machines."""

from __future__ import annotations

import datetime
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .driver import Hello
from .run import FAILED, NOT_RUN, PASSED, Result
from .scenario import Feature, Scenario

MUST_PASS = ("leveret", "rabbitmq")
FAILURES_A_SCENARIO_MAX = 4
FOLDER = "../interop/scenarios"


@dataclass(frozen=True, slots=True)
class Column:
    """A broker, who asked it, and what came of it."""

    broker: str
    version: str
    clients: list[Hello]
    skipped: dict[str, str]
    results: list[Result]


def expected_to_pass(column: Column, scorecard: bool) -> bool:
    """Whether something failed that counts: on a scorecard the other brokers' columns are only measured."""
    counts = column.broker in MUST_PASS or not scorecard
    return counts and any(result.verdict == FAILED for result in column.results)


def write(stem: Path, features: list[Feature], columns: list[Column]) -> None:
    """STEM.md and STEM.json."""
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    stem.with_suffix(".json").write_text(json.dumps(as_data(date, columns), indent=1, sort_keys=True) + "\n")
    stem.with_suffix(".md").write_text(page(date, features, columns))


def as_data(date: str, columns: list[Column]) -> dict[str, Any]:
    """What scorecard.json holds: every result that is not `passed` with its reason, and who passed what."""
    return {"date": date, "brokers": [_broker_data(column) for column in columns]}


def _broker_data(column: Column) -> dict[str, Any]:
    passed: dict[str, list[str]] = {}
    for result in column.results:
        if result.verdict == PASSED:
            passed.setdefault(result.scenario, []).append(" -> ".join(result.clients))
    others = [asdict(result) for result in column.results if result.verdict != PASSED]
    for one in others:
        del one["seconds"]
    return {
        "broker": column.broker,
        "version": column.version,
        "clients": [{"client": c.client, "version": c.version, "language": c.language} for c in column.clients],
        "skipped": column.skipped,
        "passed": passed,
        "others": others,
    }


def page(date: str, features: list[Feature], columns: list[Column]) -> str:
    """The page: a table of features, then each failure with a link to its scenario."""
    scenarios = {scenario.name: scenario for feature in features for scenario in feature.scenarios}
    total = len(scenarios)
    hellos = {hello.client: hello for column in columns for hello in column.clients}
    lines = [
        "# Scorecard",
        "",
        f"Written by `make interop` on {date}: {total} scenarios, each by {len(hellos)} clients "
        "(those of two roles by every pair). A cell says how many runs passed of those that the client has calls for; "
        "what each scenario does: [interop/scenarios](../interop/scenarios). For machines: "
        "[scorecard.json](scorecard.json).",
        "",
        "| feature | scenarios | " + " | ".join(f"{column.broker} {column.version}" for column in columns) + " |",
        "|---" * (2 + len(columns)) + "|",
    ]
    for feature in features:
        cells = [_cell(feature, column) for column in columns]
        link = f"[{feature.title}]({FOLDER}/{feature.name}.toml)"
        lines.append(f"| {link} | {len(feature.scenarios)} | " + " | ".join(cells) + " |")
    lines += ["", "## Clients", "", "| client | version | language | has no call for |", "|---|---|---|---|"]
    for hello in hellos.values():
        lacks = ", ".join(f"`{key}`" for key in sorted(hello.lacks)) or ""
        lines.append(f"| {hello.client} | {hello.version} | {hello.language} | {lacks} |")
    for client, why in {client: why for column in columns for client, why in column.skipped.items()}.items():
        lines.append(f"| {client} | skipped | | {why.splitlines()[0]} |")
    for column in columns:
        lines += _failures(column, scenarios)
        lines += _not_run(column, scenarios)
    return "\n".join(lines) + "\n"


def _cell(feature: Feature, column: Column) -> str:
    names = {scenario.name for scenario in feature.scenarios}
    verdicts = [result.verdict for result in column.results if result.scenario in names]
    passed, failed = verdicts.count(PASSED), verdicts.count(FAILED)
    if not passed + failed:
        return "not run" if NOT_RUN in verdicts else "-"
    return f"{passed} of {passed + failed}" if failed else f"all {passed}"


def _link(scenario: Scenario) -> str:
    return f"[{scenario.name}]({FOLDER}/{scenario.file}#L{scenario.line})"


def _failures(column: Column, scenarios: dict[str, Scenario]) -> list[str]:
    failed: dict[str, list[Result]] = {}
    for result in column.results:
        if result.verdict == FAILED:
            failed.setdefault(result.scenario, []).append(result)
    if not failed:
        return []
    lines = ["", f"## {column.broker} {column.version}: what failed", ""]
    for name, results in failed.items():
        who = ", ".join(" -> ".join(result.clients) for result in results[:FAILURES_A_SCENARIO_MAX])
        more = len(results) - FAILURES_A_SCENARIO_MAX
        reason = results[0].reason.splitlines()[0][:300].replace("|", "\\|")
        lines.append(f"- {_link(scenarios[name])} ({who}{f' and {more} more' if more > 0 else ''}): {reason}")
    return lines


def _not_run(column: Column, scenarios: dict[str, Scenario]) -> list[str]:
    left_out = {result.scenario: result.reason for result in column.results if result.verdict == NOT_RUN}
    if not left_out:
        return []
    lines = ["", f"## {column.broker} {column.version}: not run", ""]
    return lines + [f"- {_link(scenarios[name])}: {why}" for name, why in left_out.items()]
