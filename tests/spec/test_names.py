"""Names with line ends, control characters and octets that are no text: what comes back, to the octet.

Line ends are taken out of names where queues and exchanges are declared, deleted and bound, and nowhere else: a client
that publishes, consumes, gets or purges by its own spelling is told that there is no such queue. Other characters stay.
Probed on RabbitMQ 3.10.8. Source: behaviour page 0.7.
"""

from __future__ import annotations

from typing import Any

import pytest
from rawclient import Client
from spec_broker import SpecBroker

from leveret.interop.wire.raw_codec import frame, header_payload, method_frame

#: What is no line end stays in a name, wherever it stands.
KEPT = {
    "tab": "p.a\tb",
    "nul": "p.a\0b",
    "escape": "p.\x1b[2J",
    "bell": "p.\a",
    "delete": "p.\x7f",
    "vertical tab and form feed": "p.\x0b\x0c",
    "next line": "p.\x85x",
    "line separator": "p.\u2028x",
    "byte order mark": "\ufeffp",
    "no character": "p.\uffff",
    "leading blank": " p.a",
    "trailing blank": "p.a ",
    "blank": " ",
    "255 octets": "p" * 255,
}
#: As sent -> as it is.
STRIPPED = {
    "p.a\nb": "p.ab",
    "p.a\rb": "p.ab",
    "p.a\r\nb": "p.ab",
    "\np.a": "p.a",
    "p.a\n": "p.a",
    "\r\n p.a\t\r\n": " p.a\t",
    "p" * 254 + "\n": "p" * 254,
}
NO_TEXT = {
    "no UTF-8": b"p.\xff\xfe",
    "too long for what it is": b"p.\xc0\x80",
    "three octets for one": b"p.\xe0\x80\x80",
    "four octets for one": b"p.\xf0\x80\x80\x80",
    "five octets": b"p.\xf8\x88\x80\x80\x80",
    "cut short": b"p.\xe2\x82",
}


def text_of(reply: str) -> str:
    """A reply text as it fits: 255 octets, of which the last three say that there is more."""
    octets = reply.encode()
    return reply if len(octets) <= 255 else octets[:252].decode() + "..."


def refused(client: Client, method: str, code: int, text: str, **values: Any) -> None:
    client.send(method, **values)
    close = client.expect("channel.close")
    assert (close["reply_code"], close["reply_text"]) == (code, text_of(text))
    client.send("channel.close-ok")
    client.call("channel.open")


@pytest.mark.parametrize("name", KEPT.values(), ids=KEPT)
def test_what_stays(name: str, broker: SpecBroker) -> None:
    """Queue, exchange, routing key and consumer tag come back as they were sent, in refusals as well."""
    client = broker.open()
    for passive in (False, False, True):
        assert client.call("queue.declare", queue=name, passive=passive)["queue"] == name
    client.call("exchange.declare", exchange=name, type="direct")
    client.call("queue.bind", queue=name, exchange=name, routing_key=name)
    assert client.call("basic.consume", queue=name, consumer_tag=name, no_ack=True)["consumer_tag"] == name
    client.publish(name, name, b"body")
    delivery = client.expect("basic.deliver")
    assert (delivery["consumer_tag"], delivery["exchange"], delivery["routing_key"]) == (name, name, name)
    assert client.call("basic.cancel", consumer_tag=name)["consumer_tag"] == name
    client.publish(name, name[:-1], b"nowhere", mandatory=True)
    back = client.expect("basic.return")
    assert (back["exchange"], back["routing_key"]) == (name, name[:-1])
    client.call("queue.purge", queue=name)
    inequivalent = "PRECONDITION_FAILED - inequivalent arg {} in vhost '/': received {} but current is {}"
    text = inequivalent.format(f"'durable' for queue '{name}'", "'true'", "'false'")
    refused(client, "queue.declare", 406, text, queue=name, durable=True)
    text = inequivalent.format(f"'type' for exchange '{name}'", "'fanout'", "'direct'")
    refused(client, "exchange.declare", 406, text, exchange=name, type="fanout")
    client.call("queue.delete", queue=name)
    client.call("exchange.delete", exchange=name)
    for method in ("queue.declare", "exchange.declare"):
        kind = method.partition(".")[0]
        text = f"NOT_FOUND - no {kind} '{name}' in vhost '/'"
        refused(client, method, 404, text, **{kind: name}, passive=True)


@pytest.mark.parametrize("sent, name", STRIPPED.items(), ids=range(len(STRIPPED)))
def test_what_goes(sent: str, name: str, broker: SpecBroker) -> None:
    """Line ends go where things are declared, bound and deleted; other methods look for the name as it was sent."""
    client = broker.open()
    for passive in (False, False, True):
        assert client.call("queue.declare", queue=sent, passive=passive)["queue"] == name
    client.call("exchange.declare", exchange=sent, type="direct")
    client.call("exchange.declare", exchange=name, type="direct")
    client.call("exchange.declare", exchange="p.other", type="fanout")
    client.call("queue.bind", queue=sent, exchange=sent, routing_key=sent)
    client.call("exchange.bind", destination=sent, source="p.other")
    client.publish(name, sent, b"the key is as it was sent", mandatory=True)
    client.publish(name, name, b"nowhere", mandatory=True)
    assert client.expect("basic.return")["routing_key"] == name
    assert client.take("", no_ack=True).body == b"the key is as it was sent"  # the last declared queue is that one
    client.publish("", sent, b"nowhere", mandatory=True)
    assert client.expect("basic.return")["routing_key"] == sent
    for method in ("basic.consume", "basic.get", "queue.purge"):
        refused(client, method, 404, f"NOT_FOUND - no queue '{sent}' in vhost '/'", queue=sent)
    client.publish(sent, "", b"")
    assert client.expect("channel.close")["reply_text"] == text_of(f"NOT_FOUND - no exchange '{sent}' in vhost '/'")
    client.send("channel.close-ok")
    client.call("channel.open")
    assert client.call("basic.consume", queue=name, consumer_tag=sent[:255])["consumer_tag"] == sent[:255]
    text = f"PRECONDITION_FAILED - queue '{name}' in vhost '/' in use"
    refused(client, "queue.delete", 406, text, queue=sent, if_unused=True)
    client.call("exchange.unbind", destination=sent, source="p.other")
    client.call("queue.unbind", queue=sent, exchange=sent, routing_key=sent)
    client.call("queue.delete", queue=sent)
    client.call("exchange.delete", exchange=sent)
    text = f"NOT_FOUND - no queue '{name}' in vhost '/'"
    refused(client, "queue.declare", 404, text, queue=sent, passive=True)
    text = f"NOT_FOUND - no exchange '{name}' in vhost '/'"
    refused(client, "exchange.declare", 404, text, exchange=sent, passive=True)


@pytest.mark.parametrize("name", ["\n", "\r\n\r"])
def test_nothing_but_line_ends(name: str, broker: SpecBroker) -> None:
    """A declaration asks for a name of the broker's; anything else means no queue, and not the last one declared."""
    client = broker.open()
    assert client.call("queue.declare", queue=name)["queue"].startswith("amq.gen-")
    missing = "NOT_FOUND - no queue '' in vhost '/'"
    refused(client, "queue.declare", 404, missing, queue=name, passive=True)
    client.call("queue.declare", queue="p.last")
    client.publish("", "p.last", b"kept")
    client.wait_for_ready("p.last", 1)
    refused(client, "queue.bind", 404, missing, queue=name, exchange="amq.direct", routing_key="k")
    client.call("queue.declare", queue="p.last")
    client.call("queue.bind", queue="p.last", exchange="amq.direct", routing_key="k")
    client.call("queue.unbind", queue=name, exchange="amq.direct", routing_key="k")
    assert client.call("queue.delete", queue=name)["message_count"] == 0
    client.publish("amq.direct", "k", b"bound", mandatory=True)
    assert client.bodies("p.last") == [b"kept", b"bound"]
    default = "ACCESS_REFUSED - operation not permitted on the default exchange"
    refused(client, "exchange.declare", 403, default, exchange=name, type="fanout")
    refused(client, "exchange.delete", 403, default, exchange=name)
    refused(client, "queue.bind", 403, default, queue=name, exchange=name)


def test_a_line_end_hides_no_reserved_name(broker: SpecBroker) -> None:
    """Names are looked at as they will be. An address for direct replies has to be spelled, up to what follows it."""
    client = broker.open()
    text = "ACCESS_REFUSED - {} name '{}' contains reserved prefix 'amq.*'"
    refused(client, "queue.declare", 403, text.format("queue", "amq.foo"), queue="am\nq.foo")
    refused(client, "exchange.declare", 403, text.format("exchange", "amq.foo"), exchange="am\nq.foo", type="fanout")
    text_of_deletion = "ACCESS_REFUSED - deletion of system exchange 'amq.direct' in vhost '/' not allowed"
    refused(client, "exchange.delete", 403, text_of_deletion, exchange="amq.direct\n")
    assert client.call("queue.declare", queue="amq.rabbitmq.reply-to\n")["queue"] == "amq.rabbitmq.reply-to"
    name = "amq.rabb\nitmq.reply-to"
    refused(client, "queue.declare", 403, text.format("queue", "amq.rabbitmq.reply-to"), queue=name)
    text = "NOT_FOUND - no queue 'amq.rabbitmq.reply-to' in vhost '/'"
    refused(client, "queue.declare", 404, text, queue=name, passive=True)


@pytest.mark.parametrize("octets", NO_TEXT.values(), ids=NO_TEXT)
@pytest.mark.parametrize(
    "method, field",
    [
        ("queue.declare", "queue"),
        ("queue.delete", "queue"),
        ("queue.bind", "routing_key"),
        ("exchange.declare", "exchange"),
        ("basic.consume", "consumer_tag"),
        ("basic.cancel", "consumer_tag"),
        ("basic.get", "queue"),
    ],
)
def test_what_is_no_text(method: str, field: str, octets: bytes, broker: SpecBroker) -> None:
    """A name that is not UTF-8 ends the connection."""
    client = broker.open()
    client.send_octets(method_frame(1, method, **{field: octets}))
    client.running = False
    close = client.expect("connection.close", channel=0)
    assert (close["reply_code"], close["reply_text"]) == (501, "FRAME_ERROR - Malformed UTF-8 in shortstr")
    assert (close["class_id"], close["method_id"]) == (0, 0)


@pytest.mark.parametrize("octets", NO_TEXT.values(), ids=NO_TEXT)
def test_no_text_on_channel_0(octets: bytes, broker: SpecBroker) -> None:
    """There the close names the method."""
    client = broker.connect()
    client.tune_ok(client.log_in())
    client.send("connection.open", channel=0, virtual_host=octets)
    close = client.expect("connection.close", channel=0)
    assert (close["reply_code"], close["reply_text"]) == (501, "FRAME_ERROR - Malformed UTF-8 in shortstr")
    assert (close["class_id"], close["method_id"]) == (10, 40)


def test_a_publish_with_a_key_that_is_no_text(broker: SpecBroker) -> None:
    """RabbitMQ checks the strings of all methods but this one."""
    client = broker.open()
    publish = method_frame(1, "basic.publish", exchange="amq.fanout", routing_key=b"p.\xff")
    client.send_octets(publish + frame(2, 1, header_payload(0)))
    if broker.is_rabbitmq:
        client.call("queue.declare", queue="p.key", exclusive=True)
        return
    client.running = False
    assert client.expect("connection.close", channel=0)["reply_code"] == 501


def test_arguments_cut_short_on_channel_0(broker: SpecBroker) -> None:
    """There RabbitMQ fails with an error of its own, on other channels it says what is wrong."""
    client = broker.open()
    client.send_octets(frame(1, 0, b"\x00\x3c\x00\x0a\x00"))  # basic.qos
    client.running = False
    close = client.expect("connection.close", channel=0)
    assert close["reply_code"] == (541 if broker.is_rabbitmq else 501)


@pytest.mark.parametrize("octets", [b"p.\xed\xa0\x80", b"p.\xf4\x90\x80\x80"], ids=["half a character", "out of range"])
def test_what_only_looks_like_utf_8(octets: bytes, broker: SpecBroker) -> None:
    """Surrogates and what is behind the last character: RabbitMQ takes the octets, we take text."""
    client = broker.open()
    client.send_octets(method_frame(1, "queue.declare", queue=octets, exclusive=True))
    if broker.is_rabbitmq:
        assert octets in client.read_frame().payload
        client.running = False
        return
    client.running = False
    assert client.expect("connection.close", channel=0)["reply_code"] == 501


@pytest.mark.parametrize(
    "name", ["é" * 127, "x" + "é" * 127, "€" * 84, "x" + "€" * 84, "p" * 219, "p" * 220], ids=range(6)
)
def test_long_texts(name: str, broker: SpecBroker) -> None:
    """A text of more than 255 octets ends with three dots; we don't cut a character in two, RabbitMQ does."""
    client = broker.open()
    client.send("queue.declare", queue=name, passive=True)
    payload = client.read_frame().payload
    text = f"NOT_FOUND - no queue '{name}' in vhost '/'".encode()
    if len(text) > 255:
        cut = text[:252] if broker.is_rabbitmq else text[:252].decode(errors="ignore").encode()
        text = cut + b"..."
    assert payload[6:-4] == bytes([len(text)]) + text
    client.send("channel.close-ok")


def test_names_of_virtual_hosts(broker: SpecBroker) -> None:
    """Nothing is taken out of them."""
    client = broker.connect()
    client.tune_ok(client.log_in())
    client.send("connection.open", channel=0, virtual_host="/\n\x1b")
    assert client.expect("connection.close", channel=0)["reply_text"] == "NOT_ALLOWED - vhost /\n\x1b not found"
