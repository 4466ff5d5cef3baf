"""Ports on loopback, the only address that anything here listens on."""

from __future__ import annotations

import socket

LOOPBACK = "127.0.0.1"


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
    """Free ports, all different; they are opened together so that none is returned twice."""
    holders = [socket.socket() for _ in range(count)]
    try:
        for holder in holders:
            holder.bind((LOOPBACK, 0))
        return [int(holder.getsockname()[1]) for holder in holders]
    finally:
        for holder in holders:
            holder.close()
