"""What clients see of quorum queues: behaviour page 2.6, 2.7, 2.11 and 3.6, by the wire."""

from __future__ import annotations

from typing import Any

import pytest
from rawclient import Client, Method
from spec_broker import SpecBroker, expect_connection_close

Q = "p.quorum"


def declare(client: Client, **arguments: Any) -> None:
    """The quorum queue; underscores of the arguments' names stand for dashes."""
    named = {key.replace("_", "-"): value for key, value in arguments.items()}
    client.call("queue.declare", queue=Q, durable=True, arguments={"x-queue-type": "quorum", **named})


def publish(client: Client, *bodies: bytes) -> None:
    """To the queue; they are there afterwards."""
    before = client.count(Q)[0]
    for body in bodies:
        client.publish("", Q, body, delivery_mode=2)
    client.wait_for_ready(Q, before + len(bodies))


def count_of(method: Method) -> int | None:
    """What x-delivery-count says, whatever its width; None: nothing."""
    assert method.content is not None
    said = method.content.headers.get("x-delivery-count")
    return None if said is None else said[1]


def ready(client: Client, queue: str, count: int) -> None:
    """Quorum queues of RabbitMQ need a moment."""
    client.wait_for_ready(queue, count)


@pytest.mark.parametrize("method", ["reject", "nack"])
@pytest.mark.parametrize("limit", [0, 1, 2])
def test_delivery_limit(limit: int, method: str, broker: SpecBroker) -> None:
    """A limit of n is n + 1 deliveries; then it is a dead letter of the reason delivery_limit."""
    client = broker.open()
    client.call("queue.declare", queue="p.dead")
    routing = {"x_dead_letter_exchange": "", "x_dead_letter_routing_key": "p.dead"}
    declare(client, x_delivery_limit=limit, **routing)
    publish(client, b"poison")
    for attempt in range(limit + 1):
        ready(client, Q, 1)
        got = client.take(Q)
        assert got["redelivered"] == (attempt > 0)
        assert (count_of(got) or 0) == attempt
        client.send(f"basic.{method}", delivery_tag=got["delivery_tag"], requeue=True)
    ready(client, "p.dead", 1)
    dead = client.take("p.dead", no_ack=True)
    assert dead.content is not None
    tag, deaths = dead.content.headers["x-death"]
    entry = deaths[0][1]
    assert (tag, len(deaths), entry["reason"], entry["queue"]) == (
        "A",
        1,
        ("S", b"delivery_limit"),
        ("S", Q.encode()),
    )
    assert client.count(Q) == (0, 0)


def test_without_a_dead_letter_exchange_the_limit_drops(broker: SpecBroker) -> None:
    """As any dead message."""
    client = broker.open()
    declare(client, x_delivery_limit=1)
    publish(client, b"poison")
    for _ in range(2):
        ready(client, Q, 1)
        client.send("basic.reject", delivery_tag=client.take(Q)["delivery_tag"], requeue=True)
    ready(client, Q, 0)
    assert client.get(Q) is None


def test_delivery_count(broker: SpecBroker) -> None:
    """x-delivery-count says how often a message came back, without a limit as well; classic queues say nothing.

    RabbitMQ 3.10 says 0 at the first delivery, 4.x and we say nothing then.
    """
    client = broker.open()
    declare(client)
    publish(client, b"m")
    for attempt in range(3):
        ready(client, Q, 1)
        got = client.take(Q)
        assert count_of(got) == (attempt if attempt or broker.is_rabbitmq else None)
        client.send("basic.nack", delivery_tag=got["delivery_tag"], requeue=True)
    client.call("queue.declare", queue="p.classic")
    client.publish("", "p.classic", b"m")
    for _ in range(2):
        got = client.take("p.classic")
        assert count_of(got) is None
        client.send("basic.nack", delivery_tag=got["delivery_tag"], requeue=True)


def test_a_lost_consumer_counts(broker: SpecBroker) -> None:
    """A connection that dies with a delivery was an attempt."""
    client, victim = broker.open(), broker.open()
    declare(client, x_delivery_limit=1)
    publish(client, b"m")
    for attempt in range(2):
        victim = broker.open()
        victim.call("basic.consume", queue=Q)
        assert (count_of(victim.expect("basic.deliver")) or 0) == attempt
        victim.abort()
        while client.count(Q)[1]:
            pass
    ready(client, Q, 0)


@pytest.mark.parametrize("flag", ["if_unused", "if_empty"])
def test_conditional_delete(flag: str, broker: SpecBroker) -> None:
    """Not supported, true or not; the queue stays."""
    client, other = broker.open(), broker.open()
    declare(client)
    other.send("queue.delete", queue=Q, **{flag: True})
    text = (
        f"NOT_IMPLEMENTED - cannot delete queue '{Q}' in vhost '/'. queue.delete operations with "
        f"{flag.replace('_', '-')} flag set are not supported by quorum queues"
    )
    expect_connection_close(other, 540, text, (50, 40))
    assert client.count(Q) == (0, 0)


def test_dead_letters_at_least_once(broker: SpecBroker) -> None:
    """The strategy is accepted, and a rejected message arrives."""
    client = broker.open()
    client.call("queue.declare", queue="p.dead", durable=True, arguments={"x-queue-type": "quorum"})
    declare(
        client,
        x_dead_letter_exchange="",
        x_dead_letter_routing_key="p.dead",
        x_dead_letter_strategy="at-least-once",
        x_overflow="reject-publish",
    )
    publish(client, b"m")
    client.send("basic.reject", delivery_tag=client.take(Q)["delivery_tag"], requeue=False)
    ready(client, "p.dead", 1)
    assert client.take("p.dead", no_ack=True).body == b"m"


def test_reject_publish_dlx_falls_back(broker: SpecBroker) -> None:
    """Quorum queues drop from the head instead."""
    client = broker.open()
    declare(client, x_max_length=2, x_overflow="reject-publish-dlx")
    client.call("confirm.select")
    for number in range(4):
        client.publish("", Q, str(number).encode(), delivery_mode=2)
        assert client.expect("basic.ack")["delivery_tag"] == number + 1
    ready(client, Q, 2)
    assert client.bodies(Q) == [b"2", b"3"]


def test_single_active_consumer_on_quorum(broker: SpecBroker) -> None:
    """As on classic queues, but for basic.get (case quorum-sac-get)."""
    client, other = broker.open(), broker.open()
    declare(client, x_single_active_consumer=True)
    client.call("basic.consume", queue=Q)
    other.call("basic.consume", queue=Q)
    client.publish("", Q, b"1", delivery_mode=2)
    assert client.expect("basic.deliver").body == b"1"
    client.call("channel.close")
    again = other.expect("basic.deliver")
    assert (again.body, again["redelivered"]) == (b"1", True)


@pytest.mark.parametrize("single", [False, True])
def test_exclusive_consumers_do_not_exclude(single: bool, broker: SpecBroker) -> None:
    """The flag is accepted and passed over, beside others and with a single active consumer."""
    client = broker.open()
    declare(client, x_single_active_consumer=single)
    for tag in ("a", "b"):
        client.call("basic.consume", queue=Q, consumer_tag=tag, exclusive=True)
    client.call("basic.consume", queue=Q, consumer_tag="c")


def test_a_consumer_that_was_cancelled_is_none(broker: SpecBroker) -> None:
    """RabbitMQ counts it as long as it has unacknowledged messages."""
    client = broker.open()
    declare(client)
    publish(client, b"1")
    client.call("basic.qos", prefetch_count=1)
    client.call("basic.consume", queue=Q, consumer_tag="t")
    client.expect("basic.deliver")
    client.call("basic.cancel", consumer_tag="t")
    assert client.count(Q) == (0, 1 if broker.is_rabbitmq else 0)


def test_a_count_of_attempts_from_a_client(broker: SpecBroker) -> None:
    """Of a dead letter RabbitMQ shows what the client sent."""
    client = broker.open()
    client.call("queue.declare", queue="p.dead")
    declare(client, x_dead_letter_exchange="", x_dead_letter_routing_key="p.dead")
    client.publish("", Q, b"1", headers={"x-delivery-count": 7})
    client.wait_for_ready(Q, 1)
    client.send("basic.reject", delivery_tag=client.take(Q)["delivery_tag"], requeue=False)
    client.wait_for_ready("p.dead", 1)
    assert count_of(client.take("p.dead")) == (7 if broker.is_rabbitmq else None)


def test_prefetch_of_each_consumer(broker: SpecBroker) -> None:
    """qos(global=false) is fine."""
    client = broker.open()
    declare(client)
    client.call("basic.qos", prefetch_count=1)
    client.call("basic.consume", queue=Q)
    for body in (b"1", b"2"):
        client.publish("", Q, body, delivery_mode=2)
    first = client.expect("basic.deliver")
    assert client.collect(Q) == []
    client.send("basic.ack", delivery_tag=first["delivery_tag"])
    assert client.expect("basic.deliver").body == b"2"
