"""The books of addresses that queues share and of what operators allow, beside a real broker."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from history import content_of, envelope_of
from simulator.books.addresses import SHARED, Addresses
from simulator.books.book import Book
from simulator.books.quotas import Quotas
from simulator.ledger import Broken

from leveret.engine import Event, PublishedEvent, Queue
from leveret.engine.connections import Connections
from leveret.engine.declared_queues import DeclaredQueues
from leveret.testing.harness import Harness

ADDRESS = SHARED[0]


class Shared:
    """Queues `a` and `b` take turns at an address; `c` is bound to the exchange of its name."""

    def __init__(self) -> None:
        self.harness = Harness()
        self.harness.vhost.exchanges.declare(ADDRESS, "fanout")
        self.a, self.b, self.c = (self.harness.queue(name, x_address=ADDRESS) for name in "abc")
        self.harness.bind("c", ADDRESS)
        self.book = Addresses()
        listen(self.harness, self.book)

    def came(self, *queues: Queue) -> None:
        """What the book is told of one message."""
        event = PublishedEvent("/", "", [1], envelope_of(routing_key=ADDRESS), [content_of(1)], queues)
        self.book.handlers()[PublishedEvent](event)


def listen(harness: Harness, book: Book) -> None:
    book.attach(harness.broker)
    handlers = book.handlers()

    def told(event: Event) -> None:
        if (handler := handlers.get(type(event))) is not None:
            handler(event)

    told.takes_mixed = False  # type: ignore[attr-defined]
    harness.broker.context.listeners.append(told)


@pytest.fixture
def shared() -> Iterator[Shared]:
    yield Shared()


def test_the_broker_takes_turns(shared: Shared) -> None:
    shared.harness.publish(*"123456", key=ADDRESS)
    assert [len(queue.store) for queue in (shared.a, shared.b, shared.c)] == [3, 3, 6]


@pytest.mark.parametrize(("sentence", "told"), [
    ("others had to wait longer", ["ac", "ac"]),
    ("others had to wait longer", ["ac", "bc", "bc"]),
    ("and not to \\['c'\\]", ["a"]),
    ("where 2 take turns", ["c"]),
    ("where 2 take turns", ["abc"]),
])  # fmt: skip
def test_addresses_say_no(sentence: str, told: list[str], shared: Shared) -> None:
    with pytest.raises(Broken, match=sentence):
        for names in told:
            shared.came(*(getattr(shared, name) for name in names))


@pytest.mark.parametrize("limits", [{"max_queues": 1}, {"max_connections": 1}, {}])
def test_quotas_say_no(limits: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """To one queue or connection of a virtual host too many, where the broker lets it in; or of a user."""
    harness = Harness()
    context = harness.vhost.context
    listen(harness, Quotas())
    harness.queue("a")
    before, context.limits = context.limits, replace(context.limits, **limits)
    user = replace(harness.client.user, max_connections=None if limits else 1)
    harness.broker.context.users.add(user)
    harness.client.user = user
    for where in (Connections, DeclaredQueues):
        monkeypatch.setattr(where, "_check_max", lambda *of: None)
    with pytest.raises(Broken, match="at most 1 are allowed"):
        if "max_queues" in limits:
            harness.queue("b")
        else:
            harness.broker.connections.open("/", user, name="second", flush=lambda: None)
    context.limits = before
