"""A client that makes queues, exchanges and bindings for a while, uses them, and takes them away."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from leveret.interop.wire.raw_codec import Method

from ..inhabitants import DEAD
from ..ledger import Broken
from .channel import Channel
from .client import Client
from .knowledge import body_of, key_of, publisher_of
from .wire import content, properties, publish_method

#: How each short-lived queue is declared.
SORTS: list[dict[str, Any]] = [
    {"durable": True},
    {"durable": False},
    {"exclusive": True},
    {"durable": True, "auto_delete": True},
    {"durable": True, "arguments": {"x-expires": ("I", 500)}},
]


class Declarer(Channel):
    """One thing at a time, each after the answer to the one before. `options`: spreads: its exchange leads to the queue
    of dead letters, too.
    """

    def __init__(self, client: Client, number: int, options: dict[str, Any], seed: int) -> None:
        super().__init__(client, number, options, seed)
        self._name = f"short-{client.number}-{number}"
        self._published = 0
        self._queue = ""
        self._exchange = ""
        self._sort: dict[str, Any] = {}
        self._is_ready = False

    def opened(self) -> None:
        """What an earlier connection left is taken away first."""
        self._clear(self._begin)

    def _begin(self, _: Method) -> None:
        self._is_ready = True

    def _clear(self, then: Callable[[Method], object]) -> None:
        self.ask("exchange.delete", "exchange.delete-ok", lambda _: None, exchange=self._name)
        self._exchange = ""
        if not self._queue:
            self.ask("queue.delete", "queue.delete-ok", self._gone(then), queue=self._name)
            return
        queue, self._queue = self._queue, ""
        deleted = self._gone(self._compared(queue, "deleted", then) if "arguments" not in self._sort else then)
        self.ask("queue.delete", "queue.delete-ok", deleted, queue=queue)

    def _gone(self, then: Callable[[Method], object]) -> Callable[[Method], None]:
        """What is answered is so, also after a power cut."""

        def answered(method: Method) -> None:
            if method.name == "queue.delete-ok":
                self.world.answers.of("queue", self.client.vhost, self._name, is_there=False)
            then(method)

        return answered

    def _compared(self, queue: str, counter: str, then: Callable[[Method], object]) -> Callable[[Method], None]:
        """What the broker says that it took away at once is what the books saw leave since now."""
        counted = self.world.books.statistics.counted
        before = counted(self.client.vhost, queue, counter)

        def answered(method: Method) -> None:
            left = counted(self.client.vhost, queue, counter) - before
            if method.name != "channel.close" and method["message_count"] != left:
                raise Broken(f"{queue}: {method['message_count']} were {counter} by its answer, {left} by the books")
            then(method)

        return answered

    def lost(self) -> None:
        self._is_ready = False

    def act(self) -> None:
        if not self._is_ready or self.client.waiting or self.client.blocked:
            return
        chance = self.chance
        self.world.knowledge.happened["declarations"] += 1
        if not self._queue:
            self._declare()
            return
        what = chance.random()
        if what < 0.4:
            self._publish()
        elif what < 0.6:
            purged = self._compared(self._queue, "purged", lambda _: None)
            self.ask("queue.purge", "queue.purge-ok|channel.close", purged, queue=self._queue)
        elif what < 0.7:
            self.ask(
                "queue.unbind",
                "queue.unbind-ok",
                lambda _: None,
                queue=self._queue,
                exchange=self._exchange,
                routing_key="",
            )
        else:
            self._clear(lambda _: None)

    def finish(self) -> None:
        if self._queue and not self.client.waiting:
            self._clear(lambda _: None)

    def closed(self, code: int, text: str) -> None:
        """A queue that nobody uses goes by itself; what an earlier connection asked for may be done after its end."""
        if code not in (404, 405, 406):
            super().closed(code, text)

    def _declare(self) -> None:
        chance = self.chance
        self._queue, self._exchange = f"{self._name}", self._name
        kind = chance.choice(("direct", "fanout", "topic"))
        auto_delete = chance.random() < 0.5
        self._sort = chance.choice(SORTS)
        is_durable = chance.random() < 0.5
        stays = self._sort.get("durable") and "arguments" not in self._sort
        vhost, name = self.client.vhost, self._name
        self.ask(
            "queue.declare", "queue.declare-ok", self._there(stays, "queue", vhost, name),
            queue=name, **self._sort,
        )  # fmt: skip
        self.ask(
            "exchange.declare", "exchange.declare-ok",
            self._there(is_durable and not auto_delete, "exchange", vhost, name),
            exchange=name, type=kind, durable=is_durable, auto_delete=auto_delete,
        )  # fmt: skip
        self.ask(
            "queue.bind", "queue.bind-ok", self._there(stays and is_durable, "binding", vhost, name, "Queue", name),
            queue=name, exchange=name, routing_key="",
        )  # fmt: skip
        if "spreads" in self.options and kind != "direct":  # some of its messages are there when the exchange is gone
            key = "#" if kind == "topic" else ""
            self.ask(
                "queue.bind", "queue.bind-ok", lambda _: None, queue=DEAD, exchange=name, routing_key=key, arguments={}
            )

    def _there(self, stays: bool, *key: object) -> Callable[[Method], None]:
        def answered(_: Method) -> None:
            if stays:
                self.world.answers.of(*key)

        return answered

    def _publish(self) -> None:
        chance, knowledge = self.chance, self.world.knowledge
        publisher = publisher_of(self.client.number, self.number, self.client.life)
        head = properties(persistent=chance.random() < 0.5)
        parts = []
        for _ in range(chance.randint(1, 10)):
            self._published += 1
            key = key_of(publisher, self._published)
            knowledge.publish(key, 20)
            knowledge.operations += 1
            exchange = chance.choice(("", self._exchange)) if "spreads" in self.options else ""  # both may be gone
            parts.append(publish_method(self.number, exchange, self._queue))
            parts.append(content(self.number, head, body_of(key, 20), self.client.frame_max))
        self.send(b"".join(parts))
