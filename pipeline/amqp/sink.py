"""`df.write.format("amqp")` and `writeStream`: publishes rows as messages with confirms, to any broker.

Guarantee: at least once. A task succeeds only when all its messages are confirmed; Spark repeats a failed task from its
beginning, and what a failed job sent stays sent. A receiver can drop repetitions by `message_id`: that of the row, or
one made of the query, the micro-batch, the partition and the row's place in it, which is the same when a task, or a
micro-batch after a restart, is repeated with its rows in the same order.
"""

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import aio_pika
from aio_pika.exceptions import AMQPError, DeliveryError, PublishError
from pamqp.commands import Basic
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter, WriterCommitMessage

from .rows import NAMES, message_of

WINDOW = 500
OPTIONS = ("url", "exchange", "routing_key", "window", "rate", "mandatory")
#: Options of `writeStream` itself, passed in the same dict.
OF_SPARK = ("checkpointlocation", "queryname", "path")
#: Spark's local property with the id of a streaming query.
QUERY, BATCH = "sql.streaming.queryId", "streaming.sql.batchId"


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """`exchange`, `routing_key`: for rows without one. `window`: messages unconfirmed at a time. `rate`: messages per
    second and task, 0 without a limit. `mandatory`: an unroutable message fails the job."""

    url: str
    exchange: str = ""
    routing_key: str = ""
    window: int = WINDOW
    rate: float = 0.0
    mandatory: bool = True

    @classmethod
    def read(cls, options: Any, columns: list[str]) -> "SinkOptions":
        """Raises: ValueError."""
        for name in options:
            if name.lower() not in (*OPTIONS, *OF_SPARK):
                raise ValueError(f"amqp: the sink has no option {name!r}; it has {', '.join(OPTIONS)}")
        if "url" not in options:
            raise ValueError('amqp: option "url" is missing: amqp://USER:PASSWORD@HOST:PORT/VHOST')
        if "body" not in columns:
            raise ValueError("amqp: there is no column body")
        if strange := sorted(set(columns) - set(NAMES)):
            raise ValueError(f"amqp: no such columns: {', '.join(strange)}; there are {', '.join(NAMES)}")
        window, rate = int(options.get("window", WINDOW)), float(options.get("rate", 0))
        if window < 1 or rate < 0:
            raise ValueError("amqp: window must be 1 or more, rate 0 or more")
        mandatory = str(options.get("mandatory", "true")).lower() == "true"
        return cls(options["url"], options.get("exchange", ""), options.get("routing_key", ""), window, rate, mandatory)


@dataclass
class Sent(WriterCommitMessage):
    """The number of messages of a task, all confirmed."""

    count: int


class AmqpWriter(DataSourceWriter):
    """A batch."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._id = str(uuid4())  # created once, where the query is planned

    def write(self, iterator: Iterator[Any]) -> Sent:
        """One task's rows."""
        context: Any = TaskContext.get()
        prefix = f"{self._id}-{context.partitionId()}"
        return Sent(asyncio.run(publish_all(self._options, iterator, prefix)))


class AmqpStreamWriter(DataSourceStreamWriter):
    """A micro-batch."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[Any]) -> Sent:
        """One task's rows."""
        context: Any = TaskContext.get()
        names = (context.getLocalProperty(QUERY), context.getLocalProperty(BATCH), context.partitionId())
        return Sent(asyncio.run(publish_all(self._options, iterator, "-".join(map(str, names)))))

    def commit(self, messages: list[Any], batchId: int) -> None:
        """Nothing to do: all messages are confirmed."""

    def abort(self, messages: list[Any], batchId: int) -> None:
        """Nothing can be done: sent messages cannot be taken back."""


class NotSent(Exception):
    """The broker did not take a message, or is not there; the text says which broker, and why."""


async def publish_all(options: SinkOptions, rows: Iterator[Any], prefix: str) -> int:
    """Publish each row; returns how many, all confirmed. `prefix`: of generated message ids.

    Raises: ValueError, NotSent (nacked, returned, refused, closed).
    """
    try:
        return await _publish_all(options, rows, prefix)
    except (OSError, AMQPError) as error:
        raise NotSent(f"{_without_password(options.url)}: {_why(error)}") from error


def _without_password(url: str) -> str:
    """Where a URL leads to."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _why(error: Exception) -> str:
    returned = error.message.delivery if isinstance(error, PublishError) and error.message else None
    if isinstance(returned, Basic.Return):
        place = f"exchange {returned.exchange!r} with key {returned.routing_key!r}"
        return f"a message to {place} was returned: {returned.reply_text}"
    if isinstance(error, DeliveryError):
        return "a message could not be delivered: the broker answered with a nack"
    return str(error) or type(error).__name__


async def _publish_all(options: SinkOptions, rows: Iterator[Any], prefix: str) -> int:
    connection = await aio_pika.connect(options.url)
    count = 0
    async with connection:
        channel = await connection.channel(publisher_confirms=True, on_return_raises=True)
        exchanges: dict[str, Any] = {"": channel.default_exchange}
        began, pending = time.monotonic(), set()
        for row in rows:
            if options.rate:
                await asyncio.sleep(max(0.0, began + count / options.rate - time.monotonic()))
            values = row.asDict()
            name = values.get("exchange")
            name = options.exchange if name is None else name
            if name not in exchanges:
                exchanges[name] = await channel.get_exchange(name, ensure=False)
            key = values.get("routing_key")
            key = options.routing_key if key is None else key
            message = message_of(values, f"{prefix}-{count}")
            publishing = exchanges[name].publish(message, key, mandatory=options.mandatory)
            pending.add(asyncio.ensure_future(publishing))
            count += 1
            if len(pending) >= options.window:
                done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                for one in done:
                    one.result()
        for one in asyncio.as_completed(pending):
            await one
    return count
