"""Leveret, used through AMQP 0-9-1 (pika)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pika

from ..brokers.control import ask
from ..brokers.peers import Peer
from .side import Outgoing, Received, Side, cut

POLL_SECONDS = 0.01


@dataclass(slots=True)
class _Consumer:
    connection: Any
    channel: Any
    tag: str
    incoming: list[Received] = field(default_factory=list)


class Leveret(Side):
    """nack is basic.nack with requeue, reject is basic.reject without requeue, release is basic.recover."""

    def __init__(self, peer: Peer, file: Path) -> None:
        self._peer, self._file = peer, file
        self._consumers: dict[str, _Consumer] = {}
        self._open()

    def _open(self) -> None:
        self._publishing = self._connect()
        self._channel = self._publishing.channel()
        self._channel.confirm_delivery()

    def _connect(self) -> Any:
        return pika.BlockingConnection(pika.URLParameters(f"{self._peer.url}?heartbeat=0"))

    def publish(self, queue: str, outgoing: Outgoing) -> None:
        headers: Mapping[str, Any] = {**outgoing.headers, **({"x-delay": outgoing.delay} if outgoing.delay else {})}
        properties = pika.BasicProperties(
            delivery_mode=2,
            priority=outgoing.priority,
            expiration=str(outgoing.ttl) if outgoing.ttl else None,
            headers=dict(headers),
        )
        try:
            self._channel.basic_publish("", queue, outgoing.body.encode(), properties)
        except pika.exceptions.NackError:
            pass  # refused, which later counts show

    def consume(self, name: str, queue: str, credit: int) -> None:
        connection = self._connect()
        channel = connection.channel()
        channel.basic_qos(prefetch_count=credit)
        consumer = _Consumer(connection, channel, "")

        def deliver(_: Any, method: Any, properties: Any, body: bytes) -> None:
            headers = properties.headers or {}
            failures, origin = headers.get("x-delivery-count", 0), headers.get("_AMQ_ORIG_QUEUE", "")
            consumer.incoming.append(Received(body.decode(), failures, origin, method.delivery_tag))

        consumer.tag = channel.basic_consume(_queue(queue), deliver)
        self._consumers[name] = consumer

    def stop(self, name: str) -> None:
        consumer = self._consumers[name]
        consumer.channel.basic_cancel(consumer.tag)

    def receive(self, name: str, count: int, seconds: float) -> list[Received]:
        consumer = self._consumers[name]
        deadline = self.now() + seconds
        while len(consumer.incoming) < count and self.now() < deadline:
            consumer.connection.process_data_events(max(0.0, min(deadline - self.now(), POLL_SECONDS)))
        received, consumer.incoming[:count] = consumer.incoming[:count], []
        return received

    def settle(self, name: str, how: str, received: Received) -> None:
        channel = self._consumers[name].channel
        if how == "ack":
            channel.basic_ack(received.token)
        elif how == "nack":
            channel.basic_nack(received.token, requeue=True)
        else:
            channel.basic_reject(received.token, requeue=False)
        channel.basic_qos(prefetch_count=0, global_qos=True)  # its answer shows that earlier methods were handled

    def release(self, name: str, received: Sequence[Received]) -> None:
        self._consumers[name].channel.basic_recover(requeue=True)

    def close(self, name: str) -> None:
        consumer = self._consumers.pop(name)
        consumer.channel.close()
        consumer.connection.close()

    def drop(self, name: str) -> None:
        consumer = self._consumers.pop(name)
        cut(consumer.connection._impl._transport._sock.fileno())

    def counts(self, queue: str) -> dict[str, int]:
        (row,) = (one for one in self._ask("queues", vhost="/") if one["name"] == _queue(queue))
        counters = {name: row["counters"].get(name, 0) for name in ("expired", "killed")}
        return {name: row[name] for name in ("ready", "unacked", "scheduled")} | counters

    def has(self, queue: str) -> bool:
        return any(one["name"] == _queue(queue) for one in self._ask("queues", vhost="/"))

    def _ask(self, command: str, **arguments: Any) -> Any:
        return ask(self._publishing, command, **arguments)

    def restart(self, *, kill: bool) -> None:
        self.end()
        self._peer.restart(kill=kill)
        self._open()

    def configure(self, configuration: str) -> None:
        self._file.write_text(configuration)
        self._ask("reload")

    def end(self) -> None:
        for connection in (self._publishing, *(consumer.connection for consumer in self._consumers.values())):
            try:
                connection.close()
            except (pika.exceptions.AMQPError, OSError):
                pass  # the broker may have ended
        self._consumers.clear()


def _queue(name: str) -> str:
    """The name of the queue, without its address."""
    return name.rpartition("::")[2]
