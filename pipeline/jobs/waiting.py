"""The messages that were in queues already when the lake begins, because the lake begins later than the journal.

The lake has no `enqueued` event of these messages. They are found by their recorded deliveries and ends, and in
durable queues by the first checkpoint in the lake. Other transient messages are not found. Sizes are unknown.
"""

from ..engines.protocol import rows, value, words
from ..schemas import EVENTS
from .audit import NEVER
from .lives import BETWEEN, DURABLE, TERMINALS, lives_of
from .tables import Tables

#: `{known}`: the first message that was published in the lake.
TOUCHED = """
SELECT msg_id, vhost, queue, {durable} AS durable FROM events
WHERE msg_id > 0 AND msg_id < {known} AND queue <> '' AND kind IN ({kinds})
"""
HELD = """
SELECT msg_id, vhost, queue, 1 AS durable FROM snapshots WHERE lsn >= {begin} AND lsn < {end} AND msg_id < {known}
"""
WAITING = f"""
SELECT msg_id, vhost, queue, max(durable) * {DURABLE} AS flags
FROM ({{found}}) AS found
ANTI JOIN (SELECT msg_id, vhost, queue FROM events WHERE kind = 'enqueued') AS entered USING (msg_id, vhost, queue)
GROUP BY msg_id, vhost, queue
"""
#: Such a message as a row of `events`.
VALUES = {"kind": "'enqueued'", **{name: name for name in ("msg_id", "vhost", "queue", "flags")}}
#: Events that show that a message was in a queue before, also `dropped` if it was published before the lake begins.
ENDS = (*TERMINALS, *BETWEEN)


#: The remark of an answer that counts waiting messages when no checkpoint has those from before the lake.
UNTOLD = "how much was waiting before is not known either: there is no checkpoint since then"


def is_told(tables: Tables) -> bool:
    """Whether a checkpoint of the lake tells what was in durable queues."""
    return bool(rows(tables.engine, "SELECT begin_lsn FROM checkpoints LIMIT 1"))


def with_waiting(tables: Tables, window_s: int) -> tuple[str, int]:
    """Make a view of lives in which the waiting messages entered in the window before the lake's first window.

    Returns: the name of the view; the beginning of the first window, in seconds.
    """
    engine, first = tables.engine, tables.first_lsn()
    known = value(engine, "SELECT min(msg_id) FROM events WHERE kind = 'published'") or NEVER
    checkpoint = "SELECT begin_lsn, end_lsn, unix_seconds(ts) AS second FROM checkpoints ORDER BY begin_lsn LIMIT 1"
    told = rows(engine, checkpoint)
    durable = 0 if told else 1  # without a checkpoint each of these messages may be durable
    found = [TOUCHED.format(known=known, kinds=words(ENDS), durable=durable)]
    found += [HELD.format(begin=one["begin_lsn"], end=one["end_lsn"], known=known) for one in told]
    engine.view("waiting", WAITING.format(found=" UNION ALL ".join(found)))
    begin = tables.span()[0] or (told[0]["second"] if told else 0)
    begin -= begin % window_s
    wanted = {"lsn": str(first - 1), "ts": f"timestamp_seconds({begin - window_s})", **VALUES}
    nothing = {"string": "''"}
    listed = ", ".join(
        f"CAST({wanted.get(name, 'NULL' if nullable else nothing.get(type_, '0'))} AS {engine.dialect.type(type_)})"
        f" AS {name}"
        for name, type_, nullable in EVENTS
    )
    names = ", ".join(one.name for one in EVENTS)
    engine.view("events_and_waiting", f"SELECT {names} FROM events UNION ALL SELECT {listed} FROM waiting")
    engine.view("lives_and_waiting", lives_of("events_and_waiting"))
    return "lives_and_waiting", begin
