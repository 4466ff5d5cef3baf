"""The job `report`: one HTML page with the answers of the other jobs.

Its size is limited: it shows WINDOWS_MAX windows of QUEUES_MAX queues, and the first rows of each table. If the time is
longer, the windows are wider, and the page says so.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..answers import Answer
from ..engines.protocol import PERCENTILES, Engine, Row, rows, value
from ..lake.lake import span_of_events
from ..lake.nodes import Node
from ..progress import Progress
from ..report.model import MEASURES, Part, Report, peaks, second
from ..selection import Selection
from .engine_table import EngineTable
from .lives import KEPT
from .tables import Tables

QUEUES_MAX, WINDOWS_MAX, ROWS_MAX = 8, 500, 20
#: If no width is given, the narrowest of these widths (seconds) is chosen with about this many windows.
WINDOWS_AIMED = 240
STEPS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)
#: The totals. `COUNTED`: SQL of the events that count. `OF_FATES`: a fate of the audit. The others are sums of jobs.
TOTALS = (
    *("published", "enqueued", "delivered", "redelivered", "acknowledged", "read in streams", "dead-lettered", "lost"),
    *("refused", "discarded on purpose", "left in queues"),
)
COUNTED = {
    "published": "kind = 'published'",
    "enqueued": "kind = 'enqueued'",
    "delivered": "kind = 'delivered'",
    "read in streams": f"kind = 'acked' AND (CAST(flags AS int) & {KEPT}) <> 0",
}
OF_FATES = {"acknowledged": "acked", "dead-lettered": "dead_lettered", "left in queues": "open"}
#: Totals that are left out if they are 0. (Without recorded deliveries `delivered` is.)
IF_ANY = ("delivered", "read in streams", "refused", "discarded on purpose")
#: How many of the oldest messages are shown that a queue had at its peak.
EXAMPLES = 3
AT_PEAK = """
SELECT lives.vhost, lives.queue, msg_id,
    row_number() OVER (PARTITION BY lives.vhost, lives.queue ORDER BY enqueued_lsn, msg_id) AS place
FROM lives JOIN (VALUES {peaks}) AS peaks(vhost, queue, begin, until)
    ON lives.vhost = peaks.vhost AND lives.queue = peaks.queue
WHERE unix_seconds(enqueued_ts) < until AND (finished_ts IS NULL OR unix_seconds(finished_ts) >= begin)
"""
SLOWEST = """
SELECT vhost, queue, msg_id, row_number() OVER (
    PARTITION BY vhost, queue ORDER BY unix_micros(finished_ts) - unix_micros(enqueued_ts) DESC, msg_id
) AS place
FROM lives WHERE kind = 'acked' AND first_delivered_ts IS NOT NULL AND ({drawn})
"""


@dataclass(frozen=True, slots=True)
class ReportRequest:
    """The part of a lake that a report shows.

    answer: runs a job with windows of a width in seconds; raises ValueError if the journal did not record enough.
    trace: the shell command that shows a message; its id is to be appended.
    """

    name: str
    selection: Selection
    tables: Tables
    answer: Callable[[str, int], Answer]
    trace: str

    @property
    def engine(self) -> Engine:
        return self.tables.engine

    @property
    def since_condition(self) -> str:
        """SQL: the condition of --since, to be appended to another one."""
        since = self.selection.since_us
        return "" if since is None else f" AND ts >= {self.engine.dialect.timestamp(since)}"


@dataclass(frozen=True, slots=True)
class _DrawnQueues:
    """The queues with most messages, which are drawn. `count`: of all queues. `condition`: SQL of the drawn ones."""

    keys: tuple[tuple[str, str], ...]
    count: int
    condition: str


def collect(request: ReportRequest, window_s: int | None, progress: Progress) -> Report:
    """Compute the figures. Raises: ValueError.

    Figures of the present views of events come first, because the answer of a job replaces these views.
    """
    begin, end = _span(request)
    width = fitted_width(window_s or window_width(begin, end), begin, end)
    drawn = _drawn(request)
    counted = _counted(request)
    deliveries = _deliveries(request)
    notes = [f"not whole: {missing}"] if (missing := request.tables.missing_text()) else []
    if lost := request.tables.holes_text():
        notes.append(f"not whole: {lost}")
    if window_s and width != window_s:
        notes.append(f"windows of {window_s} s would be too many to draw: they are of {width} s")
    progress.say("totals")
    audit = request.answer("audit", width)
    assert audit.main is not None
    faults = Part(list(audit.main.head(ROWS_MAX)), count=audit.main.count())
    progress.say("audit")
    fates = dict(audit.facts["fates"])
    totals = counted | {name: fates.get(fate, 0) for name, fate in OF_FATES.items()}
    found: dict[str, Any] = {"of_node": {}}
    for job, (query, *names) in _QUERIES.items():
        try:
            table = request.answer(job, width).main
        except ValueError as error:
            parts: dict[str, Any] = {name: Part(why_not=str(error)) for name in names}
        else:
            assert isinstance(table, EngineTable)
            parts = query(request, table, drawn)
        totals |= parts.pop("totals", {})
        found["of_node"] |= parts.pop("of_node", {})
        found |= parts
        progress.say(job)
    return Report(
        source=request.name,
        begin=begin,
        end=end,
        window_s=width,
        queues=drawn.keys,
        queue_count=drawn.count,
        totals={name: totals[name] for name in TOTALS if name in totals and (totals[name] or name not in IF_ANY)},
        notes=notes,
        fates=fates,
        unknown=sum(audit.facts.get("unknown", {}).values()),
        trace=request.trace,
        faults=faults,
        attempts=Part(deliveries),
        holes=Part(request.tables.holes()),
        **found,
    )


def window_width(begin: int, end: int) -> int:
    """The narrowest width in STEPS_S with at most about WINDOWS_AIMED windows; the widest if there is none."""
    return next((step for step in STEPS_S if (end - begin) // step <= WINDOWS_AIMED), STEPS_S[-1])


def common_window(lake: str, nodes: Sequence[Node], selection: Selection, window_s: int | None) -> int:
    """The width of windows, in seconds, for a report over several nodes. `window_s`: the wanted width, if any.

    Raises: as `committed_files`.
    """
    span = span_of_events(lake, [one.journal for one in nodes])
    begin, end = (int(at.timestamp()) for at in span) if span else (0, 0)
    begin = max(begin, (selection.since_us or 0) // 10**6)
    end = end if selection.until_us is None else min(end, selection.until_us // 10**6)
    return fitted_width(window_s or window_width(begin, end), begin, max(begin, end))


def fitted_width(window_s: int, begin: int, end: int) -> int:
    """The least multiple of `window_s` with at most WINDOWS_MAX windows."""
    count = end // window_s - begin // window_s + 1
    factor = -(-count // WINDOWS_MAX)
    while end // (window_s * factor) - begin // (window_s * factor) + 1 > WINDOWS_MAX:
        factor += 1  # there may be one more, because windows are aligned
    return window_s * factor


def _span(request: ReportRequest) -> tuple[int, int]:
    (row,) = rows(
        request.engine,
        "SELECT unix_seconds(min(ts)) AS first_s, unix_seconds(max(ts)) AS last_s"
        f" FROM events WHERE lsn > 0{request.since_condition}",
    )
    return int(row["first_s"] or 0), int(row["last_s"] or 0)


def _drawn(request: ReportRequest) -> _DrawnQueues:
    enqueued = f"kind = 'enqueued'{request.since_condition}"
    counted = f"SELECT vhost, queue, count(*) AS n FROM events WHERE {enqueued} GROUP BY vhost, queue"
    most = rows(request.engine, f"{counted} ORDER BY n DESC, vhost, queue LIMIT {QUEUES_MAX}")
    (every,) = rows(request.engine, f"SELECT count(*) AS n FROM ({counted}) AS counted")
    keys = tuple((row["vhost"], row["queue"]) for row in most)
    each = [
        f"(vhost = {request.engine.dialect.text(vhost)} AND queue = {request.engine.dialect.text(queue)})"
        for vhost, queue in keys
    ]
    return _DrawnQueues(keys, int(every["n"]), " OR ".join(each) or "1 = 0")


def _counted(request: ReportRequest) -> dict[str, int]:
    """The totals in `COUNTED`. With --queue there is no `published`, because such an event has no queue."""
    counted = {name: so for name, so in COUNTED.items() if name != "published" or not request.selection.queues}
    counts = ", ".join(f"count_if({so}) AS n{at}" for at, so in enumerate(counted.values()))
    (row,) = rows(request.engine, f"SELECT {counts} FROM events WHERE msg_id > 0{request.since_condition}")
    return {name: int(row[f"n{at}"] or 0) for at, name in enumerate(counted)}


def _deliveries(request: ReportRequest) -> list[Row]:
    """Rows with vhost, queue, deliveries and n, the number of messages that had this number of deliveries.

    Without streams and non-destructive queues, where each consumer gets every message.
    """
    each = (
        f"SELECT vhost, queue, msg_id, count(*) AS deliveries FROM events ANTI JOIN {request.tables.log_queues()} AS"
        " log_queues ON log_queues.vhost = events.vhost AND log_queues.queue = events.queue"
        " AND events.lsn >= begin_lsn AND events.lsn < end_lsn"
        f" WHERE kind = 'delivered' AND msg_id > 0{request.since_condition}"
        " GROUP BY vhost, queue, msg_id"
    )
    return rows(
        request.engine,
        f"SELECT vhost, queue, deliveries, count(*) AS n FROM ({each}) AS each GROUP BY vhost, queue, deliveries",
    )


def _by_window(request: ReportRequest, name: str, table: EngineTable, columns: str) -> dict[str, dict[str, Part]]:
    """The part `of_node` of a table. `columns`: SQL of aggregates over the queues of a window."""
    if not request.tables.node:
        return {}
    text = f"SELECT window_start, {columns} FROM {table.name} GROUP BY window_start"
    return {"of_node": {name: Part(rows(request.engine, text))}}


def _depth(request: ReportRequest, table: EngineTable, drawn: _DrawnQueues) -> dict[str, Any]:
    depths = rows(request.engine, f"SELECT * FROM {table.name} WHERE {drawn.condition}")
    columns = (
        "sum(depth_end) AS depth_max, sum(depth_min) AS depth_min, sum(bytes_end) AS bytes_end,"
        " sum(in_per_s) AS in_per_s, sum(out_per_s) AS out_per_s"
    )
    more = _by_window(request, "depth", table, columns)
    text = request.engine.dialect.text
    shown = [
        f"({text(row['vhost'])}, {text(row['queue'])}, {second(row)}, {second(row) + row['window_s']})"
        for row in peaks(depths).values()
    ]
    oldest = AT_PEAK.format(peaks=", ".join(shown)) if shown else ""
    slowest = SLOWEST.format(drawn=drawn.condition)
    examples = [
        {**row, "why": why}
        for why, query, most in (("peak", oldest, EXAMPLES), ("slowest", slowest, 1))
        if query
        for row in rows(
            request.engine,
            f"SELECT vhost, queue, msg_id FROM ({query}) AS placed WHERE place <= {most} ORDER BY vhost, queue, place",
        )
    ]
    return {"depth": Part(depths), "examples": Part(examples), **more}


def _latency(request: ReportRequest, table: EngineTable, drawn: _DrawnQueues) -> dict[str, Any]:
    times = (f"{what}_ms_{point}" for what in MEASURES for point in PERCENTILES)
    more = _by_window(request, "latency", table, ", ".join(f"max({name}) AS {name}" for name in times))
    return {"latency": Part(rows(request.engine, f"SELECT * FROM {table.name} WHERE {drawn.condition}")), **more}


def _redelivery(request: ReportRequest, table: EngineTable, drawn: _DrawnQueues) -> dict[str, Any]:
    count = value(request.engine, f"SELECT count(*) FROM {table.name} WHERE redeliveries > 0")
    return {**_first("poison")(request, table, drawn), "totals": {"redelivered": count}}


def _first(name: str) -> Callable[[ReportRequest, EngineTable, _DrawnQueues], dict[str, Any]]:
    def part(request: ReportRequest, table: EngineTable, drawn: _DrawnQueues) -> dict[str, Any]:
        return {name: Part(list(table.head(ROWS_MAX)), count=table.count())}

    return part


def _losses(request: ReportRequest, table: EngineTable, drawn: _DrawnQueues) -> dict[str, Any]:
    view = table.name
    series = rows(
        request.engine,
        f"SELECT vhost, queue, window_start, sum(n) AS n FROM {view} WHERE {drawn.condition}"
        " GROUP BY vhost, queue, window_start",
    )
    by_cause = (
        "SELECT vhost, queue, cause, sum(n) AS n, sum(bytes) AS bytes, sum(moved) AS moved, sum(refused) AS refused,"
        f" sum(discarded) AS discarded, max(age_ms_max) AS age_ms_max FROM {view} GROUP BY vhost, queue, cause"
    )
    most = rows(request.engine, f"{by_cause} ORDER BY n DESC, vhost, queue, cause LIMIT {ROWS_MAX}")
    sums = "count(*) AS n, sum(n) AS lost, sum(refused) AS refused, sum(discarded) AS discarded"
    (every,) = rows(request.engine, f"SELECT {sums} FROM ({by_cause}) AS by_cause")
    return {
        "losses": Part(series),
        "loss_totals": Part(most, count=int(every["n"])),
        "totals": {
            "lost": int(every["lost"] or 0),
            "refused": int(every["refused"] or 0),
            "discarded on purpose": int(every["discarded"] or 0),
        },
        **_by_window(request, "losses", table, "sum(n) AS n"),
    }


def _fairness(request: ReportRequest, table: EngineTable, drawn: _DrawnQueues) -> dict[str, Any]:
    order = "vhost, queue, deliveries DESC, consumer, conn_id"
    most = rows(request.engine, f"SELECT * FROM {table.name} ORDER BY {order} LIMIT {2 * ROWS_MAX}")
    return {"fairness": Part(most, count=table.count())}


_Query = Callable[[ReportRequest, EngineTable, _DrawnQueues], dict[str, Any]]
#: Job -> the function that makes parts of the report of its answer, and the parts that say why if it cannot answer. The
#: function may return two more parts, `totals` and `of_node`.
_QUERIES: dict[str, tuple[_Query, *tuple[str, ...]]] = {
    "depth": (_depth, "depth"),
    "latency": (_latency, "latency"),
    "redelivery": (_redelivery, "poison"),
    "loss": (_losses, "losses", "loss_totals"),
    "deadletters": (_first("deadletters"), "deadletters"),
    "fairness": (_fairness, "fairness"),
    "blocked": (_first("blocked"), "blocked"),
}
