"""The AMQP source and sink for Structured Streaming, against Leveret and RabbitMQ."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pika
import pytest

pytest.importorskip("pyspark", reason="Spark is not installed (make spark)")
from leveret.interop.peers import WITHOUT_RABBITMQ, find_rabbitmq, leveret, rabbitmq

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


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
    """With confirms."""
    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel = connection.channel()
    channel.confirm_delivery()
    yield channel
    connection.close()


def fill(channel: Any, first: int, count: int) -> None:
    for number in range(first, first + count):
        properties = pika.BasicProperties(headers={"n": number}, message_id=f"m{number}", priority=1)
        channel.basic_publish("", "log", b"%d" % number, properties)


def test_a_stream_queue_by_offset(spark: Any, url: str, channel: Any, tmp_path: Path) -> None:
    """A little at a time, stopped, begun again, a batch done twice because its commit was lost: each message once."""
    channel.queue_declare("log", durable=True, arguments={"x-queue-type": "stream"})
    sink, checkpoint = tmp_path / "sink", tmp_path / "checkpoint"

    def run() -> int:
        stream = spark.readStream.format("amqp").option("url", url).option("queue", "log").option("prefetch", "10")
        writer = stream.option("maxOffsetsPerTrigger", "40").load().writeStream.format("parquet")
        writer = writer.option("path", str(sink)).option("checkpointLocation", str(checkpoint))
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        return sum(batch["numInputRows"] for batch in query.recentProgress)

    def numbers() -> list[int]:
        rows = spark.read.parquet(str(sink)).orderBy("offset").collect()
        assert [row.offset for row in rows] == list(range(len(rows)))
        assert {row.headers_json for row in rows} == {f'{{"n": {int(row.body)}}}' for row in rows}
        assert all(f'"m{int(row.body)}"' in row.properties_json for row in rows)
        return [int(row.body) for row in rows]

    fill(channel, 0, 100)
    assert run() == 100 and numbers() == list(range(100))
    assert run() == 0
    fill(channel, 100, 30)
    assert run() == 30
    (last,) = [path for path in (checkpoint / "commits").glob("[0-9]*") if path.name == "3"]
    (checkpoint / "commits" / ".3.crc").unlink()
    last.unlink()  # as if killed between the sink's commit and the query's: the batch is done again
    run()
    assert numbers() == list(range(130))
    assert channel.queue_declare("log", passive=True).method.message_count == 130


def test_the_sink(spark: Any, url: str, channel: Any, tmp_path: Path) -> None:
    """writeStream delivers; what no queue takes fails; a task that fails half way sends its first half again."""
    channel.queue_declare("in")
    source = tmp_path / "source"
    spark.range(20).selectExpr("CAST(id AS string) AS body", "'in' AS routing_key").write.parquet(str(source))
    frame = spark.readStream.schema("body string, routing_key string").parquet(str(source))
    writer = frame.writeStream.format("amqp").option("url", url).trigger(availableNow=True)
    writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination()
    assert taken(channel) == list(range(20))

    half = spark.range(0, 10, 1, 1).selectExpr(
        "CAST(id AS string) AS body", "IF(id < 5, 'in', 'nowhere') AS routing_key"
    )
    for _ in range(2):  # Spark does again what failed, from its beginning
        with pytest.raises(Exception, match="(?i)deliver|return"):
            half.write.format("amqp").option("url", url).option("window", "1").mode("append").save()
    assert taken(channel) == sorted([*range(5), *range(5)])


def taken(channel: Any) -> list[int]:
    """All that is in the queue, out of it."""
    found = []
    while (got := channel.basic_get("in", auto_ack=True))[0] is not None:
        found.append(int(got[2]))
    return sorted(found)
