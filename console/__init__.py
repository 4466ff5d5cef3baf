"""The console: RabbitMQ's HTTP API for existing tools, metrics, health checks and a web page. An optional extra.

Only server.py, state.py and connection.py are asynchronous; they call all other modules.
Source: management page.
"""
