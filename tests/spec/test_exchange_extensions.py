"""Alternate and internal exchanges, x-consistent-hash, x-random: behaviour page 3.9, by the wire."""

from __future__ import annotations

from typing import Any

import pytest
from rawclient import Client
from spec_broker import SpecBroker, expect_channel_close

HASH = "x-consistent-hash"


def exchange(client: Client, name: str, kind: str = "direct", **arguments: Any) -> None:
    """An exchange; underscores of the arguments' names stand for dashes."""
    named = {key.replace("_", "-"): value for key, value in arguments.items()}
    client.call("exchange.declare", exchange=name, type=kind, arguments=named)


def queue(client: Client, name: str, *bindings: tuple[str, str]) -> None:
    """A queue with these bindings (exchange, routing key)."""
    client.call("queue.declare", queue=name)
    for source, key in bindings:
        client.call("queue.bind", queue=name, exchange=source, routing_key=key)


# ------------------------------------------------------------------------------------------------ alternate exchange


def test_alternate_exchange_takes_what_no_binding_does(broker: SpecBroker) -> None:
    """Only unrouted messages go there; they keep the exchange and the key that they were published with."""
    client = broker.open()
    exchange(client, "p.x", alternate_exchange="p.ae")
    exchange(client, "p.ae", "fanout")
    queue(client, "p.q", ("p.x", "k"))
    queue(client, "p.unrouted", ("p.ae", ""))
    client.publish("p.x", "k", b"routed")
    client.publish("p.x", "other", b"unrouted")
    client.wait_for_ready("p.unrouted", 1)
    got = client.take("p.unrouted", no_ack=True)
    assert (got.body, got["exchange"], got["routing_key"]) == (b"unrouted", "p.x", "other")
    assert client.bodies("p.q") == [b"routed"]


def test_mandatory_is_satisfied_by_the_alternate_exchange(broker: SpecBroker) -> None:
    """Not returned; where the alternate exchange has no queue for it either, it is."""
    client = broker.open()
    exchange(client, "p.x", alternate_exchange="p.ae")
    exchange(client, "p.ae")
    queue(client, "p.q", ("p.ae", "k"))
    client.call("confirm.select")
    client.publish("p.x", "k", b"1", mandatory=True)
    client.expect("basic.ack")
    client.publish("p.x", "nowhere", b"2", mandatory=True)
    returned = client.expect("basic.return")
    assert (returned["reply_code"], returned["reply_text"], returned["exchange"]) == (312, "NO_ROUTE", "p.x")
    client.expect("basic.ack")
    assert client.bodies("p.q") == [b"1"]


def test_alternate_exchange_that_is_missing(broker: SpecBroker) -> None:
    """It may be declared later; until then what is unrouted is unroutable."""
    client = broker.open()
    exchange(client, "p.x", alternate_exchange="p.ae")
    client.publish("p.x", "k", b"1", mandatory=True)
    assert client.expect("basic.return").body == b"1"
    exchange(client, "p.ae", "fanout")
    queue(client, "p.q", ("p.ae", ""))
    client.publish("p.x", "k", b"2", mandatory=True)
    client.wait_for_ready("p.q", 1)
    client.call("exchange.delete", exchange="p.ae")
    client.publish("p.x", "k", b"3", mandatory=True)
    assert client.expect("basic.return").body == b"3"
    assert client.bodies("p.q") == [b"2"]


def test_alternate_exchanges_in_a_chain(broker: SpecBroker) -> None:
    """An alternate exchange has one of its own."""
    client = broker.open()
    exchange(client, "p.a", alternate_exchange="p.b")
    exchange(client, "p.b", "topic", alternate_exchange="p.c")
    exchange(client, "p.c", "fanout")
    queue(client, "p.qb", ("p.b", "b.*"))
    queue(client, "p.qc", ("p.c", ""))
    client.publish("p.a", "b.1", b"to b")
    client.publish("p.a", "c.1", b"to c")
    client.wait_for_ready("p.qc", 1)
    assert (client.bodies("p.qb"), client.bodies("p.qc")) == ([b"to b"], [b"to c"])


def test_alternate_exchanges_in_a_circle(broker: SpecBroker) -> None:
    """Each is asked once."""
    client = broker.open()
    exchange(client, "p.a", alternate_exchange="p.b")
    exchange(client, "p.b", alternate_exchange="p.a")
    exchange(client, "p.self", alternate_exchange="p.self")
    for name in ("p.a", "p.self"):
        client.publish(name, "k", b"m", mandatory=True)
        assert client.expect("basic.return")["exchange"] == name


def test_a_binding_to_an_exchange_without_queues_is_a_route(broker: SpecBroker) -> None:
    """The alternate exchange is for messages that no binding of this exchange matches, wherever those lead."""
    client = broker.open()
    exchange(client, "p.x", alternate_exchange="p.ae")
    exchange(client, "p.ae", "fanout")
    exchange(client, "p.dead-end")
    queue(client, "p.q", ("p.ae", ""))
    client.call("exchange.bind", source="p.x", destination="p.dead-end", routing_key="k")
    client.publish("p.x", "k", b"1", mandatory=True)
    assert client.expect("basic.return").body == b"1"
    client.publish("p.x", "other", b"2", mandatory=True)
    client.wait_for_ready("p.q", 1)
    assert client.bodies("p.q") == [b"2"]


def test_an_exchange_on_the_way_has_its_alternate_exchange(broker: SpecBroker) -> None:
    """Every exchange that a message comes to sends what it can't route to its own alternate exchange."""
    client = broker.open()
    exchange(client, "p.in", "fanout")
    exchange(client, "p.x", alternate_exchange="p.ae")
    exchange(client, "p.ae", "fanout")
    client.call("exchange.bind", source="p.in", destination="p.x")
    queue(client, "p.q", ("p.x", "k"))
    queue(client, "p.unrouted", ("p.ae", ""))
    for key in ("k", "other"):
        client.publish("p.in", key, key.encode())
    client.wait_for_ready("p.unrouted", 1)
    assert (client.bodies("p.q"), client.bodies("p.unrouted")) == ([b"k"], [b"other"])


def test_alternate_exchange_of_a_headers_exchange(broker: SpecBroker) -> None:
    """What is decided for each message is decided so for the alternate exchange as well."""
    client = broker.open()
    exchange(client, "p.x", "headers", alternate_exchange="p.ae")
    exchange(client, "p.ae", "fanout")
    client.call("queue.declare", queue="p.q")
    client.call("queue.bind", queue="p.q", exchange="p.x", arguments={"a": "1"})
    queue(client, "p.unrouted", ("p.ae", ""))
    for value in ("1", "2"):
        client.publish("p.x", "", value.encode(), headers={"a": value})
    client.wait_for_ready("p.unrouted", 1)
    assert (client.bodies("p.q"), client.bodies("p.unrouted")) == ([b"1"], [b"2"])


@pytest.mark.parametrize("source", ["alternate-exchange", "dead-letter-exchange"])
def test_internal_exchanges_take_messages_from_the_broker(source: str, broker: SpecBroker) -> None:
    """Clients can't publish to an internal exchange; as alternate or dead letter exchange it works."""
    client = broker.open()
    client.call("exchange.declare", exchange="p.internal", type="fanout", internal=True)
    queue(client, "p.q", ("p.internal", ""))
    if source == "alternate-exchange":
        exchange(client, "p.x", alternate_exchange="p.internal")
        client.publish("p.x", "k", b"m")
    else:
        client.call("queue.declare", queue="p.dying", arguments={"x-dead-letter-exchange": "p.internal"})
        client.publish("", "p.dying", b"m")
        client.take("p.dying")
        client.send("basic.reject", delivery_tag=1, requeue=False)
    client.wait_for_ready("p.q", 1)
    assert client.bodies("p.q") == [b"m"]


# ------------------------------------------------------------------------------------------------- consistent hashing


def publish_and_wait(client: Client, count: int, **message: Any) -> None:
    """`count` messages with different keys to p.x; returns when all are confirmed."""
    client.call("channel.open", channel=9)
    client.call("confirm.select", channel=9)
    for number in range(count):
        client.publish("p.x", f"key {number}", str(number).encode(), channel=9, **message)
    confirmed: set[int] = set()
    while len(confirmed) < count:
        ack = client.expect("basic.ack", channel=9)
        confirmed |= {*range(1 if ack["multiple"] else ack["delivery_tag"], ack["delivery_tag"] + 1)}
    client.call("channel.close", channel=9)


def spread(client: Client, count: int, *, weights: dict[str, str], **message: Any) -> dict[str, list[bytes]]:
    """Queues with these weights bound to p.x, and what they get of `count` messages with different keys."""
    for name, weight in weights.items():
        queue(client, name, ("p.x", weight))
    publish_and_wait(client, count, **message)
    return {name: client.bodies(name) for name in weights}


def test_consistent_hash_gives_each_message_to_one_queue(broker: SpecBroker) -> None:
    """By weight, roughly: 1000 keys over weights 1 and 3."""
    client = broker.open()
    exchange(client, "p.x", HASH)
    got = spread(client, 1000, weights={"p.one": "1", "p.three": "3"})
    assert sorted(got["p.one"] + got["p.three"], key=int) == [str(number).encode() for number in range(1000)]
    assert 150 < len(got["p.one"]) < 350


def test_consistent_hash_is_stable(broker: SpecBroker) -> None:
    """The same key goes the same way again; a third queue takes keys over and moves none between the others."""
    client = broker.open()
    exchange(client, "p.x", HASH)
    weights = {"p.a": "1", "p.b": "1"}
    before = spread(client, 200, weights=weights)
    assert spread(client, 200, weights=weights) == before
    after = spread(client, 200, weights={**weights, "p.c": "1"})
    assert set(after["p.a"]) < set(before["p.a"]) and set(after["p.b"]) < set(before["p.b"])


def test_consistent_hash_of_a_header(broker: SpecBroker) -> None:
    """hash-header: messages with the same value stay together, whatever their keys; so do those without it."""
    client = broker.open()
    exchange(client, "p.x", HASH, hash_header="who")
    for headers in ({"who": "me"}, {"who": 7}, {}):
        got = spread(client, 20, weights={"p.a": "1", "p.b": "1", "p.c": "1"}, headers=headers)
        assert sorted(map(len, got.values())) == [0, 0, 20]


@pytest.mark.parametrize(
    ("name", "values"),
    [("message_id", ["a", "b"]), ("correlation_id", ["a", "b"]), ("timestamp", [1, 2])],
)
def test_consistent_hash_of_a_property(name: str, values: list[Any], broker: SpecBroker) -> None:
    """hash-property: message_id, correlation_id or timestamp."""
    client = broker.open()
    exchange(client, "p.x", HASH, hash_property=name)
    for value in values:
        got = spread(client, 20, weights={"p.a": "1", "p.b": "1", "p.c": "1"}, **{name: value})
        assert sorted(map(len, got.values())) == [0, 0, 20]


def test_consistent_hash_of_a_property_spreads(broker: SpecBroker) -> None:
    """Different ids, different queues."""
    client = broker.open()
    exchange(client, "p.x", HASH, hash_property="message_id")
    for name in ("p.a", "p.b"):
        queue(client, name, ("p.x", "1"))
    for number in range(100):
        client.publish("p.x", "k", b"m", message_id=f"id {number}")
    client.collect("p.a")
    counts = [len(client.bodies(name)) for name in ("p.a", "p.b")]
    assert min(counts) > 20


def test_consistent_hash_counts_the_first_binding_of_a_queue(broker: SpecBroker) -> None:
    """Bound again with another weight, a queue keeps the first one."""
    client = broker.open()
    exchange(client, "p.x", HASH)
    queue(client, "p.one", ("p.x", "1"), ("p.x", "100"))
    got = spread(client, 400, weights={"p.one": "1", "p.same": "1"})
    assert len(got["p.one"]) < 300


@pytest.mark.parametrize("unbound, left", [("1", "2"), ("2", "1")])
def test_consistent_hash_of_a_queue_that_stays_bound(unbound: str, left: str, broker: SpecBroker) -> None:
    """In RabbitMQ a queue without one of its bindings gets nothing more."""
    client = broker.open()
    exchange(client, "p.x", HASH)
    queue(client, "p.twice", ("p.x", "1"), ("p.x", "2"))
    client.call("queue.unbind", queue="p.twice", exchange="p.x", routing_key=unbound)
    client.publish("p.x", left, b"m", mandatory=True)
    if broker.is_rabbitmq:
        assert client.expect("basic.return").body == b"m"
        return
    client.wait_for_ready("p.twice", 1)


def test_consistent_hash_without_bindings(broker: SpecBroker) -> None:
    """Nobody gets it: unroutable, or for the alternate exchange."""
    client = broker.open()
    exchange(client, "p.x", HASH, alternate_exchange="p.ae")
    client.publish("p.x", "k", b"1", mandatory=True)
    assert client.expect("basic.return").body == b"1"
    exchange(client, "p.ae", "fanout")
    queue(client, "p.q", ("p.ae", ""))
    client.publish("p.x", "k", b"2", mandatory=True)
    client.wait_for_ready("p.q", 1)


def test_consistent_hash_to_an_exchange(broker: SpecBroker) -> None:
    """Exchanges take their share as queues do."""
    client = broker.open()
    exchange(client, "p.x", HASH)
    exchange(client, "p.y", "fanout")
    client.call("exchange.bind", source="p.x", destination="p.y", routing_key="1")
    queue(client, "p.behind", ("p.y", ""))
    client.publish("p.x", "k", b"m")
    client.wait_for_ready("p.behind", 1)


def test_consistent_hash_after_an_unbind(broker: SpecBroker) -> None:
    """Who stays gets everything."""
    client = broker.open()
    exchange(client, "p.x", HASH)
    assert len(spread(client, 50, weights={"p.a": "2", "p.b": "1"})) == 2
    client.call("queue.unbind", queue="p.a", exchange="p.x", routing_key="2")
    assert [len(bodies) for bodies in spread(client, 50, weights={"p.b": "1"}).values()] == [50]


BAD_HASHES: dict[str, tuple[dict[str, Any], str]] = {
    "both": (
        {"hash-header": "a", "hash-property": "message_id"},
        "hash-header and hash-property are mutually exclusive",
    ),
    "property": ({"hash-property": "app_id"}, "Unsupported property: app_id"),
}


@pytest.mark.parametrize(("arguments", "text"), BAD_HASHES.values(), ids=list(BAD_HASHES))
def test_consistent_hash_arguments(arguments: dict[str, Any], text: str, broker: SpecBroker) -> None:
    """What it can't hash is refused."""
    client = broker.open()
    client.send("exchange.declare", exchange="p.x", type=HASH, arguments=arguments)
    expect_channel_close(client, 406, f"PRECONDITION_FAILED - {text}", (40, 10))


BAD_WEIGHTS = {
    "abc": 'The binding key must be an integer: <<"abc">>',
    "": "The binding key must be an integer: <<>>",
    "1.5": 'The binding key must be an integer: <<"1.5">>',
    " 1": 'The binding key must be an integer: <<" 1">>',
    "0": "The binding key must be greater than 0",
    "-1": "The binding key must be greater than 0",
}


@pytest.mark.parametrize(("weight", "text"), BAD_WEIGHTS.items(), ids=[f"[{weight}]" for weight in BAD_WEIGHTS])
def test_consistent_hash_weights(weight: str, text: str, broker: SpecBroker) -> None:
    """The routing key of a binding is its weight."""
    client = broker.open()
    exchange(client, "p.x", HASH)
    client.call("queue.declare", queue="p.q")
    client.send("queue.bind", queue="p.q", exchange="p.x", routing_key=weight)
    expect_channel_close(client, 406, f"PRECONDITION_FAILED - {text}", (50, 20))


# ------------------------------------------------------------------------------------------------------------ x-random


def test_random_exchange(broker: SpecBroker) -> None:
    """One of the bound queues for each message, whatever the keys; every one gets some of 200."""
    client = broker.open()
    exchange(client, "p.x", "x-random")
    names = ("p.a", "p.b", "p.c")
    for name in names:
        queue(client, name, ("p.x", "some key"))
    publish_and_wait(client, 200, mandatory=True)
    got = [client.bodies(name) for name in names]
    assert sorted((body for bodies in got for body in bodies), key=int) == [str(n).encode() for n in range(200)]
    assert min(map(len, got)) > 20


def test_random_exchange_with_one_and_without_queues(broker: SpecBroker) -> None:
    """One queue gets all; without any a mandatory message comes back."""
    client = broker.open()
    exchange(client, "p.x", "x-random")
    client.publish("p.x", "k", b"1", mandatory=True)
    assert client.expect("basic.return").body == b"1"
    queue(client, "p.q", ("p.x", ""))
    for _ in range(5):
        client.publish("p.x", "k", b"2", mandatory=True)
    client.wait_for_ready("p.q", 5)
