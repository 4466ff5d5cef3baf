"""depth and loss: how much was waiting, and what was removed unread."""

from typing import Any

from .frames import MS_BETWEEN
from .outputs import DEPTH, LOSS, conform

CAUSES = ("evicted", "replaced", "expired", "dropped", "killed")


def depth(lives: Any, window_s: int, until: int) -> Any:
    """`DEPTH`: one row per queue and window (aligned to seconds), from the first in which a message came to the last
    in which one came or went; if messages are left, to that of `until` (a time in seconds), the end of the lake.

    Messages from before the lake are not counted.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    moves = lives.selectExpr(
        "vhost",
        "queue",
        "inline(array("
        "named_struct('lsn', enqueued_lsn, 'second', unix_seconds(enqueued_ts), 'step', 1L,"
        " 'octets', CAST(size_bytes AS bigint)),"
        "named_struct('lsn', finished_lsn, 'second', IF(enqueued_ts IS NULL, NULL, unix_seconds(finished_ts)),"
        " 'step', -1L, 'octets', -CAST(size_bytes AS bigint))))",
    ).where("second IS NOT NULL")
    # Within a window counted from its beginning, so that all windows can be worked on at a time. Messages that one
    # record removes go at once.
    within = Window.partitionBy("vhost", "queue", "window").orderBy("lsn")
    folded = (
        moves.withColumn("window", F.expr(f"second DIV {window_s} * {window_s}"))
        .withColumn("level", F.sum("step").over(within))
        .groupBy("vhost", "queue", "window")
        .agg(
            F.least(F.min("level"), F.lit(0)).alias("low"),
            F.greatest(F.max("level"), F.lit(0)).alias("high"),
            F.sum("step").alias("change"),
            F.sum("octets").alias("octets"),
            F.expr("count_if(step > 0)").alias("came"),
            F.expr("count_if(step < 0)").alias("went"),
        )
    )
    order = Window.partitionBy("vhost", "queue").orderBy("window")
    running = (
        folded.withColumn("depth_end", F.sum("change").over(order))
        .withColumn("bytes_end", F.sum("octets").over(order))
        .withColumn("next", F.lead("window").over(order))
        .withColumn("begin", F.expr("depth_end - change"))
    )
    last = f"IF(depth_end = 0, window, greatest(window, {until // window_s * window_s}L))"
    every = running.withColumn(
        "each", F.expr(f"explode(sequence(window, coalesce(next - {window_s}, {last}), {window_s}L))")
    )
    is_own = "each = window"
    return conform(
        every.selectExpr(
            "vhost",
            "queue",
            "timestamp_seconds(each) AS window_start",
            f"{window_s} AS window_s",
            "depth_end",
            f"IF({is_own}, begin + low, depth_end) AS depth_min",
            f"IF({is_own}, begin + high, depth_end) AS depth_max",
            f"IF({is_own}, came, 0) / {window_s} AS in_per_s",
            f"IF({is_own}, went, 0) / {window_s} AS out_per_s",
            "bytes_end",
        ),
        DEPTH,
    ).orderBy("vhost", "queue", "window_start")


def loss(lives: Any, window_s: int = 60) -> Any:
    """`LOSS`: rings, last values, expiry, drops and kills without a target."""
    from pyspark.sql import functions as F

    causes = ", ".join(f"'{cause}'" for cause in CAUSES)
    age = MS_BETWEEN.format(begin="enqueued_ts", end="finished_ts")
    rows = lives.where(f"kind IN ({causes})").selectExpr(
        "vhost",
        "queue",
        f"timestamp_seconds(unix_seconds(finished_ts) DIV {window_s} * {window_s}) AS window_start",
        "kind AS cause",
        "CAST(size_bytes AS bigint) AS octets",
        f"CAST({age} AS double) AS age",
    )
    folded = rows.groupBy("vhost", "queue", "window_start", "cause").agg(
        F.count("*").alias("n"),
        F.sum("octets").alias("bytes"),
        F.expr("percentile_approx(age, array(0.5D, 0.99D), 1000)").alias("points"),
        F.max("age").alias("age_ms_max"),
    )
    return conform(folded.selectExpr("*", "points[0] AS age_ms_p50", "points[1] AS age_ms_p99"), LOSS)
