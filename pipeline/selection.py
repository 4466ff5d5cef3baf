"""The options --vhost, --queue, --since and --until as SQL: which events a job reads, and which rows its answer has.

The answer is as if the journal ended at `until`: nothing later is read. `since` selects rows of the answer; older
events are read if the job needs them, because a message that is acknowledged today may have come yesterday.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .engines.protocol import Dialect

#: Jobs that compute each row from events of one queue, so that events of other queues need not be read.
BY_QUEUE = ("audit", "latency", "depth", "redelivery", "loss", "fairness")
#: Jobs that do not need all older rows of the table `events` -> SQL of the rows that they need. {since}: a timestamp.
EVENTS_SINCE = {
    "latency": "ts >= {since}",
    "fairness": "ts >= {since}",
    "deadletters": "(ts >= {since} OR kind NOT IN ('dead_lettered', 'killed', 'expired'))",
}
#: Jobs that need nothing older than `since` from any table. fairness and deadletters are not among them: they look up
#: older connections and deliveries.
READS_SINCE = ("latency",)
#: Job -> SQL of the rows since {since}. The audit is not here: its rows have an LSN, but no time.
ROWS_SINCE = {
    "latency": "window_start >= {since}",
    "depth": "window_start >= {since}",
    "loss": "window_start >= {since}",
    "redelivery": "last_ts >= {since}",
    "blocked": "(until IS NULL OR until >= {since})",
    "trace": "ts >= {since}",
    "replay": "ts >= {since}",
}
#: Job -> the column with the queue, where it is not called `queue`.
QUEUE_COLUMN = {"blocked": "destination"}
#: Jobs that need the journal from its beginning.
WITHOUT_SINCE = ("whatif",)
BY_WINDOW = ("latency", "depth", "loss", "report")
_BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)
_AGO = re.compile(r"[0-9]+[a-z]+")


@dataclass(frozen=True, slots=True)
class Selection:
    """The values of the options. `since_us`, `until_us`: microseconds since 1970 UTC. Empty: everything."""

    vhosts: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    since_us: int | None = None
    until_us: int | None = None

    def __bool__(self) -> bool:
        return self != Selection()

    def since_of(self, job: str, window_s: int) -> int | None:
        """`since`; for jobs by window the beginning of the window that contains it, so that no window is cut."""
        if self.since_us is None or job not in BY_WINDOW:
            return self.since_us
        return self.since_us // (window_s * 10**6) * window_s * 10**6

    def times_to_read(self, job: str, window_s: int) -> tuple[int | None, int | None]:
        """(since, until): the times of the events that a job reads; None: no limit."""
        return (self.since_of(job, window_s) if job in READS_SINCE else None), self.until_us

    def events_condition(self, job: str, window_s: int, sql: "Dialect") -> str | None:
        """The condition on `events`; None: all events are needed."""
        parts = self._of_queue(sql, "queue") if job in BY_QUEUE else []
        parts = [f"({part} OR {part.split(' ')[0]} = '')" for part in parts]  # "": the event concerns all queues
        if self.until_us is not None:
            parts.append(f"ts < {sql.timestamp(self.until_us)} AND date <= DATE '{_day(self.until_us)}'")
        since = self.since_of(job, window_s)
        if since is not None and job in EVENTS_SINCE:
            parts.append(EVENTS_SINCE[job].format(since=sql.timestamp(since)))
            if job != "deadletters":
                parts.append(f"date >= DATE '{_day(since)}'")
        return " AND ".join(parts) or None

    def snapshots_condition(self, sql: "Dialect") -> str | None:
        """The condition on `snapshots`; None: all rows are needed."""
        return " AND ".join(self._of_queue(sql, "queue")) or None

    def rows_condition(self, job: str, window_s: int, sql: "Dialect") -> str | None:
        """The condition on the job's rows; None: all rows."""
        parts = self._of_queue(sql, QUEUE_COLUMN.get(job, "queue"))
        if job == "trace":  # an event `published` has no queue
            parts = [f"({part} OR queue = '')" for part in parts]
        since = self.since_of(job, window_s)
        if since is not None and job in ROWS_SINCE:
            parts.append(ROWS_SINCE[job].format(since=sql.timestamp(since)))
        return " AND ".join(parts) or None

    def _of_queue(self, sql: "Dialect", queue: str) -> list[str]:
        named = (("vhost", self.vhosts), (queue, self.queues))
        return [f"{column} IN ({', '.join(map(sql.text, names))})" for column, names in named if names]


def _day(at_us: int) -> str:
    return (_BEGINNING + timedelta(microseconds=at_us)).date().isoformat()


def moment_us(text: str, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> int:
    """Read a time, as microseconds since 1970: ISO 8601 (by default UTC), or a span of time before now (`2h`, `30m`).

    Raises: ValueError.
    """
    try:
        if _AGO.fullmatch(text):
            from ..settings.values import duration_ms  # imports all settings, 50 ms

            at = now() - timedelta(milliseconds=duration_ms(text))
        else:
            at = datetime.fromisoformat(text)
            at = at if at.tzinfo else at.replace(tzinfo=UTC)
        return (at - _BEGINNING) // timedelta(microseconds=1)
    except (ValueError, OverflowError):
        raise ValueError(f"{text!r} is not a time; such as 2026-11-21T09:30 (UTC), or 2h for two hours ago") from None
