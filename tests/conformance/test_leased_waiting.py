"""Leased queues, in virtual time: who waits for what somebody has is served the moment that it goes, however it goes.

Source: queues page A.4, A.5, A.6, A.9.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from leased_desk import BARRIER, DLX, SYNC, LeasedDesk, numbered

#: What `desk`, who got the first message as `got`, or somebody else does about it.
Act = Callable[[LeasedDesk, Any], object]


def discard(option: str, *, by: str = "bookmark") -> Act:
    """`leveret ctl discard`."""

    def act(desk: LeasedDesk, got: Any) -> None:
        what = {"bookmark": got.headers["x-bookmark"]} if by == "bookmark" else {"filter": "/n = 0"}
        desk.command("discard", queue="q", option=option, **what)

    return act


def waits(desk: LeasedDesk, got: Any) -> None:
    """Nothing but time."""
    desk.advance_ms(500)


#: Name -> what the queue is declared with, what is done, whether the message is gone by it, or there again.
ENDS: dict[str, tuple[dict[str, Any], Act, bool]] = {
    "ack": ({}, lambda desk, got: desk.ack(got), True),
    "reject": ({}, lambda desk, got: desk.reject(got, requeue=False), True),
    "last cancel": ({"x_cancel_limit": 1}, lambda desk, got: desk.nack(got), True),
    "last delivery": ({"x_max_deliveries": 1}, lambda desk, got: desk.reopen_channel(), True),
    "last delivery, lost": ({"x_max_deliveries": 1}, lambda desk, got: desk.drop(), True),
    "last delivery, by time": ({"x_max_deliveries": 1, "x_lease_period": 500}, waits, True),
    "lifetime": ({}, waits, True),
    "lifetime, as the lease ends": ({"x_lease_period": 500, "x_expire_leased": "at-lease-end"}, waits, True),
    "slot": ({"x_semantics": "at-most-once"}, lambda desk, got: desk.nack(got), True),
    "slot, by time": ({"x_semantics": "at-most-once", "x_lease_period": 500}, waits, True),
    "slot, lost": ({"x_semantics": "at-most-once"}, lambda desk, got: desk.drop(), True),
    "bookmark": ({}, discard(""), True),
    "bookmark, expired": (DLX, discard("expire"), True),
    "filter": ({}, discard("", by="filter"), True),
    "nack": ({}, lambda desk, got: desk.nack(got), False),
    "recover": ({}, lambda desk, got: desk.recover(), False),
    "channel": ({}, lambda desk, got: desk.reopen_channel(), False),
    "connection": ({}, lambda desk, got: desk.drop(), False),
    "time": ({"x_lease_period": 500}, waits, False),
    "bookmark, cancelled": ({}, discard("cancel"), False),
}  # fmt: skip


class Gate(NamedTuple):
    """Why a consumer waits. `rest`: what stands behind the first message; `gone`, `back`: what it gets then."""

    queue: dict[str, Any]
    consumer: dict[str, Any]
    rest: tuple[str, ...]
    gone: str
    back: str


FIRST = numbered(0)
GATES = {
    "barrier": Gate(BARRIER, {"qos": 5}, (SYNC, "c"), SYNC + "c", FIRST),
    "barrier alone": Gate(BARRIER, {"x_max_backlog": 0}, (SYNC, SYNC, "c"), SYNC + SYNC, ""),
    "backlog": Gate({"x_max_backlog_total": 1}, {"qos": 5}, ("b", "c"), "b", FIRST),
    "backlog, filter": Gate(
        {"x_max_backlog_total": 1}, {"qos": 5, "x_filter": "/n > 1"}, (numbered(2),), *[numbered(2)] * 2),
    "depth": Gate(
        {"x_target_depth": 1000}, {"qos": 5, "x_filter": "/n = 1000"},
        tuple(map(numbered, range(1, 1001))), numbered(1000), ""),
}  # fmt: skip


@pytest.mark.parametrize("name", GATES)
@pytest.mark.parametrize("how", ENDS)
def test_whoever_waits_is_served_at_once(name: str, how: str) -> None:
    """What it waited for, or the message itself, in the turn in which the message goes or comes back."""
    gate, (arguments, act, is_gone) = GATES[name], ENDS[how]
    if name == "depth" and "at-most-once" in arguments.values():
        return  # what is gone is not active
    desk = LeasedDesk()
    operator, waiter = desk.other(), desk.other()
    desk.queue(**gate.queue, **arguments)
    operator.publish(FIRST, expiration="400" if how.startswith("lifetime") else None)
    operator.publish(*gate.rest)
    got = desk.must_get()
    waiter.subscribe(**gate.consumer)
    assert waiter.bodies() == ""
    act(operator if how.startswith(("bookmark", "filter")) else desk, got)
    assert waiter.bodies() == (gate.gone if is_gone else gate.back)


@pytest.mark.parametrize("name", GATES)
@pytest.mark.parametrize("is_get", [False, True])
def test_whoever_waits_is_served_by_a_late_acknowledgement(name: str, is_get: bool) -> None:
    """The message was lent before; somebody else has it now, by a get or as a consumer, and then a tag for nothing."""
    gate = GATES[name]
    desk = LeasedDesk()
    waiter, third = desk.other(), desk.other()
    desk.queue(x_lease_period=500, **gate.queue)
    desk.publish(FIRST)
    got = desk.must_get()
    desk.advance_ms(500)
    again = third.must_get() if is_get else third.subscribe(qos=1, x_filter="/n = 0").taken()[0]
    desk.publish(*gate.rest)
    waiter.subscribe(**gate.consumer)
    assert waiter.bodies() == ""
    desk.ack(got)
    assert waiter.bodies() == gate.gone
    assert desk.counter("lease_ended") == 2
    third.ack(again)
    assert third.bodies() == "" and desk.counter("acknowledged") >= 1


def test_the_late_acknowledgement_of_what_is_ready_opens_a_gate(desk: LeasedDesk) -> None:
    """Nobody has it, and it was the last one before the barrier."""
    desk.queue(x_lease_period=500, **BARRIER)
    desk.publish(FIRST, SYNC, numbered(2))
    got = desk.must_get()
    waiter = desk.other().subscribe(qos=5, x_filter="/n > 1 OR /sync IS NOT NULL")
    desk.advance_ms(500)
    assert waiter.bodies() == ""
    desk.ack(got)
    assert waiter.bodies() == SYNC + numbered(2)
