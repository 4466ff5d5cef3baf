"""depth and loss: how much was waiting, and what was removed unread."""

from ..engines.protocol import words
from .lives import STARTED
from .outputs import DEPTH, LOSS, MS_BETWEEN, WINDOW, conform
from .tables import Tables
from .waiting import with_waiting

CAUSES = ("evicted", "replaced", "expired", "dropped", "killed")
#: What goes because another one comes: together they are one step.
PUSHED_OUT = ("evicted", "replaced", "dropped")
#: Within a window the level is counted from its beginning, so that all windows can be worked on at a time. Messages
#: that one record removes go at once. What pushes others out is recorded before them: levels between do not count.
#: Transient messages end with the next start of a broker.
DEPTHS = """
WITH moves AS (
    SELECT vhost, queue, enqueued_lsn AS lsn, unix_seconds(enqueued_ts) AS second, 1 AS step, size_bytes AS octets,
        false AS is_pushed
    FROM {lives} WHERE enqueued_ts IS NOT NULL
    UNION ALL
    SELECT vhost, queue, finished_lsn AS lsn, unix_seconds(finished_ts) AS second, -1 AS step, -size_bytes AS octets,
        kind IN ({pushed}) AS is_pushed
    FROM {lives} WHERE enqueued_ts IS NOT NULL AND finished_ts IS NOT NULL
    UNION ALL
    SELECT vhost, queue, min(starts.lsn) AS lsn, min(unix_seconds(starts.ts)) AS second, -1 AS step,
        -min(ended.size_bytes) AS octets, false AS is_pushed
    FROM (
        SELECT msg_id, vhost, queue, enqueued_lsn, size_bytes
        FROM {lives} WHERE enqueued_ts IS NOT NULL AND finished_ts IS NULL AND NOT is_durable
    ) AS ended
    JOIN (
        SELECT lsn, ts FROM events WHERE {started}
    ) AS starts ON starts.lsn > ended.enqueued_lsn
    GROUP BY msg_id, vhost, queue
), levels AS (
    SELECT vhost, queue, slot, step, octets, is_pushed,
        sum(step) OVER (PARTITION BY vhost, queue, slot ORDER BY lsn) AS level,
        lead(is_pushed) OVER (PARTITION BY vhost, queue, slot ORDER BY lsn) AS is_next_pushed,
        min(IF(step < 0, lsn * 2 + IF(is_pushed, 1, 0), NULL)) OVER (
            PARTITION BY vhost, queue, slot ORDER BY lsn ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING
        ) AS leaves
    FROM (SELECT *, {slot} AS slot FROM moves) AS placed
), seen AS (
    SELECT *, CASE
        WHEN step > 0 AND coalesce(leaves, 0) % 2 = 1 THEN NULL
        WHEN is_pushed AND coalesce(is_next_pushed, false) THEN NULL
        ELSE level
    END AS settled
    FROM levels
), folded AS (
    SELECT vhost, queue, slot,
        least(min(settled), 0) AS low,
        greatest(max(settled), 0) AS high,
        sum(step) AS change,
        sum(octets) AS octets,
        count_if(step > 0) AS came,
        count_if(step < 0) AS went
    FROM seen GROUP BY vhost, queue, slot
), running AS (
    SELECT *,
        sum(change) OVER (PARTITION BY vhost, queue ORDER BY slot) AS depth_end,
        sum(octets) OVER (PARTITION BY vhost, queue ORDER BY slot) AS bytes_end,
        lead(slot) OVER (PARTITION BY vhost, queue ORDER BY slot) AS following
    FROM folded
), every AS (
    SELECT *,
        explode(sequence(
            slot,
            coalesce(following - {window_s}, IF(depth_end = 0, slot, greatest(slot, CAST({last} AS bigint)))),
            CAST({window_s} AS bigint)
        )) AS each
    FROM running
)
SELECT vhost, queue,
    timestamp_seconds(each) AS window_start,
    {window_s} AS window_s,
    depth_end,
    IF(each = slot, depth_end - change + low, depth_end) AS depth_min,
    IF(each = slot, depth_end - change + high, depth_end) AS depth_max,
    IF(each = slot, came, 0) / {window_s} AS in_per_s,
    IF(each = slot, went, 0) / {window_s} AS out_per_s,
    bytes_end
FROM every
"""
LOSSES = """
SELECT vhost, queue, window_start, cause, n, bytes, age_ms_max,
    {p50} AS age_ms_p50,
    {p99} AS age_ms_p99
FROM (
    SELECT vhost, queue, timestamp_seconds({slot}) AS window_start, cause,
        count(*) AS n,
        sum(size_bytes) AS bytes,
        max(age) AS age_ms_max,
        {ages} AS ages
    FROM (
        SELECT vhost, queue, kind AS cause, size_bytes, unix_seconds(finished_ts) AS second, {age} AS age
        FROM {lives} WHERE kind IN ({causes})
    ) AS gone
    GROUP BY vhost, queue, {slot}, cause
) AS folded
"""


def depth(tables: Tables, window_s: int = 60, until: int | None = None) -> str:
    """`DEPTH`: one row per queue and window (aligned to seconds), from the first in which a message came to the last
    in which one came or went; if messages are left, to that of `until` (a time in seconds; the end of the lake).

    Of messages from before the lake those are counted that it tells of (waiting.py).
    """
    lives, begin = (tables.fold(), None) if tables.first_lsn() <= 1 else with_waiting(tables, window_s)
    last = tables.span()[1] if until is None else until
    slot = WINDOW.format(second="second", window_s=window_s)
    text = DEPTHS.format(
        lives=lives,
        started=STARTED,
        pushed=words(PUSHED_OUT),
        slot=slot,
        window_s=window_s,
        last=last - last % window_s,
    )
    if begin is not None:
        text = f"SELECT * FROM ({text}) AS every WHERE window_start >= timestamp_seconds({begin})"
    return conform(tables.engine.dialect, text, DEPTH)


def loss(tables: Tables, window_s: int = 60) -> str:
    """`LOSS`: rings, last values, expiry, drops and kills without a target."""
    dialect = tables.engine.dialect
    text = LOSSES.format(
        lives=tables.fold(),
        causes=words(CAUSES),
        slot=WINDOW.format(second="second", window_s=window_s),
        age=MS_BETWEEN.format(begin="enqueued_ts", end="finished_ts"),
        ages=dialect.spread("age"),
        p50=dialect.point("ages", "p50"),
        p99=dialect.point("ages", "p99"),
    )
    return conform(dialect, text, LOSS)
