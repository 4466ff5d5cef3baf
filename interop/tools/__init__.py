"""Runs tools for RabbitMQ's HTTP API on RabbitMQ and on Leveret."""
