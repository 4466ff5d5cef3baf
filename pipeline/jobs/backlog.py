"""The jobs `depth` and `blocked`: how many messages waited in queues, and which publishers waited for room."""

from ..engines.protocol import quoted_list, rows, value
from ..schemas import EVENTS
from .lives import BETWEEN, DURABLE, NEVER, STARTED, TERMINALS, lives_of
from .outputs import BLOCKED, DEPTH, WINDOW, conform
from .tables import Tables

#: Kinds of events that remove a message because another one arrives. Arrival and removal are one step.
PUSHED_OUT = ("evicted", "replaced", "dropped")
#: Levels are counted from the beginning of each window, so that windows are computed in parallel. They are doubles,
#: whose running sums take DuckDB half the time of integers. A record that removes many messages counts as one removal
#: after the other, which adds no extreme. The arrival of a message that pushes others out is recorded before their
#: removal, and the level between the two must not count. So of consecutive arrivals only the level after the last one
#: counts, and not even that if the next record pushes a message out.
DEPTH_QUERY = """
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
    END AS counted
    FROM levels
), folded AS (
    SELECT vhost, queue, slot,
        least(min(counted), 0) AS low,
        greatest(max(counted), 0) AS high,
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
TRANSIENT_ENDS = """
    UNION ALL
    SELECT vhost, queue, -1 AS step, min(starts.lsn) AS lsn, min(unix_seconds(starts.ts)) AS second,
        -min(size_bytes) AS octets, false AS is_pushed
    FROM (SELECT * FROM lived WHERE finished_ts IS NULL AND NOT is_durable) AS passing
    JOIN (SELECT lsn, ts FROM events WHERE {started}) AS starts ON starts.lsn > enqueued_lsn
    GROUP BY msg_id, vhost, queue"""
#: Whether a broker was started after a message arrived. In most journals none was, which saves `TRANSIENT_ENDS`.
IS_STARTED_AGAIN = """
SELECT lsn FROM events WHERE {started} AND lsn > (SELECT min(lsn) FROM events WHERE kind = 'enqueued') LIMIT 1
"""


def depth(tables: Tables, window_s: int = 60, until: int | None = None) -> str:
    """SQL of `DEPTH`: one row per queue and window, from the first arrival to the last arrival or removal.

    If messages are left, the rows go up to the window of `until` (seconds since 1970; None: the end of the lake).
    Messages from before the lake count if `with_waiting` finds them.
    """
    lives, begin = (tables.lives_view(), None) if tables.first_lsn() <= 1 else with_waiting(tables, window_s)
    last = tables.span()[1] if until is None else until
    slot = WINDOW.format(second="second", window_s=window_s)
    is_started_again = begin is not None or rows(tables.engine, IS_STARTED_AGAIN.format(started=STARTED))
    text = DEPTH_QUERY.format(
        lives=lives,
        ended=TRANSIENT_ENDS.format(started=STARTED) if is_started_again else "",
        pushed=quoted_list(PUSHED_OUT),
        slot=slot,
        window_s=window_s,
        last=last - last % window_s,
    )
    if begin is not None:
        text = f"SELECT * FROM ({text}) AS every WHERE window_start >= timestamp_seconds({begin})"
    return conform(tables.engine.dialect, text, DEPTH)


#: Messages from before the lake that its events show. {known}: the first message id that was published in the lake.
TOUCHED_BEFORE = """
SELECT msg_id, vhost, queue, {durable} AS durable FROM events
WHERE msg_id > 0 AND msg_id < {known} AND queue <> '' AND kind IN ({kinds})
"""
#: Messages from before the lake that are in its first checkpoint.
HELD_BEFORE = """
SELECT msg_id, vhost, queue, 1 AS durable FROM snapshots WHERE lsn >= {begin} AND lsn < {end} AND msg_id < {known}
"""
WAITING = f"""
SELECT msg_id, vhost, queue, max(durable) * {DURABLE} AS flags
FROM ({{found}}) AS found
ANTI JOIN (SELECT msg_id, vhost, queue FROM events WHERE kind = 'enqueued') AS entered USING (msg_id, vhost, queue)
GROUP BY msg_id, vhost, queue
"""
#: The values of an `enqueued` event of such a message.
ENQUEUED_BEFORE = {"kind": "'enqueued'", **{name: name for name in ("msg_id", "vhost", "queue", "flags")}}
#: Kinds of events that show that a message was in a queue before.
SIGNS = (*TERMINALS, *BETWEEN)
#: The remark of an answer if no checkpoint has the messages from before the lake.
NO_CHECKPOINT = "nor is it known how many messages waited before: there is no checkpoint since then"


def with_waiting(tables: Tables, window_s: int) -> tuple[str, int]:
    """Make a view of lives that includes messages from before the lake. For a lake that begins later than its journal.

    They are found by their later events, and in durable queues by the first checkpoint; other transient messages are
    not found. They count as enqueued in the window before the first one. Their sizes are unknown.
    Returns: the name of the view; the beginning of the first window, in seconds.
    """
    engine, first = tables.engine, tables.first_lsn()
    known = value(engine, "SELECT min(msg_id) FROM events WHERE kind = 'published'") or NEVER
    checkpoints = tables.checkpoints()[:1]
    durable = 0 if checkpoints else 1  # without a checkpoint each of these messages may be durable
    found = [TOUCHED_BEFORE.format(known=known, kinds=quoted_list(SIGNS), durable=durable)]
    found += [HELD_BEFORE.format(begin=one["begin_lsn"], end=one["end_lsn"], known=known) for one in checkpoints]
    engine.view("waiting", WAITING.format(found=" UNION ALL ".join(found)))
    begin = tables.span()[0] or (int(checkpoints[0]["ts"].timestamp()) if checkpoints else 0)
    begin -= begin % window_s
    wanted = {"lsn": str(first - 1), "ts": f"timestamp_seconds({begin - window_s})", **ENQUEUED_BEFORE}
    empty = {"string": "''"}
    listed = ", ".join(
        f"CAST({wanted.get(name, 'NULL' if nullable else empty.get(type_, '0'))} AS {engine.dialect.type(type_)})"
        f" AS {name}"
        for name, type_, nullable in EVENTS
    )
    names = ", ".join(one.name for one in EVENTS)
    engine.view("events_and_waiting", f"SELECT {names} FROM events UNION ALL SELECT {listed} FROM waiting")
    engine.view("lives_and_waiting", lives_of("events_and_waiting"))
    return "lives_and_waiting", begin


#: A wait ends at the latest when a broker is started or leads, because no earlier connection is left then.
BLOCKED_QUERY = """
WITH marks AS (
    SELECT lsn, ts, kind, vhost, conn_id,
        {connection} AS `connection`,
        {destination} AS destination,
        {limit} AS `limit`,
        CAST({waited_ms} AS bigint) AS waited
    FROM recorded WHERE kind IN ('blocked', 'unblocked')
), waits AS (
    SELECT *,
        lead(lsn) OVER (PARTITION BY vhost, conn_id, destination, `limit` ORDER BY lsn) AS until_lsn,
        lead(ts) OVER (PARTITION BY vhost, conn_id, destination, `limit` ORDER BY lsn) AS until,
        lead(waited) OVER (PARTITION BY vhost, conn_id, destination, `limit` ORDER BY lsn) AS waited_ms
    FROM marks
), ended AS (
    SELECT waits.lsn, waits.ts, kind, vhost, conn_id, `connection`, destination, `limit`,
        coalesce(min(starts.ts), until) AS until,
        coalesce(unix_millis(min(starts.ts)) - unix_millis(waits.ts), waited_ms) AS waited_ms
    FROM waits LEFT JOIN (SELECT lsn, ts FROM events WHERE kind = 'led' OR ({started})) AS starts
        ON starts.lsn > waits.lsn AND (until_lsn IS NULL OR starts.lsn < until_lsn)
    WHERE kind = 'blocked'
    GROUP BY waits.lsn, waits.ts, kind, vhost, conn_id, `connection`, destination, `limit`, until, waited_ms
)
SELECT *, ts AS since FROM ended
"""


def blocked(tables: Tables) -> str:
    """SQL of `BLOCKED`: which publishers waited for room, where and how long. Raises: NotRecorded."""
    tables.require_deliveries()
    dialect = tables.engine.dialect
    fields = {name: dialect.json_field("reason", name) for name in ("connection", "destination", "limit", "waited_ms")}
    return conform(dialect, BLOCKED_QUERY.format(**fields, started=STARTED), BLOCKED)
