"""Leased queues, in virtual time: limits and lifetimes. Source: queues page A.5, G.A."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from leased_desk import DLX, LeasedDesk

from leveret.engine.invariants import check_broker
from leveret.engine.leases.state import leases_of

# -- limits -----------------------------------------------------------------------------------------------------------


def test_a26(desk: LeasedDesk) -> None:
    """Queues page, row A26: two deliveries, and no third."""
    desk.queue(x_max_deliveries=2, **DLX)
    desk.publish("m")
    for _ in range(2):
        desk.must_get()
        desk.reopen_channel()
    (dead,) = desk.dead()
    assert dead.headers["x-amps-reason"] == "max_deliveries"
    assert dead.headers["x-death"][0]["reason"] == "delivery_limit"
    assert desk.counts() == (0, 0, 0)


def test_max_cancels(desk: LeasedDesk) -> None:
    """The second cancel expires it (conflict K1); recover is a cancel, too (queues page A.2)."""
    desk.queue(x_cancel_limit=2, **DLX)
    desk.publish("a", "b")
    first = desk.must_get()
    desk.nack(first)
    got = desk.must_get()
    assert got.body == "a" and got.headers["x-cancel-count"] == 1
    desk.recover()
    assert desk.reasons() == ["max_cancels"]
    assert desk.all() == "b"


def test_a29(desk: LeasedDesk) -> None:
    """Queues page, row A29: a lease that ends by time is no cancel."""
    desk.queue(x_cancel_limit=2, x_lease_period=500, **DLX)
    desk.publish("m")
    for _ in range(5):
        desk.must_get()
        desk.advance_ms(500)
    assert desk.counts()[0] == 1 and desk.dead() == []


def test_a30(desk: LeasedDesk) -> None:
    """Queues page, row A30: both reasons, in their order."""
    desk.queue(x_cancel_limit=1, x_max_deliveries=1, **DLX)
    desk.publish("m")
    desk.nack(desk.must_get())
    assert desk.reasons() == ["max_cancels,max_deliveries"]


def test_a31(desk: LeasedDesk) -> None:
    """Queues page, row A31: rejected for good."""
    desk.queue(**DLX)
    desk.publish("m")
    desk.reject(desk.must_get(), requeue=False)
    (dead,) = desk.dead()
    assert dead.headers["x-amps-reason"] == "forced_expire" and dead.headers["x-death"][0]["reason"] == "rejected"


GOES: dict[str, Callable[[LeasedDesk], object]] = {
    "ack": lambda desk: desk.ack(desk.must_get()),
    "late ack": lambda desk: (got := desk.must_get(), desk.advance_ms(500), desk.ack(got)),
    "reject": lambda desk: desk.reject(desk.must_get(), requeue=False),
    "last cancel": lambda desk: [desk.nack(desk.must_get()) for _ in range(2)],
    "last delivery": lambda desk: [(desk.must_get(), desk.advance_ms(500)) for _ in range(4)],
    "lifetime": lambda desk: desk.advance_ms(9000),
    "lifetime, leased": lambda desk: (desk.advance_ms(8800), desk.must_get(), desk.advance_ms(200)),
    "purge": lambda desk: desk.purge(),
    "bookmark": lambda desk: desk.command("discard", queue="q", filter="1 = 1"),
    "bookmark, expired": lambda desk: desk.command("discard", queue="q", filter="1 = 1", option="expire"),
    "no_ack": lambda desk: desk.get(no_ack=True),
}


@pytest.mark.parametrize("how", GOES)
@pytest.mark.parametrize("order", [{}, {"x_priority_expr": "/p"}, {"x_target_depth": 1000}], ids=str)
def test_what_is_counted_of_a_message_goes_with_it(how: str, order: dict[str, object]) -> None:
    """A queue that runs for months remembers no cancels of messages that are gone, whichever way they went."""
    desk = LeasedDesk()
    desk.queue(x_cancel_limit=3, x_max_deliveries=5, x_lease_period=500, **order, **DLX)
    desk.publish("m", expiration="9000")
    desk.nack(desk.must_get())
    leases = leases_of(desk.vhost.queues["q"])
    assert leases.book.cancels
    GOES[how](desk)
    check_broker(desk.pair.broker)
    assert desk.counts() == (0, 0, 0) and not leases.book.cancels


def test_what_is_counted_goes_with_what_expires_behind_others(desk: LeasedDesk) -> None:
    """And stays with what is left, also by a purge: its next cancel is the last one."""
    desk.queue(x_cancel_limit=2, **DLX)
    desk.publish("z")
    desk.publish("m", expiration="9000")
    first, second = desk.must_get(), desk.must_get()
    desk.nack(first)
    desk.nack(second)
    desk.advance_ms(9000)
    check_broker(desk.pair.broker)
    again = desk.must_get()
    desk.purge()
    desk.nack(again)
    assert desk.reasons() == ["time_limit", "max_cancels"]


# -- lifetimes --------------------------------------------------------------------------------------------------------


def test_a33(desk: LeasedDesk) -> None:
    """Queues page, row A33: it expires where it waits."""
    desk.queue(x_message_ttl=1000, **DLX)
    desk.publish("m")
    desk.advance_ms(1100)
    assert desk.counts() == (0, 0, 0) and desk.reasons() == ["time_limit"]


def test_a34(desk: LeasedDesk) -> None:
    """Queues page, row A34: it expires while it is leased, and its holder is not told (conflict K2)."""
    desk.queue(x_message_ttl=1000, **DLX)
    desk.publish("m")
    desk.advance_ms(500)
    got = desk.must_get()
    desk.advance_ms(499)
    assert desk.dead() == []
    desk.advance_ms(1)
    assert desk.reasons() == ["time_limit"] and desk.counts() == (0, 0, 0)
    desk.ack(got)


def test_lifetimes_may_wait_for_the_end_of_the_lease(desk: LeasedDesk) -> None:
    """The other choice of conflict K2: x-expire-leased (queues page A.5)."""
    desk.queue(x_message_ttl=1000, x_expire_leased="at-lease-end", **DLX)
    desk.publish("m", "n")
    got = desk.must_get()
    kept = desk.must_get()
    desk.advance_ms(2000)
    assert desk.dead() == []
    desk.nack(got)
    desk.ack(kept)
    assert desk.reasons() == ["time_limit"] and desk.counter("acknowledged") == 1


def test_a_reload_decides_whether_lifetimes_end_leases(desk: LeasedDesk) -> None:
    """It acts at once: also on leases that have begun, and on a lifetime that is over already."""
    queue = '[[queue]]\nname = "q"\ntype = "amps"\nmessage-ttl = 1000\nexpire-leased = '
    desk = LeasedDesk(f'{queue}"immediate"')
    desk.publish("m")
    desk.must_get()
    desk.reload(f'{queue}"at-lease-end"')
    desk.advance_ms(2000)
    assert desk.counts() == (0, 1, 0)
    desk.reload(f'{queue}"immediate"')
    desk.advance_ms(1)
    assert desk.counts() == (0, 0, 0)
    desk.publish("n")
    desk.reload(f'{queue}"at-lease-end"')
    desk.must_get()
    desk.advance_ms(500)
    desk.reload(f'{queue}"immediate"')
    desk.advance_ms(499)
    assert desk.counts() == (0, 1, 0)
    desk.advance_ms(1)
    assert desk.counts() == (0, 0, 0)


@pytest.mark.parametrize(
    ("model", "message_ms", "queue_ms", "died_ms"),
    [
        ("queue", 500, 1000, 1000),
        ("queue", 2000, 1000, 1000),
        ("latest", 500, 1000, 1000),
        ("latest", 2000, 1000, 2000),
        ("earliest", 500, 1000, 500),
        ("earliest", 2000, 1000, 1000),
        ("default", 500, 1000, 500),
        ("default", 2000, 1000, 2000),
        ("latest", 500, None, None),  # the row of a message that never expires
        ("queue", 500, None, None),
        ("earliest", 500, None, 500),
        ("default", 500, None, 500),
        ("queue", None, 1000, 1000),
        ("latest", None, 1000, 1000),
        ("earliest", None, 1000, 1000),
        ("default", None, 1000, 1000),
        ("default", None, None, None),
    ],
)
def test_a35_a43(model: str, message_ms: int | None, queue_ms: int | None, died_ms: int | None) -> None:
    """Queues page A.5, all of its table: the rows from A35 on, and queues page, row A43."""
    desk = LeasedDesk()
    desk.queue(x_expiration_model=model, **({} if queue_ms is None else {"x_message_ttl": queue_ms}), **DLX)
    desk.publish("m", **({} if message_ms is None else {"expiration": str(message_ms)}))
    if died_ms is None:
        desk.advance_ms(10_000_000)
        assert desk.counts() == (1, 0, 0)
        return
    desk.advance_ms(died_ms - 1)
    assert desk.counts() == (1, 0, 0)
    desk.advance_ms(1)
    assert desk.counts() == (0, 0, 0) and desk.reasons() == ["time_limit"]


def test_short_lives_behind_long_ones(desk: LeasedDesk) -> None:
    """Each message expires at its own time, whatever stands before it (queues page A.5)."""
    desk.queue(**DLX)
    desk.publish("a")
    desk.publish("b", expiration="3000")
    desk.publish("c", expiration="1000")
    desk.publish("d", expiration="2000")
    order = ""
    for _ in range(3):
        desk.advance_ms(1000)
        order += "".join(got.body for got in desk.dead())
    assert order == "cdb" and desk.all() == "a"


@pytest.mark.parametrize("order", [{}, {"x_priority_expr": "/priority"}], ids=["by age", "ranked"])
def test_lifetimes_of_what_is_gone_take_no_memory(desk: LeasedDesk, order: dict[str, str]) -> None:
    """Though their time is still to come; the one that stays expires in time."""
    desk.queue(**order, **DLX)
    desk.publish("stays", expiration="4000000")
    leases = leases_of(desk.vhost.queues["q"])
    stays = desk.must_get()
    for number in range(600):
        desk.publish("m", expiration=str(3_600_000 - 1000 * number))
        desk.ack(desk.must_get())
        if number % 50 == 0:
            desk.nack(stays)
            stays = desk.must_get()
    desk.nack(stays)
    assert leases is not None
    assert len(leases.book.lifetimes) < 100 and len(leases.book.leased_lifetimes) < 100
    desk.advance_ms(3_999_999)
    assert desk.counts() == (1, 0, 0)
    desk.advance_ms(1)
    assert [got.body for got in desk.dead()] == ["stays"]
    desk.publish(*["m"] * 50, expiration="3600000")
    for _ in range(50):
        desk.ack(desk.must_get())
    assert not len(leases.book.lifetimes) and not len(leases.book.leased_lifetimes)


def test_expiration_zero(desk: LeasedDesk) -> None:
    """It expires at once if nobody can take it (queues page A.5)."""
    desk.queue(**DLX)
    desk.publish("a", expiration="0")
    assert desk.reasons() == ["time_limit"]
    desk.subscribe()
    desk.publish("b", expiration="0")
    assert desk.bodies() == "b"


@pytest.mark.parametrize("filters", [{}, {"x_filter": "/n = 1"}], ids=str)
def test_what_lives_no_time_is_its_consumers(desk: LeasedDesk, filters: dict[str, str]) -> None:
    """It was taken at once, also under a filter: no dead letter while it is held, and none once it is acknowledged.

    What comes back is over (queues page A.5).
    """
    desk.queue(**DLX)
    desk.advance_ms(1)  # no clock stands at 0, which means never
    desk.subscribe(qos=2, **filters)
    desk.publish('{"n": 1}', '{"n": 1}', expiration="0")
    first, second = desk.taken()
    desk.advance_ms(1000)
    assert desk.counts() == (0, 2, 0) and desk.dead() == []
    desk.ack(first)
    desk.nack(second)
    assert desk.counts() == (0, 0, 0) and desk.reasons() == ["time_limit"]
    assert desk.counter("acknowledged") == 1


def test_messages_become_active_when_others_have_expired(desk: LeasedDesk) -> None:
    """A consumer that waits for them gets them then (queues page C.6)."""
    desk.queue(x_target_depth=1000, x_message_ttl=1000)
    desk.publish(*("{}" for _ in range(1000)))
    desk.advance_ms(500)
    desk.publish('{"n": 1}')
    desk.subscribe(qos=5, x_filter="/n = 1")
    assert desk.bodies() == ""
    desk.advance_ms(500)
    assert desk.bodies() == '{"n": 1}'


def test_what_comes_back_expires_in_time_behind_what_lives_on(desk: LeasedDesk) -> None:
    """Its lifetime did not end its lease, and nothing else is to expire meanwhile (queues page A.5)."""
    desk.queue(x_expire_leased="at-lease-end", **DLX)
    desk.publish("long", expiration="60000")
    desk.publish("short", expiration="1000")
    desk.publish("first", expiration="300")
    long, short = desk.must_get(), desk.must_get()
    desk.advance_ms(500)
    assert [got.body for got in desk.dead()] == ["first"]
    desk.nack(short)
    desk.nack(long)
    desk.advance_ms(499)
    assert desk.counts() == (2, 0, 0)
    desk.advance_ms(1)
    assert [got.body for got in desk.dead()] == ["short"]


def test_the_lifetime_of_a_delayed_message_begins_when_it_is_due(desk: LeasedDesk) -> None:
    """Not when it is published (queues page C.6)."""
    desk.queue(x_message_ttl=500)
    desk.publish("a", headers={"x-delay": 1000})
    desk.advance_ms(1400)
    assert desk.counts() == (1, 0, 0)
    desk.advance_ms(100)
    assert desk.counts() == (0, 0, 0)


def test_a_purge_forgets_no_cancels_of_what_is_leased(desk: LeasedDesk) -> None:
    """What is out stays out, and its cancels go on."""
    desk.queue(x_cancel_limit=2, **DLX)
    desk.publish("a", "b")
    desk.nack(desk.must_get())
    got = desk.must_get()
    assert got.headers["x-cancel-count"] == 1
    assert desk.purge() == 1
    desk.nack(got)
    assert (desk.counts(), desk.reasons()) == ((0, 0, 0), ["max_cancels"])
