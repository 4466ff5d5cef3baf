"""Runs the test suites of clients on RabbitMQ and on Leveret."""
