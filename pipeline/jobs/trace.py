"""trace and deadletters: the events of one message; and why messages died."""

from collections.abc import Mapping

from ..engines.protocol import rows
from .outputs import DEADLETTERS, TRACE, conform
from .tables import Tables

#: Limit on copies of copies, for loops of dead letters.
GENERATIONS_MAX = 100
#: Messages with one correlation id or header that are looked at.
FOUND_MAX = 1000
#: Where a copy of a dead letter arrived: one row for each queue, or one without.
DEAD_LETTERS = """
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
), told AS (
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
FROM told GROUP BY vhost, queue, kind, reason, outcome, target, arrived_in
"""


def ids_of(tables: Tables, message: str) -> list[int]:
    """Messages with this id (digits), correlation or message id, or header (NAME=VALUE).

    All of these are tried, since a program's ids may consist of digits, or have a "=". Without contents in the lake
    only the message id is tried. Raises: NotRecorded (the text is no message id), ValueError (unusable text).
    """
    engine, dialect = tables.engine, tables.engine.dialect
    found: set[int] = set()
    if message.isascii() and message.isdecimal() and len(message) < 19:
        if rows(engine, f"SELECT lsn FROM events WHERE msg_id = {int(message)} AND msg_id > 0 LIMIT 1"):
            found.add(int(message))
        if not tables.are_contents_there():
            return sorted(found)
    tables.with_contents("trace by header or correlation id")
    wanted = dialect.text(message)
    tests = [f"{dialect.member('properties_json', name)} = {wanted}" for name in ("correlation_id", "message_id")]
    name, equals, value = message.partition("=")
    if equals:
        tests.append(f"{dialect.member('headers_json', name)} = {dialect.text(value)}")
    sought = f"SELECT DISTINCT msg_id FROM payloads WHERE {' OR '.join(tests)} ORDER BY msg_id LIMIT {FOUND_MAX}"
    return sorted(found | {row["msg_id"] for row in rows(engine, sought)})


def family(tables: Tables, ids: list[int]) -> dict[int, int]:
    """These messages, their originals and their copies: id -> cause (0 none)."""
    known = dict.fromkeys(ids, 0)
    new = list(ids)
    for _ in range(GENERATIONS_MAX):
        if not new:
            break
        wanted = ", ".join(map(str, new))
        found = rows(
            tables.engine,
            "SELECT msg_id, cause_id FROM payloads"
            f" WHERE msg_id IN ({wanted}) OR (cause_id > 0 AND cause_id IN ({wanted}))",
        )
        before = set(known)
        for row in found:
            known[row["msg_id"]] = row["cause_id"]
            if row["cause_id"]:
                known.setdefault(row["cause_id"], 0)
        new = [id_ for id_ in known if id_ not in before]
    return known


def trace(tables: Tables, message: str) -> str:
    """`TRACE`; empty without such a message. Raises: NotRecorded, ValueError."""
    return trace_of(tables, family(tables, ids_of(tables, message)))


def trace_of(tables: Tables, causes: Mapping[int, int]) -> str:
    """`TRACE` of these messages. `causes`: message id -> id of the message that it is a copy of; 0: of none."""
    cases = " ".join(f"WHEN {id_} THEN {cause}" for id_, cause in causes.items() if cause)
    cause = f"CASE msg_id {cases} END" if cases else "NULL"
    among = f"msg_id IN ({', '.join(map(str, causes))})" if causes else "false"
    listed = ", ".join(f"{cause} AS cause_id" if one.name == "cause_id" else one.name for one in TRACE)
    return conform(tables.engine.dialect, f"SELECT {listed} FROM events WHERE {among}", TRACE)


def deadletters(tables: Tables) -> str:
    """`DEADLETTERS`: by queue, reason and outcome. Without recorded deliveries last_consumer is null.

    A copy that no queue took is recorded only with scope "all", and copies at all only with contents.
    """
    is_whole = tables.scopes() == {"all"} and tables.are_contents_there()
    without = "IF(kind = 'dead_lettered', 'nowhere', 'gone')" if is_whole else "'not recorded'"
    dialect = tables.engine.dialect
    died_in = dialect.first_death("payloads.headers_json")
    return conform(dialect, DEAD_LETTERS.format(died_in=died_in, without=without), DEADLETTERS)
