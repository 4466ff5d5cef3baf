"""The sink, `df.write.format("amqp")` and `writeStream`: publishes rows as messages with confirms, to any broker.

Guarantee: at least once. A task succeeds when all its messages are confirmed. Spark repeats a failed task from its
beginning, so some messages may be sent twice. Receivers can drop repetitions by `message_id`. If a row has none, its
message gets one made of the query, the micro-batch, the partition and the row's index: a repetition whose rows have the
same order has the same ids.
"""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter, WriterCommitMessage

from .publishing import WINDOW, Publishing, publish_all
from .rows import NAMES

OPTIONS = ("url", "exchange", "routing_key", "window", "rate", "mandatory")
#: Options of `writeStream` itself: Spark passes them in the same dict.
SPARK_OPTIONS = ("checkpointlocation", "queryname", "path")
#: Spark's local properties with the ids of a streaming query and its micro-batch.
QUERY_ID, BATCH_ID = "sql.streaming.queryId", "streaming.sql.batchId"


@dataclass(frozen=True, slots=True)
class SinkOptions(Publishing):
    """The options of the sink."""

    @classmethod
    def read(cls, options: Any, columns: list[str]) -> "SinkOptions":
        """Read Spark's options. `columns`: of the rows. Raises: ValueError."""
        for name in options:
            if name.lower() not in (*OPTIONS, *SPARK_OPTIONS):
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
    """The result of a task: the number of its messages, all confirmed."""

    count: int


class AmqpWriter(DataSourceWriter):
    """Publishes a batch."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._id = str(uuid4())  # created once, where the query is planned

    def write(self, iterator: Iterator[Any]) -> Sent:
        context: Any = TaskContext.get()
        prefix = f"{self._id}-{context.partitionId()}"
        return Sent(asyncio.run(publish_all(self._options, _values(iterator), prefix)))


class AmqpStreamWriter(DataSourceStreamWriter):
    """Publishes the micro-batches of a streaming query."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[Any]) -> Sent:
        context: Any = TaskContext.get()
        names = (context.getLocalProperty(QUERY_ID), context.getLocalProperty(BATCH_ID), context.partitionId())
        return Sent(asyncio.run(publish_all(self._options, _values(iterator), "-".join(map(str, names)))))

    def commit(self, messages: list[Any], batchId: int) -> None:
        """Do nothing: all messages are confirmed already."""

    def abort(self, messages: list[Any], batchId: int) -> None:
        """Do nothing: sent messages cannot be withdrawn."""


def _values(rows: Iterator[Any]) -> Iterator[dict[str, Any]]:
    return (row.asDict() for row in rows)
