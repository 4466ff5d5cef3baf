"""`amqp`, a data source for Spark and any broker: reads a stream queue by offset, publishes rows as messages."""
