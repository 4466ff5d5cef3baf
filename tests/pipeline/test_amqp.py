"""The AMQP source and sink for Structured Streaming, against Leveret and RabbitMQ."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pika
import pytest

pytest.importorskip("pyspark", reason="Spark is not installed (make spark)")
from leveret.interop.brokers.peers import WITHOUT_RABBITMQ, find_rabbitmq, leveret, rabbitmq
from leveret.pipeline.amqp.sink import SinkOptions
from leveret.pipeline.amqp.source import (
    AmqpStreamReader,
    SourceOptions,
    StreamFailed,
    consume,
    newest_offset,
    oldest_offset,
)
from leveret.pipeline.progress import Progress
from leveret.pipeline.retries import retry_slow_workers

pytestmark = pytest.mark.spark


@pytest.fixture(
    scope="module",
    params=[
        "leveret",
        pytest.param(
            "rabbitmq",
            marks=[pytest.mark.peer, pytest.mark.skipif(find_rabbitmq() is None, reason=WITHOUT_RABBITMQ)],
        ),
    ],
)
def url(request: Any) -> Iterator[str]:
    """Of a fresh broker."""
    with (leveret if request.param == "leveret" else rabbitmq)() as peer:
        yield f"amqp://guest:guest@127.0.0.1:{peer.port}/"


@pytest.fixture
def channel(url: str) -> Iterator[Any]:
    """With confirms, a stream `log` and a queue `in`, both empty."""
    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel = connection.channel()
    channel.confirm_delivery()
    stream(channel)
    channel.queue_declare("in")
    channel.queue_purge("in")
    yield channel
    connection.close()


def stream(channel: Any) -> None:
    channel.queue_delete("log")
    channel.queue_declare("log", durable=True, arguments={"x-queue-type": "stream"})


def fill(channel: Any, first: int, count: int) -> None:
    for number in range(first, first + count):
        properties = pika.BasicProperties(headers={"n": number}, message_id=f"m{number}", priority=1)
        channel.basic_publish("", "log", b"%d" % number, properties)


def read(url: str, begin: int, end: int, **more: Any) -> list[tuple[Any, ...]]:
    """Rows of the source, without Spark."""

    async def collect() -> list[tuple[Any, ...]]:
        options = SourceOptions(url, "log", **more)
        return [row async for rows in consume(options, begin, end) for row in rows]

    return asyncio.run(collect())


def bounds(url: str, queue: str = "log") -> tuple[int | None, int | None]:
    """Offsets of the oldest and of the newest message."""
    options = SourceOptions(url, queue)
    return asyncio.run(oldest_offset(options)), asyncio.run(newest_offset(options))


def test_offsets_without_spark(url: str, channel: Any) -> None:
    """Any range as often as one likes, whatever the prefetch; offset, exchange, key, headers, properties, body."""
    assert bounds(url) == (None, None)
    fill(channel, 0, 30)
    assert bounds(url) == (0, 29)
    for begin, end, prefetch in ((0, 30, 500), (0, 30, 1), (7, 9, 2), (29, 30, 500), (11, 30, 4), (11, 30, 5)):
        assert [row[0] for row in read(url, begin, end, prefetch=prefetch)] == list(range(begin, end))
    (row,) = read(url, 7, 8)
    assert row[:4] == (7, "", "log", '{"n": 7}') and row[5] == b"7"
    assert json.loads(row[4]) == {"message_id": "m7", "priority": 1, "delivery_mode": 1}


def test_what_is_gone_is_said(url: str, channel: Any) -> None:
    """What does not come, a stream made anew, no stream, no queue."""
    fill(channel, 0, 3)
    with pytest.raises(StreamFailed, match=r"log: offset 3 did not come in 0\.2 s"):
        read(url, 1, 4, timeout=0.2)
    reader = AmqpStreamReader({"url": url, "queue": "log", "timeout": "0.2"})
    limit = reader.getDefaultReadLimit()
    assert reader.latestOffset({"offset": 1}, limit) == {"offset": 3}
    stream(channel)
    assert reader.latestOffset({"offset": 3}, limit) == {"offset": 3}, "empty: nobody knows"
    fill(channel, 0, 2)
    with pytest.raises(StreamFailed, match="newest offset is 1, but 2 was read: this is another stream"):
        reader.latestOffset({"offset": 3}, limit)
    channel.basic_publish("", "in", b"x")
    with pytest.raises(Exception, match="invalid arg 'x-stream-offset' for queue 'in'"):
        bounds(url, "in")
    with pytest.raises(Exception, match="no queue 'nowhere'"):
        bounds(url, "nowhere")


def test_retention_is_noticed() -> None:
    """What was taken before it was read fails the query."""
    with leveret() as peer:
        url = f"amqp://guest:guest@127.0.0.1:{peer.port}/"
        connection = pika.BlockingConnection(pika.URLParameters(url))
        channel = connection.channel()
        limits = {"x-queue-type": "stream", "x-max-length-bytes": 10_000, "x-stream-max-segment-size-bytes": 1000}
        channel.queue_declare("log", durable=True, arguments=limits)
        channel.confirm_delivery()
        for _ in range(300):
            channel.basic_publish("", "log", bytes(100))
        first, last = bounds(url)
        assert first and 0 < first < last == 299
        with pytest.raises(StreamFailed, match=f"offsets 5 to {first - 1} are gone"):
            read(url, 5, 300)
        connection.close()


def test_options_are_checked() -> None:
    """Misspelt, missing, out of range."""
    for wrong, words in (
        ({"url": "x"}, '"queue" is missing'),
        ({"queue": "x"}, '"url" is missing'),
        ({"url": "x", "queue": "q", "prefetsh": "1"}, "no option 'prefetsh'"),
        ({"url": "x", "queue": "q", "prefetch": "0"}, "1 to 65535"),
        ({"url": "x", "queue": "q", "timeout": "0"}, "timeout above 0"),
    ):
        with pytest.raises(ValueError, match=words):
            SourceOptions.read(wrong)
    for wrong, columns, words in (
        ({}, ["body"], '"url" is missing'),
        ({"url": "x"}, ["key"], "no column body"),
        ({"url": "x"}, ["body", "key"], "no such columns: key"),
        ({"url": "x", "windw": "1"}, ["body"], "no option 'windw'"),
        ({"url": "x", "window": "0"}, ["body"], "window must be 1"),
    ):
        with pytest.raises(ValueError, match=words):
            SinkOptions.read(wrong, columns)


def test_a_stream_queue_by_offset(spark: Any, url: str, channel: Any, tmp_path: Path) -> None:
    """A little at a time, stopped, begun again, a batch done twice because its commit was lost: each message once."""
    sink, checkpoint = tmp_path / "sink", tmp_path / "checkpoint"

    batches: list[int] = []

    def run_once() -> None:
        stream = spark.readStream.format("amqp").option("url", url).option("queue", "log").option("prefetch", "10")
        writer = stream.option("maxOffsetsPerTrigger", "60").load().writeStream.format("parquet")
        writer = writer.option("path", str(sink)).option("checkpointLocation", str(checkpoint))
        query = writer.trigger(availableNow=True).start()
        try:
            query.awaitTermination()
        finally:
            batches.extend(batch["numInputRows"] for batch in query.recentProgress if batch["numInputRows"])

    def run() -> list[int]:
        batches.clear()
        retry_slow_workers(run_once, Progress("test"))
        return batches

    def numbers() -> list[int]:
        rows = spark.read.parquet(str(sink)).orderBy("offset").collect()
        assert [row.offset for row in rows] == list(range(len(rows)))
        assert {row.headers_json for row in rows} == {f'{{"n": {int(row.body)}}}' for row in rows}
        assert all(f'"m{int(row.body)}"' in row.properties_json for row in rows)
        return [int(row.body) for row in rows]

    fill(channel, 0, 100)
    assert run() == [60, 40] and numbers() == list(range(100))
    fill(channel, 100, 30)
    assert run() == [30]
    last = max(int(path.name) for path in (checkpoint / "commits").glob("[0-9]*"))
    for log in (checkpoint / "commits", sink / "_spark_metadata"):  # as if killed when the batch was nearly done
        (log / str(last)).unlink()
        (log / f".{last}.crc").unlink()
    assert run() == [30] and numbers() == list(range(130))
    assert channel.queue_declare("log", passive=True).method.message_count == 130


def test_the_sink(spark: Any, url: str, channel: Any, tmp_path: Path) -> None:
    """writeStream delivers, each message with an id; a micro-batch that is done again has the same ids."""
    source, checkpoint = tmp_path / "source", tmp_path / "checkpoint"
    spark.range(20).selectExpr("CAST(id AS string) AS body", "'in' AS routing_key").write.parquet(str(source))

    def run_once() -> None:
        frame = spark.readStream.schema("body string, routing_key string").parquet(str(source))
        writer = frame.writeStream.format("amqp").option("url", url).trigger(availableNow=True)
        writer.option("checkpointLocation", str(checkpoint)).start().awaitTermination()

    retry_slow_workers(run_once, Progress("test"))
    first = taken(channel)
    assert sorted(body for body, _ in first) == sorted(str(number) for number in range(20))
    assert len({id_ for _, id_ in first}) == 20
    (checkpoint / "commits" / "0").unlink()
    (checkpoint / "commits" / ".0.crc").unlink()
    retry_slow_workers(run_once, Progress("test"))  # as if killed before the commit
    assert sorted(taken(channel)) == sorted(first)


def test_a_task_that_is_done_again(spark: Any, url: str, channel: Any) -> None:
    """At least once: what it had sent before it failed comes twice, with the same message_id. Without another try the
    job fails, and what was sent stays."""
    from pyspark import TaskContext
    from pyspark.sql import functions as F

    def unroutable(once: bool) -> Any:
        def key(number: int) -> str:
            context: Any = TaskContext.get()
            return "nowhere" if number == 5 and (context.attemptNumber() == 0 or not once) else "in"

        return F.udf(key, "string").asNondeterministic()

    rows = spark.range(0, 10, 1, 1)
    bodies = F.col("id").cast("string").alias("body")
    named = F.concat(F.lit('{"message_id": "mine '), "id", F.lit('"}')).alias("properties_json")
    for columns in ([bodies], [bodies, named]):
        frame = rows.select(*columns, unroutable(once=True)("id").alias("routing_key"))
        frame.write.format("amqp").option("url", url).option("window", "1").mode("append").save()
        got = taken(channel)
        assert sorted(body for body, _ in got) == sorted([*map(str, range(5)), *map(str, range(10))])
        assert len(set(got)) == len({id_ for _, id_ in got}) == 10, "a repetition has the id of what it repeats"
    assert ("7", "mine 7") in got

    frame = rows.select(bodies, unroutable(once=False)("id").alias("routing_key"))
    with pytest.raises(Exception, match="(?i)deliver|return"):
        frame.write.format("amqp").option("url", url).option("window", "1").mode("append").save()
    assert [body for body, _ in taken(channel)] == ["0", "1", "2", "3", "4"] * 2


def taken(channel: Any) -> list[tuple[str, str]]:
    """(body, message id) of all that is in the queue, out of it."""
    found = []
    while (got := channel.basic_get("in", auto_ack=True))[0] is not None:
        found.append((got[2].decode(), got[1].message_id))
    return found
