"""The scorecard: a row per feature, a column per broker, with date and versions; as Markdown and JSON."""

from __future__ import annotations

import datetime
import json
import re
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from .driver import Hello
from .run import FAILED, NOT_RUN, PASSED, Result
from .scenario import Feature, Scenario

MUST_PASS = ("leveret", "rabbitmq")
FAILURES_A_SCENARIO_MAX = 4
ARROW = " -> "
REASON_MAX = 300
_FOLDERS = re.compile(r"(?<![\w.:/])/(?:[\w.@+-]+/)+")


@dataclass(frozen=True, slots=True)
class Collection:
    """A folder of scenarios below `interop`, and the page of their results. `lists_scenarios`: on that page."""

    folder: str
    title: str
    command: str
    lists_scenarios: bool = False

    @property
    def link(self) -> str:
        """The link from the page to the folder."""
        return f"../../interop/{self.folder}"

    def link_to(self, scenario: Scenario) -> str:
        """The link from the page to a scenario."""
        return f"[{scenario.name}]({self.link}/{scenario.file}#L{scenario.line})"


#: Scenarios for all brokers of AMQP 0-9-1.
SCENARIOS = Collection("scenarios", "Scorecard", "make interop")
#: Scenarios for Leveret alone: rows of the queues page, G.A, that clients can observe.
LEASES = Collection("leases", "Leased queues over sockets", "make interop", lists_scenarios=True)


@dataclass(frozen=True, slots=True)
class Column:
    """A broker, the clients that ran scenarios on it, and the results."""

    broker: str
    version: str
    clients: list[Hello]
    skipped: dict[str, str]
    results: list[Result]
    remark: str = ""  # how it was run, if not like the others
    date: str = field(default_factory=lambda: datetime.datetime.now(datetime.UTC).date().isoformat())


def has_failed(column: Column, *, on_scorecard: bool) -> bool:
    """Whether a broker failed a scenario. On a scorecard, brokers that are not in `MUST_PASS` are only measured."""
    counts = column.broker in MUST_PASS or not on_scorecard
    return counts and any(result.verdict == FAILED for result in column.results)


def write(stem: Path, features: list[Feature], columns: list[Column], collection: Collection) -> None:
    """Write STEM.md and STEM.json. Brokers that were not run keep their columns."""
    file, asked = stem.with_suffix(".json"), {column.broker for column in columns}
    kept = [_column(data) for data in json.loads(file.read_text())["brokers"]] if file.exists() else []
    columns = sorted([*columns, *(one for one in kept if one.broker not in asked)], key=_place)
    data = {"brokers": [_broker_data(column) for column in columns]}
    file.write_text(_as_lines(data, 4) + "\n")
    stem.with_suffix(".md").write_text(page(features, columns, collection, file.name))


def _place(column: Column) -> tuple[bool, str]:
    return column.broker not in MUST_PASS, column.broker


def _broker_data(column: Column) -> dict[str, Any]:
    """A column as JSON: numbers of passed runs by client, and all other results with reason and clients."""
    passed: dict[str, list[str]] = {}
    others: dict[tuple[str, str, str], list[str]] = {}
    for result in column.results:
        cast = ARROW.join(result.clients)
        if result.verdict == PASSED:
            passed.setdefault(result.scenario, []).append(cast)
        else:
            others.setdefault((result.scenario, result.verdict, first_line(result.reason)), []).append(cast)
    clients = [{**asdict(hello), "reads_not": sorted(hello.reads_not)} for hello in column.clients]
    facts: dict[str, Any] = {"broker": column.broker, "version": column.version, "date": column.date}
    facts |= {"skipped": column.skipped, "remark": column.remark}
    rows = [{"scenario": s, "verdict": v, "reason": r, "clients": casts} for (s, v, r), casts in others.items()]
    return {**facts, "clients": clients, "passed": passed, "others": rows}


def first_line(reason: str) -> str:
    """The first line of a client's message, without paths of the machine."""
    return _FOLDERS.sub("", reason.partition("\n")[0])[:REASON_MAX]


def _column(data: dict[str, Any]) -> Column:
    """The inverse of `_broker_data`."""
    results = [
        Result(one["scenario"], tuple(cast.split(ARROW)), one["verdict"], one["reason"])
        for one in data["others"]
        for cast in one["clients"]
    ]
    for scenario, casts in data["passed"].items():
        results += [Result(scenario, tuple(cast.split(ARROW)), PASSED) for cast in casts]
    hellos = [Hello(**{**one, "reads_not": frozenset(one["reads_not"])}) for one in data["clients"]]
    facts = data["broker"], data["version"], hellos, data["skipped"], results
    return Column(*facts, data["remark"], data["date"])


def _as_lines(data: Any, depth: int) -> str:
    """JSON with a line for each item down to a depth, for readable diffs."""
    if depth == 0 or not isinstance(data, dict | list) or not data:
        return json.dumps(data)
    if isinstance(data, dict):
        inner = [f"{json.dumps(key)}: {_as_lines(value, depth - 1)}" for key, value in data.items()]
        return "{\n" + ",\n".join(inner) + "\n}"
    return "[\n" + ",\n".join(_as_lines(value, depth - 1) for value in data) + "\n]"


def page(features: list[Feature], columns: list[Column], collection: Collection, file: str) -> str:
    """The page in Markdown: a table of features, then all failures with links to their scenarios."""
    scenarios = {scenario.name: scenario for feature in features for scenario in feature.scenarios}
    total = len(scenarios)
    hellos = {hello.client: hello for column in columns for hello in column.clients}
    heads = [f"{one.broker} {one.version}, {one.date}, {len(one.clients)} clients" for one in columns]
    lines = [
        f"# {collection.title}",
        "",
        f"Written by `{collection.command}`: {total} scenarios, each by every client "
        "(those of two roles by every pair). A cell says how many runs passed of those that the client has calls for; "
        f"what each scenario does: [interop/{collection.folder}]({collection.link}). For machines: "
        f"[{file}]({file}).",
        "",
        "| feature | scenarios | " + " | ".join(heads) + " |",
        "|---" * (2 + len(columns)) + "|",
    ]
    for feature in features:
        cells = [_cell(feature, column) for column in columns]
        link = f"[{feature.title}]({collection.link}/{feature.name}.toml)"
        lines.append(f"| {link} | {len(feature.scenarios)} | " + " | ".join(cells) + " |")
    lines += [line for column in columns if column.remark for line in ("", f"{column.broker}: {column.remark}.")]
    names = " | ".join(column.broker for column in columns)
    lines += ["", "## Clients", "", "Runs that passed; those of two roles count for both.", ""]
    lines += [f"| client | version | language | {names} | has no call for |", "|---" * (4 + len(columns)) + "|"]
    for hello in hellos.values():
        counts = " | ".join(_count(hello.client, column) for column in columns)
        lines.append(f"| {hello.client} | {hello.version} | {hello.language} | {counts} | {_lacks(hello)} |")
    for client, why in {client: why for column in columns for client, why in column.skipped.items()}.items():
        lines.append(f"| {client} | skipped |{' |' * (1 + len(columns))} {why.splitlines()[0]} |")
    for column in columns:
        lines += _failures(column, scenarios, collection)
        lines += _not_run(column, scenarios, collection)
    if collection.lists_scenarios:
        lines += ["", "## Scenarios", "", *(f"- {collection.link_to(one)}: {one.says}" for one in scenarios.values())]
    return "\n".join(lines) + "\n"


def _lacks(hello: Hello) -> str:
    """The lines about the features that a client lacks, by reason."""
    reasons: dict[str, list[str]] = {}
    for key, why in sorted(hello.lacks.items()):
        reasons.setdefault(why, []).append(f"`{key}`")
    return "; ".join(f"{', '.join(keys)}: {why}" for why, keys in reasons.items())


def _count(client: str, column: Column) -> str:
    """The numbers of passed runs of a client, and of runs that it could do."""
    if client not in {hello.client for hello in column.clients}:
        return "not asked"
    verdicts = [result.verdict for result in column.results if client in result.clients]
    passed, failed = verdicts.count(PASSED), verdicts.count(FAILED)
    return f"{passed} of {passed + failed}" if failed else str(passed)


def _cell(feature: Feature, column: Column) -> str:
    names = {scenario.name for scenario in feature.scenarios}
    verdicts = [result.verdict for result in column.results if result.scenario in names]
    passed, failed = verdicts.count(PASSED), verdicts.count(FAILED)
    if not passed + failed:
        return "not run" if NOT_RUN in verdicts else "-"
    return f"[{passed} of {passed + failed}](#{_anchor(_failed_title(column))})" if failed else f"all {passed}"


def _failed_title(column: Column) -> str:
    return f"{column.broker} {column.version}: what failed"


def _anchor(title: str) -> str:
    """The anchor of a heading."""
    return "".join(one for one in title.lower().replace(" ", "-") if one.isalnum() or one in "-_")


def _failures(column: Column, scenarios: dict[str, Scenario], collection: Collection) -> list[str]:
    failed: dict[str, list[Result]] = {}
    for result in column.results:
        if result.verdict == FAILED:
            failed.setdefault(result.scenario, []).append(result)
    if not failed:
        return []
    lines = ["", f"## {_failed_title(column)}", ""]
    for name, results in failed.items():
        who = ", ".join(ARROW.join(result.clients) for result in results[:FAILURES_A_SCENARIO_MAX])
        more = len(results) - FAILURES_A_SCENARIO_MAX
        reason = results[0].reason.splitlines()[0][:300].replace("|", "\\|")
        lines.append(
            f"- {collection.link_to(scenarios[name])} ({who}{f' and {more} more' if more > 0 else ''}): {reason}"
        )
    return lines


def _not_run(column: Column, scenarios: dict[str, Scenario], collection: Collection) -> list[str]:
    left_out = {result.scenario: result.reason for result in column.results if result.verdict == NOT_RUN}
    if not left_out:
        return []
    lines = ["", f"## {column.broker} {column.version}: not run", ""]
    return lines + [f"- {collection.link_to(scenarios[name])}: {why}" for name, why in left_out.items()]
