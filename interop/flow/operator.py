"""The one who drains queues and looks at the broker while a client is held: pika, in this process."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Any

import pika

from ..brokers.asking import ask
from ..brokers.peers import Peer

POLL_SECONDS = 0.05


class Operator:
    """One connection, which is never held: it declares, fills, takes and asks. Times are in seconds."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self._connection = pika.BlockingConnection(pika.URLParameters(f"{peer.url}?heartbeat=0"))
        self._channel = self._connection.channel()

    def __enter__(self) -> Operator:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()

    def declare(self, queue: str, **options: Any) -> None:
        self._channel.queue_declare(queue, **options)

    def delete(self, queue: str) -> None:
        """With what is in it."""
        self._channel.queue_delete(queue)

    def count(self, queue: str) -> int:
        """What is ready."""
        ready: int = self._channel.queue_declare(queue, passive=True).method.message_count
        return ready

    def take(self, queue: str, count: int) -> list[bytes]:
        """So many messages, or all there are; acknowledged."""
        bodies: list[bytes] = []
        while len(bodies) < count:
            method, _, body = self._channel.basic_get(queue, auto_ack=True)
            if method is None:
                break
            bodies.append(body)
        return bodies

    def take_all(self, queue: str, count: int, seconds: float = 30.0) -> list[bytes]:
        """Until there were so many, or nothing came in time: what is held comes in when there is room."""
        bodies: list[bytes] = []
        deadline = time.monotonic() + seconds
        while len(bodies) < count and time.monotonic() < deadline:
            bodies += self.take(queue, count - len(bodies))
            self._connection.process_data_events(0)
        return bodies

    def fill(self, queue: str, octets: int, size: int = 1024) -> int:
        """Declare it and publish bodies of `size`, up to that many octets, or to its limit. Returns: how many."""
        self.declare(queue)
        channel = self._connection.channel()
        try:
            for _ in range(octets // size):
                channel.basic_publish("", queue, bytes(size))
            channel.close()  # what was held ends with it
        except pika.exceptions.ChannelClosedByBroker:
            pass  # what was refused has ended it
        return self.count(queue)

    def status(self) -> dict[str, Any]:
        shown: dict[str, Any] = ask(self._connection, "status")
        return shown

    def used(self, limit: str, destination: str = "broker") -> int:
        """How much of a limit is used."""
        rows = self.status()["usage"]
        used: int = next(
            row["used"] for row in rows if row["limit"] == limit and row["destination"].startswith(destination)
        )
        return used

    def held_for(self, queue: str) -> int:
        """How many connections wait for room in a queue."""
        return sum(f"'{queue}'" in row["destination"] for row in self.status()["blocked"])

    def queues(self) -> set[str]:
        """Names."""
        return {row["name"] for row in ask(self._connection, "queues", vhost="/")}

    def pass_time(self, seconds: float) -> None:
        """Go on reading meanwhile."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            self._connection.process_data_events(min(left, POLL_SECONDS))

    def until(self, fact: Any, seconds: float = 60.0) -> bool:
        """Whether `fact()` became true in time."""
        deadline = time.monotonic() + seconds
        while not fact():
            if time.monotonic() > deadline:
                return False
            self.pass_time(POLL_SECONDS)
        return True
