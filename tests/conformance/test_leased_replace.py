"""Leased queues, in virtual time: a consumer subscribes again under its tag. Source: queues page A.2 (replace), G.A."""

from __future__ import annotations

from typing import Any

import pytest
from desk import GETS, C, Refused
from leased_desk import BARRIER, SYNC, LeasedDesk, one


def consume(desk: LeasedDesk, *, queue: str = "q", no_ack: bool = False, **arguments: Any) -> Any:
    """basic.consume under the tag `t`; the answer."""
    return desk._call(GETS, C.Basic.Consume, queue=queue, consumer_tag="t", no_ack=no_ack, arguments=arguments)


def test_a73(desk: LeasedDesk) -> None:
    """Queues page, row A73: what is leased stays; from then on the new filter alone; without x-replace 530."""
    desk.queue()
    desk.subscribe(qos=10, x_filter="/t = 'a'")
    desk.publish(*('{"t": "a"}' for _ in range(3)), '{"t": "b"}')
    leased = desk.taken()
    assert len(leased) == 3
    assert isinstance(consume(desk, **{"x-filter": "/t = 'b'", "x-replace": True}).frame, C.Basic.ConsumeOk)
    assert one(desk).body == '{"t": "b"}'
    assert desk.counts() == (0, 4, 0) and desk._facts("q")["consumers"] == 1
    desk.publish('{"t": "a"}', '{"t": "b"}')
    assert desk.bodies() == '{"t": "b"}'
    for got in leased:
        desk.ack(got)
    assert desk.counts() == (1, 2, 0)
    answer = consume(desk, **{"x-filter": "/t = 'a'"}).frame
    assert (type(answer), answer.reply_code) == (C.Connection.Close, 530)


@pytest.mark.parametrize("before", [{}, {"x-filter": "/t = 1"}])
@pytest.mark.parametrize("after", [{}, {"x-filter": "/t = 2"}])
def test_with_and_without_filters(desk: LeasedDesk, before: dict[str, str], after: dict[str, str]) -> None:
    """A filter comes, goes, changes; others are not concerned."""
    desk.queue(x_fairness="fast")
    desk.subscribe(qos=10, **before)
    other = desk.other().subscribe(qos=10, x_filter="/t = 3")
    consume(desk, **{"x-replace": True}, **after)
    desk.publish(*(f'{{"t": {number}}}' for number in (1, 2, 3)))
    assert desk.bodies() == ('{"t": 2}' if after else '{"t": 1}{"t": 2}{"t": 3}')
    assert other.bodies() == ('{"t": 3}' if after else "")


def test_another_backlog(desk: LeasedDesk) -> None:
    """More, none but barriers, and less: what is leased beyond it stays, too."""
    desk.queue(**BARRIER)
    desk.subscribe(x_max_backlog=1)
    desk.publish(*"abcd")
    first = one(desk)
    consume(desk, **{"x-replace": True, "x-max-backlog": 3})
    assert desk.bodies() == "bc"
    consume(desk, **{"x-replace": True, "x-max-backlog": 0})
    desk.ack(first)
    assert desk.bodies() == "" and desk.counts() == (1, 2, 0)
    desk.ack(2)
    desk.ack(3)
    assert desk.bodies() == ""
    consume(desk, **{"x-replace": True, "x-max-backlog": 1})
    assert desk.bodies() == "d"
    desk.publish(SYNC)
    consume(desk, **{"x-replace": True, "x-max-backlog": 0})
    desk.ack(4)
    assert desk.bodies() == SYNC


def test_another_priority(desk: LeasedDesk) -> None:
    """It is ahead of those of a lower one, or no longer."""
    desk.queue(x_fairness="fast")
    first = desk.other().subscribe(qos=5)
    desk.subscribe(qos=1)
    consume(desk, **{"x-replace": True, "x-priority": 1})
    desk.publish("a", "b")
    got = one(desk)
    assert (got.body, first.bodies()) == ("a", "b")
    consume(desk, **{"x-replace": True})
    desk.ack(got)
    desk.publish("c")
    assert (desk.bodies(), first.bodies()) == ("", "c")


def test_a_tag_that_is_not_in_use(desk: LeasedDesk) -> None:
    """It is a subscription as any other."""
    desk.queue()
    consume(desk, **{"x-replace": True})
    desk.publish("a")
    assert desk.bodies() == "a"


@pytest.mark.parametrize(
    ("fields", "arguments"),
    [
        ({"no_ack": True}, {}),
        ({}, {"x-browse": True}),
        ({}, {"x-bookmark": "0"}),
        ({}, {"x-max-backlog": -1}),
        ({}, {"x-filter": "/t ="}),
    ],
)
def test_what_cannot_be_replaced(desk: LeasedDesk, fields: dict[str, Any], arguments: dict[str, Any]) -> None:
    """406, and the channel is closed with its consumers."""
    desk.queue()
    desk.subscribe()
    with pytest.raises(Refused, match="406"):
        consume(desk, **fields, **{"x-replace": True}, **arguments)
    assert desk._facts("q")["consumers"] == 0


@pytest.mark.parametrize("queue", ["plain", "other"])
def test_consumers_of_other_queues(desk: LeasedDesk, queue: str) -> None:
    """530, as ever: another leased queue, or one that is none."""
    desk.queue()
    desk.queue("other")
    desk.declare("plain")
    desk.subscribe("plain" if queue == "plain" else "q")
    answer = consume(desk, queue=queue, **{"x-replace": True}).frame
    assert (type(answer), answer.reply_code) == (C.Connection.Close, 530)
