"""A channel that the broker ends by itself, in the middle of whatever its client was doing. Behaviour page 2.16."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from pair import Pair
from pamqp import commands as C
from peer import OPTIONS, Cut, Peer, handshake, method, publish, whole

from leveret.amqp_frontend.session.handling import handle_bytes
from leveret.engine import BrokerOptions

SIZE = 80_000
MESSAGE = publish(2, "q", bytes(SIZE), body_max=4000)
#: Where in a message the channel ends: after the method, within the header, and within the body.
PARTS = {"method": 30, "header": 45, "first frame": 2000, "half": SIZE // 2, "last octet": len(MESSAGE) - 1}


def in_pieces(data: bytes) -> Iterable[bytes]:
    """Each read has the end of one frame and the beginning of another."""
    return (data[start : start + 3001] for start in range(0, len(data), 3001))


class Bench(Pair):
    """Channels 1 to 3 of one peer; a delivery on channel 2 is not acknowledged in time."""

    def __init__(self, cut: Cut = whole) -> None:
        options = replace(OPTIONS, message_size_max=100_000, incomplete_max=100_000)
        super().__init__(options, broker={"options": BrokerOptions(consumer_timeout_ms=10_000)})
        self.peer: Peer = self.open(3)
        self.peer.call(1, C.Queue.Declare, queue="q")
        self.peer.call(1, C.Queue.Declare, queue="slow")
        self.peer.cut = cut

    def fall_behind(self) -> None:
        """From now on the channel has fifteen seconds at most."""
        self.peer.send(method(2, C.Basic.Consume, queue="slow", consumer_tag="c"))
        self.peer.send(publish(1, "slow", b"x"))
        self.peer.take()

    def run_out(self) -> None:
        """It is the slow channel, and no other one, that ends."""
        self.advance(15000)
        (closed,) = self.peer.take()
        assert (closed.channel, closed.frame.name, closed.frame.reply_code) == (2, "Channel.Close", 406)

    def count(self) -> int:
        """Messages in q; the other channels work."""
        (answers,) = {
            self.peer.call(number, C.Queue.Declare, queue="q", passive=True).message_count for number in (1, 3)
        }
        return int(answers)


@pytest.mark.parametrize("cut", [whole, in_pieces])
@pytest.mark.parametrize("part", PARTS)
def test_the_half_of_a_message_goes_with_its_channel(part: str, cut: Cut) -> None:
    """Its rest is ignored, and what came of it counts no more: the next channels may send messages as large."""
    bench = Bench(cut)
    octets = PARTS[part]
    for number in range(1, 4):
        bench.fall_behind()
        bench.peer.send(MESSAGE[:octets])
        bench.run_out()
        bench.peer.send(MESSAGE[octets:])
        assert bench.count() == number - 1
        bench.peer.send(method(2, C.Channel.CloseOk), method(2, C.Channel.Open))
        bench.peer.send(MESSAGE, method(2, C.Queue.Purge, queue="slow"))
        assert [one.frame.name for one in bench.peer.take()] == ["Channel.OpenOk", "Queue.PurgeOk"]
        assert bench.count() == number
    assert bench.peer.session.connection.incomplete.octets == 0


def test_the_rest_of_a_long_run_goes_with_its_channel() -> None:
    """What was published before stays; nothing comes after the close."""
    bench = Bench()
    bench.peer.call(1, C.Exchange.Declare, exchange="f", exchange_type="fanout")
    for at in range(100):
        bench.peer.call(1, C.Queue.Declare, queue=f"q{at}")
        bench.peer.call(1, C.Queue.Bind, queue=f"q{at}", exchange="f")
    bench.fall_behind()
    handle_bytes(bench.peer.session, publish(2, "", b"x", exchange="f") * 400)
    assert bench.peer.session.backlog.has_more
    for _ in range(15):
        bench.clock.advance_ns(1_000_000_000)
        bench.broker.advance()
        bench.end_turn()
    bench.peer._flush()
    queues = bench.broker.virtual_hosts["/"].queues
    before = queues["q7"].ready_count
    assert 0 < before < 400
    bench.settle()
    closed: Any = bench.peer.expect(C.Channel.Close, channel=2)
    assert closed.reply_code == 406
    assert {queues[f"q{at}"].ready_count for at in range(100)} == {before}


def test_channels_that_ended_are_not_counted() -> None:
    """As many at a time as were agreed, however many ended by an error before."""
    pair = Pair(replace(OPTIONS, channel_max=3))
    peer = pair.open(None)
    peer.send(*handshake(channel_max=3))
    peer.take()
    for number in range(1, 20):
        assert isinstance(peer.call(number, C.Channel.Open), C.Channel.OpenOk)
        closed = peer.call(number, C.Basic.Ack, delivery_tag=7)
        assert isinstance(closed, C.Channel.Close)
        peer.send(method(number, C.Channel.CloseOk))
    peer.open_channels(3)
    refused = peer.call(4, C.Channel.Open)
    assert isinstance(refused, C.Connection.Close)
