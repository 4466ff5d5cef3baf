"""`amqp`, a Python data source for Spark: a stream queue is read by offset, rows become messages.

    spark.readStream.format("amqp").option("url", ...).option("queue", "log").load()
    df.write.format("amqp").option("url", ...).option("routing_key", "q").mode("append").save()

Of the source: `queue`; `prefetch` (500), `maxOffsetsPerTrigger` (100,000), `timeout` (30, seconds). Of the sink:
`exchange`, `routing_key` (where a row names none), `window` (500), `rate` (0), `mandatory` (true). What each promises
is in its module.
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
        """What `format` is given."""
        return NAME

    def schema(self) -> str:
        """Of the source."""
        return SCHEMA

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        """A stream queue."""
        return AmqpStreamReader(self.options)

    def reader(self, schema: Any) -> Any:
        """A queue has no end, so it is no table. Raises: ValueError."""
        raise ValueError("amqp: a stream queue is read with readStream; with trigger(availableNow=True) it has an end")

    def writer(self, schema: Any, overwrite: bool) -> DataSourceWriter:
        """A batch. Raises: ValueError."""
        if overwrite:
            raise ValueError("amqp: messages can't be overwritten; use mode append")
        return AmqpWriter(SinkOptions.read(self.options, schema.names))

    def streamWriter(self, schema: Any, overwrite: bool) -> DataSourceStreamWriter:
        """A streaming query. Raises: ValueError."""
        return AmqpStreamWriter(SinkOptions.read(self.options, schema.names))
