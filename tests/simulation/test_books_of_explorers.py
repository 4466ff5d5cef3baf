"""The books of addresses that queues share, of limits and of what operators allow, beside a real broker."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from history import FakeClock, content_of, envelope_of
from simulator.books.addresses import SHARED, Addresses
from simulator.books.book import Book
from simulator.books.flow import Flow
from simulator.books.lifetimes import Lifetimes
from simulator.books.limits import Limits
from simulator.books.quotas import Quotas
from simulator.books.whereabouts import Whereabouts
from simulator.ledger import Broken
from simulator.parts import Plan

from leveret.engine import Consumer, Event, EventKind, PublishedEvent, Queue
from leveret.engine.connections import Connections
from leveret.engine.declared_queues import DeclaredQueues
from leveret.engine.flow.control import BlockedEvent
from leveret.engine.flow.tree import UsageTree
from leveret.testing.harness import Harness

ADDRESS = SHARED[0]
LIVES = '[[address-setting]]\nmatch = "brief"\nexpiry-delay = 150\n'


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


def test_turns_go_on_beside_a_queue_that_takes_some_messages(shared: Shared) -> None:
    """Which of them it takes the book does not know, but who else had a turn, also when that queue is gone."""
    harness = shared.harness
    harness.publish(*"12", key=ADDRESS)
    harness.queue("chosen", x_address=ADDRESS, x_selector="of = 'a'")
    harness.publish(*"345", key=ADDRESS)
    harness.publish("6", key=ADDRESS, headers={"of": "a"})
    harness.vhost.queues.delete("chosen", harness.client)
    harness.publish(*"78", key=ADDRESS)
    assert [len(queue.store) for queue in (shared.a, shared.b)] == [4, 3]


def test_turns_beside_a_queue_that_takes_some_messages_are_held_to(shared: Shared) -> None:
    chosen = shared.harness.queue("chosen", x_address=ADDRESS, x_selector="of = 'a'")
    for queue in (shared.a, shared.b, chosen):
        shared.came(queue, shared.c)
    with pytest.raises(Broken, match="others had to wait longer"):
        shared.came(shared.b, shared.c)


def test_a_copy_for_all_is_no_turn(shared: Shared) -> None:
    """Of a message that goes to other keys, too: what is bound gets everything, and has its turn when it is not."""
    harness = shared.harness
    harness.publish("1", key=ADDRESS, headers={"CC": ["elsewhere"]})
    harness.vhost.bindings.remove("queue", "c", ADDRESS, "", {})
    harness.publish(*"234", key=ADDRESS)
    assert [len(queue.store) for queue in (shared.a, shared.b, shared.c)] == [2, 1, 2]


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


SUBSCRIBER = """[[address-setting]]
match = "e.#"
pending-message-limit-prefetch-rate = 0.5
"""


@pytest.mark.parametrize("is_wrong", [False, True])
@pytest.mark.parametrize(("no_ack", "prefetch"), [(True, 4), (False, 4), (False, 0)])
def test_limits_of_subscribers(no_ack: bool, prefetch: int, is_wrong: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A multiple of the prefetch is no limit where there is none; `is_wrong`: the broker takes it for four always."""
    harness = Harness(SUBSCRIBER)
    where = Whereabouts(Plan(1, 1.0, ""))
    listen(harness, Limits(where))
    listen(harness, where)
    if is_wrong:
        prefetch_of: Callable[[Consumer], int] = lambda consumer: 4  # noqa: E731
        monkeypatch.setattr("leveret.engine.queues.bounds._prefetch_of", prefetch_of)
    harness.queue("e.listener", durable=False, auto_delete=True)
    harness.session.set_flowing(False)
    harness.consume("e.listener", prefetch=prefetch, no_ack=no_ack)
    if is_wrong and (no_ack or not prefetch):
        with pytest.raises(Broken, match="waiting of None"):
            harness.publish(*"12345", key="e.listener")
    else:
        harness.publish(*"12345", key="e.listener")
        assert len(where.places["/", "e.listener"].ready) == (2 if prefetch and not no_ack else 5)


@pytest.mark.parametrize("is_wrong", [False, True])
@pytest.mark.parametrize("limit", ["size = 0", "messages = 1"])
def test_a_limit_of_all_says_no(limit: str, is_wrong: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """One message reaches it, whichever of the addresses has it."""
    policy = '[[address-setting]]\nmatch = "e.*"\naddress-full-policy = "FAIL"\n'
    harness = Harness(f"[broker]\nglobal-max-{limit}\n{policy}")
    where = Whereabouts(Plan(1, 1.0, ""))
    listen(harness, Limits(where, 1))
    listen(harness, where)
    if is_wrong:
        monkeypatch.setattr(UsageTree, "is_at_whole_limit", False)
    harness.queue("e.plain")
    harness.queue("e.other")
    harness.publish("1", key="e.plain")
    if is_wrong:
        with pytest.raises(Broken, match="1 are there of 1 in all"):
            harness.publish("2", key="e.other")
        harness.broker.context.listeners.clear()
        harness.vhost.queues.remove(harness.vhost.queues["e.other"])  # of which its meter knows half
    else:
        harness.publish("2", key="e.other")
        assert not where.places["/", "e.other"].ready


def test_channels_of_a_user_are_those_of_all_its_connections() -> None:
    """More than its limit may be there if that came later; then none is opened."""
    harness, book = Harness(), Quotas()
    book.attach(harness.broker)

    def limit(most: int | None) -> None:
        for client in harness.broker.connections:
            client.user = replace(client.user, max_channels=most)
        book.turn_ended()

    harness.connect()
    limit(1)
    other = next(iter(harness.connect().client.sessions))
    other.client.user = harness.client.user
    with pytest.raises(Broken, match="there are 3 channels of .*, at most 1 are"):
        book.turn_ended()
    limit(2)
    other.client.sessions.clear()
    book.turn_ended()
    book.turn_ended()


def test_the_dead_live_as_long_as_their_address_says() -> None:
    harness = Harness(settings=LIVES)
    harness.queue("q", x_dead_letter_exchange="", x_dead_letter_routing_key="brief")
    harness.queue("brief")
    listen(harness, book := Lifetimes())
    harness.publish("A", "B", key="q")
    harness.publish("C", key="q", expiration="90")
    for _ in range(3):
        got = harness.get(no_ack=False)
        assert got is not None
        harness.session.reject(got[0], requeue=False)
    harness.end_turn()
    assert harness.named("brief").ready_count == 3
    told = book.handlers()[PublishedEvent]
    envelope = envelope_of(routing_key="brief")
    told(PublishedEvent("/", "", [1], envelope, [content_of(1)], (), None))  # frontends have policies of their own
    told(PublishedEvent("/", "", [1], envelope.with_expiration(150), [content_of(1)], (), "rejected"))
    for lives_ms in (None, 149):
        with pytest.raises(Broken, match=f"came to brief for {lives_ms} ms, not 150"):
            told(PublishedEvent("/", "", [1], envelope.with_expiration(lives_ms), [content_of(1)], (), "rejected"))


@pytest.mark.parametrize(("sentence", "steps"), [
    (None, ["BLOCKED", "UNBLOCKED", "BLOCKED"]),
    ("is blocked by the size of here twice", ["BLOCKED", "BLOCKED"]),
    (None, ["BLOCKED", "gone", "BLOCKED", "UNBLOCKED", "UNBLOCKED"]),
    ("twice", ["BLOCKED", "gone", "BLOCKED", "BLOCKED"]),
    (None, ["BLOCKED", "tries", "BLOCKED", "UNBLOCKED", "UNBLOCKED"]),
    ("twice", ["BLOCKED", "tries", "BLOCKED", "BLOCKED"]),
    ("and was not blocked", ["BLOCKED", "tries", "BLOCKED", "UNBLOCKED", "UNBLOCKED", "UNBLOCKED"]),
    ("waited 5 ms, its event says 0", ["BLOCKED", "later", "UNBLOCKED"]),
])  # fmt: skip
def test_a_client_waits_for_a_limit_once(sentence: str | None, steps: list[str]) -> None:
    """But for one that is gone (world 39020067): its waiters have their turn, and may wait for the next one before."""
    client: Any = object()
    limit = SimpleNamespace(destination="here", limit_name="size", limit=7, is_limit=True)
    waits = {"w": (limit, client)}
    control = SimpleNamespace(_waits=waits, _resuming=None)
    clock = FakeClock()
    book = Flow(clock, Counter())  # type: ignore[arg-type]
    book.attach(SimpleNamespace(flow=control, context=SimpleNamespace(listeners=[])))  # type: ignore[arg-type]
    with nullcontext() if sentence is None else pytest.raises(Broken, match=sentence):
        for step in steps:
            if step == "gone":
                limit.limit = 0
            elif step == "tries":
                waits.clear()
                control._resuming = client
            elif step == "later":
                clock.now_ns += 5_000_000
            else:
                book.handlers()[BlockedEvent](BlockedEvent(EventKind[step], "/", "c", client, "here", "size", 0))
