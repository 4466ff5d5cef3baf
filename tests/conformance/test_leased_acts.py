"""Each act on a delivery of a leased queue, in each of its semantics, in virtual time. Source: queues page A.5.1."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from desk import GETS, C, Refused
from leased_desk import DLX, LeasedDesk

AT_LEAST_ONCE, AT_MOST_ONCE = "at-least-once", "at-most-once"
BOTH = pytest.mark.parametrize("semantics", [AT_LEAST_ONCE, AT_MOST_ONCE])
#: What became of the message: it may be delivered again, it is acknowledged, it is a dead letter.
AGAIN, GONE, DEAD = "again", "gone", "dead"

#: Something that is done to the delivery under tag 1.
Act = Callable[[LeasedDesk], object]


def holding(semantics: str, *, no_ack: bool = False, **arguments: object) -> LeasedDesk:
    """A client that consumes with room for one, and has a message `m` under tag 1."""
    desk = LeasedDesk()
    desk.queue(x_semantics=semantics, x_max_backlog_per_consumer=1, **DLX, **arguments)
    desk.subscribe(no_ack=no_ack)
    desk.publish("m")
    assert [(got.tag, got.body) for got in desk.taken()] == [(1, "m")]
    return desk


def outcome(desk: LeasedDesk) -> str:
    """What became of `m`. All places of the backlog are free but that of a second delivery."""
    ready, unacked, _ = desk.counts()
    again = desk.bodies()
    dead = [got.body for got in desk.dead()]
    assert again in ("", "m") and dead in ([], ["m"]) and unacked == len(again)
    return AGAIN if again or ready else DEAD if dead else GONE


def reject(desk: LeasedDesk, *, requeue: bool) -> None:
    """basic.reject of tag 1."""
    desk._call(GETS, C.Basic.Reject, delivery_tag=1, requeue=requeue)


ACTS: dict[str, tuple[Act, str]] = {
    "ack": (lambda desk: desk.ack(1), GONE),
    "nack": (lambda desk: desk.nack(1), AGAIN),
    "nack for good": (lambda desk: desk.nack(1, requeue=False), DEAD),
    "reject": (lambda desk: reject(desk, requeue=True), AGAIN),
    "reject for good": (lambda desk: reject(desk, requeue=False), DEAD),
}


@BOTH
@pytest.mark.parametrize("name", ACTS)
def test_acts(semantics: str, name: str) -> None:
    """At most once, each frees a place in the backlog and does no more (queues page A.5.1)."""
    act, expected = ACTS[name]
    desk = holding(semantics)
    act(desk)
    assert outcome(desk) == (expected if semantics == AT_LEAST_ONCE else GONE)
    with pytest.raises(Refused, match="406.*unknown delivery tag 1"):
        act(desk)


@BOTH
@pytest.mark.parametrize("name", ACTS)
def test_acts_without_acknowledgements(semantics: str, name: str) -> None:
    """There is no such tag (queues page A.5.1)."""
    desk = holding(semantics, no_ack=True)
    with pytest.raises(Refused, match="406.*unknown delivery tag 1"):
        ACTS[name][0](desk)
    assert outcome(desk) == GONE


@BOTH
@pytest.mark.parametrize("no_ack", [False, True])
def test_recovering(semantics: str, no_ack: bool) -> None:
    """As a nack of everything that the channel has; what is gone stays so (queues page A.5.1)."""
    desk = holding(semantics, no_ack=no_ack, x_cancel_limit=2)
    desk.recover()
    assert outcome(desk) == (AGAIN if semantics == AT_LEAST_ONCE and not no_ack else GONE)
    if semantics == AT_LEAST_ONCE and not no_ack:
        desk.recover()
        assert desk.reasons() == ["max_cancels"]


@BOTH
@pytest.mark.parametrize("no_ack", [False, True])
def test_recovering_without_requeueing(semantics: str, no_ack: bool) -> None:
    """540 (queues page A.5.1)."""
    desk = holding(semantics, no_ack=no_ack)
    answer = desk._call(GETS, C.Basic.Recover, requeue=False).frame
    assert (type(answer), answer.reply_code) == (C.Connection.Close, 540)


@BOTH
@pytest.mark.parametrize("end", [LeasedDesk.cancel, LeasedDesk.reopen_channel, LeasedDesk.drop])
@pytest.mark.parametrize("no_ack", [False, True])
def test_ends_of_consumers(semantics: str, end: Act, no_ack: bool) -> None:
    """Leases end and count as deliveries, not as cancels; at most once, the message is lost (queues page A.5.1)."""
    desk = holding(semantics, no_ack=no_ack, x_cancel_limit=1)
    other = desk.other()
    end(desk)
    assert other.counts()[1] == 0
    other.subscribe()
    if semantics == AT_LEAST_ONCE and not no_ack:
        (got,) = other.taken()
        assert (got.headers["x-delivery-count"], got.headers["x-cancel-count"]) == (2, 0)
    assert other.dead() == []
    other.publish("n")
    assert other.counts()[0] == (semantics == AT_LEAST_ONCE and not no_ack)


@BOTH
@pytest.mark.parametrize("no_ack", [False, True])
def test_the_end_of_the_lease_period(semantics: str, no_ack: bool) -> None:
    """The lease ends; at most once, the place is free (queues page A.5.1)."""
    desk = holding(semantics, no_ack=no_ack, x_lease_period=500)
    desk.publish("n")
    assert desk.bodies() == ("n" if no_ack else "")
    desk.advance_ms(500)
    assert desk.bodies() == ("" if no_ack else "m" if semantics == AT_LEAST_ONCE else "n")


@BOTH
@pytest.mark.parametrize("no_ack", [False, True])
def test_lifetimes(semantics: str, no_ack: bool) -> None:
    """What is leased expires, too; what is gone does not (queues page A.5.1)."""
    desk = holding(semantics, no_ack=no_ack, x_message_ttl=1000)
    desk.publish("n")
    seen = desk.bodies()
    desk.advance_ms(1000)
    expired = "".join(sorted(got.body for got in desk.dead()))
    assert (seen, expired) == {
        (AT_LEAST_ONCE, False): ("", "mn"),
        (AT_MOST_ONCE, False): ("", "n"),
        (AT_LEAST_ONCE, True): ("n", ""),
        (AT_MOST_ONCE, True): ("n", ""),
    }[semantics, no_ack]


@BOTH
@pytest.mark.parametrize("name", ACTS)
def test_acts_in_a_transaction(semantics: str, name: str) -> None:
    """They take effect at the commit; a rollback takes them back, and the lease goes on (queues page A.5.1)."""
    act, expected = ACTS[name]
    desk = LeasedDesk()
    desk.queue(x_semantics=semantics, x_max_backlog_per_consumer=1, **DLX)
    desk.select()
    desk.subscribe()
    desk.publish("m")
    assert desk.bodies() == "m"
    act(desk)
    assert desk.counts()[1] == 1 and desk.dead() == []
    desk.roll_back()
    assert desk.counts()[1] == 1
    act(desk)
    desk.commit()
    assert outcome(desk) == (expected if semantics == AT_LEAST_ONCE else GONE)
