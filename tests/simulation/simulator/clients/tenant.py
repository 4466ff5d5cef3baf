"""A client of a user and a virtual host that operators make, change and delete while it works there."""

from __future__ import annotations

from typing import Any

from leveret.interop.wire.raw_codec import Method

from ..ledger import Broken
from ..plan import QueuePlan
from .channel import Channel
from .client import Client
from .knowledge import body_of, key_of, publisher_of
from .wire import content, properties, publish_method, settle

QUEUES = ("t.a", "t.b", "t.c")
EXCHANGES = ("t.x", "amq.topic", "amq.fanout")
#: What operators bring about: no virtual host, no permission, a limit, closed by hand, the vhost deleted.
EXPECTED = (320, 403, 404, 405, 406, 530)


class Tenant(Channel):
    """Does a little of everything, and takes what comes. The options of its client say which user and virtual host."""

    comes_and_goes = True
    connection_ends = EXPECTED

    def __init__(self, client: Client, number: int, options: dict[str, Any], seed: int) -> None:
        super().__init__(client, number, options, seed)
        self._published = 0
        self._consumes = False

    def opened(self) -> None:
        self._consumes = False

    def closed(self, code: int, text: str) -> None:
        if code not in EXPECTED:
            raise Broken(f"tenant {self.client.number} was closed: {code} {text}")
        self.world.knowledge.happened[f"tenant's channel closed: {code}"] += 1

    def delivered(self, consumer: str, tag: int, redelivered: bool, body: bytes) -> None:
        self.world.knowledge.check(body)
        self.world.books.deliveries.arrived(
            self.client.product, self.number, consumer, tag, redelivered, body, self.client
        )
        what = self.chance.random()
        self.send(settle(80, self.number, tag, 0) if what < 0.8 else settle(90, self.number, tag, int(what < 0.9)))

    def returned(self, method: Method, body: bytes) -> None:
        self.world.knowledge.check(body)

    def act(self) -> None:
        chance = self.chance
        if self.client.waiting:
            return
        if chance.random() < 0.02:
            self.client.close()
        else:
            chance.choice(_ACTS)(self)

    def _declare(self) -> None:
        luck = self.chance.random()
        name = self.chance.choice(QUEUES)
        if luck < 0.8:
            self.declare(QueuePlan(name), _nothing)
        else:
            self.ask("queue.declare", "queue.declare-ok", _nothing, queue=name, durable=True, auto_delete=True)

    def _delete(self) -> None:
        self.ask("queue.delete", "queue.delete-ok", _nothing, queue=self.chance.choice(QUEUES))

    def _purge(self) -> None:
        self.ask("queue.purge", "queue.purge-ok", _nothing, queue=self.chance.choice(QUEUES))

    def _declare_exchange(self) -> None:
        kind = self.chance.choice(("topic", "topic", "topic", "fanout"))
        self.ask("exchange.declare", "exchange.declare-ok", _nothing, exchange="t.x", type=kind, durable=True)

    def _delete_exchange(self) -> None:
        self.ask("exchange.delete", "exchange.delete-ok", _nothing, exchange="t.x")

    def _bind(self) -> None:
        chance = self.chance
        what = chance.choice(("bind", "bind", "unbind"))
        self.ask(
            f"queue.{what}", f"queue.{what}-ok", _nothing,
            queue=chance.choice(QUEUES), exchange=chance.choice(EXCHANGES), routing_key=chance.choice(("k", "#")),
        )  # fmt: skip

    def _publish(self) -> None:
        chance, knowledge = self.chance, self.world.knowledge
        exchange = chance.choice(("", "", *EXCHANGES))
        parts = []
        for _ in range(chance.randint(1, 10)):
            self._published += 1
            key = key_of(publisher_of(self.client.number, self.number, self.client.life), self._published)
            knowledge.publish(key, 20)
            parts.append(publish_method(self.number, exchange, chance.choice(("k", *QUEUES))))
            head = properties(persistent=chance.random() < 0.8)
            parts.append(content(self.number, head, body_of(key, 20), self.client.frame_max))
        knowledge.operations += len(parts) // 2
        self.send(b"".join(parts))

    def _get(self) -> None:
        queue = self.chance.choice(QUEUES)
        self.ask("basic.get", "basic.get-ok|basic.get-empty", self._got, queue=queue, no_ack=True)

    def _got(self, method: Method) -> None:
        if method.name == "basic.get-ok":
            tag, body = method["delivery_tag"], method["body"]
            deliveries = self.world.books.deliveries
            deliveries.arrived(self.client.product, self.number, None, tag, method["redelivered"], body, self.client)

    def _consume(self) -> None:
        if not self._consumes:
            self._consumes = True
            self.ask("basic.consume", "basic.consume-ok", _nothing, queue=self.chance.choice(QUEUES))


def _nothing(_: Method) -> None:
    """Any answer will do."""


_ACTS = (
    Tenant._declare,
    Tenant._declare,
    Tenant._delete,
    Tenant._purge,
    Tenant._declare_exchange,
    Tenant._delete_exchange,
    Tenant._bind,
    Tenant._bind,
    Tenant._publish,
    Tenant._publish,
    Tenant._publish,
    Tenant._get,
    Tenant._consume,
)
