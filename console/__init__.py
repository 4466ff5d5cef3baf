"""The console: RabbitMQ's HTTP API beside the AMQP frontend, for existing tools. An optional extra.

server.py and connection.py wait and use sockets; they call everything else, which is pure.
Source: management page.
"""
