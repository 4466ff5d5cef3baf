"""Leased queues, in virtual time: who gets what, and when. Source: queues page A.4, A.9, G.A."""

from __future__ import annotations

from typing import Any

import pytest
from desk import Refused
from leased_desk import BARRIER, SYNC, LeasedDesk, crowd, numbered, one

# -- backlog ----------------------------------------------------------------------------------------------------------


def test_a10() -> None:
    """Queues page, row A10: without basic.qos one message is out."""
    desk = LeasedDesk()
    desk.declare("q", x_queue_type="amps")
    desk.subscribe()
    desk.publish(*"12345")
    got = one(desk)
    desk.ack(got)
    assert desk.bodies() == "2"
    assert desk.counts() == (3, 1, 0)


@pytest.mark.parametrize(
    ("limit", "qos", "requested", "outstanding"),
    [(10, 3, None, 3), (10, None, 50, 10), (10, 0, None, 10), (10, None, None, 1), (10, 7, 2, 2), (10, 7, 0, 0)],
)
def test_a11_a13(limit: int, qos: int | None, requested: int | None, outstanding: int) -> None:
    """Queues page, rows A11 and A13: the smaller one counts; qos(0) asks for no limit (conflict K6)."""
    desk = LeasedDesk()
    desk.queue(x_max_backlog_per_consumer=limit)
    more = {} if requested is None else {"x-max-backlog": requested}
    desk.subscribe(qos=qos, **more)
    desk.publish(*("m" for _ in range(20)))
    assert len(desk.taken()) == outstanding


def test_a14(desk: LeasedDesk) -> None:
    """Queues page, row A14: no more than four are out of the queue as a whole."""
    desk.queue(x_max_backlog_per_consumer=10, x_max_backlog_total=4)
    desk.subscribe(qos=10)
    second = desk.other().subscribe(qos=10)
    desk.publish(*("m" for _ in range(20)))
    assert desk.counts() == (16, 4, 0)
    got = desk.taken()
    desk.ack(got[0])
    assert desk.counts() == (15, 4, 0)
    assert len(got) + len(desk.taken()) + len(second.taken()) == 5


def test_a15(desk: LeasedDesk) -> None:
    """Queues page, row A15: a full backlog leaves nothing for a get."""
    desk.queue(x_max_backlog_total=1)
    desk.publish("a", "b")
    got = desk.must_get()
    assert desk.get() is None
    desk.ack(got)
    assert desk.must_get().body == "b"


@pytest.mark.parametrize(
    "arguments",
    [
        {"x-max-backlog": -1}, {"x-max-backlog": "many"}, {"x-browse": 1}, {"x-top-n": 5}, {"x-priority": "high"},
        {"x-browse": True, "x-top-n": -1}, {"x-replace": 1},
        {"x-stream-offset": "first"}, {"x-lease-auto-renew": "yes"}, {"x-lease-auto-renew": True},
    ],
)  # fmt: skip
def test_refused_consumers(desk: LeasedDesk, arguments: dict[str, Any]) -> None:
    """What is wrong, and what is not there, is said (queues page A.2, A.7, A.8)."""
    desk.queue()
    with pytest.raises(Refused, match="406"):
        desk.subscribe(**arguments)
    assert desk._facts("q")["consumers"] == 0


# -- priorities of consumers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("fairness", ["fast", "round-robin", "proportional"])
@pytest.mark.parametrize("filters", [{}, {"x-filter": "1 = 1"}])
def test_consumers_of_high_priority_come_first(fairness: str, filters: dict[str, str]) -> None:
    """x-priority: as on other queues, those of the highest that have room; the model chooses among them."""
    desk = LeasedDesk()
    desk.queue(x_fairness=fairness)
    low = desk.other().subscribe(qos=10, **filters)
    high = [desk.other().subscribe(qos=2, **{"x-priority": 5}, **filters) for _ in range(2)]
    desk.publish(*"12345")
    assert [consumer.bodies() for consumer in (low, *high)] == (
        ["5", "12", "34"] if fairness == "fast" else ["5", "13", "24"])  # fmt: skip
    high[0].drop()
    assert low.bodies() == ("12" if fairness == "fast" else "13")
    high[1].drop()
    desk.publish("6")
    assert low.bodies() == ("346" if fairness == "fast" else "246")


# -- fairness ---------------------------------------------------------------------------------------------------------


def test_a45(desk: LeasedDesk) -> None:
    """Queues page, row A45: the first one, as long as it can have more."""
    desk.queue(x_fairness="fast")
    first, second = crowd(desk, 5, 5)
    desk.publish(*"12345")
    assert (first.bodies(), second.bodies()) == ("12345", "")
    desk.publish("6")
    assert (first.bodies(), second.bodies()) == ("", "6")


def test_a46(desk: LeasedDesk) -> None:
    """Queues page, row A46: one after the other, also of a run that waits."""
    desk.queue(x_fairness="round-robin")
    consumers = crowd(desk, 10, 10, 10)
    desk.publish(*"123456")
    assert [consumer.bodies() for consumer in consumers] == ["14", "25", "36"]


def test_round_robin_skips_who_cannot(desk: LeasedDesk) -> None:
    """A full backlog blocks nobody else; the turn goes on where it was (queues page A.4)."""
    desk.queue(x_fairness="round-robin")
    desk.publish(*"1234567")
    consumers = crowd(desk, 1, 2, 10)
    assert [consumer.bodies() for consumer in consumers][0] == "1"
    assert desk.counts() == (0, 7, 0)


@pytest.mark.parametrize("leaves", [False, True])
def test_round_robin_goes_on_behind_the_last_one(desk: LeasedDesk, leaves: bool) -> None:
    """Whoever joins there is next, though another one stood there, or looked through the queue, meanwhile (A.4)."""
    desk.queue(x_fairness="round-robin")
    first = desk.other().subscribe(qos=5)
    if leaves:
        second = desk.other().subscribe(qos=5)
    desk.publish("1")
    if leaves:
        second.cancel()
    else:
        desk.other().subscribe(x_browse=True)
    third = desk.other().subscribe(qos=5)
    desk.publish("2", "3")
    assert (first.bodies(), third.bodies()) == ("13", "2")


def test_a47(desk: LeasedDesk) -> None:
    """Queues page, row A47: 2 of 4, 2 of 3, 3 of 10; the third has the smallest share."""
    desk.queue(x_fairness="proportional")
    consumers: list[LeasedDesk] = []
    for limit, count in ((4, 2), (3, 2), (10, 3)):
        consumers.append(desk.other().subscribe(qos=limit))
        desk.publish(*("x" for _ in range(count)))
    assert [consumer.bodies() for consumer in consumers] == ["xx", "xx", "xxx"]
    desk.publish("y")
    assert [consumer.bodies() for consumer in consumers] == ["", "", "y"]


def test_proportional_shares(desk: LeasedDesk) -> None:
    """The smallest used/limit, of equal ones the first that subscribed (queues page A.4)."""
    desk.queue()
    consumers = crowd(desk, 2, 4, 1)
    desk.publish(*"1234567")
    # Used shares before each: 0 0 0 -> 1st; 1/2 0 0 -> 2nd; 1/2 1/4 0 -> 3rd; 1/2 1/4 1 -> 2nd; 1/2 2/4 1 -> 1st.
    assert [consumer.bodies() for consumer in consumers] == ["15", "2467", "3"]


# -- priorities -------------------------------------------------------------------------------------------------------


def test_a53(desk: LeasedDesk) -> None:
    """Queues page, row A53: the product of two fields."""
    desk.queue(x_priority_expr="/price * /qty")
    desk.publish('{"price": 5, "qty": 2}', '{"price": 10, "qty": 3}', '{"price": 20, "qty": 1}')
    assert [desk.must_get().body[-3:-1] for _ in range(3)] == [" 3", " 1", " 2"]


def test_priority_values(desk: LeasedDesk) -> None:
    """Unsigned; what is no number comes last, ties by arrival; what comes back has its place (queues page A.3)."""
    desk.queue(x_priority_expr="/p")
    desk.publish(
        '{"p": null}', '{"p": -3}', '{"p": "x"}', "none", '{"p": 1.9}', '{"p": 1}', '{"p": "7"}', '{"p": 1e30}'
    )
    got = [desk.must_get() for _ in range(8)]
    expected = ['{"p": 1e30}', '{"p": -3}', '{"p": "7"}', '{"p": 1.9}', '{"p": 1}', '{"p": null}', '{"p": "x"}', "none"]
    assert [one.body for one in got] == expected
    for back in (got[7], got[2], got[5]):
        desk.nack(back)
    assert [desk.must_get().body for _ in range(3)] == ['{"p": "7"}', '{"p": null}', "none"]


def test_negative_priorities(desk: LeasedDesk) -> None:
    """An unsigned long: -1 is the highest, as a conversion in C has it; what no long can be is held to its bounds."""
    desk.queue(x_priority_expr="/p")
    expected = ['{"p": 1e300}', '{"p": -1}', '{"p": "-2.5"}', '{"p": -9e18}', '{"p": -1e300}', '{"p": 9e18}',
                '{"p": -0.5}']  # fmt: skip
    desk.publish(*reversed(expected[1:]), expected[0])
    got = [desk.must_get().body for _ in expected]
    assert sorted(got[:2]) == sorted(expected[:2]) and got[2:] == expected[2:]


# -- barriers ---------------------------------------------------------------------------------------------------------


def test_a55_a58(desk: LeasedDesk) -> None:
    """Queues page, rows A55, A58: it waits for what stands before it, goes to all, and needs no acknowledgement."""
    desk.queue(**BARRIER)
    first, second = crowd(desk, 1, 1)
    desk.publish("a", "b", SYNC, "c")
    (a,), (b,) = first.taken(), second.taken()
    first.ack(a)
    assert first.taken() == [] and second.taken() == []
    second.ack(b)
    one_sees, other_sees = first.taken(), second.taken()
    assert [got.body for got in one_sees] == [SYNC, "c"] and [got.body for got in other_sees] == [SYNC]
    assert one_sees[0].headers["x-barrier"] is True and "x-lease-until" not in one_sees[0].headers
    second.ack(other_sees[0])
    first.ack(one_sees[0])
    assert desk.counts() == (0, 1, 0)
    with pytest.raises(Refused, match="406"):
        first.ack(one_sees[0])


def test_a59(desk: LeasedDesk) -> None:
    """Queues page, row A59: what comes back is waited for again."""
    desk.queue(**BARRIER)
    desk.subscribe(qos=10)
    desk.publish("a", SYNC)
    got = one(desk)
    desk.nack(got)
    again = one(desk)
    assert again.body == "a" and again.redelivered
    desk.ack(again)
    assert desk.bodies() == SYNC


def test_barriers_ignore_backlogs(desk: LeasedDesk) -> None:
    """x-max-backlog = 0: only barriers arrive; without acknowledgements, too (queues page A.4, A.9)."""
    desk.queue(**BARRIER)
    watcher = desk.other().subscribe(x_max_backlog=0)
    silent = desk.other().subscribe(no_ack=True)
    desk.publish("a", SYNC, SYNC, "b")
    assert watcher.bodies() == SYNC + SYNC
    assert silent.bodies() == "a" + SYNC + SYNC + "b"


def test_barriers_wait_for_somebody(desk: LeasedDesk) -> None:
    """What stands before it is out: it is held; it may expire and so open the gate (queues page A.9)."""
    desk.queue(x_message_ttl=1000, **BARRIER)
    desk.advance_ms(500)
    desk.publish("a", SYNC)
    desk.must_get()
    desk.advance_ms(500)
    desk.publish("b")
    assert desk.get() is None and desk.counts() == (2, 1, 0)
    desk.advance_ms(500)
    assert desk.must_get().body == "b"


def test_a_get_has_a_barrier_that_nobody_subscribes_to(desk: LeasedDesk) -> None:
    """Once all before it is gone; given back it is a barrier again, and whoever subscribes has it then."""
    desk.queue(**BARRIER)
    desk.publish("a", SYNC, "b")
    first = desk.must_get()
    assert desk.get() is None
    desk.ack(first)
    barrier = desk.must_get()
    assert barrier.body == SYNC and barrier.headers["x-barrier"] is True
    desk.nack(barrier)
    assert desk.counts() == (2, 0, 0)
    again = desk.must_get()
    assert again.body == SYNC and again.redelivered
    desk.nack(again)
    desk.subscribe(qos=5)
    assert desk.bodies() == SYNC + "b" and desk.counts() == (0, 1, 0)


@pytest.mark.parametrize("fairness", ["fast", "round-robin", "proportional"])
def test_a49(desk: LeasedDesk, fairness: str) -> None:
    """Queues page, row A49: at most once goes with every fairness."""
    desk.queue(x_semantics="at-most-once", x_fairness=fairness)
    first, second = crowd(desk, 2, 2)
    desk.publish("1", "2")
    assert (first.bodies(), second.bodies()) == (("12", "") if fairness == "fast" else ("1", "2"))
    assert desk.counts() == (0, 2, 0)


def test_barriers_wait_for_slots(desk: LeasedDesk) -> None:
    """At most once: earlier messages are gone when their slots are free (queues page A.9)."""
    desk.queue(x_semantics="at-most-once", **BARRIER)
    desk.subscribe(qos=5)
    desk.publish("a", SYNC)
    got = one(desk)
    desk.ack(got)
    assert desk.bodies() == SYNC


# -- consumers with filters -------------------------------------------------------------------------------------------


def test_a50(desk: LeasedDesk) -> None:
    """Queues page, row A50: the matching ones in order; the other stays."""
    desk.queue()
    desk.subscribe(qos=10, x_filter="/t = 'a'")
    desk.publish('{"t": "b"}', '{"t": "a", "n": 1}', '{"t": "a", "n": 2}')
    got = desk.taken()
    assert [one.body for one in got] == ['{"t": "a", "n": 1}', '{"t": "a", "n": 2}']
    assert got[0].headers["x-delivery-count"] == 1 and desk.counts() == (1, 2, 0)
    desk.nack(got[0])
    assert one(desk).headers["x-cancel-count"] == 1
    assert desk.all() == '{"t": "b"}'


def test_a51(desk: LeasedDesk) -> None:
    """Queues page, row A51: a filter that is none."""
    desk.queue()
    with pytest.raises(Refused, match="406"):
        desk.subscribe(x_filter="/t = ")
    assert desk._facts("q")["consumers"] == 0


def test_a57(desk: LeasedDesk) -> None:
    """Queues page, row A57: who does not take the barrier pauses, and goes on after it."""
    desk.queue(**BARRIER)
    picky = desk.other().subscribe(qos=1, x_filter="/sync IS NULL")
    other = desk.other().subscribe(x_max_backlog=0)
    desk.publish('{"n": 1}', SYNC, '{"n": 2}')
    first = one(picky)
    assert first.body == '{"n": 1}' and other.taken() == []
    picky.ack(first)
    assert picky.bodies() == '{"n": 2}' and other.bodies() == SYNC


def test_a_barrier_that_nobody_takes(desk: LeasedDesk) -> None:
    """Consumers are there, none takes it: it is released undelivered (queues page A.9)."""
    desk.queue(**BARRIER)
    desk.subscribe(qos=5, x_filter="/sync IS NULL")
    desk.publish(SYNC, "{}")
    assert desk.bodies() == "{}" and desk.counts() == (0, 1, 0)


def test_a61(desk: LeasedDesk) -> None:
    """Queues page, row A61: what is not active is neither shown, nor counted, nor leased to whoever takes it."""
    desk.queue(x_target_depth=1000)
    for number in range(1, 1501):
        desk.publish(numbered(number))
    assert desk.declare(passive=True) == 1000
    looking = desk.other().subscribe(x_browse=True)
    assert len(looking.taken()) == 1000
    picky = desk.other().subscribe(qos=5, x_filter="/n = 1200")
    assert picky.taken() == []
    for number in range(1, 201):
        assert picky.taken() == []
        got = desk.must_get()
        assert got.body == numbered(number)
        desk.ack(got)
    assert picky.bodies() == '{"n": 1200}'


@pytest.mark.parametrize(
    ("fairness", "bodies"), [("fast", ["12345", ""]), ("round-robin", ["135", "24"]), ("proportional", ["134", "25"])]
)
def test_fairness_among_consumers_with_filters(fairness: str, bodies: list[str]) -> None:
    """The fairness model chooses among those that take a message (queues page A.4)."""
    desk = LeasedDesk()
    desk.queue(x_fairness=fairness)
    consumers = [desk.other().subscribe(qos=limit, x_filter="MESSAGE_SIZE() > 0") for limit in (10, 5)]
    desk.publish(*"12345")
    assert [consumer.bodies() for consumer in consumers] == bodies


def test_leases_of_consumers_with_filters_end(desk: LeasedDesk) -> None:
    """Time, cancellation and loss give back what only some take."""
    desk.queue(x_lease_period=500)
    picky = desk.other().subscribe(qos=1, x_filter="/t = 'a'")
    desk.publish('{"t": "b"}', '{"t": "a"}')
    assert picky.bodies() == '{"t": "a"}'
    later = desk.other().subscribe(qos=1, x_filter="/t IN ('a')")
    desk.advance_ms(500)
    assert later.bodies() == '{"t": "a"}'
    later.drop()
    assert picky.bodies() == '{"t": "a"}'
    picky.drop()
    assert desk.all() == '{"t": "b"}{"t": "a"}'


def test_a_barrier_goes_out_when_what_stood_before_it_has_expired(desk: LeasedDesk) -> None:
    """Nobody takes that, and nothing else happens (queues page A.9)."""
    desk.queue(x_message_ttl=1000, **BARRIER)
    desk.subscribe(qos=5, x_filter="/sync IS NOT NULL")
    desk.publish('{"n": 1}')
    desk.advance_ms(500)
    desk.publish(SYNC)
    assert desk.bodies() == ""
    desk.advance_ms(500)
    assert desk.bodies() == SYNC
