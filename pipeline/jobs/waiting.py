"""What was in the queues where the lake begins, if that is not where the journal began.

Such messages are those whose end, or delivery, is recorded and whose `enqueued` is not, and those that the first
checkpoint of the lake has in durable queues. Of other transient ones nothing is known. Their sizes are not known.
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
#: What happens to messages that are in a queue. One that was published before, and is dropped now, was in it, too.
ENDS = (*TERMINALS, *BETWEEN)


#: What to say of an answer that counts what was waiting.
UNTOLD = "how much was waiting before is not known either: there is no checkpoint since then"


def is_told(tables: Tables) -> bool:
    """Whether a checkpoint of the lake tells what was in durable queues."""
    return bool(rows(tables.engine, "SELECT begin_lsn FROM checkpoints LIMIT 1"))


def with_waiting(tables: Tables, window_s: int) -> tuple[str, int]:
    """Make a view of lives in which these messages entered in the window before the lake's first.

    Returns: its name; the beginning of the first window, in seconds.
    """
    engine, first = tables.engine, tables.first_lsn()
    known = value(engine, "SELECT min(msg_id) FROM events WHERE kind = 'published'") or NEVER
    checkpoint = "SELECT begin_lsn, end_lsn, unix_seconds(ts) AS second FROM checkpoints ORDER BY begin_lsn LIMIT 1"
    told = rows(engine, checkpoint)
    durable = 0 if told else 1  # it may be: then it outlives the broker
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
