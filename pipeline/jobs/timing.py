"""latency and fairness: how long messages waited and were processed, by which consumers. Need scope "all"."""

from typing import Any

from .frames import MS_BETWEEN, Frames
from .outputs import FAIRNESS, LATENCY, conform

POINTS = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "p999": 0.999}
ACCURACY = 1000


def latency(lives: Any, window_s: int = 60) -> Any:
    """`LATENCY`; percentiles are exact to a thousandth of rank. `lives`: of a journal with deliveries."""
    from pyspark.sql import functions as F

    measures = {
        "queue": MS_BETWEEN.format(begin="enqueued_ts", end="first_delivered_ts"),
        "service": f"IF(kind = 'acked', {MS_BETWEEN.format(begin='last_delivered_ts', end='finished_ts')}, NULL)",
        "e2e": f"IF(kind = 'acked', {MS_BETWEEN.format(begin='enqueued_ts', end='finished_ts')}, NULL)",
    }
    rows = lives.where("enqueued_ts IS NOT NULL AND first_delivered_ts IS NOT NULL").selectExpr(
        "vhost",
        "queue",
        f"timestamp_seconds(unix_seconds(enqueued_ts) DIV {window_s} * {window_s}) AS window_start",
        *(f"CAST({text} AS double) AS {what}_ms" for what, text in measures.items()),
    )
    points = f"array({', '.join(f'{point}D' for point in POINTS.values())})"
    folded = rows.groupBy("vhost", "queue", "window_start").agg(
        F.count("*").alias("n"),
        *(F.expr(f"percentile_approx({what}_ms, {points}, {ACCURACY})").alias(f"{what}_points") for what in measures),
    )
    return conform(
        folded.selectExpr(
            "*",
            f"{window_s} AS window_s",
            *(f"{what}_points[{at}] AS {what}_ms_{point}" for what in measures for at, point in enumerate(POINTS)),
        ),
        LATENCY,
    )


def _with_leases(folded: Any, events: Any) -> Any:
    """The column `leases_ended`. Who had a lease that ended is who had the message delivered last before that."""
    from pyspark.sql import functions as F

    key, holder = ["msg_id", "vhost", "queue"], ["vhost", "queue", "consumer", "conn_id"]
    ended = events.where("kind = 'lease_ended'").selectExpr(*key, "lsn AS ended_lsn")
    if ended.isEmpty():  # most lakes: no need to look at every delivery once more
        return folded.withColumn("leases_ended", F.lit(0))
    delivered = events.where("kind = 'delivered' AND msg_id > 0").selectExpr(
        *key, "lsn", "coalesce(consumer, '') AS consumer", "conn_id"
    )
    last = (
        ended.join(delivered, key)
        .where("lsn < ended_lsn")
        .groupBy(*key, "ended_lsn")
        .agg(F.expr("max_by(struct(consumer, conn_id), lsn)").alias("holder"))
    )
    counts = last.select("vhost", "queue", "holder.*").groupBy(*holder).agg(F.count("*").alias("leases_ended"))
    return folded.join(counts, holder, "left").withColumn("leases_ended", F.coalesce("leases_ended", F.lit(0)))


def fairness(frames: Frames) -> Any:
    """`FAIRNESS`. Raises: NotRecorded."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    events = frames.with_deliveries("fairness").events
    handed = events.where("kind IN ('delivered', 'acked') AND msg_id > 0").selectExpr(
        "msg_id",
        "vhost",
        "queue",
        "coalesce(consumer, '') AS consumer",
        "conn_id",
        "IF(kind = 'delivered', ts, NULL) AS delivered_ts",
        "IF(kind = 'acked', ts, NULL) AS acked_ts",
    )
    each = handed.groupBy("msg_id", "vhost", "queue", "consumer", "conn_id").agg(
        F.count("delivered_ts").alias("deliveries"),
        F.max("delivered_ts").alias("delivered_ts"),
        F.max("acked_ts").alias("acked_ts"),
    )
    service = MS_BETWEEN.format(begin="delivered_ts", end="acked_ts")
    folded = (
        each.withColumn("service", F.expr(f"CAST({service} AS double)"))
        .groupBy("vhost", "queue", "consumer", "conn_id")
        .agg(
            F.sum("deliveries").alias("deliveries"),
            F.count("acked_ts").alias("acked"),
            F.expr(f"percentile_approx(service, array(0.5D, 0.95D), {ACCURACY})").alias("points"),
            F.max("service").alias("service_ms_max"),
        )
        .where("deliveries > 0")
    )
    folded = _with_leases(folded, events)
    all_of = F.sum("deliveries").over(Window.partitionBy("vhost", "queue"))
    return conform(
        folded.withColumn("share", F.col("deliveries") / all_of).selectExpr(
            "*", "points[0] AS service_ms_p50", "points[1] AS service_ms_p95"
        ),
        FAIRNESS,
    )
