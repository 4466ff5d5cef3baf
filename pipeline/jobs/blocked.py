"""blocked: whose publishes were held for want of room, by what, and for how long. Needs scope "all"."""

from typing import Any

from .frames import Frames
from .outputs import BLOCKED, conform

DETAIL = "connection string, destination string, limit string, waited_ms bigint"


def blocked(frames: Frames) -> Any:
    """`BLOCKED`, the longest waits first. Raises: NotRecorded."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    events = frames.with_deliveries("blocked").events.where("kind IN ('blocked', 'unblocked')")
    rows = events.selectExpr("lsn", "ts", "kind", "vhost", "conn_id", f"from_json(reason, '{DETAIL}') AS detail")
    one = Window.partitionBy("vhost", "conn_id", "detail.destination", "detail.limit").orderBy("lsn")
    waits = rows.withColumn("until", F.lead("ts").over(one)).withColumn("waited", F.lead("detail.waited_ms").over(one))
    return conform(
        waits.where("kind = 'blocked'").selectExpr(
            "vhost",
            "conn_id",
            "detail.connection AS connection",
            "detail.destination AS destination",
            "detail.limit AS limit",
            "ts AS since",
            "until",
            "waited AS waited_ms",
        ),
        BLOCKED,
    ).orderBy("until", F.desc("waited_ms"), "since")
