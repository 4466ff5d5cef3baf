"""The operations on a broker that scenarios need, for each protocol.

Each consumer has its own connection, so that a lost connection affects only one consumer.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

ANSWER_SECONDS_MAX = 20.0


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message to publish. Times in ms; 0: not set."""

    body: str
    ttl: int = 0
    delay: int = 0
    priority: int = 4
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Received:
    """A delivery. `failures`: earlier failed attempts. `origin`: the queue in which it died or expired; "": it did not.

    `token`: identifies it for settling.
    """

    body: str
    failures: int
    origin: str
    token: Any


class Side(Protocol):
    """The connections of one scenario. `queue`: the name of a queue, or ADDRESS::QUEUE."""

    def publish(self, queue: str, outgoing: Outgoing) -> None:
        """Publish a message, and wait until the broker has accepted or refused it."""

    def consume(self, name: str, queue: str, credit: int) -> None: ...

    def stop(self, name: str) -> None:
        """Give no more credit. Unacknowledged messages stay unacknowledged."""

    def receive(self, name: str, count: int, seconds: float) -> list[Received]:
        """The next `count` deliveries, or fewer after `seconds`."""

    def settle(self, name: str, how: str, received: Received) -> None:
        """`how`: ack, nack (failed, may be redelivered), reject (not redelivered)."""

    def release(self, name: str, received: Sequence[Received]) -> None:
        """Return all unacknowledged messages, not as failed."""

    def close(self, name: str) -> None: ...

    def drop(self, name: str) -> None:
        """Cut the connection without closing it."""

    def counts(self, queue: str) -> dict[str, int]:
        """`ready`, `unacked`, `scheduled`, `expired`, `killed`."""

    def has(self, queue: str) -> bool: ...

    def restart(self, *, kill: bool) -> None:
        """Restart the broker, which ends all consumers."""

    def configure(self, configuration: str) -> None:
        """Apply a new broker.xml, in which {port} stands for the port."""

    def end(self) -> None:
        """Close every connection."""

    def now(self) -> float:
        """The time in seconds on the clock of the broker's delays."""
        return time.monotonic()

    def wait(self, seconds: float) -> None:
        """Wait on the clock of the broker's delays."""
        time.sleep(seconds)


def cut(descriptor: int) -> None:
    """Cut a TCP connection without closing it in the protocol."""
    with socket.socket(fileno=os.dup(descriptor)) as duplicate:
        duplicate.shutdown(socket.SHUT_RDWR)
