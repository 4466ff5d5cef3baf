"""trace and deadletters: the events of one message; and why messages died."""

from typing import Any

from .frames import Frames
from .outputs import DEADLETTERS, TRACE, conform

#: Limit on copies of copies, for loops of dead letters.
GENERATIONS_MAX = 100
DEAD = "kind IN ('dead_lettered', 'killed', 'expired')"


def ids_of(frames: Frames, message: str) -> list[int]:
    """Messages with an id (digits), a header (NAME=VALUE), or a correlation or message id. Raises: NotRecorded."""
    from pyspark.sql import functions as F

    if message.isdecimal() and len(message) < 19:
        return [int(message)]
    payloads = frames.with_payloads("trace by header or correlation id").payloads
    name, equals, value = message.partition("=")
    if equals:
        matches = F.from_json("headers_json", "map<string,string>")[name] == value
    else:
        properties = F.from_json("properties_json", "map<string,string>")
        matches = (properties["correlation_id"] == message) | (properties["message_id"] == message)
    return sorted(row[0] for row in payloads.where(matches).select("msg_id").limit(1000).collect())


def family(frames: Frames, ids: list[int]) -> dict[int, int]:
    """These messages, their originals and their copies: id -> cause (0 none)."""
    known = dict.fromkeys(ids, 0)
    new = list(ids)
    for _ in range(GENERATIONS_MAX):
        if not new:
            break
        wanted = ", ".join(map(str, new))
        found = frames.payloads.where(f"msg_id IN ({wanted}) OR (cause_id > 0 AND cause_id IN ({wanted}))")
        rows = found.select("msg_id", "cause_id").collect()
        before = set(known)
        for id_, cause in rows:
            known[id_] = cause
            if cause:
                known.setdefault(cause, 0)
        new = [id_ for id_ in known if id_ not in before]
    return known


def trace(frames: Frames, message: str) -> Any:
    """`TRACE`, in order; empty without such a message. Raises: NotRecorded."""
    causes = family(frames, ids_of(frames, message))
    if not causes:
        return conform(frames.events.where("false").selectExpr("*", "0L AS cause_id"), TRACE)
    cases = " ".join(f"WHEN {id_}L THEN {cause}L" for id_, cause in causes.items() if cause)
    cause = f"CASE msg_id {cases} END" if cases else "CAST(NULL AS bigint)"
    found = frames.events.where(f"msg_id IN ({', '.join(map(str, causes))})").selectExpr("*", f"{cause} AS cause_id")
    return conform(found, TRACE).orderBy("lsn", "msg_id")


def deadletters(frames: Frames) -> Any:
    """`DEADLETTERS`: by queue, reason and target, most first. Without recorded deliveries last_consumer is null."""
    from pyspark.sql import functions as F

    dead = frames.events.where(f"msg_id > 0 AND {DEAD}").select(
        "vhost", "queue", "kind", "reason", "address", "msg_id", "ts"
    )
    last = (
        frames.events.where("kind = 'delivered' AND msg_id > 0")
        .join(dead.select("vhost", "queue", "msg_id"), ["vhost", "queue", "msg_id"], "left_semi")
        .groupBy("vhost", "queue", "msg_id")
        .agg(F.max("attempt").alias("attempts"), F.max_by("consumer", "lsn").alias("consumer"))
    )
    folded = (
        dead.join(last, ["vhost", "queue", "msg_id"], "left")
        .groupBy("vhost", "queue", "kind", "reason", F.col("address").alias("target"))
        .agg(
            F.count("*").alias("n"),
            F.min("ts").alias("first_ts"),
            F.max("ts").alias("last_ts"),
            F.coalesce(F.max("attempts"), F.lit(0)).alias("attempts_max"),
            F.max_by("consumer", "ts").alias("last_consumer"),
            F.expr("slice(array_sort(collect_set(msg_id)), 1, 5)").alias("samples"),
        )
    )
    return conform(folded, DEADLETTERS).orderBy(F.desc("n"), "queue")
