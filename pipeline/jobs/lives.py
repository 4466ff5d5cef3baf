"""One row per (message, queue): its events, folded. Audit, latency, depth and loss share this one shuffle.

All aggregates are numbers of fixed width, so Spark folds them in place (hash aggregation) and nothing is collected;
names are packed with their LSN in one long: `lsn * 64 + code`, whose minimum is the earliest.
"""

from typing import Any

from ...engine import TERMINAL, EventKind

TERMINALS = tuple(kind.value for kind in EventKind if kind in TERMINAL)
CODE = 64
DURABLE, KEPT = 1, 2
KEY = ("msg_id", "vhost", "queue")

#: A delivery that came back, at once or after a delay, or whose lease ended without its message being gone: taken over
#: by another's acknowledgement, or expired. What is delayed is scheduled, too.
RETURNED = (
    "(kind = 'requeued' OR (kind = 'scheduled' AND reason <> 'published')"
    " OR (kind = 'lease_ended' AND coalesce(reason, '') NOT IN ('taken_over', 'lifetime')))"
)

#: What is folded of the events of one (message, queue), in SQL.
AGGREGATES = {
    "enqueues": "count_if(is_enqueued)",
    "terminals": "count(code)",
    "deliveries": "count_if(is_delivered)",
    "requeues": "count_if(is_requeued)",
    "enqueued_lsn": "min(IF(is_enqueued, lsn, NULL))",
    "enqueued_us": "min(IF(is_enqueued, us, NULL))",
    "again_lsn": "max(IF(is_enqueued, lsn, NULL))",
    "finish": f"min(IF(code IS NULL, NULL, lsn * {CODE} + code))",
    "refinished_lsn": "max(IF(code IS NULL, NULL, lsn))",
    "finished_us": "min(IF(code IS NULL, NULL, us))",
    "delivered_us": "min(IF(is_delivered, us, NULL))",
    "redelivered_us": "max(IF(is_delivered, us, NULL))",
    "between_min": "min(IF(is_between, lsn, NULL))",
    "between_max": "max(IF(is_between, lsn, NULL))",
    "attempts": "max(IF(is_between, attempt, 0))",
    "size_bytes": "max(size_bytes)",
    "durables": f"max(IF(is_enqueued, flags & {DURABLE}, NULL))",
}


def lives(events: Any) -> Any:
    """Columns:

    msg_id, vhost, queue; enqueues, terminals (counts); enqueued_lsn, enqueued_ts, finished_lsn, finished_ts, kind (of
    the first terminal event) null where there is none; deliveries, requeues, attempts, first_delivered_ts,
    last_delivered_ts; between_min, between_max: LSNs of the first and last delivery, return or schedule; size_bytes;
    is_durable.
    """
    relevant = ("enqueued", "delivered", "requeued", "scheduled", "due", "lease_ended", *TERMINALS)
    codes = "CASE kind " + " ".join(f"WHEN '{word}' THEN {code}L" for code, word in enumerate(TERMINALS)) + " END"
    words = " ".join(f"WHEN {code}L THEN '{word}'" for code, word in enumerate(TERMINALS))
    rows = events.where(f"msg_id > 0 AND queue <> '' AND kind IN ({_words(relevant)})").where(
        f"NOT (kind IN ({_words(TERMINALS)}) AND (flags & {KEPT}) <> 0)"
    )
    folded = (
        rows.select(
            *KEY,
            *("lsn", "flags", "size_bytes"),
            *_named(
                us="unix_micros(ts)",
                attempt="CAST(attempt AS int)",
                is_enqueued="kind = 'enqueued'",
                is_delivered="kind = 'delivered'",
                is_requeued=RETURNED,
                is_between="kind IN ('delivered', 'requeued', 'scheduled', 'due', 'lease_ended')",
                code=codes,
            ),
        )
        .groupBy(*KEY)
        .agg(*_named(**AGGREGATES))
    )
    return folded.select(
        *KEY,
        *("enqueues", "terminals", "deliveries", "requeues", "enqueued_lsn", "again_lsn", "refinished_lsn"),
        *("between_min", "between_max", "size_bytes"),
        *_named(
            attempts="CAST(attempts AS smallint)",
            enqueued_ts="timestamp_micros(enqueued_us)",
            finished_lsn=f"finish DIV {CODE}",
            finished_ts="timestamp_micros(finished_us)",
            kind=f"CASE WHEN finish IS NULL THEN NULL ELSE CASE finish % {CODE} {words} END END",
            first_delivered_ts="timestamp_micros(delivered_us)",
            last_delivered_ts="timestamp_micros(redelivered_us)",
            is_durable="coalesce(durables, 0) = 1",
        ),
    )


def _named(**columns: str) -> list[Any]:
    from pyspark.sql import functions as F

    return [F.expr(text).alias(name) for name, text in columns.items()]


def _words(words: tuple[str, ...]) -> str:
    return ", ".join(f"'{word}'" for word in words)
