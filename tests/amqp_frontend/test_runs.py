"""A read that ends within a message: the message begins the run of the next read, and is no run of its own."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pair import Pair
from pamqp import commands
from peer import content, method, publish, raw_frame

from leveret.amqp_frontend.wire.events import PublishReceived

MESSAGES = [publish(1, "the.queue", b"%03d" % number, delivery_mode=2) for number in range(6)]
STREAM = b"".join(MESSAGES)
ENDS = [sum(map(len, MESSAGES[: at + 1])) for at in range(len(MESSAGES))]


def runs(*reads: bytes) -> list[int]:
    """How many messages each publish event has."""
    connection = Pair().open(2).session.connection
    found = []
    for read in reads:
        connection.receive_bytes(read)
        found += [len(event.contents) for event in connection.events() if isinstance(event, PublishReceived)]
    return found


@given(st.integers(0, len(STREAM)))
def test_a_cut(place: int) -> None:
    """All of the first read that is whole is one run, the rest another."""
    whole = sum(end <= place for end in ENDS)
    if whole:
        expected = [count for count in (whole, len(MESSAGES) - whole) if count]
    elif place >= ENDS[0] - len(content(1, b"000", delivery_mode=2)):
        expected = [1, len(MESSAGES) - 1]  # the first message of a connection is looked at as it comes
    else:
        expected = [len(MESSAGES)]
    assert runs(STREAM[:place], STREAM[place:]) == expected


def own_id(number: int, size: int = 3) -> bytes:
    """A message with an id of its own."""
    return publish(1, "the.queue", b"x" * size, message_id=f"{number:06}", headers={"trace": f"{number * 7:06}"})


@pytest.mark.parametrize("sizes", [[3] * 40, [1 + number * 13 % 50 for number in range(40)]], ids=["same", "other"])
def test_ids_and_sizes_do_not_end_a_run(sizes: list[int]) -> None:
    """Messages with ids of their own, with bodies of one size or not."""
    assert runs(b"".join(map(own_id, range(40), sizes))) == [40]


def test_counters_do_not_end_a_run() -> None:
    """Ids that become longer, as numbers do."""
    assert runs(b"".join(publish(1, "q", b"x", message_id=str(number)) for number in range(95, 1_005))) == [910]


@pytest.mark.parametrize("place", range(20, len(own_id(1)), 7))
def test_a_cut_within_a_message_with_an_id_of_its_own(place: int) -> None:
    """It waits for the next read, as one that is like the last does."""
    connection = Pair().open(1).session.connection
    connection.receive_bytes(b"".join(map(own_id, range(20))) + own_id(20)[:place])
    assert sum(len(event.contents) for event in connection.events() if isinstance(event, PublishReceived)) == 20
    assert connection.channels[1].assembly is None
    connection.receive_bytes(own_id(20)[place:] + own_id(21))
    assert [len(event.contents) for event in connection.events() if isinstance(event, PublishReceived)] == [2]


METHOD = method(1, commands.Basic.Publish, exchange="", routing_key="the.queue")
HEARTBEAT = raw_frame(8, 0, b"")
WITH_BODY = content(1, b"x" * 50, delivery_mode=2)


@pytest.mark.parametrize(
    "rest, is_between",
    [
        (METHOD + HEARTBEAT, True),
        (METHOD + WITH_BODY[:23] + HEARTBEAT, True),
        (METHOD + content(1, b"", delivery_mode=2), False),
        (METHOD + content(1, b"x", priority=7)[:-3], True),  # properties that were not seen before
        (METHOD + WITH_BODY[:-3], False),  # they were, and nothing is wrong: it can wait
    ],
)
def test_what_is_looked_at_as_it_comes(rest: bytes, is_between: bool) -> None:
    """Anything but the beginning of a message like the last does not wait for the next read."""
    connection = Pair().open(1).session.connection
    connection.receive_bytes(MESSAGES[0] + rest)
    list(connection.events())
    assert (connection.channels[1].assembly is not None) == is_between


@pytest.mark.parametrize(
    "wrong", [WITH_BODY[:3] + b"\xff" * 20, WITH_BODY[:3] + bytes(5), content(2, b"xx")[:-3], METHOD]
)
def test_what_is_wrong_is_told_at_once(wrong: bytes) -> None:
    """Behind a good message in the same read."""
    peer = Pair().open(2)
    peer.call(1, commands.Queue.Declare, queue="the.queue")
    peer.send(MESSAGES[0] + METHOD + wrong)
    assert isinstance(peer.take()[-1].frame, commands.Connection.Close)


def test_what_stands_before_undecodable_properties_is_published() -> None:
    """In the same read, with the same arguments: the connection ends at the message that is wrong, not before."""
    peer = Pair().open(1)
    peer.call(1, commands.Queue.Declare, queue="the.queue")
    peer.send(MESSAGES[0] + MESSAGES[1] + METHOD + raw_frame(2, 1, WITH_BODY[7:19] + b"\x20\x00") + WITH_BODY[-58:])
    assert isinstance(peer.take()[-1].frame, commands.Connection.Close)
    assert peer.pair.broker.virtual_hosts["/"].queues["the.queue"].ready_count == 2


@pytest.mark.parametrize("message", [0, 1, 4])
@pytest.mark.parametrize("frame", [0, 1, 2])
def test_each_frame_of_a_run_has_its_end(message: int, frame: int) -> None:
    """Of the first message, which is read with all checks, and of those that are compared with it."""
    octets = bytearray(STREAM)
    at = ENDS[message - 1] if message else 0
    for _ in range(frame + 1):
        at += int.from_bytes(octets[at + 3 : at + 7], "big") + 8
    octets[at - 1] ^= 0xFF
    peer = Pair().open(2)
    peer.send(bytes(octets))
    assert peer.expect(commands.Connection.Close).reply_code == 501
