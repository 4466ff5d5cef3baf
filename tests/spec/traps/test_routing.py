"""From a routing key to queues: where naive brokers differ from RabbitMQ."""

from __future__ import annotations

from typing import Any

import pytest
from spec_broker import SpecBroker
from traps import Q, trap


@trap(34)
def test_one_copy_a_queue(broker: SpecBroker) -> None:
    """Two bindings that match the same queue give one copy (CC headers that name it too: with CC)."""
    client = broker.open()
    client.call("queue.declare", queue=Q)
    client.call("exchange.declare", exchange="p.x", type="topic")
    for pattern in ("a.#", "#.b"):
        client.call("queue.bind", queue=Q, exchange="p.x", routing_key=pattern)
    client.publish("p.x", "a.b", b"once")
    assert client.bodies(Q) == [b"once"]


@trap(63)
def test_alternate_exchange(broker: SpecBroker) -> None:
    """It satisfies mandatory; the delivered exchange is the one that was published to."""
    client = broker.open()
    client.call("exchange.declare", exchange="p.x", type="direct", arguments={"alternate-exchange": "p.ae"})
    client.call("exchange.declare", exchange="p.ae", type="fanout")
    client.call("queue.declare", queue=Q)
    client.call("queue.bind", queue=Q, exchange="p.ae")
    client.publish("p.x", "k", b"m", mandatory=True)
    client.wait_for_ready(Q, 1)
    assert client.take(Q, no_ack=True)["exchange"] == "p.x"


@trap(64)
@pytest.mark.parametrize(
    ("pattern", "key", "matches"), [("*", "", False), ("#", "", True), ("a.*", "a.", True), ("*.*", ".", True)]
)
def test_topic_and_empty_words(pattern: str, key: str, matches: bool, broker: SpecBroker) -> None:
    """`*` matches an empty word but not the empty key, `#` matches the empty key."""
    client = broker.open()
    client.call("queue.declare", queue=Q)
    client.call("queue.bind", queue=Q, exchange="amq.topic", routing_key=pattern)
    client.publish("amq.topic", key, b"m")
    assert client.bodies(Q) == ([b"m"] if matches else [])


@trap(65)
@pytest.mark.parametrize(
    ("arguments", "headers", "matches"),
    [
        ({"x-match": "any"}, {"a": "1"}, False),
        ({"x-match": "all"}, {"a": "1"}, True),
        ({}, {}, True),
        ({"x-match": "all", "a": None}, {"a": 5}, True),
        ({"x-match": "any", "a": None}, {"b": 5}, False),
    ],
)
def test_headers_empty_and_void(
    arguments: dict[str, Any], headers: dict[str, Any], matches: bool, broker: SpecBroker
) -> None:
    """An empty any matches nothing, an empty all everything, void is presence."""
    client = broker.open()
    client.call("queue.declare", queue=Q)
    client.call("queue.bind", queue=Q, exchange="amq.headers", arguments=arguments)
    client.publish("amq.headers", "", b"m", headers=headers)
    assert client.bodies(Q) == ([b"m"] if matches else [])


@trap(66)
@pytest.mark.parametrize(("x_match", "matches"), [("all", True), ("all-with-x", False), ("any-with-x", True)])
def test_headers_with_x(x_match: str, matches: bool, broker: SpecBroker) -> None:
    """Binding arguments that begin with x- take part with all-with-x and any-with-x only."""
    client = broker.open()
    client.call("queue.declare", queue=Q)
    arguments = {"x-match": x_match, "x-a": "1", "b": "2"}
    client.call("queue.bind", queue=Q, exchange="amq.headers", arguments=arguments)
    client.publish("amq.headers", "", b"m", headers={"b": "2"})
    assert client.bodies(Q) == ([b"m"] if matches else [])
