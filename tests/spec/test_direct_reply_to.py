"""Direct reply-to: behaviour page 3.10, through the wire."""

from __future__ import annotations

import re
from typing import Any

import pytest
from rawclient import Client, Method
from spec_broker import SpecBroker, expect_channel_close, expect_connection_close

REPLY_TO = "amq.rabbitmq.reply-to"
REQUESTS = "p.requests"


def requester(broker: SpecBroker, **consume: Any) -> Client:
    """A client that consumes replies on channel 1, and a queue for its requests."""
    client = broker.open()
    client.call("queue.declare", queue=REQUESTS)
    client.call("basic.consume", queue=REPLY_TO, **{"no_ack": True, **consume})
    return client


def address_of(server: Client, *, channel: int = 1) -> str:
    """Take a request, return its reply_to."""
    server.wait_for_ready(REQUESTS, 1, channel=channel)
    request = server.take(REQUESTS, no_ack=True, channel=channel)
    assert request.content is not None
    address: str = request.content.properties["reply_to"]
    return address


def test_request_and_reply(broker: SpecBroker) -> None:
    """The request carries an address of its own; the reply is a delivery with that address as its routing key."""
    client, server = requester(broker, consumer_tag="replies"), broker.open()
    client.publish("", REQUESTS, b"question", reply_to=REPLY_TO, correlation_id="7", headers={"h": "1"})
    server.wait_for_ready(REQUESTS, 1)
    request = server.take(REQUESTS, no_ack=True)
    assert request.content is not None
    properties = request.content.properties
    address = properties.pop("reply_to")
    assert properties == {"correlation_id": "7", "headers": {"h": ("S", b"1")}}
    assert re.fullmatch(rf"{re.escape(REPLY_TO)}\.[^\0]{{20,200}}", address)
    server.publish("", address, b"answer", correlation_id="7")
    reply = client.expect("basic.deliver")
    assert reply.content is not None and reply.content.properties == {"correlation_id": "7"}
    assert reply.body == b"answer"
    expected = {"consumer_tag": "replies", "delivery_tag": 1, "redelivered": False, "exchange": ""}
    assert reply.arguments == {**expected, "routing_key": address}


def test_replies_share_the_delivery_tags_of_the_channel(broker: SpecBroker) -> None:
    """One sequence with gets and other deliveries; one address for all requests of the channel.

    RabbitMQ 3.10 gives a reply the tag of the delivery that comes next.
    """
    client, server = requester(broker), broker.open()
    addresses = []
    for _ in range(2):
        client.publish("", REQUESTS, b"q", reply_to=REPLY_TO)
        addresses.append(address_of(server))
    assert addresses[0] == addresses[1]
    server.publish("", addresses[0], b"1")
    assert client.expect("basic.deliver")["delivery_tag"] == 1
    server.publish("", REQUESTS, b"other")
    client.wait_for_ready(REQUESTS, 1)
    assert client.take(REQUESTS)["delivery_tag"] == (1 if broker.is_rabbitmq else 2)
    server.publish("", addresses[0], b"2")
    assert client.expect("basic.deliver")["delivery_tag"] == (2 if broker.is_rabbitmq else 3)


def test_other_reply_addresses_pass_through(broker: SpecBroker) -> None:
    """Only the exact name is written out; any other reply_to is the clients' business."""
    client, server = requester(broker), broker.open()
    for reply_to in ("p.mine", REPLY_TO + "x", ""):
        client.publish("", REQUESTS, b"q", reply_to=reply_to)
        assert address_of(server) == reply_to


def test_a_request_through_an_exchange(broker: SpecBroker) -> None:
    """Whatever way it takes; two channels have two addresses."""
    client, server = requester(broker), broker.open()
    client.call("exchange.declare", exchange="p.x", type="fanout")
    client.call("queue.bind", queue=REQUESTS, exchange="p.x")
    client.call("channel.open", channel=2)
    client.call("basic.consume", channel=2, queue=REPLY_TO, no_ack=True)
    addresses = []
    for channel in (1, 2):
        client.publish("p.x", "k", b"q", reply_to=REPLY_TO, channel=channel)
        addresses.append(address_of(server))
    assert len(set(addresses)) == 2
    server.publish("", addresses[1], b"second")
    assert client.expect("basic.deliver", channel=2).body == b"second"


def test_a_request_in_a_transaction(broker: SpecBroker) -> None:
    """The address is written out as well."""
    client, server = requester(broker), broker.open()
    client.call("tx.select")
    client.publish("", REQUESTS, b"q", reply_to=REPLY_TO)
    client.call("tx.commit")
    server.publish("", address_of(server), b"answer")
    assert client.expect("basic.deliver").body == b"answer"


REFUSED: dict[str, tuple[list[tuple[str, dict[str, Any]]], str, tuple[int, int]]] = {
    "acknowledging": (
        [("basic.consume", {"queue": REPLY_TO})],
        "PRECONDITION_FAILED - reply consumer cannot acknowledge",
        (60, 20),
    ),
    "twice": (
        [("basic.consume", {"queue": REPLY_TO, "no_ack": True, "nowait": True})] * 2,
        "PRECONDITION_FAILED - reply consumer already set",
        (60, 20),
    ),
    "get": ([("basic.get", {"queue": REPLY_TO})], f"NOT_FOUND - no queue '{REPLY_TO}' in vhost '/'", (60, 70)),
    "purge": ([("queue.purge", {"queue": REPLY_TO})], f"NOT_FOUND - no queue '{REPLY_TO}' in vhost '/'", (50, 30)),
    "bind": (
        [("queue.bind", {"queue": REPLY_TO, "exchange": "amq.direct", "routing_key": "k"})],
        f"NOT_FOUND - no queue '{REPLY_TO}' in vhost '/'",
        (50, 20),
    ),
    "declare-dead": (
        [("queue.declare", {"queue": f"{REPLY_TO}.bogus"})],
        f"NOT_FOUND - no queue '{REPLY_TO}.bogus' in vhost '/'",
        (50, 10),
    ),
}


@pytest.mark.parametrize(("methods", "text", "ids"), REFUSED.values(), ids=list(REFUSED))
def test_refused(
    methods: list[tuple[str, dict[str, Any]]], text: str, ids: tuple[int, int], broker: SpecBroker
) -> None:
    """What can't be done with the name."""
    client = broker.open()
    for method, values in methods:
        client.send(method, **values)
    expect_channel_close(client, int({"PRE": 406, "NOT": 404}[text[:3]]), text, ids)


def test_a_request_before_the_consumer(broker: SpecBroker) -> None:
    """Refused on a channel that does not consume replies, and does so again once its consumer is cancelled."""
    client = broker.open()
    text = "PRECONDITION_FAILED - fast reply consumer does not exist"
    client.publish("", "p.nowhere", b"q", reply_to=REPLY_TO)
    expect_channel_close(client, 406, text, (60, 40))
    client.call("channel.open")
    tag = client.call("basic.consume", queue=REPLY_TO, no_ack=True)["consumer_tag"]
    assert tag.startswith("amq.ctag-")
    client.call("basic.cancel", consumer_tag=tag)
    client.publish("", "p.nowhere", b"q", reply_to=REPLY_TO)
    expect_channel_close(client, 406, text, (60, 40))


def test_the_consumer_tag_is_one_of_the_channel(broker: SpecBroker) -> None:
    """A tag that is in use on the channel is refused, as for every consumer."""
    client = broker.open()
    client.call("queue.declare", queue=REQUESTS)
    client.call("basic.consume", queue=REQUESTS, consumer_tag="t")
    client.send("basic.consume", queue=REPLY_TO, no_ack=True, consumer_tag="t")
    expect_connection_close(client, 530, "NOT_ALLOWED - attempt to reuse consumer tag 't'", (60, 20))


def declared(client: Client, name: str, *, passive: bool) -> Method:
    """What queue.declare of a name is answered; a channel.close is answered, and the channel opened again."""
    client.send("queue.declare", queue=name, passive=passive)
    answer = client.read()
    if answer.name == "channel.close":
        client.send("channel.close-ok")
        client.call("channel.open")
    return answer


@pytest.mark.parametrize("passive", [True, False])
def test_declare_shows_who_is_there(passive: bool, broker: SpecBroker) -> None:
    """The address: no message, one consumer, from any connection; the plain name always exists."""
    client, server = requester(broker), broker.open()
    client.publish("", REQUESTS, b"q", reply_to=REPLY_TO)
    address = address_of(server)
    for name in (address, REPLY_TO):
        answer = declared(server, name, passive=passive)
        assert answer.arguments == {"queue": name, "message_count": 0, "consumer_count": 1}
    client.call("channel.close")
    assert declared(server, address, passive=passive)["reply_text"] == f"NOT_FOUND - no queue '{address}' in vhost '/'"
    assert declared(server, REPLY_TO, passive=passive).name == "queue.declare-ok"


@pytest.mark.parametrize("end", ["cancel", "channel", "connection"])
def test_a_reply_to_somebody_who_is_gone(end: str, broker: SpecBroker) -> None:
    """Dropped and confirmed; a mandatory one is returned. Nothing of it turns up at the next consumer.

    RabbitMQ 3.10 returns every mandatory reply, also those that it delivers.
    """
    client, server = requester(broker, consumer_tag="t"), broker.open()
    server.call("confirm.select")
    client.publish("", REQUESTS, b"q", reply_to=REPLY_TO)
    address = address_of(server)
    server.publish("", address, b"in time", mandatory=True)
    assert client.expect("basic.deliver").body == b"in time"
    if broker.is_rabbitmq:
        server.expect("basic.return")
    server.expect("basic.ack")
    if end == "cancel":
        client.call("basic.cancel", consumer_tag="t")
    elif end == "channel":
        client.call("channel.close")
    else:
        client.close()
    server.publish("", address, b"late")
    server.expect("basic.ack")
    server.publish("", address, b"late", mandatory=True)
    returned = server.expect("basic.return")
    assert (returned["reply_code"], returned["exchange"], returned["routing_key"]) == (312, "", address)
    server.expect("basic.ack")
    if end == "cancel":
        client.call("basic.consume", queue=REPLY_TO, no_ack=True)
        assert client.collect() == []


def test_delete_of_an_address(broker: SpecBroker) -> None:
    """As for any queue that is not there: fine, and the address lives on."""
    client, server = requester(broker), broker.open()
    client.publish("", REQUESTS, b"q", reply_to=REPLY_TO)
    address = address_of(server)
    for name in (address, REPLY_TO):
        assert server.call("queue.delete", queue=name)["message_count"] == 0
    server.publish("", address, b"still")
    assert client.expect("basic.deliver").body == b"still"


def test_a_reply_by_carbon_copy(broker: SpecBroker) -> None:
    """An address is a routing key of the default exchange like others."""
    client, server = requester(broker), broker.open()
    client.publish("", REQUESTS, b"q", reply_to=REPLY_TO)
    address = address_of(server)
    server.publish("", REQUESTS, b"both", headers={"CC": [address]})
    assert client.expect("basic.deliver").body == b"both"
    server.wait_for_ready(REQUESTS, 1)


def test_one_answers_oneself_on_one_channel(broker: SpecBroker) -> None:
    """Many requests and replies on the same channel keep their order."""
    client = requester(broker)
    client.publish("", REQUESTS, b"q", reply_to=REPLY_TO)
    address = address_of(client)
    for number in range(50):
        client.publish("", address, str(number).encode())
    assert [method.body for method in client.deliveries(50)] == [str(number).encode() for number in range(50)]
