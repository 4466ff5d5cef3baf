"""replay: publishes messages chosen by SQL again: a dry run by default, with a guard against loops.

At least once, and resumable: what a run with the same id has sent, by the lake's `replay_log`, is not sent again; the
log is written every thousand messages, so a run that is killed may send the last thousand again. A dead-lettered copy
is replayed as its original message, to that one's exchange and routing key.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from ..amqp.data_source import NAME
from ..patience import patiently
from ..progress import Progress
from .frames import Frames
from .outputs import REPLAY_LOG, conform

ID_HEADER, COUNT_HEADER = "x-replay-id", "x-replay-count"
GENERATIONS_MAX = 16
#: Headers of earlier deaths; a broker would continue their counts.
OF_BEFORE = ("x-death", "x-first-death-exchange", "x-first-death-queue", "x-first-death-reason", "x-delivery-count")


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """`where`: SQL over the columns of `events` and of `payloads` (content_*). `replays_max`: the loop guard."""

    replay_id: str
    where: str
    rate: float = 100.0
    replays_max: int = 3


def chosen(frames: Frames, options: ReplayOptions, log: Any = None) -> Any:
    """The messages to send: msg_id, source_lsn, vhost, and the sink's columns. Raises: NotRecorded."""
    from pyspark.sql import functions as F

    payloads = frames.with_payloads("replay").payloads.dropDuplicates(["msg_id"])
    content = payloads.selectExpr(
        "msg_id", "cause_id", "address AS exchange", "routing_key", "headers_json", "properties_json", "body"
    )
    events = frames.events.where("msg_id > 0")
    picked = (
        events.join(content, "msg_id")
        .where(options.where)
        .groupBy("msg_id")
        .agg(F.max("lsn").alias("source_lsn"), F.first("vhost").alias("vhost"), F.first("cause_id").alias("cause_id"))
        .localCheckpoint()
    )
    causes = content.selectExpr("msg_id AS id", "cause_id AS of_cause")
    for _ in range(GENERATIONS_MAX):
        if picked.where("cause_id > 0").isEmpty():
            break
        joined = picked.join(causes, F.expr("cause_id > 0 AND id = cause_id"), "left")
        picked = joined.selectExpr(
            "coalesce(id, msg_id) AS msg_id", "source_lsn", "vhost", "coalesce(of_cause, 0) AS cause_id"
        ).localCheckpoint()
    once = picked.groupBy("msg_id").agg(F.max("source_lsn").alias("source_lsn"), F.first("vhost").alias("vhost"))
    if log is not None:
        sent = log.where((F.col("replay_id") == options.replay_id) & (F.col("sent") == 1)).select("msg_id")
        once = once.join(sent, "msg_id", "left_anti")
    headers = F.from_json("headers_json", "map<string,string>")
    replays = F.coalesce(headers[COUNT_HEADER].cast("int"), F.lit(0))
    is_ours = F.coalesce(headers[ID_HEADER] == options.replay_id, F.lit(False))
    mark = F.udf(lambda text: marked(text, options.replay_id), "string")
    found = once.join(content.drop("cause_id"), "msg_id").where(~is_ours & (replays < options.replays_max))
    return found.withColumn("headers_json", mark("headers_json")).orderBy("source_lsn")


def marked(headers_json: str, replay_id: str) -> str:
    """The headers of the message to send."""
    headers = {name: value for name, value in json.loads(headers_json or "{}").items() if name not in OF_BEFORE}
    headers[COUNT_HEADER] = int(headers.get(COUNT_HEADER, 0)) + 1
    headers[ID_HEADER] = replay_id
    return json.dumps(headers)


def batches(rows: Any, size: int) -> Iterator[Any]:
    """The chosen rows in order, `size` at a time."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    place = F.row_number().over(Window.orderBy("source_lsn", "msg_id")) - 1
    placed = rows.withColumn("batch", F.floor(place / size)).localCheckpoint()
    last = placed.agg({"batch": "max"}).first()[0]
    for number in range(0 if last is None else int(last) + 1):
        yield placed.where(F.col("batch") == number).drop("batch").orderBy("source_lsn", "msg_id")


def urls(rows: Any, url: str) -> dict[str, str]:
    """Virtual host -> URL, for the virtual hosts of the messages: each goes to that which it was published in.

    Raises: ValueError (`url` names another).
    """
    vhosts = sorted(row[0] for row in rows.select("vhost").distinct().collect())
    parts = urlsplit(url)
    named = unquote(parts.path[1:])
    if named and vhosts != [named] and vhosts:
        chosen_of = ", ".join(map(repr, vhosts))
        raise ValueError(
            f"--url names the virtual host {named!r}, but the chosen messages are of {chosen_of};"
            " choose by vhost in --where, or name none: then each goes to its own"
        )
    return {vhost: urlunsplit(parts._replace(path=f"/{quote(vhost, safe='')}")) for vhost in vhosts}


def send(rows: Any, options: ReplayOptions, url: str, progress: Progress) -> None:
    """Send through the sink, by one task for each virtual host, to keep order and rate. Raises: ValueError, and Spark's
    exceptions."""
    from pyspark.sql import functions as F

    for vhost, where in urls(rows, url).items():
        own = rows.where(F.col("vhost") == vhost)
        columns = own.select("body", "exchange", "routing_key", "headers_json", "properties_json").coalesce(1)
        sink = columns.write.format(NAME).option("url", where).option("rate", str(options.rate)).mode("append")
        patiently(sink.save, progress)  # the one worker that did not start has sent nothing


def log_of(rows: Any, options: ReplayOptions, sent: int) -> Any:
    """`REPLAY_LOG`."""
    from pyspark.sql import functions as F

    sent_rows = rows.selectExpr("msg_id", "source_lsn", "exchange AS address", "current_timestamp() AS ts")
    return conform(
        sent_rows.withColumn("replay_id", F.lit(options.replay_id)).withColumn("sent", F.lit(sent)), REPLAY_LOG
    )
