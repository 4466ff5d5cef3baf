"""A publisher: with confirms, in transactions, or just so; to one or several places."""

from __future__ import annotations

from random import Random
from typing import Any

from leveret.interop.wire.raw_codec import Method

from ..ledger import KEY_SIZE, Broken
from .channel import Channel
from .client import FRAME_MAX, Client, Question
from .knowledge import body_of, key_of, publisher_of
from .wire import content, properties, publish_method

#: Publishes without an answer before it waits.
WINDOW = 200
BATCH = 30
NOWHERE = "nowhere"


class Publisher(Channel):
    """`options`: targets (exchange and routing key each), mode (confirms, transactions, none), retries, mandatory."""

    def __init__(self, client: Client, number: int, options: dict[str, Any], seed: int) -> None:
        super().__init__(client, number, options, seed)
        self.mode: str = options.get("mode", "confirms")
        self.targets: list[list[str]] = options.get("targets") or [["", options["queue"]]]
        self._methods = [publish_method(number, exchange, key) for exchange, key in self.targets]
        self._lost_method = publish_method(number, "", NOWHERE, mandatory=True)
        self._heads = make_heads(self.chance, options)
        self._publisher = 0
        self._published = 0  # over all connections
        self._tag = 0  # on this channel
        self._unconfirmed: dict[int, tuple[bytes, bool, bool]] = {}  # tag -> key, persistent, mandatory
        self._waits_since_ns = 0
        self._again: list[tuple[bytes, bool]] = []  # unconfirmed when the connection was lost: key, persistent
        self._returned: set[bytes] = set()
        self._transaction: list[tuple[bytes, bool]] = []
        self._is_ready = False

    def opened(self) -> None:
        self._publisher = publisher_of(self.client.number, self.number, self.client.life)
        self._tag = 0
        self._declare(0)

    def _declare(self, index: int) -> None:
        plan = self.world.plan
        if index < len(self.targets):
            exchange, key = self.targets[index]
            if exchange:
                self.declare_exchange(plan.exchange(exchange), lambda _: self._declare(index + 1))
            else:
                self.declare(plan.queue(key), lambda _: self._declare(index + 1))
        elif self.mode == "confirms":
            self.ask("confirm.select", "confirm.select-ok", self._begin)
        elif self.mode == "transactions":
            self.ask("tx.select", "tx.select-ok", self._begin)
        else:
            self._is_ready = True

    def _begin(self, _: Method) -> None:
        self._is_ready = True

    def lost(self) -> None:
        self._is_ready = False
        if self.options.get("retries"):
            self._again += [
                (key, persistent) for key, persistent, mandatory in self._unconfirmed.values() if not mandatory
            ]
        self._unconfirmed.clear()
        self._transaction.clear()

    def unanswered(self) -> Question | None:
        if not self._unconfirmed:
            return None
        return Question(self.number, "confirm", self._begin, self._waits_since_ns)

    def act(self) -> None:
        client = self.client
        if not self._is_ready or client.waiting or client.blocked or len(self._unconfirmed) > WINDOW:
            return
        self.send(b"".join(self._batch()))
        if self.mode == "transactions" and self.chance.random() < 0.3:
            self._end_transaction()

    def finish(self) -> None:
        if self._transaction and self._is_ready and not self.client.waiting:
            self._end_transaction()

    def _batch(self) -> list[bytes]:
        chance, knowledge = self.chance, self.world.knowledge
        parts: list[bytes] = []
        method, (head, persistent) = chance.choice(self._methods), chance.choice(self._heads)
        for _ in range(chance.randint(1, BATCH)):
            if chance.random() < 0.1:
                method, (head, persistent) = chance.choice(self._methods), chance.choice(self._heads)
            if self._again:
                key, persistent = self._again.pop()
                self.world.books.routing.again.add(key)
                size = knowledge.published[key]
                knowledge.happened["published again"] += 1
                parts += (self._publish(key, persistent, False, method), self._content(key, size, head, persistent))
                continue
            self._published += 1
            key = key_of(self._publisher, self._published)
            size = chance.choice((0, 10, 10, 100, 1000, 20_000 if chance.random() < 0.05 else 50))
            knowledge.publish(key, size)
            is_mandatory = "mandatory" in self.options and chance.random() < 0.1
            parts.append(self._publish(key, persistent, is_mandatory, method))
            parts.append(content(self.number, head, body_of(key, size), FRAME_MAX))
        return parts

    def _content(self, key: bytes, size: int, head: bytes, persistent: bool) -> bytes:
        if persistent:
            head = next((one for one, is_persistent in self._heads if is_persistent), head)
        return content(self.number, head, body_of(key, size), FRAME_MAX)

    def _publish(self, key: bytes, persistent: bool, mandatory: bool, method: bytes) -> bytes:
        self.world.knowledge.operations += 1
        if self.mode == "confirms":
            if not self._unconfirmed:
                self._waits_since_ns = self.world.schedule.now_ns
            self._tag += 1
            self._unconfirmed[self._tag] = key, persistent, mandatory
        elif self.mode == "transactions":
            self._transaction.append((key, persistent))
        return self._lost_method if mandatory else method

    # -- answers ------------------------------------------------------------------------------------------------------

    def confirmed(self, tag: int, multiple: bool, *, is_ack: bool) -> None:
        unconfirmed, knowledge, routing = self._unconfirmed, self.world.knowledge, self.world.books.routing
        tags = [one for one in unconfirmed if one <= tag] if multiple else [tag]
        self._waits_since_ns = self.world.schedule.now_ns
        if not multiple and (oldest := next(iter(unconfirmed), tag)) != tag:  # they come in order
            raise Broken(f"client {self.client.number} got a confirm for {tag}, and none yet for {oldest}")
        for one in tags:
            found = unconfirmed.pop(one, None)
            if found is None:
                raise Broken(f"client {self.client.number} got a confirm for {one}, which is not outstanding")
            key, persistent, mandatory = found
            if key not in routing.seen:
                raise Broken(f"message {key.hex()} was confirmed before it was published")
            if mandatory and key in routing.unroutable and key not in self._returned:
                raise Broken(f"message {key.hex()} was confirmed before it was returned")
            self._returned.discard(key)
            if is_ack and key in routing.refused and key not in routing.again:
                raise Broken(f"message {key.hex()} was refused, and confirmed")
            disk = self.world.disk
            if not (is_ack or key in routing.refused or disk.is_troubled or disk.has_been_full):
                raise Broken(f"message {key.hex()} was refused to its publisher, and by no queue")
            knowledge.happened["confirm" if is_ack else "refusal"] += 1
            if is_ack and persistent:
                knowledge.confirm(key)

    def returned(self, method: Method, body: bytes) -> None:
        key = body[-KEY_SIZE:]
        self.world.knowledge.check(body)
        self.world.knowledge.happened["returned"] += 1
        if key not in self.world.books.routing.unroutable or key in self._returned:
            raise Broken(f"message {key.hex()} was returned, and was routed, or was returned before")
        if method["reply_code"] != 312 or method["routing_key"] != NOWHERE:
            raise Broken(f"message {key.hex()} was returned with {method.arguments}")
        self._returned.add(key)

    def _end_transaction(self) -> None:
        done, self._transaction = self._transaction, []
        if self.chance.random() < 0.8:
            self.ask("tx.commit", "tx.commit-ok", lambda _: self._committed(done))
        else:
            self.world.books.routing.never.update(key for key, _ in done)
            self.ask("tx.rollback", "tx.rollback-ok", lambda _: None)

    def _committed(self, done: list[tuple[bytes, bool]]) -> None:
        knowledge, routing = self.world.knowledge, self.world.books.routing
        knowledge.happened["commit of publishes"] += 1
        for key, persistent in done:
            if key not in routing.seen:
                raise Broken(f"message {key.hex()} was committed, and not published")
            if persistent:
                knowledge.confirm(key)


def make_heads(chance: Random, options: dict[str, Any]) -> list[tuple[bytes, bool]]:
    """Properties that it chooses among, and whether they say persistent."""
    heads = []
    for number in range(12):
        persistent = number == 0 or chance.random() < 0.8
        more: dict[str, Any] = {}
        if chance.random() < 0.3:
            more["message_id"] = f"message {number}"
        if (highest := options.get("priority_max")) is not None and chance.random() < 0.9:
            more["priority"] = chance.randint(0, min(255, highest + 1))
        if (expirations := options.get("expirations")) and chance.random() < 0.7:
            more["expiration"] = chance.choice(expirations)
        headers: dict[str, Any] = {}
        if (keys := options.get("last_value_keys")) is not None and chance.random() < 0.9:
            headers["key"] = f"key {chance.randrange(keys)}"
        if options.get("headers"):
            headers["of"] = chance.choice(("a", "b", "c"))
        if headers:
            more["headers"] = headers
        heads.append((properties(persistent=persistent, **more), persistent))
    return heads
