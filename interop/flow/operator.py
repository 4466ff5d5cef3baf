"""The operator of a row: a connection of pika that drains queues and inspects the broker while a client is held."""

from __future__ import annotations

import time
from typing import Any

import pika

from ..brokers.control import ask
from ..brokers.peers import Peer

POLL_SECONDS = 0.05


class Operator:
    """A connection that is never held: it declares, fills and drains queues, and asks the broker. Times in seconds."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self._connection = pika.BlockingConnection(pika.URLParameters(f"{peer.url}?heartbeat=0"))
        self._channel = self._connection.channel()

    def __enter__(self) -> Operator:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def declare(self, queue: str, **options: Any) -> None:
        self._channel.queue_declare(queue, **options)

    def delete(self, queue: str) -> None:
        """Delete a queue with its messages."""
        self._channel.queue_delete(queue)

    def count(self, queue: str) -> int:
        """The number of ready messages."""
        ready: int = self._channel.queue_declare(queue, passive=True).method.message_count
        return ready

    def take(self, queue: str, count: int) -> list[bytes]:
        """Get and acknowledge `count` messages, or as many as there are."""
        bodies: list[bytes] = []
        while len(bodies) < count:
            method, _, body = self._channel.basic_get(queue, auto_ack=True)
            if method is None:
                break
            bodies.append(body)
        return bodies

    def take_all(self, queue: str, count: int, seconds: float = 30.0) -> list[bytes]:
        """Get `count` messages, with those that are held until there is room; fewer if none comes in time."""
        bodies: list[bytes] = []
        deadline = time.monotonic() + seconds
        while len(bodies) < count and time.monotonic() < deadline:
            bodies += self.take(queue, count - len(bodies))
            self._connection.process_data_events(0)
        return bodies

    def fill(self, queue: str, octets: int, size: int = 1024) -> int:
        """Declare a queue and publish bodies of `size` up to `octets`, or to its limit. Returns their number."""
        self.declare(queue)
        channel = self._connection.channel()
        try:
            for _ in range(octets // size):
                channel.basic_publish("", queue, bytes(size))
            channel.close()  # which drops publishes that are held
        except pika.exceptions.ChannelClosedByBroker:
            pass  # closed by a refusal
        return self.count(queue)

    def status(self) -> dict[str, Any]:
        status: dict[str, Any] = ask(self._connection, "status")
        return status

    def used(self, limit: str) -> int:
        """The use of a limit of the whole broker."""
        rows = self.status()["usage"]
        used: int = next(
            row["used"] for row in rows if row["limit"] == limit and row["destination"].startswith("broker")
        )
        return used

    def held_for(self, queue: str) -> int:
        """The number of connections that wait for room in a queue."""
        return sum(f"'{queue}'" in row["destination"] for row in self.status()["blocked"])

    def queues(self) -> set[str]:
        """The names of all queues."""
        return {row["name"] for row in ask(self._connection, "queues", vhost="/")}

    def pass_time(self, seconds: float) -> None:
        """Sleep while the connection is read."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            self._connection.process_data_events(min(left, POLL_SECONDS))

    def until(self, fact: Any, seconds: float = 60.0) -> bool:
        """Wait until `fact()` is true. Returns False if the time is over."""
        deadline = time.monotonic() + seconds
        while not fact():
            if time.monotonic() > deadline:
                return False
            self.pass_time(POLL_SECONDS)
        return True
