"""Leased queues, whose messages are lent to consumers: docs/leases.md."""
