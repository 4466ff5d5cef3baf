"""The numbered traps of section 7 of the behaviour page: where naive brokers differ from RabbitMQ.

One test a trap, its number in its name; what waits for a later feature is in LATER, and no number is forgotten.
"""

from __future__ import annotations

import re
import time
from typing import Any

import pytest
from rawclient import Client
from spec_broker import SpecBroker, close_of, expect_channel_close, expect_connection_close

from leveret.interop.raw_codec import BODY, HEADER, HEARTBEAT, arguments_of, frame, header_payload, properties_of

TRAPS = range(1, 87)
HTTP = "wants the HTTP API, which this version does not have"
LATER: dict[int, str] = {
    75: "wants flow control; we go on reading (a deviation: acks pass, publishes are parked)",
    **dict.fromkeys((83, 84, 85), HTTP),
    86: "wants policies, which this version does not have",
}

Q = "p.trap"


def test_every_trap_has_a_test_or_a_reason() -> None:
    """Each number from 1 to 86 is tested here or deferred, never both."""
    tested = {int(match[1]) for name in globals() if (match := re.match(r"test_trap_(\d\d)_", name))}
    assert tested | LATER.keys() == set(TRAPS)
    assert tested & LATER.keys() == set()


def filled(broker: SpecBroker, count: int, *, channels: int = 1) -> Client:
    """A client and the queue p.trap with the messages 0, 1, ... count - 1."""
    client = broker.open(channels=channels)
    client.call("queue.declare", queue=Q)
    for number in range(count):
        client.publish("", Q, str(number).encode())
    client.wait_for_ready(Q, count)
    return client


def not_found(client: Client, queue: str, *, channel: int = 1) -> None:
    """The queue does not exist."""
    client.send("queue.declare", channel=channel, queue=queue, passive=True)
    expect_channel_close(client, 404, f"NOT_FOUND - no queue '{queue}' in vhost '/'", (50, 10), channel=channel)
    client.call("channel.open", channel=channel)


# --------------------------------------------------------------------------------------------- connection and frames


def test_trap_01_bad_protocol_header(broker: SpecBroker) -> None:
    """A bad protocol header is answered with `AMQP 0 0 9 1`, and the connection is closed."""
    client = broker.connect()
    client.send_octets(b"HTTP/1.1")
    assert client.read_octets_to_eof() == b"AMQP\x00\x00\x09\x01"


def test_trap_02_close_before_tune_ok(broker: SpecBroker) -> None:
    """connection.close before tune-ok gets no close-ok, only the end of the TCP connection."""
    client = broker.connect()
    client.log_in()
    client.send("connection.close", channel=0)
    client.expect_eof()


def test_trap_03_bad_password_without_capability(broker: SpecBroker) -> None:
    """Without authentication_failure_close a bad password gets no connection.close at all."""
    client = broker.connect()
    client.start()
    client.start_ok(response=b"\0guest\0wrong", capabilities={"basic.nack": True})
    client.expect_eof()


def test_trap_04_bad_password_with_capability(broker: SpecBroker) -> None:
    """With it: 403 and ids 0,0, not those of start-ok."""
    client = broker.connect()
    client.start()
    client.start_ok(response=b"\0guest\0wrong")
    expect_connection_close(
        client,
        403,
        "ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN. For details see the broker logfile.",
        (0, 0),
    )


@pytest.mark.parametrize("heartbeat", [61, 65535])
def test_trap_05_heartbeat_of_the_client(heartbeat: int, broker: SpecBroker) -> None:
    """tune-ok may carry a larger heartbeat than offered (that the client's value rules: trap 14)."""
    client = broker.connect()
    offer = client.log_in()
    assert offer["heartbeat"] < heartbeat
    client.tune_ok(offer, heartbeat=heartbeat)
    client.call("connection.open", channel=0, virtual_host="/")
    client.running = True


@pytest.mark.parametrize("field", ["channel_max", "frame_max"])
def test_trap_06_no_limit_is_refused(field: str, broker: SpecBroker) -> None:
    """channel-max 0 or frame-max 0 is refused while the broker has a limit."""
    client = broker.connect()
    client.tune_ok(client.log_in(), **{field: 0})
    if not broker.is_rabbitmq:  # 3.10 says nothing, we say what 4.x says
        close = client.expect("connection.close", channel=0)
        assert close["reply_code"] == 530 and f"negotiated {field} = 0" in close["reply_text"]
        client.send("connection.close-ok", channel=0)
    client.expect_eof()


@pytest.mark.parametrize("frame_max", [4096, 131072])
def test_trap_07_eight_octets_more_than_agreed(frame_max: int, broker: SpecBroker) -> None:
    """A payload of frame_max octets (8 too many) is taken, one more is 501."""
    client = broker.open(tune={"frame_max": frame_max})
    client.call("queue.declare", queue=Q)
    client.send("basic.publish", routing_key=Q)
    client.send_frame(HEADER, 1, header_payload(2 * frame_max))
    for _ in range(2):
        client.send_frame(BODY, 1, bytes(frame_max))
    client.wait_for_ready(Q, 1)
    assert client.take(Q, no_ack=True).body == bytes(2 * frame_max)
    client.send_frame(BODY, 1, bytes(frame_max + 1))
    text = f"FRAME_ERROR - type 3, all octets = <<>>: {{frame_too_large,{frame_max + 1},{frame_max - 8}}}"
    expect_connection_close(client, 501, text, (0, 0))


def test_trap_08_too_large_is_seen_in_the_header(broker: SpecBroker) -> None:
    """frame_too_large is reported from the 7-octet header alone; the payload is not waited for."""
    client = broker.open()
    client.send_octets(frame(BODY, 1, bytes(200_000))[:7])
    text = "FRAME_ERROR - type 3, all octets = <<>>: {frame_too_large,200000,131064}"
    expect_connection_close(client, 501, text, (0, 0))


def test_trap_09_channel_numbers_above_the_maximum(broker: SpecBroker) -> None:
    """Only the number of open channels is limited, not their numbers; a closed one makes room."""
    client = broker.connect()
    client.handshake(tune={"channel_max": 2})
    client.call("channel.open", channel=3)
    client.call("channel.open", channel=65535)
    client.call("channel.close", channel=3)
    client.call("channel.open", channel=1000)
    client.send("channel.open", channel=1)
    text = "NOT_ALLOWED - number of channels opened (2) has reached the negotiated channel_max (2)"
    expect_connection_close(client, 530, text, (0, 0))


@pytest.mark.parametrize(
    ("method", "ids"),
    [("channel.close", (20, 40)), ("basic.ack", (60, 80)), ("queue.declare", (50, 10)), ("basic.publish", (60, 40))],
)
def test_trap_10_method_on_an_unopened_channel(method: str, ids: tuple[int, int], broker: SpecBroker) -> None:
    """Any method on an unopened channel, channel.close too, kills the connection."""
    client = broker.open()
    client.send(method, channel=2)
    if method == "basic.publish":  # 3.10 waits for the content first
        client.send_frame(HEADER, 2, header_payload(0))
    expect_connection_close(client, 504, "CHANNEL_ERROR - expected 'channel.open'", ids)


def test_trap_11_channel_close_ok_out_of_the_blue(broker: SpecBroker) -> None:
    """channel.close-ok on a running channel kills the connection."""
    client = broker.open()
    client.send("channel.close-ok")
    expect_connection_close(client, 503, "COMMAND_INVALID - unimplemented method", (20, 41))


@pytest.mark.parametrize(
    ("name", "ids", "values"),
    [
        ("basic.ack", (60, 80), {"delivery_tag": 1}),
        ("queue.declare", (50, 10), {"queue": "p.z"}),
        ("basic.publish", (60, 40), {"routing_key": "p.z"}),
        ("tx.select", (90, 10), {}),
    ],
)
def test_trap_12_octets_after_the_arguments(
    name: str, ids: tuple[int, int], values: dict[str, Any], broker: SpecBroker
) -> None:
    """Octets after the last argument are an error, of rare methods and of the hot ones."""
    client = broker.open()
    octets = arguments_of(name, **values) + b"\1"
    client.method(1, *ids, octets)
    text = f"FRAME_ERROR - cannot decode <<{','.join(map(str, octets))}>>"
    expect_connection_close(client, 501, text, ids)


def test_trap_13_heartbeats_on_channel_0_only(broker: SpecBroker) -> None:
    """A heartbeat frame is welcome on channel 0 and nowhere else, and carries nothing."""
    client = broker.open()
    client.send_frame(HEARTBEAT, 0, b"")
    client.call("basic.qos")
    client.send_frame(HEARTBEAT, 1, b"")
    expect_connection_close(client, 505, "UNEXPECTED_FRAME - type 8, all octets = <<>>", (0, 0))
    client = broker.open()
    client.send_frame(HEARTBEAT, 0, b"x")
    text = 'FRAME_ERROR - type 8, all octets = <<"x">>: unknown_frame'
    expect_connection_close(client, 501, text, (0, 0))


def test_trap_14_heartbeat_interval(broker: SpecBroker) -> None:
    """With 1 s agreed the broker sends one every half second, and ends a silent client after 2 to 3 s, wordlessly."""
    client = broker.open(tune={"heartbeat": 1})
    client.running = False
    last_word = time.monotonic()
    octets = client.read_octets_to_eof()
    silence = time.monotonic() - last_word
    beat = frame(HEARTBEAT, 0, b"")
    beats = [octets[at : at + len(beat)] for at in range(0, len(octets), len(beat))]
    assert set(beats) == {beat}
    assert 1.5 < silence < 4.5
    assert silence / 0.5 - 3 <= len(beats) <= silence / 0.5 + 1


# ---------------------------------------------------------------------------------------------------------- channels


def test_trap_15_pipelined_behind_a_channel_close(broker: SpecBroker) -> None:
    """What was pipelined behind the broker's channel.close is ignored; after close-ok the number is free."""
    client = broker.open()
    client.call("queue.declare", queue=Q)
    client.send("basic.ack", delivery_tag=99)
    client.send("queue.declare", queue="p.ignored")
    client.publish("", Q, b"ignored")
    expect_channel_close(client, 406, "PRECONDITION_FAILED - unknown delivery tag 99", (60, 80))
    client.call("channel.open")
    assert client.get(Q) is None
    not_found(client, "p.ignored")


def test_trap_16_crossing_channel_closes(broker: SpecBroker) -> None:
    """A channel.close of the client that crosses the broker's is answered close-ok; the number is then free."""
    client = broker.open()
    client.send("basic.ack", delivery_tag=99)
    client.send("channel.close", reply_code=200)
    client.expect("channel.close")
    client.expect("channel.close-ok")
    client.send("channel.close-ok")
    client.call("channel.open")


@pytest.mark.parametrize(
    ("method", "values", "code", "ids"),
    [
        ("queue.declare", {"queue": "amq.foo"}, 403, (50, 10)),
        ("exchange.declare", {"exchange": "amq.foo", "type": "direct"}, 403, (40, 10)),
        ("queue.bind", {"queue": "p.none", "exchange": "amq.direct"}, 404, (50, 20)),
        ("queue.purge", {"queue": "p.none"}, 404, (50, 30)),
        ("exchange.delete", {"exchange": "amq.direct"}, 403, (40, 20)),
        ("basic.consume", {"queue": "p.none"}, 404, (60, 20)),
    ],
)
def test_trap_17_nowait_errors_are_told(
    method: str, values: dict[str, Any], code: int, ids: tuple[int, int], broker: SpecBroker
) -> None:
    """nowait suppresses the -ok, never the error."""
    client = broker.open()
    client.send(method, nowait=True, **values)
    actual = close_of(client.expect("channel.close"))
    assert (actual[0], actual[2:]) == (code, ids)


# ------------------------------------------------------------------------------------------------ queues, exchanges


def test_trap_18_deleting_what_is_not_there(broker: SpecBroker) -> None:
    """queue.delete and exchange.delete of missing objects succeed, also with if-unused and if-empty."""
    client = broker.open()
    assert client.call("queue.delete", queue="p.none")["message_count"] == 0
    assert client.call("queue.delete", queue="p.none", if_unused=True, if_empty=True)["message_count"] == 0
    client.call("exchange.delete", exchange="p.none")
    client.call("exchange.delete", exchange="p.none", if_unused=True)


def test_trap_19_unbinding_what_is_not_bound(broker: SpecBroker) -> None:
    """Unbind succeeds when the binding, the queue or an exchange is missing."""
    client = broker.open()
    client.call("queue.declare", queue=Q)
    for queue, exchange in ((Q, "amq.direct"), ("p.none", "amq.direct"), (Q, "p.none"), ("p.none", "p.none")):
        client.call("queue.unbind", queue=queue, exchange=exchange, routing_key="k")
    for source, destination in (("amq.direct", "amq.topic"), ("p.none", "amq.topic"), ("amq.direct", "p.none")):
        client.call("exchange.unbind", source=source, destination=destination, routing_key="k")


def test_trap_20_deleting_a_reserved_name(broker: SpecBroker) -> None:
    """exchange.delete of an `amq.` name that does not exist is refused, not ok."""
    client = broker.open()
    client.send("exchange.delete", exchange="amq.x")
    text = "ACCESS_REFUSED - deletion of system exchange 'amq.x' in vhost '/' not allowed"
    expect_channel_close(client, 403, text, (40, 20))


def test_trap_21_passive_declare_without_a_name(broker: SpecBroker) -> None:
    """The last declared queue is no default of queue.declare."""
    client = broker.open()
    client.call("queue.declare", queue=Q)
    client.send("queue.declare", queue="", passive=True)
    expect_channel_close(client, 404, "NOT_FOUND - no queue '' in vhost '/'", (50, 10))


def test_trap_22_bind_without_queue_and_key(broker: SpecBroker) -> None:
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


def test_trap_23_the_last_declared_queue(broker: SpecBroker) -> None:
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


LOCKED = (
    "RESOURCE_LOCKED - cannot obtain exclusive access to locked queue 'p.trap' in vhost '/'. It could be originally "
    "declared on another connection or the exclusive property value does not match that of the original declaration."
)


@pytest.mark.parametrize("was_exclusive", [False, True])
def test_trap_24_exclusive_mismatch(was_exclusive: bool, broker: SpecBroker) -> None:
    """Declared again with the other exclusive: 405, not 406; on the owning connection only the missing flag passes."""
    client, other = broker.open(), broker.open()
    client.call("queue.declare", queue=Q, exclusive=was_exclusive)
    if not was_exclusive:
        client.send("queue.declare", queue=Q, exclusive=True)
        expect_channel_close(client, 405, LOCKED, (50, 10))
    other.send("queue.declare", queue=Q, exclusive=True)
    expect_channel_close(other, 405, LOCKED, (50, 10))


@pytest.mark.parametrize("durable", [False, True])
def test_trap_25_durable_of_an_exclusive_queue(durable: bool, broker: SpecBroker) -> None:
    """durable does not count in the equivalence of exclusive queues."""
    client = broker.open()
    client.call("queue.declare", queue=Q, exclusive=True, durable=durable)
    client.call("queue.declare", queue=Q, exclusive=True, durable=not durable)


def test_trap_26_equivalent_arguments(broker: SpecBroker) -> None:
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


@pytest.mark.parametrize("kind", ["queue", "exchange"])
def test_trap_27_auto_delete_with_an_underscore(kind: str, broker: SpecBroker) -> None:
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


def test_trap_28_line_ends_in_names(broker: SpecBroker) -> None:
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


def test_trap_29_counts_of_declare_ok(broker: SpecBroker) -> None:
    """message_count is without the unacked, consumer_count counts every consumer, waiting ones too."""
    client = filled(broker, 3)
    client.take(Q)
    assert client.count(Q) == (2, 0)
    client.call("queue.declare", queue="p.sac", arguments={"x-single-active-consumer": True})
    for _ in range(2):
        client.call("basic.consume", queue="p.sac")
    assert client.count("p.sac") == (0, 2)


def test_trap_30_if_empty_ignores_the_unacked(broker: SpecBroker) -> None:
    """A queue with nothing but unacked messages counts as empty."""
    client = filled(broker, 1)
    client.take(Q)
    assert client.call("queue.delete", queue=Q, if_empty=True)["message_count"] == 0
    client.send("basic.ack", delivery_tag=1)  # no effect and no error
    not_found(client, Q)


def test_trap_31_purge_takes_the_ready_only(broker: SpecBroker) -> None:
    """Unacked messages survive a purge and are not counted."""
    client = filled(broker, 3)
    client.take(Q)
    assert client.call("queue.purge", queue=Q)["message_count"] == 2
    client.send("basic.nack", delivery_tag=1, requeue=True)
    assert client.bodies(Q) == [b"0"]


@pytest.mark.parametrize("how", ["cancel", "channel.close"])
def test_trap_32_auto_delete_queue(how: str, broker: SpecBroker) -> None:
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


@pytest.mark.parametrize("how", ["unbind", "queue.delete", "exchange.delete"])
def test_trap_33_auto_delete_exchange(how: str, broker: SpecBroker) -> None:
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


def test_trap_34_one_copy_a_queue(broker: SpecBroker) -> None:
    """Two bindings that match the same queue give one copy (CC headers that name it too: with CC)."""
    client = broker.open()
    client.call("queue.declare", queue=Q)
    client.call("exchange.declare", exchange="p.x", type="topic")
    for pattern in ("a.#", "#.b"):
        client.call("queue.bind", queue=Q, exchange="p.x", routing_key=pattern)
    client.publish("p.x", "a.b", b"once")
    assert client.bodies(Q) == [b"once"]


# --------------------------------------------------------------------------------------------- publishing, confirms


@pytest.mark.parametrize("mode", ["plain", "mandatory", "confirm", "tx"])
def test_trap_35_missing_exchange(mode: str, broker: SpecBroker) -> None:
    """Publishing to a missing exchange closes the channel in every mode: no return, no nack."""
    client = broker.open()
    if mode in ("confirm", "tx"):
        client.call(f"{mode}.select")
    client.publish("p.none", "k", b"m", mandatory=mode == "mandatory")
    expect_channel_close(client, 404, "NOT_FOUND - no exchange 'p.none' in vhost '/'", (60, 40))


def test_trap_36_publish_errors_wait_for_the_content(broker: SpecBroker) -> None:
    """The error of a publish comes when header and body are there, with the ids of basic.publish."""
    client = broker.open(channels=2)
    client.send("basic.publish", exchange="p.none", routing_key="k")
    client.call("basic.qos", channel=2)  # nothing came before this reply
    client.send_frame(HEADER, 1, header_payload(4))
    client.send_frame(BODY, 1, b"ab")
    client.call("basic.qos", channel=2)
    client.send_frame(BODY, 1, b"cd")
    expect_channel_close(client, 404, "NOT_FOUND - no exchange 'p.none' in vhost '/'", (60, 40))


def test_trap_37_unroutable_is_acked(broker: SpecBroker) -> None:
    """Unroutable without mandatory in confirm mode: basic.ack and nothing else."""
    client = broker.open()
    client.call("confirm.select")
    client.publish("amq.direct", "p.nowhere", b"m")
    assert client.expect("basic.ack")["delivery_tag"] == 1
    assert client.collect() == []


def test_trap_38_return_precedes_the_ack(broker: SpecBroker) -> None:
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


def test_trap_40_immediate(broker: SpecBroker) -> None:
    """immediate is not implemented, and says so on the connection."""
    client = broker.open()
    client.publish("", "p.nowhere", b"m", immediate=True)
    expect_connection_close(client, 540, "NOT_IMPLEMENTED - immediate=true", (60, 40))


# --------------------------------------------------------------------------------------------------------- consuming


def test_trap_42_consumer_tag_in_use(broker: SpecBroker) -> None:
    """A tag in use on the channel ends the connection; on another channel it is fine, and after a cancel too."""
    client = broker.open(channels=2)
    client.call("queue.declare", queue=Q)
    client.call("basic.consume", queue=Q, consumer_tag="t")
    client.call("basic.consume", channel=2, queue=Q, consumer_tag="t")
    client.call("basic.cancel", consumer_tag="t")
    client.call("basic.consume", queue=Q, consumer_tag="t")
    client.send("basic.consume", queue=Q, consumer_tag="t")
    expect_connection_close(client, 530, "NOT_ALLOWED - attempt to reuse consumer tag 't'", (60, 20))


def test_trap_43_cancel_of_an_unknown_tag(broker: SpecBroker) -> None:
    """It is answered cancel-ok with that tag."""
    client = broker.open()
    assert client.call("basic.cancel", consumer_tag="nobody")["consumer_tag"] == "nobody"


def test_trap_44_unacked_survive_the_cancel(broker: SpecBroker) -> None:
    """What a cancelled consumer held stays outstanding and can be acked."""
    client = filled(broker, 2)
    client.call("basic.consume", queue=Q, consumer_tag="c")
    tags = [method["delivery_tag"] for method in client.deliveries(2)]
    client.call("basic.cancel", consumer_tag="c")
    assert client.count(Q) == (0, 0)
    client.send("basic.ack", delivery_tag=tags[0])
    client.call("basic.recover", requeue=True)
    assert client.bodies(Q) == [b"1"]


@pytest.mark.parametrize("method", ["ack", "nack"])
def test_trap_45_tag_zero_and_multiple(method: str, broker: SpecBroker) -> None:
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


@pytest.mark.parametrize("case", ["twice", "no-ack"])
def test_trap_46_tag_that_is_not_outstanding(case: str, broker: SpecBroker) -> None:
    """A second ack, or the ack of a no-ack delivery, closes the channel."""
    client = filled(broker, 1)
    client.take(Q, no_ack=case == "no-ack")
    if case == "twice":
        client.send("basic.ack", delivery_tag=1)
    client.send("basic.ack", delivery_tag=1)
    expect_channel_close(client, 406, "PRECONDITION_FAILED - unknown delivery tag 1", (60, 80))


def test_trap_47_delivery_tags(broker: SpecBroker) -> None:
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


def test_trap_48_qos_of_consumer_and_of_channel(broker: SpecBroker) -> None:
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


def test_trap_48_limits_of_consumer_and_channel_add_up(broker: SpecBroker) -> None:
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


def test_trap_49_get_ignores_prefetch_and_exclusive_consumers(broker: SpecBroker) -> None:
    """basic.get takes what the consumer's credit does not, also beside an exclusive consumer, and uses none up."""
    client = filled(broker, 4)
    client.call("basic.qos", prefetch_count=1)
    client.call("basic.consume", queue=Q, exclusive=True)
    held = client.expect("basic.deliver")
    assert [client.take(Q).body for _ in range(2)] == [b"1", b"2"]
    client.send("basic.ack", delivery_tag=held["delivery_tag"])
    assert client.expect("basic.deliver").body == b"3"


def test_trap_50_recover_ok_precedes_the_redeliveries(broker: SpecBroker) -> None:
    """recover-ok, then the same messages with new tags and the redelivered flag."""
    client = filled(broker, 2)
    client.call("basic.consume", queue=Q)
    client.deliveries(2)
    client.call("basic.recover", requeue=True)
    again = client.deliveries(2)
    assert [(m.body, m["delivery_tag"], m["redelivered"]) for m in again] == [(b"0", 3, True), (b"1", 4, True)]


def test_trap_51_requeue_restores_the_position(broker: SpecBroker) -> None:
    """A requeued message goes back to its place, not to the tail."""
    client = filled(broker, 4)
    for _ in range(3):
        client.take(Q)
    client.send("basic.nack", delivery_tag=2, requeue=True)
    client.send("basic.reject", delivery_tag=1, requeue=True)
    assert client.bodies(Q) == [b"0", b"1", b"3"]


def test_trap_59_missing_dead_letter_exchange(broker: SpecBroker) -> None:
    """The dead letter exchange need not exist, neither at declare nor when a message dies: that one is gone."""
    client = broker.open()
    client.call("queue.declare", queue=Q, arguments={"x-dead-letter-exchange": "p.none"})
    client.publish("", Q, b"m")
    client.take(Q)
    client.send("basic.reject", delivery_tag=1, requeue=False)
    assert client.get(Q) is None
    assert client.count(Q) == (0, 0)


def test_trap_63_alternate_exchange(broker: SpecBroker) -> None:
    """It satisfies mandatory; the delivered exchange is the one that was published to."""
    client = broker.open()
    client.call("exchange.declare", exchange="p.x", type="direct", arguments={"alternate-exchange": "p.ae"})
    client.call("exchange.declare", exchange="p.ae", type="fanout")
    client.call("queue.declare", queue=Q)
    client.call("queue.bind", queue=Q, exchange="p.ae")
    client.publish("p.x", "k", b"m", mandatory=True)
    client.wait_for_ready(Q, 1)
    assert client.take(Q, no_ack=True)["exchange"] == "p.x"


@pytest.mark.parametrize(
    ("pattern", "key", "matches"), [("*", "", False), ("#", "", True), ("a.*", "a.", True), ("*.*", ".", True)]
)
def test_trap_64_topic_and_empty_words(pattern: str, key: str, matches: bool, broker: SpecBroker) -> None:
    """`*` matches an empty word but not the empty key, `#` matches the empty key."""
    client = broker.open()
    client.call("queue.declare", queue=Q)
    client.call("queue.bind", queue=Q, exchange="amq.topic", routing_key=pattern)
    client.publish("amq.topic", key, b"m")
    assert client.bodies(Q) == ([b"m"] if matches else [])


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
def test_trap_65_headers_empty_and_void(
    arguments: dict[str, Any], headers: dict[str, Any], matches: bool, broker: SpecBroker
) -> None:
    """An empty any matches nothing, an empty all everything, void is presence."""
    client = broker.open()
    client.call("queue.declare", queue=Q)
    client.call("queue.bind", queue=Q, exchange="amq.headers", arguments=arguments)
    client.publish("amq.headers", "", b"m", headers=headers)
    assert client.bodies(Q) == ([b"m"] if matches else [])


@pytest.mark.parametrize(("x_match", "matches"), [("all", True), ("all-with-x", False), ("any-with-x", True)])
def test_trap_66_headers_with_x(x_match: str, matches: bool, broker: SpecBroker) -> None:
    """Binding arguments that begin with x- take part with all-with-x and any-with-x only."""
    client = broker.open()
    client.call("queue.declare", queue=Q)
    arguments = {"x-match": x_match, "x-a": "1", "b": "2"}
    client.call("queue.bind", queue=Q, exchange="amq.headers", arguments=arguments)
    client.publish("amq.headers", "", b"m", headers={"b": "2"})
    assert client.bodies(Q) == ([b"m"] if matches else [])


# ---------------------------------------------------------------------------------------------- transactions, confirms


def test_trap_67_direct_reply_to(broker: SpecBroker) -> None:
    """reply_to is written out, a passive declare of the address shows that somebody is there, and it needs no_ack."""
    client = broker.open()
    client.call("queue.declare", queue=Q)
    client.call("basic.consume", queue="amq.rabbitmq.reply-to", no_ack=True)
    client.publish("", Q, b"request", reply_to="amq.rabbitmq.reply-to")
    client.wait_for_ready(Q, 1)
    request = client.take(Q, no_ack=True)
    assert request.content is not None
    address = request.content.properties["reply_to"]
    assert address.startswith("amq.rabbitmq.reply-to.")
    client.call("channel.open", channel=2)
    assert client.count(address, channel=2) == (0, 1)  # on the consumer's own channel RabbitMQ 3.10 crashes
    client.send("basic.consume", channel=2, queue="amq.rabbitmq.reply-to")
    text = "PRECONDITION_FAILED - reply consumer cannot acknowledge"
    expect_channel_close(client, 406, text, (60, 20), channel=2)


def test_trap_68_declaring_the_reply_queue(broker: SpecBroker) -> None:
    """amq.rabbitmq.reply-to can be declared although `amq.` is reserved."""
    client = broker.open()
    client.call("queue.declare", queue="amq.rabbitmq.reply-to")


def test_trap_72_tx_unknown_tag_at_once(broker: SpecBroker) -> None:
    """Inside a transaction an unknown tag is refused at once, a tag acked twice too."""
    client = filled(broker, 1)
    client.call("tx.select")
    client.take(Q)
    client.send("basic.ack", delivery_tag=1)
    client.send("basic.ack", delivery_tag=1)
    expect_channel_close(client, 406, "PRECONDITION_FAILED - unknown delivery tag 1", (60, 80))
    client.call("channel.open")
    assert client.bodies(Q) == [b"0"]  # the channel's end rolled the first ack back


def test_trap_72_tx_returns_during_the_commit(broker: SpecBroker) -> None:
    """A mandatory message is returned while committing, before commit-ok."""
    client = broker.open()
    client.call("tx.select")
    client.publish("", "p.nowhere", b"m", mandatory=True)
    assert client.collect() == []
    client.send("tx.commit")
    assert client.expect("basic.return").body == b"m"
    client.expect("tx.commit-ok")


def test_trap_72_tx_rollback_rearms_the_tags(broker: SpecBroker) -> None:
    """rollback drops the publishes, and makes acked tags outstanding again without a redelivery."""
    client = filled(broker, 1)
    client.call("tx.select")
    client.call("basic.consume", queue=Q)
    client.deliveries(1)
    client.send("basic.ack", delivery_tag=1)
    client.publish("", Q, b"dropped")
    client.call("tx.rollback")
    assert client.collect(Q) == []
    client.send("basic.ack", delivery_tag=1)
    client.call("tx.commit")
    client.call("channel.close")
    client.call("channel.open")
    assert client.get(Q) is None


def test_trap_73_confirm_select_twice(broker: SpecBroker) -> None:
    """The sequence starts with the first select, a second one does not reset it."""
    client = broker.open()
    client.publish("", "p.nowhere")
    client.call("confirm.select")
    client.publish("", "p.nowhere")
    assert client.expect("basic.ack")["delivery_tag"] == 1
    client.call("confirm.select")
    client.publish("", "p.nowhere")
    assert client.expect("basic.ack")["delivery_tag"] == 2


def test_trap_74_acks_come_in_bulk(broker: SpecBroker) -> None:
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


def test_trap_77_who_closes_the_socket(broker: SpecBroker) -> None:
    """After the client's close the broker leaves the socket to the client; after the client's close-ok it closes."""
    client = broker.open()
    client.running = False
    client.send("connection.close", channel=0)
    client.expect("connection.close-ok", channel=0)
    with pytest.raises(TimeoutError):
        client.read_frame(0.3)
    client = broker.open()
    client.send("channel.close-ok")
    client.expect("connection.close", channel=0)
    started = time.monotonic()
    client.send("connection.close-ok", channel=0)
    client.expect_eof()
    assert time.monotonic() - started < 2
    client.running = False


def test_trap_78_exclusive_queues_are_gone_with_close_ok(broker: SpecBroker) -> None:
    """When close-ok arrives another connection can already declare the name."""
    owner, other = broker.open(), broker.open()
    owner.call("queue.declare", queue=Q, exclusive=True)
    owner.close()
    not_found(other, Q)
    other.call("queue.declare", queue=Q, durable=True)


HEADERS = {
    **{"t": True, "b": ("b", -1), "B": ("B", 255), "s": ("s", -300), "u": ("u", 65535), "I": ("I", -5), "i": ("i", 5)},
    **{"l": ("l", -(2**40)), "L": ("L", 2**40), "f": ("f", 1.5), "d": ("d", 2.25), "D": ("D", (2, 314))},
    **{"S": b"\xff octets", "x": ("x", b"\0\1"), "T": ("T", 1_700_000_000), "V": None, "A": [1, "two", {"three": 3}]},
    **{"F": {"inner": ("s", 7)}},
}


@pytest.mark.parametrize("how", ["get", "deliver", "return"])
def test_trap_79_headers_pass_octet_for_octet(how: str, broker: SpecBroker) -> None:
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


@pytest.mark.parametrize("value", [("b", -5), ("s", 0), 5, ("l", 2**40), ("L", 1)])
def test_trap_80_consumer_priority_values(value: Any, broker: SpecBroker) -> None:
    """x-priority of a consumer is any integer of any width, zero and negative too."""
    client = broker.open()
    client.call("queue.declare", queue=Q)
    client.call("basic.consume", queue=Q, arguments={"x-priority": value})


def test_trap_80_consumer_priority_string(broker: SpecBroker) -> None:
    """A string is refused."""
    client = broker.open()
    client.call("queue.declare", queue=Q)
    client.send("basic.consume", queue=Q, arguments={"x-priority": "5"})
    text = (
        "PRECONDITION_FAILED - invalid arg 'x-priority' for queue 'p.trap' in vhost '/': "
        '"expected integer, got longstr"'
    )
    expect_channel_close(client, 406, text, (60, 20))


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


def limited(broker: SpecBroker, **arguments: Any) -> Client:
    """A client and the queue p.trap with arguments, all dead letters of which go to p.dead."""
    client = broker.open()
    client.call("queue.declare", queue="p.dead")
    client.call("queue.declare", queue=Q, arguments={key.replace("_", "-"): value for key, value in arguments.items()})
    return client


def test_trap_39_reject_publish_is_nacked_and_not_returned(broker: SpecBroker) -> None:
    """A full reject-publish queue: basic.nack, and no basic.return even with mandatory."""
    client = limited(broker, x_max_length=1, x_overflow="reject-publish")
    client.call("confirm.select")
    client.publish("", Q, b"fits", mandatory=True)
    assert client.expect("basic.ack")["delivery_tag"] == 1
    client.publish("", Q, b"does not", mandatory=True)
    assert client.expect("basic.nack")["delivery_tag"] == 2
    assert client.take(Q).body == b"fits"


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
def test_trap_41_expiration_is_a_decimal_number(broker: SpecBroker, value: str, reason: str) -> None:
    """Anything else closes the channel, each with its own reason."""
    client = broker.open()
    client.publish("", Q, expiration=value)
    text = f"PRECONDITION_FAILED - invalid expiration '{value}': {reason}"
    expect_channel_close(client, 406, text, (60, 40))


DEAD = {"x_dead_letter_exchange": "", "x_dead_letter_routing_key": "p.dead"}


def let_pass(client: Client, milliseconds: int) -> None:
    """Return when the broker itself says, by the death of a message, that this time is over."""
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "p.rang"}
    client.call("queue.declare", queue="p.rang")
    client.call("queue.declare", queue="p.timer", arguments=arguments)
    client.publish("", "p.timer", b"", expiration=str(milliseconds))
    client.wait_for_ready("p.rang", 1)
    client.take("p.rang", no_ack=True)


def test_trap_52_expiry_is_looked_at_at_the_head(broker: SpecBroker) -> None:
    """Behind a message that lives longer an expired one still counts; it is dead when it comes to the head."""
    client = limited(broker, **DEAD)
    client.publish("", Q, b"long", expiration="60000")
    client.publish("", Q, b"short", expiration="10")
    let_pass(client, 300)
    assert (client.count(Q), client.count("p.dead")) == ((2, 0), (0, 0))
    assert client.take(Q, no_ack=True).body == b"long"
    client.wait_for_ready("p.dead", 1)
    assert client.get(Q) is None


def test_trap_53_time_to_live_zero(broker: SpecBroker) -> None:
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


def test_trap_54_requeueing_does_not_restart_the_clock(broker: SpecBroker) -> None:
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


@pytest.mark.parametrize("queue_ms, message_ms", [(10, "60000"), (60_000, "10")])
def test_trap_54_the_smaller_time_counts(queue_ms: int, message_ms: str, broker: SpecBroker) -> None:
    """min(x-message-ttl, expiration)."""
    client = limited(broker, x_message_ttl=queue_ms, **DEAD)
    client.publish("", Q, b"x", expiration=message_ms)
    client.wait_for_ready("p.dead", 1)


def test_trap_58_circles_of_expiry_end_and_those_of_rejection_do_not(broker: SpecBroker) -> None:
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


def test_trap_55_dead_lettering_moves_expiration_into_the_history(broker: SpecBroker) -> None:
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


def test_trap_56_deaths_are_newest_first_and_counted(broker: SpecBroker) -> None:
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


def test_trap_57_routing_keys_of_the_dead(broker: SpecBroker) -> None:
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


def test_trap_60_drop_head_takes_the_highest_priority_first(broker: SpecBroker) -> None:
    """low, high, low2 with limit 2 leaves low, low2."""
    client = limited(broker, x_max_length=2, x_max_priority=5)
    for body, priority in ((b"low", 0), (b"high", 5), (b"low2", 0)):
        client.publish("", Q, body, priority=priority)
    client.wait_for_ready(Q, 2)
    assert [client.take(Q).body for _ in range(2)] == [b"low", b"low2"]


def test_trap_61_unacked_messages_take_no_room(broker: SpecBroker) -> None:
    """max-length counts ready messages only."""
    client = limited(broker, x_max_length=1)
    client.publish("", Q, b"held")
    client.wait_for_ready(Q, 1)
    client.take(Q)
    client.publish("", Q, b"fits")
    client.wait_for_ready(Q, 1)
    assert client.take(Q).body == b"fits"


def test_trap_62_priorities_are_clamped_and_absent_is_zero(broker: SpecBroker) -> None:
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


def stream(client: Client) -> None:
    """A stream of the name p.trap."""
    client.call("queue.declare", queue=Q, durable=True, arguments={"x-queue-type": "stream"})


@pytest.mark.parametrize("no_ack", [False, True])
def test_trap_81_stream_consumers(no_ack: bool, broker: SpecBroker) -> None:
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


def test_trap_82_global_prefetch_is_none_for_streams(broker: SpecBroker) -> None:
    """qos(global=true) does not count as the prefetch of a stream's consumer."""
    client = broker.open()
    stream(client)
    client.call("basic.qos", prefetch_count=10, global_=True)
    client.send("basic.consume", queue=Q)
    text = f"PRECONDITION_FAILED - consumer prefetch count is not set for 'queue '{Q}' in vhost '/''"
    expect_channel_close(client, 406, text, (60, 20))


# ---------------------------------------------------------------------------------------------- users and operators


def as_user(broker: SpecBroker, user: str) -> Client:
    """A client of one of the users of definitions.json."""
    return broker.open(response=f"\0{user}\0p".encode())


def refused(client: Client, what: str, ids: tuple[int, int]) -> None:
    """403 on the channel, which is opened again; our text begins with the verb."""
    code, text, *found = close_of(client.expect("channel.close"))
    assert (code, found) == (403, list(ids))
    assert f"access to {what} in vhost '/' refused for user" in text
    client.send("channel.close-ok")
    client.call("channel.open")


def test_trap_69_permission_comes_before_existence(broker: SpecBroker) -> None:
    """What is not there is 403, not 404, for who may not; the default exchange is called amq.default."""
    client = as_user(broker, "no-read-p.m.q")
    client.send("basic.get", queue="p.m.q")
    refused(client, "queue 'p.m.q'", (60, 70))
    client = as_user(broker, "no-write-amq.default")
    client.publish("", "p.nowhere", b"x")
    refused(client, "exchange 'amq.default'", (60, 40))


def test_trap_70_what_arguments_need(broker: SpecBroker) -> None:
    """A dead-letter exchange: read on the queue, write on the exchange; an alternate one: read on the first."""
    dead_letters = {"x-dead-letter-exchange": "p.m.y"}
    for user, what in (("no-read-p.m.q", "queue 'p.m.q'"), ("no-write-p.m.y", "exchange 'p.m.y'")):
        client = as_user(broker, user)
        client.send("queue.declare", queue="p.m.q", arguments=dead_letters)
        refused(client, what, (50, 10))
    for user, what in (("no-read-p.m.x", "exchange 'p.m.x'"), ("no-write-p.m.y", "exchange 'p.m.y'")):
        client = as_user(broker, user)
        client.send("exchange.declare", exchange="p.m.x", type="direct", arguments={"alternate-exchange": "p.m.y"})
        refused(client, what, (40, 10))


def test_trap_71_topic_permissions_take_binding_keys_as_text(broker: SpecBroker) -> None:
    """A binding key is looked at letter by letter: its wildcards mean nothing there."""
    guest = broker.open()
    guest.call("exchange.declare", exchange="p.m.t", type="topic")
    guest.call("queue.declare", queue="p.m.q")
    client = as_user(broker, "no-topic-read")
    client.call("queue.bind", queue="p.m.q", exchange="p.m.t", routing_key="no-topic-read.ok")
    for key in ("#", "*.ok", "no-topic-read.*"):
        client.send("queue.bind", queue="p.m.q", exchange="p.m.t", routing_key=key)
        refused(client, f"topic '{key}' in exchange 'p.m.t'", (50, 20))


@pytest.mark.parametrize("what", ["user", "vhost"])
def test_trap_76_deleting_ends_connections(what: str, broker: SpecBroker) -> None:
    """320, whichever of user and virtual host was deleted."""
    name = f"p-trap-{what}"
    broker.rule(f"add_{what}", *([name, "p"] if what == "user" else [name]))
    user, vhost = (name, "/") if what == "user" else ("guest", name)
    broker.rule("set_permissions", "-p", vhost, user, ".*", ".*", ".*")
    client = broker.connect()
    client.handshake(vhost=vhost, response=f"\0{user}\0{'p' if what == 'user' else 'guest'}".encode())
    broker.rule_meanwhile(f"delete_{what}", name)
    client.running = False
    code, text, *ids = close_of(client.expect("connection.close", channel=0))
    assert (code, ids) == (320, [0, 0])
    assert re.fullmatch(f"CONNECTION_FORCED - {what} '{name}' is (deleted|down)", text)
    client.abort()
