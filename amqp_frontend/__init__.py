"""The AMQP 0-9-1 frontend: octets in, events out; answers in, octets out.

Its folders, each of which imports only those before it: `wire/` (octets), `peer/` (the other end of a connection),
`flow/` (what a peer is asked to wait for), `session/` (events handled, turn by turn), `edge/` (what waits). Beside them
stand the options that an operator sets.
"""
