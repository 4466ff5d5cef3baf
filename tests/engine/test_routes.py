"""Routes that frontends keep: they say themselves when they are stale, and a change touches no others.

What they must be is written down once more, slowly, from the bindings that are there (behaviour page 2.3, 2.10, 3.9).
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from types import MappingProxyType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from steps import steps

from leveret.engine import Envelope, Grant, Permissions, Queue, Route, User, VirtualHost
from leveret.engine.exchanges.exchange import Binding, Exchange
from leveret.engine.exchanges.routed import Routed
from leveret.engine.exchanges.topic import split
from leveret.engine.messages.content import NATIVE, encode_header, scan_properties
from leveret.engine.messages.field_table import Field, FieldTable
from leveret.engine.queues.reconfigure import enable, redeclare
from leveret.settings import Divert, Policies, Policy, SettingsRepository, entry
from leveret.settings.rows.address_settings import NOTHING_SET
from leveret.testing.harness import Harness

TWICE = 2.2
NAMES = ("d", "f", "t", "h", "y")
QUEUES = ("q", "a", "a.b", "p")  # some of them are routing keys, p takes nothing without a consumer
KEYS = ("a", "b", "a.b", "q", "p", "d")
PATTERNS = ("a", "a.b", "a.*", "#", "*.b", "#.b", "*")


def text(value: str) -> Field:
    """A long string."""
    return Field("S", value.encode())


# -- what routes must be ----------------------------------------------------------------------------------------------


def matches(pattern: list[str], words: list[str]) -> bool:
    """Topic patterns as they are defined."""
    if not pattern:
        return not words
    if pattern[0] == "#":
        return matches(pattern[1:], words) or (bool(words) and matches(pattern, words[1:]))
    return bool(words) and pattern[0] in ("*", words[0]) and matches(pattern[1:], words[1:])


def takes(binding: Binding, key: str) -> bool:
    """Whether a binding of a type that looks at keys takes this one."""
    kind = binding.source.type
    if kind == "x-delayed-message":
        kind = binding.source.arguments["x-delayed-type"].text
    if kind == "topic":
        return matches(split(binding.routing_key), split(key))
    return kind == "fanout" or binding.routing_key == key


def expected(vhost: VirtualHost, start: str, key: str) -> set[Queue] | None:
    """The queues, if open; None where it depends on the message."""
    if not start:
        sharing = [one for one in vhost.queues.values() if one.address == key != one.name]
        found = {one for one in vhost.queues.values() if one.name == key or one in sharing}
        anycast = [one for one in sharing if not any(binding.source.name == key for binding in one.incoming)]
        if len(sharing) > 1:
            return None
        if key in vhost.queues:
            found -= set(anycast)
        return found
    reached: set[Queue] = set()
    seen: list[Exchange] = []
    left = [vhost.exchanges[start]]
    while left:
        exchange = left.pop()
        if exchange in seen:
            continue
        seen.append(exchange)
        if exchange.type == "headers":
            return None
        bindings = exchange.bindings.values() if exchange.name else ()
        targets = [binding.destination for binding in bindings if takes(binding, key)]
        if not targets and exchange.alternate in vhost.exchanges:
            targets = [vhost.exchanges[exchange.alternate]]
        reached.update(one for one in targets if isinstance(one, Queue))
        left += [one for one in targets if isinstance(one, Exchange)]
    return reached


# -- any change -------------------------------------------------------------------------------------------------------


class World(Harness):
    """A broker, a client, and every route that a frontend could have looked up."""

    def __init__(self) -> None:
        super().__init__(user=User("u"))
        self.held: dict[tuple[str, str], Route] = {}
        self.diverts: list[Divert] = []
        self.settings = SettingsRepository()
        self.look_up()

    def look_up(self) -> None:
        """Look up what is not held, or stale."""
        for name in ("", *NAMES):
            for key in KEYS:
                held = self.held.get((name, key))
                if name in self.vhost.exchanges and (held is None or held.is_stale):
                    self.held[name, key] = self.vhost.router.route(name, key, self.client.user)

    def check(self) -> None:
        """Whatever is not stale is right."""
        for (name, key), route in self.held.items():
            if not route.is_stale:
                assert route.exchange is self.vhost.exchanges.get(name), (name, key)
                reached = expected(self.vhost, name, key)
                is_open = reached is not None and not any(queue.is_open and queue.rules.filter for queue in reached)
                if route.queues is not None or is_open and not any(queue.rules.filter for queue in reached or ()):
                    assert reached is not None and is_open and route.queues is not None, (name, key)
                    assert set(route.queues) == {queue for queue in reached if queue.is_open}, (name, key)
                diverts = tuple(one for one in self.diverts if one.address == (name or key))
                says = self.settings.resolve(name or key, "/").enable_ingress_timestamp
                assert (route.arrival is not None) == bool(diverts or says), (name, key)
                if route.arrival is not None:
                    assert (route.arrival.diverts, route.arrival.has_ingress_timestamp) == (diverts, says), (name, key)

    # -- the changes ------------------------------------------------------------------------------------------------

    def declare_exchange(self, name: str, other: str, key: str) -> None:
        """Of the type of its letter, sometimes with an alternate exchange, or going with its last binding."""
        kinds = {"d": "direct", "f": "fanout", "t": "topic", "h": "headers", "y": "x-delayed-message"}
        arguments: FieldTable = {"x-delayed-type": text("topic")} if name == "y" else {}
        if key in ("a", "b"):
            arguments["alternate-exchange"] = text(other)
        if name not in self.vhost.exchanges:
            self.vhost.exchanges.declare(name, kinds[name], auto_delete=key == "q", arguments=arguments)

    def delete_exchange(self, name: str, other: str, key: str) -> None:
        self.vhost.exchanges.delete(name)

    def declare_queue(self, name: str, other: str, key: str) -> None:
        """Sometimes at the address of another queue, or of an exchange."""
        queue = QUEUES[NAMES.index(name) % len(QUEUES)]
        arguments = {"x-purge-on-no-consumers": Field("t", True)} if queue == "p" else {}
        if key in ("a", "d"):
            arguments["x-address"] = text(key)
        if queue not in self.vhost.queues:
            self.vhost.queues.declare(queue, client=self.client, arguments=arguments, auto_delete=key == "b")

    def delete_queue(self, name: str, other: str, key: str) -> None:
        self.vhost.queues.delete(QUEUES[NAMES.index(name) % len(QUEUES)], self.client)

    def bind_queue(self, name: str, other: str, key: str) -> None:
        queue = QUEUES[NAMES.index(other) % len(QUEUES)]
        if name in self.vhost.exchanges and queue in self.vhost.queues:
            self.vhost.bindings.add("queue", queue, name, key, {})

    def unbind_queue(self, name: str, other: str, key: str) -> None:
        self.vhost.bindings.remove("queue", QUEUES[NAMES.index(other) % len(QUEUES)], name, key, {})

    def bind_exchange(self, name: str, other: str, key: str) -> None:
        if name in self.vhost.exchanges and other in self.vhost.exchanges:
            self.vhost.bindings.add("exchange", other, name, key, {})

    def unbind_exchange(self, name: str, other: str, key: str) -> None:
        self.vhost.bindings.remove("exchange", other, name, key, {})

    def subscribe(self, name: str, other: str, key: str) -> None:
        """Auto-delete queues go with their consumer, and `p` takes messages only while it has one."""
        queue = QUEUES[NAMES.index(name) % len(QUEUES)]
        if queue in self.session.consumers:
            self.session.cancel(queue)
        elif queue in self.vhost.queues:
            self.session.consume(self.vhost.queues[queue], queue, no_ack=True, exclusive=False, arguments={})

    def set_policy(self, name: str, other: str, key: str) -> None:
        """Another alternate exchange for some."""
        definition = {"alternate-exchange": other}
        policy = Policy(vhost="/", name="p", pattern=f"^{name}$", apply_to="exchanges", definition=definition)
        self.broker.reloading.replace_policies(Policies([policy] if key != "q" else []))

    def change_user(self, name: str, other: str, key: str) -> None:
        """Permissions count as topology."""
        grant = Permissions(Grant(".*", ".*", ".*"), user="u", vhost="/")
        self.broker.connections.replace_user(User("u", permissions=MappingProxyType({"/": grant})))
        assert all(route.is_stale for route in self.held.values())

    def disable(self, name: str, other: str, key: str) -> None:
        queue = self.vhost.queues.get(QUEUES[NAMES.index(name) % len(QUEUES)])
        if queue is not None:
            enable(queue, not queue.enabled)

    def filter(self, name: str, other: str, key: str) -> None:
        """Another filter of a queue, or none."""
        queue = self.vhost.queues.get(QUEUES[NAMES.index(name) % len(QUEUES)])
        if queue is not None:
            redeclare(queue, {"x-selector": text("c = '1'")} if other == "d" else {}, NOTHING_SET)

    def divert(self, name: str, other: str, key: str) -> None:
        """Messages to an exchange or a queue also go elsewhere."""
        self.diverts = [Divert("one", address, ("elsewhere",)) for address in (name, key) if name != other]
        self.broker.reloading.replace_diverts(self.diverts)

    def change_settings(self, name: str, other: str, key: str) -> None:
        """Messages to an exchange or a queue get their time of arrival."""
        self.settings = SettingsRepository([entry(one, enable_ingress_timestamp=True) for one in (name, key)])
        self.broker.reloading.replace_settings(self.settings)


Change = Callable[[World, str, str, str], None]
MAKING: tuple[Change, ...] = (World.declare_exchange, World.declare_queue, World.bind_queue, World.bind_exchange)
OTHERS: tuple[Change, ...] = (
    World.delete_exchange,
    World.delete_queue,
    World.unbind_queue,
    World.unbind_exchange,
    World.subscribe,
    World.set_policy,
    World.change_user,
    World.disable,
    World.filter,
    World.divert,
    World.change_settings,
)
NAME = st.sampled_from(("d", "d", "t", "t", "f", "y", "h"))
STEP = st.tuples(st.sampled_from(2 * MAKING + OTHERS), NAME, NAME, st.sampled_from((*KEYS, *PATTERNS)))


@settings(max_examples=250)
@given(st.lists(st.tuples(NAME, NAME, st.sampled_from(KEYS)), min_size=6, max_size=12), st.lists(STEP, max_size=40))
def test_routes_that_are_kept_are_those_that_would_be_found(
    there: list[tuple[str, str, str]], changes: list[tuple[Change, str, str, str]]
) -> None:
    """After any change every route that is not stale leads where a look-up in the bindings leads."""
    world = World()
    start = [(change, *place) for change in MAKING for place in there]
    for change, name, other, key in [*start, *changes]:
        change(world, name, other, key)
        world.check()
        world.look_up()
        world.check()


# -- what is not touched ----------------------------------------------------------------------------------------------


@pytest.fixture
def world() -> World:
    """A virtual host with one exchange of each type, each bound to `q` by `a.b`."""
    world = World()
    world.declare_queue("d", "d", "q")
    for name in NAMES:
        world.declare_exchange(name, name, "p")
        world.bind_queue(name, "d", "a.b")
    world.look_up()
    return world


def stale(world: World) -> set[tuple[str, str]]:
    """What is, of all routes; they are looked up anew."""
    found = {place for place, route in world.held.items() if route.is_stale}
    world.look_up()
    return found


def test_a_queue_that_comes_and_goes_touches_the_key_of_its_name(world: World) -> None:
    """On the default exchange, and nothing else."""
    world.vhost.queues.declare("a", client=world.client)
    assert stale(world) == {("", "a")}
    world.vhost.queues.delete("a", world.client)
    assert stale(world) == {("", "a")}
    world.vhost.queues.declare("reply", client=world.client)
    world.vhost.queues.delete("reply", world.client)
    assert not stale(world)


@pytest.mark.parametrize(
    "exchange, key, touched",
    [
        ("d", "b", {"b"}),
        ("d", "nobody", set()),
        ("t", "b", {"b"}),
        ("t", "nobody.*", set()),
        ("t", "a.*", {"a", "a.b"}),
        ("t", "a.#", {"a", "a.b"}),
        ("t", "#.nobody", set(KEYS)),
        ("t", "*.b", {"a.b"}),
        ("y", "nobody.#", set()),
        ("f", "b", set(KEYS)),
        ("h", "b", set()),
    ],
)
def test_a_binding_touches_what_it_may_match(world: World, exchange: str, key: str, touched: set[str]) -> None:
    """Direct: its key. Topic: keys that begin alike. Fanout: all. Headers: each message is looked at anyway."""
    for change in (World.bind_queue, World.unbind_queue):
        change(world, exchange, "d", key)
        assert stale(world) == {(exchange, one) for one in touched}


def test_changes_behind_other_exchanges_touch_what_comes_by(world: World) -> None:
    """d sends `a` to t; t is the alternate exchange of z: both are concerned, each with what comes by.

    An exchange that is new concerns all that begins where it is the alternate exchange.
    """
    vhost = world.vhost
    world.bind_exchange("d", "t", "a")
    vhost.exchanges.declare("z", "direct", arguments={"alternate-exchange": text("t")})
    vhost.bindings.add("queue", "q", "z", "b", {})
    held = {key: vhost.router.route("z", key, world.client.user) for key in KEYS}
    stale(world)
    world.bind_queue("t", "d", "a")
    assert stale(world) == {("t", "a"), ("d", "a")}
    assert {key for key, route in held.items() if route.is_stale} == {"a"}
    vhost.bindings.add("queue", "q", "t", "b", {})
    assert not held["b"].is_stale
    vhost.exchanges.delete("t")
    assert {key for key, route in held.items() if route.is_stale} == set(KEYS) - {"b"}
    held = {key: vhost.router.route("z", key, world.client.user) for key in KEYS}
    vhost.exchanges.declare("t", "topic")
    assert all(route.is_stale for route in held.values())


@pytest.mark.parametrize("pattern", ["k.#", "#", "*"])
def test_a_pattern_behind_another_exchange_touches_what_comes_by(world: World, pattern: str) -> None:
    """d sends `k` to t, where no route of this key begins: what a pattern of t may match is looked up again."""
    world.bind_exchange("d", "t", "k")
    for change in (World.bind_queue, World.unbind_queue):
        route = world.vhost.router.route("d", "k", world.client.user)
        change(world, "t", "d", pattern)
        assert route.is_stale


def test_policies_and_permissions_touch_all(world: World) -> None:
    """Both are rare, and say something of any exchange."""
    everything = set(world.held)
    world.set_policy("d", "f", "a")
    assert stale(world) == everything
    assert world.held["d", "b"].queues == [world.vhost.queues["q"]]
    world.change_user("d", "d", "a")
    assert stale(world) == everything


def test_one_route_for_all_that_ask_and_nothing_remembered_of_it_when_they_forget(world: World) -> None:
    """Registrations are as many as routes that somebody has, in every exchange that they lead through."""
    vhost, user = world.vhost, world.client.user
    world.bind_exchange("t", "d", "#")
    world.look_up()
    assert vhost.router.route("t", "a", user) is world.held["t", "a"]
    before = [len(exchange.routes) for exchange in vhost.exchanges.values()]
    gc.disable()
    try:
        for number in range(1_000):
            for name in ("", *NAMES):
                vhost.router.route(name, f"new.{number}", user)
        assert [len(exchange.routes) for exchange in vhost.exchanges.values()] == before
        world.held.clear()
        assert not any(len(exchange.routes) for exchange in vhost.exchanges.values())
        assert not any(exchange.routes._passing for exchange in vhost.exchanges.values())
    finally:
        gc.enable()


# -- how much work it is ----------------------------------------------------------------------------------------------


def crowd(kind: str, count: int) -> World:
    """An exchange of this type with so many bindings, all of them to `q`; the default one: so many queues."""
    world = World()
    world.declare_queue("d", "d", "q")
    for number in range(count):
        if not kind:
            world.vhost.queues.declare(f"q.{number}", client=world.client)
        elif kind == "amq.headers":
            world.vhost.bindings.add("queue", "q", kind, f"{number}", {"h": Field("I", number % 5)})
        else:
            world.vhost.bindings.add("queue", "q", kind, f"q.{number}" + ("", ".*", ".#", ".#.a")[number % 4], {})
    return world


@pytest.mark.parametrize("kind", ["", "amq.direct", "amq.topic", "amq.headers"])
def test_a_new_key_costs_the_same_whatever_is_bound(kind: str) -> None:
    """Direct and default: one look-up. Topic: the words. Headers: the distinct sets, for each message."""
    header = encode_header(0, {"headers": {"h": Field("I", 3)}})
    facts = scan_properties(header[12:])
    message = Routed(("k",), Envelope("amq.headers", "k", facts), NATIVE.join(header, b""))

    def work(count: int) -> int:
        vhost = crowd(kind, count).vhost
        exchange = vhost.exchanges[kind]
        if kind == "amq.headers":
            assert [queue.name for queue in vhost.router.reach(exchange, message)] == ["q"]
            return steps(lambda: vhost.router.reach(exchange, message))
        vhost.router.route(kind, "q.0", User("u"))
        return steps(lambda: vhost.router.route(kind, f"q.{count - 4}", User("u")))

    assert work(2_000) <= work(20) + 5


def test_bindings_and_queues_among_many_cost_the_same() -> None:
    """Of one queue: another binding, to the same and to another exchange, and its end; beside others that have many."""

    def work(count: int) -> list[int]:
        world = crowd("amq.direct", count)
        vhost, client = world.vhost, world.client
        vhost.queues.declare("other", client=client)
        return [
            steps(lambda: vhost.bindings.add("queue", "q", "amq.topic", "k.*", {}, client)),
            steps(lambda: vhost.bindings.add("queue", "q", "amq.direct", "k", {}, client)),
            steps(lambda: vhost.bindings.remove("queue", "q", "amq.direct", "k", {}, client)),
            steps(lambda: vhost.bindings.add("queue", "other", "amq.direct", "k", {}, client)),
            steps(lambda: vhost.queues.delete("other", client)),
        ]

    assert all(many <= few + 5 for many, few in zip(work(2_000), work(20), strict=True))


def test_the_end_of_a_queue_costs_its_bindings() -> None:
    """Twice the bindings: twice the work."""

    def work(count: int) -> int:
        world = crowd("amq.topic", count)
        return steps(lambda: world.vhost.queues.delete("q", world.client))

    assert work(800) <= TWICE * work(400)


def test_equal_headers_bindings_are_one_condition() -> None:
    """However many queues ask for the same; each is reached, and gone with its own binding."""
    world = World()
    vhost, client = world.vhost, world.client
    for name in ("one", "two"):
        vhost.queues.declare(name, client=client)
        vhost.bindings.add("queue", name, "amq.headers", "", {"h": Field("I", 3), "x-match": text("any")})
        vhost.bindings.add("queue", name, "amq.headers", "k", {"x-match": text("any"), "h": Field("l", 3)})
    header = encode_header(0, {"headers": {"h": Field("I", 3)}})
    envelope = Envelope("amq.headers", "", scan_properties(header[12:]))
    message = Routed(("",), envelope, NATIVE.join(header, b""))

    def reached() -> list[str]:
        return [queue.name for queue in vhost.router.reach(vhost.exchanges["amq.headers"], message)]

    assert reached() == ["one", "two"]
    vhost.bindings.remove("queue", "one", "amq.headers", "", {"h": Field("I", 3), "x-match": text("any")})
    assert reached() == ["one", "two"]
    vhost.queues.delete("one", client)
    assert reached() == ["two"]
    vhost.queues.delete("two", client)
    assert reached() == []


@pytest.mark.parametrize("pattern", ["a{0}.*.b{1}.#", "a{0}.b{1}.#", "a{0}.*.b{1}", "#.b{1}", "a.*.*.*.*.b{1}.#"])
def test_a_new_key_costs_the_same_beside_other_words(pattern: str) -> None:
    """Patterns that differ in a word: a key that one matches, and one that none does, cost no more beside thousands."""

    def work(count: int) -> list[int]:
        world = World()
        vhost, broker = world.vhost, world.broker
        world.declare_queue("d", "d", "q")
        for number in range(count):
            vhost.bindings.add("queue", "q", "amq.topic", pattern.format(number % 7, number), {})
        matching = pattern.format(3, 10).replace("*", "x").replace("#", "y")
        found = []
        for key in (matching, f"z.{matching}.z", "z.y"):
            vhost.router.route("amq.topic", f"{key}.before", User("u"))  # automata are made
            before = broker.context.turn.effort
            found.append(steps(lambda key=key: vhost.router.route("amq.topic", key, User("u"))))
            found.append(broker.context.turn.effort - before)
        assert [queue.name for queue in vhost.router.route("amq.topic", matching, User("u")).queues or ()] == ["q"]
        return found

    assert all(many <= few + 5 for many, few in zip(work(3_000), work(30), strict=True))
