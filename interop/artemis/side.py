"""A broker behind the few verbs that scenarios need, whatever it speaks.

Each consumer has a connection of its own, so that losing it takes nothing else along.
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
    """What is published: body, headers, and what the broker is told of it; times in ms, 0: not said."""

    body: str
    ttl: int = 0
    delay: int = 0
    priority: int = 4
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Taken:
    """A delivery: its body, failed attempts before it as told, the queue that it died or expired in, or "".

    `token`: what it is settled by.
    """

    body: str
    failures: int
    origin: str
    token: Any


class Side(Protocol):
    """Makes and keeps the connections of one scenario. `queue` is a queue's name, or ADDRESS::QUEUE."""

    def publish(self, queue: str, letter: Letter) -> None:
        """Return once the broker has taken it, or refused it."""
        ...

    def consume(self, name: str, queue: str, credit: int) -> None: ...

    def stop(self, name: str) -> None:
        """No more credit; what is out stays out."""
        ...

    def receive(self, name: str, count: int, seconds: float) -> list[Taken]:
        """The next `count` deliveries, or fewer when the time is over."""
        ...

    def settle(self, name: str, how: str, taken: Taken) -> None:
        """`how`: ack, nack (it failed, and may come again), reject (never again)."""
        ...

    def release(self, name: str, taken: Sequence[Taken]) -> None:
        """Given back by choice: all that is out."""
        ...

    def close(self, name: str) -> None: ...

    def drop(self, name: str) -> None:
        """Lose the connection without a word."""
        ...

    def counts(self, queue: str) -> dict[str, int]:
        """`ready`, `unacked`, `scheduled`, `expired`, `killed`."""
        ...

    def has(self, queue: str) -> bool: ...

    def restart(self, *, kill: bool) -> None:
        """The broker; consumers are gone."""
        ...

    def configure(self, configuration: str) -> None:
        """Return once this broker.xml is in force, in which {port} stands for the port."""
        ...

    def end(self) -> None:
        """Close every connection."""
        ...

    def now(self) -> float:
        """Seconds on the clock that the broker's delays go by."""
        return time.monotonic()

    def wait(self, seconds: float) -> None:
        """Let them pass on that clock."""
        time.sleep(seconds)


def cut(descriptor: int) -> None:
    """Lose a connection without a word to the other side's protocol."""
    with socket.socket(fileno=os.dup(descriptor)) as duplicate:
        duplicate.shutdown(socket.SHUT_RDWR)
