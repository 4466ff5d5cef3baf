"""Conservation: was anything lost or duplicated, or is anything out of order?

For every (message, queue) one `enqueued`, at most one terminal event, in this order; messages enter a queue in the
order of their ids; and the open messages must be those that the broker recorded in its durable queues at each
checkpoint. A message enqueued or removed while a checkpoint was being written may or may not be in it. Source: rulings,
"Events"; 22.
"""

from typing import Any

from .frames import Frames
from .outputs import FAULTS, MESSAGE_FATE, conform

LOST, DUPLICATE, REORDERED, UNEXPECTED = "lost", "duplicate", "reordered", "unexpected"


def fates(frames: Frames, lives: Any) -> Any:
    """`MESSAGE_FATE`: what became of every message."""
    starts = _starts(frames)
    return conform(
        lives.selectExpr(
            "*",
            f"CASE WHEN kind IS NOT NULL THEN kind WHEN NOT is_durable AND enqueued_lsn < {starts}L THEN 'ended' "
            "ELSE 'open' END AS fate",
        ),
        MESSAGE_FATE,
    )


def audit(frames: Frames, lives: Any) -> Any:
    """`FAULTS`: one row per fault."""
    faults = _of_lives(frames, lives).unionByName(_of_order(frames))
    for more in _of_snapshots(frames, lives):
        faults = faults.unionByName(more)
    return conform(faults, FAULTS)


def _starts(frames: Frames) -> int:
    """LSN of the last start of a broker with scope "all": earlier transient messages ended there."""
    found = frames.events.where("kind = 'settings_changed' AND reason IS NOT NULL AND vhost = ''")
    return int(found.agg({"lsn": "max"}).first()[0] or 0)


def _checks_of_lives(known: int) -> tuple[tuple[str, str, str, str], ...]:
    """(fault, condition, LSN, detail), in SQL; `known`: the first message id whose `enqueued` must be there."""
    return (
        (
            LOST,
            f"enqueues = 0 AND kind <> 'dropped' AND msg_id >= {known}",
            "finished_lsn",
            "concat(kind, ' at LSN ', finished_lsn, ', but it was never enqueued')",
        ),
        (
            LOST,
            f"enqueues = 0 AND kind IS NULL AND between_min IS NOT NULL AND msg_id >= {known}",
            "between_min",
            "concat('delivered or returned at LSN ', between_min, ', but it was never enqueued')",
        ),
        (
            DUPLICATE,
            "enqueues > 1",
            "again_lsn",
            "concat('enqueued ', enqueues, ' times, at LSN ', enqueued_lsn, ' and ', again_lsn)",
        ),
        (
            DUPLICATE,
            "terminals > 1",
            "refinished_lsn",
            "concat(terminals, ' terminal events: ', kind, ' at LSN ', finished_lsn, ', again at ', refinished_lsn)",
        ),
        (
            REORDERED,
            "finished_lsn < enqueued_lsn OR between_min < enqueued_lsn",
            "enqueued_lsn",
            "concat('enqueued at LSN ', enqueued_lsn, ', after what came of it at ', least(finished_lsn, between_min))",
        ),
        (
            REORDERED,
            "terminals = 1 AND between_max > finished_lsn",
            "between_max",
            "concat('delivered or returned at LSN ', between_max, ', after ', kind, ' at ', finished_lsn)",
        ),
    )


def _of_lives(frames: Frames, lives: Any) -> Any:
    """Faults in one message's own events. Messages published before the lake begins may lack their `enqueued`."""
    published = frames.events.where("kind = 'published'").agg({"msg_id": "min"}).first()[0]
    known = 0 if frames.first_lsn() <= 1 else int(published if published is not None else (1 << 62))
    checks = _checks_of_lives(known)
    tests = " ".join(
        f"IF({condition}, named_struct('fault', '{fault}', 'lsn', {lsn}, 'detail', {detail}), NULL),"
        for fault, condition, lsn, detail in checks
    ).rstrip(",")
    any_of = " OR ".join(f"coalesce({condition}, false)" for _, condition, _, _ in checks)
    found = lives.where(any_of).selectExpr("*", f"filter(array({tests}), one -> one IS NOT NULL) AS found")
    return found.selectExpr("msg_id", "vhost", "queue", "inline(found)").selectExpr(
        "fault", "msg_id", "vhost", "queue", "lsn", "detail"
    )


def _of_order(frames: Frames) -> Any:
    """Messages that entered a queue after a younger one, compared within each queue."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    before = Window.partitionBy("vhost", "queue").orderBy("lsn", "msg_id").rowsBetween(Window.unboundedPreceding, -1)
    entered = frames.events.where("kind = 'enqueued' AND msg_id > 0").select("vhost", "queue", "lsn", "msg_id")
    return (
        entered.withColumn("ahead", F.max("msg_id").over(before))
        .where("ahead > msg_id")
        .selectExpr(
            f"'{REORDERED}' AS fault",
            "msg_id",
            "vhost",
            "queue",
            "lsn",
            "concat('enqueued at LSN ', lsn, ', behind the younger message ', ahead) AS detail",
        )
    )


def _of_snapshots(frames: Frames, lives: Any) -> list[Any]:
    """Open messages compared with the journal's snapshots."""
    checkpoints = sorted((int(row[0]), int(row[1])) for row in frames.checkpoints.collect())
    if not checkpoints:
        return []
    first = frames.first_lsn()
    spans = ", ".join(f"named_struct('begin_lsn', {begin}L, 'end_lsn', {end}L)" for begin, end in checkpoints)
    open_then = lives.where("is_durable AND enqueues > 0").selectExpr(
        "msg_id",
        "vhost",
        "queue",
        f"inline(filter(array({spans}), one -> one.begin_lsn > enqueued_lsn"
        " AND (finished_lsn IS NULL OR finished_lsn >= one.end_lsn)))",
    )
    snapshots = frames.snapshots.selectExpr("msg_id", "vhost", "queue", "lsn").join(
        frames.checkpoints.selectExpr("begin_lsn", "end_lsn").distinct().hint("broadcast"),
        _expression("lsn >= begin_lsn AND lsn < end_lsn"),
    )
    key = ["msg_id", "vhost", "queue"]
    missing = (
        open_then.join(snapshots.select(*key, "begin_lsn"), [*key, "begin_lsn"], "left_anti")
        .groupBy(*key)
        .agg(_expression("min(begin_lsn)").alias("lsn"), _expression("min(end_lsn)").alias("end_lsn"))
        .selectExpr(
            f"'{LOST}' AS fault",
            *key,
            "lsn",
            "concat('open by its events, but not in the queue at the checkpoint of LSN ', lsn, ' to ', end_lsn)"
            " AS detail",
        )
    )
    strange = (
        snapshots.join(lives.select(*key, "enqueued_lsn", "finished_lsn", "kind"), key, "left")
        .where(f"(enqueued_lsn IS NULL AND {first} <= 1) OR enqueued_lsn > lsn OR finished_lsn < begin_lsn")
        .groupBy(*key)
        .agg(
            _expression("min(lsn)").alias("lsn"),
            _expression("min(enqueued_lsn)").alias("enqueued_lsn"),
            _expression("min(finished_lsn)").alias("finished_lsn"),
            _expression("min(kind)").alias("kind"),
        )
        .selectExpr(
            f"'{UNEXPECTED}' AS fault",
            *key,
            "lsn",
            "concat('in the queue at the checkpoint, LSN ', lsn, ', but ', CASE WHEN finished_lsn < lsn THEN "
            "concat(kind, ' at LSN ', finished_lsn) ELSE 'not enqueued before' END) AS detail",
        )
    )
    return [missing, strange]


def _expression(text: str) -> Any:
    from pyspark.sql import functions as F

    return F.expr(text)
