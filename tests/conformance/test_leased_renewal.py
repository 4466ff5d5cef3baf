"""Leased queues, in virtual time: leases that begin again, by an operator or while a connection is alive.

Source: docs/leases.md, "Leases that last as long as their consumers".
"""

from __future__ import annotations

import pytest
from desk import Refused
from leased_desk import LeasedDesk, one

from leveret.operator.command_error import CommandError

RENEWS = {"x-lease-auto-renew": True}


def test_operators_renew_leases(desk: LeasedDesk) -> None:
    """From now on for a whole period; others end as they would. What is not leased is passed over."""
    desk.queue(x_lease_period=1000)
    desk.publish(*"abc")
    a, b = desk.must_get(), desk.must_get()
    desk.advance_ms(900)
    bookmarks = f"{a.headers['x-bookmark']},{a.headers['x-bookmark']},1|999999|"
    assert desk.command("lease", action="renew", queue="q", bookmark=bookmarks) == {
        "queue": "q",
        "vhost": "/",
        "renewed": 1,
    }
    assert [lease["ends_in_ms"] for lease in desk.command("leases", queue="q")] == [100, 1000]
    desk.advance_ms(100)
    assert desk.counts() == (2, 1, 0)
    desk.advance_ms(899)
    assert desk.counts() == (2, 1, 0)
    desk.advance_ms(1)
    assert desk.counts() == (3, 0, 0)
    desk.ack(a)
    desk.ack(b)
    assert desk.all() == "c"


def test_renewals_that_mean_nothing(desk: LeasedDesk) -> None:
    """Leases that do not end by time; bad requests are said."""
    desk.queue()
    desk.declare("plain")
    desk.publish("a")
    got = desk.must_get()
    assert desk.command("lease", action="renew", queue="q", bookmark=got.headers["x-bookmark"])["renewed"] == 1
    assert desk.counts() == (0, 1, 0)
    for queue, bookmark in (("plain", "1|1|"), ("q", "no bookmark"), ("nowhere", "1|1|")):
        with pytest.raises(CommandError):
            desk.command("lease", action="renew", queue=queue, bookmark=bookmark)


def test_a_renewed_lease_of_a_message_that_expires(desk: LeasedDesk) -> None:
    """Its lifetime is what it was (queues page A.5)."""
    desk.queue(x_lease_period=1000, x_message_ttl=1500)
    desk.publish("a")
    got = desk.must_get()
    desk.advance_ms(900)
    desk.command("lease", action="renew", queue="q", bookmark=got.headers["x-bookmark"])
    desk.advance_ms(599)
    assert desk.counts() == (0, 1, 0)
    desk.advance_ms(1)
    assert desk.counts() == (0, 0, 0)


def test_a_consumer_that_is_alive_keeps_its_leases(desk: LeasedDesk) -> None:
    """As long as it is heard from; then others get what it had, and its late acknowledgement is no error."""
    desk.queue(x_lease_period=1000)
    holder = desk.other(heartbeat_s=10).subscribe(**RENEWS)
    desk.publish("a")
    got = one(holder)
    waiting = desk.other().subscribe()
    for _ in range(10):
        desk.advance_ms(5000)
        holder.beat()
    assert desk.counts() == (0, 1, 0) and waiting.taken() == []
    desk.advance_ms(14_000)
    assert waiting.taken() == []
    desk.advance_ms(6001)
    assert one(waiting).headers["x-delivery-count"] == 2
    holder.beat()
    holder.ack(got)
    assert desk.counts() == (0, 0, 0)


def test_what_ends_it(desk: LeasedDesk) -> None:
    """An acknowledgement, a cancellation, a lost connection, an operator: as other leases."""
    desk.queue(x_lease_period=1000)
    holder = desk.other(heartbeat_s=10).subscribe(qos=10, **RENEWS)
    desk.publish(*"abc")
    got = holder.taken()
    desk.advance_ms(3500)
    holder.listen()
    holder.ack(got[0])
    desk.command("discard", queue="q", bookmark=got[1].headers["x-bookmark"])
    assert desk.counts() == (0, 1, 0)
    holder.cancel()
    assert desk.counts() == (1, 0, 0)
    again = desk.other(heartbeat_s=10).subscribe(**RENEWS)
    desk.advance_ms(3500)
    assert len(again.taken()) == 1 and desk.counts() == (0, 1, 0)
    again.drop()
    assert desk.counts() == (1, 0, 0)


def test_only_those_who_ask_for_it(desk: LeasedDesk) -> None:
    """Leases of gets, and of those who asked before, end by time; who subscribes again may change that."""
    desk.queue(x_lease_period=1000)
    client = desk.other(heartbeat_s=10).subscribe(qos=1, **RENEWS)
    desk.publish("a", "b")
    assert client.bodies() == "a"
    desk.must_get()
    desk.advance_ms(2500)
    assert desk.counts() == (1, 1, 0)
    client.listen()
    client.subscribe(x_replace=True)
    desk.advance_ms(1000)
    client.listen()
    (lease,) = desk.command("leases", queue="q")
    assert lease["deliveries"] == 2


@pytest.mark.parametrize("value", [False, True])
def test_without_heartbeats(desk: LeasedDesk, value: bool) -> None:
    """Nobody would know that it is alive: 406 for who asks for it, whether it subscribes anew or again."""
    desk.queue()
    if not value:
        desk.subscribe(x_lease_auto_renew=False)
        return
    for _ in range(2):
        with pytest.raises(Refused, match="406.*the connection has no heartbeats"):
            desk.subscribe(x_replace=True, **RENEWS)
        desk.subscribe()


def test_at_most_once(desk: LeasedDesk) -> None:
    """There are no leases: the place in the backlog is free after the period, as ever (queues page A.3)."""
    desk.queue(x_semantics="at-most-once", x_lease_period=1000)
    holder = desk.other(heartbeat_s=10).subscribe(qos=1, **RENEWS)
    desk.publish("a", "b")
    assert holder.bodies() == "a"
    desk.advance_ms(1000)
    assert holder.bodies() == "b"
