"""The jobs `redelivery`, `loss` and `deadletters`: messages that failed, were removed unread, or died."""

from ..engines.protocol import quoted_list, rows
from .lives import KEPT, REDELIVERED, RETURNED
from .outputs import DEADLETTERS, LOSS, REDELIVERY, WINDOW, conform
from .tables import COPIES, Tables

#: Kinds of events that remove a message without an acknowledgement.
CAUSES = ("evicted", "replaced", "expired", "dropped", "killed", "dead_lettered", "purged", "deleted", "cancelled")
#: Those of them that remove messages on purpose: by a ring or a last-value queue; because a client or an operator
#: purges or deletes the queue, or an operator cancels the message; or because an unused queue expires.
ON_PURPOSE = ("evicted", "replaced", "purged", "deleted", "cancelled")
IS_REMOVED = f"kind IN ({quoted_list(CAUSES)}) AND msg_id > 0 AND queue <> '' AND (CAST(flags AS int) & {KEPT}) = 0"
#: A message that died in several queues may have fewer arrived copies than deaths. Copies are assigned first to deaths
#: with a recorded target, then to the latest deaths.
LOSS_QUERY = """
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
    {copies}
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
        cause IN ({on_purpose}) OR log_queues.queue IS NOT NULL AS is_discarded
    FROM removed
    LEFT JOIN entered
        ON entered.vhost = removed.vhost AND entered.queue = removed.queue AND entered.msg_id = removed.msg_id
    LEFT JOIN published ON published.msg_id = removed.msg_id
    LEFT JOIN arrived ON arrived.msg_id = removed.msg_id
    LEFT JOIN {log_queues} AS log_queues ON log_queues.vhost = removed.vhost AND log_queues.queue = removed.queue
        AND removed.lsn >= begin_lsn AND removed.lsn < end_lsn
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
    """SQL of `LOSS`: messages that were removed without an acknowledgement."""
    dialect = tables.engine.dialect
    text = LOSS_QUERY.format(
        is_removed=IS_REMOVED,
        copies=COPIES,
        on_purpose=quoted_list(ON_PURPOSE),
        log_queues=tables.log_queues(),
        slot=WINDOW.format(second="second", window_s=window_s),
        age="(us - entered_us) / 1000",
        ages=dialect.percentile_state("age"),
        p50=dialect.percentile("ages", "p50"),
        p99=dialect.percentile("ages", "p99"),
    )
    if not rows(tables.engine, f"SELECT lsn FROM events WHERE {IS_REMOVED} LIMIT 1"):
        text = f"SELECT * FROM ({text}) AS nothing WHERE false"  # then neither engine reads a file
    return conform(dialect, text, LOSS)


#: A message with this many attempts, or this many returns by failing consumers, is poison even if it did not die.
POISON_ATTEMPTS = 5
#: Returns for which the message is not to blame: its consumer left regularly, or its channel sent basic.recover.
LEFT = "reason IN ('closed', 'unsubscribed', 'recovered')"
DEAD = "kind IN ('dead_lettered', 'killed')"
#: Only later deliveries are read, those with an attempt above 1 or the flag redelivered. That a message had a first one
#: follows from its return, its rejection, or its used-up attempts. (A return by a consumer that left has attempt 0.)
#: If a broker was started again, or another leader took over, all deliveries are read, and all but one of each message
#: are redeliveries. Attempt and flag do not tell them apart then: messages that were unacknowledged come again with
#: attempt 1, and a message that was never delivered may have the flag. In streams and non-destructive queues, where
#: each consumer gets a first delivery, only deliveries with a higher attempt count as redeliveries then
#: (`later_attempts`).
REDELIVERY_QUERY = """
WITH folded AS (
    SELECT vhost, queue, msg_id,
        greatest(max(attempt), max(IF({returned} OR ({dead} AND reason IN ('delivery_limit', 'rejected')), 1, 0)))
            AS attempts,
        count_if({returned}) AS requeues,
        count_if(kind = 'lease_ended') AS leases_ended,
        count_if(kind = 'delivered') AS deliveries,
        count_if(kind = 'delivered' AND attempt > 1) AS later_attempts,
        bool_or({dead}) AS dead,
        count_if({returned} AND NOT coalesce({left}, false)) AS failures,
        bool_or({dead} AND reason = 'delivery_limit') AS is_used_up,
        {pauses} AS backoff_ms,
        max_by(consumer, lsn) FILTER (WHERE consumer IS NOT NULL) AS last_consumer,
        max_by(reason, lsn) FILTER (WHERE reason IS NOT NULL) AS last_reason,
        max(ts) AS last_ts,
        max(lsn) AS last_lsn
    FROM recorded
    WHERE msg_id > 0 AND ({returned} OR (kind = 'delivered' AND {is_read}) OR {dead})
    GROUP BY vhost, queue, msg_id
), counted AS (
    SELECT folded.*, {redeliveries} AS redeliveries FROM folded{with_log_queues}
)
SELECT *, coalesce(attempts >= {poison_attempts} OR failures >= {poison_attempts} OR is_used_up, false) AS poison
FROM counted WHERE requeues > 0 OR dead OR attempts > 1 OR redeliveries > 0
"""
IS_LATER = f"(attempt > 1 OR (CAST(flags AS int) & {REDELIVERED}) <> 0)"
#: SQL of `redeliveries`, and of a join for it, if all deliveries are read.
REDELIVERIES = "IF(log_queues.queue IS NULL, greatest(deliveries - 1, 0), later_attempts)"
WITH_LOG_QUEUES = """
    LEFT JOIN {log_queues} AS log_queues ON log_queues.vhost = folded.vhost AND log_queues.queue = folded.queue
        AND last_lsn >= begin_lsn AND last_lsn < end_lsn"""


def redelivery(tables: Tables, poison_attempts: int = POISON_ATTEMPTS) -> str:
    """SQL of `REDELIVERY`: messages that were returned or redelivered, or died.

    Raises: NotRecorded (needs scope "all").
    """
    tables.require_deliveries()
    dialect = tables.engine.dialect
    pauses = dialect.ordered_array("arg_ms", "lsn", "kind IN ('requeued', 'scheduled') AND arg_ms > 0")
    first_starts = 1 if tables.first_lsn() <= 1 else 0
    is_restarted = max(len(tables.starts()), len(tables.takeovers())) > first_starts
    text = REDELIVERY_QUERY.format(
        poison_attempts=poison_attempts,
        returned=RETURNED,
        left=LEFT,
        dead=DEAD,
        pauses=pauses,
        is_read="true" if is_restarted else IS_LATER,
        redeliveries=REDELIVERIES if is_restarted else "deliveries",
        with_log_queues=WITH_LOG_QUEUES.format(log_queues=tables.log_queues()) if is_restarted else "",
    )
    return conform(dialect, text, REDELIVERY)


#: `copies` has one row for each queue in which a copy arrived, or one row without a queue.
DEADLETTERS_QUERY = """
WITH dead AS (
    SELECT vhost, queue, msg_id, kind, reason, ts, lsn FROM events
    WHERE msg_id > 0 AND kind IN ('dead_lettered', 'killed', 'expired')
), handed AS (
    SELECT vhost, queue, msg_id,
        max(attempt) AS attempts,
        max_by(consumer, lsn) FILTER (WHERE consumer IS NOT NULL) AS consumer
    FROM events SEMI JOIN dead USING (vhost, queue, msg_id)
    WHERE kind = 'delivered' AND msg_id > 0
    GROUP BY vhost, queue, msg_id
), copies AS (
    SELECT payloads.cause_id, payloads.address AS target, {died_in} AS died_in, arrived.queue AS arrived
    FROM payloads LEFT JOIN (SELECT msg_id, queue FROM events WHERE kind = 'enqueued') AS arrived
        ON arrived.msg_id = payloads.msg_id
    WHERE payloads.cause_id > 0
), one AS (
    SELECT dead.vhost, dead.queue, dead.msg_id, dead.kind, dead.reason, dead.ts, dead.lsn,
        max(handed.attempts) AS attempts,
        max(handed.consumer) AS consumer,
        min(copies.target) AS target,
        array_sort(collect_set(copies.arrived)) AS arrived_in
    FROM dead
    LEFT JOIN handed
        ON handed.vhost = dead.vhost AND handed.queue = dead.queue AND handed.msg_id = dead.msg_id
    LEFT JOIN copies ON copies.cause_id = dead.msg_id AND coalesce(copies.died_in, dead.queue) = dead.queue
    GROUP BY dead.vhost, dead.queue, dead.msg_id, dead.kind, dead.reason, dead.ts, dead.lsn
), outcomes AS (
    SELECT *, CASE
        WHEN size(arrived_in) > 0 THEN 'arrived' WHEN target IS NOT NULL THEN 'nowhere'
        WHEN kind = 'killed' THEN 'gone' ELSE {without} END AS outcome
    FROM one
)
SELECT vhost, queue, kind, reason, outcome, target, arrived_in,
    count(*) AS n,
    min(ts) AS first_ts,
    max(ts) AS last_ts,
    coalesce(max(attempts), 0) AS attempts_max,
    max_by(consumer, lsn) FILTER (WHERE consumer IS NOT NULL) AS last_consumer,
    slice(array_sort(collect_set(msg_id)), 1, 5) AS samples
FROM outcomes GROUP BY vhost, queue, kind, reason, outcome, target, arrived_in
"""


def deadletters(tables: Tables) -> str:
    """SQL of `DEADLETTERS`: deaths by queue, reason and outcome.

    Without recorded deliveries last_consumer is null and attempts_max 0. Copies are known only with contents, and
    copies that arrived in no queue only with scope "all".
    """
    without = "'not recorded'"
    if tables.scopes() == {"all"} and tables.has_contents():
        first, last = tables.contents_span()
        outcome = "IF(kind = 'dead_lettered', 'nowhere', 'gone')"
        without = f"IF(lsn >= {first} AND lsn <= {last}, {outcome}, {without})"
    dialect = tables.engine.dialect
    died_in = dialect.first_death("payloads.headers_json")
    return conform(dialect, DEADLETTERS_QUERY.format(died_in=died_in, without=without), DEADLETTERS)
