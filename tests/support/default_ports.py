"""The ports that brokers listen on by default, taken for as long as the tests run."""

import contextlib
import socket

#: AMQP with and without TLS; RabbitMQ's management with and without TLS; its metrics. `leveret serve` has the same.
DEFAULT_PORTS = (5671, 5672, 15671, 15672, 15692)


def take_default_ports() -> list[socket.socket]:
    """Bind each default port that is free, on loopback; they are free again when the sockets are closed.

    Nobody listens, so that a client is refused as if there were no broker.
    """
    taken = []
    for port in DEFAULT_PORTS:
        holder = socket.socket()
        try:
            holder.bind(("127.0.0.1", port))
        except OSError:  # another program has it, which is as good
            holder.close()
        else:
            taken.append(holder)
    return taken


def is_taken(port: int) -> bool:
    """Whether a listener on 127.0.0.1 would fail."""
    with contextlib.closing(socket.socket()) as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind(("127.0.0.1", port))
            tried.listen()
        except OSError:
            return True
    return False
