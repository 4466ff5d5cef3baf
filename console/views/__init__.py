"""Views of the API: pure functions from the state of the engine to RabbitMQ's JSON. Source: management page 4."""
