"""A broker behind the few operations that scenarios need, independent of the protocol.

Each consumer has a connection of its own, so that losing it affects nothing else.
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
class Letter:
    """A message to publish: body, headers, and properties for the broker; times in ms, 0: not set."""

    body: str
    ttl: int = 0
    delay: int = 0
    priority: int = 4
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Taken:
    """A delivery: its body, the number of earlier failed attempts, the queue that it died or expired in, or "".

    `token`: identifies it for settling.
    """

    body: str
    failures: int
    origin: str
    token: Any


class Side(Protocol):
    """The connections of one scenario. `queue` is a queue's name, or ADDRESS::QUEUE."""

    def publish(self, queue: str, letter: Letter) -> None:
        """Return once the broker has accepted or refused it."""

    def consume(self, name: str, queue: str, credit: int) -> None: ...

    def stop(self, name: str) -> None:
        """Give no more credit; unacknowledged messages stay so."""

    def receive(self, name: str, count: int, seconds: float) -> list[Taken]:
        """The next `count` deliveries, or fewer after a timeout."""

    def settle(self, name: str, how: str, taken: Taken) -> None:
        """`how`: ack, nack (failed, may be redelivered), reject (not redelivered)."""

    def release(self, name: str, taken: Sequence[Taken]) -> None:
        """Return all unacknowledged messages, not as failed."""

    def close(self, name: str) -> None: ...

    def drop(self, name: str) -> None:
        """Cut the connection without closing it."""

    def counts(self, queue: str) -> dict[str, int]:
        """`ready`, `unacked`, `scheduled`, `expired`, `killed`."""

    def has(self, queue: str) -> bool: ...

    def restart(self, *, kill: bool) -> None:
        """Restart the broker; consumers end."""

    def configure(self, configuration: str) -> None:
        """Return once this broker.xml is applied; {port} in it stands for the port."""

    def end(self) -> None:
        """Close every connection."""

    def now(self) -> float:
        """Seconds on the clock that the broker's delays use."""
        return time.monotonic()

    def wait(self, seconds: float) -> None:
        """Wait this long on that clock."""
        time.sleep(seconds)


def cut(descriptor: int) -> None:
    """Cut a connection without closing it by protocol."""
    with socket.socket(fileno=os.dup(descriptor)) as duplicate:
        duplicate.shutdown(socket.SHUT_RDWR)
