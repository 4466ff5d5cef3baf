"""The job `whatif`: simulates each queue with other settings, and compares the counts with the recorded ones.

One task simulates one queue (simulation.py), which must fit into its memory: about 1000 octets per message. The job
needs scope "all", because only deliveries show when consumers were there.
"""

import json
from collections.abc import Mapping, Sequence

from ..engines.protocol import Engine, Row, quoted_list, rows, value
from .attempts import RETURNS, MessageEvent, attempts_of
from .lives import STARTED
from .outputs import WHATIF
from .simulation import Arrival, Instant, Start, read_settings, simulate
from .tables import Tables

#: SQL: the simulated count differs from the recorded one.
DIFFERENT = "abs(was - would_be) > margin"
EVENT_KINDS = ("delivered", "acked", "killed", "dead_lettered", "expired", *RETURNS)
#: Arrivals, each with its events as texts "milliseconds LSN attempt kind reason"; and deliveries, which are credit
#: (simulation.py). If a message arrived and was first delivered in the same millisecond, a consumer was waiting: that
#: credit is put before the arrival.
STEPS = """
SELECT vhost, queue, unix_millis(enqueued_ts) AS ms, false AS is_credit, enqueued_lsn AS lsn, size_bytes,
    CAST(priority AS int) AS priority, arg_ms, requeues, history, kind AS fate, is_durable
FROM {lives} AS lived
JOIN (
    SELECT msg_id, vhost, queue, max(arg_ms) AS arg_ms, max(priority) AS priority
    FROM recorded WHERE kind = 'enqueued' GROUP BY msg_id, vhost, queue
) AS entered USING (msg_id, vhost, queue)
LEFT JOIN (
    SELECT msg_id, vhost, queue, {history} AS history
    FROM recorded WHERE msg_id > 0 AND kind IN ({kinds}) GROUP BY msg_id, vhost, queue
) AS happened USING (msg_id, vhost, queue)
WHERE enqueued_ts IS NOT NULL
UNION ALL
SELECT vhost, queue, unix_millis(ts) AS ms, true AS is_credit,
    IF(attempt <= 1 AND unix_millis(enqueued_ts) = unix_millis(ts), enqueued_lsn - 1, lsn) AS lsn, 0 AS size_bytes,
    0 AS priority, NULL AS arg_ms, 0 AS requeues, NULL AS history, NULL AS fate, true AS is_durable
FROM (
    SELECT msg_id, vhost, queue, ts, lsn, attempt FROM recorded WHERE kind = 'delivered' AND msg_id > 0
) AS delivered
LEFT JOIN (
    SELECT msg_id, vhost, queue, enqueued_ts, enqueued_lsn FROM {lives} AS arrived
) AS lived USING (msg_id, vhost, queue)
"""
DECLARED = """
SELECT vhost, queue, max_by(reason, lsn) FILTER (WHERE reason IS NOT NULL) AS arguments
FROM recorded WHERE kind = 'declared' AND queue <> '' AND reason IS NOT NULL GROUP BY vhost, queue
"""
Declared = Mapping[tuple[str, str], Mapping[str, object]]


def left_out(tables: Tables) -> str:
    """A sentence about queues that are not simulated; "": there are none."""
    found = rows(tables.engine, f"SELECT vhost, queue FROM {tables.log_queues()} ORDER BY vhost, queue")
    names = ", ".join(f"{row['queue']} ({row['vhost']})" for row in found)
    return f"not simulated, since streams and non-destructive queues keep what was read: {names}" if names else ""


def whatif(tables: Tables, settings: str) -> str:
    """SQL of `WHATIF`, without the queues of `left_out`. `settings`: TOML.

    Raises: NotRecorded, ValueError (faulty settings).
    """
    read_settings(settings)  # reports faults before any work
    tables.require_deliveries("whatif")
    engine = tables.engine
    until_ms = int(value(engine, "SELECT unix_millis(max(ts)) FROM recorded") or 0)
    starts = _starts(engine)
    declared = {(row["vhost"], row["queue"]): json.loads(row["arguments"]) for row in rows(engine, DECLARED)}
    event = (
        "CAST(unix_millis(ts) AS string) || ' ' || CAST(lsn AS string) || ' ' || CAST(attempt AS string)"
        " || ' ' || kind || ' ' || coalesce(reason, '')"
    )
    steps = STEPS.format(
        lives=tables.lives_view(recorded=True),
        history=engine.dialect.ordered_array(event, "lsn", "true"),
        kinds=quoted_list(EVENT_KINDS),
    )

    def work(queue_rows: list[Row]) -> list[Row]:
        return one_queue(queue_rows, settings, declared, starts, until_ms)

    simulated = f"SELECT * FROM ({steps}) AS steps ANTI JOIN {tables.log_queues()} AS log_queues USING (vhost, queue)"
    engine.each_queue("simulated", simulated, work, WHATIF)
    return "SELECT * FROM simulated"


def _starts(engine: Engine) -> list[Start]:
    """The starts of the broker, each with the time of the last event before it, which counts as the time of the stop.

    No lease ended between the two: the broker would have recorded that.
    """
    starts = rows(engine, f"SELECT unix_millis(ts) AS ms, lsn FROM whole_events WHERE {STARTED} ORDER BY lsn")
    if not starts:
        return []
    cases = " ".join(f"WHEN lsn < {row['lsn']} THEN {row['lsn']}" for row in starts)
    last = f"SELECT CASE {cases} END AS start_lsn, unix_millis(max_by(ts, lsn)) AS ms FROM whole_events"
    stops = {row["start_lsn"]: row["ms"] for row in rows(engine, f"{last} WHERE lsn > 0 GROUP BY CASE {cases} END")}
    return [Start(row["ms"], row["lsn"], stops.get(row["lsn"])) for row in starts]


def one_queue(
    queue_rows: list[Row], settings: str, declared: Declared, starts: Sequence[Start], until_ms: int
) -> list[Row]:
    """Simulate one queue. Returns its rows of `WHATIF`. Runs in the executors of Spark."""
    queue_rows = sorted(queue_rows, key=lambda row: (row["ms"], row["lsn"]))
    arrived = [row for row in queue_rows if not row["is_credit"]]
    vhost, queue = queue_rows[0]["vhost"], queue_rows[0]["queue"]
    would = simulate(
        queue,
        map(_arrival, arrived),
        [Instant(row["ms"], row["lsn"]) for row in queue_rows if row["is_credit"]],
        settings,
        vhost=vhost,
        declared=declared.get((vhost, queue)),
        starts=starts,
        until_ms=until_ms,
    )

    def was(*kinds: str | None) -> int:
        return sum(row["fate"] in kinds for row in arrived)

    recorded = {
        "enqueued": len(arrived),
        "acknowledged": was("acked"),
        "requeued": sum(row["requeues"] for row in arrived),
        "expired": was("expired"),
        "killed": was("dead_lettered", "killed"),
        "replaced": was("evicted", "replaced"),
        "dropped": was("dropped"),
        "open": was(None),
    }
    return [
        {
            **{"vhost": vhost, "queue": queue, "what": what, "was": count, "would_be": would[what]},
            "margin": 0 if what == "enqueued" else would["margin"],
        }
        for what, count in recorded.items()
    ]


def _arrival(row: Row) -> Arrival:
    attempts = attempts_of(map(_event, row["history"] or ()))
    about = row["ms"], row["size_bytes"], row["priority"], row["arg_ms"]
    return Arrival(*about, attempts, row["lsn"], row["is_durable"])


def _event(text: str) -> MessageEvent:
    ms, lsn, attempt, kind, reason = text.split(" ", 4)
    return MessageEvent(int(ms), kind, reason or None, int(lsn), int(attempt))
