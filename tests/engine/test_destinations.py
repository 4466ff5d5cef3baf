"""Where each publish goes, whatever changed before it: against a router that walks over lists.

The publisher keeps its routes until they are stale, as frontends do. What is declared and bound is written down here
once more; nothing of it is asked of the broker. Source: behaviour page 2.1 to 2.5, 2.10, 3.9, 3.10, 3.14.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leveret.engine import Client, Queue, Route, reconfigure
from leveret.engine.messages.field_table import Field, FieldTable
from leveret.engine.rules.queue_rules import own_settings
from leveret.settings import Policies, Policy
from leveret.testing.harness import Harness, messages

KINDS = {"d": "direct", "e": "direct", "f": "fanout", "t": "topic", "h": "headers", "y": "x-delayed-message"}
EXCHANGES, QUEUES, KEYS = tuple(KINDS), ("q", "r", "s"), ("a", "b", "a.b")
PATTERNS = (*KEYS, "#", "a.*", "*.b")
#: Of bindings, and of messages: which of the headers x and y they have.
HEADERS = ("", "x", "y", "xy")


def table(names: str) -> FieldTable:
    return {name: Field("S", b"1") for name in names}


# -- the model --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Bound:
    """`to`: an exchange, or a queue, whose names differ."""

    source: str
    to: str
    key: str
    headers: str


@dataclass
class Model:
    """What is there: alternates by exchange, which exchanges go with their last binding, queues, bindings."""

    alternate: dict[str, str] = field(default_factory=dict)
    by_policy: dict[str, str] = field(default_factory=dict)
    temporary: set[str] = field(default_factory=set)
    queues: set[str] = field(default_factory=set)
    bindings: list[Bound] = field(default_factory=list)

    def unbind(self, gone: Callable[[Bound], bool]) -> None:
        """Exchanges that lose their last binding by that go, too, if they are temporary."""
        lost = [one for one in self.bindings if gone(one)]
        self.bindings = [one for one in self.bindings if not gone(one)]
        for source in dict.fromkeys(one.source for one in lost):
            if source in self.temporary and not any(one.source == source for one in self.bindings):
                self.delete_exchange(source)

    def delete_exchange(self, name: str) -> None:
        if self.alternate.pop(name, None) is not None:
            self.temporary.discard(name)
            self.bindings = [one for one in self.bindings if one.source != name]
            self.unbind(lambda one: one.to == name)

    def reached(self, start: str, keys: list[str], headers: str) -> set[str]:
        """The queues."""
        if not start:
            return self.queues.intersection(keys)
        found, left = {start}, [start]
        while left:
            name = left.pop()
            matching = [one.to for one in self.bindings if one.source == name and _takes(one, keys, headers)]
            if not matching:
                other = self.alternate[name] or self.by_policy.get(name, "")
                matching = [other] if other in self.alternate else []
            left += [one for one in matching if one not in found and one in self.alternate]
            found.update(matching)
        return found & self.queues


def _takes(bound: Bound, keys: list[str], headers: str) -> bool:
    kind = KINDS[bound.source]
    if kind == "headers":
        return set(bound.headers) <= set(headers)
    return kind == "fanout" or any(_matches(bound, key) for key in keys)


def _matches(bound: Bound, key: str) -> bool:
    return bound.key == key if KINDS[bound.source] == "direct" else _is_like(bound.key.split("."), key.split("."))


def _is_like(pattern: list[str], words: list[str]) -> bool:
    if not pattern or not words:
        return not words and set(pattern) <= {"#"}
    if pattern[0] == "#":
        return _is_like(pattern[1:], words) or _is_like(pattern, words[1:])
    return pattern[0] in ("*", words[0]) and _is_like(pattern[1:], words[1:])


# -- the broker -------------------------------------------------------------------------------------------------------


class World(Harness):
    """A broker, and a client that changes what is there and publishes."""

    def __init__(self) -> None:
        super().__init__()
        self.model = Model()
        self.kept: dict[tuple[str, str], Route] = {}

    # Each change takes two exchanges, a queue, a pattern and headers, and needs some of them.

    def declare_exchange(self, name: str, other: str, queue: str, key: str, headers: str) -> None:
        """With an alternate exchange, or going with its last binding."""
        if name in self.model.alternate:
            return
        arguments: FieldTable = {"x-delayed-type": Field("S", b"topic")} if name == "y" else {}
        if headers == "x":
            arguments["alternate-exchange"] = Field("S", other.encode())
        self.vhost.exchanges.declare(name, KINDS[name], auto_delete=headers == "y", arguments=arguments)
        self.model.alternate[name] = other if headers == "x" else ""
        if headers == "y":
            self.model.temporary.add(name)

    def delete_exchange(self, name: str, other: str, queue: str, key: str, headers: str) -> None:
        self.vhost.exchanges.delete(name)
        self.model.delete_exchange(name)

    def declare_queue(self, name: str, other: str, queue: str, key: str, headers: str) -> None:
        """It goes with its last consumer."""
        self.vhost.queues.declare(queue, client=self.client, auto_delete=True)
        self.model.queues.add(queue)

    def delete_queue(self, name: str, other: str, queue: str, key: str, headers: str) -> None:
        if headers and queue in self.model.queues:
            self.consume(queue, "t")
            self.session.cancel("t")
        else:
            self.vhost.queues.delete(queue, self.client)
        self.model.queues.discard(queue)
        self.model.unbind(lambda one: one.to == queue)

    def bind_queue(self, name: str, other: str, queue: str, key: str, headers: str) -> None:
        if name in self.model.alternate and queue in self.model.queues:
            self.vhost.bindings.add("queue", queue, name, key, table(headers))
            self._bind(Bound(name, queue, key, headers))

    def bind_exchange(self, name: str, other: str, queue: str, key: str, headers: str) -> None:
        if name in self.model.alternate and other in self.model.alternate:
            self.vhost.bindings.add("exchange", other, name, key, table(headers))
            self._bind(Bound(name, other, key, headers))

    def _bind(self, bound: Bound) -> None:
        if bound not in self.model.bindings:
            self.model.bindings.append(bound)

    def unbind_queue(self, name: str, other: str, queue: str, key: str, headers: str) -> None:
        self.vhost.bindings.remove("queue", queue, name, key, table(headers))
        self.model.unbind(lambda one: one == Bound(name, queue, key, headers))

    def unbind_exchange(self, name: str, other: str, queue: str, key: str, headers: str) -> None:
        self.vhost.bindings.remove("exchange", other, name, key, table(headers))
        self.model.unbind(lambda one: one == Bound(name, other, key, headers))

    def unbind_one(self, name: str, other: str, queue: str, key: str, headers: str) -> None:
        """One that is there."""
        if self.model.bindings:
            one = self.model.bindings[(EXCHANGES.index(name) * 7 + PATTERNS.index(key)) % len(self.model.bindings)]
            change = self.unbind_queue if one.to in QUEUES else self.unbind_exchange
            change(one.source, one.to, one.to, one.key, one.headers)

    def set_policy(self, name: str, other: str, queue: str, key: str, headers: str) -> None:
        """Another alternate exchange for one that was declared without."""
        self.model.by_policy = {} if headers == "xy" else {name: other}
        policies = [
            Policy(vhost="/", name="p", pattern=f"^{one}$", apply_to="exchanges", definition={"alternate-exchange": to})
            for one, to in self.model.by_policy.items()
        ]
        self.broker.reloading.replace_policies(Policies(policies))
        self.end_turn()

    def forget(self, name: str, other: str, queue: str, key: str, headers: str) -> None:
        """The publisher forgets its routes from an exchange, as one does that ends."""
        self.kept = {place: route for place, route in self.kept.items() if place[0] != name}

    # -- publishing -------------------------------------------------------------------------------------------------

    def route(self, key: str, exchange: str = "", client: Client | None = None) -> Route:
        """The one that is kept."""
        route = self.kept.get((exchange, key))
        if route is None or route.is_stale:
            route = self.kept[exchange, key] = super().route(key, exchange, client)
        return route

    def send(self, exchange: str, key: str, headers: str, copy: str = "") -> None:
        """It comes to the queues that the model says, once each; when there is none it comes back."""
        said: dict[str, Any] = {**table(headers), **({"CC": [copy]} if copy else {})}
        route = self.route(key, exchange)
        before = (route.exchange.published_in, route.exchange.published_out)
        returned = self.publish("m", key=key, exchange=exchange, mandatory=True, **({"headers": said} if said else {}))
        expected = self.model.reached(exchange, [key, copy] if copy else [key], headers)
        got = {name: len(list(queue.messages())) for name, queue in self.vhost.queues.items()}
        assert got == {name: name in expected for name in self.model.queues}, (exchange, key, headers, copy)
        assert bool(returned) is not bool(expected)
        after = (route.exchange.published_in, route.exchange.published_out)
        assert after == (before[0] + 1, before[1] + len(expected))
        for name in expected:
            self.vhost.queues[name].purge()

    def publish_all(self, copy: str) -> None:
        """By each route; one of each exchange also with a copy."""
        for name in ("", *self.model.alternate):
            for key in KEYS if name else QUEUES:
                for headers in HEADERS if name == "h" else ("x",):
                    self.send(name, key, headers)
            self.send(name, "a" if name else "q", "y", copy if name else "r")


Change = Callable[[World, str, str, str, str, str], None]
MAKING: tuple[Change, ...] = (World.bind_queue, World.bind_exchange)
ALL: tuple[Change, ...] = (
    *(4 * MAKING),
    *(4 * (World.unbind_one,)),
    World.declare_exchange,
    World.declare_queue,
    World.delete_exchange,
    World.delete_queue,
    World.unbind_queue,
    World.unbind_exchange,
    World.set_policy,
    *(2 * (World.forget,)),
)
EXCHANGE, QUEUE, PATTERN = (st.sampled_from(names) for names in (EXCHANGES, QUEUES, PATTERNS))
PLACE = st.tuples(EXCHANGE, EXCHANGE, QUEUE, PATTERN, st.sampled_from(HEADERS))


@settings(max_examples=60)
@given(
    st.lists(st.sampled_from(HEADERS), min_size=len(EXCHANGES), max_size=len(EXCHANGES)),
    st.lists(st.tuples(st.sampled_from(MAKING), PLACE), min_size=6, max_size=10),
    st.lists(st.tuples(st.sampled_from(ALL), PLACE), min_size=4, max_size=14),
)
def test_each_publish_goes_where_a_naive_router_says(
    kinds: list[str], there: list[tuple[Change, tuple[str, ...]]], changes: list[tuple[Change, tuple[str, ...]]]
) -> None:
    """Bindings, unbindings, deletions and policies, in whatever order, over exchanges that are bound to each other."""
    world = World()
    for at, (name, headers) in enumerate(zip(EXCHANGES, kinds)):
        world.declare_exchange(name, EXCHANGES[at - 1], "", "", headers)
    for queue in QUEUES:
        world.declare_queue("", "", queue, "", "")
    for change, place in there:
        change(world, *place)
    world.publish_all("b")
    for change, place in changes:
        change(world, *place)
        world.publish_all(place[3] if place[3] in KEYS else "b")


# -- each change that sends a key elsewhere ---------------------------------------------------------------------------


class Publisher(World):
    """A broker, and somebody who keeps its routes. `goes_to(...)`: the queues that a message comes to."""

    def lease(self, name: str, **arguments: str) -> Queue:
        return self.queue(name, x_queue_type="amps", **arguments)

    def goes_to(self, exchange: str, key: str) -> str:
        returned = self.publish("m", key=key, exchange=exchange, mandatory=True)
        found = [name for name, queue in self.vhost.queues.items() if queue.ready_count]
        assert bool(returned) is not bool(found)
        for name in found:
            self.vhost.queues[name].purge()
        self.end_turn()
        return " ".join(sorted(found))


def _address(*steps: str) -> Callable[[Publisher], Iterator[None]]:
    """Queues `s` and `z` have the address A; an exchange and a queue of that name come and go."""

    def change(publisher: Publisher) -> Iterator[None]:
        vhost = publisher.vhost
        for step in steps:
            what, name = step.split()
            if what == "declare":
                publisher.queue(name, **({} if name == "A" else {"x_address": "A"}))
            elif what == "delete":
                vhost.queues.delete(name, publisher.client)
            elif what == "bind":
                vhost.bindings.add("queue", name, "A", "k", {})
            elif what == "unbind":
                vhost.bindings.remove("queue", name, "A", "k", {})
            elif what == "make":
                vhost.exchanges.declare(name, "direct")
            else:
                vhost.exchanges.delete(name)
            yield

    return change


def _leased(publisher: Publisher) -> Iterator[None]:
    queue = publisher.lease("s", x_underlying_topic="A")
    yield
    publisher.lease("z", x_underlying_topic="^[AB]$", x_default_publish_target="A")
    yield
    reconfigure.redeclare(queue, {**queue.arguments, "x-underlying-topic": Field("S", b"C")}, own_settings({}))
    yield
    reconfigure.redeclare(queue, {**queue.arguments, "x-underlying-topic": Field("S", b"A")}, own_settings({}))
    yield
    reconfigure.redeclare(queue, {**queue.arguments, "x-queue-filter": Field("S", b"/n = 1")}, own_settings({}))
    yield
    publisher.vhost.queues.delete("z", publisher.client)
    yield
    publisher.vhost.queues.delete("s", publisher.client)
    yield


def _no_longer_leased(publisher: Publisher) -> Iterator[None]:
    publisher.lease("s", x_underlying_topic="A")
    publisher.lease("z", x_underlying_topic="^A$", x_default_publish_target="A")
    yield
    publisher.vhost.queues.delete("z", publisher.client)
    yield
    publisher.vhost.queues.delete("s", publisher.client)
    yield


def _closed(publisher: Publisher) -> Iterator[None]:
    queue = publisher.queue("A")
    yield
    reconfigure.enable(queue, False)
    yield
    reconfigure.enable(queue, True)
    yield


def _without_consumers(publisher: Publisher) -> Iterator[None]:
    publisher.queue("A", x_purge_on_no_consumers=True)
    yield
    publisher.session.set_flowing(False)
    publisher.consume("A", "t")
    yield
    publisher.session.cancel("t")
    yield


def _filtered(publisher: Publisher) -> Iterator[None]:
    queue = publisher.queue("A", x_selector="n = 1")
    yield
    reconfigure.redeclare(queue, {}, own_settings({}))
    yield
    reconfigure.redeclare(queue, {"x-selector": Field("S", b"n = 1")}, own_settings({}))
    yield
    publisher.vhost.queues.delete("A", publisher.client)
    publisher.queue("A")
    yield


@pytest.mark.parametrize(
    "exchange, key, change, expected",
    [
        ("", "A", _address("declare s", "delete s"), ["s", ""]),
        ("", "A", _address("declare s", "declare A", "delete A"), ["s", "A", "s"]),
        ("", "A", _address("declare A", "declare s", "make A", "bind s"), ["A", "A", "A", "A s"]),
        ("", "A", _address("declare A", "declare s", "make A", "bind s", "unbind s"), ["A", "A", "A", "A s", "A"]),
        ("", "A", _address("declare A", "declare s", "make A", "bind s", "drop A"), ["A", "A", "A", "A s", "A"]),
        ("", "A", _address("declare s", "make A", "bind s", "declare z"), ["s", "s", "s", "s z"]),
        ("", "A", _address("make A", "declare s", "bind s", "delete s", "declare s"), ["", "s", "s", "", "s"]),
        ("", "s", _address("declare s", "make A", "bind s", "delete s"), ["s", "s", "s", ""]),
        ("", "A", _leased, ["s", "s z", "z", "s z", "z", "", ""]),
        ("", "A", _no_longer_leased, ["s z", "s", ""]),
        ("", "A", _closed, ["A", "", "A"]),
        ("", "A", _without_consumers, ["", "A", ""]),
        ("", "A", _filtered, ["", "A", "", "A"]),
    ],
)
def test_a_publisher_at_work_follows(
    exchange: str, key: str, change: Callable[[Publisher], Iterator[None]], expected: list[str]
) -> None:
    """The next message goes where it should after each step, by the route that was used before it."""
    publisher = Publisher()
    assert publisher.goes_to(exchange, key) == ""
    seen = [publisher.goes_to(exchange, key) for _ in change(publisher)]
    assert seen == expected


def test_a_closed_queue_of_an_address_has_no_turn() -> None:
    """The other queue of the address gets all; none is lost."""
    publisher = Publisher()
    for name in "sz":
        publisher.queue(name, x_address="A")
    reconfigure.enable(publisher.named("s"), False)
    assert [publisher.goes_to("", "A") for _ in range(4)] == ["z"] * 4


def test_a_message_that_waits_for_room_has_its_turn_later() -> None:
    """Each but the first is tried twice, before and after there is room: the queues take turns nevertheless."""
    harness = Harness('[[address-setting]]\nmatch = "A"\naddress-full-policy = "BLOCK"\nmax-size-messages = 1\n')
    for name in "sz":
        harness.queue(name, x_address="A")
    summary, contents = messages(["m"], {})

    def is_taken() -> bool:
        route, envelope = harness.route("A"), harness.envelope("", "A", summary)
        return harness.session.publish_with_room(route, envelope, contents, mandatory=False).taken == 1

    seen = []
    for _ in range(4):
        assert is_taken()
        assert not is_taken()
        seen.append([name for name in "sz" if harness.named(name).purge()])
    assert seen == [["s"], ["z"], ["s"], ["z"]]


def test_queues_with_filters_that_are_gone_cost_nothing() -> None:
    """While there is none, a route says where messages go, and none of them is looked at."""
    publisher = Publisher()
    for name in ("A", "s"):
        publisher.queue(name, x_selector="n = 1")
        assert publisher.goes_to("", name) == ""
    publisher.vhost.queues.delete("A", publisher.client)
    reconfigure.redeclare(publisher.vhost.queues.named("s"), {}, own_settings({}))
    router = publisher.vhost.router  # what is remembered of them is seen nowhere else
    assert not router._filtering


@pytest.mark.parametrize("source", ["there", "missing"])
@pytest.mark.parametrize("destination", ["there", "missing"])
@pytest.mark.parametrize("key", ["bound", "not bound"])
def test_unbinding_what_is_missing_is_fine(source: str, destination: str, key: str) -> None:
    """Exchange, queue or binding (behaviour page 2.2): nothing else changes."""
    publisher = Publisher()
    vhost = publisher.vhost
    publisher.queue("there")
    for name in ("there", "other"):
        vhost.exchanges.declare(name, "direct")
    vhost.bindings.add("queue", "there", "there", "bound", {})
    vhost.bindings.add("queue", "there", "other", "bound", {})
    vhost.bindings.add("exchange", "other", "there", "bound to exchange", {})
    vhost.bindings.remove("queue", destination, source, key, {})
    is_gone = (source, destination, key) == ("there", "there", "bound")
    assert publisher.goes_to("there", "bound") == ("" if is_gone else "there")
    vhost.bindings.remove(
        "exchange", "missing" if destination == "missing" else "other", source, f"{key} to exchange", {}
    )
    assert vhost.bindings.count == 3 - 2 * is_gone
