"""redelivery: which messages keep failing, at which consumers, and how long they were delayed. Needs scope "all"."""

from ..engines.protocol import value
from .lives import RETURNED, STARTED
from .outputs import REDELIVERY, conform
from .tables import Tables

#: Attempts, or returns by failing consumers, from which a message counts as poison, even if it did not die.
POISON_ATTEMPTS = 5
#: Returns that say nothing about the message: its consumer left, in order.
LEFT = "reason IN ('closed', 'unsubscribed', 'recovered')"
DEAD = "kind IN ('dead_lettered', 'killed')"
#: First deliveries are not read: a message that was rejected, or whose attempts were used up, had one at least. If the
#: broker was started more than once they are: what it held in a kill comes again as if it were the first time. Of a
#: queue that keeps what was read (a stream) each consumer gets a first delivery.
FAILING = """
SELECT *, coalesce(attempts >= {poison_attempts} OR failures >= {poison_attempts} OR is_used_up, false) AS poison
FROM (
    SELECT vhost, queue, msg_id,
        greatest(max(attempt), max(IF({dead} AND reason IN ('delivery_limit', 'rejected'), 1, 0))) AS attempts,
        count_if({returned}) AS requeues,
        count_if(kind = 'lease_ended') AS leases_ended,
        count_if(kind = 'delivered') AS deliveries,
        bool_or({dead}) AS dead,
        count_if({returned} AND NOT coalesce({left}, false)) AS failures,
        bool_or({dead} AND reason = 'delivery_limit') AS is_used_up,
        {pauses} AS backoff_ms,
        max_by(consumer, lsn) FILTER (WHERE consumer IS NOT NULL) AS last_consumer,
        max_by(reason, lsn) FILTER (WHERE reason IS NOT NULL) AS last_reason,
        max(ts) AS last_ts
    FROM recorded
    WHERE msg_id > 0 AND ({returned} OR (kind = 'delivered' AND attempt >= {least}) OR {dead})
    GROUP BY vhost, queue, msg_id
) AS folded
WHERE requeues > 0 OR dead OR attempts > 1 OR {again}
"""
#: A second first delivery.
AGAIN = """(deliveries > 1 AND NOT EXISTS (
    SELECT 1 FROM {keeping} AS keeping WHERE keeping.vhost = folded.vhost AND keeping.queue = folded.queue
))"""


def redelivery(tables: Tables, poison_attempts: int = POISON_ATTEMPTS) -> str:
    """`REDELIVERY`. Raises: NotRecorded."""
    tables.with_deliveries("redelivery")
    dialect = tables.engine.dialect
    pauses = dialect.in_order("arg_ms", "lsn", "kind IN ('requeued', 'scheduled') AND arg_ms > 0")
    starts = int(value(tables.engine, f"SELECT count(*) FROM events WHERE {STARTED}") or 0)
    is_restarted = starts > (1 if tables.first_lsn() <= 1 else 0)
    text = FAILING.format(
        poison_attempts=poison_attempts,
        returned=RETURNED,
        left=LEFT,
        dead=DEAD,
        pauses=pauses,
        least=1 if is_restarted else 2,
        again=AGAIN.format(keeping=tables.keeping()) if is_restarted else "false",
    )
    return conform(dialect, text, REDELIVERY)
