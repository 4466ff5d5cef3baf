"""Large bodies, read to where they stay: the same events and errors as frame by frame, without copies or floods."""

from __future__ import annotations

import os
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pamqp import commands
from peer import method, raw_frame

from leveret.amqp_frontend.wire.channel_reader import ChannelReader
from leveret.amqp_frontend.wire.events import (
    AcksReceived,
    ChannelMethod,
    ConnectionMethod,
    MixedReceived,
    PublishReceived,
)
from leveret.amqp_frontend.wire.frames import Connection, IncompleteBodies
from leveret.amqp_frontend.wire.large_body import LARGE_MIN, STEP, LargeBody
from leveret.amqp_frontend.wire.peer_errors import IncompleteTooLarge, MethodFrameExpected, PeerError
from leveret.amqp_frontend.wire.states import ConnectionState, ConnectionStep

C = commands
FRAME_MAX = 20_000
MIB = 1024 * 1024


class CarefulBodies(IncompleteBodies):
    """Every frame is taken by itself."""

    __slots__ = ()

    def large_body(self, number: int, payload_size: int) -> LargeBody | None:
        """None is large."""
        return None


def reader(incomplete_max: int = 1 << 62, message_size_max: int = 1 << 62, frame_max: int = FRAME_MAX) -> Connection:
    """A connection that runs, with channels 1 to 3."""
    connection = Connection(incomplete_max)
    connection.state = ConnectionState.RUNNING
    connection.frame_max = frame_max
    for number in (1, 2, 3):
        connection.channels[number] = ChannelReader(
            number, connection.publish_cache, frame_max=frame_max, message_size_max=message_size_max
        )
    return connection


def careful_reader(incomplete_max: int, message_size_max: int) -> Connection:
    """The same; it knows no large bodies."""
    connection = reader(incomplete_max, message_size_max)
    connection.incomplete = CarefulBodies(connection.channels, incomplete_max)
    return connection


def seen(connection: Connection) -> Iterator[object]:
    """What the octets so far mean, a value for each message, method or error; an error closes the connection."""
    while True:
        try:
            for event in connection.events():
                if isinstance(event, PublishReceived):
                    kind = event.kind
                    for content in event.contents:
                        yield event.channel.number, kind.method_frame, kind.summary, content, event.oversized
                elif isinstance(event, AcksReceived):
                    yield from ((event.channel.number, tag, None) for tag in event.tags)
                    yield from ((event.channel.number, None, tag) for tag in event.up_to)
                elif isinstance(event, MixedReceived):
                    for kind, content in zip(event.kinds, event.contents):
                        yield event.channel.number, kind.method_frame, kind.summary, content, 0
                else:
                    assert isinstance(event, ChannelMethod | ConnectionMethod)
                    yield type(event.method)
            return
        except PeerError as error:
            yield type(error), error.ids, vars(error)
            if connection.state is ConnectionState.RUNNING:
                connection.step(ConnectionStep.CLOSE_SENT)
            else:
                connection.skip_everything()
                return


def give(connection: Connection, read: bytes, directly: bool) -> None:
    """One read of the socket, as an endpoint does it: to where a large body belongs, if it can be."""
    direct = connection.incomplete.direct
    if directly and direct is not None:
        room = direct.room
        count = min(len(room), len(read))
        room[:count] = read[:count]
        direct.filled += count
        read = read[count:]
    connection.receive_bytes(read)


# -- what peers send ------------------------------------------------------------------------------------------------

SIZES = st.sampled_from([1, 900, 1023, 1024, 1500, 5000, FRAME_MAX - 8, FRAME_MAX - 7, FRAME_MAX])


@st.composite
def messages(draw: st.DrawFn, channel: int) -> list[bytes]:
    """The frames of a publish: sizes of its body frames as they come, now and then none, or something wrong."""
    size = draw(st.sampled_from([10, LARGE_MIN - 1, LARGE_MIN, LARGE_MIN + 1, 50_000, 70_000]))
    body = bytes(draw(st.integers(0, 255)) for _ in range(8)) * (size // 8 + 1)
    announced = size + draw(st.sampled_from([0] * 20 + [-1, 5]))
    header = (60).to_bytes(2) + bytes(2) + announced.to_bytes(8) + draw(st.sampled_from([bytes(2), b"\x10\x00\x02"]))
    if draw(st.integers(0, 30)) == 0:
        header = header[:12] + b"\x20\x00"  # properties that cannot be decoded
    frames = [method(channel, C.Basic.Publish, exchange="", routing_key="q"), raw_frame(2, channel, header)]
    usual, at = draw(SIZES), 0
    while at < size:
        length = min(size - at, draw(st.sampled_from([usual] * 8 + [0, 700, 3000, FRAME_MAX - 8])))
        end = draw(st.sampled_from([0xCE] * 200 + [0]))
        frames.append(raw_frame(3, channel, body[at : at + length], end))
        at += length
        if len(frames) > 60:
            usual = FRAME_MAX - 8
    return frames


OTHERS = st.sampled_from(
    [raw_frame(8, 0, b"")] * 4
    + [method(3, C.Basic.Ack, delivery_tag=7)] * 4
    + [method(3, C.Queue.Declare, queue="q"), method(1, C.Queue.Declare, queue="q"), raw_frame(3, 3, b"stray")]
)


@st.composite
def streams(draw: st.DrawFn) -> bytes:
    """Publishes of up to two channels, interleaved by frames, with other frames between."""
    ways = [sum(draw(st.lists(messages(channel), max_size=3)), []) for channel in (1, 2)]
    found: list[bytes] = []
    while any(ways):
        way = draw(st.sampled_from([way for way in ways if way]))
        count = draw(st.integers(1, 8))
        found += way[:count]
        del way[:count]
        if draw(st.integers(0, 5)) == 0:
            found.append(draw(OTHERS))
    return b"".join(found) + method(0, C.Connection.Close, reply_code=200, reply_text="", class_id=0, method_id=0)


READS = st.lists(st.tuples(st.integers(0, 60_000) | st.integers(0, 300), st.booleans()), min_size=1, max_size=60)


#: A large body whose properties cannot be decoded: it is known when the body is whole, and nobody has it then.
WRONG_AND_WHOLE = b"".join(
    [
        method(2, C.Basic.Publish, exchange="", routing_key="q"),
        raw_frame(2, 2, (60).to_bytes(2) + bytes(2) + LARGE_MIN.to_bytes(8) + b"\x20\x00"),
        *(raw_frame(3, 2, bytes(payload)) for payload in (19_992, LARGE_MIN - 19_992)),
    ]
)


@settings(max_examples=150, deadline=None)
@example(stream=WRONG_AND_WHOLE, reads=[(0, False)], incomplete_max=1 << 62, message_size_max=1 << 62)
@given(
    stream=streams(),
    reads=READS,
    incomplete_max=st.sampled_from([1 << 62] * 3 + [60_000, 100_000]),
    message_size_max=st.sampled_from([1 << 62] * 3 + [60_000]),
)
def test_as_frame_by_frame(
    stream: bytes, reads: list[tuple[int, bool]], incomplete_max: int, message_size_max: int
) -> None:
    """However the stream is cut into reads, and however they are made: the same events, errors and counts."""
    fast, careful = reader(incomplete_max, message_size_max), careful_reader(incomplete_max, message_size_max)
    position = 0
    while position < len(stream):
        for size, directly in reads:
            read = stream[position : position + size + (len(reads) == 1)]
            position += len(read)
            give(fast, read, directly)
            give(careful, read, directly)
            assert list(seen(fast)) == list(seen(careful))
            assert fast.incomplete.octets == careful.incomplete.octets
        reads = [(60_000, True)]
    unfinished = [channel.assembly for channel in fast.channels.values() if channel.assembly is not None]
    assert fast.incomplete.reserved == sum(one.large.capacity for one in unfinished if one.large is not None)
    assert fast.incomplete.octets == sum(one.octets for one in unfinished)


@pytest.mark.parametrize("payload", [FRAME_MAX - 8, 1500])
@pytest.mark.parametrize("directly", [True, False])
def test_byte_by_byte(payload: int, directly: bool) -> None:
    """A read for every octet of the last frames, and a message behind them."""
    stream = b"".join(frames_of(1, bytes(range(250)) * 160, payload)) * 2
    fast, careful = reader(), careful_reader(1 << 62, 1 << 62)
    careful.receive_bytes(stream)
    found: list[object] = []
    for read in [stream[:36_000], *(stream[at : at + 1] for at in range(36_000, len(stream)))]:
        give(fast, read, directly)
        found += seen(fast)
    assert found == list(seen(careful)) and len(found) == 2


def frames_of(channel: int, body: bytes, payload: int) -> list[bytes]:
    """A publish."""
    header = (60).to_bytes(2) + bytes(2) + len(body).to_bytes(8) + bytes(2)
    return [
        method(channel, C.Basic.Publish, exchange="", routing_key="q"),
        raw_frame(2, channel, header),
        *(raw_frame(3, channel, body[at : at + payload]) for at in range(0, len(body), payload)),
    ]


# -- what it costs --------------------------------------------------------------------------------------------------


def test_no_copies() -> None:
    """While 8 MiB come, they are in memory once; and the content is what was read to, not a copy of it."""
    body = bytes(8 * MIB)
    stream = memoryview(b"".join(frames_of(1, body, 131064)))
    connection = reader(frame_max=131072)
    tracemalloc.start()
    try:
        connection.receive_bytes(bytes(stream[:70_000]))
        assert list(connection.events()) == []
        at = 70_000
        while (direct := connection.incomplete.direct) is not None:
            room = direct.room
            assert 0 < len(room) <= STEP
            count = min(len(room), len(stream) - at)
            room[:count] = stream[at : at + count]
            direct.filled, at = direct.filled + count, at + count
            del room
            connection.receive_bytes(b"")
            events = list(connection.events())
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert at == len(stream) and peak < len(body) + MIB
    assert isinstance(events[0], PublishReceived) and type(events[0].contents[0]) is bytes
    assert events[0].contents[0] == bytes(stream)[-len(events[0].contents[0]) :]


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the system does not say how much memory is resident")
def test_what_is_announced_takes_no_memory() -> None:
    """200 connections with a body of 64 MiB announced on each of three channels, and one octet of each sent."""
    connections = [reader(256 * MIB, frame_max=131072) for _ in range(200)]
    before = resident()
    for connection in connections:
        for number in (1, 2, 3):
            start = b"".join(frames_of(number, b"", 1)[:1])
            header = (60).to_bytes(2) + bytes(2) + (64 * MIB).to_bytes(8) + bytes(2)
            body = bytes((3, 0, number)) + (131064).to_bytes(4) + b"x"
            connection.receive_bytes(start + raw_frame(2, number, header) + (body if number == 3 else b""))
            assert list(connection.events()) == []
        assert connection.incomplete.reserved >= 64 * MIB
    assert resident() - before < 32 * MIB


def resident() -> int:
    """Octets."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def test_what_is_reserved_is_bounded() -> None:
    """By what may be incomplete on a connection: what goes beyond it is taken in parts, and arrives as well."""
    connection = reader(100_000)
    first, second = (frames_of(number, bytes([number]) * 60_000, 10_000) for number in (1, 2))
    for one, other in zip(first[:-1], second[:-1]):
        connection.receive_bytes(one + other)
        assert list(connection.events()) == []
        assert connection.incomplete.reserved < 100_000
        if connection.incomplete.octets >= 80_000:
            break
    large = [channel.assembly.large for channel in connection.channels.values() if channel.assembly is not None]
    assert [one is not None for one in large] == [True, False]


def test_a_channel_that_is_closed_in_the_middle_of_a_frame() -> None:
    """Its buffer is free, and what follows the frame that was on its way is read."""
    connection = reader()
    frames = frames_of(1, bytes(50_000), 10_000)
    stream = b"".join(frames)
    connection.receive_bytes(stream[:15_000])
    assert list(connection.events()) == [] and connection.incomplete.direct is not None
    connection.drop_content(connection.channels[1])
    del connection.channels[1]
    assert (connection.incomplete.direct, connection.incomplete.reserved, connection.incomplete.octets) == (None, 0, 0)
    connection.receive_bytes(stream[15_000 : sum(map(len, frames[:4]))])
    with pytest.raises(MethodFrameExpected):  # the frame that was on its way, as a whole
        list(connection.events())


@pytest.mark.parametrize("incomplete_max, is_excess", [(39_999, True), (40_000, False)])
@pytest.mark.parametrize("make", [reader, lambda most: careful_reader(most, 1 << 62)])
def test_a_body_may_be_incomplete_up_to_the_maximum(
    incomplete_max: int, is_excess: bool, make: Callable[[int], Connection]
) -> None:
    """Its last frame does not count: with that it is whole. In one read, and in two that end within a frame."""
    stream = b"".join(frames_of(1, bytes(50_000), 10_000))
    for cut in (len(stream), 45_000, 20_000):
        connection = make(incomplete_max)
        found: list[object] = []
        for read in (stream[:cut], stream[cut:]):
            give(connection, read, directly=True)
            found += seen(connection)
        assert [isinstance(one, tuple) and one[0] is IncompleteTooLarge for one in found] == [is_excess]


def test_small_frames_and_large_ones_stay_in_order() -> None:
    """However a client cuts a body: small payloads are joined, and large ones stay as they are."""
    connection = reader()
    payloads = [b"a" * 10, b"b" * 2_000, b"c" * 10, b"d" * 20, b"e" * 3_000, b"f"]
    start = frames_of(1, b"", 1)[0]
    header = (60).to_bytes(2) + bytes(2) + sum(map(len, payloads)).to_bytes(8) + bytes(2)
    connection.receive_bytes(start + raw_frame(2, 1, header) + b"".join(raw_frame(3, 1, one) for one in payloads))
    (event,) = connection.events()
    assert isinstance(event, PublishReceived)
    assert connection.channels[1].framing.split(event.contents[0])[1] == b"".join(payloads)


@pytest.mark.parametrize("cut", [1_000, 15_000, 1 << 20])
def test_large_bodies_of_two_channels_that_come_by_turns_stay_apart(cut: int) -> None:
    """Frame by frame, in reads that end anywhere."""
    connection = reader()
    bodies = {1: b"a" * 50_000, 2: b"b" * 50_000}
    ways = [frames_of(channel, body, 10_000) for channel, body in bodies.items()]
    stream = b"".join(frame for pair in zip(*ways) for frame in pair)
    found: dict[int, bytes] = {}
    for start in range(0, len(stream), cut):
        give(connection, stream[start : start + cut], directly=True)
        for event in connection.events():
            assert isinstance(event, PublishReceived)
            (content,) = event.contents
            found[event.channel.number] = connection.channels[event.channel.number].framing.split(content)[1]
    assert found == bodies
