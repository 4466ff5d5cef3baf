"""The report in plain values: the rows of its sections, and the series of its charts as uPlot draws them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

#: A row of a job's table (jobs/outputs.py), by column.
Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Part:
    """The rows of a section. `why_not`: why there are none that mean anything (such as what was not recorded).

    `count`: how many there are if not all are here.
    """

    rows: Sequence[Row] = ()
    why_not: str | None = None
    count: int | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """`begin`, `end`: seconds since 1970 of the first and last event. `window_s`: of all series, aligned to seconds.

    `queues`: those that are drawn, as (virtual host, queue), most messages first, of `queue_count`. Parts:

    - `faults`: of the audit, FAULTS; `fates`: how many messages, by fate
    - `depth`, `latency`: the rows of the queues that are drawn, DEPTH and LATENCY
    - `attempts`: vhost, queue, attempts, n: messages that were delivered so often
    - `poison`: REDELIVERY, poison first
    - `losses`: LOSS of the queues that are drawn; `loss_totals`: vhost, queue, cause, n, bytes, moved, refused,
      discarded, age_ms_max of all
    - `deadletters`, `fairness`, `blocked`: as the jobs of these names
    """

    source: str
    begin: int
    end: int
    window_s: int
    queues: Sequence[tuple[str, str]]
    queue_count: int
    totals: Mapping[str, int]
    notes: Sequence[str] = ()
    fates: Mapping[str, int] = field(default_factory=dict)
    faults: Part = Part()
    depth: Part = Part()
    latency: Part = Part()
    attempts: Part = Part()
    poison: Part = Part()
    losses: Part = Part()
    loss_totals: Part = Part()
    deadletters: Part = Part()
    fairness: Part = Part()
    blocked: Part = Part()


#: Significant digits of what is drawn: a page has some hundred thousand of these numbers.
DIGITS = 6
MEASURES = ("queue", "service", "e2e")
PERCENTILES = ("p50", "p95", "p99", "p999")


def charts(report: Report) -> dict[str, Any]:
    """Everything that is drawn, as JSON's values: `times`, and by chart its lines, in the order of the queues."""
    times = windows(report)
    place = {at: index for index, at in enumerate(times)}
    found: dict[str, Any] = {"times": times, "window_s": report.window_s}
    found["depth"] = {
        name: _ended(_lines(report, report.depth.rows, column, place, None), report.depth.rows, report, place)
        for name, column in (("peak", "depth_max"), ("least", "depth_min"), ("octets", "bytes_end"))
    }
    found["rates"] = {
        name: _lines(report, report.depth.rows, column, place, 0)
        for name, column in (("in", "in_per_s"), ("out", "out_per_s"))
    }
    found["latency"] = {
        measure: {
            point: _lines(report, report.latency.rows, f"{measure}_ms_{point}", place, None) for point in PERCENTILES
        }
        for measure in MEASURES
    }
    found["losses"] = _lines(report, report.losses.rows, "n", place, 0)
    return found


def windows(report: Report) -> list[int]:
    """The beginnings of all windows, in seconds."""
    first = report.begin - report.begin % report.window_s
    return list(range(first, report.end + 1, report.window_s))


def _lines(
    report: Report, rows: Iterable[Row], column: str, place: dict[int, int], without: float | None
) -> list[list[float | None]]:
    """A line for each queue; `without`: its value in windows without a row. Rows of one window are added up."""
    lines: dict[tuple[str, str], list[float | None]] = {key: [without] * len(place) for key in report.queues}
    for row in rows:
        line, at, value = lines.get((row["vhost"], row["queue"])), place.get(second(row)), row[column]
        if line is not None and at is not None and value is not None:
            line[at] = _short((line[at] or 0) + value)
    return [lines[key] for key in report.queues]


def _ended(
    lines: list[list[float | None]], rows: Sequence[Row], report: Report, place: dict[int, int]
) -> list[list[float | None]]:
    """The lines with 0 messages where a queue has no more rows, because it was emptied."""
    last: dict[tuple[str, str], int] = {}
    for row in rows:
        key, at = (row["vhost"], row["queue"]), place.get(second(row), -1)
        last[key] = max(last.get(key, -1), at)
    for key, line in zip(report.queues, lines, strict=True):
        for at in range(last.get(key, len(line)) + 1, len(line)):
            line[at] = 0
    return lines


def second(row: Row) -> int:
    """When the row's window begins."""
    return int(row["window_start"].timestamp())


def _short(value: float) -> float:
    whole = int(value)
    return whole if whole == value else float(f"{value:.{DIGITS}g}")
