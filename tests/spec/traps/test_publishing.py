"""Publishing, confirms and returns: where naive brokers differ from RabbitMQ."""

from __future__ import annotations

import pytest
from spec_broker import SpecBroker, expect_channel_close, expect_connection_close
from traps import Q, limited, trap

from leveret.interop.wire.raw_codec import BODY, HEADER, header_payload, properties_of

HEADERS = {
    **{"t": True, "b": ("b", -1), "B": ("B", 255), "s": ("s", -300), "u": ("u", 65535), "I": ("I", -5), "i": ("i", 5)},
    **{"l": ("l", -(2**40)), "L": ("L", 2**40), "f": ("f", 1.5), "d": ("d", 2.25), "D": ("D", (2, 314))},
    **{"S": b"\xff octets", "x": ("x", b"\0\1"), "T": ("T", 1_700_000_000), "V": None, "A": [1, "two", {"three": 3}]},
    **{"F": {"inner": ("s", 7)}},
}


@trap(35)
@pytest.mark.parametrize("mode", ["plain", "mandatory", "confirm", "tx"])
def test_missing_exchange(mode: str, broker: SpecBroker) -> None:
    """Publishing to a missing exchange closes the channel in every mode: no return, no nack."""
    client = broker.open()
    if mode in ("confirm", "tx"):
        client.call(f"{mode}.select")
    client.publish("p.none", "k", b"m", mandatory=mode == "mandatory")
    expect_channel_close(client, 404, "NOT_FOUND - no exchange 'p.none' in vhost '/'", (60, 40))


@trap(36)
def test_publish_errors_wait_for_the_content(broker: SpecBroker) -> None:
    """The error of a publish comes when header and body are there, with the ids of basic.publish."""
    client = broker.open(channels=2)
    client.send("basic.publish", exchange="p.none", routing_key="k")
    client.call("basic.qos", channel=2)  # nothing came before this reply
    client.send_frame(HEADER, 1, header_payload(4))
    client.send_frame(BODY, 1, b"ab")
    client.call("basic.qos", channel=2)
    client.send_frame(BODY, 1, b"cd")
    expect_channel_close(client, 404, "NOT_FOUND - no exchange 'p.none' in vhost '/'", (60, 40))


@trap(37)
def test_unroutable_is_acked(broker: SpecBroker) -> None:
    """Unroutable without mandatory in confirm mode: basic.ack and nothing else."""
    client = broker.open()
    client.call("confirm.select")
    client.publish("amq.direct", "p.nowhere", b"m")
    assert client.expect("basic.ack")["delivery_tag"] == 1
    assert client.collect() == []


@trap(38)
def test_return_precedes_the_ack(broker: SpecBroker) -> None:
    """basic.return with exchange, key, header and body as published, then the ack (the stripped BCC: with BCC)."""
    client = broker.open()
    client.call("confirm.select")
    properties = properties_of(content_type="text/x", headers={"h": ("L", 5)}, delivery_mode=2)
    client.publish("amq.direct", "p.nowhere", b"body", mandatory=True, properties_octets=properties)
    returned = client.expect("basic.return")
    assert returned.arguments == {
        "reply_code": 312,
        "reply_text": "NO_ROUTE",
        "exchange": "amq.direct",
        "routing_key": "p.nowhere",
    }
    assert returned.content is not None
    assert (returned.content.properties_octets, returned.body) == (properties, b"body")
    assert client.expect("basic.ack")["delivery_tag"] == 1


@trap(39)
def test_reject_publish_is_nacked_and_not_returned(broker: SpecBroker) -> None:
    """A full reject-publish queue: basic.nack, and no basic.return even with mandatory."""
    client = limited(broker, x_max_length=1, x_overflow="reject-publish")
    client.call("confirm.select")
    client.publish("", Q, b"fits", mandatory=True)
    assert client.expect("basic.ack")["delivery_tag"] == 1
    client.publish("", Q, b"does not", mandatory=True)
    assert client.expect("basic.nack")["delivery_tag"] == 2
    assert client.take(Q).body == b"fits"


@trap(40)
def test_immediate(broker: SpecBroker) -> None:
    """immediate is not implemented, and says so on the connection."""
    client = broker.open()
    client.publish("", "p.nowhere", b"m", immediate=True)
    expect_connection_close(client, 540, "NOT_IMPLEMENTED - immediate=true", (60, 40))


@trap(41)
@pytest.mark.parametrize(
    "value, reason",
    [
        ("", "no_integer"),
        (" 10", "no_integer"),
        ("1.5", '{leftover_string,".5"}'),
        ("10s", '{leftover_string,"s"}'),
        ("-1", "{value_negative,-1}"),
    ],
)
def test_expiration_is_a_decimal_number(broker: SpecBroker, value: str, reason: str) -> None:
    """Anything else closes the channel, each with its own reason."""
    client = broker.open()
    client.publish("", Q, expiration=value)
    text = f"PRECONDITION_FAILED - invalid expiration '{value}': {reason}"
    expect_channel_close(client, 406, text, (60, 40))


def test_an_expiration_may_have_a_plus(broker: SpecBroker) -> None:
    """It is a number, as for RabbitMQ: the message expires."""
    client = broker.open()
    client.call("queue.declare", queue=Q)
    client.publish("", Q, b"m", expiration="+0")
    assert client.count(Q) == (0, 0)


@trap(73)
def test_confirm_select_twice(broker: SpecBroker) -> None:
    """The sequence starts with the first select, a second one does not reset it."""
    client = broker.open()
    client.publish("", "p.nowhere")
    client.call("confirm.select")
    client.publish("", "p.nowhere")
    assert client.expect("basic.ack")["delivery_tag"] == 1
    client.call("confirm.select")
    client.publish("", "p.nowhere")
    assert client.expect("basic.ack")["delivery_tag"] == 2


@trap(74)
def test_acks_come_in_bulk(broker: SpecBroker) -> None:
    """100 persistent publishes are confirmed by anything from 1 to 100 acks that cover each tag exactly once."""
    client = broker.open()
    client.call("queue.declare", queue=Q, durable=True)
    client.call("confirm.select")
    for _ in range(100):
        client.publish("", Q, b"m", delivery_mode=2)
    waiting = set(range(1, 101))
    while waiting:
        ack = client.expect("basic.ack")
        tag = ack["delivery_tag"]
        settled = {t for t in waiting if t <= tag} if ack["multiple"] else {tag} & waiting
        assert settled, f"{tag} was confirmed before"
        waiting -= settled
    assert client.collect() == []
    assert client.count(Q) == (100, 0)


@trap(79)
@pytest.mark.parametrize("how", ["get", "deliver", "return"])
def test_headers_pass_octet_for_octet(how: str, broker: SpecBroker) -> None:
    """All 18 field tags and every property come back as they were sent; s is an int16, L an int64."""
    client = broker.open()
    client.call("queue.declare", queue=Q)
    properties = properties_of(
        content_type="a/b",
        content_encoding="é",
        headers=HEADERS,
        delivery_mode=1,
        priority=3,
        correlation_id="c",
        reply_to="r",
        message_id="m",
        timestamp=2**40,
        type="t",
        user_id="guest",
        app_id="app",
        cluster_id="cluster",
    )
    client.publish("", "p.nowhere" if how == "return" else Q, b"m", mandatory=True, properties_octets=properties)
    if how == "deliver":
        client.call("basic.consume", queue=Q)
    got = client.take(Q) if how == "get" else client.expect(f"basic.{how}")
    assert got.content is not None
    assert got.content.properties_octets == properties
