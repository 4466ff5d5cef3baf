"""Artemis, used through AMQP 1.0 (qpid-proton)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import proton
import proton.utils

from ..brokers.peers import Peer
from ..wire.loopback import LOOPBACK
from .side import ANSWER_SECONDS_MAX, Outgoing, Received, Side, cut

CREDIT_SECONDS_MAX = 5.0  # because a full address gives no credit


@dataclass(slots=True)
class _Link:
    connection: Any
    receiver: Any
    may_fill: bool = True  # whether settling a message gives credit for the next one


#: The names of counts in Artemis' management.
ATTRIBUTES = {
    "all": "messageCount",
    "unacked": "deliveringCount",
    "scheduled": "scheduledCount",
    "expired": "messagesExpired",
    "killed": "messagesKilled",
}

#: Kind of a request to the management -> its header.
QUESTIONS = {"attribute": "_AMQ_Attribute", "operation": "_AMQ_OperationName"}


class Artemis(Side):
    """nack is the outcome modified with delivery-failed, reject is rejected, release is released."""

    def __init__(self, peer: Peer, file: Path) -> None:
        self._peer, self._file = peer, file
        self._url = f"amqp://{LOOPBACK}:{peer.port}"
        self._links: dict[str, _Link] = {}
        self._open()

    def _open(self) -> None:
        self._publishing = self._connect()
        self._answers = self._publishing.create_receiver(None, dynamic=True)
        self._questions = self._publishing.create_sender("activemq.management")

    def _connect(self) -> Any:
        return proton.utils.BlockingConnection(self._url, timeout=ANSWER_SECONDS_MAX, heartbeat=None)

    def publish(self, queue: str, outgoing: Outgoing) -> None:
        message = proton.Message(
            body=outgoing.body,
            durable=True,
            priority=outgoing.priority,
            ttl=outgoing.ttl / 1000,
            properties=dict(outgoing.headers) or None,
        )
        if outgoing.delay:
            message.annotations = {proton.symbol("x-opt-delivery-delay"): outgoing.delay}
        sender = self._publishing.create_sender(queue)
        try:
            sender.send(message, timeout=CREDIT_SECONDS_MAX)  # returns when it is accepted
        except proton.utils.SendException:
            pass  # refused, which later counts show
        except proton.Timeout:  # without credit, closing the link would block, too
            cut(_descriptor(self._publishing))
            self._open()
            return
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

    def receive(self, name: str, count: int, seconds: float) -> list[Received]:
        link = self._links[name]
        incoming = link.receiver.fetcher.incoming
        try:
            link.connection.wait(lambda: len(incoming) >= count, timeout=seconds)
        except proton.Timeout:
            pass
        received: list[Received] = []
        while incoming and len(received) < count:
            message, delivery = incoming.popleft()
            origin = (message.annotations or {}).get("x-opt-ORIG-QUEUE", "")
            received.append(Received(str(message.body), message.delivery_count, origin, delivery))
        return received

    def settle(self, name: str, how: str, received: Received) -> None:
        link = self._links[name]
        states = {"ack": proton.Delivery.ACCEPTED, "nack": proton.Delivery.MODIFIED, "reject": proton.Delivery.REJECTED}
        received.token.local.failed = how == "nack"
        self._settle(link, received, states[how])

    def release(self, name: str, received: Sequence[Received]) -> None:
        for one in received:
            self._settle(self._links[name], one, proton.Delivery.RELEASED)

    def _settle(self, link: _Link, received: Received, state: Any) -> None:
        received.token.update(state)
        received.token.settle()
        if link.may_fill:
            link.receiver.link.flow(1)
        self._turn(link)

    def _turn(self, link: _Link) -> None:
        """Wait for the answer to a request: the broker has then handled everything that was sent before it."""
        link.connection.create_sender("activemq.management").close()

    def close(self, name: str) -> None:
        link = self._links.pop(name)
        link.receiver.close()
        link.connection.close()

    def drop(self, name: str) -> None:
        link = self._links.pop(name)
        cut(_descriptor(link.connection))

    def counts(self, queue: str) -> dict[str, int]:
        name = queue.rpartition("::")[2]
        counts = {key: self._ask(f"queue.{name}", attribute=attribute) for key, attribute in ATTRIBUTES.items()}
        counts["ready"] = counts.pop("all") - counts["unacked"] - counts["scheduled"]
        return counts

    def has(self, queue: str) -> bool:
        names: list[str] = self._ask("broker", attribute="queueNames")
        return queue.rpartition("::")[2] in names

    def _ask(self, resource: str, **what: str) -> Any:
        """The value of an `attribute` of a resource, or the result of an `operation`."""
        properties = {"_AMQ_ResourceName": resource, **{QUESTIONS[key]: value for key, value in what.items()}}
        self._questions.send(
            proton.Message(reply_to=self._answers.link.remote_source.address, properties=properties, body="[]")
        )
        answer = self._answers.receive(timeout=ANSWER_SECONDS_MAX)
        self._answers.accept()
        if not answer.properties["_AMQ_OperationSucceeded"]:
            raise RuntimeError(f"{resource}: {what}: {answer.body}")
        return json.loads(answer.body)[0] if answer.body else None

    def restart(self, *, kill: bool) -> None:
        self.end()
        self._peer.restart(kill=kill)
        self._open()

    def configure(self, configuration: str) -> None:
        self._file.write_text(configuration.replace("{port}", str(self._peer.port)))
        self._ask("broker", operation="reloadConfigurationFile")

    def end(self) -> None:
        for connection in (self._publishing, *(link.connection for link in self._links.values())):
            try:
                connection.close()
            except (proton.ProtonException, OSError):
                pass  # the broker may have ended
        self._links.clear()


def _descriptor(connection: Any) -> int:
    number: int = connection.conn.transport._selectable.fileno()
    return number
