"""depth and loss: how much was waiting, and what was removed unread."""

from typing import Any

from .frames import MS_BETWEEN
from .outputs import DEPTH, LOSS, conform

CAUSES = ("evicted", "replaced", "expired", "dropped", "killed")


def depth(lives: Any, window_s: int = 60) -> Any:
    """`DEPTH`: one row per queue and window (aligned to seconds) in which messages were enqueued or removed.

    Messages from before the lake are not counted. depth_min and depth_max are of whole seconds.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    moves = lives.selectExpr(
        "vhost",
        "queue",
        "inline(array("
        "named_struct('second', unix_seconds(enqueued_ts), 'came', 1L, 'went', 0L,"
        " 'octets', CAST(size_bytes AS bigint)),"
        "named_struct('second', IF(enqueued_ts IS NULL, NULL, unix_seconds(finished_ts)), 'came', 0L, 'went', 1L,"
        " 'octets', -CAST(size_bytes AS bigint))))",
    ).where("second IS NOT NULL")
    seconds = moves.groupBy("vhost", "queue", "second").agg(
        F.sum("came").alias("came"), F.sum("went").alias("went"), F.sum("octets").alias("octets")
    )
    order = Window.partitionBy("vhost", "queue").orderBy("second")
    running = seconds.withColumn("depth", F.sum(F.col("came") - F.col("went")).over(order)).withColumn(
        "bytes", F.sum("octets").over(order)
    )
    folded = (
        running.withColumn("window", F.expr(f"second DIV {window_s} * {window_s}"))
        .groupBy("vhost", "queue", "window")
        .agg(
            F.max_by("depth", "second").alias("depth_end"),
            F.min("depth").alias("depth_min"),
            F.max("depth").alias("depth_max"),
            (F.sum("came") / window_s).alias("in_per_s"),
            (F.sum("went") / window_s).alias("out_per_s"),
            F.max_by("bytes", "second").alias("bytes_end"),
        )
    )
    return conform(
        folded.selectExpr("*", "timestamp_seconds(window) AS window_start", f"{window_s} AS window_s"), DEPTH
    )


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
