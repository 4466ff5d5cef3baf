"""`spark.readStream.format("amqp")`: a stream queue by offset, replayable, of RabbitMQ or Leveret.

    spark.readStream.format("amqp").option("url", ...).option("queue", "log").load()

Options: url, queue; prefetch (500); maxOffsetsPerTrigger (100,000); timeout (seconds without the next message, 30).
Columns: offset, and those of the AMQP sink: exchange, routing_key, headers_json, properties_json, body.

Offsets are the stream's own, so a micro-batch that is done again reads the same messages: with a checkpoint and a sink
that replays do not double (files), each message comes once, whatever is killed when. Nothing is taken from the stream.
A message that retention took before it was read fails the query: nothing is skipped. So does a stream in which a client
of RabbitMQ's own stream protocol stored its offset, as that takes an offset away from messages.
"""

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from .other_tables import json_of

SCHEMA = "offset bigint, exchange string, routing_key string, headers_json string, properties_json string, body binary"
OFFSET = "x-stream-offset"
PROPERTIES = (
    *("content_type", "content_encoding", "priority", "correlation_id", "reply_to"),
    *("expiration", "message_id", "timestamp", "type", "user_id", "app_id"),
)


class StreamFailed(Exception):
    """A message is gone, or does not come."""


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """As the module says; `timeout` in seconds."""

    url: str
    queue: str
    prefetch: int = 500
    per_trigger: int = 100_000
    timeout: float = 30.0

    @classmethod
    def read(cls, options: Any) -> "SourceOptions":
        """Raises: ValueError."""
        for name in ("url", "queue"):
            if name not in options:
                raise ValueError(f'amqp: option "{name}" is missing')
        prefetch, most = int(options.get("prefetch", 500)), int(options.get("maxOffsetsPerTrigger", 100_000))
        timeout = float(options.get("timeout", 30))
        if not 1 <= prefetch <= 65535 or most < 1 or timeout <= 0:
            raise ValueError("amqp: prefetch must be 1 to 65535, maxOffsetsPerTrigger 1 or more, timeout above 0")
        return cls(options["url"], options["queue"], prefetch, most, timeout)


class OffsetRange(InputPartition):
    """Offsets `begin` to `end`, which is not in it."""

    def __init__(self, begin: int, end: int) -> None:
        super().__init__(begin)
        self.begin = begin
        self.end = end


class AmqpStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One task a micro-batch, so that the stream's order is kept."""

    def __init__(self, options: Any) -> None:
        self._options = SourceOptions.read(options)
        self._target: int | None = None

    def initialOffset(self) -> dict[str, int]:
        """Of the oldest message there is."""
        return {"offset": asyncio.run(bounds(self._options))[0]}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._options.per_trigger)

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        """Behind the last message there is now, or so many on."""
        begin = start["offset"]
        end = max(begin, asyncio.run(bounds(self._options))[1] if self._target is None else self._target)
        if isinstance(limit, ReadAllAvailable):
            return {"offset": end}
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else self._options.per_trigger
        return {"offset": min(end, begin + most)}

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = asyncio.run(bounds(self._options))[1]

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return [OffsetRange(start["offset"], end["offset"])]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """Rows of the schema."""
        if not isinstance(partition, OffsetRange) or partition.begin >= partition.end:
            return
        with asyncio.Runner() as runner:
            messages = consumed(self._options, partition.begin, partition.end)
            try:
                while (row := runner.run(anext(messages, None))) is not None:
                    yield row
            finally:
                runner.run(messages.aclose())


async def bounds(options: SourceOptions) -> tuple[int, int]:
    """(offset of the oldest message, offset behind the newest); (0, 0) of an empty stream.

    The count is asked for last: what retention takes meanwhile makes the end too small, never too large.
    """
    import aio_pika

    connection = await aio_pika.connect(options.url)
    async with connection:
        channel = await connection.channel()
        queue = await channel.declare_queue(options.queue, passive=True)
        if not queue.declaration_result.message_count:
            return 0, 0
        (row,) = [row async for row in consumed(options, "first", 1)]
        count = (await channel.declare_queue(options.queue, passive=True)).declaration_result.message_count or 0
        return row[0], row[0] + count


async def consumed(options: SourceOptions, begin: int | str, end: int) -> Any:
    """Rows from offset `begin` up to before `end`; of "first" the first alone. Raises: StreamFailed."""
    import aio_pika

    connection = await aio_pika.connect(options.url)
    async with connection:
        channel = await connection.channel()
        await channel.set_qos(prefetch_count=options.prefetch)
        queue = await channel.get_queue(options.queue, ensure=False)
        inbox: asyncio.Queue[Any] = asyncio.Queue()
        await queue.consume(inbox.put, arguments={OFFSET: begin})
        due = begin
        while due == "first" or int(due) < end:
            try:
                message = await asyncio.wait_for(inbox.get(), options.timeout)
            except TimeoutError:
                raise StreamFailed(f"amqp: {options.queue}: offset {due} did not come in {options.timeout} s") from None
            at = int(message.headers[OFFSET])
            await message.ack()
            if due == "first":
                yield row_of(message, at)
                return
            if at < int(due):  # RabbitMQ may begin with the chunk that the offset is in
                continue
            if at > int(due):
                raise StreamFailed(f"amqp: {options.queue}: offsets {due} to {at - 1} are gone")
            yield row_of(message, at)
            due = at + 1


def row_of(message: Any, at: int) -> tuple[Any, ...]:
    """A message as the schema has it."""
    import aio_pika

    headers = {name: value for name, value in message.headers.items() if name != OFFSET}
    told = {name: getattr(message, name) for name in PROPERTIES}
    properties = {name: value for name, value in told.items() if value not in (None, "")}
    properties["delivery_mode"] = int(message.delivery_mode or aio_pika.DeliveryMode.NOT_PERSISTENT)
    if message.expiration is not None:
        properties["expiration"] = str(int(message.expiration * 1000))
    if message.timestamp is not None:
        properties["timestamp"] = int(message.timestamp.timestamp())
    exchange, key = message.exchange or "", message.routing_key or ""
    return (at, exchange, key, json.dumps(json_of(headers)), json.dumps(json_of(properties)), message.body)
