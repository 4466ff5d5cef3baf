"""The job `report`: one HTML page with the answers of the other jobs.

Its size is limited: it shows WINDOWS_MAX windows of QUEUES_MAX queues, and the first rows of each table. If the time is
longer, the windows are wider, and the page says so.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..answers import Answer
from ..engines.protocol import Engine, Row, rows
from ..output.formats import write_text
from ..progress import Progress
from ..report.model import Part, Report
from ..report.page import render
from ..selection import Selection
from .engine_table import EngineTable
from .tables import Tables

QUEUES_MAX, WINDOWS_MAX, ROWS_MAX = 8, 500, 20
#: If no width is given, the narrowest of these widths (seconds) is chosen with about this many windows.
WINDOWS_AIMED = 240
STEPS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)
#: Name of a total -> SQL for the events that it counts.
TOTALS = {
    "published": "kind = 'published'",
    "enqueued": "kind = 'enqueued'",
    "delivered": "kind = 'delivered'",
    "redelivered": "kind = 'delivered' AND attempt > 1",
    "acknowledged": "kind = 'acked'",
    "dead-lettered": "kind = 'dead_lettered'",
    "removed unread": "kind IN ('evicted', 'replaced', 'expired', 'dropped', 'killed')",
}
#: Totals that need recorded deliveries.
OF_DELIVERIES = ("delivered", "redelivered")


@dataclass(frozen=True, slots=True)
class ReportRequest:
    """The part of a lake that a report shows.

    answer: runs a job with windows of a width in seconds; raises ValueError if the journal did not record enough.
    """

    name: str
    selection: Selection
    tables: Tables
    answer: Callable[[str, int], Answer]

    @property
    def engine(self) -> Engine:
        return self.tables.engine

    @property
    def since_condition(self) -> str:
        """SQL: the condition of --since, to be appended to another one."""
        since = self.selection.since_us
        return "" if since is None else f" AND ts >= {self.engine.dialect.timestamp(since)}"


def write_report(request: ReportRequest, path: str, window_s: int | None, progress: Progress) -> None:
    """Compute and write the page. `window_s`: None: choose a width by the time. Raises: ValueError, OSError."""
    write_text(path, render(collect(request, window_s, progress)))


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
    totals, is_whole = _totals(request)
    attempts = _attempts(request)
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
    found: dict[str, Part] = {}
    for job, query in _QUERIES.items():
        found |= query(request, job, width, drawn)
        progress.say(job)
    fates = dict(audit.facts["fates"])
    totals["left in queues"] = fates.get("open", 0)
    if request.selection.queues:
        del totals["published"]  # an event `published` has no queue
    return Report(
        source=request.name,
        begin=begin,
        end=end,
        window_s=width,
        queues=drawn.keys,
        queue_count=drawn.count,
        totals={name: n for name, n in totals.items() if is_whole or name not in OF_DELIVERIES},
        notes=notes,
        fates=fates,
        unknown=sum(audit.facts.get("unknown", {}).values()),
        faults=faults,
        attempts=Part(attempts),
        **found,
    )


def window_width(begin: int, end: int) -> int:
    """The narrowest width in STEPS_S with at most about WINDOWS_AIMED windows."""
    return next((step for step in STEPS_S if (end - begin) // step <= WINDOWS_AIMED), STEPS_S[-1])


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


def _totals(request: ReportRequest) -> tuple[dict[str, int], bool]:
    """The totals by name; and whether deliveries were recorded."""
    counts = ", ".join(f"count_if({condition}) AS n{at}" for at, condition in enumerate(TOTALS.values()))
    (row,) = rows(request.engine, f"SELECT {counts} FROM events WHERE msg_id > 0{request.since_condition}")
    found = {name: int(row[f"n{at}"] or 0) for at, name in enumerate(TOTALS)}
    return found, found["delivered"] > 0


def _attempts(request: ReportRequest) -> list[Row]:
    """Rows with vhost, queue, attempts and n, the number of messages that had this number of deliveries."""
    each = (
        "SELECT vhost, queue, msg_id, max(attempt) AS attempts FROM events"
        f" WHERE kind = 'delivered' AND msg_id > 0{request.since_condition} GROUP BY vhost, queue, msg_id"
    )
    return rows(
        request.engine,
        f"SELECT vhost, queue, attempts, count(*) AS n FROM ({each}) AS each GROUP BY vhost, queue, attempts",
    )


def _query(
    part: Callable[[ReportRequest, EngineTable, _DrawnQueues], dict[str, Part]], *names: str
) -> Callable[..., dict[str, Part]]:
    """A function that computes the parts `names` of the report. If the job cannot answer, each part says why."""

    def query(request: ReportRequest, job: str, window_s: int, drawn: _DrawnQueues) -> dict[str, Part]:
        try:
            table = request.answer(job, window_s).main
        except ValueError as error:
            return {name: Part(why_not=str(error)) for name in names}
        assert isinstance(table, EngineTable)
        return part(request, table, drawn)

    return query


def _series(name: str) -> Callable[[ReportRequest, EngineTable, _DrawnQueues], dict[str, Part]]:
    def part(request: ReportRequest, table: EngineTable, drawn: _DrawnQueues) -> dict[str, Part]:
        return {name: Part(rows(request.engine, f"SELECT * FROM {table.name} WHERE {drawn.condition}"))}

    return part


def _first(name: str) -> Callable[[ReportRequest, EngineTable, _DrawnQueues], dict[str, Part]]:
    def part(request: ReportRequest, table: EngineTable, drawn: _DrawnQueues) -> dict[str, Part]:
        return {name: Part(list(table.head(ROWS_MAX)), count=table.count())}

    return part


def _losses(request: ReportRequest, table: EngineTable, drawn: _DrawnQueues) -> dict[str, Part]:
    view = table.name
    series = rows(
        request.engine,
        f"SELECT vhost, queue, window_start, sum(n) AS n FROM {view} WHERE {drawn.condition}"
        " GROUP BY vhost, queue, window_start",
    )
    totals = (
        "SELECT vhost, queue, cause, sum(n) AS n, sum(bytes) AS bytes, sum(moved) AS moved, sum(refused) AS refused,"
        f" sum(discarded) AS discarded, max(age_ms_max) AS age_ms_max FROM {view} GROUP BY vhost, queue, cause"
    )
    most = rows(request.engine, f"{totals} ORDER BY n DESC, vhost, queue, cause LIMIT {ROWS_MAX}")
    (every,) = rows(request.engine, f"SELECT count(*) AS n FROM ({totals}) AS totals")
    return {"losses": Part(series), "loss_totals": Part(most, count=int(every["n"]))}


def _fairness(request: ReportRequest, table: EngineTable, drawn: _DrawnQueues) -> dict[str, Part]:
    order = "vhost, queue, deliveries DESC, consumer, conn_id"
    most = rows(request.engine, f"SELECT * FROM {table.name} ORDER BY {order} LIMIT {2 * ROWS_MAX}")
    return {"fairness": Part(most, count=table.count())}


_QUERIES: dict[str, Callable[..., dict[str, Any]]] = {
    "depth": _query(_series("depth"), "depth"),
    "latency": _query(_series("latency"), "latency"),
    "redelivery": _query(_first("poison"), "poison"),
    "loss": _query(_losses, "losses", "loss_totals"),
    "deadletters": _query(_first("deadletters"), "deadletters"),
    "fairness": _query(_fairness, "fairness"),
    "blocked": _query(_first("blocked"), "blocked"),
}
