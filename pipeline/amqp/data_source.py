"""`amqp`, a Python data source for Spark: reads a stream queue by offset, publishes rows as messages.

    spark.readStream.format("amqp").option("url", ...).option("queue", "log").load()
    df.write.format("amqp").option("url", ...).option("routing_key", "q").mode("append").save()

Of the source: `queue`; `prefetch` (500), `maxOffsetsPerTrigger` (100,000), `timeout` (30, seconds). Of the sink:
`exchange`, `routing_key` (for rows without one), `window` (500), `rate` (0), `mandatory` (true). Their guarantees are
described in the modules of source and sink.
"""

from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, DataSourceStreamWriter, DataSourceWriter

from .sink import AmqpStreamWriter, AmqpWriter, SinkOptions
from .source import SCHEMA, AmqpStreamReader

NAME = "amqp"


class Amqp(DataSource):
    """Registered by the session."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        return SCHEMA

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        return AmqpStreamReader(self.options)

    def reader(self, schema: Any) -> Any:
        """Refused: a queue has no end, so it cannot be read as a table. Raises: ValueError."""
        raise ValueError("amqp: a stream queue is read with readStream; with trigger(availableNow=True) it has an end")

    def writer(self, schema: Any, overwrite: bool) -> DataSourceWriter:
        """A batch. Raises: ValueError."""
        if overwrite:
            raise ValueError("amqp: messages can't be overwritten; use mode append")
        return AmqpWriter(SinkOptions.read(self.options, schema.names))

    def streamWriter(self, schema: Any, overwrite: bool) -> DataSourceStreamWriter:
        """A streaming query. Raises: ValueError."""
        return AmqpStreamWriter(SinkOptions.read(self.options, schema.names))
