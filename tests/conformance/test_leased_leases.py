"""Leased queues, in virtual time: leases, acts, ordinary clients.

Source: queues page A.5, A.7, A.10, G.A.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from desk import Refused
from leased_desk import DLX, LeasedDesk, numbered, one

from leveret.engine.invariants import check_broker
from leveret.engine.leases.state import leases_of

# -- leases -----------------------------------------------------------------------------------------------------------


def test_a17_a18(desk: LeasedDesk) -> None:
    """Queues page, rows A17, A18: the lease ends, the next one gets it; a late acknowledgement counts (sublet)."""
    desk.queue(x_lease_period=500)
    desk.subscribe(qos=1)
    second = desk.other().subscribe(qos=1)
    desk.publish("m")
    first = one(desk)
    assert not first.redelivered and first.headers["x-delivery-count"] == 1
    assert first.headers["x-lease-until"] == desk.wall_ms + 500
    desk.advance_ms(499)
    assert desk.counts() == (0, 1, 0) and second.taken() == []
    desk.advance_ms(101)
    again = one(second)
    assert again.redelivered and again.headers["x-delivery-count"] == 2
    desk.ack(first)
    assert desk.counts() == (0, 0, 0)
    second.ack(again)
    assert desk.counter("acknowledged") == 1
    with pytest.raises(Refused, match="406.*unknown delivery tag"):
        desk.ack(first)


def test_a_run_of_leases_that_end_is_a_run_again(desk: LeasedDesk) -> None:
    """Messages whose leases ended together are delivered again together, and each is counted as redelivered."""
    desk.queue(x_lease_period=100)
    desk.subscribe(qos=100)
    desk.publish(*"abcdefghijkl")
    assert [got.headers["x-delivery-count"] for got in desk.taken()] == [1] * 12
    desk.advance_ms(101)
    again = desk.taken()
    assert [got.body for got in again] == list("abcdefghijkl")
    assert all(got.redelivered and got.headers["x-delivery-count"] == 2 for got in again)
    assert desk.pair.broker.virtual_hosts["/"].queues["q"].counters.redelivered == 12
    desk.subscribe(tag="u", no_ack=True)
    desk.publish("m")
    assert desk.counter("acknowledged") == 1


def test_a19(desk: LeasedDesk) -> None:
    """Queues page, row A19: strict, so that the late acknowledgement has no effect."""
    desk.queue(x_lease_period=500, x_leasing="strict")
    desk.subscribe(qos=1)
    second = desk.other().subscribe(qos=1)
    desk.publish("m")
    first = one(desk)
    desk.advance_ms(600)
    again = one(second)
    desk.ack(first)
    assert desk.counts() == (0, 1, 0)
    second.ack(again)
    assert desk.counts() == (0, 0, 0)


@pytest.mark.parametrize("leasing", ["strict", "sublet"])
def test_a_lease_is_its_clients(desk: LeasedDesk, leasing: str) -> None:
    """Also strict: the late acknowledgement is of the client that has it, on another channel (queues page A.3)."""
    desk.queue(x_lease_period=500, x_leasing=leasing)
    desk.publish("m")
    first = desk.must_get()
    desk.advance_ms(600)
    desk.subscribe()
    again = one(desk)
    desk.ack(first)
    assert desk.counts() == (0, 0, 0)
    desk.ack(again)  # nothing is left for it; no error


@pytest.mark.parametrize("leasing", ["strict", "sublet"])
def test_late_acknowledgement_of_what_is_ready(desk: LeasedDesk, leasing: str) -> None:
    """Strict or not: nobody else has it (queues page A.5)."""
    desk.queue(x_lease_period=500, x_leasing=leasing)
    desk.publish("m")
    got = desk.must_get()
    desk.advance_ms(600)
    assert desk.counts() == (1, 0, 0)
    desk.ack(got)
    assert desk.counts() == (0, 0, 0)


@pytest.mark.parametrize("requeue", [True, False])
def test_late_returns_mean_nothing(desk: LeasedDesk, requeue: bool) -> None:
    """nack and reject of a lease that has ended, also with `multiple` (queues page A.5)."""
    desk.queue(x_lease_period=500, x_cancel_limit=1, **DLX)
    desk.publish("m")
    got = desk.must_get()
    desk.advance_ms(600)
    desk.nack(0, multiple=True, requeue=requeue)
    assert desk.counts() == (1, 0, 0) and desk.dead() == []
    with pytest.raises(Refused, match="406"):
        desk.ack(got)


def test_a_lease_that_has_ended_is_not_timed_out(desk: LeasedDesk) -> None:
    """Its holder's channel stays open, although the holder never acknowledges it: the message is another's to take."""
    desk.queue(x_lease_period=500)
    desk.publish("a")
    got = desk.must_get()
    desk.advance_ms(500)
    assert desk.counts() == (1, 0, 0)
    for _ in range(60):
        desk.advance_ms(60_000)
    desk.ack(got)
    assert desk.counts() == (0, 0, 0), "the late acknowledgement counts"


def test_late_acknowledgement_of_what_is_gone(desk: LeasedDesk) -> None:
    """It is gone; nothing happens (queues page A.5)."""
    desk.queue(x_lease_period=500)
    desk.publish("m")
    got = desk.must_get()
    desk.advance_ms(600)
    assert desk.all() == "m"
    desk.ack(got)
    assert desk.counts() == (0, 0, 0)


def test_a79(desk: LeasedDesk) -> None:
    """Queues page, row A79: a tag that was never issued."""
    desk.queue()
    with pytest.raises(Refused, match="406.*99"):
        desk.ack(99)


def test_a81(desk: LeasedDesk) -> None:
    """Queues page, row A81: basic.cancel ends leases; the tags stay right (conflict K5)."""
    desk.queue()
    desk.subscribe(qos=10)
    desk.publish(*"abc")
    first = desk.taken()[0]
    desk.cancel()
    second = desk.other().subscribe(qos=10)
    got = second.taken()
    assert [(one.body, one.redelivered) for one in got] == [("a", True), ("b", True), ("c", True)]
    desk.ack(first)
    assert desk.counts() == (0, 2, 0)
    second.ack(got[0])
    assert desk.counts() == (0, 2, 0)


def test_a82(desk: LeasedDesk) -> None:
    """Queues page, row A82: a delivery that a cancellation ended was one."""
    desk.queue(x_max_deliveries=1, **DLX)
    desk.subscribe()
    desk.publish("a")
    desk.taken()
    desk.cancel()
    assert desk.reasons() == ["max_deliveries"]


def test_a83(desk: LeasedDesk) -> None:
    """Queues page, row A83: the lease runs on while an acknowledgement waits for its commit."""
    desk.queue(x_lease_period=1000)
    desk.publish("m")
    desk.select()
    got = desk.must_get()
    desk.advance_ms(500)
    desk.ack(got)
    desk.advance_ms(1000)
    assert desk.counts() == (1, 0, 0)
    desk.commit()
    assert desk.counts() == (0, 0, 0)


def test_many_leases_end_in_time() -> None:
    """Each ends at its time, not before, and in order (queues page A.5, timers)."""
    desk = LeasedDesk()
    desk.queue(x_lease_period=100)
    desk.subscribe(qos=100)
    for body in "abcde":
        desk.publish(body)
        desk.advance_ms(10)
    assert desk.bodies() == "abcde"
    desk.cancel()
    desk.advance_ms(1000)
    assert desk.counts() == (5, 0, 0)
    assert desk.all() == "abcde"


@pytest.mark.parametrize("is_mixed", [False, True])
@pytest.mark.parametrize(
    ("arguments", "counts", "dead"),
    [
        ({"x_lease_period": 500}, (1201, 0, 0), 0),
        ({"x_lease_period": 500, "x_semantics": "at-most-once"}, (0, 0, 0), 0),
        ({"x_lease_period": 500, "x_max_deliveries": 1, **DLX}, (0, 0, 0), 1201),
        ({"x_message_ttl": 500, **DLX}, (0, 0, 0), 1201),
    ],
    ids=["leases", "slots", "last deliveries", "lifetimes"],
)
def test_very_many_end_together(
    desk: LeasedDesk, arguments: dict[str, object], counts: tuple[int, int, int], dead: int, is_mixed: bool
) -> None:
    """More than one turn ends: all do, though nobody consumes, gets or publishes meanwhile (queues page A.5)."""
    desk.queue(**arguments)
    desk.publish(*("m" for _ in range(1201)))
    if is_mixed:
        desk.advance_ms(1)
    for _ in range(1201):
        desk.must_get()
    desk.advance_ms(550)
    assert desk.counts() == counts
    assert dead == 0 or desk.counts("dead") == (dead, 0, 0)


def test_very_many_expire_behind_one_that_lives(desk: LeasedDesk) -> None:
    """All of them, though nobody looks; the first stays (queues page A.5)."""
    desk.queue(**DLX)
    desk.publish("a")
    desk.publish(*("m" for _ in range(2501)), expiration="500")
    desk.advance_ms(550)
    assert desk.counts() == (1, 0, 0) and desk.counts("dead") == (2501, 0, 0)
    assert desk.all() == "a" and desk.counter("expired") == 2501


@pytest.mark.parametrize("semantics", ["at-least-once", "at-most-once"])
@pytest.mark.parametrize("expire_leased", ["immediate", "at-lease-end"])
@pytest.mark.parametrize("leases_first", [False, True])
def test_a_lease_ends_before_what_ends_later(
    desk: LeasedDesk, semantics: str, expire_leased: str, leases_first: bool
) -> None:
    """Whatever else the queue waits for: a lifetime of an hour of another message, or a lease that lasted longer."""
    desk.queue(x_lease_period=500, x_expire_leased=expire_leased, x_semantics=semantics)
    desk.publish("a")
    if leases_first:
        desk.must_get()
    desk.publish("b", expiration="3600000")
    desk.publish("c", expiration="1800000")
    if not leases_first:
        desk.must_get()
    desk.advance_ms(499)
    assert desk.counts() == (2, 1, 0)
    desk.advance_ms(1)
    assert desk.counts() == (3 if semantics == "at-least-once" else 2, 0, 0)
    desk.advance_ms(1_800_000 - 500)
    assert "c" not in desk.all()


@pytest.mark.parametrize("end", [LeasedDesk.drop, LeasedDesk.reopen_channel, LeasedDesk.cancel])
def test_nothing_is_remembered_of_who_was_late_and_left(desk: LeasedDesk, end: Callable[[LeasedDesk], None]) -> None:
    """Neither of consumers nor of those who get: connections would stay in memory for ever."""
    desk.queue(x_lease_period=500)
    desk.publish("a", "b")
    late = desk.other().subscribe(qos=1)
    late.must_get()
    desk.advance_ms(500)
    end(late)
    check_broker(desk.pair.broker)
    assert not leases_of(desk.vhost.queues["q"]).consumer_list.overdue


# -- semantics --------------------------------------------------------------------------------------------------------


def test_a21(desk: LeasedDesk) -> None:
    """Queues page, row A21: at most once, so that a lost connection loses it."""
    desk.queue(x_semantics="at-most-once")
    desk.publish("m")
    second = desk.other().subscribe(qos=5)
    assert second.bodies() == "m"
    second.drop()
    assert desk.counts() == (0, 0, 0) and desk.counter("acknowledged") == 1


def test_a22(desk: LeasedDesk) -> None:
    """Queues page, row A22: an acknowledgement frees the backlog."""
    desk.queue(x_semantics="at-most-once", x_max_backlog_per_consumer=2)
    desk.subscribe(qos=10)
    desk.publish(*"abc")
    got = desk.taken()
    assert len(got) == 2 and desk.counts() == (1, 2, 0)
    desk.ack(got[0])
    assert desk.bodies() == "c"


@pytest.mark.parametrize("requeue", [True, False])
def test_a23(desk: LeasedDesk, requeue: bool) -> None:
    """Queues page, row A23: a return frees the backlog, no more."""
    desk.queue(x_semantics="at-most-once", **DLX)
    desk.publish("a")
    desk.nack(desk.must_get(), requeue=requeue)
    assert desk.counts() == (0, 0, 0) and desk.dead() == []


def test_slots_are_free_after_the_lease_period(desk: LeasedDesk) -> None:
    """At most once: the lease period frees the backlog (queues page A.3, LeasePeriod)."""
    desk.queue(x_semantics="at-most-once", x_max_backlog_total=1, x_lease_period=500)
    desk.publish("a", "b")
    got = desk.must_get()
    assert desk.get() is None
    desk.advance_ms(500)
    assert desk.must_get().body == "b"
    desk.ack(got)


def test_a25(desk: LeasedDesk) -> None:
    """Queues page, row A25: without acknowledgements there is no limit, and nothing left."""
    desk.queue(x_max_backlog_per_consumer=1)
    desk.subscribe(no_ack=True)
    desk.publish(*"abcde")
    assert desk.bodies() == "abcde"
    assert desk.counts() == (0, 0, 0)


# -- ordinary clients -------------------------------------------------------------------------------------------------


def test_a85(desk: LeasedDesk) -> None:
    """Queues page, row A85: what is leased stays."""
    desk.queue()
    desk.publish(*"1234567")
    held = [desk.must_get(), desk.must_get()]
    assert desk.purge() == 5
    for got in held:
        desk.ack(got)
    assert desk.counts() == (0, 0, 0) and desk.counter("purged") == 5


def test_deletion(desk: LeasedDesk) -> None:
    """Tracking ends; what was leased may be acknowledged without harm (queues page A.10)."""
    desk.queue(x_lease_period=500)
    desk.publish(*"123")
    got = desk.must_get()
    late = desk.must_get()
    desk.advance_ms(500)
    assert desk.delete() == 3
    desk.nack(got)
    desk.ack(late)
    desk.advance_ms(1000)
    desk.queue()
    assert desk.counts() == (0, 0, 0)


def test_message_count_and_properties(desk: LeasedDesk) -> None:
    """declare-ok tells what is ready; deliveries keep what was published (queues page A.2, A.10)."""
    desk.queue()
    desk.publish(*"ab", headers={"x-bookmark": "mine", "k": "v"}, message_id="id", correlation_id="c")
    got = desk.must_get()
    assert desk.declare("q", passive=True) == 1
    assert got.properties.message_id == "id" and got.properties.correlation_id == "c"
    assert got.headers["k"] == "v" and got.headers["x-bookmark"] != "mine"
    desk.nack(got)
    assert desk.must_get().headers["x-delivery-count"] == 2


def test_return_goes_to_its_place(desk: LeasedDesk) -> None:
    """Each consumer gets the oldest available (queues page A.4)."""
    desk.queue()
    desk.publish(*"abcdef")
    got = [desk.must_get() for _ in range(4)]
    for one_got in (got[2], got[0]):
        desk.nack(one_got)
    assert desk.all() == "acef"


# -- browsing ---------------------------------------------------------------------------------------------------------


def test_browsing(desk: LeasedDesk) -> None:
    """What is ready at the start, in order, without any lease; then the consumer is cancelled (queues page A.7)."""
    desk.queue(x_lease_period=500)
    desk.publish(*"abcd")
    desk.must_get()
    desk.subscribe(x_browse=True, tag="look")
    desk.publish("e")
    got = desk.taken()
    assert [one.body for one in got] == ["b", "c", "d"]
    assert all(one.headers["x-browse"] is True and "x-delivery-count" not in one.headers for one in got)
    assert desk.counts() == (4, 1, 0) and desk._facts("q")["consumers"] == 0
    desk.ack(got[0])
    assert desk.counts() == (4, 1, 0)
    desk.subscribe(x_browse=True, x_top_n=2, no_ack=True)
    assert desk.bodies() == "bc"
    assert desk.counter("delivered") == 1
    desk.advance_ms(500)
    assert desk.all() == "abcde"


#: What a filter takes of the numbers.
TAKEN: dict[str, Callable[[int], bool]] = {
    "1 = 1": lambda n: True,
    "/n % 10 = 3": lambda n: n % 10 == 3,
    "/n >= 650": lambda n: n >= 650,
}


@pytest.mark.parametrize("order", [{}, {"x_priority_expr": "700 - /n"}], ids=str)
@pytest.mark.parametrize("filter_", [None, *TAKEN])
def test_browsing_the_first(desk: LeasedDesk, filter_: str | None, order: dict[str, str]) -> None:
    """x-top-n: the first so many of those that the filter takes, however deep they stand, and no more (A.7)."""
    desk.queue(**order)
    desk.publish(*map(numbered, range(700)))
    taken = [numbered(n) for n in range(700) if filter_ is None or TAKEN[filter_](n)]
    for top_n in (None, 0, 1, 2, 30, 299, 300, 301, 599, 600, 601, 699, 700, 10_000):
        options = {"x_top_n": top_n, "x_filter": filter_}
        looking = desk.subscribe(
            x_browse=True, tag=f"{top_n}", **{key: it for key, it in options.items() if it is not None}
        )
        assert [got.body for got in looking.taken()] == taken[:top_n], top_n
    assert desk.counts() == (700, 0, 0) and desk._facts("q")["consumers"] == 0


def test_browsing_many(desk: LeasedDesk) -> None:
    """More than a slice, also while others take what is there."""
    desk.queue()
    for number in range(1200):
        desk.publish(f"{number},")
    looking = desk.other().subscribe(x_browse=True)
    assert looking.bodies() == "".join(f"{number}," for number in range(1200))
