"""The two brokers behind the same few verbs: Artemis by AMQP 1.0 (qpid-proton), leveret by AMQP 0-9-1 (pika).

Each consumer has a connection of its own, so that losing it takes nothing else along.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import pika
import proton
import proton.utils

from ..peers import LOOPBACK, Peer

ANSWER_SECONDS_MAX = 20.0
POLL_SECONDS = 0.01


@dataclass(slots=True)
class Taken:
    """A delivery: its body, the failed attempts before it as told, and the token that it is settled by."""

    body: str
    failures: int
    token: Any


class Side(Protocol):
    """A broker as the scenarios see it; times are in ms where not said otherwise."""

    def publish(self, queue: str, body: str, *, ttl: int = 0, delay: int = 0, priority: int = 4) -> None: ...

    def consume(self, name: str, queue: str, credit: int) -> None: ...

    def stop(self, name: str) -> None: ...

    def receive(self, name: str, count: int, seconds: float) -> list[Taken]:
        """The next `count` deliveries, or fewer when the time is over."""
        ...

    def settle(self, name: str, how: str, taken: Taken) -> None:
        """`how`: ack, nack (it failed, and may come again), reject (never again)."""
        ...

    def release(self, name: str, taken: Sequence[Taken]) -> None: ...

    def close(self, name: str) -> None: ...

    def drop(self, name: str) -> None: ...

    def counts(self, queue: str) -> dict[str, int]: ...

    def end(self) -> None: ...


@dataclass(slots=True)
class _Link:
    connection: Any
    receiver: Any
    may_fill: bool = True  # what is settled makes room for the next


#: What a count is called in Artemis' management.
ATTRIBUTES = {
    "all": "messageCount",
    "unacked": "deliveringCount",
    "scheduled": "scheduledCount",
    "expired": "messagesExpired",
    "killed": "messagesKilled",
}


class Artemis:
    """Through AMQP 1.0: nack is modified with delivery-failed, reject is rejected, release is released."""

    def __init__(self, peer: Peer) -> None:
        self._url = f"amqp://{LOOPBACK}:{peer.port}"
        self._links: dict[str, _Link] = {}
        self._publishing = self._connect()
        self._answers = self._publishing.create_receiver(None, dynamic=True)
        self._questions = self._publishing.create_sender("activemq.management")

    def _connect(self) -> Any:
        return proton.utils.BlockingConnection(self._url, timeout=ANSWER_SECONDS_MAX, heartbeat=None)

    def publish(self, queue: str, body: str, *, ttl: int = 0, delay: int = 0, priority: int = 4) -> None:
        message = proton.Message(body=body, durable=True, priority=priority, ttl=ttl / 1000)
        if delay:
            message.annotations = {proton.symbol("x-opt-delivery-delay"): delay}
        sender = self._publishing.create_sender(queue)
        sender.send(message)  # returns once it is accepted
        sender.close()

    def consume(self, name: str, queue: str, credit: int) -> None:
        connection = self._connect()
        receiver = connection.create_receiver(queue, credit=0)
        receiver.link.flow(credit)
        self._links[name] = _Link(connection, receiver)
        self._turn(self._links[name])

    def stop(self, name: str) -> None:
        link = self._links[name]
        link.may_fill = False
        link.receiver.link.drain(0)
        link.connection.wait(lambda: link.receiver.link.credit == 0)

    def receive(self, name: str, count: int, seconds: float) -> list[Taken]:
        link = self._links[name]
        incoming = link.receiver.fetcher.incoming
        try:
            link.connection.wait(lambda: len(incoming) >= count, timeout=seconds)
        except proton.Timeout:
            pass
        taken: list[Taken] = []
        while incoming and len(taken) < count:
            message, delivery = incoming.popleft()
            taken.append(Taken(str(message.body), message.delivery_count, delivery))
        return taken

    def settle(self, name: str, how: str, taken: Taken) -> None:
        link = self._links[name]
        states = {"ack": proton.Delivery.ACCEPTED, "nack": proton.Delivery.MODIFIED, "reject": proton.Delivery.REJECTED}
        taken.token.local.failed = how == "nack"
        self._settle(link, taken, states[how])

    def release(self, name: str, taken: Sequence[Taken]) -> None:
        for one in taken:
            self._settle(self._links[name], one, proton.Delivery.RELEASED)

    def _settle(self, link: _Link, taken: Taken, state: Any) -> None:
        taken.token.update(state)
        taken.token.settle()
        if link.may_fill:
            link.receiver.link.flow(1)
        self._turn(link)

    def _turn(self, link: _Link) -> None:
        """Return once the broker has read what was sent: what is answered after it."""
        link.connection.create_sender("activemq.management").close()

    def close(self, name: str) -> None:
        link = self._links.pop(name)
        link.receiver.close()
        link.connection.close()

    def drop(self, name: str) -> None:
        link = self._links.pop(name)
        transport = link.connection.conn.transport
        _cut(transport._selectable.fileno())

    def counts(self, queue: str) -> dict[str, int]:
        said = {name: self._ask(queue, attribute) for name, attribute in ATTRIBUTES.items()}
        said["ready"] = said.pop("all") - said["unacked"] - said["scheduled"]
        return said

    def _ask(self, queue: str, attribute: str) -> int:
        question = proton.Message(
            reply_to=self._answers.link.remote_source.address,
            properties={"_AMQ_ResourceName": f"queue.{queue}", "_AMQ_Attribute": attribute},
        )
        self._questions.send(question)
        answer = self._answers.receive(timeout=ANSWER_SECONDS_MAX)
        self._answers.accept()
        (value,) = json.loads(answer.body)
        if not isinstance(value, int):
            raise RuntimeError(f"{queue}: {attribute}: {value!r}")
        return value

    def end(self) -> None:
        for connection in (self._publishing, *(link.connection for link in self._links.values())):
            try:
                connection.close()
            except (proton.ProtonException, OSError):
                pass  # the broker may be gone
        self._links.clear()


@dataclass(slots=True)
class _Consumer:
    connection: Any
    channel: Any
    tag: str
    incoming: list[Taken] = field(default_factory=list)


class Leveret:
    """Through AMQP 0-9-1: nack is basic.nack with requeue, reject is basic.reject without, release is basic.recover."""

    def __init__(self, peer: Peer) -> None:
        self._url = peer.url
        self._consumers: dict[str, _Consumer] = {}
        self._publishing = self._connect()
        self._channel = self._publishing.channel()
        self._channel.confirm_delivery()

    def _connect(self) -> Any:
        return pika.BlockingConnection(pika.URLParameters(f"{self._url}?heartbeat=0"))

    def publish(self, queue: str, body: str, *, ttl: int = 0, delay: int = 0, priority: int = 4) -> None:
        headers: Mapping[str, int] = {"x-delay": delay} if delay else {}
        expiration = str(ttl) if ttl else None
        properties = pika.BasicProperties(
            delivery_mode=2, priority=priority, expiration=expiration, headers=dict(headers)
        )
        self._channel.basic_publish("", queue, body.encode(), properties, mandatory=True)

    def consume(self, name: str, queue: str, credit: int) -> None:
        connection = self._connect()
        channel = connection.channel()
        channel.basic_qos(prefetch_count=credit)
        consumer = _Consumer(connection, channel, "")

        def came(_: Any, method: Any, properties: Any, body: bytes) -> None:
            failures = (properties.headers or {}).get("x-delivery-count", 0)
            consumer.incoming.append(Taken(body.decode(), failures, method.delivery_tag))

        consumer.tag = channel.basic_consume(queue, came)
        self._consumers[name] = consumer

    def stop(self, name: str) -> None:
        consumer = self._consumers[name]
        consumer.channel.basic_cancel(consumer.tag)

    def receive(self, name: str, count: int, seconds: float) -> list[Taken]:
        consumer = self._consumers[name]
        deadline = time.monotonic() + seconds
        while len(consumer.incoming) < count and (left := deadline - time.monotonic()) > 0:
            consumer.connection.process_data_events(min(left, POLL_SECONDS))
        taken, consumer.incoming[:count] = consumer.incoming[:count], []
        return taken

    def settle(self, name: str, how: str, taken: Taken) -> None:
        channel = self._consumers[name].channel
        if how == "ack":
            channel.basic_ack(taken.token)
        elif how == "nack":
            channel.basic_nack(taken.token, requeue=True)
        else:
            channel.basic_reject(taken.token, requeue=False)
        channel.basic_qos(prefetch_count=0, global_qos=True)  # answered after it: it has been heeded

    def release(self, name: str, taken: Sequence[Taken]) -> None:
        self._consumers[name].channel.basic_recover(requeue=True)

    def close(self, name: str) -> None:
        consumer = self._consumers.pop(name)
        consumer.channel.close()
        consumer.connection.close()

    def drop(self, name: str) -> None:
        consumer = self._consumers.pop(name)
        _cut(consumer.connection._impl._transport._sock.fileno())

    def counts(self, queue: str) -> dict[str, int]:
        command = [sys.executable, "-m", "leveret", "ctl", "--json", "--url", self._url, "queues", "vhost=/"]
        found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        (said,) = (one for one in found if one["name"] == queue)
        counters = {name: said["counters"].get(name, 0) for name in ("expired", "killed")}
        return {name: said[name] for name in ("ready", "unacked", "scheduled")} | counters

    def end(self) -> None:
        for connection in (self._publishing, *(consumer.connection for consumer in self._consumers.values())):
            try:
                connection.close()
            except (pika.exceptions.AMQPError, OSError):
                pass  # the broker may be gone
        self._consumers.clear()


def _cut(descriptor: int) -> None:
    """Lose a connection without a word to the other side's protocol."""
    with socket.socket(fileno=os.dup(descriptor)) as duplicate:
        duplicate.shutdown(socket.SHUT_RDWR)


SIDES = {"artemis": Artemis, "leveret": Leveret}
