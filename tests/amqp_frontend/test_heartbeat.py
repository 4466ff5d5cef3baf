"""Heartbeats, whatever is said or not: who is given up, and how long the broker is silent. Behaviour page 1.8."""

from __future__ import annotations

from random import Random

import pytest
from effort import examples
from pair import Pair
from pamqp import commands as C
from pamqp import frame, heartbeat
from peer import is_heartbeat, method, publish
from stand_in_journal import StandInJournal

HEARTBEAT = frame.marshal(heartbeat.Heartbeat(), 0)
MORE = method(1, C.Basic.Qos, prefetch_count=1)


@pytest.mark.parametrize("seed", range(examples(24)))
def test_a_peer_is_given_up_after_two_to_three_intervals_and_the_broker_is_never_silent(seed: int) -> None:
    """Not before two intervals without an octet, at the latest after three, in which the peer hears every half of one.

    Octets are heartbeats, parts of them, or anything else; a peer that is not read, because its publishes wait for an
    alarm, cannot be heard, and stays.
    """
    chance = Random(seed)
    interval_s = chance.choice((1, 2, 10))
    pair = Pair()
    other = pair.open(1)
    other.call(1, C.Queue.Declare, queue="q")
    has_channel = chance.random() < 0.7
    peer = pair.open(int(has_channel), heartbeat_s=interval_s)
    if has_channel:
        peer.call(1, C.Basic.Consume, queue="q", consumer_tag="c", no_ack=True)
    rest, silent_s, unheard_s, step_s = b"", 0.0, 0.0, interval_s / 20
    is_reading_paused, beats = False, 0
    heard = len(peer.incoming.octets)
    for step in range(600):
        pair.advance(1000 * step_s)
        silent_s += step_s
        unheard_s += step_s
        if len(peer.incoming.octets) > heard:
            heard, unheard_s = len(peer.incoming.octets), 0.0
        if peer.is_closed:
            assert not is_reading_paused, "it could not be heard"
            assert silent_s > 2 * interval_s, f"given up after {silent_s} s"
            return
        assert silent_s <= 3 * interval_s + step_s or is_reading_paused, "never given up"
        assert unheard_s <= interval_s / 2 + step_s / 2, "the broker is silent"
        beats += sum(map(is_heartbeat, peer.take()))
        assert beats <= 2 * (step + 1) * step_s / interval_s + 1, "more of them than anybody asked for"
        client = peer.session.login.client
        assert client is not None and client.liveness is not None
        alive = client.liveness()
        assert alive or silent_s > interval_s, "counts as gone though it has just been heard"
        assert not alive or is_reading_paused or silent_s <= 2 * interval_s + step_s, "counts as alive"
        if chance.random() < 0.02:
            other.send(publish(1, "q", b"x"))
        if has_channel and chance.random() < 0.004 and not is_reading_paused:
            pair.broker.flow.raise_alarm("test")
            peer.send(rest, publish(1, "q", b"held"))
            rest, silent_s, is_reading_paused = b"", 0.0, True
        elif is_reading_paused and chance.random() < 0.02:
            pair.broker.flow.end_alarm()
            pair.settle()
            silent_s, is_reading_paused = 0.0, False
        elif not is_reading_paused and chance.random() < (0.04 if rest else 0.03):
            octets = rest or chance.choice((HEARTBEAT, HEARTBEAT, MORE if has_channel else HEARTBEAT))
            size = chance.choice((1, len(octets)))
            peer.send(octets[:size])
            rest, silent_s = octets[size:], 0.0


def test_a_peer_that_is_not_read_because_the_journal_is_behind_stays() -> None:
    """Its heartbeats are not seen as long as its publishes wait."""
    pair = Pair()
    peer = pair.open(1, heartbeat_s=10)
    peer.call(1, C.Queue.Declare, queue="q", durable=True)
    pair.broker.context.storage.durability = StandInJournal(is_congested=True)
    peer.send(publish(1, "q", b"x", delivery_mode=2))
    for _ in range(60):
        pair.advance(1000)
    assert not peer.is_closed


@pytest.mark.parametrize("end", ["close", "error", "login"])
def test_no_heartbeat_is_left_behind(end: str) -> None:
    """Neither ticks nor sends when the connection is over; nor before it was tuned."""
    pair = Pair()
    if end == "login":
        peer = pair.open(None)
    else:
        peer = pair.open(1, heartbeat_s=10)
        if end == "close":
            peer.send(method(0, C.Connection.Close, reply_code=200, class_id=0, method_id=0))
        else:
            peer.send(method(0, C.Basic.Qos, prefetch_count=1))
        peer.take()
        peer.hang_up()
    pair.advance(9000)
    peer.expect_nothing()
    assert end == "login" or pair.broker.next_deadline_ns() is None


def test_peers_with_one_interval_are_looked_at_together() -> None:
    """Of a hundred that log in one millisecond after the other, so that idle peers cost few wake-ups."""
    pair = Pair()
    for _ in range(100):
        pair.open(0, heartbeat_s=60)
        pair.advance(1)
    looks = set()
    while (due_ns := pair.broker.next_deadline_ns()) is not None and len(looks) < 3 and due_ns < 31_000_000_000:
        looks.add(due_ns)
        pair.advance((due_ns - pair.clock.monotonic_ns()) / 1e6)
    assert 1 <= len(looks) <= 2


@pytest.mark.parametrize(("interval_s", "looks_max"), [(1, 10), (10, 13), (60, 75)])
def test_peers_that_came_at_any_time_come_to_be_looked_at_together(interval_s: int, looks_max: int) -> None:
    """Of a hundred that log in at any time of half an interval, so that idle peers cost few wake-ups."""
    pair = Pair()
    half_ms = interval_s * 500
    for _ in range(100):
        pair.open(0, heartbeat_s=interval_s)
        pair.advance(half_ms / 100)
    pair.advance(half_ms)  # the first heartbeats leave exactly half an interval after what was sent before
    end_ns, looks = pair.clock.monotonic_ns() + half_ms * 1_000_000, 0
    while (due_ns := pair.broker.next_deadline_ns()) is not None and due_ns < end_ns:
        looks += 1
        pair.advance((due_ns - pair.clock.monotonic_ns()) / 1e6)
    assert looks <= looks_max + 1
