"""Views: pure functions from the engine's state to RabbitMQ's JSON. Source: management page 4."""
