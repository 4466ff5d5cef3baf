"""Ratios and verdicts from runs, and the tables that show them."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from generator import Figures
from scenarios import IDLE_RSS_MB_MAX, SCENARIOS, START_MS_MAX, Goal, Scenario

RABBITMQ = "rabbitmq"
LEVERET = "leveret"
BASELINE = "baseline"
BASELINE_AGAIN = "baseline-again"  # a second process of the same command: the spread between equals

Runs = Mapping[str, Sequence[Figures]]  # of one scenario: broker -> a run per round
METRICS: dict[str, Callable[[Figures], float | None]] = {
    "rate": lambda figures: figures.rate,
    "cpu": lambda figures: figures.cpu_s_per_million,
    "p50": lambda figures: figures.p50_us,
    "p99": lambda figures: figures.p99_us,
}


@dataclass(frozen=True, slots=True)
class Ratio:
    """Of two brokers' figures, pair by pair of the rounds: the median, the lowest, the highest."""

    median: float
    lowest: float
    highest: float

    def __str__(self) -> str:
        return f"{self.median:.3g}x ({self.lowest:.3g} to {self.highest:.3g})"


@dataclass(slots=True)
class Results:
    """Everything one call of compare.py measured."""

    facts: dict[str, Any]
    runs: dict[str, dict[str, list[Figures]]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    start_ms: list[float] = field(default_factory=list)
    idle_rss_mb: list[float] = field(default_factory=list)


def ratio(runs: Runs, over: str, under: str, metric: str) -> Ratio | None:
    """`over` / `under`, None if a broker has no such figure (or one too small for the clock)."""
    read = METRICS[metric]
    pairs = [(read(a), read(b)) for a, b in zip(runs.get(over, ()), runs.get(under, ()))]
    ratios = [a / b for a, b in pairs if a is not None and b]
    return Ratio(statistics.median(ratios), min(ratios), max(ratios)) if ratios else None


def met(goal: Goal, runs: Runs) -> bool | None:
    """Whether every bound of the goal is met; None: no goal, or nothing to compare with."""
    verdicts = []
    for metric, bound, sign in (
        ("rate", goal.rate_min, 1),
        ("cpu", goal.cpu_max, -1),
        ("p50", goal.p50_max, -1),
        ("p99", goal.p99_max, -1),
    ):
        if bound is None:
            continue
        found = ratio(runs, LEVERET, RABBITMQ, metric)
        if found is None:
            return None
        verdicts.append(found.median * sign >= bound * sign)
    return all(verdicts) if verdicts else None


def against_baseline(runs: Runs, metric: str) -> tuple[Ratio, Ratio, str] | None:
    """New / old, old / old, and a verdict: a value within the spread of old / old is no difference."""
    new = ratio(runs, LEVERET, BASELINE, metric)
    old = ratio(runs, BASELINE_AGAIN, BASELINE, metric)
    if new is None or old is None:
        return None
    if min(old.lowest, 1.0) <= new.median <= max(old.highest, 1.0):
        return new, old, "same"
    return new, old, "better" if (new.median > 1) == (metric == "rate") else "worse"


def figures_cell(scenario: Scenario, runs: Sequence[Figures]) -> str:
    """Medians of one broker in one scenario: rate [CPU s/M], then latency or memory if the scenario measures it."""
    if not runs:
        return ""
    cell = (
        f"{statistics.median(r.rate for r in runs):,.0f} [{statistics.median(r.cpu_s_per_million for r in runs):.3g}]"
    )
    memory = [r.rss_bytes_per_message for r in runs if r.rss_bytes_per_message is not None]
    if memory:
        cell += f" {statistics.median(memory):.0f} B each"
    if scenario.tells_latency:
        p50, p99 = (
            statistics.median(figure for figure in figures if figure is not None)
            for figures in ([r.p50_us for r in runs], [r.p99_us for r in runs])
        )
        cell += f" p50 {p50:.0f} p99 {p99:.0f} µs"
    return cell


def scenario_line(name: str, runs: Runs) -> str:
    """One line for the terminal."""
    scenario = SCENARIOS[name]
    parts = [f"{name:11}"]
    parts += [
        f"{broker} {figures_cell(scenario, figures)}" for broker, figures in runs.items() if broker != BASELINE_AGAIN
    ]
    for metric in METRICS if runs.get(RABBITMQ) else ():
        if (metric in ("p50", "p99") and not scenario.tells_latency) or (metric == "rate" and scenario.paced):
            continue
        parts.append(f"{metric} {ratio(runs, LEVERET, RABBITMQ, metric) or '-'}")
    for metric in ("rate", "cpu"):
        if compared := against_baseline(runs, metric):
            parts.append(f"{metric} new/old {compared[0]}, old/old {compared[1]}: {compared[2]}")
    verdict = met(scenario.goal, runs)
    if verdict is not None:
        parts.append(f"goal {scenario.goal}: {_word(verdict)}")
    return "  ".join(parts)


def _word(verdict: bool | None) -> str:
    return {True: "met", False: "MISSED", None: ""}[verdict]


def idle_verdicts(results: Results) -> list[tuple[str, str, str, bool]]:
    """Start-up and idle memory: what, figure, goal, met."""
    rows = []
    if results.start_ms:
        found = statistics.median(results.start_ms)
        rows.append(("start to connection.open-ok", f"{found:.0f} ms", f"≤ {START_MS_MAX:g} ms", found <= START_MS_MAX))
    if results.idle_rss_mb:
        found = statistics.median(results.idle_rss_mb)
        rows.append(("idle RSS", f"{found:.1f} MB", f"≤ {IDLE_RSS_MB_MAX:g} MB", found <= IDLE_RSS_MB_MAX))
    return rows


def write(results: Results, path: Path) -> None:
    """The JSON at `path`, a table for people beside it with the ending .md."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(as_json(results), indent=1, ensure_ascii=False) + "\n")
    path.with_suffix(".md").write_text(markdown(results))


def as_json(results: Results) -> dict[str, Any]:
    """Facts, every run, ratios, verdicts."""
    scenarios = {}
    for name, runs in results.runs.items():
        pairs = [(LEVERET, RABBITMQ), (LEVERET, BASELINE), (BASELINE_AGAIN, BASELINE)]
        ratios = {
            f"{metric} {over}/{under}": [round(figure, 4) for figure in (found.median, found.lowest, found.highest)]
            for over, under in pairs
            for metric in METRICS
            if (found := ratio(runs, over, under, metric)) is not None
        }
        scenarios[name] = {
            "runs": {broker: [figures.as_json() for figures in rows] for broker, rows in runs.items()},
            "ratios [median, lowest, highest]": ratios,
            "goal": str(SCENARIOS[name].goal),
            "met": met(SCENARIOS[name].goal, runs),
        }
    idle = {what: {"figure": figure, "goal": goal, "met": good} for what, figure, goal, good in idle_verdicts(results)}
    return {**results.facts, "scenarios": scenarios, "start and idle": idle, "failures": results.failures}


def markdown(results: Results) -> str:
    """The same as tables. Rates are medians; ratios are medians of the rounds' own ratios, with lowest and highest."""
    facts = results.facts
    lines = [
        "# Benchmarks",
        "",
        f"{facts['date']}; {facts['machine']['cpu']}, {facts['machine']['cores']} cores, {facts['machine']['system']}; "
        f"{facts['machine']['python']}, profile-guided: {facts['machine']['python_profile_guided']}; "
        f"{', '.join(f'{name} {version}' for name, version in facts['brokers'].items())}; "
        f"{facts['rounds']} rounds of `{facts['command']}`.",
        "",
        "Messages/s [broker CPU seconds per million messages].",
        "",
    ]
    lines += _rabbitmq_table(results.runs) + _baseline_table(results.runs)
    idle = idle_verdicts(results)
    if idle:
        lines += ["| | leveret | goal | |", "|---|---|---|---|"]
        lines += [f"| {what} | {figure} | {goal} | {_word(good)} |" for what, figure, goal, good in idle] + [""]
    lines += [f"FAILED: {failure}" for failure in results.failures]
    return "\n".join(lines).rstrip() + "\n"


def _rabbitmq_table(runs_of: Mapping[str, Runs]) -> list[str]:
    if not any(runs.get(RABBITMQ) for runs in runs_of.values()):
        return []
    lines = ["| | load | RabbitMQ | leveret | rate | CPU | p50 | p99 | goal | |", "|" + "---|" * 10]
    for name, runs in runs_of.items():
        scenario = SCENARIOS[name]
        shown = {metric: str(ratio(runs, LEVERET, RABBITMQ, metric) or "") for metric in METRICS}
        tells = scenario.tells_latency
        cells = [
            figures_cell(scenario, runs.get(RABBITMQ, ())),
            figures_cell(scenario, runs.get(LEVERET, ())),
            "" if scenario.paced else shown["rate"],
            shown["cpu"],
            shown["p50"] if tells else "",
            shown["p99"] if tells else "",
        ]
        verdict = _word(met(scenario.goal, runs))
        lines.append(f"| {name} | {scenario.title} | {' | '.join(cells)} | {scenario.goal} | {verdict} |")
    return [*lines, ""]


def _baseline_table(runs_of: Mapping[str, Runs]) -> list[str]:
    lines = []
    for name, runs in runs_of.items():
        for metric in ("rate", "cpu"):
            if compared := against_baseline(runs, metric):
                new, old, verdict = compared
                lines.append(f"| {name} | {metric} | {new} | {old} | {verdict} |")
    if not lines:
        return []
    return ["| | | new / baseline | baseline / itself | |", "|" + "---|" * 5, *lines, ""]
