"""The clients' own test suites, on RabbitMQ and on Leveret."""
