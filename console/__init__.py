"""The console: RabbitMQ's HTTP API beside the AMQP frontend, for existing tools. An optional extra.

Only server.py, state.py and connection.py are asynchronous; they call all other modules.
Source: management page.
"""
