"""depth: how much was waiting."""

from ..engines.protocol import rows, words
from .lives import STARTED
from .outputs import DEPTH, WINDOW, conform
from .tables import Tables
from .waiting import with_waiting

#: What goes because another one comes: together they are one step.
PUSHED_OUT = ("evicted", "replaced", "dropped")
#: Within a window the level is counted from its beginning, so that all windows can be worked on at a time; in doubles,
#: whose running sums take DuckDB half as long as those of whole numbers. Messages that one record removes go one by
#: one, which adds no extreme. What pushes others out is recorded before them: levels between do not count, so that of
#: messages that come in a row the last is looked at, and that only if none is pushed out next.
DEPTHS = """
WITH lived AS (
    SELECT msg_id, vhost, queue, size_bytes, enqueued_lsn, enqueued_ts, finished_lsn, finished_ts, is_durable,
        kind IN ({pushed}) AS is_pushed
    FROM {lives} WHERE enqueued_ts IS NOT NULL
), moves AS (
    SELECT vhost, queue, step,
        IF(step > 0, enqueued_lsn, finished_lsn) AS lsn,
        unix_seconds(IF(step > 0, enqueued_ts, finished_ts)) AS second,
        IF(step > 0, size_bytes, -size_bytes) AS octets,
        step < 0 AND is_pushed AS is_pushed
    FROM lived CROSS JOIN (VALUES (1), (-1)) AS steps(step)
    WHERE step > 0 OR finished_ts IS NOT NULL{ended}
), levels AS (
    SELECT *,
        sum(CAST(step AS double)) OVER (PARTITION BY vhost, queue, slot ORDER BY lsn) AS level,
        lead(IF(is_pushed, 0, step)) OVER (PARTITION BY vhost, queue, slot ORDER BY lsn) AS following
    FROM (SELECT *, {slot} AS slot FROM moves) AS placed
), seen AS (
    SELECT *, CASE
        WHEN step > 0 AND following >= 0 THEN NULL
        WHEN is_pushed AND following = 0 THEN NULL
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
#: Transient messages end with the next start of a broker.
ENDED = """
    UNION ALL
    SELECT vhost, queue, -1 AS step, min(starts.lsn) AS lsn, min(unix_seconds(starts.ts)) AS second,
        -min(size_bytes) AS octets, false AS is_pushed
    FROM (SELECT * FROM lived WHERE finished_ts IS NULL AND NOT is_durable) AS passing
    JOIN (SELECT lsn, ts FROM events WHERE {started}) AS starts ON starts.lsn > enqueued_lsn
    GROUP BY msg_id, vhost, queue"""
#: Whether a broker was started after a message came: of most journals it was not.
IS_STARTED_AGAIN = """
SELECT lsn FROM events WHERE {started} AND lsn > (SELECT min(lsn) FROM events WHERE kind = 'enqueued') LIMIT 1
"""


def depth(tables: Tables, window_s: int = 60, until: int | None = None) -> str:
    """`DEPTH`: one row per queue and window (aligned to seconds), from the first in which a message came to the last
    in which one came or went; if messages are left, to that of `until` (a time in seconds; the end of the lake).

    Of messages from before the lake those are counted that it tells of (waiting.py).
    """
    lives, begin = (tables.fold(), None) if tables.first_lsn() <= 1 else with_waiting(tables, window_s)
    last = tables.span()[1] if until is None else until
    slot = WINDOW.format(second="second", window_s=window_s)
    is_started_again = begin is not None or rows(tables.engine, IS_STARTED_AGAIN.format(started=STARTED))
    text = DEPTHS.format(
        lives=lives,
        ended=ENDED.format(started=STARTED) if is_started_again else "",
        pushed=words(PUSHED_OUT),
        slot=slot,
        window_s=window_s,
        last=last - last % window_s,
    )
    if begin is not None:
        text = f"SELECT * FROM ({text}) AS every WHERE window_start >= timestamp_seconds({begin})"
    return conform(tables.engine.dialect, text, DEPTH)
