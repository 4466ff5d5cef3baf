"""Runs real workers of task frameworks on RabbitMQ and on Leveret."""
