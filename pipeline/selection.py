"""What of a lake a job looks at: --vhost, --queue, --since, --until. As SQL that each engine puts before and behind it.

`until` ends the journal: nothing after it is read, so the answer is as of then. `since` chooses rows of the answer;
what is older is read where they need it (a message that is acknowledged today may have come yesterday), and left out
before, by date, where they do not.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Protocol

#: Jobs whose rows come from the events of one queue alone: others are filtered out before.
BY_QUEUE = ("audit", "latency", "depth", "redelivery", "loss", "fairness")
#: Jobs that need nothing from before `since`, the events in SQL that they do not need from then. `{since}`: a time.
WITHOUT_OLDER = {
    "latency": "ts >= {since}",
    "fairness": "ts >= {since}",
    "deadletters": "(ts >= {since} OR kind NOT IN ('dead_lettered', 'killed', 'expired'))",
}
#: Jobs with `since` that read nothing older. (Fairness looks up connections, deadletters deliveries.)
READS_SINCE = ("latency",)
#: What `since` asks of a job's rows, in SQL. The audit's have an LSN, no time.
ROWS_SINCE = {
    "latency": "window_start >= {since}",
    "depth": "window_start >= {since}",
    "loss": "window_start >= {since}",
    "redelivery": "last_ts >= {since}",
    "blocked": "(until IS NULL OR until >= {since})",
    "trace": "ts >= {since}",
}
#: Jobs whose rows have no queue, or a column of another name.
QUEUE_COLUMN = {"blocked": "destination"}
#: Jobs that simulate or send what was, from its beginning.
WITHOUT_SINCE = ("whatif",)
BY_WINDOW = ("latency", "depth", "loss", "report")
_BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)
_AGO = re.compile(r"[0-9]+[a-z]+")


class Dialect(Protocol):
    """How an engine's SQL writes values."""

    def text(self, value: str) -> str:
        """A text, whatever is in it."""
        ...

    def timestamp(self, at_us: int) -> str:
        """A timestamp, from microseconds since 1970 UTC."""
        ...


@dataclass(frozen=True, slots=True)
class Selection:
    """Empty: everything. `since_us`, `until_us`: microseconds since 1970 UTC."""

    vhosts: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    since_us: int | None = None
    until_us: int | None = None

    def __bool__(self) -> bool:
        return self != Selection()

    def since_of(self, job: str, window_s: int) -> int | None:
        """The beginning of the window in which `since` is, for jobs by window: no window is answered in part."""
        if self.since_us is None or job not in BY_WINDOW:
            return self.since_us
        return self.since_us // (window_s * 10**6) * window_s * 10**6

    def read(self, job: str, window_s: int) -> tuple[int | None, int | None]:
        """The times (since, until) of the events that a job has to read."""
        return (self.since_of(job, window_s) if job in READS_SINCE else None), self.until_us

    def events(self, job: str, window_s: int, sql: Dialect) -> str | None:
        """The condition on `events` (columns vhost, queue, ts, kind, date); None: all are needed."""
        parts = self._of_queue(sql, "queue") if job in BY_QUEUE else []
        parts = [f"({part} OR {part.split(' ')[0]} = '')" for part in parts]  # of the broker or of a virtual host
        if self.until_us is not None:
            parts.append(f"ts < {sql.timestamp(self.until_us)} AND date <= DATE '{_day(self.until_us)}'")
        since = self.since_of(job, window_s)
        if since is not None and job in WITHOUT_OLDER:
            parts.append(WITHOUT_OLDER[job].format(since=sql.timestamp(since)))
            if job != "deadletters":
                parts.append(f"date >= DATE '{_day(since)}'")
        return " AND ".join(parts) or None

    def snapshots(self, sql: Dialect) -> str | None:
        """The condition on `snapshots`."""
        return " AND ".join(self._of_queue(sql, "queue")) or None

    def rows(self, job: str, window_s: int, sql: Dialect) -> str | None:
        """The condition on the job's rows."""
        parts = self._of_queue(sql, QUEUE_COLUMN.get(job, "queue"))
        if job == "trace":  # a message is published before it is in a queue
            parts = [f"({part} OR queue = '')" for part in parts]
        since = self.since_of(job, window_s)
        if since is not None and job in ROWS_SINCE:
            parts.append(ROWS_SINCE[job].format(since=sql.timestamp(since)))
        return " AND ".join(parts) or None

    def _of_queue(self, sql: Dialect, queue: str) -> list[str]:
        named = (("vhost", self.vhosts), (queue, self.queues))
        return [f"{column} IN ({', '.join(map(sql.text, names))})" for column, names in named if names]


def _day(at_us: int) -> str:
    return (_BEGINNING + timedelta(microseconds=at_us)).date().isoformat()


def moment_us(text: str, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> int:
    """A time in microseconds since 1970: ISO 8601 (by default UTC), or a time span before now (`2h`, `30m`).

    Raises: ValueError.
    """
    try:
        if _AGO.fullmatch(text):
            from ..settings.values import duration_ms  # brings all settings along, 50 ms

            at = now() - timedelta(milliseconds=duration_ms(text))
        else:
            at = datetime.fromisoformat(text)
            at = at if at.tzinfo else at.replace(tzinfo=UTC)
        return (at - _BEGINNING) // timedelta(microseconds=1)
    except (ValueError, OverflowError):
        raise ValueError(f"{text!r} is no time; such as 2026-11-21T09:30 (UTC), or 2h for two hours ago") from None
