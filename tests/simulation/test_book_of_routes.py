"""The oracle's book of routes: bindings as they are told, and where a message has to go by them. See test_books.py."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from history import PUBLISHER, content_of
from simulator.books.routes import Routes, fits
from simulator.clients.knowledge import key_of
from simulator.ledger import Broken

from leveret.engine import BindingEvent, Envelope, EventKind, ExchangeEvent, PublishedEvent, QueueEvent
from leveret.engine.messages.field_table import Field

QUEUES = ("q", "r", "leased")


class RouteHistory:
    """Exchanges of four types and two queues, bindings that come and go, and publishes."""

    def __init__(self) -> None:
        self.committing: set[bytes] = set()
        self.book = Routes({"leased"}, self.committing)
        self.queues: dict[str, Any] = {name: SimpleNamespace(name=name, ready_count=0) for name in QUEUES}
        self.exchanges: dict[str, Any] = {}
        for queue in self.queues.values():
            self.book._queue(QueueEvent(EventKind.DECLARED, "/", queue.name, queue))
        for type_ in ("direct", "fanout", "topic", "headers", "x-odd"):
            self.declare(type_, type_)

    def declare(self, name: str, type_: str, alternate: str | None = None) -> None:
        exchange: Any = SimpleNamespace(name=name, type=type_, alternate=alternate, bindings={})
        self.exchanges[name] = exchange
        self.book._exchange(ExchangeEvent(EventKind.DECLARED, "/", name, exchange))

    def undeclare(self, name: str) -> None:
        """A queue or an exchange."""
        if name in self.queues:
            self.book._queue(QueueEvent(EventKind.UNDECLARED, "/", name, self.queues[name]))
        else:
            self.book._exchange(ExchangeEvent(EventKind.UNDECLARED, "/", name, self.exchanges[name]))

    def bind(self, source: str, destination: str, key: str = "", of: str | None = None, *, comes: bool = True) -> None:
        end = self.queues.get(destination) or self.exchanges[destination]
        arguments = {} if of is None else {"of": Field("S", of.encode())}
        identity = destination, key, of
        binding: Any = SimpleNamespace(
            source=self.exchanges[source], destination=end, routing_key=key, arguments=arguments, identity=identity
        )
        kind = EventKind.BOUND if comes else EventKind.UNBOUND
        self.book._binding(BindingEvent(kind, "/", destination, binding))

    def publish(self, exchange: str, key: str, to: str, of: str | None = None, cause: str | None = None) -> None:
        """Message 1 went to these queues, with spaces between their names."""
        queues: Any = tuple(self.queues[name] for name in to.split())
        contents = [content_of(1, None if of is None else {"of": Field("S", of.encode())})]
        self.book._published(PublishedEvent("/", exchange, [1], Envelope(exchange, key), contents, queues, cause))


def test_where_bindings_lead() -> None:
    """By each type of exchange, through one that is bound to another, and to an alternate."""
    told = RouteHistory()
    told.publish("", "q", "q")
    told.publish("", "nowhere", "")
    told.publish("direct", "a", "")
    told.bind("direct", "q", "a")
    told.bind("direct", "r", "b")
    told.publish("direct", "a", "q")
    told.bind("topic", "r", "a.#")
    told.publish("topic", "a.b", "r")
    told.bind("headers", "q", of="x")
    told.publish("headers", "", "q", "x")
    told.publish("headers", "", "", "y")
    told.bind("fanout", "direct")
    told.publish("fanout", "b", "r")
    told.declare("with alternate", "direct", "fanout")
    told.publish("with alternate", "a", "q")
    told.publish("x-odd", "a", "q r")  # nothing is known of it
    told.bind("direct", "leased", "a")
    told.publish("direct", "a", "q")  # nor of what a leased queue takes


def test_each_change_counts_at_once() -> None:
    """What was bound gets messages, what was unbound, or is gone, gets none."""
    told = RouteHistory()
    told.bind("fanout", "direct")
    for _ in range(2):
        told.bind("direct", "q", "a")
        told.publish("fanout", "a", "q")
        told.bind("direct", "q", "a", comes=False)
        told.publish("fanout", "a", "")
    told.bind("direct", "q", "a")
    told.bind("fanout", "direct", comes=False)
    told.publish("fanout", "a", "")
    told.undeclare("q")
    told.publish("direct", "a", "")


@pytest.mark.parametrize("to", ["", "r", "q r"])
def test_routes_says_no(to: str) -> None:
    told = RouteHistory()
    told.bind("direct", "q", "a")
    with pytest.raises(Broken, match="bindings lead to \\['q'\\]"):
        told.publish("direct", "a", to)


def test_what_was_routed_earlier_is_not_looked_at() -> None:
    """In a transaction a message is routed when it is published; of dead letters some may not go round in circles."""
    told = RouteHistory()
    told.publish("direct", "a", "q", cause="expired")
    told.committing.add(key_of(PUBLISHER, 0)[:4])
    told.publish("direct", "a", "q")


@pytest.mark.parametrize(("pattern", "key", "is_one"), [
    ("a.*", "a.b", True), ("a.*", "a", False), ("a.*", "a.b.c", False), ("a.#", "a", True), ("a.#", "a.b.c", True),
    ("#", "", True), ("*.d", "c.d", True), ("*.d", "d", False), ("#.d", "d", True), ("a", "b", False),
])  # fmt: skip
def test_topic_patterns(pattern: str, key: str, is_one: bool) -> None:
    assert fits(pattern.split("."), key.split(".")) is is_one
