"""`amqp`: a Python data source of Spark that reads a stream queue by offset, and publishes rows as messages.

    spark.readStream.format("amqp").option("url", ...).option("queue", "log").load()
    df.write.format("amqp").option("url", ...).option("routing_key", "q").mode("append").save()

Options of the source: `queue`, `prefetch` (500), `maxOffsetsPerTrigger` (100,000), `timeout` (30 seconds). Options of
the sink: `exchange` and `routing_key` (for rows without one), `window` (500), `rate` (0), `mandatory` (true). For the
guarantees see source.py and sink.py.
"""

from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, DataSourceStreamWriter, DataSourceWriter

from .sink import AmqpStreamWriter, AmqpWriter, SinkOptions
from .source import SCHEMA, AmqpStreamReader

NAME = "amqp"


class Amqp(DataSource):
    """The data source, as Spark calls it. The session registers it."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        return SCHEMA

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        return AmqpStreamReader(self.options)

    def reader(self, schema: Any) -> Any:
        """Refuse a batch read: a queue has no end, so it is not a table. Raises: ValueError."""
        raise ValueError("amqp: a stream queue is read with readStream; with trigger(availableNow=True) it has an end")

    def writer(self, schema: Any, overwrite: bool) -> DataSourceWriter:
        """The writer of a batch. Raises: ValueError."""
        if overwrite:
            raise ValueError("amqp: messages can't be overwritten; use mode append")
        return AmqpWriter(SinkOptions.read(self.options, schema.names))

    def streamWriter(self, schema: Any, overwrite: bool) -> DataSourceStreamWriter:
        """The writer of a streaming query. Raises: ValueError."""
        return AmqpStreamWriter(SinkOptions.read(self.options, schema.names))
