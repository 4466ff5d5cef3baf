"""redelivery: which messages keep failing, at which consumers, and how long they were delayed. Needs scope "all"."""

from .lives import RETURNED
from .outputs import REDELIVERY, conform
from .tables import Tables

#: Number of attempts from which a message counts as poison, even if it did not die.
POISON_ATTEMPTS = 5
DEAD = "kind IN ('dead_lettered', 'killed')"
#: First deliveries are not read: a message that was rejected, or whose attempts were used up, had one at least.
FAILING = """
SELECT *, coalesce(attempts >= {poison_attempts} OR died, false) AS poison
FROM (
    SELECT vhost, queue, msg_id,
        greatest(max(attempt), max(IF({dead} AND reason IN ('delivery_limit', 'rejected'), 1, 0))) AS attempts,
        count_if({returned}) AS requeues,
        count_if(kind = 'lease_ended') AS leases_ended,
        bool_or({dead}) AS dead,
        bool_or({dead} AND reason IN ('delivery_limit', 'rejected')) AS died,
        {pauses} AS backoff_ms,
        max_by(consumer, lsn) FILTER (WHERE consumer IS NOT NULL) AS last_consumer,
        max_by(reason, lsn) FILTER (WHERE reason IS NOT NULL) AS last_reason,
        max(ts) AS last_ts
    FROM recorded
    WHERE msg_id > 0 AND ({returned} OR (kind = 'delivered' AND attempt > 1) OR {dead})
    GROUP BY vhost, queue, msg_id
) AS folded
WHERE requeues > 0 OR dead OR attempts > 1
"""


def redelivery(tables: Tables, poison_attempts: int = POISON_ATTEMPTS) -> str:
    """`REDELIVERY`. Raises: NotRecorded."""
    tables.with_deliveries("redelivery")
    dialect = tables.engine.dialect
    pauses = dialect.in_order("arg_ms", "lsn", "kind IN ('requeued', 'scheduled') AND arg_ms > 0")
    text = FAILING.format(poison_attempts=poison_attempts, returned=RETURNED, dead=DEAD, pauses=pauses)
    return conform(dialect, text, REDELIVERY)
