"""The AMQP 0-9-1 frontend: octets in, events out; answers in, octets out.

Each folder imports only those before it: `wire/` (octets), `peer/` (the other end of a connection), `flow/` (flow
control), `session/` (handles events, turn by turn), `edge/` (sockets and waiting). options.py has the options that an
operator sets, ended.py the callables of a connection that has ended.
"""
