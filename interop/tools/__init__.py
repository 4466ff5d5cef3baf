"""Tools that others wrote for RabbitMQ's HTTP API, on RabbitMQ and on Leveret."""
