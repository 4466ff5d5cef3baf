"""Expiry, dead letters, length limits and priorities: where naive brokers differ from RabbitMQ."""

from __future__ import annotations

from typing import Any

import pytest
from rawclient import Client
from spec_broker import SpecBroker
from traps import Q, limited, trap

DEAD = {"x_dead_letter_exchange": "", "x_dead_letter_routing_key": "p.dead"}


def headers_of(method: Any) -> dict[str, Any]:
    """The headers of a delivered content, without their tags."""
    return {key: plain(field) for key, field in method.content.headers.items()}


def plain(field: Any) -> Any:
    """A value without its tag."""
    tag, value = field
    if tag == "A":
        return [plain(item) for item in value]
    if tag == "F":
        return {key: plain(item) for key, item in value.items()}
    return value.decode() if isinstance(value, bytes) else value


def let_pass(client: Client, milliseconds: int) -> None:
    """Return when the broker itself says, by the death of a message, that this time is over."""
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "p.rang"}
    client.call("queue.declare", queue="p.rang")
    client.call("queue.declare", queue="p.timer", arguments=arguments)
    client.publish("", "p.timer", b"", expiration=str(milliseconds))
    client.wait_for_ready("p.rang", 1)
    client.take("p.rang", no_ack=True)


@trap(52)
def test_expiry_is_looked_at_at_the_head(broker: SpecBroker) -> None:
    """Behind a message that lives longer an expired one still counts; it is dead when it comes to the head."""
    client = limited(broker, **DEAD)
    client.publish("", Q, b"long", expiration="60000")
    client.publish("", Q, b"short", expiration="10")
    let_pass(client, 300)
    assert (client.count(Q), client.count("p.dead")) == ((2, 0), (0, 0))
    assert client.take(Q, no_ack=True).body == b"long"
    client.wait_for_ready("p.dead", 1)
    assert client.get(Q) is None


@trap(53)
def test_time_to_live_zero(broker: SpecBroker) -> None:
    """With a consumer that waits all are delivered, none is dropped; without one all are dead."""
    client = limited(broker, x_message_ttl=0, **DEAD)
    client.call("basic.consume", queue=Q, consumer_tag="t", no_ack=True)
    for number in range(100):
        client.publish("", Q, b"%d" % number)
    assert [delivery.body for delivery in client.deliveries(100)] == [b"%d" % number for number in range(100)]
    assert client.count("p.dead") == (0, 0)
    client.call("basic.cancel", consumer_tag="t")
    client.publish("", Q, b"nobody")
    client.wait_for_ready("p.dead", 1)


@trap(54)
def test_requeueing_does_not_restart_the_clock(broker: SpecBroker) -> None:
    """A message whose time is over while it is out lives till it comes back, and no longer."""
    client = limited(broker, x_message_ttl=2_000, **DEAD)
    client.publish("", Q, b"x")
    client.wait_for_ready(Q, 1)
    tag = client.take(Q)["delivery_tag"]
    let_pass(client, 2_200)
    assert client.count("p.dead") == (0, 0)
    client.send("basic.nack", delivery_tag=tag, requeue=True)
    let_pass(client, 300)  # of the 2 s that it would have, were the clock restarted
    assert client.count("p.dead") == (1, 0)


@trap(54)
@pytest.mark.parametrize("queue_ms, message_ms", [(10, "60000"), (60_000, "10")])
def test_the_smaller_time_counts(queue_ms: int, message_ms: str, broker: SpecBroker) -> None:
    """min(x-message-ttl, expiration)."""
    client = limited(broker, x_message_ttl=queue_ms, **DEAD)
    client.publish("", Q, b"x", expiration=message_ms)
    client.wait_for_ready("p.dead", 1)


@trap(55)
def test_dead_lettering_moves_expiration_into_the_history(broker: SpecBroker) -> None:
    """The property is gone from the copy, x-death has original-expiration; the rest of the content is as it was."""
    client = limited(broker, x_dead_letter_exchange="", x_dead_letter_routing_key="p.dead")
    client.publish("", Q, b"x", expiration="100000", message_id="m", headers={"kept": ("s", 7)})
    client.wait_for_ready(Q, 1)
    client.send("basic.nack", delivery_tag=client.take(Q)["delivery_tag"], requeue=False)
    client.wait_for_ready("p.dead", 1)
    dead = client.take("p.dead")
    properties = dead.content.properties
    assert "expiration" not in properties
    assert properties["message_id"] == "m"
    assert dead.content.headers["kept"] == ("s", 7)
    (death,) = headers_of(dead)["x-death"]
    assert death["original-expiration"] == "100000"
    assert dead.body == b"x"
    assert dead["redelivered"] is False


@trap(56)
def test_deaths_are_newest_first_and_counted(broker: SpecBroker) -> None:
    """One entry for each (queue, reason); a repeat raises its count and moves it to the front."""
    client = limited(broker, x_dead_letter_exchange="", x_dead_letter_routing_key="p.dead")
    client.call("queue.declare", queue="p.back", arguments={"x-dead-letter-exchange": "amq.fanout"})
    client.call("queue.bind", queue=Q, exchange="amq.fanout", routing_key="")
    client.call("queue.bind", queue="p.back", exchange="amq.topic", routing_key="#")
    client.publish("", Q, b"x")
    for _ in range(2):
        client.wait_for_ready(Q, 1)
        client.send("basic.reject", delivery_tag=client.take(Q)["delivery_tag"], requeue=False)
        client.wait_for_ready("p.dead", 1)
        dead = client.take("p.dead")
        client.publish("amq.topic", "again", dead.body, headers={"x-death": dead.content.headers["x-death"]})
        client.wait_for_ready("p.back", 1)
        client.send("basic.reject", delivery_tag=client.take("p.back")["delivery_tag"], requeue=False)
    client.wait_for_ready(Q, 1)
    deaths = headers_of(client.take(Q))["x-death"]
    assert [(death["queue"], death["reason"], death["count"]) for death in deaths] == [
        ("p.back", "rejected", 2),
        (Q, "rejected", 2),
    ]


@trap(57)
def test_routing_keys_of_the_dead(broker: SpecBroker) -> None:
    """x-death tells the key that the message was published with; the copy has the new one."""
    client = limited(broker, x_dead_letter_exchange="", x_dead_letter_routing_key="p.dead")
    client.call("queue.bind", queue=Q, exchange="amq.topic", routing_key="a.#")
    client.publish("amq.topic", "a.b", b"x")
    client.wait_for_ready(Q, 1)
    client.send("basic.reject", delivery_tag=client.take(Q)["delivery_tag"], requeue=False)
    client.wait_for_ready("p.dead", 1)
    dead = client.take("p.dead")
    assert (dead["exchange"], dead["routing_key"]) == ("", "p.dead")
    headers = headers_of(dead)
    (death,) = headers["x-death"]
    assert (death["exchange"], death["routing-keys"]) == ("amq.topic", ["a.b"])
    assert (headers["x-first-death-queue"], headers["x-first-death-reason"]) == (Q, "rejected")
    assert headers["x-first-death-exchange"] == "amq.topic"


@trap(58)
def test_circles_of_expiry_end_and_those_of_rejection_do_not(broker: SpecBroker) -> None:
    """A queue whose dead letters come back to it: expired ones are dropped, rejected ones are kept and counted."""
    client = broker.open()
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": Q}
    client.call("queue.declare", queue=Q, arguments=arguments)
    client.publish("", Q, b"x", expiration="10")
    client.publish("", Q, b"marker")
    client.wait_for_ready(Q, 2)
    let_pass(client, 300)
    assert client.take(Q, no_ack=True).body == b"marker"
    assert client.get(Q) is None
    client.publish("", Q, b"again")
    for count in range(3):
        client.wait_for_ready(Q, 1)
        taken = client.take(Q)
        deaths = headers_of(taken).get("x-death", []) if taken.content.properties else []
        assert [death["count"] for death in deaths] == ([count] if count else [])
        client.send("basic.reject", delivery_tag=taken["delivery_tag"], requeue=False)


@trap(59)
def test_missing_dead_letter_exchange(broker: SpecBroker) -> None:
    """The dead letter exchange need not exist, neither at declare nor when a message dies: that one is gone."""
    client = broker.open()
    client.call("queue.declare", queue=Q, arguments={"x-dead-letter-exchange": "p.none"})
    client.publish("", Q, b"m")
    client.take(Q)
    client.send("basic.reject", delivery_tag=1, requeue=False)
    assert client.get(Q) is None
    assert client.count(Q) == (0, 0)


@trap(60)
def test_drop_head_takes_the_highest_priority_first(broker: SpecBroker) -> None:
    """low, high, low2 with limit 2 leaves low, low2."""
    client = limited(broker, x_max_length=2, x_max_priority=5)
    for body, priority in ((b"low", 0), (b"high", 5), (b"low2", 0)):
        client.publish("", Q, body, priority=priority)
    client.wait_for_ready(Q, 2)
    assert [client.take(Q).body for _ in range(2)] == [b"low", b"low2"]


@trap(61)
def test_unacked_messages_take_no_room(broker: SpecBroker) -> None:
    """max-length counts ready messages only."""
    client = limited(broker, x_max_length=1)
    client.publish("", Q, b"held")
    client.wait_for_ready(Q, 1)
    client.take(Q)
    client.publish("", Q, b"fits")
    client.wait_for_ready(Q, 1)
    assert client.take(Q).body == b"fits"


@trap(62)
def test_priorities_are_clamped_and_absent_is_zero(broker: SpecBroker) -> None:
    """9 counts as 5 where 5 is the highest; no priority and 0 are one level; the property itself is kept."""
    client = limited(broker, x_max_priority=5)
    for body, properties in (
        (b"none", {}),
        (b"one", {"priority": 1}),
        (b"nine", {"priority": 9}),
        (b"zero", {"priority": 0}),
        (b"five", {"priority": 5}),
    ):
        client.publish("", Q, body, **properties)
    client.wait_for_ready(Q, 5)
    taken = [client.take(Q) for _ in range(5)]
    assert [method.body for method in taken] == [b"nine", b"five", b"one", b"none", b"zero"]
    assert taken[0].content.properties["priority"] == 9
