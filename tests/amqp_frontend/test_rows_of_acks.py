"""Single acks that come together are looked at together (runs.py)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pair import Pair
from pamqp import commands
from peer import method, publish

from leveret.amqp_frontend.wire.events import AcksReceived, ChannelMethod
from leveret.amqp_frontend.wire.layout import ACK_FRAME
from leveret.amqp_frontend.wire.peer_errors import PeerError
from leveret.amqp_frontend.wire.runs import ROW_AS_NUMBER_MAX


def _ack(tag: int, bits: int = 0, end: int = 206) -> bytes:
    return ACK_FRAME.pack(1, 1, 13, 60 << 16 | 80, tag, bits, end)


def _acked(data: bytes, cuts: Sequence[int]) -> list[tuple[str, object]]:
    """What a reader makes of acks that come in reads that end at these places: single tags, `multiple`s, the fault."""
    connection = Pair().open(1).session.connection
    found: list[tuple[str, object]] = []
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    try:
        for start, stop in zip(places, places[1:]):
            connection.receive_bytes(data[start:stop])
            for event in connection.events():
                if isinstance(event, AcksReceived):
                    found += [("ack", tag) for tag in event.tags] + [("up to", tag) for tag in event.up_to]
                elif isinstance(event, ChannelMethod) and isinstance(event.method, commands.Basic.Ack):
                    found.append(("up to" if event.method.multiple else "ack", event.method.delivery_tag))
                else:
                    found.append(("other", type(event)))
    except PeerError as error:
        found.append(("fault", type(error)))
    return found


#: A few single acks more than are looked at one by one.
ROW = b"".join(_ack(tag) for tag in (1, 2, 3, 7, 5, 2**64 - 1, 9, 10, 11, 12))


@pytest.mark.parametrize("flip", [1, 128])
def test_damage_to_any_octet(flip: int) -> None:
    """The same tags and the same fault as an octet at a time."""
    for place in range(len(ROW)):
        data = bytearray(ROW)
        data[place] ^= flip
        assert _acked(bytes(data), ()) == _acked(bytes(data), range(len(data))), place


@pytest.mark.parametrize("flip", [1, 128])
def test_damage_in_a_long_row(flip: int) -> None:
    """Long rows are looked at in another way: every octet of an ack in the midst of one."""
    row = b"".join(map(_ack, range(1, ROW_AS_NUMBER_MAX + 3)))
    for place in range(40 * ACK_FRAME.size, 41 * ACK_FRAME.size):
        data = bytearray(row)
        data[place] ^= flip
        assert _acked(bytes(data), ()) == _acked(bytes(data), range(len(data))), place


@given(
    acks=st.lists(st.tuples(st.integers(0, 2**64 - 1), st.sampled_from([0] * 20 + [1, 2])), min_size=8, max_size=40),
    cuts=st.lists(st.integers(0, 40 * 21), max_size=3),
)
def test_any_acks_in_any_reads(acks: list[tuple[int, int]], cuts: list[int]) -> None:
    """Those of many before, and unknown bits, among single ones."""
    data = b"".join(_ack(tag, bits) for tag, bits in acks)
    assert _acked(data, cuts) == _acked(data, range(len(data)))


@pytest.mark.parametrize("tags", [(4, 2), (4, 4), (4, 1, 5), (2, 4), (4, 0)])
def test_acks_of_many_that_do_not_rise_mean_the_same_in_one_read(tags: tuple[int, ...]) -> None:
    """What they settle, and the refusal of a tag that is settled: nothing stays out that the client has done with."""
    outcomes = []
    for is_one_read in (True, False):
        peer = Pair().open(1)
        peer.call(1, commands.Queue.Declare, queue="q")
        peer.send(method(1, commands.Basic.Consume, queue="q", consumer_tag="c"), publish(1, "q", b"x") * 5)
        peer.take()
        acks = [_ack(tag, 1) for tag in tags]
        peer.send(*([b"".join(acks)] if is_one_read else acks))
        outcomes.append(([one.frame.name for one in peer.take()], peer.pair.broker.statistics().unacked))
    assert outcomes[0] == outcomes[1]
