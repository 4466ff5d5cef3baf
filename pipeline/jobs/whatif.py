"""whatif: each queue's arrivals with another configuration (simulation.py), beside what the journal recorded.

A queue is simulated by one task and must fit into its memory (some 200 octets per message). Needs scope "all": only
deliveries show when there was a consumer.
"""

from typing import Any

from ..schemas import ddl
from .frames import MS_BETWEEN, Frames
from .lives import lives
from .outputs import WHATIF, conform


def whatif(frames: Frames, settings: str) -> Any:
    """`WHATIF`. `settings`: TOML. Raises: NotRecorded, ValueError (faulty settings)."""
    from .simulation import simulate

    simulate("q", (), (), settings)  # faults are reported before any work
    events = frames.with_deliveries("whatif").events
    service = MS_BETWEEN.format(begin="last_delivered_ts", end="finished_ts")
    key = ["msg_id", "vhost", "queue"]
    expiry = (
        events.where("kind = 'enqueued'").groupBy("msg_id", "vhost", "queue").agg({"arg_ms": "max", "priority": "max"})
    )
    arrivals = (
        lives(events)
        .where("enqueued_ts IS NOT NULL")
        .join(expiry, key)
        .selectExpr(
            "vhost",
            "queue",
            "unix_millis(enqueued_ts) AS ms",
            "false AS is_offer",
            "msg_id",
            "size_bytes",
            "CAST(`max(priority)` AS int) AS priority",
            "coalesce(`max(arg_ms)`, -1) AS expiration_ms",
            f"CAST(coalesce({service}, 0) AS bigint) AS service_ms",
            "requeues AS failures",
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
        "0L AS service_ms",
        "0L AS failures",
        "'' AS fate",
    )

    def one(rows: Any) -> Any:
        return _one_queue(rows, settings)

    return conform(
        arrivals.unionByName(offers).groupBy("vhost", "queue").applyInPandas(one, ddl(WHATIF).replace(" NOT NULL", "")),
        WHATIF,
    )


def _one_queue(rows: Any, settings: str) -> Any:
    """Runs on an executor, with pandas."""
    import pandas

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
            int(row.service_ms),
            int(row.failures),
        )
        for row in came.itertuples()
    ]
    would = simulate(queue, arrivals, [int(ms) for ms in rows[rows.is_offer].ms], settings)
    fates = came.fate.value_counts()

    def was(*kinds: str) -> int:
        return int(sum(fates.get(kind, 0) for kind in kinds))

    recorded = {
        "enqueued": len(came),
        "acknowledged": was("acked"),
        "requeued": int(came.failures.sum()),
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
