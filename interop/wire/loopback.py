"""Ports on loopback, the only address that anything here listens on."""

from __future__ import annotations

import os
import socket
from itertools import count as counted

LOOPBACK = "127.0.0.1"
#: Below those that a system gives to clients (Linux: from 32768 on): one of them could take the port of a server that
#: is started again, and a client of a port where nobody listens could be given it, and be connected with itself.
PORTS = range(10_000, 32_000)
#: Processes that begin together begin apart.
_places = counted(os.getpid() * 997)


def listens(port: int) -> bool:
    """Whether something accepts connections there."""
    try:
        socket.create_connection((LOOPBACK, port), timeout=1).close()
    except OSError:
        return False
    return True


def answers_amqp(port: int) -> bool:
    """Whether a protocol header is answered by a method frame on channel 0 (connection.start)."""
    try:
        with socket.create_connection((LOOPBACK, port), timeout=5) as connection:
            connection.sendall(b"AMQP\0\0\x09\x01")
            return connection.recv(3) == b"\x01\0\0"
    except OSError:
        return False


def free_ports(count: int) -> list[int]:
    """Ports that nothing listens on. A process gets none of them twice, also when nothing listens there for a while."""
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
