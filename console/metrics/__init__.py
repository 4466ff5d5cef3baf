"""What Prometheus scrapes: RabbitMQ's families under their names, and ours beside them. Source: management page 12."""
