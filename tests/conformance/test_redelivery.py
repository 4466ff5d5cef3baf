"""Redelivery: the rows of address-settings page 8.4, by queue argument and by address-setting.

D17 to D20 restart the broker: they are with the journal.
"""

from collections.abc import Callable
from typing import Any

import pytest
from desk import Desk, Got, Make
from toml_text import settings

WAITS = [
    pytest.param({"redelivery_delay": 100, "redelivery_delay_multiplier": 3}, [100, 300, 900, 1000], id="d02"),
    pytest.param(
        {"redelivery_delay": 200, "redelivery_delay_multiplier": 2.0, "max_redelivery_delay": 500},
        [200, 400, 500, 500],
        id="d03",
    ),
    pytest.param(
        {"redelivery_delay": 600, "max_redelivery_delay": 500}, [500, 500], id="d04: the cap is for the first"
    ),
]


def test_d01_only_the_returned_message_waits(at: Make) -> None:
    """Not before 300 ms, redelivered; others are delivered meanwhile."""
    desk = at(x_redelivery_delay=300)
    desk.publish("A", "B")
    desk.nack(desk.must_get())
    assert desk.must_get().body == "B"
    desk.advance_ms(150)
    assert desk.get() is None
    desk.advance_ms(150)
    got = desk.must_get()
    assert (got.body, got.redelivered, got.headers["x-delivery-count"]) == ("A", True, 1)


@pytest.mark.parametrize("rule, waits", WAITS)
@pytest.mark.parametrize("is_argument", [True, False], ids=["by argument", "by setting"])
def test_d02_d03_waits_grow_to_the_cap(at: Make, rule: dict[str, Any], waits: list[int], is_argument: bool) -> None:
    """delay x multiplier^(n-1), at most the cap (ten times the delay when unset)."""
    if is_argument:
        desk = at(**{f"x_{key}": value for key, value in rule.items()})
    else:
        desk = at(settings(q={**rule, "max_delivery_attempts": -1}))
    desk.publish("A")
    for wait in waits:
        desk.nack(desk.must_get())
        desk.advance_ms(wait - 20)
        assert desk.counts() == (0, 0, 1)
        desk.advance_ms(20)
        assert desk.counts() == (1, 0, 0)


def test_d05_no_delay_is_immediate(at: Make) -> None:
    """A multiplier without a delay does nothing."""
    desk = at(x_redelivery_delay_multiplier=5)
    desk.publish("A")
    desk.nack(desk.must_get())
    assert desk.counts() == (1, 0, 0)


def test_d07_a_clean_close_does_not_punish(at: Make) -> None:
    """Five deliveries, channel closed: all at once again, redelivered, uncounted."""
    desk = at(x_redelivery_delay=30000, x_max_delivery_attempts=1)
    desk.publish(*"ABCDE")
    for _ in range(5):
        desk.must_get()
    desk.reopen_channel()
    for body in "ABCDE":
        got = desk.must_get()
        assert (got.body, got.redelivered) == (body, True)
        assert not got.headers


def test_d09_d10_a_lost_connection_counts_without_delay(at: Make) -> None:
    """Attempts 2: back at once after the first loss, dead after the second."""
    desk = at(x_redelivery_delay=30000, x_max_delivery_attempts=2, x_dead_letter_address="dead")
    desk.declare("dead")
    desk.publish("A")
    for ready in (1, 0):
        other = desk.other()
        assert other.must_get().body == "A"
        other.drop()
        assert desk.counts() == (ready, 0, 0)
    assert desk.all("dead") == "A"


def test_delay_on_connection_loss(at: Make) -> None:
    """The operator's other choice (address-settings page 7.1)."""
    desk = at(settings(broker={"delay_on_connection_loss": True}), x_redelivery_delay=30000)
    desk.publish("A")
    other = desk.other()
    other.must_get()
    other.drop()
    assert desk.counts() == (0, 0, 1)


def test_d11_recover_waits_but_does_not_count(at: Make) -> None:
    """recover-ok at once; all three after the delay, in order, without a count."""
    desk = at(x_redelivery_delay=300)
    desk.publish(*"ABC")
    for _ in range(3):
        desk.must_get()
    desk.recover()
    assert desk.counts() == (0, 0, 3)
    desk.advance_ms(300)
    got = [desk.must_get() for _ in range(3)]
    assert [one.body for one in got] == ["A", "B", "C"]
    assert all(one.redelivered and not one.headers for one in got)


def test_d13_d14_positions(at: Make) -> None:
    """Without a delay a message is back in its place; with one it returns there when due."""
    desk = at()
    desk.publish(*"12345")
    got = [desk.must_get() for _ in range(3)]
    desk.nack(got[1])
    assert desk.all() == "245"
    desk.declare("delayed", x_redelivery_delay=200)
    desk.publish(*"12345", key="delayed")
    desk.nack(desk.must_get("delayed"))
    assert desk.must_get("delayed").body == "2"
    desk.advance_ms(300)
    assert desk.all("delayed") == "1345"


def test_d15_many_keep_their_order(at: Make) -> None:
    """500 in one nack: the same order after the delay."""
    desk = at(x_redelivery_delay=200)
    desk.publish(*(f"{number:03}" for number in range(500)))
    for _ in range(500):
        desk.must_get()
    desk.nack(0, multiple=True)
    desk.advance_ms(200)
    assert desk.all() == "".join(f"{number:03}" for number in range(500))


@pytest.mark.parametrize("switch, uncounted", [("nack_counts", "nack"), ("reject_counts", "reject")])
def test_d16_what_counts_is_the_operators_choice(at: Make, switch: str, uncounted: str) -> None:
    """`nack-counts`, `reject-counts` (ruling 8): a return that does not count never uses attempts up."""
    desk = at(settings(broker={switch: False}), x_max_delivery_attempts=2)
    desk.publish("A")
    for _ in range(5):
        getattr(desk, uncounted)(desk.must_get(), requeue=True)
    assert desk.counts() == (1, 0, 0)
    other = "reject" if uncounted == "nack" else "nack"
    for _ in range(2):
        getattr(desk, other)(desk.must_get(), requeue=True)
    assert (desk.counts(), desk.counter("killed")) == ((0, 0, 0), 1)


def test_d16_the_profile_of_rabbitmq_4_3(at: Make) -> None:
    """There nack does not count, reject does."""
    desk = at(settings(broker={"profile": "rabbitmq-4.3"}), x_queue_type="quorum", x_max_delivery_attempts=2)
    desk.publish("A")
    for _ in range(3):
        desk.nack(desk.must_get())
    desk.reject(desk.must_get())
    assert desk.must_get().headers["x-delivery-count"] == 1


def test_d21_d23_scheduled_messages_are_there(at: Make) -> None:
    """They keep if-empty from deleting, are not ready, and purge takes and counts them."""
    from desk import Refused

    desk = at(x_redelivery_delay=60000)
    desk.publish("A", "B")
    desk.nack(desk.must_get())
    assert desk.declare(passive=True) == 1
    assert desk.all() == "B"
    assert (desk.declare(passive=True), desk.get()) == (0, None)
    with pytest.raises(Refused) as refused:
        desk.delete(if_empty=True)
    assert refused.value.code == 406
    assert desk.purge() == 1
    assert desk.counts() == (0, 0, 0)


def test_d22_a_waiting_message_expires_on_time(at: Make) -> None:
    """Not redelivered: the expiry target receives it at its time to live."""
    desk = at(x_redelivery_delay=400, x_message_ttl=200, x_expiry_address="dead")
    desk.declare("dead")
    desk.publish("A")
    desk.nack(desk.must_get())
    assert desk.counts() == (0, 0, 1)
    desk.advance_ms(200)
    dead = desk.must_get("dead")
    assert dead.body == "A"
    assert dead.headers["_AMQ_ORIG_QUEUE"] == "q"
    assert abs(dead.headers["_AMQ_ACTUAL_EXPIRY"] - desk.wall_ms) < 200


def test_d25_get_counts_like_consume(at: Make) -> None:
    """Two attempts by get, one by a consumer."""
    desk = at(x_max_delivery_attempts=3)
    desk.publish("A")
    desk.nack(desk.must_get())
    desk.nack(desk.must_get())
    desk.consume(prefetch=1)
    (got,) = desk.taken()
    assert got.headers["x-delivery-count"] == 2
    desk.nack(got)
    assert (desk.counts(), desk.counter("killed")) == ((0, 0, 0), 1)


def test_d26_without_acks_nothing_comes_back(at: Make) -> None:
    """no_ack, attempts 1, connection lost: gone, not dead-lettered."""
    desk = at(x_max_delivery_attempts=1, x_dead_letter_address="dead")
    desk.declare("dead")
    other = desk.other()
    other.consume(no_ack=True)
    desk.publish("A")
    assert len(other.taken()) == 1
    other.drop()
    assert (desk.counts(), desk.all("dead")) == ((0, 0, 0), "")


@pytest.mark.parametrize("settles", [Desk.ack, Desk.nack])
def test_a_rollback_is_no_attempt(settles: Callable[[Desk, Got], None], at: Make) -> None:
    """Nothing comes back, so nothing has failed; the nack that follows counts as the first."""
    desk = at(x_max_delivery_attempts=2, x_redelivery_delay=100)
    desk.publish("A")
    got = desk.must_get()
    desk.select()
    for _ in range(3):
        settles(desk, got)
        desk.roll_back()
    desk.advance_ms(300)
    assert desk.counts() == (0, 1, 0)
    desk.nack(got)
    desk.commit()
    desk.advance_ms(100)
    again = desk.must_get()
    assert (again.redelivered, again.headers["x-delivery-count"]) == (True, 1)


def test_d27_a_nack_in_a_transaction_waits_for_the_commit(at: Make) -> None:
    """The delay starts at the commit."""
    desk = at(x_redelivery_delay=100)
    desk.publish("A")
    got = desk.must_get()
    desk.select()
    desk.nack(got)
    desk.advance_ms(300)
    assert desk.counts() == (0, 1, 0)
    desk.commit()
    assert desk.counts() == (0, 0, 1)
    desk.advance_ms(100)
    assert desk.counts() == (1, 0, 0)


def test_d28_waits_of_the_moment_of_the_return(at: Make) -> None:
    """Address-settings page 3.8: a changed delay acts at the next return; who waits already keeps his due time."""
    desk = at(settings(q={"redelivery_delay": 300}))
    desk.publish("A", "B")
    desk.nack(desk.must_get())
    desk.reload(settings(q={"redelivery_delay": 100}))
    desk.nack(desk.must_get())
    desk.advance_ms(150)
    assert desk.counts() == (1, 0, 1)
    desk.advance_ms(150)
    assert desk.counts() == (2, 0, 0)


@pytest.mark.parametrize(
    "arguments, waits",
    [
        ({"x_delayed_retry_type": "all", "x_delayed_retry_min": 100}, [100, 200, 300]),
        ({"x_delayed_retry_type": "failed", "x_delayed_retry_min": 100, "x_delayed_retry_max": 150}, [100, 150, 150]),
        (
            {"x_delayed_retry_type": "all", "x_delayed_retry_min": 100, "x_delayed_retry_multiplier": 2},
            [100, 200, 400],
        ),
    ],
    ids=["linear", "capped", "lavinmq's multiplier"],
)
def test_delayed_retry_of_rabbitmq_4_3(at: Make, arguments: dict[str, Any], waits: list[int]) -> None:
    """x-delayed-retry-*: min x attempts, at most max; accepted on every queue."""
    desk = at(**arguments)
    desk.publish("A")
    for wait in waits:
        desk.nack(desk.must_get())
        desk.advance_ms(wait - 20)
        assert desk.counts() == (0, 0, 1)
        desk.advance_ms(20)
        assert desk.counts() == (1, 0, 0)


@pytest.mark.parametrize("kind, waiting", [("failed", 0), ("returned", 1), ("all", 1), ("disabled", 0)])
def test_delayed_retry_types(at: Make, kind: str, waiting: int) -> None:
    """A recover is a return that does not count."""
    desk = at(x_delayed_retry_type=kind, x_delayed_retry_min=1000)
    desk.publish("A")
    desk.must_get()
    desk.recover()
    assert desk.counts() == (1 - waiting, 0, waiting)


def test_operators_fire_cancel_and_reschedule(at: Make) -> None:
    """What waits is listed with its due time."""
    desk = at(x_redelivery_delay=60000)
    desk.publish(*"ABC")
    for _ in range(3):
        desk.nack(desk.must_get())
    listed = desk.command("scheduled", queue="q")
    assert [one["attempts"] for one in listed] == [1, 1, 1]
    assert all(59_000 <= one["due_in_ms"] <= 60_000 for one in listed)
    first, second, third = (one["id"] for one in sorted(listed, key=lambda one: int(one["id"])))
    desk.command("scheduled", action="fire", queue="q", id=second)
    assert desk.all() == "B"
    desk.command("scheduled", action="cancel", queue="q", id=first)
    desk.command("scheduled", action="reschedule", queue="q", id=third, delay=100)
    assert (desk.counts(), desk.counter("cancelled")) == ((0, 0, 1), 1)
    desk.advance_ms(100)
    assert desk.all() == "C"
