"""A report as plain values: the rows of its sections, and the lines of its charts as uPlot draws them."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

#: A row of a job's table (jobs/outputs.py): column -> value.
Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Part:
    """The rows of a section. `why_not`: why it has none, such as "not recorded". `count`: of all rows, if some are left
    out.
    """

    rows: Sequence[Row] = ()
    why_not: str | None = None
    count: int | None = None

    @property
    def total(self) -> int:
        """The number of rows, with those that are left out."""
        return len(self.rows) if self.count is None else self.count


@dataclass(frozen=True, slots=True)
class Report:
    """The figures of a report. The names of tables (FAULTS, ...) are those of jobs/outputs.py.

    begin, end: seconds since 1970 of the first and last event; 0: there is none. window_s: the width of windows.
    queues: the drawn ones as (virtual host, queue), most messages first. queue_count: of all queues. fates: number of
    messages by fate. unknown: number of messages with something that is a fault unless a hole explains it. trace: the
    shell command that shows a message; its id is to be appended. Parts:

    - faults: FAULTS of the audit
    - depth, latency: DEPTH and LATENCY of the drawn queues
    - examples: vhost, queue, why, msg_id of the drawn queues. why: `peak` (the oldest messages in the queue when it had
      the most) or `slowest` (the one with the longest time until its acknowledgement)
    - attempts: vhost, queue, deliveries, n; n is the number of messages with this number of deliveries
    - poison: REDELIVERY, poison first
    - losses: LOSS of the drawn queues
    - loss_totals: vhost, queue, cause, n, bytes, moved, refused, discarded, age_ms_max; of all queues
    - deadletters, fairness, blocked, holes: the tables with these names

    of_node: in a lake with several nodes the rows of `depth`, `latency` and `losses` of the whole node, that is, of all
    queues together. Depth is the sum, at the end of each window; latency is that of the slowest queue.
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
    unknown: int = 0
    trace: str = ""
    faults: Part = Part()
    depth: Part = Part()
    latency: Part = Part()
    examples: Part = Part()
    attempts: Part = Part()
    poison: Part = Part()
    losses: Part = Part()
    loss_totals: Part = Part()
    deadletters: Part = Part()
    fairness: Part = Part()
    blocked: Part = Part()
    holes: Part = Part()
    of_node: Mapping[str, Part] = field(default_factory=dict)


#: The most nodes that are drawn.
NODES_MAX = 8


def fleet(source: str, nodes: Mapping[str, Report], notes: Sequence[str]) -> Report:
    """The figures of several nodes together. Its `queues` are the nodes, as ("", node), those with most messages first.

    Only totals, times and charts are filled. `nodes`: name -> report, at least one, all with the same width of windows.
    """
    names = sorted(nodes, key=lambda name: (-nodes[name].totals.get("enqueued", 0), name))
    drawn = names[:NODES_MAX]
    totals: Counter[str] = Counter()
    for report in nodes.values():
        totals.update(report.totals)
    timed = [one for one in nodes.values() if one.end] or list(nodes.values())

    def rows_of(part: str) -> Part:
        of_nodes = ((name, nodes[name].of_node.get(part, Part())) for name in drawn)
        return Part([{**row, "vhost": "", "queue": name} for name, found in of_nodes for row in found.rows])

    return Report(
        source=source,
        begin=min(one.begin for one in timed),
        end=max(one.end for one in timed),
        window_s=next(iter(nodes.values())).window_s,
        queues=[("", name) for name in drawn],
        queue_count=len(nodes),
        totals=totals,
        notes=notes,
        holes=Part([row for report in nodes.values() for row in report.holes.rows]),
        depth=rows_of("depth"),
        latency=rows_of("latency"),
        losses=rows_of("losses"),
    )


#: Significant digits of drawn numbers, few because a page may have some hundred thousand of them.
DIGITS = 6
#: The times of the job `latency`: until the first delivery, from the last one to the ack, and from enqueue to ack.
MEASURES = ("queue", "service", "e2e")
PERCENTILES = ("p50", "p95", "p99", "p999")


def charts(report: Report) -> dict[str, Any]:
    """The figures of all charts, for JSON: `times`, and each chart's lines, one for each queue in their order.

    holes: [begin, end] of each, in seconds since 1970.
    """
    times = windows(report)
    place = {at: index for index, at in enumerate(times)}
    found: dict[str, Any] = {"times": times, "window_s": report.window_s}
    found["depth"] = {
        name: _with_zeros_at_end(
            _lines(report, report.depth.rows, column, place, None), report.depth.rows, report, place
        )
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
    found["holes"] = [
        [
            at.timestamp() if at else edge
            for at, edge in ((row["before_ts"], report.begin), (row["after_ts"], report.end))
        ]
        for row in report.holes.rows
    ]
    return found


def windows(report: Report) -> list[int]:
    """The beginning of each window, in seconds since 1970."""
    first = report.begin - report.begin % report.window_s
    return list(range(first, report.end + 1, report.window_s))


def _lines(
    report: Report, rows: Iterable[Row], column: str, place: dict[int, int], without: float | None
) -> list[list[float | None]]:
    """A line for each queue. The rows of one window are added up. `without`: the value in windows without a row."""
    lines: dict[tuple[str, str], list[float | None]] = {key: [without] * len(place) for key in report.queues}
    for row in rows:
        line, at, value = lines.get((row["vhost"], row["queue"])), place.get(second(row)), row[column]
        if line is not None and at is not None and value is not None:
            line[at] = _rounded((line[at] or 0) + value)
    return [lines[key] for key in report.queues]


def _with_zeros_at_end(
    lines: list[list[float | None]], rows: Sequence[Row], report: Report, place: dict[int, int]
) -> list[list[float | None]]:
    """The lines with 0 after the last row of a queue: after it the queue is empty."""
    last: dict[tuple[str, str], int] = {}
    for row in rows:
        key, at = (row["vhost"], row["queue"]), place.get(second(row), -1)
        last[key] = max(last.get(key, -1), at)
    for key, line in zip(report.queues, lines, strict=True):
        for at in range(last.get(key, len(line)) + 1, len(line)):
            line[at] = 0
    return lines


def second(row: Row) -> int:
    """The beginning of a row's window, in seconds since 1970."""
    return int(row["window_start"].timestamp())


def peaks(rows: Iterable[Row]) -> dict[tuple[str, str], Row]:
    """The row of each queue's highest depth, the first one of several."""
    found: dict[tuple[str, str], Row] = {}
    for row in rows:
        key = (row["vhost"], row["queue"])
        if key not in found or (row["depth_max"], -second(row)) > (found[key]["depth_max"], -second(found[key])):
            found[key] = row
    return found


def _rounded(value: float) -> float:
    whole = int(value)
    return whole if whole == value else float(f"{value:.{DIGITS}g}")
