"""trace and deadletters: the events of one message; and why messages died."""

from typing import Any

from .frames import Frames
from .outputs import DEADLETTERS, TRACE, conform

#: Limit on copies of copies, for loops of dead letters.
GENERATIONS_MAX = 100
DEAD = "kind IN ('dead_lettered', 'killed', 'expired')"


def ids_of(frames: Frames, message: str) -> list[int]:
    """Messages with this id (digits), correlation or message id, or header (NAME=VALUE).

    All of these are tried: an id of a program's may be digits only, and may have a "=". Without contents in the lake
    only the first is. Raises: NotRecorded (nothing else could be tried).
    """
    from pyspark.sql import functions as F

    found: set[int] = set()
    if message.isdecimal() and len(message) < 19:
        if not frames.events.where(f"msg_id = {int(message)} AND msg_id > 0").isEmpty():
            found.add(int(message))
        if frames.payloads.isEmpty():
            return sorted(found)
    payloads = frames.with_payloads("trace by header or correlation id").payloads
    properties = F.from_json("properties_json", "map<string,string>")
    matches = (properties["correlation_id"] == message) | (properties["message_id"] == message)
    name, equals, value = message.partition("=")
    if equals:
        matches = F.coalesce(matches, F.lit(False)) | (F.from_json("headers_json", "map<string,string>")[name] == value)
    return sorted(found | {row[0] for row in payloads.where(matches).select("msg_id").limit(1000).collect()})


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
    """`DEADLETTERS`: by queue, reason and outcome, most first. Without recorded deliveries last_consumer is null."""
    from pyspark.sql import functions as F

    key = ["vhost", "queue", "msg_id"]
    dead = frames.events.where(f"msg_id > 0 AND {DEAD}").select(*key, "kind", "reason", "ts")
    last = (
        frames.events.where("kind = 'delivered' AND msg_id > 0")
        .join(dead.select(*key), key, "left_semi")
        .groupBy(*key)
        .agg(F.max("attempt").alias("attempts"), F.max_by("consumer", "lsn").alias("consumer"))
    )
    folded = (
        dead.join(last, key, "left")
        .join(
            _copies(frames), [F.col("msg_id") == F.col("cause_id"), F.expr("coalesce(died_in, queue) = queue")], "left"
        )
        .groupBy(*key, "kind", "reason", "ts", "attempts", "consumer")
        .agg(
            F.min("target").alias("target"),
            F.expr("array_sort(array_distinct(flatten(collect_list(arrived_in))))").alias("arrived_in"),
        )
        .withColumn("outcome", F.expr(_outcome(frames)))
        .groupBy("vhost", "queue", "kind", "reason", "outcome", "target", "arrived_in")
        .agg(
            F.count("*").alias("n"),
            F.min("ts").alias("first_ts"),
            F.max("ts").alias("last_ts"),
            F.coalesce(F.max("attempts"), F.lit(0)).alias("attempts_max"),
            F.max_by("consumer", "ts").alias("last_consumer"),
            F.expr("slice(array_sort(collect_set(msg_id)), 1, 5)").alias("samples"),
        )
    )
    return conform(folded, DEADLETTERS).orderBy(F.desc("n"), "vhost", "queue", "kind", "reason", "outcome", "target")


def _copies(frames: Frames) -> Any:
    """One row per dead letter: the message that it is a copy of, the queue where that died, where the copy arrived."""
    from pyspark.sql import functions as F

    copies = frames.payloads.where("cause_id > 0").select(
        F.col("msg_id").alias("copy_id"),
        "cause_id",
        F.col("address").alias("target"),
        F.get_json_object("headers_json", "$['x-death'][0].queue").alias("died_in"),
    )
    arrived = frames.events.where("kind = 'enqueued'").selectExpr("msg_id AS copy_id", "queue AS into")
    return (
        copies.join(arrived, "copy_id", "left")
        .groupBy("copy_id", "cause_id", "target", "died_in")
        .agg(F.expr("collect_set(into)").alias("arrived_in"))
        .drop("copy_id")
    )


def _outcome(frames: Frames) -> str:
    """In SQL. A copy that no queue took is recorded only with scope "all", and copies at all only with contents."""
    is_whole = frames.scopes() == {"all"} and not frames.payloads.isEmpty()
    without = "IF(kind = 'dead_lettered', 'nowhere', 'gone')" if is_whole else "'not recorded'"
    return (
        f"CASE WHEN size(arrived_in) > 0 THEN 'arrived' WHEN target IS NOT NULL THEN 'nowhere' "
        f"WHEN kind = 'killed' THEN 'gone' ELSE {without} END"
    )
