"""Leveret: an AMQP 0-9-1 broker in Python."""

__version__ = "0.2.0"
