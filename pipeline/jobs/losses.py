"""loss: what was removed unread, and whether it was lost with that."""

from ..engines.protocol import rows, words
from .lives import KEPT
from .outputs import LOSS, WINDOW, conform
from .tables import Tables

#: Kinds of events that remove a message otherwise than by an acknowledgement.
CAUSES = ("evicted", "replaced", "expired", "dropped", "killed", "dead_lettered", "purged", "deleted", "cancelled")
#: Events that remove messages on purpose: in a ring or a queue of last values by its nature, else by an operator.
ON_PURPOSE = ("evicted", "replaced", "purged", "deleted", "cancelled")
IS_REMOVED = f"kind IN ({words(CAUSES)}) AND msg_id > 0 AND queue <> '' AND (CAST(flags AS int) & {KEPT}) = 0"
#: A message that died in several queues may have fewer copies that arrived than deaths. They belong to the deaths of
#: which a target is recorded, then to the last ones.
LOSSES = """
WITH removed AS (
    SELECT vhost, queue, msg_id,
        min(lsn) AS lsn,
        min(unix_micros(ts)) AS us,
        max_by(kind, -lsn) AS cause,
        max(IF(reason = 'maxlen' AND kind IN ('dropped', 'dead_lettered', 'killed'), 1, 0)) AS is_too_much,
        max(IF(kind = 'dead_lettered' OR address <> '', 1, 0)) AS is_addressed
    FROM events WHERE {is_removed}
    GROUP BY vhost, queue, msg_id
), entered AS (
    SELECT vhost, queue, msg_id, min(unix_micros(ts)) AS entered_us, max(size_bytes) AS octets
    FROM events SEMI JOIN removed USING (vhost, queue, msg_id)
    WHERE kind = 'enqueued' GROUP BY vhost, queue, msg_id
), published AS (
    SELECT msg_id, min(lsn) AS published_lsn, max(size_bytes) AS published_octets
    FROM whole_events SEMI JOIN removed USING (msg_id)
    WHERE kind = 'published' GROUP BY msg_id
), copies AS (
    SELECT msg_id AS copy_id, cause_id FROM whole_events WHERE kind = 'published' AND cause_id > 0
    UNION
    SELECT msg_id AS copy_id, cause_id FROM whole_payloads WHERE cause_id > 0
), arrived AS (
    SELECT cause_id AS msg_id, count(*) AS arrivals
    FROM copies SEMI JOIN (SELECT msg_id AS copy_id FROM whole_events WHERE kind = 'enqueued') AS held USING (copy_id)
    GROUP BY cause_id
), gone AS (
    SELECT removed.vhost, removed.queue, cause,
        us,
        entered_us,
        IF(octets IS NULL, published_octets, octets) AS octets,
        coalesce(arrivals, 0) >= row_number() OVER (
            PARTITION BY removed.msg_id ORDER BY is_addressed DESC, lsn DESC, removed.vhost, removed.queue
        ) AS is_moved,
        is_too_much = 1 AND entered_us IS NULL AND published_lsn IS NOT NULL AS is_refused,
        cause IN ({on_purpose}) OR keeping.queue IS NOT NULL AS is_discarded
    FROM removed
    LEFT JOIN entered
        ON entered.vhost = removed.vhost AND entered.queue = removed.queue AND entered.msg_id = removed.msg_id
    LEFT JOIN published ON published.msg_id = removed.msg_id
    LEFT JOIN arrived ON arrived.msg_id = removed.msg_id
    LEFT JOIN {keeping} AS keeping ON keeping.vhost = removed.vhost AND keeping.queue = removed.queue
), judged AS (
    SELECT vhost, queue, cause, CAST((us - us % 1000000) / 1000000 AS bigint) AS second, is_moved,
        NOT is_moved AND is_refused AS is_refused,
        NOT is_moved AND NOT is_refused AND is_discarded AS is_discarded,
        NOT is_moved AND NOT is_refused AND NOT is_discarded AS is_lost,
        octets,
        {age} AS age
    FROM gone
)
SELECT vhost, queue, window_start, cause, n, bytes, moved, refused, discarded, age_ms_max,
    {p50} AS age_ms_p50,
    {p99} AS age_ms_p99
FROM (
    SELECT vhost, queue, timestamp_seconds({slot}) AS window_start, cause,
        count_if(is_lost) AS n,
        IF(count_if(is_lost AND octets IS NULL) > 0, NULL, coalesce(sum(IF(is_lost, octets, NULL)), 0)) AS bytes,
        count_if(is_moved) AS moved,
        count_if(is_refused) AS refused,
        count_if(is_discarded) AS discarded,
        max(age) AS age_ms_max,
        {ages} AS ages
    FROM judged
    GROUP BY vhost, queue, {slot}, cause
) AS folded
"""


def loss(tables: Tables, window_s: int = 60) -> str:
    """`LOSS`: what was removed otherwise than by an acknowledgement."""
    dialect = tables.engine.dialect
    text = LOSSES.format(
        is_removed=IS_REMOVED,
        on_purpose=words(ON_PURPOSE),
        keeping=tables.keeping(),
        slot=WINDOW.format(second="second", window_s=window_s),
        age="(us - entered_us) / 1000",
        ages=dialect.spread("age"),
        p50=dialect.point("ages", "p50"),
        p99=dialect.point("ages", "p99"),
    )
    if not rows(tables.engine, f"SELECT lsn FROM events WHERE {IS_REMOVED} LIMIT 1"):
        text = f"SELECT * FROM ({text}) AS nothing WHERE false"  # neither engine reads a file for it
    return conform(dialect, text, LOSS)
