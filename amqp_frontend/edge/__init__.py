"""What waits: listening, reading and sending on sockets, and what comes before AMQP."""
