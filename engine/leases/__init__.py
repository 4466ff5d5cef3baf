"""Leased queues, which lend their messages to consumers: docs/leases.md."""
