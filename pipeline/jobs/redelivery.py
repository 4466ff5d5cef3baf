"""redelivery: which messages keep failing, at which consumers, and how long they were delayed. Needs scope "all"."""

from typing import Any

from .frames import Frames
from .lives import RETURNED
from .outputs import REDELIVERY, conform

#: Number of attempts from which a message counts as poison, even if it did not die.
POISON_ATTEMPTS = 5
DEAD = "kind IN ('dead_lettered', 'killed')"


def redelivery(frames: Frames, poison_attempts: int = POISON_ATTEMPTS) -> Any:
    """`REDELIVERY`, poison first, then those with the most attempts. Raises: NotRecorded."""
    from pyspark.sql import functions as F

    events = frames.with_deliveries("redelivery").events
    troubled = events.where(f"msg_id > 0 AND ({RETURNED} OR (kind = 'delivered' AND attempt > 1) OR {DEAD})")
    folded = troubled.groupBy("vhost", "queue", "msg_id").agg(
        F.expr("max(attempt)").alias("attempts"),
        F.expr(f"count_if({RETURNED})").alias("requeues"),
        F.expr("count_if(kind = 'lease_ended')").alias("leases_ended"),
        F.expr(f"max({DEAD})").alias("dead"),
        F.expr(f"max({DEAD} AND reason IN ('delivery_limit', 'rejected'))").alias("died"),
        F.expr(
            "transform(array_sort(collect_list(IF(kind IN ('requeued', 'scheduled') AND arg_ms > 0,"
            " named_struct('lsn', lsn, 'ms', arg_ms), NULL))), one -> one.ms)"
        ).alias("backoff_ms"),
        F.expr("max_by(consumer, lsn) FILTER (WHERE consumer IS NOT NULL)").alias("last_consumer"),
        F.expr("max_by(reason, lsn) FILTER (WHERE reason IS NOT NULL)").alias("last_reason"),
        F.expr("max(ts)").alias("last_ts"),
    )
    poison = F.expr(f"attempts >= {poison_attempts} OR died")
    return conform(
        folded.where("requeues > 0 OR dead OR attempts > 1").withColumn("poison", F.coalesce(poison, F.lit(False))),
        REDELIVERY,
    ).orderBy(F.desc("poison"), F.desc("attempts"), "vhost", "queue", "msg_id")
