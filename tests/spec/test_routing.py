"""Which queues a message reaches: behaviour page 3.9, through the wire."""

from __future__ import annotations

from typing import Any

import pytest
from rawclient import Client
from spec_broker import SpecBroker

KEYS = ("", "a", "a.b", "a.b.c", "b.a", "a.c.b", ".", "a.", ".a", "a..b", "ab")

TOPIC_MATRIX: dict[str, set[str]] = {
    "": {""},
    "#": set(KEYS),
    "#.#": set(KEYS),
    "*": {"a", "ab"},
    "*.#": set(KEYS) - {""},
    "a.#": {"a", "a.b", "a.b.c", "a.c.b", "a.", "a..b"},
    "a.*": {"a.b", "a."},
    "a.*.#": {"a.b", "a.b.c", "a.c.b", "a.", "a..b"},
    "#.a": {"a", "b.a", ".a"},
    "*.a": {"b.a", ".a"},
    "a.#.b": {"a.b", "a.c.b", "a..b"},
    "a..b": {"a..b"},
    "a*": set(),
    "#.#.#": set(KEYS),
    "*.*": {"a.b", "b.a", ".", "a.", ".a"},
    "#.b.#": {"a.b", "a.b.c", "b.a", "a.c.b", "a..b"},
    "a.b.c": {"a.b.c"},
}


def bound_queue(client: Client, kind: str, name: str, *bindings: tuple[str, dict[str, Any]]) -> None:
    """Exchange p.x of the type `kind` and the queue `name` with these (routing key, arguments) bindings."""
    client.call("exchange.declare", exchange="p.x", type=kind)
    client.call("queue.declare", queue=name)
    for routing_key, arguments in bindings:
        client.call("queue.bind", queue=name, exchange="p.x", routing_key=routing_key, arguments=arguments)


@pytest.mark.parametrize(("pattern", "matches"), TOPIC_MATRIX.items(), ids=[f"[{p}]" for p in TOPIC_MATRIX])
def test_topic_pattern(pattern: str, matches: set[str], broker: SpecBroker) -> None:
    """Topic exchange: `*` is one word, which may be empty, `#` is any number of words; the empty key has no word."""
    client = broker.open()
    bound_queue(client, "topic", "p.q", (pattern, {}))
    for key in KEYS:
        client.publish("p.x", key, key.encode())
    assert client.bodies("p.q") == [key.encode() for key in KEYS if key in matches]


def test_many_topic_bindings_of_one_queue_give_one_copy(broker: SpecBroker) -> None:
    """A message matches a queue or it does not, however many of its patterns match."""
    client = broker.open()
    bound_queue(client, "topic", "p.q", ("a.*", {}), ("#", {}), ("a.b", {}), ("*.b", {}))
    client.publish("p.x", "a.b", b"once")
    assert client.bodies("p.q") == [b"once"]


def test_an_unbound_topic_pattern_no_longer_matches(broker: SpecBroker) -> None:
    """Unbinding one pattern leaves the others of the same queue and their wildcards alone."""
    client = broker.open()
    bound_queue(client, "topic", "p.q", ("a.*", {}), ("a.#", {}), ("b.#", {}))
    client.call("queue.unbind", queue="p.q", exchange="p.x", routing_key="a.#")
    for key in ("a", "a.b", "b.c"):
        client.publish("p.x", key, key.encode())
    assert client.bodies("p.q") == [b"a.b", b"b.c"]


ALL, ANY = {"x-match": "all"}, {"x-match": "any"}
ONE = {"n": 1}
HEADERS: dict[str, tuple[dict[str, Any], dict[str, Any] | None, bool]] = {
    # name: (binding arguments, headers of the message or None for no headers at all, matches)
    "all-both": (ALL | {"a": "1", "b": "2"}, {"a": "1", "b": "2", "c": "3"}, True),
    "all-one-missing": (ALL | {"a": "1", "b": "2"}, {"a": "1"}, False),
    "all-one-differs": (ALL | {"a": "1", "b": "2"}, {"a": "1", "b": "x"}, False),
    "absent-is-all": ({"a": "1", "b": "2"}, {"a": "1"}, False),
    "absent-is-all-matching": ({"a": "1", "b": "2"}, {"a": "1", "b": "2"}, True),
    "any-one": (ANY | {"a": "1", "b": "2"}, {"b": "2"}, True),
    "any-none": (ANY | {"a": "1", "b": "2"}, {"a": "2", "b": "1"}, False),
    "all-empty-matches-everything": (ALL, {"a": "1"}, True),
    "all-empty-matches-no-headers": (ALL, None, True),
    "any-empty-matches-nothing": (ANY, {"a": "1"}, False),
    "all-x-ignored": (ALL | {"x-a": "1"}, {}, True),
    "any-x-ignored": (ANY | {"x-a": "1"}, {"x-a": "1"}, False),
    "all-with-x": ({"x-match": "all-with-x", "x-a": "1"}, {"x-a": "2"}, False),
    "all-with-x-matching": ({"x-match": "all-with-x", "x-a": "1"}, {"x-a": "1"}, True),
    "any-with-x": ({"x-match": "any-with-x", "x-a": "1", "b": "2"}, {"x-a": "1"}, True),
    "void-is-presence": (ALL | {"a": None}, {"a": "anything"}, True),
    "void-wants-presence": (ALL | {"a": None}, {"b": "1"}, False),
    "int-widths-equal": (ALL | {"n": ("I", 1)}, {"n": ("l", 1)}, True),
    "octet-equals-int": (ALL | ONE, {"n": ("b", 1)}, True),
    "int-equals-float": (ALL | ONE, {"n": 1.0}, True),
    "int-differs": (ALL | ONE, {"n": 2}, False),
    "string-is-no-int": (ALL | ONE, {"n": "1"}, False),
    "bool-is-no-int": (ALL | ONE, {"n": True}, False),
    "timestamp-equals-int": (ALL | ONE, {"n": ("T", 1)}, True),
    "decimal-is-no-int": (ALL | ONE, {"n": ("D", (0, 1))}, False),
    "decimal-equals-decimal": (ALL | {"n": ("D", (0, 1))}, {"n": ("D", (0, 1))}, True),
    "decimals-have-a-scale": (ALL | {"n": ("D", (0, 1))}, {"n": ("D", (1, 10))}, False),
    "table-equals-table": (ALL | {"t": {"a": ("l", 1)}}, {"t": {"a": ("l", 1)}}, True),
    "widths-differ-in-a-table": (ALL | {"t": {"a": ("l", 1)}}, {"t": {"a": ("I", 1)}}, False),
    "strings-differ-in-an-array": (ALL | {"t": ("A", [("S", "a")])}, {"t": ("A", [("x", b"a")])}, False),
    "longstr-equals-byte-array": (ALL | {"s": "ab"}, {"s": ("x", b"ab")}, True),
    "no-headers": (ALL | {"a": "1"}, None, False),
}


@pytest.mark.parametrize(("arguments", "headers", "matches"), HEADERS.values(), ids=list(HEADERS))
def test_headers_exchange(
    arguments: dict[str, Any], headers: dict[str, Any] | None, matches: bool, broker: SpecBroker
) -> None:
    """Headers exchange: values are compared after decoding, numbers whatever their type; the routing key is ignored."""
    client = broker.open()
    bound_queue(client, "headers", "p.q", ("ignored", arguments))
    properties: dict[str, Any] = {} if headers is None else {"headers": headers}
    client.publish("p.x", "another key", b"m", **properties)
    assert client.bodies("p.q") == ([b"m"] if matches else [])


@pytest.mark.parametrize(
    ("binding", "key", "matches"),
    [("a", "a", True), ("a", "A", False), ("a", "a ", False), ("a.*", "a.b", False), ("", "", True), ("é", "é", True)],
)
def test_direct_exchange(binding: str, key: str, matches: bool, broker: SpecBroker) -> None:
    """Direct exchange: the routing key equals the binding key octet for octet."""
    client = broker.open()
    bound_queue(client, "direct", "p.q", (binding, {}))
    client.publish("p.x", key, b"m")
    assert client.bodies("p.q") == ([b"m"] if matches else [])


def test_fanout_exchange_ignores_the_key(broker: SpecBroker) -> None:
    """Fanout exchange: every bound queue gets one copy, whatever the keys."""
    client = broker.open()
    bound_queue(client, "fanout", "p.q1", ("one", {}), ("two", {}))
    bound_queue(client, "fanout", "p.q2", ("", {}))
    client.publish("p.x", "three", b"m")
    assert (client.bodies("p.q1"), client.bodies("p.q2")) == ([b"m"], [b"m"])


def test_default_exchange_routes_to_the_queue_of_that_name(broker: SpecBroker) -> None:
    """Default exchange: the routing key names the queue, and bindings of the queue elsewhere do not matter."""
    client = broker.open()
    bound_queue(client, "direct", "p.q", ("k", {}))
    client.publish("", "p.q", b"by name")
    client.publish("", "k", b"by key")
    assert client.bodies("p.q") == [b"by name"]


def test_exchange_to_exchange(broker: SpecBroker) -> None:
    """A binding between exchanges routes by the type of each on the way, with the original key and exchange name."""
    client = broker.open()
    client.call("exchange.declare", exchange="p.in", type="topic")
    bound_queue(client, "direct", "p.q", ("a.b", {}))
    client.call("exchange.bind", source="p.in", destination="p.x", routing_key="a.*")
    for key in ("a.b", "a.c", "b.b"):
        client.publish("p.in", key, key.encode())
    got = client.take("p.q", no_ack=True)
    assert (got.body, got["exchange"], got["routing_key"]) == (b"a.b", "p.in", "a.b")
    assert client.get("p.q") is None


def test_exchange_unbind_stops_routing(broker: SpecBroker) -> None:
    """exchange.unbind with the same key and arguments removes the binding, with another key it does not."""
    client = broker.open()
    client.call("exchange.declare", exchange="p.in", type="fanout")
    bound_queue(client, "fanout", "p.q", ("", {}))
    client.call("exchange.bind", source="p.in", destination="p.x", routing_key="k")
    client.call("exchange.unbind", source="p.in", destination="p.x", routing_key="other")
    client.publish("p.in", "", b"1")
    client.call("exchange.unbind", source="p.in", destination="p.x", routing_key="k")
    client.publish("p.in", "", b"2")
    assert client.bodies("p.q") == [b"1"]


def test_a_cycle_of_exchanges_gives_one_copy(broker: SpecBroker) -> None:
    """Each exchange is visited at most once a message."""
    client = broker.open()
    bound_queue(client, "fanout", "p.q", ("", {}))
    client.call("exchange.declare", exchange="p.y", type="fanout")
    client.call("queue.bind", queue="p.q", exchange="p.y")
    client.call("exchange.bind", source="p.x", destination="p.y")
    client.call("exchange.bind", source="p.y", destination="p.x")
    client.publish("p.x", "", b"once")
    assert client.bodies("p.q") == [b"once"]


def test_an_internal_exchange_is_fed_by_exchanges_only(broker: SpecBroker) -> None:
    """An internal exchange takes messages over a binding (publishing to it: case exchange-publish-internal)."""
    client = broker.open()
    client.call("exchange.declare", exchange="p.in", type="fanout")
    client.call("exchange.declare", exchange="p.x", type="fanout", internal=True)
    client.call("queue.declare", queue="p.q")
    client.call("queue.bind", queue="p.q", exchange="p.x")
    client.call("exchange.bind", source="p.in", destination="p.x")
    client.publish("p.in", "", b"m")
    assert client.bodies("p.q") == [b"m"]


@pytest.mark.parametrize(
    ("exchange", "kind"),
    [
        ("amq.direct", "direct"),
        ("amq.fanout", "fanout"),
        ("amq.topic", "topic"),
        ("amq.headers", "headers"),
        ("amq.match", "headers"),
    ],
)
def test_predeclared_exchange(exchange: str, kind: str, broker: SpecBroker) -> None:
    """Every virtual host has these, durable, and they route by their type."""
    client = broker.open()
    client.call("exchange.declare", exchange=exchange, type=kind, durable=True)
    client.call("queue.declare", queue="p.q")
    client.call("queue.bind", queue="p.q", exchange=exchange, routing_key="p.key", arguments={"h": "p.value"})
    client.publish(exchange, "p.key", b"m", headers={"h": "p.value"})
    client.publish(exchange, "p.other", b"other", headers={"h": "p.other"})
    assert client.bodies("p.q") == ([b"m", b"other"] if kind == "fanout" else [b"m"])


def test_bindings_with_other_arguments_are_other_bindings(broker: SpecBroker) -> None:
    """The arguments belong to the identity of a binding: unbinding one leaves the other."""
    client = broker.open()
    bound_queue(client, "headers", "p.q", ("", {"a": "1"}), ("", {"a": "2"}))
    client.call("queue.unbind", queue="p.q", exchange="p.x", routing_key="", arguments={"a": "1"})
    for value in ("1", "2"):
        client.publish("p.x", "", value.encode(), headers={"a": value})
    assert client.bodies("p.q") == [b"2"]


def test_deleting_an_exchange_removes_its_bindings(broker: SpecBroker) -> None:
    """An exchange declared again under the same name has none of the old bindings, as source or destination."""
    client = broker.open()
    bound_queue(client, "fanout", "p.q", ("", {}))
    client.call("exchange.declare", exchange="p.in", type="fanout")
    client.call("exchange.bind", source="p.in", destination="p.x")
    client.call("exchange.delete", exchange="p.x")
    client.call("exchange.declare", exchange="p.x", type="fanout")
    client.publish("p.x", "", b"1")
    client.call("queue.bind", queue="p.q", exchange="p.x")
    client.publish("p.in", "", b"2")
    client.publish("p.x", "", b"3")
    assert client.bodies("p.q") == [b"3"]
