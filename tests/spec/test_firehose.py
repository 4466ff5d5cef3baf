"""The firehose: what `amq.rabbitmq.trace` gets while a virtual host is traced, field by field.

Switched on by `leveret ctl trace-on` here, by rabbitmqctl with LEVERET_SPEC_PEER=rabbitmq. Source: RabbitMQ 3.10.8.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from rawclient import Method
from spec_broker import SpecBroker

TRACE = "p.firehose"


class Traced:
    """A virtual host that is traced, and a client that publishes on channel 2 and gets on channel 1."""

    def __init__(self, broker: SpecBroker) -> None:
        self.client = broker.open(channels=2)
        self.watcher = broker.open()
        for client, queue in ((self.watcher, TRACE), (self.client, "p.q")):
            client.call("queue.declare", queue=queue)
        self.watcher.call("queue.bind", queue=TRACE, exchange="amq.rabbitmq.trace", routing_key="#")

    def publish(self, exchange: str, key: str, body: bytes = b"x", **properties: Any) -> None:
        """On channel 2."""
        self.client.publish(exchange, key, body, channel=2, **properties)

    def told(self, count: int) -> list[Method]:
        """So many copies, and no more."""
        self.watcher.wait_for_ready(TRACE, count)
        return [self.watcher.take(TRACE, no_ack=True) for _ in range(count)]


@pytest.fixture
def traced(broker: SpecBroker) -> Iterator[Traced]:
    """Until the test is over."""
    if broker.peer is None:
        pytest.skip("nobody rules this broker")
    traced = Traced(broker)
    broker.rule("trace_on")
    try:
        yield traced
    finally:
        broker.rule("trace_off")


def typed(value: Any) -> Any:
    """A value as it stands on the wire: tag and content, all the way down."""
    if isinstance(value, bool):
        return "t", value
    if isinstance(value, int):
        return "I", value
    if isinstance(value, list):
        return "A", [typed(one) for one in value]
    if isinstance(value, dict):
        return "F", {key: typed(one) for key, one in value.items()}
    return "S", value.encode()


def headers_of(copy: Method) -> Any:
    """Its table, without what tells of this very connection and node, which must be there."""
    assert copy.content is not None and set(copy.content.properties) == {"headers"}
    headers = dict(copy.content.headers)
    for key, part in (("connection", b" -> 127.0.0.1:"), ("node", b"@")):
        tag, text = headers.pop(key)
        assert tag == "S" and part in text
    return headers


def test_a_publish(traced: Traced) -> None:
    """Key, body, properties, where it went, and who it was."""
    traced.publish("", "p.q", b"hello")
    (copy,) = traced.told(1)
    assert (copy["exchange"], copy["routing_key"], copy.body) == ("amq.rabbitmq.trace", "publish.", b"hello")
    told = {
        "exchange_name": "",
        "routing_keys": ["p.q"],
        "properties": {},
        "vhost": "/",
        "channel": 2,
        "user": "guest",
        "routed_queues": ["p.q"],
    }
    assert ("F", headers_of(copy)) == typed(told)


def test_all_properties(traced: Traced) -> None:
    """As a table of their own."""
    properties = {
        "content_type": "text/plain",
        "content_encoding": "utf-8",
        "headers": {"a": 1, "t": {"x": [True, "y"]}},
        "delivery_mode": 2,
        "priority": 3,
        "correlation_id": "c",
        "reply_to": "r",
        "expiration": "600000",
        "message_id": "m",
        "timestamp": 12345,
        "type": "t",
        "user_id": "guest",
        "app_id": "app",
        "cluster_id": "cl",
    }
    traced.publish("amq.topic", "p.a.b", b"", **properties)
    (copy,) = traced.told(1)
    assert copy["routing_key"] == "publish.amq.topic"
    assert headers_of(copy)["properties"] == typed(properties)
    assert headers_of(copy)["routed_queues"] == typed([])


def test_a_get_and_another(traced: Traced) -> None:
    """Deliveries are told by their queue, with a number for redelivered, and without what they were routed to."""
    traced.publish("", "p.q", b"hello", message_id="m")
    traced.told(1)
    traced.client.wait_for_ready("p.q", 1)
    first = traced.client.take("p.q")
    traced.client.send("basic.nack", delivery_tag=first["delivery_tag"], requeue=True)
    traced.client.wait_for_ready("p.q", 1)
    traced.client.take("p.q", no_ack=True)
    copies = traced.told(2)
    assert [copy["routing_key"] for copy in copies] == ["deliver.p.q"] * 2
    assert [copy.body for copy in copies] == [b"hello"] * 2
    assert [("F", headers_of(copy)) for copy in copies] == [
        typed(
            {
                "exchange_name": "",
                "routing_keys": ["p.q"],
                "properties": {"message_id": "m"},
                "redelivered": redelivered,
                "vhost": "/",
                "channel": 1,
                "user": "guest",
            }
        )
        for redelivered in (0, 1)
    ]


@pytest.mark.parametrize("no_ack", [False, True])
@pytest.mark.parametrize("waits", [False, True])
def test_a_consumer(traced: Traced, no_ack: bool, waits: bool) -> None:
    """What comes from the queue, and what comes while nothing is in it."""
    client = traced.client
    if not waits:
        traced.publish("", "p.q", b"1")
        client.wait_for_ready("p.q", 1)
    client.call("basic.consume", queue="p.q", consumer_tag="c", no_ack=no_ack)
    if waits:
        traced.publish("", "p.q", b"1")
    client.deliveries(1)
    published, delivered = traced.told(2)
    assert (published["routing_key"], delivered["routing_key"]) == ("publish.", "deliver.p.q")
    assert headers_of(delivered)["redelivered"] == typed(0)
    assert delivered.body == b"1"


def test_copies(traced: Traced) -> None:
    """Keys of CC and BCC are told, the header BCC is not; queues are in order of their names."""
    for queue in ("p.z", "p.b"):
        traced.client.call("queue.declare", queue=queue)
    headers = {"CC": ["p.z"], "BCC": ["p.b", "p.none"]}
    traced.publish("", "p.q", b"x", headers=headers)
    (copy,) = traced.told(1)
    told = headers_of(copy)
    assert told["routing_keys"] == typed(["p.q", "p.z", "p.b", "p.none"])
    assert told["properties"] == typed({"headers": {"CC": ["p.z"]}})
    assert told["routed_queues"] == typed(["p.b", "p.none", "p.q", "p.z"])


def test_a_transaction(traced: Traced) -> None:
    """A publish is told when it comes, whatever becomes of it."""
    traced.client.call("tx.select", channel=2)
    traced.publish("", "p.q", b"1")
    (copy,) = traced.told(1)
    assert headers_of(copy)["routed_queues"] == typed(["p.q"])
    traced.client.call("tx.rollback", channel=2)
    traced.publish("", "p.q", b"2")
    traced.client.call("tx.commit", channel=2)
    (copy,) = traced.told(1)
    assert copy.body == b"2"


def test_dead_letters_and_copies_of_copies_are_not_told(traced: Traced) -> None:
    """Only what clients do; and nothing of what the exchange itself brings."""
    client = traced.client
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "p.q"}
    client.call("queue.declare", queue="p.dying", arguments=arguments)
    traced.publish("", "p.dying", b"1")
    client.wait_for_ready("p.dying", 1)
    client.send("basic.reject", delivery_tag=client.take("p.dying")["delivery_tag"], requeue=False)
    client.wait_for_ready("p.q", 1)
    assert [copy["routing_key"] for copy in traced.told(2)] == ["publish.", "deliver.p.dying"]
    traced.told(0)


def test_the_other_way_round(traced: Traced, broker: SpecBroker) -> None:
    """Connections that are open see the switch, both ways."""
    traced.publish("", "p.q")
    traced.told(1)
    broker.rule("trace_off")
    traced.publish("", "p.q")
    traced.client.wait_for_ready("p.q", 2)
    traced.told(0)
    broker.rule("trace_on")
    traced.publish("", "p.q")
    traced.told(1)
