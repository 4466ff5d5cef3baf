"""whatif: each queue's arrivals with another configuration (simulation.py), beside what the journal recorded.

A queue is simulated by one task and must fit into its memory (some 1000 octets per message). Needs scope "all": only
deliveries show when there was a consumer.
"""

import json
from collections.abc import Mapping, Sequence

from ..engines.protocol import Row, rows, value, words
from .attempts import RETURNS, MessageEvent, attempts_of
from .lives import STARTED
from .outputs import WHATIF
from .simulation import Arrival, Credit, read_settings, simulate
from .tables import Tables

#: The condition for rows of `WHATIF` whose simulated number differs from the recorded one.
DIFFERENT = "abs(was - would_be) > untold"
MOMENTS = ("delivered", "acked", "killed", "dead_lettered", "expired", *RETURNS)
#: Credit for what is delivered at once was there before: a consumer waited.
#: Arrivals, each with what happened to it as texts "milliseconds LSN attempt kind reason"; and deliveries, as credit.
STEPS = """
SELECT vhost, queue, unix_millis(enqueued_ts) AS ms, false AS is_offer, enqueued_lsn AS lsn, size_bytes,
    CAST(priority AS int) AS priority, arg_ms, requeues, moments, kind AS fate, is_durable
FROM {lives} AS lived
JOIN (
    SELECT msg_id, vhost, queue, max(arg_ms) AS arg_ms, max(priority) AS priority
    FROM recorded WHERE kind = 'enqueued' GROUP BY msg_id, vhost, queue
) AS entered USING (msg_id, vhost, queue)
LEFT JOIN (
    SELECT msg_id, vhost, queue, {moments} AS moments
    FROM recorded WHERE msg_id > 0 AND kind IN ({kinds}) GROUP BY msg_id, vhost, queue
) AS happened USING (msg_id, vhost, queue)
WHERE enqueued_ts IS NOT NULL
UNION ALL
SELECT vhost, queue, unix_millis(ts) AS ms, true AS is_offer,
    IF(attempt <= 1 AND unix_millis(enqueued_ts) = unix_millis(ts), enqueued_lsn - 1, lsn) AS lsn, 0 AS size_bytes,
    0 AS priority, NULL AS arg_ms, 0 AS requeues, NULL AS moments, NULL AS fate, true AS is_durable
FROM (
    SELECT msg_id, vhost, queue, ts, lsn, attempt FROM recorded WHERE kind = 'delivered' AND msg_id > 0
) AS delivered
LEFT JOIN (
    SELECT msg_id, vhost, queue, enqueued_ts, enqueued_lsn FROM {lives} AS came
) AS lived USING (msg_id, vhost, queue)
"""
DECLARED = """
SELECT vhost, queue, max_by(reason, lsn) FILTER (WHERE reason IS NOT NULL) AS arguments
FROM recorded WHERE kind = 'declared' AND queue <> '' AND reason IS NOT NULL GROUP BY vhost, queue
"""
Declared = Mapping[tuple[str, str], Mapping[str, object]]


def left_out(tables: Tables) -> str:
    """Which queues are not simulated, and why; "": there are none."""
    found = rows(tables.engine, f"SELECT vhost, queue FROM {tables.log_queues()} ORDER BY vhost, queue")
    names = ", ".join(f"{row['queue']} ({row['vhost']})" for row in found)
    return f"not simulated, since streams and non-destructive queues keep what was read: {names}" if names else ""


def whatif(tables: Tables, settings: str) -> str:
    """`WHATIF`, without the queues that are `left_out`. `settings`: TOML. Raises: NotRecorded, ValueError (faulty
    settings)."""
    read_settings(settings)  # faults are reported before any work
    tables.require_deliveries("whatif")
    engine = tables.engine
    until_ms = int(value(engine, "SELECT unix_millis(max(ts)) FROM recorded") or 0)
    starts = [
        Credit(row["ms"], row["lsn"])
        for row in rows(engine, f"SELECT unix_millis(ts) AS ms, lsn FROM whole_events WHERE {STARTED}")
    ]
    declared = {(row["vhost"], row["queue"]): json.loads(row["arguments"]) for row in rows(engine, DECLARED)}
    moment = (
        "CAST(unix_millis(ts) AS string) || ' ' || CAST(lsn AS string) || ' ' || CAST(attempt AS string)"
        " || ' ' || kind || ' ' || coalesce(reason, '')"
    )
    steps = STEPS.format(
        lives=tables.lives_view(recorded=True),
        moments=engine.dialect.ordered_array(moment, "lsn", "true"),
        kinds=words(MOMENTS),
    )

    def work(own: list[Row]) -> list[Row]:
        return one_queue(own, settings, declared, starts, until_ms)

    simulated = f"SELECT * FROM ({steps}) AS steps ANTI JOIN {tables.log_queues()} AS log_queues USING (vhost, queue)"
    engine.each_queue("simulated", simulated, work, WHATIF)
    return "SELECT * FROM simulated"


def one_queue(own: list[Row], settings: str, declared: Declared, starts: Sequence[Credit], until_ms: int) -> list[Row]:
    """The rows of one queue; on Spark by an executor."""
    own = sorted(own, key=lambda row: (row["ms"], row["lsn"]))
    came = [row for row in own if not row["is_offer"]]
    vhost, queue = own[0]["vhost"], own[0]["queue"]
    would = simulate(
        queue,
        map(_arrival, came),
        [Credit(row["ms"], row["lsn"]) for row in own if row["is_offer"]],
        settings,
        vhost=vhost,
        declared=declared.get((vhost, queue)),
        starts=starts,
        until_ms=until_ms,
    )

    def was(*kinds: str | None) -> int:
        return sum(row["fate"] in kinds for row in came)

    recorded = {
        "enqueued": len(came),
        "acknowledged": was("acked"),
        "requeued": sum(row["requeues"] for row in came),
        "expired": was("expired"),
        "killed": was("dead_lettered", "killed"),
        "replaced": was("evicted", "replaced"),
        "dropped": was("dropped"),
        "open": was(None),
    }
    return [
        {
            **{"vhost": vhost, "queue": queue, "what": what, "was": count, "would_be": would[what]},
            "untold": 0 if what == "enqueued" else would["untold"],
        }
        for what, count in recorded.items()
    ]


def _arrival(row: Row) -> Arrival:
    attempts = attempts_of(map(_moment, row["moments"] or ()))
    about = row["ms"], row["size_bytes"], row["priority"], row["arg_ms"]
    return Arrival(*about, attempts, row["lsn"], row["is_durable"])


def _moment(text: str) -> MessageEvent:
    ms, lsn, attempt, kind, reason = text.split(" ", 4)
    return MessageEvent(int(ms), kind, reason or None, int(lsn), int(attempt))
