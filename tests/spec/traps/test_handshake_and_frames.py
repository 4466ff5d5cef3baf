"""The handshake and frames: where naive brokers differ from RabbitMQ."""

from __future__ import annotations

import time
from typing import Any

import pytest
from spec_broker import SpecBroker, expect_connection_close
from traps import Q, trap

from leveret.interop.wire.raw_codec import BODY, HEADER, HEARTBEAT, arguments_of, frame, header_payload


@trap(1)
def test_bad_protocol_header(broker: SpecBroker) -> None:
    """A bad protocol header is answered with `AMQP 0 0 9 1`, and the connection is closed."""
    client = broker.connect()
    client.send_octets(b"HTTP/1.1")
    assert client.read_octets_to_eof() == b"AMQP\x00\x00\x09\x01"


@trap(2)
def test_close_before_tune_ok(broker: SpecBroker) -> None:
    """connection.close before tune-ok gets no close-ok, only the end of the TCP connection."""
    client = broker.connect()
    client.log_in()
    client.send("connection.close", channel=0)
    client.expect_eof()


@trap(3)
def test_bad_password_without_capability(broker: SpecBroker) -> None:
    """Without authentication_failure_close a bad password gets no connection.close at all."""
    client = broker.connect()
    client.start()
    client.start_ok(response=b"\0guest\0wrong", capabilities={"basic.nack": True})
    client.expect_eof()


@trap(4)
def test_bad_password_with_capability(broker: SpecBroker) -> None:
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


@trap(5)
@pytest.mark.parametrize("heartbeat", [61, 65535])
def test_heartbeat_of_the_client(heartbeat: int, broker: SpecBroker) -> None:
    """tune-ok may carry a larger heartbeat than offered (that the client's value rules: trap 14)."""
    client = broker.connect()
    offer = client.log_in()
    assert offer["heartbeat"] < heartbeat
    client.tune_ok(offer, heartbeat=heartbeat)
    client.call("connection.open", channel=0, virtual_host="/")
    client.running = True


@trap(6)
@pytest.mark.parametrize("field", ["channel_max", "frame_max"])
def test_no_limit_is_refused(field: str, broker: SpecBroker) -> None:
    """channel-max 0 or frame-max 0 is refused while the broker has a limit."""
    client = broker.connect()
    client.tune_ok(client.log_in(), **{field: 0})
    if not broker.is_rabbitmq:  # 3.10 says nothing, we say what 4.x says
        close = client.expect("connection.close", channel=0)
        assert close["reply_code"] == 530 and f"negotiated {field} = 0" in close["reply_text"]
        client.send("connection.close-ok", channel=0)
    client.expect_eof()


@trap(7)
@pytest.mark.parametrize("frame_max", [4096, 131072])
def test_eight_octets_more_than_agreed(frame_max: int, broker: SpecBroker) -> None:
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


@trap(8)
def test_too_large_is_seen_in_the_header(broker: SpecBroker) -> None:
    """frame_too_large is reported from the 7-octet header alone; the payload is not waited for."""
    client = broker.open()
    client.send_octets(frame(BODY, 1, bytes(200_000))[:7])
    text = "FRAME_ERROR - type 3, all octets = <<>>: {frame_too_large,200000,131064}"
    expect_connection_close(client, 501, text, (0, 0))


@trap(9)
def test_channel_numbers_above_the_maximum(broker: SpecBroker) -> None:
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


@trap(10)
@pytest.mark.parametrize(
    ("method", "ids"),
    [("channel.close", (20, 40)), ("basic.ack", (60, 80)), ("queue.declare", (50, 10)), ("basic.publish", (60, 40))],
)
def test_method_on_an_unopened_channel(method: str, ids: tuple[int, int], broker: SpecBroker) -> None:
    """Any method on an unopened channel, channel.close too, kills the connection."""
    client = broker.open()
    client.send(method, channel=2)
    if method == "basic.publish":  # 3.10 waits for the content first
        client.send_frame(HEADER, 2, header_payload(0))
    expect_connection_close(client, 504, "CHANNEL_ERROR - expected 'channel.open'", ids)


@trap(11)
def test_channel_close_ok_out_of_the_blue(broker: SpecBroker) -> None:
    """channel.close-ok on a running channel kills the connection."""
    client = broker.open()
    client.send("channel.close-ok")
    expect_connection_close(client, 503, "COMMAND_INVALID - unimplemented method", (20, 41))


@trap(12)
@pytest.mark.parametrize(
    ("name", "ids", "values"),
    [
        ("basic.ack", (60, 80), {"delivery_tag": 1}),
        ("queue.declare", (50, 10), {"queue": "p.z"}),
        ("basic.publish", (60, 40), {"routing_key": "p.z"}),
        ("tx.select", (90, 10), {}),
    ],
)
def test_octets_after_the_arguments(
    name: str, ids: tuple[int, int], values: dict[str, Any], broker: SpecBroker
) -> None:
    """Octets after the last argument are an error, of rare methods and of the hot ones. They are shown as numbers."""
    client = broker.open()
    octets = arguments_of(name, **values) + b"x"
    client.method(1, *ids, octets)
    text = f"FRAME_ERROR - cannot decode <<{','.join(map(str, octets))}>>"
    expect_connection_close(client, 501, text, ids)


@trap(13)
def test_heartbeats_on_channel_0_only(broker: SpecBroker) -> None:
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


@trap(14)
@pytest.mark.real_time
def test_heartbeat_interval(broker: SpecBroker) -> None:
    """With 1 s agreed the broker sends one every half second, and ends a silent client after 2 to 3 s, wordlessly."""
    client = broker.open(tune={"heartbeat": 1})
    client.running = False
    last_word = time.monotonic()
    octets = client.read_octets_to_eof()
    silence = time.monotonic() - last_word
    beat = frame(HEARTBEAT, 0, b"")
    beats = [octets[at : at + len(beat)] for at in range(0, len(octets), len(beat))]
    assert set(beats) == {beat}
    # Nothing is late on a busy machine: `test_life_cycle.py` has the exact times, virtual.
    assert silence > 1.5
    assert 1 <= len(beats) <= silence / 0.5 + 1
