"""What if: arrivals through the real engine, checked by hand. Without Spark."""

from __future__ import annotations

from typing import Any

import pytest

from leveret.pipeline.jobs import simulation
from leveret.pipeline.jobs.attempts import CLOSE, DISCARD, HOLD, LATE, LOSE, REQUEUE, Attempt, MessageEvent, attempts_of
from leveret.pipeline.jobs.simulation import DELETE, REMOVE, Arrival, Instant, Removal, Start

RING = '[[address-setting]]\nmatch = "q"\ndefault-ring-size = 500\n'
RETRY = '[[address-setting]]\nmatch = "q"\nredelivery-delay = {}\nmax-delivery-attempts = 3\n'
FAILS = Attempt(0, REQUEUE)
LEASED = {"x-queue-type": "amps", "x-lease-period": 100}
HELD = Attempt(0, HOLD)


def simulate(*given: Any, **more: Any) -> dict[str, int]:
    return simulation.simulate(*given, **more).counts


def at(*each_ms: int) -> list[Instant]:
    """Instant for one message each."""
    return [Instant(ms) for ms in each_ms]


def test_a_ring_of_500() -> None:
    """Of 2,000 that come while nobody consumes a ring keeps 500; then 100 are taken."""
    arrivals = [Arrival(ms) for ms in range(2000)]
    told = simulate("q", arrivals, at(*[2000] * 100), RING)
    assert (told["replaced"], told["acknowledged"], told["open"]) == (1500, 100, 400)
    told = simulate("q", arrivals, at(*[2000] * 100), "")
    assert (told["replaced"], told["acknowledged"], told["open"]) == (0, 100, 1900)


def test_room_waits_for_a_message() -> None:
    """Consumers that are ready take what comes, as long as it takes them."""
    arrivals = [Arrival(10, attempts=(Attempt(100),)), Arrival(20)]
    told = simulate("q", arrivals, at(0, 0), RING)
    assert (told["acknowledged"], told["open"]) == (2, 0)


@pytest.mark.parametrize("offers, acked, killed", [([0, 50, 150, 400], 1, 0), ([0, 50], 0, 0)])
def test_another_backoff(offers: list[int], acked: int, killed: int) -> None:
    """A message that fails twice needs three deliveries, and waits before each."""
    told = simulate("q", [Arrival(0, attempts=(FAILS, FAILS))], at(*offers), RETRY.format(100))
    assert (told["acknowledged"], told["killed"]) == (acked, killed)


def test_attempts_run_out() -> None:
    """With three attempts a message that fails thrice is dead."""
    told = simulate("q", [Arrival(0, attempts=(FAILS, FAILS, FAILS))], at(0, 1000, 2000, 3000), RETRY.format(10))
    assert (told["acknowledged"], told["killed"], told["open"]) == (0, 1, 0)


def test_a_start_of_the_broker() -> None:
    """What was out is back, and counted anew; consumers are gone with what they could have had; nothing returned."""
    attempts = (Attempt(0, HOLD, number=3), Attempt(0, REQUEUE, number=1), Attempt(5, number=2))
    told = simulate("q", [Arrival(0, attempts=attempts)], at(0, 20, 30), RETRY.format(1), starts=[Start(10)])
    assert (told["acknowledged"], told["killed"], told["requeued"]) == (1, 0, 1)
    told = simulate("q", [Arrival(20)], at(0), "", starts=[Start(10)])
    assert (told["acknowledged"], told["open"]) == (0, 1)
    late = (Attempt(15), Attempt(0, HOLD))
    told = simulate("q", [Arrival(0, attempts=late)], at(0, 12), "", starts=[Start(10)])
    assert (told["acknowledged"], told["open"]) == (0, 1)


def test_a_start_of_the_broker_with_leases() -> None:
    """Leases have ended: the end of one of before does not end the next one, and returns are counted anew."""
    leased = {"x-queue-type": "amps", "x-lease-period": 40, "x-cancel-limit": 2}
    held = (Attempt(0, HOLD, number=1), Attempt(30, number=1))
    told = simulate("q", [Arrival(0, attempts=held)], at(0, 20), "", declared=leased, starts=[Start(10)])
    assert (told["acknowledged"], told["requeued"]) == (1, 0)
    back = (Attempt(1, REQUEUE, number=1), Attempt(1, REQUEUE, number=1), Attempt(1, number=2))
    told = simulate("q", [Arrival(0, attempts=back)], at(0, 20, 30), "", declared=leased, starts=[Start(10)])
    assert (told["acknowledged"], told["killed"], told["requeued"]) == (1, 0, 2)


def test_leases_that_end_while_the_broker_is_down() -> None:
    """They count as no return and no failed delivery: the broker starts with the message in its place."""
    leased = {"x-queue-type": "amps", "x-lease-period": 40, "x-max-deliveries": 1}
    held = (Attempt(0, HOLD, number=1), Attempt(5, number=1))
    for last_ms, returned, acked, killed in ((10, 0, 1, 0), (60, 1, 0, 1)):
        start = Start(100, stopped_ms=last_ms)
        told = simulate("q", [Arrival(0, attempts=held)], at(0, 120), "", declared=leased, starts=[start])
        assert (told["requeued"], told["acknowledged"], told["killed"]) == (returned, acked, killed), last_ms


def test_expiry() -> None:
    """Messages expire as they did, unless they are taken."""
    arrivals = [Arrival(0, expiration_ms=100), Arrival(0, expiration_ms=100)]
    told = simulate("q", arrivals, at(50, 200), "")
    assert (told["expired"], told["acknowledged"]) == (1, 1)


def test_a_limited_length() -> None:
    """What a limit drops was in the queue, and is not any more."""
    told = simulate("q", [Arrival(ms) for ms in range(20)], at(30), "", declared={"x-max-length": 5})
    assert (told["enqueued"], told["dropped"], told["acknowledged"], told["open"]) == (20, 15, 1, 4)


def test_what_happens_at_once_is_in_order() -> None:
    """A message that comes back is taken again before a younger one, if it was recorded so."""
    arrivals = [Arrival(0, lsn=1, attempts=(Attempt(0, REQUEUE, lsn=4), HELD)), Arrival(0, lsn=2)]
    told = simulate("q", arrivals, [Instant(0, 3), Instant(0, 5)], "")
    assert (told["requeued"], told["acknowledged"], told["open"]) == (1, 0, 2)


def test_faulty_settings() -> None:
    """Are said, not guessed."""
    with pytest.raises(ValueError, match="default-ring-size"):
        simulate("q", (), (), RING.replace("500", '"many"'))


@pytest.mark.parametrize(
    "attempts, more, expected",
    [
        ((Attempt(50),), {}, {"acknowledged": 1}),
        ((Attempt(150),), {}, {"acknowledged": 1, "requeued": 1}),  # late, but nobody else had it
        ((HELD,), {}, {"acknowledged": 1, "requeued": 1}),  # the next delivery succeeds
        ((HELD, HELD), {"x-max-deliveries": 2}, {"killed": 1, "requeued": 2}),
        ((FAILS, FAILS), {"x-cancel-limit": 2}, {"killed": 1, "requeued": 2}),
        ((HELD, HELD), {"x-cancel-limit": 2}, {"acknowledged": 1, "requeued": 2}),  # no lease that ends is a cancel
        ((Attempt(10, CLOSE), Attempt(10, LOSE)), {"x-cancel-limit": 1}, {"acknowledged": 1, "requeued": 2}),
        ((Attempt(10, DISCARD),), {}, {"killed": 1}),
        ((Attempt(10, LATE, 50),), {}, {"acknowledged": 1, "requeued": 1}),
        ((Attempt(10, LATE, 150),), {}, {"acknowledged": 1, "requeued": 1}),
        ((HELD,), {"x-message-ttl": 50}, {"expired": 1}),
        ((HELD,), {"x-lease-period": 60_000}, {"open": 1}),
    ],
)
def test_leases(attempts: tuple[Attempt, ...], more: dict[str, object], expected: dict[str, int]) -> None:
    """A lease ends by its settings, and the message does as it did."""
    told = simulate(
        "q", [Arrival(0, attempts=attempts)], at(0, 200, 400), "", declared={**LEASED, **more}, until_ms=900
    )
    assert told == {**dict.fromkeys(told, 0), "enqueued": 1, **expected}


def test_other_settings_of_leases() -> None:
    """An entry of the configuration replaces what was declared; a policy adds to it; virtual hosts are told apart."""
    entry = '[[queue]]\nname = "q"\nvhost = "v"\ntype = "amps"\nlease-period = 5000\nqueue-filter = "1 = 2"\n'
    one, offers = [Arrival(0, attempts=(Attempt(150),))], at(0, 100)
    for settings, vhost, returns in ((entry, "v", 0), (entry, "/", 1), ("", "v", 1)):
        told = simulate("q", one, offers, settings, vhost=vhost, declared=LEASED, until_ms=9000)
        assert (told["acknowledged"], told["requeued"]) == (1, returns), (settings, vhost)
    policy = '[[policy]]\nname = "p"\npattern = "q"\ndefinition = { max-deliveries = 1 }\n'
    told = simulate("q", one, offers, policy, declared=LEASED, until_ms=9000)
    assert (told["acknowledged"], told["killed"]) == (0, 1)


@pytest.mark.parametrize(
    "moments, attempts",
    [
        ("0 enqueued, 5 delivered, 9 acked", (Attempt(4),)),
        ("5 delivered, 9 lease_ended nacked, 9 delivered, 20 acked", (Attempt(4, REQUEUE), Attempt(11))),
        ("5 delivered, 9 lease_ended deadline, 12 acked", (Attempt(7),)),  # too late, and it counted
        ("5 delivered, 9 lease_ended deadline, 9 delivered, 12 acked", (HELD, Attempt(3))),
        ("5 delivered, 9 lease_ended unsubscribed, 10 delivered", (Attempt(4, CLOSE), HELD)),
        ("5 delivered, 9 lease_ended unsubscribed, 12 acked", (Attempt(4, LATE, 7),)),
        (  # by the first consumer, which had lost its lease
            "5 delivered, 9 lease_ended deadline, 9 delivered, 11 lease_ended nacked, 12 acked",
            (HELD, Attempt(2, LATE, 3)),
        ),
        ("5 delivered, 9 requeued closed, 12 acked, 12 delivered", (Attempt(4, CLOSE), Attempt())),
        ("5 delivered, 9 lease_ended taken_over, 9 acked", (Attempt(4),)),
        (
            "5 delivered, 9 lease_ended taken_over, 11 delivered, 12 killed rejected",
            (Attempt(4, CLOSE), Attempt(1, DISCARD)),
        ),
        (
            "5 delivered, 9 requeued lost, 10 delivered, 11 killed delivery_limit",
            (Attempt(4, LOSE), Attempt(1, REQUEUE)),
        ),
        ("5 delivered, 9 scheduled nacked, 19 due, 20 delivered, 21 acked", (Attempt(4, REQUEUE), Attempt(1))),
        ("0 scheduled published, 3 due, 5 acked, 5 delivered", (Attempt(),)),  # at most once
        ("5 delivered, 9 lease_ended lifetime, 9 expired", (HELD,)),
        ("0 enqueued, 7 expired", ()),
    ],
)
def test_what_became_of_deliveries(moments: str, attempts: tuple[Attempt, ...]) -> None:
    """From the events of a message."""
    words = [moment.split() for moment in moments.split(", ")]
    assert attempts_of(MessageEvent(int(ms), kind, *reason) for ms, kind, *reason in words) == attempts


def test_what_is_due_at_the_end_is_delivered() -> None:
    """The recording has the delivery of a delayed message as its last event; there is no later step."""
    attempts = (Attempt(0, REQUEUE), Attempt(1))
    told = simulate("q", [Arrival(0, attempts=attempts)] * 6, at(*[0] * 6, *[99] * 6), RETRY.format(100), until_ms=101)
    assert (told["requeued"], told["acknowledged"], told["open"]) == (6, 6, 0)


def test_nothing_expires_after_the_end() -> None:
    """A consumer that is a little late is waited for; time is not."""
    arrivals = [Arrival(0, attempts=(Attempt(60),)), Arrival(0, expiration_ms=55)]
    told = simulate("q", arrivals, at(0), "", until_ms=50)
    assert (told["acknowledged"], told["expired"], told["open"]) == (1, 0, 1)


def test_a_queue_named_by_the_broker() -> None:
    """Is simulated as all others; clients may not give such a name."""
    assert simulate("amq.gen-7aJBCOK", [Arrival(0)], at(5), "")["acknowledged"] == 1


def test_arguments_that_no_queue_can_have() -> None:
    """Say which queue has them."""
    with pytest.raises(ValueError, match=r"the queue q \(/\) cannot be simulated: .*x-max-length"):
        simulate("q", (), (), "", declared={"x-max-length": -1})


def test_what_an_operator_removes() -> None:
    """Is removed then, if it is still there; a queue is deleted with all of its messages."""
    purged = [Arrival(ms, lsn=ms, removal=Removal(50, 50, REMOVE)) for ms in (1, 2, 3)]
    told = simulate("q", [*purged, Arrival(4)], at(10, 60, 70), "", until_ms=99)
    assert (told["acknowledged"], told["open"]) == (2, 0)
    late = (Attempt(70), Attempt(90))
    gone = [Arrival(ms, lsn=ms, attempts=late, removal=Removal(50, 50, DELETE)) for ms in (1, 2, 3)]
    told = simulate("q", [*gone, Arrival(60)], at(10, 60), RING, until_ms=200)
    assert (told["acknowledged"], told["requeued"], told["open"]) == (1, 0, 0)
