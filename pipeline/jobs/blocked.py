"""blocked: whose publishes were held for want of room, by what, and for how long. Needs scope "all"."""

from .outputs import BLOCKED, conform
from .tables import Tables

WAITS = """
WITH marks AS (
    SELECT lsn, ts, kind, vhost, conn_id,
        {connection} AS `connection`,
        {destination} AS destination,
        {limit} AS `limit`,
        CAST({waited_ms} AS bigint) AS waited
    FROM recorded WHERE kind IN ('blocked', 'unblocked')
), waits AS (
    SELECT *,
        lead(ts) OVER (PARTITION BY vhost, conn_id, destination, `limit` ORDER BY lsn) AS until,
        lead(waited) OVER (PARTITION BY vhost, conn_id, destination, `limit` ORDER BY lsn) AS waited_ms
    FROM marks
)
SELECT *, ts AS since FROM waits WHERE kind = 'blocked'
"""


def blocked(tables: Tables) -> str:
    """`BLOCKED`. Raises: NotRecorded."""
    tables.with_deliveries("blocked")
    dialect = tables.engine.dialect
    members = {name: dialect.member("reason", name) for name in ("connection", "destination", "limit", "waited_ms")}
    return conform(dialect, WAITS.format(**members), BLOCKED)
