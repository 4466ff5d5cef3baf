"""Free ports on loopback, the only address that this room uses."""

from __future__ import annotations

import os
import socket
from itertools import count as counted

from .raw_codec import PROTOCOL_HEADER

LOOPBACK = "127.0.0.1"
#: Below the ephemeral ports, which clients get (Linux: from 32768). A client could get the port of a server that is
#: being restarted, and a client that connects to its own port would be connected with itself.
PORTS = range(10_000, 32_000)
#: The first port depends on the process, so that processes that start together take different ports.
_places = counted(os.getpid() * 997)


def listens(port: int) -> bool:
    """Whether a program accepts connections at a port."""
    try:
        socket.create_connection((LOOPBACK, port), timeout=1).close()
    except OSError:
        return False
    return True


def answers_amqp(port: int, seconds: float = 5.0) -> bool:
    """Whether a protocol header is answered by connection.start within this time."""
    try:
        with socket.create_connection((LOOPBACK, port), timeout=seconds) as connection:
            connection.sendall(PROTOCOL_HEADER)
            return connection.recv(3) == b"\x01\0\0"
    except OSError:
        return False


def free_ports(count: int) -> list[int]:
    """Ports on which no program listens. A process never gets the same port twice."""
    found: list[int] = []
    while len(found) < count:
        port = PORTS[next(_places) % len(PORTS)]
        with socket.socket() as tried:
            try:
                tried.bind((LOOPBACK, port))
            except OSError:
                continue
        found.append(port)
    return found
