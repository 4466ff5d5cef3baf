"""Publishes to an exchange that chooses queues message by message; their queue refuses what has no room."""

from __future__ import annotations

from random import Random

from pair import Pair
from pamqp import commands as C
from peer import Peer, method, publish

from leveret.settings import SettingsRepository, entry

#: Room of the queue, and messages of one read.
ROOM, COUNT = 2, 5


def publisher(*modes: bytes) -> tuple[Pair, Peer]:
    """A peer that has said these on channel 1, with a queue that a headers exchange routes to."""
    full = entry("full", max_size_messages=ROOM, address_full_policy="BLOCK", send_fail_if_no_space=True)
    pair = Pair(broker={"settings": SettingsRepository([full])})
    peer = pair.open(2)
    peer.call(1, C.Exchange.Declare, exchange="h", exchange_type="headers")
    peer.call(1, C.Queue.Declare, queue="full")
    peer.call(1, C.Queue.Bind, queue="full", exchange="h", arguments={"to": "full"})
    peer.send(b"".join(modes))
    peer.take()
    return pair, peer


def burst(*, mandatory: bool = False) -> bytes:
    """All in one read."""
    return b"".join(
        publish(1, "", b"%d" % at, exchange="h", headers={"to": "full"}, mandatory=mandatory) for at in range(COUNT)
    )


def test_each_is_confirmed_once() -> None:
    pair, peer = publisher(method(1, C.Confirm.Select))
    peer.send(burst())
    pair.settle()
    settled: dict[int, str] = {}
    for one in peer.take():
        first = max(settled, default=0) + 1 if one.frame.multiple else one.frame.delivery_tag
        for tag in range(first, one.frame.delivery_tag + 1):
            assert tag not in settled
            settled[tag] = one.frame.name
            assert one.frame.name == "Basic.Ack" or one.frame.requeue  # as RabbitMQ sends it
    assert settled == {**dict.fromkeys((1, 2), "Basic.Ack"), **dict.fromkeys((3, 4, 5), "Basic.Nack")}
    peer.send(publish(1, "elsewhere", b"x"))
    pair.settle()
    assert [one.frame.delivery_tag for one in peer.take()] == [COUNT + 1]


def test_each_is_returned_once() -> None:
    pair, peer = publisher()
    peer.send(burst(mandatory=True))
    pair.settle()
    assert [one.body for one in peer.take()] == [b"2", b"3", b"4"]
    assert pair.broker.statistics().counters["dropped"] == COUNT - ROOM


def test_without_either_the_channel_ends_and_all_behind_is_dropped() -> None:
    pair, peer = publisher()
    peer.send(burst())
    pair.settle()
    (close,) = peer.take()
    assert close.frame.name == "Channel.Close" and close.channel == 1
    assert peer.call(2, C.Queue.Declare, queue="full", passive=True).message_count == ROOM
    assert pair.broker.statistics().counters["dropped"] == COUNT - ROOM


def test_a_refusal_concerns_no_message_for_another_queue() -> None:
    """Of one read, some are for a full queue and some for one that has room: these are confirmed."""
    pair, peer = publisher(method(1, C.Confirm.Select))
    pair.broker.context.chance = Random(1).random
    peer.call(1, C.Exchange.Declare, exchange="r", exchange_type="x-random")
    peer.call(1, C.Queue.Declare, queue="free")
    for queue in ("full", "free"):
        peer.call(1, C.Queue.Bind, queue=queue, exchange="r")
    peer.send(b"".join(publish(1, "", b"x", exchange="r") for _ in range(60)))
    pair.settle()
    queues = pair.broker.virtual_hosts["/"].queues
    assert queues["full"].ready_count == ROOM
    assert queues["free"].ready_count > COUNT
    assert pair.broker.statistics().counters["dropped"] == 60 - ROOM - queues["free"].ready_count
