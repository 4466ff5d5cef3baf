"""Metrics for Prometheus: RabbitMQ's families under RabbitMQ's names, and our own. Source: management page 12."""
