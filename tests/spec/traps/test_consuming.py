"""Consuming, prefetch, acknowledgements and requeueing: where naive brokers differ from RabbitMQ."""

from __future__ import annotations

from typing import Any

import pytest
from rawclient import Client
from spec_broker import SpecBroker, expect_channel_close, expect_connection_close
from traps import Q, filled, trap


def stream(client: Client) -> None:
    """A stream of the name p.trap."""
    client.call("queue.declare", queue=Q, durable=True, arguments={"x-queue-type": "stream"})


@trap(42)
def test_consumer_tag_in_use(broker: SpecBroker) -> None:
    """A tag in use on the channel ends the connection; on another channel it is fine, and after a cancel too."""
    client = broker.open(channels=2)
    client.call("queue.declare", queue=Q)
    client.call("basic.consume", queue=Q, consumer_tag="t")
    client.call("basic.consume", channel=2, queue=Q, consumer_tag="t")
    client.call("basic.cancel", consumer_tag="t")
    client.call("basic.consume", queue=Q, consumer_tag="t")
    client.send("basic.consume", queue=Q, consumer_tag="t")
    expect_connection_close(client, 530, "NOT_ALLOWED - attempt to reuse consumer tag 't'", (60, 20))


@trap(43)
def test_cancel_of_an_unknown_tag(broker: SpecBroker) -> None:
    """It is answered cancel-ok with that tag."""
    client = broker.open()
    assert client.call("basic.cancel", consumer_tag="nobody")["consumer_tag"] == "nobody"


@trap(44)
def test_unacked_survive_the_cancel(broker: SpecBroker) -> None:
    """What a cancelled consumer held stays outstanding and can be acked."""
    client = filled(broker, 2)
    client.call("basic.consume", queue=Q, consumer_tag="c")
    tags = [method["delivery_tag"] for method in client.deliveries(2)]
    client.call("basic.cancel", consumer_tag="c")
    assert client.count(Q) == (0, 0)
    client.send("basic.ack", delivery_tag=tags[0])
    client.call("basic.recover", requeue=True)
    assert client.bodies(Q) == [b"1"]


@trap(45)
@pytest.mark.parametrize("method", ["ack", "nack"])
def test_tag_zero_and_multiple(method: str, broker: SpecBroker) -> None:
    """Tag 0 means all with multiple and nothing without; multiple up to a tag that is not outstanding is an error."""
    ids = (60, 80) if method == "ack" else (60, 120)
    client = filled(broker, 3)
    client.send(f"basic.{method}", delivery_tag=0, multiple=True)  # nothing outstanding: ok
    for _ in range(3):
        client.take(Q)
    client.send(f"basic.{method}", delivery_tag=5, multiple=True)
    expect_channel_close(client, 406, "PRECONDITION_FAILED - unknown delivery tag 5", ids)
    client.call("channel.open")
    assert client.count(Q) == (3, 0)  # nothing was settled
    for _ in range(3):
        client.take(Q)
    client.send(f"basic.{method}", delivery_tag=0, multiple=True)
    client.send(f"basic.{method}", delivery_tag=0)
    expect_channel_close(client, 406, "PRECONDITION_FAILED - unknown delivery tag 0", ids)
    client.call("channel.open")
    assert client.count(Q) == (0, 0)


@trap(46)
@pytest.mark.parametrize("case", ["twice", "no-ack"])
def test_tag_that_is_not_outstanding(case: str, broker: SpecBroker) -> None:
    """A second ack, or the ack of a no-ack delivery, closes the channel."""
    client = filled(broker, 1)
    client.take(Q, no_ack=case == "no-ack")
    if case == "twice":
        client.send("basic.ack", delivery_tag=1)
    client.send("basic.ack", delivery_tag=1)
    expect_channel_close(client, 406, "PRECONDITION_FAILED - unknown delivery tag 1", (60, 80))


@trap(47)
def test_delivery_tags(broker: SpecBroker) -> None:
    """One sequence a channel for get and deliver, with and without ack; a new channel starts at 1."""
    client = filled(broker, 6)
    assert client.take(Q)["delivery_tag"] == 1
    assert client.take(Q, no_ack=True)["delivery_tag"] == 2
    client.call("basic.qos", prefetch_count=1)
    client.call("basic.consume", queue=Q, consumer_tag="c")
    assert client.expect("basic.deliver")["delivery_tag"] == 3
    assert client.take(Q)["delivery_tag"] == 4
    client.call("channel.open", channel=2)
    assert client.take(Q, channel=2)["delivery_tag"] == 1
    client.call("basic.cancel", consumer_tag="c")
    client.call("channel.close")
    client.call("channel.open")
    assert client.take(Q)["delivery_tag"] == 1


@trap(48)
def test_qos_of_consumer_and_of_channel(broker: SpecBroker) -> None:
    """qos(global=0) is for later consumers only, qos(global=1) applies to existing ones at once; both must allow."""
    client = broker.open()
    client.call("queue.declare", queue=Q)
    client.call("basic.consume", queue=Q, consumer_tag="old")
    client.call("basic.qos", prefetch_count=1)
    for number in range(3):
        client.publish("", Q, str(number).encode())
    client.deliveries(3)
    client.call("basic.cancel", consumer_tag="old")
    client.send("basic.ack", delivery_tag=0, multiple=True)
    client.call("basic.consume", queue=Q, consumer_tag="new")
    for number in range(3):
        client.publish("", Q, str(number).encode())
    client.deliveries(1)
    assert client.collect(Q) == []

    client = broker.open()
    client.call("queue.declare", queue="p.global")
    client.call("basic.consume", queue="p.global", consumer_tag="old")
    client.call("basic.qos", prefetch_count=1, global_=True)
    for number in range(3):
        client.publish("", "p.global", str(number).encode())
    first = client.expect("basic.deliver")
    assert client.collect("p.global") == []
    client.send("basic.ack", delivery_tag=first["delivery_tag"])
    client.expect("basic.deliver")
    assert client.collect("p.global") == []


@trap(48)
def test_limits_of_consumer_and_channel_add_up(broker: SpecBroker) -> None:
    """Two consumers with 2 each under a channel limit of 3 hold 2 and 1."""
    client = broker.open()
    for queue in ("p.one", "p.two"):
        client.call("queue.declare", queue=queue)
    client.call("basic.qos", prefetch_count=2)
    client.call("basic.qos", prefetch_count=3, global_=True)  # in this order: the other way 3.10 forgets the channel's
    client.call("basic.consume", queue="p.one", consumer_tag="one")
    client.call("basic.consume", queue="p.two", consumer_tag="two")
    for queue in ("p.one", "p.two"):
        for number in range(3):
            client.publish("", queue, str(number).encode())
        client.deliveries(2 if queue == "p.one" else 1)
    assert client.collect("p.two") == []


@trap(49)
def test_get_ignores_prefetch_and_exclusive_consumers(broker: SpecBroker) -> None:
    """basic.get takes what the consumer's credit does not, also beside an exclusive consumer, and uses none up."""
    client = filled(broker, 4)
    client.call("basic.qos", prefetch_count=1)
    client.call("basic.consume", queue=Q, exclusive=True)
    held = client.expect("basic.deliver")
    assert [client.take(Q).body for _ in range(2)] == [b"1", b"2"]
    client.send("basic.ack", delivery_tag=held["delivery_tag"])
    assert client.expect("basic.deliver").body == b"3"


@trap(50)
def test_recover_ok_precedes_the_redeliveries(broker: SpecBroker) -> None:
    """recover-ok, then the same messages with new tags and the redelivered flag."""
    client = filled(broker, 2)
    client.call("basic.consume", queue=Q)
    client.deliveries(2)
    client.call("basic.recover", requeue=True)
    again = client.deliveries(2)
    assert [(m.body, m["delivery_tag"], m["redelivered"]) for m in again] == [(b"0", 3, True), (b"1", 4, True)]


@trap(51)
def test_requeue_restores_the_position(broker: SpecBroker) -> None:
    """A requeued message goes back to its place, not to the tail."""
    client = filled(broker, 4)
    for _ in range(3):
        client.take(Q)
    client.send("basic.nack", delivery_tag=2, requeue=True)
    client.send("basic.reject", delivery_tag=1, requeue=True)
    assert client.bodies(Q) == [b"0", b"1", b"3"]


@trap(80)
@pytest.mark.parametrize("value", [("b", -5), ("s", 0), 5, ("l", 2**40), ("L", 1)])
def test_consumer_priority_values(value: Any, broker: SpecBroker) -> None:
    """x-priority of a consumer is any integer of any width, zero and negative too."""
    client = broker.open()
    client.call("queue.declare", queue=Q)
    client.call("basic.consume", queue=Q, arguments={"x-priority": value})


@trap(80)
def test_consumer_priority_string(broker: SpecBroker) -> None:
    """A string is refused."""
    client = broker.open()
    client.call("queue.declare", queue=Q)
    client.send("basic.consume", queue=Q, arguments={"x-priority": "5"})
    text = (
        "PRECONDITION_FAILED - invalid arg 'x-priority' for queue 'p.trap' in vhost '/': "
        '"expected integer, got longstr"'
    )
    expect_channel_close(client, 406, text, (60, 20))


@trap(81)
@pytest.mark.parametrize("no_ack", [False, True])
def test_stream_consumers(no_ack: bool, broker: SpecBroker) -> None:
    """Without prefetch 406, without acknowledgements 540."""
    client = broker.open()
    stream(client)
    if no_ack:
        client.call("basic.qos", prefetch_count=1)
    client.send("basic.consume", queue=Q, no_ack=no_ack)
    named = f"queue '{Q}' in vhost '/'"
    if no_ack:
        text = f"NOT_IMPLEMENTED - automatic acknowledgement not supported by stream queues {named}"
        expect_connection_close(client, 540, text, (60, 20))
    else:
        text = f"PRECONDITION_FAILED - consumer prefetch count is not set for '{named}'"
        expect_channel_close(client, 406, text, (60, 20))


@trap(82)
def test_global_prefetch_is_none_for_streams(broker: SpecBroker) -> None:
    """qos(global=true) does not count as the prefetch of a stream's consumer."""
    client = broker.open()
    stream(client)
    client.call("basic.qos", prefetch_count=10, global_=True)
    client.send("basic.consume", queue=Q)
    text = f"PRECONDITION_FAILED - consumer prefetch count is not set for 'queue '{Q}' in vhost '/''"
    expect_channel_close(client, 406, text, (60, 20))
