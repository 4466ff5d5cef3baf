"""The job `whatif`: simulates each queue with other settings, and compares the counts with the recorded ones.

One task simulates one queue, or a piece of one (pieces.py), which must fit into its memory: about 1000 octets per
message. The job needs scope "all", because only deliveries show when consumers were there.
"""

import json
from collections.abc import Mapping, Sequence

from ..engines.protocol import Engine, Row, quoted_list, rows, value
from ..engines.spark import SparkEngine
from ..schemas import arrow, columns
from .attempts import RETURNS, MessageEvent, attempts_of
from .lives import NEVER, STARTED
from .outputs import WHATIF
from .pieces import PIECE_ARRIVALS, SPANS, Incarnation, cut
from .simulation import DELETE, REMOVE, Arrival, Instant, Removal, Start, read_settings, simulate
from .tables import WITHOUT_LOGS, Tables

#: SQL: the simulated count differs from the recorded one.
DIFFERENT = "abs(was - would_be) > margin"
EVENT_KINDS = ("delivered", "acked", "killed", "dead_lettered", "expired", *RETURNS)
#: What is counted -> the recorded fates that count; None: still in the queue.
FATES: dict[str, tuple[str | None, ...]] = {
    "acknowledged": ("acked",),
    "expired": ("expired",),
    "killed": ("dead_lettered", "killed"),
    "replaced": ("evicted", "replaced"),
    "dropped": ("dropped",),
    "open": (None,),
}
#: Fates that were the act of an operator or a client, which is simulated.
REMOVALS = {"purged": REMOVE, "cancelled": REMOVE, "deleted": DELETE}
COUNTED = ("enqueued", "requeued", *FATES)
#: A view of the queues of which messages replace others with the same last-value key, as `log_queues`.
LAST_VALUE_QUEUES = "last_value_queues"
QUEUE_NAMES = columns("vhost string, queue string, begin_lsn bigint, end_lsn bigint")
#: The result of a `Span` (pieces.py), as a row.
RESULT = columns(
    "vhost string, queue string, first_lsn bigint, behind_lsn bigint, begin_ms bigint, credit bigint",
    "is_quiet int, credit_left bigint",
    "credit_needed bigint, adds_credit int, needs_contents int, margin bigint",
    *(f"was_{what} bigint, would_be_{what} bigint" for what in COUNTED),
)
ARRIVED = """
(SELECT msg_id, vhost, queue, unix_millis(enqueued_ts) AS ms, unix_millis(finished_ts) AS finished_ms,
    finished_lsn, enqueued_lsn AS lsn, size_bytes, requeues, kind AS fate, is_durable
FROM {lives} WHERE enqueued_ts IS NOT NULL)
"""
HANDED = "(SELECT msg_id, vhost, queue, ts, lsn, attempt FROM recorded WHERE kind = 'delivered' AND msg_id > 0)"
#: Arrivals, each with its events as texts "milliseconds LSN attempt kind reason"; and deliveries, which are credit
#: (simulation.py). If a message arrived and was first delivered in the same millisecond, a consumer was waiting: that
#: credit is put before the arrival. A message has the expiration with which it was published, because that of the queue
#: may be another one; if it was published before the lake, it has the one that was recorded in the queue.
STEPS = """
SELECT vhost, queue, first_lsn, ms, false AS is_credit, lsn, size_bytes,
    CAST(priority AS int) AS priority, IF(n_published > 0, own_ms, arg_ms) AS expiration_ms, requeues, history, fate,
    is_durable, finished_ms, finished_lsn
FROM arrived
JOIN (
    SELECT msg_id, vhost, queue, max(arg_ms) AS arg_ms, max(priority) AS priority
    FROM recorded WHERE kind = 'enqueued' GROUP BY msg_id, vhost, queue
) AS entered USING (msg_id, vhost, queue)
LEFT JOIN (
    SELECT msg_id, max(arg_ms) AS own_ms, count(*) AS n_published FROM recorded WHERE kind = 'published' GROUP BY msg_id
) AS published USING (msg_id)
LEFT JOIN (
    SELECT msg_id, vhost, queue, {history} AS history
    FROM recorded WHERE msg_id > 0 AND kind IN ({kinds}) GROUP BY msg_id, vhost, queue
) AS happened USING (msg_id, vhost, queue)
UNION ALL
SELECT vhost, queue, first_lsn, unix_millis(ts) AS ms, true AS is_credit,
    IF(attempt <= 1 AND arrived_ms = unix_millis(ts), arrived_lsn - 1, lsn) AS lsn, 0 AS size_bytes,
    0 AS priority, NULL AS expiration_ms, 0 AS requeues, NULL AS history, NULL AS fate, true AS is_durable,
    NULL AS finished_ms, NULL AS finished_lsn
FROM handed
LEFT JOIN (
    SELECT msg_id, vhost, queue, ms AS arrived_ms, lsn AS arrived_lsn FROM arrived
) AS first USING (msg_id, vhost, queue)
"""
#: Steps with the span to which they belong.
STEPS_OF_SPANS = """
SELECT steps.*, behind_lsn, begin_ms, end_ms, credit
FROM ({steps}) AS steps JOIN spans ON steps.vhost = spans.vhost AND steps.queue = spans.queue
    AND steps.first_lsn = spans.first_lsn AND ms >= begin_ms AND ms < end_ms
"""
Declared = Mapping[Incarnation, Mapping[str, object]]


def left_out(tables: Tables, which: str | None = None) -> str:
    """A sentence about queues that are not simulated; "": there are none. Only after `whatif`.

    which: a condition (SQL) on vhost and queue.
    """
    reasons = {
        tables.log_queues(): "streams and non-destructive queues keep what was read",
        LAST_VALUE_QUEUES: "the journal's events do not have the keys of last-value queues",
    }
    texts = []
    for view, why in reasons.items():
        simulated = "SELECT DISTINCT vhost, queue, true AS is_simulated FROM whatif_answer"
        found = rows(
            tables.engine,
            f"SELECT * FROM {view} LEFT JOIN ({simulated}) AS simulated USING (vhost, queue)"
            f" WHERE {which or 'true'} ORDER BY vhost, queue, begin_lsn",
        )
        if names := ", ".join(dict.fromkeys(map(_named, found))):
            texts.append(f"not simulated, since {why}: {names}")
    return "; ".join(texts)


def _named(row: Row) -> str:
    """A queue that is left out; with its records, if the queue was another kind before or afterwards."""
    if not row["is_simulated"]:
        return f"{row['queue']} ({row['vhost']})"
    until = "on" if row["end_lsn"] == NEVER else f"to {row['end_lsn'] - 1}"
    return f"{row['queue']} ({row['vhost']}, from record {row['begin_lsn']} {until})"


def whatif(tables: Tables, settings: str, piece_arrivals: int | None = None) -> str:
    """SQL of `WHATIF`, without the queues of `left_out`.

    Args:   settings: TOML. piece_arrivals: the fewest arrivals of a piece of a queue; 0: no queue is cut. By default
            Spark cuts; without it the pieces would be simulated one after the other.
    Raises: NotRecorded, ValueError (faulty settings).
    """
    import pyarrow

    read_settings(settings)  # reports faults before any work
    tables.require_deliveries()
    engine = tables.engine
    if piece_arrivals is None:
        piece_arrivals = PIECE_ARRIVALS if isinstance(engine, SparkEngine) else 0
    until_ms = int(value(engine, "SELECT unix_millis(max(ts)) FROM recorded") or 0)
    starts = _starts(engine)
    tables.log_queues()
    declared = {
        Incarnation(row["vhost"], row["queue"], row["begin_lsn"], row["end_lsn"]): json.loads(row["arguments"])
        for row in rows(engine, f"SELECT * FROM {tables.incarnations()}")
    }
    event = (
        "CAST(unix_millis(ts) AS string) || ' ' || CAST(lsn AS string) || ' ' || CAST(attempt AS string)"
        " || ' ' || kind || ' ' || coalesce(reason, '')"
    )
    lives = tables.lives_view(recorded=True)
    engine.view("arrived", WITHOUT_LOGS.format(found=ARRIVED.format(lives=lives)), cached=True)
    engine.view("handed", WITHOUT_LOGS.format(found=HANDED))
    history = engine.dialect.ordered_array(event, "lsn", "true")
    steps = STEPS_OF_SPANS.format(steps=STEPS.format(history=history, kinds=quoted_list(EVENT_KINDS)))

    def work(span_rows: list[Row]) -> list[Row]:
        return [one_span(span_rows, settings, declared, starts, until_ms)]

    queues = cut(engine, starts, piece_arrivals)
    while spans := [(*name, *span) for name, pieces in queues.items() for span in pieces.next_spans()]:
        listed = [dict(zip((one.name for one in SPANS), span, strict=True)) for span in spans]
        engine.memory_table("spans", pyarrow.Table.from_pylist(listed, arrow(SPANS)))
        engine.each_group("simulated", steps, ("vhost", "queue", "first_lsn", "begin_ms"), work, RESULT)
        for row in engine.stream("SELECT * FROM simulated"):
            queues[Incarnation.of(row)].add(row)
    without: list[Row] = []
    results: dict[tuple[str, str], list[Row]] = {}
    for name, pieces in queues.items():
        if any(row["needs_contents"] for row in pieces.done):
            without.append(dict(zip((one.name for one in QUEUE_NAMES), name, strict=True)))
        else:
            results.setdefault((name.vhost, name.queue), []).extend(pieces.done)
    engine.memory_table(LAST_VALUE_QUEUES, pyarrow.Table.from_pylist(without, arrow(QUEUE_NAMES)))
    found = [row for (vhost, queue), done in results.items() for row in _answer(vhost, queue, done)]
    engine.memory_table("whatif_answer", pyarrow.Table.from_pylist(found, arrow(WHATIF)))
    return "SELECT * FROM whatif_answer"


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


def one_span(span_rows: list[Row], settings: str, declared: Declared, starts: Sequence[Start], until_ms: int) -> Row:
    """Simulate one `Span`. Returns its row of `RESULT`. Runs in the executors of Spark."""
    span_rows = sorted(span_rows, key=lambda row: (row["ms"], row["lsn"]))
    first = span_rows[0]
    name, begin_ms, end_ms = Incarnation.of(first), first["begin_ms"], first["end_ms"]
    arrived = [row for row in span_rows if not row["is_credit"]]
    is_cut = end_ms != NEVER
    would = simulate(
        name.queue,
        map(_arrival, arrived),
        [Instant(row["ms"], row["lsn"]) for row in span_rows if row["is_credit"]],
        settings,
        vhost=name.vhost,
        declared=declared.get(name),
        starts=[
            start for start in starts if begin_ms <= start.ms < end_ms and name.first_lsn <= start.lsn < name.behind_lsn
        ],
        until_ms=end_ms if is_cut else until_ms,
        credit=first["credit"],
        is_cut=is_cut,
    )
    was = {what: sum(row["fate"] in fates for row in arrived) for what, fates in FATES.items()}
    was |= {"enqueued": len(arrived), "requeued": sum(row["requeues"] for row in arrived)}
    return {
        **name._asdict(),
        **{"begin_ms": begin_ms, "credit": first["credit"]},
        **{"is_quiet": int(would.is_quiet), "credit_left": would.credit, "credit_needed": would.credit_needed},
        **{"adds_credit": int(would.adds_credit), "needs_contents": int(would.needs_contents)},
        **{"margin": would.counts["margin"]},
        **{f"was_{what}": was[what] for what in COUNTED},
        **{f"would_be_{what}": would.counts[what] for what in COUNTED},
    }


def _answer(vhost: str, queue: str, results: Sequence[Row]) -> list[Row]:
    """The rows of `WHATIF` of a queue. `results`: of all pieces of its incarnations."""

    def total(name: str) -> int:
        return sum(row[name] for row in results)

    return [
        {
            **{"vhost": vhost, "queue": queue, "what": what},
            **{"was": total(f"was_{what}"), "would_be": total(f"would_be_{what}")},
            "margin": 0 if what == "enqueued" else total("margin"),
        }
        for what in COUNTED
    ]


def _arrival(row: Row) -> Arrival:
    attempts = attempts_of(map(_event, row["history"] or ()))
    about = row["ms"], row["size_bytes"], row["priority"], row["expiration_ms"]
    act = REMOVALS.get(row["fate"])
    removal = None if act is None else Removal(row["finished_ms"], row["finished_lsn"], act)
    return Arrival(*about, attempts, row["lsn"], row["is_durable"], removal)


def _event(text: str) -> MessageEvent:
    ms, lsn, attempt, kind, reason = text.split(" ", 4)
    return MessageEvent(int(ms), kind, reason or None, int(lsn), int(attempt))
