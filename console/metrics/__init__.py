"""Metrics for Prometheus: RabbitMQ's families under their names, and our own. Source: management page 12."""
