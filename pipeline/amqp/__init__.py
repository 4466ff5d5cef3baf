"""`amqp`: a data source of Spark that reads a stream queue of any broker by offset, and publishes rows as messages."""
