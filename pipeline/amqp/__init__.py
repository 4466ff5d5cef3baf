"""`amqp`, a data source of Spark: a stream queue is read by offset, rows become messages, of whatever broker."""
