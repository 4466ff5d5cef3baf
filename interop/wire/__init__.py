"""AMQP without a client library: a codec that shares no code with the broker, a handshake, a tap."""
