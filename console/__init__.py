"""The console: RabbitMQ's HTTP API beside the AMQP frontend, for the tools that people have. An optional extra.

What waits and what knows sockets stands in server.py; everything else is called by it, and is pure.
Source: management page.
"""
