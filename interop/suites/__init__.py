"""The test suites that five clients bring along, on RabbitMQ and on Leveret."""
