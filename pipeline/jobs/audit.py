"""The job `audit`: was anything lost or duplicated, or is anything out of order?

It checks that each (message, queue) has one `enqueued` and then at most one terminal event; that messages enter a queue
in the order of their ids; and that the messages open at a checkpoint are those that the checkpoint has of the durable
queues. A message that was enqueued or removed while the checkpoint was written may be missing in it. A fault that lost
records (the table `holes`) may explain is reported as unknown. Source: rulings, "Events"; 22.

A cluster has one journal for all of its leaders. A takeover allows two kinds of duplicates: a message whose confirm was
lost is published again with the same message id, and a delivery of the lost leader is repeated without a return.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

from ..engines.protocol import Row, rows, value
from .lives import NEVER
from .outputs import ALLOWED, FAULTS, MESSAGE_FATE, conform
from .tables import Tables

LOST, DUPLICATE, REORDERED, UNEXPECTED = "lost", "duplicate", "reordered", "unexpected"
JUDGED_VIEW = "judged"
#: (fault, condition, LSN, detail) as SQL over `judged`. {known}: the first message id that must have an `enqueued`.
CHECKS = (
    (
        LOST,
        "enqueues = 0 AND kind <> 'dropped' AND msg_id >= {known}",
        "finished_lsn",
        "kind || ' at LSN ' || finished_lsn || ', but it was never enqueued'",
    ),
    (
        LOST,
        "enqueues = 0 AND kind IS NULL AND between_min IS NOT NULL AND msg_id >= {known}",
        "between_min",
        "'delivered or returned at LSN ' || between_min || ', but it was never enqueued'",
    ),
    (
        DUPLICATE,
        "enqueues > 1",
        "again_lsn",
        "'enqueued ' || enqueues || ' times, at LSN ' || enqueued_lsn || ' and ' || again_lsn",
    ),
    (
        DUPLICATE,
        "terminals > 1",
        "refinished_lsn",
        "terminals || ' terminal events: ' || kind || ' at LSN ' || finished_lsn || ', again at ' || refinished_lsn",
    ),
    (
        REORDERED,
        "finished_lsn < enqueued_lsn OR between_min < enqueued_lsn",
        "enqueued_lsn",
        "'enqueued at LSN ' || enqueued_lsn || ', after its delivery or end at ' || least(finished_lsn, between_min)",
    ),
    (
        REORDERED,
        "terminals = 1 AND between_max > finished_lsn",
        "between_max",
        "'delivered or returned at LSN ' || between_max || ', after ' || kind || ' at ' || finished_lsn",
    ),
)
#: Faults in the events of single messages. Only the few messages with a fault are joined with all checks.
FAULTS_OF_LIVES = """
SELECT fault, msg_id, vhost, queue, lsn, detail
FROM (
    SELECT msg_id, vhost, queue,
        CASE number {conditions} END AS is_so,
        CASE number {faults} END AS fault,
        CASE number {lsns} END AS lsn,
        CASE number {details} END AS detail
    FROM (SELECT * FROM judged WHERE {any_of}) AS suspects CROSS JOIN (VALUES {numbers}) AS checks(number)
) AS checked
WHERE is_so
"""
#: The columns of lives that the checks need, computed once. The columns of times and sizes would take as long again.
JUDGED = """
SELECT msg_id, vhost, queue, enqueues, terminals, enqueued_lsn, again_lsn, finished_lsn, refinished_lsn,
    between_min, between_max, kind, is_durable
FROM {lives}
"""
#: One pass over all lives, which mostly saves the others: how many have each fate, and how many of them may have a
#: fault; and for each part of the journal the range of the messages that entered a queue in it, and whether one entered
#: after a younger one, or twice. Negative parts have the messages that never entered one.
SUMMARY = """
SELECT part, fate, count(*) AS n, count_if(is_suspect) AS suspects,
    min(msg_id) AS lowest, max(msg_id) AS highest,
    bool_or(part >= 0 AND (enqueues > 1 OR coalesce(before > msg_id, false))) AS is_mixed
FROM (
    SELECT *, lag(msg_id) OVER (PARTITION BY part ORDER BY enqueued_lsn, msg_id) AS before
    FROM (
        SELECT lives.msg_id, enqueues, enqueued_lsn, is_suspect, {fate} AS fate,
            IF(enqueued_lsn IS NULL, -1 - (lives.msg_id >> 20), enqueued_lsn >> 20) AS part
        FROM (SELECT *, coalesce({is_suspect}, false) AS is_suspect FROM judged) AS lives{seen}
    ) AS placed
) AS entered
GROUP BY part, fate ORDER BY part
"""
#: Messages that entered a queue after a younger one.
ENTERED_LATE = f"""
SELECT '{REORDERED}' AS fault, msg_id, vhost, queue, lsn,
    'enqueued at LSN ' || lsn || ', behind the younger message ' || ahead AS detail
FROM (
    SELECT msg_id, vhost, queue, lsn,
        max(msg_id) OVER (
            PARTITION BY vhost, queue ORDER BY lsn, msg_id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS ahead
    FROM events WHERE kind = 'enqueued' AND msg_id > 0
) AS entered
WHERE ahead > msg_id
"""
MISSING_AT_CHECKPOINT = f"""
SELECT '{LOST}' AS fault, msg_id, vhost, queue, lsn,
    'open by its events, but not in the queue at the checkpoint of LSN ' || lsn || ' to ' || until AS detail
FROM (
    SELECT msg_id, vhost, queue, min(begin_lsn) AS lsn, min(end_lsn) AS until
    FROM (
        SELECT msg_id, vhost, queue, begin_lsn, end_lsn
        FROM (
            SELECT msg_id, vhost, queue, enqueued_lsn, coalesce(finished_lsn, {NEVER}) AS gone_lsn
            FROM judged WHERE is_durable AND enqueues > 0
        ) AS durable JOIN spans ON begin_lsn > enqueued_lsn AND end_lsn <= gone_lsn
    ) AS open_then ANTI JOIN held USING (msg_id, vhost, queue, begin_lsn)
    GROUP BY msg_id, vhost, queue
) AS missing
"""
UNEXPECTED_HELD = f"""
SELECT '{UNEXPECTED}' AS fault, msg_id, vhost, queue, lsn,
    'in the queue at the checkpoint, LSN ' || lsn || ', but '
    || CASE WHEN finished_lsn < lsn THEN kind || ' at LSN ' || finished_lsn ELSE 'not enqueued before' END AS detail
FROM (
    SELECT msg_id, vhost, queue,
        min(held.lsn) AS lsn,
        min(finished_lsn) AS finished_lsn,
        min(kind) AS kind
    FROM held LEFT JOIN judged AS known USING (msg_id, vhost, queue)
    WHERE (enqueued_lsn IS NULL AND {{first}} <= 1) OR enqueued_lsn > held.lsn OR finished_lsn < begin_lsn
    GROUP BY msg_id, vhost, queue
) AS unexpected
"""
NO_FAULT = "SELECT '' AS fault, msg_id, vhost, queue, 0 AS lsn, '' AS detail FROM judged WHERE false"
SPANS = "SELECT DISTINCT begin_lsn, end_lsn FROM checkpoints"
#: As `SPANS`, but only checkpoints without a hole.
SPANS_WITHOUT_HOLES = """
SELECT DISTINCT begin_lsn, end_lsn FROM checkpoints LEFT JOIN joined_holes ON last_lsn >= begin_lsn AND first_lsn <
end_lsn WHERE first_lsn IS NULL
"""
#: Each hole with the range of message ids that may have been published in it. Ids rise, so the range is between the
#: last id before the hole and the first one behind it.
PUBLISHED_IN = f"""
SELECT first_lsn, last_lsn,
    coalesce(max(IF(lsn < first_lsn, msg_id, NULL)), 0) AS first_id,
    coalesce(min(IF(lsn > last_lsn, msg_id, NULL)), {NEVER}) AS behind_id
FROM joined_holes CROSS JOIN (
    SELECT lsn, msg_id FROM whole_events WHERE kind = 'published' UNION ALL SELECT CAST(NULL AS bigint), NULL
) AS published
GROUP BY first_lsn, last_lsn
"""
#: Faults, each with the last hole that may explain it: the message was published in that hole, or was open before it
#: and has no event behind it.
EXPLAINED = f"""
SELECT fault, msg_id, vhost, queue, lsn, detail, max(IF(may_be, first_lsn, NULL)) AS first_lsn,
    max(IF(may_be, last_lsn, NULL)) AS last_lsn
FROM (
    SELECT found.fault, found.msg_id, found.vhost, found.queue, found.lsn, found.detail, first_lsn, last_lsn,
        found.fault IN ('{LOST}', '{UNEXPECTED}') AND first_lsn < found.lsn AND (
            (found.msg_id >= first_id AND found.msg_id < behind_id
                AND coalesce(enqueued_lsn, {NEVER}) > IF(found.fault = '{LOST}', first_lsn, found.lsn))
            OR (found.fault = '{LOST}' AND enqueued_lsn < found.lsn
                AND last_lsn > greatest(enqueued_lsn, coalesce(between_max, 0)))
        ) AS may_be
    FROM found
    LEFT JOIN judged
        ON judged.msg_id = found.msg_id AND judged.vhost = found.vhost AND judged.queue = found.queue
    CROSS JOIN published_in
) AS compared
GROUP BY fault, msg_id, vhost, queue, lsn, detail
"""
UNEXPLAINED = "SELECT fault, msg_id, vhost, queue, lsn, detail FROM explained WHERE first_lsn IS NULL"
UNKNOWN = """
SELECT fault, msg_id, vhost, queue, lsn,
    detail || '; records ' || first_lsn || ' to ' || last_lsn || ', which are lost, may tell more' AS detail
FROM explained WHERE first_lsn IS NOT NULL
"""
#: The most holes that are judged one by one. If there are more, the nearest ones are joined.
HOLES_MAX = 64
HELD = """
SELECT /*+ BROADCAST(spans) */ msg_id, vhost, queue, lsn, begin_lsn
FROM snapshots JOIN spans ON lsn >= begin_lsn AND lsn < end_lsn
"""


def fates(tables: Tables) -> str:
    """SQL of `MESSAGE_FATE`: the fate of every message."""
    text = f"SELECT lives.*, {_fate(tables)} AS fate FROM {tables.lives_view()} AS lives{_join_seen(tables)}"
    return conform(tables.engine.dialect, text, MESSAGE_FATE)


class Audited(NamedTuple):
    """`faults`: SQL of `FAULTS`, one row per fault. `fates`: the number of messages by their fates."""

    faults: str
    fates: dict[str, int]


def audit(tables: Tables) -> Audited:
    """Audit all messages."""
    tables.engine.view(JUDGED_VIEW, JUDGED.format(lives=tables.lives_view()), cached=True)
    if tables.holes():
        lost = ", ".join(f"({first}, {last})" for first, last in _joined_holes(tables))
        tables.engine.view("joined_holes", f"SELECT * FROM (VALUES {lost}) AS joined_holes(first_lsn, last_lsn)")
    checks = _checks(tables)
    is_suspect = " OR ".join(so for _, so, _, _ in checks)
    about = {"fate": _fate(tables), "seen": _join_seen(tables), "is_suspect": is_suspect}
    summary = rows(tables.engine, SUMMARY.format(**about))
    fates: Counter[str] = Counter()
    for row in summary:
        fates[row["fate"]] += row["n"]
    parts = [_faults_of_lives(checks)] if any(row["suspects"] for row in summary) else []
    parts += [ENTERED_LATE] if _is_out_of_order(summary) else []
    if tables.checkpoints():
        tables.engine.view("spans", SPANS_WITHOUT_HOLES if tables.holes() else SPANS)
        tables.engine.view("held", HELD)
        parts += [MISSING_AT_CHECKPOINT, UNEXPECTED_HELD.format(first=tables.first_lsn())]
    text = " UNION ALL ".join(parts or [NO_FAULT])
    if tables.holes():
        tables.engine.view("found", text, cached=True)
        tables.engine.view("published_in", PUBLISHED_IN, cached=True)
        tables.engine.view("explained", EXPLAINED, cached=True)
        text = UNEXPLAINED
    return Audited(conform(tables.engine.dialect, text, FAULTS), dict(sorted(fates.items())))


def _is_out_of_order(summary: Sequence[Row]) -> bool:
    """Whether a message entered a queue after a younger one, or twice. `summary`: rows of `SUMMARY`, parts in order."""
    highest = 0
    for _, found in groupby((row for row in summary if row["part"] >= 0), key=itemgetter("part")):
        of_part = list(found)
        if any(row["is_mixed"] for row in of_part) or min(row["lowest"] for row in of_part) < highest:
            return True
        highest = max(row["highest"] for row in of_part)
    return False


def unknown(tables: Tables) -> str:
    """SQL of the `FAULTS` that a hole may explain. Only for a lake with holes, after `audit`."""
    return conform(tables.engine.dialect, UNKNOWN, FAULTS)


def _joined_holes(tables: Tables) -> list[tuple[int, int]]:
    """(first LSN, last LSN) of each hole. Adjacent ones are joined; then the nearest ones until HOLES_MAX are left."""
    found: list[tuple[int, int]] = []
    for one in tables.holes():
        if found and one["first_lsn"] <= found[-1][1] + 1:
            found[-1] = found[-1][0], max(found[-1][1], one["last_lsn"])
        else:
            found.append((one["first_lsn"], one["last_lsn"]))
    while len(found) > HOLES_MAX:
        nearest = min(range(len(found) - 1), key=lambda at: found[at + 1][0] - found[at][1])
        found[nearest : nearest + 2] = [(found[nearest][0], found[nearest + 1][1])]
    return found


def _join_seen(tables: Tables) -> str:
    """SQL of a join that `_fate` needs: `seen` are the messages in a checkpoint behind the last hole."""
    if not tables.holes():
        return ""
    last = _joined_holes(tables)[-1][0]
    some = f"SELECT DISTINCT msg_id, vhost, queue FROM snapshots WHERE lsn > {last}"
    on = " AND ".join(f"seen.{name} = lives.{name}" for name in ("msg_id", "vhost", "queue"))
    return f" LEFT JOIN ({some}) AS seen ON {on}"


def _fate(tables: Tables) -> str:
    """SQL of the fate of a life.

    Transient messages ended with the last start of a broker with scope "all". A message that was open before a hole is
    unknown, unless an event or a checkpoint behind the hole has it.
    """
    started = max((row["lsn"] for row in tables.starts()), default=0)
    return (
        "CASE WHEN kind IS NOT NULL THEN kind"
        f" WHEN NOT is_durable AND enqueued_lsn < {started} THEN 'ended'{_is_unknown(tables)} ELSE 'open' END"
    )


def _is_unknown(tables: Tables) -> str:
    if not tables.holes():
        return ""
    last = _joined_holes(tables)[-1][0]
    known = "greatest(coalesce(enqueued_lsn, 0), coalesce(between_max, 0))"
    return f" WHEN {known} < {last} AND seen.msg_id IS NULL THEN 'unknown'"


def _checks(tables: Tables) -> list[tuple[str, str, str, str]]:
    """The `CHECKS` of a lake. Messages from before it may lack their `enqueued`."""
    known = 0
    if tables.first_lsn() > 1:
        first = value(tables.engine, "SELECT min(msg_id) FROM events WHERE kind = 'published'")
        known = NEVER if first is None else int(first)
    return [(fault, f"({so.format(known=known)})", lsn, detail) for fault, so, lsn, detail in CHECKS]


def _faults_of_lives(checks: Sequence[tuple[str, str, str, str]]) -> str:
    """SQL of faults in the events of single messages."""

    def cases(place: int) -> str:
        texts = (f"'{check[0]}'" if place == 0 else check[place] for check in checks)
        return " ".join(f"WHEN {number} THEN {text}" for number, text in enumerate(texts))

    return FAULTS_OF_LIVES.format(
        conditions=cases(1),
        faults=cases(0),
        lsns=cases(2),
        details=cases(3),
        any_of=" OR ".join(so for _, so, _, _ in checks),
        numbers=", ".join(f"({number})" for number in range(len(checks))),
    )


DELIVERED = """
SELECT 'delivered again' AS duplicate, ordered.msg_id, ordered.msg_id AS first_id,
    ordered.vhost, ordered.queue, ordered.lsn,
    min(led.lsn) AS led_lsn,
    'delivered at LSN ' || min(before_lsn) || ', and again at ' || ordered.lsn || ' after a takeover' AS detail
FROM (
    SELECT msg_id, vhost, queue, lsn, kind,
        lag(kind) OVER (PARTITION BY msg_id, vhost, queue ORDER BY lsn) AS before,
        lag(lsn) OVER (PARTITION BY msg_id, vhost, queue ORDER BY lsn) AS before_lsn
    FROM events WHERE msg_id > 0 AND queue <> ''
) AS ordered
JOIN (SELECT lsn FROM events WHERE kind = 'led') AS led ON led.lsn > before_lsn AND led.lsn < ordered.lsn
ANTI JOIN {log_queues} AS log_queues ON log_queues.vhost = ordered.vhost AND log_queues.queue = ordered.queue
    AND ordered.lsn >= begin_lsn AND ordered.lsn < end_lsn
WHERE ordered.kind = 'delivered' AND ordered.before = 'delivered'
GROUP BY ordered.msg_id, ordered.vhost, ordered.queue, ordered.lsn
"""
PUBLISHED = """
SELECT 'published again' AS duplicate, later.msg_id, min(first.msg_id) AS first_id, later.vhost, '' AS queue, later.lsn,
    min(led.lsn) AS led_lsn,
    'has the message id of message ' || min(first.msg_id) || ', which another leader took' AS detail
FROM ({named}) AS later
JOIN ({named}) AS first ON first.name = later.name AND first.vhost = later.vhost AND first.address = later.address
    AND first.routing_key = later.routing_key
JOIN (SELECT lsn FROM events WHERE kind = 'led') AS led ON led.lsn > first.lsn AND led.lsn < later.lsn
GROUP BY later.msg_id, later.vhost, later.lsn
"""
NAMED = """
SELECT msg_id, lsn, vhost, address, routing_key, {message_id} AS name
FROM payloads WHERE cause_id = 0 AND {message_id} <> ''
"""


def allowed(tables: Tables) -> str:
    """SQL of `ALLOWED`. Messages published again are found only with contents, deliveries only with scope "all"."""
    dialect = tables.engine.dialect
    named = NAMED.format(message_id=dialect.json_field("properties_json", "message_id"))
    text = f"{DELIVERED.format(log_queues=tables.log_queues())} UNION ALL {PUBLISHED.format(named=named)}"
    return conform(dialect, text, ALLOWED)
