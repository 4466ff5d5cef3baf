"""whatif: each queue's arrivals with another configuration (simulation.py), beside what the journal recorded.

A queue is simulated by one task and must fit into its memory (some 200 octets per message). Needs scope "all": only
deliveries show when there was a consumer.
"""

import json
from typing import Any

from ..schemas import ddl
from .attempts import RETURNS
from .frames import Frames
from .lives import lives
from .outputs import WHATIF, conform


def whatif(frames: Frames, settings: str) -> Any:
    """`WHATIF`. `settings`: TOML. Raises: NotRecorded, ValueError (faulty settings)."""
    from pyspark.sql import functions as F

    from .simulation import read_settings

    read_settings(settings)  # faults are reported before any work
    events = frames.with_deliveries("whatif").events
    until_ms = int(events.selectExpr("unix_millis(max(ts))").first()[0] or 0)
    kinds = ", ".join(f"'{kind}'" for kind in ("delivered", "acked", "killed", "dead_lettered", "expired", *RETURNS))
    key = ["msg_id", "vhost", "queue"]
    expiry = (
        events.where("kind = 'enqueued'").groupBy("msg_id", "vhost", "queue").agg({"arg_ms": "max", "priority": "max"})
    )
    moments = (
        events.where(f"msg_id > 0 AND kind IN ({kinds})")
        .groupBy(*key)
        .agg(
            F.expr(
                "to_json(transform(array_sort(collect_list(struct(lsn, unix_millis(ts) AS ms, kind, reason))),"
                " one -> struct(one.ms, one.kind, one.reason)))"
            ).alias("moments")
        )
    )
    arrivals = (
        lives(events)
        .where("enqueued_ts IS NOT NULL")
        .join(expiry, key)
        .join(moments, key, "left")
        .selectExpr(
            "vhost",
            "queue",
            "unix_millis(enqueued_ts) AS ms",
            "false AS is_offer",
            "msg_id",
            "size_bytes",
            "CAST(`max(priority)` AS int) AS priority",
            "coalesce(`max(arg_ms)`, -1) AS expiration_ms",
            "requeues AS returns",
            "coalesce(moments, '[]') AS moments",
            "coalesce(kind, 'open') AS fate",
        )
    )
    offers = events.where("kind = 'delivered' AND msg_id > 0").selectExpr(
        "vhost",
        "queue",
        "unix_millis(ts) AS ms",
        "true AS is_offer",
        "lsn AS msg_id",
        "0 AS size_bytes",
        "0 AS priority",
        "-1L AS expiration_ms",
        "0L AS returns",
        "'[]' AS moments",
        "'' AS fate",
    )
    declared = {
        (row.vhost, row.queue): json.loads(row.reason)
        for row in events.where("kind = 'declared' AND queue <> '' AND reason IS NOT NULL")
        .groupBy("vhost", "queue")
        .agg(F.expr("max_by(reason, lsn) AS reason"))
        .collect()
    }

    def one(rows: Any) -> Any:
        return _one_queue(rows, settings, declared, until_ms)

    return conform(
        arrivals.unionByName(offers).groupBy("vhost", "queue").applyInPandas(one, ddl(WHATIF).replace(" NOT NULL", "")),
        WHATIF,
    )


def _one_queue(rows: Any, settings: str, declared: dict[tuple[str, str], dict[str, Any]], until_ms: int) -> Any:
    """Runs on an executor, with pandas."""
    import pandas

    from .attempts import Moment, attempts_of
    from .simulation import Arrival, simulate

    rows = rows.sort_values(["ms", "msg_id"])
    came = rows[~rows.is_offer]
    vhost, queue = rows.vhost.iloc[0], rows.queue.iloc[0]
    arrivals = [
        Arrival(
            int(row.ms),
            int(row.size_bytes),
            int(row.priority),
            None if row.expiration_ms < 0 else int(row.expiration_ms),
            attempts_of(Moment(one["ms"], one["kind"], one.get("reason")) for one in json.loads(row.moments)),
        )
        for row in came.itertuples()
    ]
    would = simulate(
        queue,
        arrivals,
        [int(ms) for ms in rows[rows.is_offer].ms],
        settings,
        vhost=vhost,
        declared=declared.get((vhost, queue)),
        until_ms=until_ms,
    )
    fates = came.fate.value_counts()

    def was(*kinds: str) -> int:
        return int(sum(fates.get(kind, 0) for kind in kinds))

    recorded = {
        "enqueued": len(came),
        "acknowledged": was("acked"),
        "requeued": int(came.returns.sum()),
        "expired": was("expired"),
        "killed": was("dead_lettered", "killed"),
        "replaced": was("evicted", "replaced"),
        "dropped": was("dropped"),
        "open": was("open"),
    }
    return pandas.DataFrame(
        [(vhost, queue, what, recorded[what], would[what]) for what in recorded],
        columns=["vhost", "queue", "what", "was", "would_be"],
    )
