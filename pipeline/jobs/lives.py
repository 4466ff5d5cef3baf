"""Lives: one row per (message, queue) with aggregates of its events. Audit, latency and depth share this aggregation.

All aggregates are numbers of fixed width, so Spark updates them in place (hash aggregation). The kind of an event and
its LSN are packed into one long, `lsn * 64 + code`, whose minimum is that of the earliest event.
"""

from ..engines.protocol import quoted_list

#: Kinds of terminal events, copied from the engine, whose import would take longer than most jobs.
TERMINALS = (
    *("acked", "expired", "dead_lettered", "killed", "evicted", "replaced", "dropped", "purged", "deleted"),
    "cancelled",
)
CODE_BITS = 6
#: An LSN, message id, or time above all others.
NEVER = 1 << 62
#: Flags of an event.
DURABLE, KEPT, REDELIVERED = 1, 2, 32

#: SQL: a return, that is, the end of a delivery whose message stays: it is requeued, scheduled for a delay, or its
#: lease ended. It is no return if the lease ended because another consumer acknowledged the message, or because the
#: message expired.
RETURNED = (
    "(kind = 'requeued' OR (kind = 'scheduled' AND reason <> 'published')"
    " OR (kind = 'lease_ended' AND coalesce(reason, '') NOT IN ('taken_over', 'lifetime')))"
)
#: SQL: the start of a broker with scope "all". Transient messages end there.
STARTED = "kind = 'settings_changed' AND reason IS NOT NULL AND vhost = ''"
BETWEEN = ("delivered", "requeued", "scheduled", "due", "lease_ended")
LIVES = """
SELECT msg_id, vhost, queue,
    enqueues, terminals, deliveries, requeues, enqueued_lsn, again_lsn, refinished_lsn,
    between_min, between_max, size_bytes,
    CAST(attempts AS smallint) AS attempts,
    timestamp_micros(enqueued_us) AS enqueued_ts,
    finish >> {bits} AS finished_lsn,
    timestamp_micros(finished_us) AS finished_ts,
    CASE WHEN finish IS NULL THEN NULL ELSE CASE finish % {codes} {names} END END AS kind,
    timestamp_micros(delivered_us) AS first_delivered_ts,
    timestamp_micros(redelivered_us) AS last_delivered_ts,
    coalesce(durables, 0) = 1 AS is_durable
FROM (
    SELECT msg_id, vhost, queue,
        count(IF(is_enqueued, 1, NULL)) AS enqueues,
        count(code) AS terminals,
        count(IF(is_delivered, 1, NULL)) AS deliveries,
        count(IF(is_returned, 1, NULL)) AS requeues,
        min(IF(is_enqueued, lsn, NULL)) AS enqueued_lsn,
        min(IF(is_enqueued, us, NULL)) AS enqueued_us,
        max(IF(is_enqueued, lsn, NULL)) AS again_lsn,
        min(lsn * {codes} + code) AS finish,
        max(IF(code IS NULL, NULL, lsn)) AS refinished_lsn,
        min(IF(code IS NULL, NULL, us)) AS finished_us,
        min(IF(is_delivered, us, NULL)) AS delivered_us,
        max(IF(is_delivered, us, NULL)) AS redelivered_us,
        min(IF(is_between, lsn, NULL)) AS between_min,
        max(IF(is_between, lsn, NULL)) AS between_max,
        max(IF(is_between, attempt, 0)) AS attempts,
        max(size_bytes) AS size_bytes,
        max(IF(is_enqueued, flags & {durable}, NULL)) AS durables
    FROM (
        SELECT msg_id, vhost, queue, lsn, size_bytes,
            CAST(flags AS int) AS flags,
            CAST(attempt AS int) AS attempt,
            unix_micros(ts) AS us,
            kind = 'enqueued' AS is_enqueued,
            kind = 'delivered' AS is_delivered,
            coalesce({returned}, false) AS is_returned,
            kind IN ({between}) AS is_between,
            CASE kind {numbers} END AS code
        FROM {events}
        WHERE msg_id > 0 AND queue <> '' AND kind IN ({relevant})
            AND NOT (kind IN ({terminals}) AND (CAST(flags AS int) & {kept}) <> 0)
    ) AS one
    GROUP BY msg_id, vhost, queue
) AS folded
"""


def lives_of(events: str) -> str:
    """SQL of the lives in a view of events. The columns:

    msg_id, vhost, queue, size_bytes, is_durable. Counts: enqueues, terminals, deliveries, requeues, attempts. Of the
    first `enqueued`: enqueued_lsn, enqueued_ts. Of the first terminal event, or null: finished_lsn, finished_ts, kind.
    first_delivered_ts, last_delivered_ts. LSNs: between_min, between_max of the first and last delivery, return or
    schedule; again_lsn of the last `enqueued`; refinished_lsn of the last terminal event.
    """
    return LIVES.format(
        events=events,
        bits=CODE_BITS,
        codes=1 << CODE_BITS,
        names=" ".join(f"WHEN {code} THEN '{word}'" for code, word in enumerate(TERMINALS)),
        numbers=" ".join(f"WHEN '{word}' THEN {code}" for code, word in enumerate(TERMINALS)),
        returned=RETURNED,
        between=quoted_list(BETWEEN),
        relevant=quoted_list(("enqueued", *BETWEEN, *TERMINALS)),
        terminals=quoted_list(TERMINALS),
        durable=DURABLE,
        kept=KEPT,
    )
