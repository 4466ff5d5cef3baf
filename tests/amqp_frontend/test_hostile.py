"""Peers that mean harm, or are broken: documented outcomes only, and nobody else notices."""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterator

import pytest
from pair import Pair
from pamqp import commands, encode
from peer import (
    LOGIN,
    PROTOCOL_HEADER,
    Peer,
    content,
    handshake,
    method,
    publish,
    raw_frame,
    raw_method,
)

from leveret.amqp_frontend.wire.states import ConnectionState

C = commands
CONNECTION_CODES = {320, 501, 502, 503, 504, 505, 506, 530, 540, 541}
OPEN = method(1, C.Channel.Open)
DECLARE = method(1, C.Queue.Declare, queue="q")
PUBLISH = method(1, C.Basic.Publish, routing_key="q")
START_OK = method(0, C.Connection.StartOk, client_properties={"a": {"b": [1, "x"]}}, response=LOGIN.decode())


@pytest.fixture
def pair() -> Iterator[Pair]:
    """A broker with a bystander: whatever happens to others, its own conversation goes on."""
    pair = Pair()
    bystander = pair.open()
    bystander.call(1, C.Queue.Declare, queue="mine", exclusive=True)
    bystander.call(1, C.Basic.Consume, queue="mine", consumer_tag="c")
    yield pair
    bystander.send(publish(1, "mine", b"still here"))
    assert bystander.expect_content(C.Basic.Deliver).body == b"still here"
    bystander.expect_nothing()
    for peer in pair.peers:
        peer.hang_up()
    statistics = pair.broker.statistics()
    assert (statistics.clients, statistics.consumers, statistics.unacked) == (0, 0, 0)
    assert len(pair.broker.context.deadlines) == 0, "timers of connections that are gone"


def refusal_lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What an operator reads; a traceback is never among it."""
    assert not [record for record in caplog.records if record.exc_info or record.levelno >= logging.ERROR]
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def assert_closed(peer: Peer, code: int, ids: tuple[int, int] = (0, 0)) -> str:
    """connection.close with this code was the last thing said; close-ok ends it."""
    close = peer.expect(C.Connection.Close)
    assert (close.reply_code, (close.class_id, close.method_id)) == (code, ids), close.reply_text
    peer.expect_nothing()
    assert peer.session.connection.state is ConnectionState.CLOSING
    assert not peer.session.closing.abort, "the close would be lost in a reset"
    return str(close.reply_text)


# -- before the login -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", range(len(START_OK)))
def test_a_login_that_stops_in_the_middle_times_out(pair: Pair, size: int, caplog: pytest.LogCaptureFixture) -> None:
    """A short read at every octet: silence until the handshake's time is over, one log line."""
    peer = pair.open(None)
    peer.send(PROTOCOL_HEADER, START_OK[:size])
    peer.expect(C.Connection.Start)
    peer.expect_nothing()
    assert not peer.is_closed
    pair.advance(10000)
    assert peer.is_closed
    peer.expect_nothing()
    assert len(refusal_lines(caplog)) == 1


def _nested(size: int, tag: bytes) -> bytes:
    """A table of about `size` octets that is nothing but nesting."""
    value = b"V"
    while len(value) < size:
        inner = (b"\x01k" if tag == b"F" else b"") + value
        value = tag + struct.pack(">I", len(inner)) + inner
    body = b"\x01k" + value
    return struct.pack(">I", len(body)) + body


REST = b"\x05PLAIN" + struct.pack(">I", len(LOGIN)) + LOGIN + b"\x05en_US"

BEFORE_LOGIN: dict[str, bytes] = {
    "nested tables, 2,500 octets": raw_method(0, 10, 11, _nested(2_500, b"F") + REST),
    "nested arrays, 2,500 octets": raw_method(0, 10, 11, _nested(2_500, b"A") + REST),
    "nested arrays, 8,000 octets": raw_method(0, 10, 11, _nested(8_000, b"A") + REST),
    "a table of 4 GiB": raw_method(0, 10, 11, b"\xff\xff\xff\xff" + REST),
    "an array of 4 GiB": raw_method(0, 10, 11, b"\x00\x00\x00\x07\x01kA\xff\xff\xff\xff" + REST),
    "an unknown tag": raw_method(0, 10, 11, b"\x00\x00\x00\x04\x01k?x" + REST),
    "a mechanism that is not UTF-8": raw_method(0, 10, 11, b"\x00\x00\x00\x00\x01\xff" + REST[6:]),
    "an unknown mechanism": raw_method(0, 10, 11, b"\x00\x00\x00\x00\x05XYZZY" + REST[6:]),
    "octets behind the arguments": raw_method(0, 10, 11, b"\x00\x00\x00\x00" + REST + b"x"),
    "8,000 octets behind the arguments": raw_method(0, 10, 11, b"\x00\x00\x00\x00" + REST + bytes(8_000)),
    "a response without user": raw_method(0, 10, 11, b"\x00\x00\x00\x00\x05PLAIN\x00\x00\x00\x00\x05en_US"),
    "AMQPLAIN, nested": raw_method(0, 10, 11, b"\x00\x00\x00\x00\x08AMQPLAIN" + _nested(3_000, b"F") + b"\x05en_US"),
    "AMQPLAIN, cut short": raw_method(0, 10, 11, b"\x00\x00\x00\x00\x08AMQPLAIN\x00\x00\x00\x02\x05L\x05en_US"),
    "AMQPLAIN, no strings": raw_method(
        0,
        10,
        11,
        b"\x00\x00\x00\x00\x08AMQPLAIN"
        + (lambda table: struct.pack(">I", len(table)) + table)(encode.field_table({"LOGIN": 1, "PASSWORD": 2})[4:])
        + b"\x05en_US",
    ),
    "a frame of 8,193 octets": raw_frame(1, 0, bytes(8193)),
    "a frame of 4 GiB": b"\x01\x00\x00\xff\xff\xff\xff" + bytes(100),
    "an unknown frame type": raw_frame(99, 0, b"abc"),
    "a wrong frame end": raw_frame(1, 0, b"\x00\x0a\x00\x0b", 0),
    "a method too short": raw_frame(1, 0, b"\x00"),
    "another method": method(0, C.Connection.Open, virtual_host="/"),
    "a channel": OPEN,
    "content": content(0, b"x"),
    "connection.close": method(0, C.Connection.Close, reply_code=200, reply_text="", class_id=0, method_id=0),
    "zeros": bytes(8000),
    "another header": PROTOCOL_HEADER,
}


@pytest.mark.parametrize("name", BEFORE_LOGIN)
def test_errors_before_the_login_are_met_with_silence(pair: Pair, name: str, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is said, what still comes is not kept, after three seconds it is over; one short log line."""
    peer = pair.open(None, frontend={"refused_login_delay_ms": 3_000})
    peer.send(PROTOCOL_HEADER, BEFORE_LOGIN[name])
    peer.expect(C.Connection.Start)
    peer.expect_nothing()
    assert not peer.is_closed
    for _ in range(20):
        peer.send(bytes(128 * 1024), BEFORE_LOGIN[name])
    assert peer.buffered_max <= 300 * 1024, "a refused peer can fill the memory"
    peer.expect_nothing()
    pair.advance(3000)
    assert peer.is_closed and peer.has_reset
    (line,) = refusal_lines(caplog)
    assert len(line) <= 1_000, "a refused peer can fill the log"


@pytest.mark.parametrize("first", [b"GET / HTTP/1.1\r\n", b"AMQP\x00\x01\x00\x00", b"AMQP\x03\x01\x00\x00", bytes(8)])
def test_other_protocols_hear_which_one_is_spoken(pair: Pair, first: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """Our protocol header, then the end; one log line."""
    peer = pair.open(None)
    peer.send(first)
    assert bytes(peer.incoming.octets) == PROTOCOL_HEADER
    assert peer.is_closed
    assert len(refusal_lines(caplog)) == 1


def test_a_wrong_password_is_told_to_those_who_want_to_know(pair: Pair, caplog: pytest.LogCaptureFixture) -> None:
    """403 with the capability, silence without it; one log line each, without the password."""
    for capabilities in ({"authentication_failure_close": True}, {}):
        caplog.clear()
        peer = pair.open(None, frontend={"refused_login_delay_ms": 3_000})
        properties = {"capabilities": capabilities}
        peer.send(
            PROTOCOL_HEADER,
            method(0, C.Connection.StartOk, client_properties=properties, response="\x00guest\x00sesame"),
        )
        peer.expect(C.Connection.Start)
        if capabilities:
            assert_closed(peer, 403)
        peer.expect_nothing()
        (line,) = refusal_lines(caplog)
        assert "sesame" not in line


@pytest.mark.parametrize("response", [b"\x00guest\x00\xfc", b"\x00\xff\x00guest"])
def test_octets_that_no_name_or_password_has_are_a_refused_login(pair: Pair, response: bytes) -> None:
    """A password in Latin-1 is a wrong one, and the client is told as RabbitMQ tells it."""
    peer = pair.open(None)
    properties = encode.field_table({"capabilities": {"authentication_failure_close": True}})
    octets = properties + b"\x05PLAIN" + struct.pack(">I", len(response)) + response + b"\x05en_US"
    peer.send(PROTOCOL_HEADER, raw_method(0, 10, 11, octets))
    peer.expect(C.Connection.Start)
    assert_closed(peer, 403)


# -- frames ---------------------------------------------------------------------------------------------------------


def _huge(size: int) -> bytes:
    return PUBLISH + raw_frame(2, 1, b"\x00\x3c\x00\x00" + size.to_bytes(8, "big") + b"\x00\x00")


RUNNING: dict[str, tuple[bytes, int, tuple[int, int]]] = {
    "a header without content, cut short": (raw_frame(2, 1, b"\x00\x3c\x00\x00"), 501, (0, 0)),
    "a header on channel 0, cut short": (raw_frame(2, 0, bytes(11)), 501, (0, 0)),
    "a header on a closed channel, cut short": (raw_frame(2, 9, b""), 501, (0, 0)),
    "connection.close on a channel, without arguments": (raw_method(1, 10, 50), 501, (10, 50)),
    "a method of servers, without arguments": (raw_method(1, 50, 11), 501, (50, 11)),
    "a method on channel 0, cut short": (raw_method(0, 60, 10, b"\x00"), 501, (60, 10)),
    "a body of 2^63 octets": (_huge(2**63), 501, (60, 40)),
    "a body of 2^64 - 1 octets": (_huge(2**64 - 1), 501, (60, 40)),
    "a body of 512 MiB and one": (_huge(512 * 1024 * 1024 + 1), 501, (60, 40)),
    "a body longer than announced": (_huge(3) + raw_frame(3, 1, b"four"), 501, (60, 40)),
    "properties with a continuation": (PUBLISH + content(1, b"")[:-3] + b"\x00\x01\xce", 541, (0, 0)),
    "a header of class 50": (
        PUBLISH + raw_frame(2, 1, b"\x00\x32\x00\x00" + bytes(8) + b"\x00\x00"),
        505,
        (60, 40),
    ),
    "a header too short": (PUBLISH + raw_frame(2, 1, b"\x00\x3c\x00\x00"), 501, (0, 0)),
    "a header without flags": (PUBLISH + raw_frame(2, 1, b"\x00\x3c" + bytes(10)), 541, (0, 0)),
    "a header with half its flags": (PUBLISH + raw_frame(2, 1, b"\x00\x3c" + bytes(11)), 541, (0, 0)),
    "arguments cut short, no such channel": (raw_method(9, 50, 10, b"\x00\x00\x05ab"), 501, (50, 10)),
    "a body before its header": (PUBLISH + raw_frame(3, 1, b"x"), 505, (60, 40)),
    "two headers": (PUBLISH + content(1, b"x")[:22] * 2, 505, (60, 40)),
    "a method inside a content": (_huge(1) + DECLARE, 505, (60, 40)),
    "content without publish": (content(1, b"x"), 505, (0, 0)),
    "content on channel 0": (content(0, b"x"), 505, (0, 0)),
    "content on a closed channel": (content(9, b"x"), 505, (0, 0)),
    "a heartbeat on a channel": (raw_frame(8, 1, b""), 505, (0, 0)),
    "a heartbeat with a payload": (raw_frame(8, 0, b"x"), 501, (0, 0)),
    "a method of two octets": (raw_frame(1, 1, b"\x00\x3c"), 501, (0, 0)),
    "a method of no octets": (raw_frame(1, 0, b""), 501, (0, 0)),
    "an unknown frame type": (raw_frame(99, 1, b"abc"), 501, (0, 0)),
    "frame type 0": (raw_frame(0, 0, b""), 501, (0, 0)),
    "a wrong frame end": (raw_frame(1, 1, b"\x00\x3c\x00\x50" + bytes(9), 0), 501, (0, 0)),
    "a wrong frame end behind a message": ((publish(1, "q", b"x") * 2)[:-1] + b"\x00", 501, (0, 0)),
    "a frame too large": (b"\x03\x00\x01" + struct.pack(">I", 131073), 501, (0, 0)),
    "a frame of 4 GiB": (b"\x03\x00\x01\xff\xff\xff\xff", 501, (0, 0)),
    "octets behind the arguments": (raw_method(1, 60, 80, bytes(9) + b"garbage"), 501, (60, 80)),
    "arguments cut short": (raw_method(1, 50, 10, b"\x00\x00\x05ab"), 501, (50, 10)),
    "a name that is not UTF-8": (raw_method(1, 50, 10, b"\x00\x00\x01\xff\x00\x00\x00\x00\x00"), 501, (0, 0)),
    "nested arguments": (raw_method(1, 50, 10, b"\x00\x00\x01q\x00" + _nested(100_000, b"A")), 502, (50, 10)),
    "arguments of 4 GiB": (raw_method(1, 50, 10, b"\x00\x00\x01q\x00\xff\xff\xff\xff"), 501, (50, 10)),
    "an unknown class": (raw_method(1, 99, 10), 503, (99, 10)),
    "an unknown method": (raw_method(1, 60, 99), 503, (60, 99)),
    "a method of class 10": (raw_method(1, 10, 50, bytes(7)), 503, (10, 50)),
    "a method on channel 0": (raw_method(0, 50, 10, b"\x00\x00\x01q\x00\x00\x00\x00\x00"), 504, (50, 10)),
    "a method of servers": (raw_method(1, 50, 11, b"\x01q" + bytes(8)), 503, (50, 11)),
    "a channel that is not open": (raw_method(9, 20, 40, bytes(7)), 504, (20, 40)),
    "a channel that is open": (OPEN, 504, (20, 10)),
}


@pytest.mark.parametrize("tail", [b"", bytes(500), DECLARE * 20, b"\xff" * 500], ids=["", "zeros", "methods", "ones"])
@pytest.mark.parametrize("name", RUNNING)
def test_wrong_frames_close_the_connection_with_their_code(
    pair: Pair, name: str, tail: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """Code and method ids of behaviour page 1.11 to 1.13, whatever stands behind in the same read; one log line."""
    octets, code, ids = RUNNING[name]
    peer = pair.open()
    peer.send(DECLARE)
    peer.expect(C.Queue.DeclareOk)
    peer.send(octets + tail)
    text = assert_closed(peer, code, ids)
    assert len(text.encode()) <= 255
    assert len(refusal_lines(caplog)) == 1
    for _ in range(20):
        peer.send(bytes(128 * 1024), tail)
    peer.expect_nothing()
    assert peer.buffered_max <= 300 * 1024, "a refused peer can fill the memory"
    pair.advance(31000)
    assert peer.is_closed
    assert len(refusal_lines(caplog)) == 1
    assert "q" in pair.broker.virtual_hosts["/"].queues


def test_a_close_ok_may_come_with_what_was_wrong(pair: Pair) -> None:
    """In one read: it is heard, and the broker closes the socket without waiting for the peer to say more."""
    peer = pair.open()
    peer.send(method(7, C.Basic.Qos, prefetch_count=1) + method(0, C.Connection.CloseOk))
    assert peer.expect(C.Connection.Close).reply_code == 504
    assert peer.is_closed and not peer.has_reset


@pytest.mark.parametrize("octets", [7, 1000, None], ids=["its head", "a part", "all of it"])
def test_a_close_ok_is_heard_behind_a_frame_that_was_refused(pair: Pair, octets: int | None) -> None:
    """However much of the frame was sent: the socket is closed at once, and not when the peer's time is over."""
    peer = pair.open()
    peer.send(raw_frame(3, 1, bytes(131073))[:octets])
    assert peer.expect(C.Connection.Close).reply_code == 501
    peer.send(method(0, C.Connection.CloseOk))
    assert peer.is_closed and not peer.has_reset


@pytest.mark.parametrize("size", range(0, 60))
def test_a_peer_that_goes_in_the_middle_of_anything(pair: Pair, size: int) -> None:
    """A short read at every octet of a publish with content: nothing of it happened."""
    peer = pair.open()
    peer.call(1, C.Queue.Declare, queue="q")
    octets = publish(1, "q", b"body", headers={"k": "v"})
    assert len(octets) > size
    peer.send(octets[:size])
    peer.hang_up()
    peer.expect_nothing()
    assert pair.broker.statistics().counters["published"] == 0


def test_every_octet_of_a_handshake_may_be_the_last(pair: Pair) -> None:
    """A hang-up at every octet of the login leaves no client and no timer behind."""
    octets = b"".join(handshake())
    for size in range(len(octets)):
        peer = pair.open(None)
        peer.send(octets[:size])
        peer.hang_up()
    assert pair.broker.statistics().clients <= 1


def test_huge_announcements_reserve_nothing(pair: Pair) -> None:
    """A message over the limit is dropped as it arrives; the channel closes with 406 when it is whole. It does not
    count as incomplete, whose limit would end the whole connection."""
    peer = pair.open(None, frontend={"message_size_max": 10_000, "incomplete_max": 10_000})
    peer.send(*handshake(), OPEN + DECLARE)
    peer.take()
    peer.send(PUBLISH + content(1, bytes(10_000), body_max=1_000))
    assert peer.call(1, C.Queue.Declare, queue="q", passive=True).message_count == 1  # as large as allowed
    huge = PUBLISH + content(1, bytes(30_001), body_max=1_000)
    peer.send(huge[:25_000])
    assembly = peer.session.connection.channels[1].assembly
    assert assembly is not None and not assembly.body and not assembly.pieces
    peer.send(huge[25_000:])
    close = peer.expect(C.Channel.Close)
    assert (close.reply_code, close.class_id, close.method_id) == (406, 60, 40)


def test_what_a_channel_remembers_is_bounded(pair: Pair) -> None:
    """Ever new routing keys, properties and arguments: memories start anew, none grows."""
    peer = pair.open()
    for number in range(3_000):
        peer.send(publish(1, f"key {number}", b"x", message_id=f"id {number}", user_id=f"{number}"))
    memory = peer.session.connection.publish_cache
    assert len(memory.summaries) <= 512
    assert max(sum(map(len, memory.kinds.values())), len(memory.arguments)) <= 2048


def test_a_peer_that_reads_nothing_is_not_read_further(pair: Pair) -> None:
    """Answers pile up to a limit; then the rest of the requests waits, and all are answered in the end."""
    peer = pair.open()
    peer.is_reading = False
    burst = method(1, C.Queue.Declare, queue="q" * 200) * 400
    sent = 0
    while not peer.session.output.is_stalled:
        peer.send(burst)
        sent += 400
        assert sent < 100_000
    assert peer.session.output.reply_size < 5 * 1024 * 1024
    peer.resume()
    peer.send(b"")
    assert len(peer.take()) == sent


def test_errors_on_a_channel_leave_the_others_alone(pair: Pair) -> None:
    """404 closes one channel; requests behind it are ignored, the other channel works, the number can be reused."""
    peer = pair.open(channels=2)
    peer.send(method(1, C.Basic.Get, queue="missing") + DECLARE * 3 + method(2, C.Queue.Declare, queue="other"))
    assert peer.expect(C.Channel.Close, channel=1).reply_code == 404
    assert peer.expect(C.Queue.DeclareOk, channel=2).queue == "other"
    peer.expect_nothing()
    peer.send(method(1, C.Channel.CloseOk) + OPEN + DECLARE)
    peer.expect(C.Channel.OpenOk)
    peer.expect(C.Queue.DeclareOk)


def test_a_peer_that_dies_gives_everything_back(pair: Pair) -> None:
    """Unacked messages are ready again, redelivered; exclusive queues are gone, uncommitted work is forgotten."""
    peer = pair.open(channels=2)
    peer.send(DECLARE + method(1, C.Queue.Declare, queue="own", exclusive=True))
    peer.send(publish(1, "q", b"1") + publish(1, "q", b"2") + method(1, C.Basic.Get, queue="q"))
    peer.send(method(2, C.Tx.Select) + publish(2, "q", b"never"))
    peer.hang_up()
    other = pair.open()
    for body, redelivered in ((b"1", True), (b"2", False)):
        other.send(method(1, C.Basic.Get, queue="q", no_ack=True))
        got = other.expect_content(C.Basic.GetOk)
        assert (got.body, got.frame.redelivered) == (body, redelivered)
    assert isinstance(other.call(1, C.Basic.Get, queue="q"), C.Basic.GetEmpty)
    assert "own" not in pair.broker.virtual_hosts["/"].queues


def test_a_chain_of_auto_delete_exchanges_can_be_deleted(pair: Pair, caplog: pytest.LogCaptureFixture) -> None:
    """It goes with its last, and that is no internal error."""
    peer = pair.open()
    for number in range(1000):
        peer.send(method(1, C.Exchange.Declare, exchange=f"e{number}", exchange_type="fanout", auto_delete=True))
        if number:
            peer.send(method(1, C.Exchange.Bind, destination=f"e{number}", source=f"e{number - 1}"))
    peer.take()
    assert isinstance(peer.call(1, C.Exchange.Delete, exchange="e999"), C.Exchange.DeleteOk)
    assert isinstance(peer.call(1, C.Exchange.Declare, exchange="e0", passive=True), C.Channel.Close)
    assert not refusal_lines(caplog)


def test_a_chain_of_limits_does_not_recurse(pair: Pair) -> None:
    """A thousand full queues, each dead-lettering into the next: one publish ripples through all of them."""
    peer = pair.open()
    for number in range(1001):
        arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": f"q{number + 1}", "x-max-length": 1}
        peer.call(1, C.Queue.Declare, queue=f"q{number}", arguments=arguments if number < 1000 else {})
    for number in range(1000):
        peer.send(publish(1, f"q{number}", b"x"))
    peer.send(publish(1, "q0", b"one too many"))
    assert peer.call(1, C.Queue.Declare, queue="q1000", passive=True).message_count == 1


def test_a_silent_peer_is_dropped_and_a_talking_one_is_not(pair: Pair, caplog: pytest.LogCaptureFixture) -> None:
    """Heartbeats: two to three intervals of silence are the end, one log line."""
    silent, talking = pair.open(heartbeat_s=10), pair.open(heartbeat_s=10)
    for _ in range(8):
        pair.advance(5000)
        talking.send(raw_frame(8, 0, b""))
    assert silent.is_closed and silent.has_reset
    assert not talking.is_closed
    assert len(refusal_lines(caplog)) == 1
