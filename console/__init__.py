"""The console: RabbitMQ's HTTP API beside the AMQP frontend, for existing tools. An optional extra.

Only server.py and connection.py are asynchronous and use sockets; all other modules are called by them.
Source: management page.
"""
