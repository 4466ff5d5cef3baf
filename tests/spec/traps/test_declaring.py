"""Declaring, binding and deleting queues and exchanges: where naive brokers differ from RabbitMQ."""

from __future__ import annotations

import re
from typing import Any

import pytest
from spec_broker import SpecBroker, expect_channel_close
from traps import Q, filled, not_found, trap

LOCKED = (
    "RESOURCE_LOCKED - cannot obtain exclusive access to locked queue 'p.trap' in vhost '/'. It could be originally "
    "declared on another connection or the exclusive property value does not match that of the original declaration."
)


@trap(18)
def test_deleting_what_is_not_there(broker: SpecBroker) -> None:
    """queue.delete and exchange.delete of missing objects succeed, also with if-unused and if-empty."""
    client = broker.open()
    assert client.call("queue.delete", queue="p.none")["message_count"] == 0
    assert client.call("queue.delete", queue="p.none", if_unused=True, if_empty=True)["message_count"] == 0
    client.call("exchange.delete", exchange="p.none")
    client.call("exchange.delete", exchange="p.none", if_unused=True)


@trap(19)
def test_unbinding_what_is_not_bound(broker: SpecBroker) -> None:
    """Unbind succeeds when the binding, the queue or an exchange is missing."""
    client = broker.open()
    client.call("queue.declare", queue=Q)
    for queue, exchange in ((Q, "amq.direct"), ("p.none", "amq.direct"), (Q, "p.none"), ("p.none", "p.none")):
        client.call("queue.unbind", queue=queue, exchange=exchange, routing_key="k")
    for source, destination in (("amq.direct", "amq.topic"), ("p.none", "amq.topic"), ("amq.direct", "p.none")):
        client.call("exchange.unbind", source=source, destination=destination, routing_key="k")


@trap(20)
def test_deleting_a_reserved_name(broker: SpecBroker) -> None:
    """exchange.delete of an `amq.` name that does not exist is refused, not ok."""
    client = broker.open()
    client.send("exchange.delete", exchange="amq.x")
    text = "ACCESS_REFUSED - deletion of system exchange 'amq.x' in vhost '/' not allowed"
    expect_channel_close(client, 403, text, (40, 20))


@trap(21)
def test_passive_declare_without_a_name(broker: SpecBroker) -> None:
    """The last declared queue is no default of queue.declare."""
    client = broker.open()
    client.call("queue.declare", queue=Q)
    client.send("queue.declare", queue="", passive=True)
    expect_channel_close(client, 404, "NOT_FOUND - no queue '' in vhost '/'", (50, 10))


@trap(22)
def test_bind_without_queue_and_key(broker: SpecBroker) -> None:
    """Without queue and key the last queue's name is the key as well; with a named queue the empty key stays empty."""
    client = broker.open()
    client.call("queue.declare", queue=Q)
    client.call("queue.bind", queue="", exchange="amq.direct", routing_key="")
    client.publish("amq.direct", Q, b"by name")
    client.publish("amq.direct", "", b"by nothing")
    assert client.bodies(Q) == [b"by name"]
    client.call("queue.unbind", queue="", exchange="amq.direct", routing_key="")
    client.call("queue.bind", queue=Q, exchange="amq.direct", routing_key="")
    client.publish("amq.direct", Q, b"by name")
    client.publish("amq.direct", "", b"by nothing")
    assert client.bodies(Q) == [b"by nothing"]


@trap(23)
def test_the_last_declared_queue(broker: SpecBroker) -> None:
    """It is the channel's own, and set by server-named and passive declares; get, consume, purge, delete use it."""
    client = broker.open(channels=2)
    client.call("queue.declare", queue="p.other")
    client.publish("", "p.other", b"1")
    generated = client.call("queue.declare", queue="", exclusive=True)["queue"]
    assert re.fullmatch(r"amq\.gen-[A-Za-z0-9_-]{22}", generated)
    client.publish("", generated, b"2")
    assert client.take("", no_ack=True).body == b"2"
    client.call("queue.declare", queue="p.other", passive=True)
    assert client.take("", no_ack=True).body == b"1"
    client.publish("", "p.other", b"3")
    assert client.call("queue.purge", queue="")["message_count"] == 1
    client.call("basic.consume", queue="", consumer_tag="c", no_ack=True)
    client.publish("", "p.other", b"4")
    assert client.expect("basic.deliver").body == b"4"
    client.send("basic.get", channel=2, queue="")
    expect_channel_close(client, 404, "NOT_FOUND - no previously declared queue", (60, 70), channel=2)
    client.call("basic.cancel", consumer_tag="c")
    client.call("queue.delete", queue="")
    not_found(client, "p.other")


@trap(24)
@pytest.mark.parametrize("was_exclusive", [False, True])
def test_exclusive_mismatch(was_exclusive: bool, broker: SpecBroker) -> None:
    """Declared again with the other exclusive: 405, not 406; on the owning connection only the missing flag passes."""
    client, other = broker.open(), broker.open()
    client.call("queue.declare", queue=Q, exclusive=was_exclusive)
    if not was_exclusive:
        client.send("queue.declare", queue=Q, exclusive=True)
        expect_channel_close(client, 405, LOCKED, (50, 10))
    other.send("queue.declare", queue=Q, exclusive=True)
    expect_channel_close(other, 405, LOCKED, (50, 10))


@trap(25)
@pytest.mark.parametrize("durable", [False, True])
def test_durable_of_an_exclusive_queue(durable: bool, broker: SpecBroker) -> None:
    """durable does not count in the equivalence of exclusive queues."""
    client = broker.open()
    client.call("queue.declare", queue=Q, exclusive=True, durable=durable)
    client.call("queue.declare", queue=Q, exclusive=True, durable=not durable)


@trap(26)
def test_equivalent_arguments(broker: SpecBroker) -> None:
    """The width of integers, unknown keys and an explicit classic type do not matter, another value does."""
    client = broker.open()
    client.call("queue.declare", queue=Q, arguments={"x-max-length": ("b", 5), "x-foo": 1})
    for tag in "bBsuIilL":
        client.call("queue.declare", queue=Q, arguments={"x-max-length": (tag, 5), "x-queue-type": "classic"})
    client.send("queue.declare", queue=Q, arguments={"x-max-length": 6})
    text = (
        "PRECONDITION_FAILED - inequivalent arg 'x-max-length' for queue 'p.trap' in vhost '/': "
        "received '6' but current is '5'"
    )
    expect_channel_close(client, 406, text, (50, 10))


@trap(27)
@pytest.mark.parametrize("kind", ["queue", "exchange"])
def test_auto_delete_with_an_underscore(kind: str, broker: SpecBroker) -> None:
    """Texts say auto_delete although the field is called auto-delete."""
    client = broker.open()
    fields: dict[str, Any] = {kind: Q, **({"type": "direct"} if kind == "exchange" else {})}
    client.call(f"{kind}.declare", auto_delete=True, **fields)
    client.send(f"{kind}.declare", auto_delete=False, **fields)
    text = (
        f"PRECONDITION_FAILED - inequivalent arg 'auto_delete' for {kind} 'p.trap' in vhost '/': "
        "received 'false' but current is 'true'"
    )
    expect_channel_close(client, 406, text, (50, 10) if kind == "queue" else (40, 10))


@trap(28)
def test_line_ends_in_names(broker: SpecBroker) -> None:
    """CR and LF vanish from names in declare, bind and delete, but not in publish."""
    client = broker.open()
    assert client.call("queue.declare", queue="p.cr\r\nlf")["queue"] == "p.crlf"
    client.call("exchange.declare", exchange="p.x\r\n", type="fanout")
    client.call("queue.bind", queue="p.cr\nlf", exchange="\np.x")
    client.publish("p.x", "", b"bound")
    assert client.bodies("p.crlf") == [b"bound"]
    client.publish("", "p.cr\r\nlf", b"lost", mandatory=True)
    client.expect("basic.return")
    client.call("queue.delete", queue="p.crlf\n")
    client.call("exchange.delete", exchange="p.x\r")
    not_found(client, "p.crlf")


@trap(29)
def test_counts_of_declare_ok(broker: SpecBroker) -> None:
    """message_count is without the unacked, consumer_count counts every consumer, waiting ones too."""
    client = filled(broker, 3)
    client.take(Q)
    assert client.count(Q) == (2, 0)
    client.call("queue.declare", queue="p.sac", arguments={"x-single-active-consumer": True})
    for _ in range(2):
        client.call("basic.consume", queue="p.sac")
    assert client.count("p.sac") == (0, 2)


@trap(30)
def test_if_empty_ignores_the_unacked(broker: SpecBroker) -> None:
    """A queue with nothing but unacked messages counts as empty."""
    client = filled(broker, 1)
    client.take(Q)
    assert client.call("queue.delete", queue=Q, if_empty=True)["message_count"] == 0
    client.send("basic.ack", delivery_tag=1)  # no effect and no error
    not_found(client, Q)


@trap(31)
def test_purge_takes_the_ready_only(broker: SpecBroker) -> None:
    """Unacked messages survive a purge and are not counted."""
    client = filled(broker, 3)
    client.take(Q)
    assert client.call("queue.purge", queue=Q)["message_count"] == 2
    client.send("basic.nack", delivery_tag=1, requeue=True)
    assert client.bodies(Q) == [b"0"]


@trap(32)
@pytest.mark.parametrize("how", ["cancel", "channel.close"])
def test_auto_delete_queue(how: str, broker: SpecBroker) -> None:
    """It lives until its last consumer goes, and a basic.get is no consumer."""
    client = broker.open(channels=2)
    client.call("queue.declare", queue=Q, auto_delete=True)
    client.publish("", Q, b"1")
    client.take(Q, no_ack=True)
    assert client.count(Q) == (0, 0)
    client.call("basic.consume", channel=2, queue=Q, consumer_tag="a")
    client.call("basic.consume", channel=2, queue=Q, consumer_tag="b")
    client.call("basic.cancel", channel=2, consumer_tag="a")
    assert client.count(Q) == (0, 1)
    if how == "cancel":
        client.call("basic.cancel", channel=2, consumer_tag="b")
    else:
        client.call("channel.close", channel=2)
    not_found(client, Q)


@trap(33)
@pytest.mark.parametrize("how", ["unbind", "queue.delete", "exchange.delete"])
def test_auto_delete_exchange(how: str, broker: SpecBroker) -> None:
    """It lives until its last binding as source goes, for whatever reason; as destination it does not matter."""
    client = broker.open()
    client.call("exchange.declare", exchange="p.auto", type="fanout", auto_delete=True)
    client.call("exchange.bind", source="amq.fanout", destination="p.auto", routing_key="p")
    client.call("exchange.unbind", source="amq.fanout", destination="p.auto", routing_key="p")
    client.call("exchange.declare", exchange="p.auto", passive=True)
    client.call("queue.declare", queue=Q)
    client.call("exchange.declare", exchange="p.dest", type="fanout")
    if how == "exchange.delete":
        client.call("exchange.bind", source="p.auto", destination="p.dest")
        client.call("exchange.delete", exchange="p.dest")
    else:
        client.call("queue.bind", queue=Q, exchange="p.auto", routing_key="1")
        client.call("queue.bind", queue=Q, exchange="p.auto", routing_key="2")
        client.call("queue.unbind", queue=Q, exchange="p.auto", routing_key="1")
        client.call("exchange.declare", exchange="p.auto", passive=True)
        if how == "unbind":
            client.call("queue.unbind", queue=Q, exchange="p.auto", routing_key="2")
        else:
            client.call("queue.delete", queue=Q)
    client.send("exchange.declare", exchange="p.auto", passive=True)
    expect_channel_close(client, 404, "NOT_FOUND - no exchange 'p.auto' in vhost '/'", (40, 10))
