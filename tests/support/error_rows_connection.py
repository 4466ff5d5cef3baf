"""Rows of the handshake, frames, channels and the assembly of content."""

from __future__ import annotations

from functools import partial
from typing import Any

from error_rows import Rows
from rawclient import Client
from spec_broker import SpecBroker

from leveret.interop.wire.raw_codec import (
    BODY,
    HEADER,
    HEARTBEAT,
    METHOD,
    arguments_of,
    frame,
    header_payload,
    method_frame,
    table,
)

ROWS = Rows()
row, one, octets, ids = ROWS.row, ROWS.one, ROWS.octets, ROWS.ids

HEADER_0_9 = b"AMQP\x01\x01\x00\x09"

# --------------------------------------------------------------------------------------------------- protocol header


def refused_header(client: Client, broker: SpecBroker, *, header: bytes) -> None:
    """A header of another protocol is answered with ours, then the connection ends."""
    client.send_octets(header)
    assert client.read_octets_to_eof() == b"AMQP\x00\x00\x09\x01"


for name, header in {
    "header-http": b"GET / HTTP/1.1\r\n\r\n",
    "header-garbage": b"XXXXXXXX",
    "header-0-9-2": b"AMQP\x00\x00\x09\x02",
    "header-1-0": b"AMQP\x00\x01\x00\x00",
    "header-1-0-sasl": b"AMQP\x03\x01\x00\x00",
}.items():
    row(name, bare=True)(partial(refused_header, header=header))


def header_of_0_8(client: Client, broker: SpecBroker, *, header: bytes) -> None:
    """RabbitMQ 3.10 speaks 0-8 too."""
    if not broker.is_rabbitmq:
        refused_header(client, broker, header=header)
        return
    client.send_octets(header)
    assert client.read_frame().payload[:6] == b"\x00\x0a\x00\x0a\x08\x00"


row("header-0-8", bare=True)(partial(header_of_0_8, header=b"AMQP\x01\x01\x08\x00"))
row("header-0-8-amqplib", bare=True)(partial(header_of_0_8, header=b"AMQP\x01\x01\x09\x01"))


@row("header-0-9", bare=True)
def _(client: Client, broker: SpecBroker) -> None:
    """What Net::AMQP and AnyEvent::RabbitMQ send: 0-9-1 from then on, and the same start as for 0-9-1."""
    start = client.start(HEADER_0_9)
    assert (start["version_major"], start["version_minor"]) == (0, 9)
    other = broker.connect()
    assert start == other.start()
    client.start_ok()
    client.tune_ok(client.expect("connection.tune", channel=0))
    client.call("connection.open", channel=0, virtual_host="/")
    client.running = True
    client.call("channel.open")
    client.call("queue.declare", queue="p.0-9", exclusive=True)
    client.publish("", "p.0-9", b"old and well")
    client.wait_for_ready("p.0-9", 1)
    assert client.take("p.0-9", no_ack=True).body == b"old and well"


# ---------------------------------------------------------------------------------------------------- authentication


def log_in(client: Client, broker: SpecBroker, **options: Any) -> None:
    """start-ok with these options, after which the case says what comes."""
    client.start()
    client.start_ok(**options)


def amqplain(**fields: Any) -> bytes:
    """The AMQPLAIN response: a field table without its length."""
    return table(fields)[4:]


BAD_PLAIN = b"\0guest\0wrong"
LOGINS: dict[str, dict[str, Any]] = {
    "auth-bad-password-cap": {"response": BAD_PLAIN},
    "auth-bad-password-nocap": {"response": BAD_PLAIN, "capabilities": None},
    "auth-amqplain-bad-password-cap": {
        "mechanism": "AMQPLAIN",
        "response": amqplain(LOGIN="guest", PASSWORD="wrong"),
    },
    "auth-amqplain-bad-type": {"mechanism": "AMQPLAIN", "response": amqplain(LOGIN="guest", PASSWORD=5)},
    "auth-amqplain-missing-field": {"mechanism": "AMQPLAIN", "response": amqplain(LOGIN="guest")},
    "auth-unknown-mechanism": {"mechanism": "FOO"},
    "auth-mechanism-not-offered": {"mechanism": "RABBIT-CR-DEMO", "response": b"guest"},
    "auth-plain-authzid": {"response": b"other\0guest\0guest"},
    "auth-plain-malformed": {"response": b"guest"},
    "auth-plain-third-nul": {"response": b"\0guest\0guest\0more"},
}
for name, options in LOGINS.items():
    row(name, bare=True)(partial(log_in, **options))


@row("auth-amqplain", bare=True)
def _(client: Client, broker: SpecBroker) -> None:
    client.handshake(mechanism="AMQPLAIN", response=amqplain(LOGIN="guest", PASSWORD="guest"))
    client.call("channel.open")


# --------------------------------------------------------------------------------- tune, open and what comes too early


def tune(client: Client, broker: SpecBroker, **values: int) -> None:
    client.tune_ok(client.log_in(), **values)


TUNINGS: dict[str, dict[str, Any]] = {
    "tune-frame-max-small": {"frame_max": 100},
    "tune-frame-max-4095": {"frame_max": 4095},
    "tune-frame-max-zero": {"frame_max": 0},
    "tune-channel-max-large": {"channel_max": 2048},
    "tune-channel-max-zero": {"channel_max": 0},
}
for name, values in TUNINGS.items():
    row(name, bare=True)(partial(tune, **values))


@row("open-vhost-missing", bare=True)
def _(client: Client, broker: SpecBroker) -> None:
    tune(client, broker)
    client.send("connection.open", channel=0, virtual_host="nosuch")


@row("early-open-before-start-ok", bare=True)
def _(client: Client, broker: SpecBroker) -> None:
    client.start()
    client.send("connection.open", channel=0, virtual_host="/")


@row("early-open-before-tune-ok", bare=True)
def _(client: Client, broker: SpecBroker) -> None:
    client.log_in()
    client.send("connection.open", channel=0, virtual_host="/")


@row("early-close", bare=True)
def _(client: Client, broker: SpecBroker) -> None:
    client.log_in()
    client.send("connection.close", channel=0)


@row("early-frame-too-large", bare=True)
def _(client: Client, broker: SpecBroker) -> None:
    client.start()
    client.send_frame(BODY, 0, bytes(5000))


@row("early-channel-open-before-open", bare=True)
def _(client: Client, broker: SpecBroker) -> None:
    tune(client, broker)
    client.send("channel.open")


@row("early-tune-ok-twice", bare=True)
def _(client: Client, broker: SpecBroker) -> None:
    tune(client, broker)
    client.send("connection.tune-ok", channel=0, channel_max=2047, frame_max=131072)


@row("early-close-opening", bare=True)
def _(client: Client, broker: SpecBroker) -> None:
    tune(client, broker)
    client.send("connection.close", channel=0)


@row("connection-update-secret-early", bare=True)
def _(client: Client, broker: SpecBroker) -> None:
    tune(client, broker)
    client.send("connection.update-secret", channel=0, new_secret=b"guest")


@row("connection-close-ok", bare=True)
def _(client: Client, broker: SpecBroker) -> None:
    client.handshake()
    client.close()


# ------------------------------------------------------------------------------------------------- frames and methods


octets("frame-unknown-type-ch0", frame(99, 0, b"abc"))
octets("frame-unknown-type-long", frame(99, 1, b"a" * 20))
octets("frame-unknown-type-16", frame(99, 1, b"a" * 16))
octets("frame-unknown-type-octets", frame(99, 1, b"\x01\x02\xff"))
octets("frame-heartbeat-ch1", frame(HEARTBEAT, 1, b""))
octets("frame-heartbeat-payload", frame(HEARTBEAT, 0, b"x"))
octets("frame-body-ch0", frame(BODY, 0, b"hello"))
octets("frame-header-ch0", frame(HEADER, 0, header_payload(0)))
octets("frame-bad-end", frame(METHOD, 1, b"\0\x3c\0\x0a" + bytes(7), end=0))
octets("frame-too-large", frame(BODY, 1, bytes(131073))[:7])
octets("frame-method-short", frame(METHOD, 1, b"\0\x3c"))


@row("frame-fudge-ok")
def _(client: Client, broker: SpecBroker) -> None:
    client.send("basic.publish", routing_key="p.nowhere")
    client.send_frame(HEADER, 1, header_payload(131072))
    client.send_frame(BODY, 1, bytes(131072))


ids("method-unknown-class", 1, 99, 1)
ids("method-unknown-ch0", 0, 10, 99)
ids("method-truncated-args", 1, 50, 10, b"\0\0\x05ab")
ids("method-trailing-garbage", 1, 60, 10, b"\0\0\0\0\0\x01\0extra")
ids("method-bad-table-type", 1, 50, 10, arguments_of("queue.declare", queue="p.z", arguments={"x": ("Z", b"??")}))
ids("method-shortstr-not-utf8", 1, 50, 10, arguments_of("queue.declare", queue=b"p.\xff\xfe"))
one("method-basic-on-ch0", "basic.qos", channel=0)
one("method-channel-open-ch0", "channel.open", channel=0)
one("method-connection-on-ch1", "connection.close", channel=1)
one("method-open-running", "connection.open", channel=0, virtual_host="/")
one("method-server-only-queue", "queue.declare-ok", queue="p.q")
one("method-connection-blocked", "connection.blocked", channel=0, reason="x")
one("method-before-channel-open", "queue.declare", channel=7, queue="p.q")


@row("method-server-only-deliver")
def _(client: Client, broker: SpecBroker) -> None:
    client.send("basic.deliver", consumer_tag="t", delivery_tag=1)
    client.send_frame(HEADER, 1, header_payload(0))


@row("update-secret-plain")
def _(client: Client, broker: SpecBroker) -> None:
    client.call("connection.update-secret", channel=0, new_secret=b"guest", reason="renewed")


@row("access-request")
def _(client: Client, broker: SpecBroker) -> None:
    assert client.call("access.request", realm="/data")["ticket"] == 1


# ----------------------------------------------------------------------------------------------------------- channels

one("channel-not-open-close", "channel.close", channel=7)
one("channel-not-open-close-ok", "channel.close-ok", channel=7)
octets("channel-not-open-body", frame(BODY, 7, b"x"))
one("channel-open-twice", "channel.open")
one("channel-close-ok-unexpected", "channel.close-ok")


@row("channel-too-many", bare=True)
def _(client: Client, broker: SpecBroker) -> None:
    client.handshake(tune={"channel_max": 2})
    client.call("channel.open", channel=1)
    client.call("channel.open", channel=2)
    client.send("channel.open", channel=3)


@row("channel-number-large", bare=True)
def _(client: Client, broker: SpecBroker) -> None:
    client.handshake(tune={"channel_max": 3})
    client.call("channel.open", channel=65535)
    client.call("basic.qos", channel=65535)
    client.call("channel.open", channel=1)


@row("channel-number-reused")
def _(client: Client, broker: SpecBroker) -> None:
    client.call("channel.close", reply_code=200)
    client.call("channel.open")


@row("channel-flow-active")
def _(client: Client, broker: SpecBroker) -> None:
    assert client.call("channel.flow", active=True)["active"] is True


@row("channel-flow-inactive")
def _(client: Client, broker: SpecBroker) -> None:
    client.send("channel.flow", active=False)
    if not broker.is_rabbitmq:
        assert client.expect("channel.flow-ok")["active"] is False


# ---------------------------------------------------------------------------------------------------- content assembly

PUBLISH = method_frame(1, "basic.publish", routing_key="p.nowhere")
octets("content-no-method", frame(HEADER, 1, header_payload(0)))
octets("content-body-no-header", frame(BODY, 1, b"hello"))
octets("content-body-instead-of-header", PUBLISH + frame(BODY, 1, b"hello"))
octets("content-method-instead-of-header", PUBLISH + method_frame(1, "basic.qos"))
octets("content-wrong-class", PUBLISH + frame(HEADER, 1, header_payload(0, class_id=50)))
octets("content-weight", PUBLISH + frame(HEADER, 1, header_payload(0, weight=1)))
octets("content-header-twice", PUBLISH + 2 * frame(HEADER, 1, header_payload(5)))
octets("content-props-garbage", PUBLISH + frame(HEADER, 1, header_payload(0, b"\x80\x00")))
octets("content-props-extra-flags", PUBLISH + frame(HEADER, 1, header_payload(0, b"\x00\x01\x00\x00")))


@row("content-body-overrun")
def _(client: Client, broker: SpecBroker) -> None:
    client.send_octets(PUBLISH + frame(HEADER, 1, header_payload(2)) + frame(BODY, 1, b"hello"))
    if broker.is_rabbitmq:  # no error, but the channel is stuck: it waits for a body for ever
        leave_channel_1(client)


def leave_channel_1(client: Client) -> None:
    """Channel 1 waits for the rest of a content; show that the connection is well and end it politely."""
    client.call("channel.open", channel=2)
    client.close()


def half_a_content(client: Client, broker: SpecBroker, *, body_size: int) -> None:
    client.send_octets(PUBLISH + frame(HEADER, 1, header_payload(body_size)))
    if broker.is_rabbitmq or body_size < 2**29:
        leave_channel_1(client)


row("content-body-size-huge")(partial(half_a_content, body_size=2**40))
row("content-body-size-200MB")(partial(half_a_content, body_size=200 * 2**20))


@row("content-body-empty-frames")
def _(client: Client, broker: SpecBroker) -> None:
    client.call("queue.declare", queue="p.content")
    client.send("basic.publish", routing_key="p.content")
    client.send_frame(HEADER, 1, header_payload(5))
    for piece in (b"", b"he", b"", b"llo"):
        client.send_frame(BODY, 1, piece)
    assert client.take("p.content", no_ack=True).body == b"hello"


@row("content-interleaved-channels")
def _(client: Client, broker: SpecBroker) -> None:
    client.call("queue.declare", queue="p.content")
    client.call("channel.open", channel=2)
    client.send("basic.publish", channel=1, routing_key="p.content")
    client.send("basic.publish", channel=2, routing_key="p.content")
    for channel in (1, 2):
        client.send_frame(HEADER, channel, header_payload(2))
    for kind in (b"a", b"b"):
        for channel in (2, 1):
            client.send_frame(BODY, channel, kind)
    client.wait_for_ready("p.content", 2)
    assert client.bodies("p.content") == [b"ab", b"ab"]
