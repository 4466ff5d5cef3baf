"""The jobs `latency` and `fairness`: times of waiting and processing by queue and consumer. They need scope "all"."""

from ..engines.protocol import PERCENTILES, rows
from ..report.model import MEASURES
from .outputs import FAIRNESS, LATENCY, MS_BETWEEN, WINDOW, conform
from .tables import Tables

LATENCY_QUERY = """
SELECT vhost, queue, window_start, {window_s} AS window_s, n, {points}
FROM (
    SELECT vhost, queue, timestamp_seconds({slot}) AS window_start, count(*) AS n, {spreads}
    FROM (
        SELECT vhost, queue, unix_seconds(enqueued_ts) AS second,
            {waited} AS queue_ms,
            IF(kind = 'acked', {served}, NULL) AS service_ms,
            IF(kind = 'acked', {whole}, NULL) AS e2e_ms
        FROM {lives} WHERE enqueued_ts IS NOT NULL AND first_delivered_ts IS NOT NULL
    ) AS one
    GROUP BY vhost, queue, {slot}
) AS folded
"""
#: Percentiles are computed from counts by duration: if one consumer had all messages, their durations would not fit
#: into the memory of one task.
FAIRNESS_QUERY = """
WITH handed AS (
    SELECT msg_id, vhost, queue, coalesce(consumer, '') AS consumer, conn_id,
        count_if(kind = 'delivered') AS deliveries,
        max(IF(kind = 'delivered', ts, NULL)) AS delivered_ts,
        max(IF(kind = 'acked', ts, NULL)) AS acked_ts
    FROM recorded WHERE kind IN ('delivered', 'acked') AND msg_id > 0
    GROUP BY msg_id, vhost, queue, coalesce(consumer, ''), conn_id
), timed AS (
    SELECT *, {served} AS service_ms FROM handed
), counted AS (
    SELECT vhost, queue, consumer, conn_id, service_ms,
        count(service_ms) AS n,
        sum(deliveries) AS deliveries,
        count(acked_ts) AS acked
    FROM timed GROUP BY vhost, queue, consumer, conn_id, service_ms
), ranked AS (
    SELECT *,
        sum(n) OVER (PARTITION BY vhost, queue, consumer, conn_id ORDER BY service_ms) AS up_to,
        sum(n) OVER (PARTITION BY vhost, queue, consumer, conn_id) AS n_all
    FROM counted
), folded AS (
    SELECT vhost, queue, consumer, conn_id,
        sum(deliveries) AS deliveries,
        sum(acked) AS acked,
        min(IF(up_to * 1000 >= n_all * 500, service_ms, NULL)) AS service_ms_p50,
        min(IF(up_to * 1000 >= n_all * 950, service_ms, NULL)) AS service_ms_p95,
        max(service_ms) AS service_ms_max
    FROM ranked GROUP BY vhost, queue, consumer, conn_id
), named AS (
    SELECT conn_id, max(reason) AS connection FROM whole_events WHERE kind = 'connection_opened' GROUP BY conn_id
){leases}
SELECT vhost, queue, consumer, conn_id, connection, deliveries, acked, service_ms_p50, service_ms_p95, service_ms_max,
    deliveries / sum(deliveries) OVER (PARTITION BY vhost, queue) AS share,
    {leases_ended} AS leases_ended
FROM folded LEFT JOIN named USING (conn_id){with_leases}
WHERE deliveries > 0
"""
#: A lease belongs to the consumer of the last delivery before its end.
LEASES = """, ended AS (
    SELECT msg_id, vhost, queue, lsn AS ended_lsn FROM recorded WHERE kind = 'lease_ended'
), held AS (
    SELECT vhost, queue, ended_lsn,
        max_by(coalesce(consumer, ''), lsn) AS consumer,
        max_by(conn_id, lsn) AS conn_id
    FROM ended JOIN recorded USING (msg_id, vhost, queue)
    WHERE kind = 'delivered' AND lsn < ended_lsn
    GROUP BY msg_id, vhost, queue, ended_lsn
), leases AS (
    SELECT vhost, queue, consumer, conn_id, count(*) AS n_leases FROM held GROUP BY vhost, queue, consumer, conn_id
)"""


def latency(tables: Tables, window_s: int = 60) -> str:
    """SQL of `LATENCY`: times of waiting and processing by queue and window. Raises: NotRecorded."""
    tables.require_deliveries()
    dialect = tables.engine.dialect
    points = (
        f"{dialect.percentile(f'{what}_all', name)} AS {what}_ms_{name}" for what in MEASURES for name in PERCENTILES
    )
    text = LATENCY_QUERY.format(
        lives=tables.lives_view(recorded=True),
        window_s=window_s,
        slot=WINDOW.format(second="second", window_s=window_s),
        waited=MS_BETWEEN.format(begin="enqueued_ts", end="first_delivered_ts"),
        served=MS_BETWEEN.format(begin="last_delivered_ts", end="finished_ts"),
        whole=MS_BETWEEN.format(begin="enqueued_ts", end="finished_ts"),
        points=", ".join(points),
        spreads=", ".join(f"{dialect.percentile_state(f'{what}_ms')} AS {what}_all" for what in MEASURES),
    )
    return conform(dialect, text, LATENCY)


def fairness(tables: Tables) -> str:
    """SQL of `FAIRNESS`: deliveries by consumer. Raises: NotRecorded."""
    tables.require_deliveries()
    some = rows(tables.engine, "SELECT lsn FROM recorded WHERE kind = 'lease_ended' LIMIT 1")
    text = FAIRNESS_QUERY.format(  # `LEASES` reads the deliveries once more: only if there are leases
        served=MS_BETWEEN.format(begin="delivered_ts", end="acked_ts"),
        leases=LEASES if some else "",
        leases_ended="coalesce(n_leases, 0)" if some else "0",
        with_leases=" LEFT JOIN leases USING (vhost, queue, consumer, conn_id)" if some else "",
    )
    return conform(tables.engine.dialect, text, FAIRNESS)
