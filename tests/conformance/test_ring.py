"""Ring queues: the rows of address-settings page 8.3, and the scenarios of seed 000 (4.3).

R21 and R22 restart the broker: they are with the journal.
"""

from typing import Any

import pytest
from desk import Desk, Make, Refused
from toml_text import settings


def test_r01_the_newest_stay(at: Make) -> None:
    """Ring 3: A B C D leaves B C D."""
    desk = at(x_ring_size=3)
    assert desk.publish(*"ABCD", mandatory=True) == ["ack"] * 4  # an evicted message was taken all the same
    assert desk.all() == "BCD"
    assert desk.counter("replaced") == 1


def test_r02_ring_of_one(at: Make) -> None:
    """Always the second of two."""
    desk = at(x_ring_size=1)
    for _ in range(50):
        desk.publish("x", "y")
        assert desk.all() == "y"
    assert desk.counter("replaced") == 50


@pytest.fixture
def held(at: Make) -> Desk:
    """R03: ring 3, A B C D delivered and unacknowledged, the consumer cancelled."""
    desk = at(x_ring_size=3)
    desk.consume(prefetch=10)
    desk.publish(*"ABCD")
    assert [got.body for got in desk.taken()] == ["A", "B", "C", "D"]
    assert (desk.counts(), desk.counter("replaced")) == ((0, 4, 0), 0)
    assert desk.declare(passive=True) == 0
    desk.cancel()
    return desk


def test_r05_return_of_all(held: Desk) -> None:
    """One nack for all of them: the oldest has no room."""
    held.nack(4, multiple=True)
    assert (held.all(), held.counter("replaced")) == ("BCD", 1)


@pytest.mark.parametrize("order", [(4, 3, 2, 1), (1, 2, 3, 4), (2, 4, 1, 3)], ids=["r06", "r07", "r08"])
def test_r06_r07_return_one_by_one(held: Desk, order: tuple[int, ...]) -> None:
    """Whatever the order, the newest stay."""
    for tag in order:
        held.nack(tag)
    assert (held.all(), held.counter("replaced")) == ("BCD", 1)


def test_seed_a_rollback_returns_nothing(held: Desk) -> None:
    """AMQP's rollback undoes the acknowledgements: all four are out as before, and may be acknowledged again.

    Not as seed 000 has it, where a session's rollback gives back what it had.
    """
    held.select()
    for tag in (1, 2, 3, 4):
        held.ack(tag)
    held.roll_back()
    assert (held.counts(), held.counter("replaced")) == ((0, 4, 0), 0)
    held.ack(1)
    held.commit()
    assert held.counts() == (0, 3, 0)
    held.nack(4, multiple=True)
    held.commit()
    assert (held.all(), held.counter("replaced")) == ("BCD", 0)


def test_seed_what_comes_back_after_a_rollback(held: Desk) -> None:
    """The channel's end after it does: B C D are kept, A is dropped, as seed 000 says of the rollback itself."""
    held.select()
    for tag in (1, 2, 3, 4):
        held.ack(tag)
    held.roll_back()
    held.reopen_channel()
    assert (held.all(), held.counter("replaced")) == ("BCD", 1)


def test_seed_the_channel_closes(held: Desk) -> None:
    """The case of seed 000: all four come back, B C D are kept, A is dropped."""
    held.reopen_channel()
    assert (held.all(), held.counter("replaced")) == ("BCD", 1)


def test_seed_the_connection_is_lost(at: Make) -> None:
    """The same when nobody said goodbye."""
    desk = at(x_ring_size=3)
    other = desk.other()
    other.consume(prefetch=10)
    desk.publish(*"ABCD")
    assert len(other.taken()) == 4
    other.drop()
    assert (desk.all(), desk.counter("replaced")) == ("BCD", 1)


def test_who_takes_over_is_served_before_anything_is_dropped(at: Make) -> None:
    """The active consumer is lost: the next one has room for A, which is not ready then and does not count."""
    desk = at(x_ring_size=2, x_single_active_consumer=True)
    lost, next_one = desk.other(), desk.other()
    lost.consume(prefetch=10, tag="lost")
    next_one.consume(prefetch=1, tag="next")
    desk.publish(*"ABCD")
    assert len(lost.taken()) == 4
    lost.drop()
    assert [got.body for got in next_one.taken()] == ["A"]
    assert (desk.counts(), desk.counter("replaced")) == ((2, 1, 0), 1)


def test_seed_a_scheduled_message_comes_due(at: Make) -> None:
    """A for later, B C D now: four messages; when A is due it has no room."""
    desk = at(x_ring_size=3)
    desk.publish("A", headers={"_AMQ_SCHED_DELIVERY": desk.wall_ms + 300})
    desk.publish(*"BCD")
    assert desk.counts() == (3, 0, 1)
    desk.advance_ms(400)
    assert (desk.all(), desk.counter("replaced")) == ("BCD", 1)


def test_two_scheduled_into_a_ring_of_one(at: Make) -> None:
    """testScheduled: both wait, uncounted; once due, one of them stays."""
    desk = at(x_ring_size=1)
    desk.publish("A", "B", headers={"_AMQ_SCHED_DELIVERY": desk.wall_ms + 300})
    assert desk.counts() == (0, 0, 2)
    desk.advance_ms(400)
    assert (desk.counts(), desk.counter("replaced")) == ((1, 0, 0), 1)


def test_r09_what_is_out_is_not_evicted(at: Make) -> None:
    """A unacked; D fits, E evicts B; the ack of A is accepted."""
    desk = at(x_ring_size=3)
    desk.publish(*"ABC")
    got = desk.must_get()
    desk.publish("D", "E")
    desk.ack(got)
    assert (desk.all(), desk.counter("replaced"), desk.counter("acknowledged")) == ("CDE", 1, 4)


def test_r10_a_full_ring_lets_nobody_wait(at: Make) -> None:
    """With a delay set, a return to a full ring is dropped at once."""
    desk = at(x_ring_size=3, x_redelivery_delay=60000)
    desk.publish("A")
    got = desk.must_get()
    desk.publish(*"BCD")
    desk.nack(got)
    assert (desk.counts(), desk.counter("replaced")) == ((3, 0, 0), 1)


def test_r11_tested_again_when_due(at: Make) -> None:
    """There was room at the nack, there is none when due."""
    desk = at(x_ring_size=3, x_redelivery_delay=500)
    desk.publish("A")
    got = desk.must_get()
    desk.publish("B")
    desk.nack(got)
    assert desk.counts() == (1, 0, 1)
    desk.publish("C", "D")
    assert desk.counts() == (3, 0, 1)
    desk.advance_ms(700)
    assert (desk.all(), desk.counter("replaced")) == ("BCD", 1)


def test_r13_r14_r15_resized_while_it_runs(at: Make) -> None:
    """testUpdate: nothing is deleted at once; each publish drops one; larger rings grow."""
    desk = at()
    desk.publish(*"0123456789" * 2)
    desk.command("ring", queue="q", size=10)
    assert desk.counts() == (20, 0, 0)
    desk.publish("x")
    assert (desk.counts(), desk.counter("replaced")) == ((20, 0, 0), 1)
    for _ in range(15):
        desk.get(no_ack=True)
    desk.publish(*"12345")
    assert (desk.counts(), desk.counter("replaced")) == ((10, 0, 0), 1)
    desk.publish("6")
    assert (desk.counts(), desk.counter("replaced")) == ((10, 0, 0), 2)
    desk.command("ring", queue="q", size=5)
    for _ in range(6):
        desk.get(no_ack=True)
    desk.publish("7", "8")  # 4, 5, and then one too many
    assert (desk.counts(), desk.counter("replaced")) == ((5, 0, 0), 3)
    desk.command("ring", queue="q", size=10)
    desk.publish(*"12345", "6")
    assert (desk.counts(), desk.counter("replaced")) == ((10, 0, 0), 4)
    desk.command("ring", queue="q", size=-1)
    desk.publish(*"12345")
    assert (desk.counts(), desk.counter("replaced")) == ((15, 0, 0), 4)


def test_r17_priorities_lose_their_head(at: Make) -> None:
    """The head is the oldest of the highest level, even if that is the newcomer."""
    desk = at(x_ring_size=2, x_max_priority=10)
    desk.publish("A", "B", priority=1)
    desk.publish("C", priority=9)
    assert (desk.all(), desk.counter("replaced")) == ("AB", 1)


def test_r18_the_evicted_leave_no_dead_letter(at: Make) -> None:
    """A ring replaces; it does not kill."""
    desk = at(x_ring_size=2, x_dead_letter_exchange="amq.fanout")
    desk.declare("dead")
    desk.bind("dead", "amq.fanout")
    desk.publish(*"ABC")
    assert (desk.all("dead"), desk.counter("replaced")) == ("", 1)


def test_r19_nor_at_a_dead_letter_address(at: Make) -> None:
    """By wildcard, ring and address."""
    desk = at(settings(**{"#": {"dead_letter_address": "D"}, "q": {"default_ring_size": 2}}))
    desk.declare("D")
    desk.publish(*"ABC")
    assert (desk.all("D"), desk.counter("replaced")) == ("", 1)


def test_r23_non_destructive(at: Make) -> None:
    """Ring 1: acknowledged messages stay until the next one comes."""
    desk = at(x_ring_size=1, x_non_destructive=True)
    bodies = ""
    for published in ("A", "B", ""):
        if published:
            desk.publish(published)
        got = desk.must_get()
        desk.ack(got)
        bodies += got.body
    assert (bodies, desk.counts(), desk.counter("replaced")) == ("ABB", (1, 0, 0), 1)


def test_r24_a_held_message_of_a_non_destructive_ring(at: Make) -> None:
    """testNonDestructiveWithConsumerClose: coming back neither evicts nor duplicates; a late ack is accepted."""
    desk = at(x_ring_size=1, x_non_destructive=True)
    desk.publish("A")
    desk.must_get()
    desk.reopen_channel()
    assert (desk.counts(), desk.counter("replaced")) == ((1, 0, 0), 0)
    got = desk.must_get()
    desk.publish("B")
    desk.ack(got)
    assert (desk.counts(), desk.counter("replaced")) == ((1, 0, 0), 1)


def test_r25_many_producers(at: Make) -> None:
    """25 connections with 25 publishes each: exactly 25 stay."""
    desk = at(x_ring_size=25)
    others = [desk.other() for _ in range(25)]
    for _ in range(25):
        for other in others:
            other.publish("x")
    assert desk.counts() == (25, 0, 0)


def test_r26_the_expired_go_first(at: Make) -> None:
    """A expired before D came: nobody is evicted."""
    desk = at(x_ring_size=3)
    desk.publish("A", expiration="50")
    desk.publish("B", "C")
    desk.advance_ms(200)
    desk.publish("D")
    assert (desk.all(), desk.counter("expired"), desk.counter("replaced")) == ("BCD", 1, 0)


def test_r27_transactions_apply_at_commit(at: Make) -> None:
    """Nothing before, the newest after."""
    desk = at(x_ring_size=2)
    desk.select()
    desk.publish_in_transaction(*"ABC")
    assert desk.counts() == (0, 0, 0)
    desk.commit()
    assert desk.all() == "BC"


def test_r28_a_message_lives_on_in_other_queues(at: Make) -> None:
    """Rings are per queue: rule 12."""
    desk = at(x_ring_size=1)
    desk.declare("other")
    for queue in ("q", "other"):
        desk.bind(queue, "amq.fanout")
    desk.publish(*"AB", exchange="amq.fanout")
    assert (desk.all(), desk.all("other")) == ("B", "AB")


def test_r29_a_busy_consumer_gets_the_newest(at: Make) -> None:
    """Prefetch 1, ring 1: A is out, C replaced B, and comes after the ack."""
    desk = at(x_ring_size=1)
    desk.consume(prefetch=1)
    desk.publish(*"ABC")
    (first,) = desk.taken()
    assert (first.body, desk.counts()) == ("A", (1, 1, 0))
    desk.ack(first)
    assert [got.body for got in desk.taken()] == ["C"]


@pytest.mark.parametrize(
    "arguments",
    [
        {"x_ring_size": 3, "x_max_length": 3},
        {"x_ring_size": 3, "x_overflow": "reject-publish"},
        {"x_ring_size": 0},
        {"x_ring_size": -2},
        {"x_ring_size": "3"},
        {"x_dead_letter_address": "a", "x_dead_letter_exchange": "b"},
        {"x_redelivery_delay": -1},
        {"x_redelivery_delay": 100, "x_delayed_retry_type": "all"},
        {"x_redelivery_delay_multiplier": 0},
        {"x_redelivery_delay_multiplier": -1},
        {"x_redelivery_delay_multiplier": "2"},
        {"x_redelivery_collision_avoidance_factor": 1.5},
        {"x_max_delivery_attempts": 0},
        {"x_max_consumers": 0},
        {"x_last_value": "yes"},
        {"x_group_buckets": -2},
        {"x_delay_before_dispatch": "5s"},
        {"x_delayed_retry_type": "sometimes"},
        {"x_delayed_retry_min": -1},
    ],
    ids=str,
)
def test_r30_impossible_arguments_are_refused(at: Make, arguments: dict[str, Any]) -> None:
    """406, naming the argument."""
    desk = at()
    with pytest.raises(Refused) as refused:
        desk.declare("r", **arguments)
    assert refused.value.code == 406
    assert "invalid arg 'x-" in refused.value.text
    assert not desk.exists("r")


def test_r31_an_own_length_limit_beats_an_inherited_ring(at: Make) -> None:
    """x-max-length 5 where the address has a ring of 2: no ring, and the sixth goes to the dead-letter exchange."""
    desk = at(settings(**{"q": {"default_ring_size": 2}}), x_max_length=5, x_dead_letter_exchange="amq.fanout")
    desk.declare("dead")
    desk.bind("dead", "amq.fanout")
    desk.publish(*"123456")
    assert desk.counts() == (5, 0, 0)
    assert desk.must_get("dead").headers["x-death"][0]["reason"] == "maxlen"


def test_default_ring_size_is_for_new_queues(at: Make) -> None:
    """testDefaultAddressSetting; address-settings page 3.8: a changed default does not touch queues that exist."""
    desk = at(settings(**{"ring.#": {"default_ring_size": 2}}))
    desk.declare("ring.a")
    desk.reload(settings(**{"ring.#": {"default_ring_size": 1}}))
    desk.declare("ring.b")
    for queue in ("q", "ring.a", "ring.b"):
        desk.publish(*"ABC", key=queue)
    assert [desk.all(queue) for queue in ("q", "ring.a", "ring.b")] == ["ABC", "BC", "C"]
