"""Ring queues, redelivery and dead-letter addresses by queue arguments, in virtual time.

Names are the rows of address-settings page 8.3 to 8.5; rows that need address-settings, restarts or other features wait
for them.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pair import Pair, Peer, method, publish
from pamqp import commands

from leveret.engine.redelivery import redelivery_delay_ms
from leveret.engine.rules import QueueRules

C = commands
NEVER = 10**9


class Desk:
    """A broker on virtual time, one connection, and the queue `q`."""

    def __init__(self, **arguments: Any) -> None:
        self.pair = Pair()
        self.peer = self.pair.open(channels=2)
        self.declare("q", **arguments)

    def declare(self, queue: str, **arguments: Any) -> Any:
        """queue.declare with underscores for dashes; what came back."""
        table = {key.replace("_", "-"): value for key, value in arguments.items()}
        return self.peer.call(1, C.Queue.Declare, queue=queue, arguments=table)

    def publish(self, *bodies: str, **properties: Any) -> None:
        """Each body in a read of its own."""
        for body in bodies:
            self.peer.send(publish(1, "q", body.encode(), **properties))

    def get(self, queue: str = "q", *, peer: Peer | None = None, no_ack: bool = False) -> Any:
        """The next message, unacknowledged, or None."""
        peer = peer or self.peer
        peer.send(method(1, C.Basic.Get, queue=queue, no_ack=no_ack))
        if isinstance(peer.received[0].frame, C.Basic.GetEmpty):
            peer.expect(C.Basic.GetEmpty)
            return None
        return peer.expect_content(C.Basic.GetOk)

    def all(self, queue: str = "q") -> str:
        """Bodies of everything ready, joined; they are gone then."""
        return "".join(iter(lambda: (got := self.get(queue, no_ack=True)) and got.body.decode(), None))

    def nack(self, got: Any, *, multiple: bool = False, requeue: bool = True) -> None:
        """basic.nack of what `get` returned."""
        tag = got if isinstance(got, int) else got.frame.delivery_tag
        self.peer.send(method(1, C.Basic.Nack, delivery_tag=tag, multiple=multiple, requeue=requeue))

    def counts(self) -> tuple[int, int, int]:
        """(ready, unacked, scheduled)."""
        statistics = self.pair.broker.virtual_hosts["/"].queues["q"].statistics()
        return statistics.ready, statistics.unacked, statistics.scheduled

    def counter(self, name: str) -> int:
        """One of the queue's counters."""
        return int(self.pair.broker.virtual_hosts["/"].queues["q"].counters.as_dict()[name])

    def advance_ms(self, ms: float) -> None:
        """Virtual time."""
        self.pair.advance(ms / 1000)


# -- 8.3 ring -------------------------------------------------------------------------------------------------------


def test_r01_the_newest_stay() -> None:
    """Ring 3: A B C D leaves B C D."""
    desk = Desk(x_ring_size=3)
    desk.publish(*"ABCD")
    assert desk.all() == "BCD"
    assert desk.counter("replaced") == 1


def test_r01_in_one_run() -> None:
    """The same when all of them come in one read, more than the ring holds."""
    desk = Desk(x_ring_size=3)
    desk.publish("0")
    desk.peer.send(b"".join(publish(1, "q", b"%d" % digit) for digit in range(1, 10)))
    assert (desk.all(), desk.counter("replaced"), desk.counter("enqueued")) == ("789", 7, 10)


def test_r02_ring_of_one() -> None:
    """Always the second of two."""
    desk = Desk(x_ring_size=1)
    for _ in range(50):
        desk.publish("x", "y")
        assert desk.all() == "y"
    assert desk.counter("replaced") == 50


@pytest.fixture
def held() -> Iterator[Desk]:
    """R03: ring 3, A B C D delivered and unacknowledged, the consumer cancelled."""
    desk = Desk(x_ring_size=3)
    desk.peer.call(1, C.Basic.Consume, queue="q", consumer_tag="t")
    desk.publish(*"ABCD")
    assert [received.body for received in desk.peer.take()] == [b"A", b"B", b"C", b"D"]
    assert (desk.counts(), desk.counter("replaced")) == ((0, 4, 0), 0)
    desk.peer.call(1, C.Basic.Cancel, consumer_tag="t")
    yield desk


def test_r05_return_of_all(held: Desk) -> None:
    """One nack for all of them: the oldest has no room."""
    held.nack(4, multiple=True)
    assert (held.all(), held.counter("replaced")) == ("BCD", 1)


@pytest.mark.parametrize("order", [(4, 3, 2, 1), (1, 2, 3, 4)], ids=["r06", "r07"])
def test_r06_r07_return_one_by_one(held: Desk, order: tuple[int, ...]) -> None:
    """Whatever the order, the newest stay."""
    for tag in order:
        held.nack(tag)
    assert (held.all(), held.counter("replaced")) == ("BCD", 1)


def test_seed_the_channel_closes(held: Desk) -> None:
    """The seed's case: all four come back, B C D are kept, A is dropped."""
    held.peer.call(1, C.Channel.Close, reply_code=200, reply_text="", class_id=0, method_id=0)
    held.peer.call(1, C.Channel.Open)
    assert held.all() == "BCD"


def test_r09_what_is_out_is_not_evicted() -> None:
    """A unacked; D fits, E evicts B; the ack of A is accepted."""
    desk = Desk(x_ring_size=3)
    desk.publish(*"ABC")
    got = desk.get()
    desk.publish("D", "E")
    desk.peer.send(method(1, C.Basic.Ack, delivery_tag=got.frame.delivery_tag))
    assert (desk.all(), desk.counter("replaced"), desk.counter("acknowledged")) == ("CDE", 1, 4)


def test_r10_a_full_ring_lets_nobody_wait() -> None:
    """With a delay set, a return to a full ring is dropped at once."""
    desk = Desk(x_ring_size=3, x_redelivery_delay=60000)
    desk.publish("A")
    got = desk.get()
    desk.publish(*"BCD")
    desk.nack(got)
    assert (desk.counts(), desk.counter("replaced")) == ((3, 0, 0), 1)


def test_r11_tested_again_when_due() -> None:
    """There was room at the nack, there is none when due."""
    desk = Desk(x_ring_size=3, x_redelivery_delay=500)
    desk.publish("A")
    got = desk.get()
    desk.publish("B")
    desk.nack(got)
    assert desk.counts() == (1, 0, 1)
    desk.publish("C", "D")
    assert desk.counts() == (3, 0, 1)
    desk.advance_ms(700)
    assert (desk.all(), desk.counter("replaced")) == ("BCD", 1)


def test_r17_priorities_lose_their_head() -> None:
    """The head is the oldest of the highest level, even if that is the newcomer."""
    desk = Desk(x_ring_size=2, x_max_priority=10)
    desk.publish("A", "B", priority=1)
    desk.publish("C", priority=9)
    assert (desk.all(), desk.counter("replaced")) == ("AB", 1)


def test_r18_the_evicted_leave_no_dead_letter() -> None:
    """A ring replaces; it does not kill."""
    desk = Desk(x_ring_size=2, x_dead_letter_exchange="amq.fanout")
    desk.declare("dead")
    desk.peer.call(1, C.Queue.Bind, queue="dead", exchange="amq.fanout")
    desk.publish(*"ABC")
    assert (desk.all("dead"), desk.counter("replaced")) == ("", 1)


def test_r25_many_producers() -> None:
    """25 connections with 25 publishes each: exactly 25 stay."""
    desk = Desk(x_ring_size=25)
    peers = [desk.pair.open() for _ in range(25)]
    for _ in range(25):
        for peer in peers:
            peer.send(publish(1, "q", b"x"))
    assert desk.counts() == (25, 0, 0)


def test_r26_the_expired_go_first() -> None:
    """A expired before D came: nobody is evicted."""
    desk = Desk(x_ring_size=3)
    desk.publish("A", expiration="50")
    desk.publish("B", "C")
    desk.advance_ms(200)
    desk.publish("D")
    assert (desk.all(), desk.counter("expired"), desk.counter("replaced")) == ("BCD", 1, 0)


def test_r27_transactions_apply_at_commit() -> None:
    """Nothing before, the newest after."""
    desk = Desk(x_ring_size=2)
    desk.peer.call(1, C.Tx.Select)
    desk.publish(*"ABC")
    assert desk.counts() == (0, 0, 0)
    desk.peer.call(1, C.Tx.Commit)
    assert desk.all() == "BC"


def test_r29_a_busy_consumer_gets_the_newest() -> None:
    """Prefetch 1, ring 1: A is out, C replaced B, and comes after the ack."""
    desk = Desk(x_ring_size=1)
    desk.peer.call(1, C.Basic.Qos, prefetch_count=1)
    desk.peer.call(1, C.Basic.Consume, queue="q", consumer_tag="t")
    desk.publish(*"ABC")
    assert desk.peer.expect_content(C.Basic.Deliver).body == b"A"
    assert desk.counts() == (1, 1, 0)
    desk.peer.send(method(1, C.Basic.Ack, delivery_tag=1))
    assert desk.peer.expect_content(C.Basic.Deliver).body == b"C"


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
        {"x_redelivery_delay_multiplier": 0},
        {"x_redelivery_delay_multiplier": -1.5},
        {"x_redelivery_delay_multiplier": "2"},
        {"x_redelivery_collision_avoidance_factor": 1.5},
        {"x_max_delivery_attempts": 0},
    ],
    ids=str,
)
def test_r30_impossible_arguments_are_refused(arguments: dict[str, Any]) -> None:
    """406, naming the argument."""
    close = Desk().declare("r", **arguments)
    assert close.reply_code == 406
    assert "invalid arg 'x-" in close.reply_text


# -- 8.4 redelivery -------------------------------------------------------------------------------------------------


def test_d01_only_the_returned_message_waits() -> None:
    """Not before 300 ms, redelivered; others are delivered meanwhile."""
    desk = Desk(x_redelivery_delay=300)
    desk.publish("A", "B")
    desk.nack(desk.get())
    assert desk.get(no_ack=True).body == b"B"
    desk.advance_ms(299)
    assert desk.get() is None
    desk.advance_ms(1)
    got = desk.get()
    assert (got.body, got.frame.redelivered, got.properties.headers["x-delivery-count"]) == (b"A", True, 1)


@pytest.mark.parametrize(
    "arguments, waits",
    [
        ({"x_redelivery_delay": 100, "x_redelivery_delay_multiplier": 3}, [100, 300, 900, 1000]),
        (
            {"x_redelivery_delay": 200, "x_redelivery_delay_multiplier": 2.0, "x_max_redelivery_delay": 500},
            [200, 400, 500, 500],
        ),
    ],
    ids=["d02", "d03"],
)
def test_d02_d03_waits_grow_to_the_cap(arguments: dict[str, Any], waits: list[int]) -> None:
    """delay x multiplier^(n-1), at most the cap (ten times the delay when unset): exact to the millisecond."""
    desk = Desk(**arguments)
    desk.publish("A")
    for wait in waits:
        desk.nack(desk.get())
        desk.advance_ms(wait - 1)
        assert desk.counts() == (0, 0, 1)
        desk.advance_ms(1)
        assert desk.counts() == (1, 0, 0)


def test_d05_no_delay_is_immediate() -> None:
    """A multiplier without a delay does nothing."""
    desk = Desk(x_redelivery_delay_multiplier=5)
    desk.publish("A")
    desk.nack(desk.get())
    assert desk.counts() == (1, 0, 0)


def test_d07_a_clean_close_does_not_punish() -> None:
    """Five deliveries, channel closed: all at once again, redelivered, uncounted."""
    desk = Desk(x_redelivery_delay=30000, x_max_delivery_attempts=1)
    desk.publish(*"ABCDE")
    for _ in range(5):
        desk.get()
    desk.peer.call(1, C.Channel.Close, reply_code=200, reply_text="", class_id=0, method_id=0)
    desk.peer.call(1, C.Channel.Open)
    for body in b"ABCDE":
        got = desk.get()
        assert (got.body, got.frame.redelivered) == (bytes((body,)), True)
        assert not got.properties.headers


def test_d09_d10_a_lost_connection_counts_without_delay() -> None:
    """Attempts 2: back at once after the first loss, dead after the second."""
    desk = Desk(x_redelivery_delay=30000, x_max_delivery_attempts=2, x_dead_letter_address="dead")
    desk.declare("dead")
    desk.publish("A")
    for ready in (1, 0):
        other = desk.pair.open()
        assert desk.get(peer=other).body == b"A"
        other.hang_up()
        assert desk.counts() == (ready, 0, 0)
    assert desk.all("dead") == "A"


def test_d11_recover_waits_but_does_not_count() -> None:
    """recover-ok at once; all three after the delay, in order, without a count."""
    desk = Desk(x_redelivery_delay=300)
    desk.publish(*"ABC")
    for _ in range(3):
        desk.get()
    desk.peer.call(1, C.Basic.Recover, requeue=True)
    assert desk.counts() == (0, 0, 3)
    desk.advance_ms(300)
    got = [desk.get() for _ in range(3)]
    assert [one.body for one in got] == [b"A", b"B", b"C"]
    assert all(one.frame.redelivered and not one.properties.headers for one in got)


def test_d13_d14_positions() -> None:
    """Without a delay a message is back in its place; with one it returns there when due."""
    desk = Desk()
    desk.publish(*"12345")
    got = [desk.get() for _ in range(3)]
    desk.nack(got[1])
    assert desk.all() == "245"
    desk = Desk(x_redelivery_delay=200)
    desk.publish(*"12345")
    desk.nack(desk.get())
    assert desk.get(no_ack=True).body == b"2"
    desk.advance_ms(300)
    assert desk.all() == "1345"


def test_d15_many_keep_their_order() -> None:
    """500 in one nack: the same order after the delay."""
    desk = Desk(x_redelivery_delay=200)
    desk.peer.send(b"".join(publish(1, "q", b"%03d" % number) for number in range(500)))
    for _ in range(500):
        desk.get()
    desk.nack(0, multiple=True)
    desk.advance_ms(200)
    assert desk.all() == "".join(f"{number:03}" for number in range(500))


def test_d21_d23_scheduled_messages_are_there() -> None:
    """They keep if-empty from deleting, are not ready, and purge takes and counts them."""
    desk = Desk(x_redelivery_delay=60000)
    desk.publish("A", "B")
    desk.nack(desk.get())
    assert desk.peer.call(1, C.Queue.Declare, queue="q", passive=True).message_count == 1
    assert desk.all() == "B"
    assert desk.peer.call(2, C.Queue.Delete, queue="q", if_empty=True).reply_code == 406
    assert desk.peer.call(1, C.Queue.Purge, queue="q").message_count == 1
    assert desk.counts() == (0, 0, 0)
    assert desk.pair.broker.next_deadline_ns() is None


def test_d22_a_waiting_message_expires_on_time() -> None:
    """Not redelivered: the expiry target receives it at its time to live."""
    desk = Desk(x_redelivery_delay=200, x_message_ttl=100, x_expiry_address="dead")
    desk.declare("dead")
    desk.publish("A")
    desk.nack(desk.get())
    desk.advance_ms(99)
    assert desk.counts() == (0, 0, 1)
    desk.advance_ms(1)
    dead = desk.get("dead")
    assert dead.body == b"A"
    assert dead.properties.headers["_AMQ_ORIG_QUEUE"] == "q"
    assert dead.properties.headers["_AMQ_ACTUAL_EXPIRY"] == desk.pair.clock.wall_ms()


def test_d26_without_acks_nothing_comes_back() -> None:
    """no_ack, attempts 1, connection lost: gone, not dead-lettered."""
    desk = Desk(x_max_delivery_attempts=1, x_dead_letter_address="dead")
    desk.declare("dead")
    other = desk.pair.open()
    other.call(1, C.Basic.Consume, queue="q", no_ack=True)
    desk.publish("A")
    other.hang_up()
    assert (desk.counts(), desk.all("dead")) == ((0, 0, 0), "")


def test_d27_a_nack_in_a_transaction_waits_for_the_commit() -> None:
    """The delay starts at the commit."""
    desk = Desk(x_redelivery_delay=100)
    desk.publish("A")
    got = desk.get()
    desk.peer.call(1, C.Tx.Select)
    desk.nack(got)
    desk.advance_ms(300)
    assert desk.counts() == (0, 1, 0)
    desk.peer.call(1, C.Tx.Commit)
    desk.advance_ms(99)
    assert desk.counts() == (0, 0, 1)
    desk.advance_ms(1)
    assert desk.counts() == (1, 0, 0)


TABLE = [  # delay, multiplier, cap, waits for the failed deliveries 1 to 10 (address-settings page 5.1)
    (5000, 1.5, 50000, [5000, 7500, 11250, 16875, 25312, 37968, 50000, 50000, 50000, 50000]),
    (5000, 2, 15000, [5000, 10000, 15000, 15000, 15000, 15000, 15000, 15000, 15000, 15000]),
    (5000, 1.0, None, [5000] * 10),
    (1000, 2, None, [1000, 2000, 4000, 8000, 10000, 10000, 10000, 10000, 10000, 10000]),
    (100, 3, None, [100, 300, 900, 1000, 1000, 1000, 1000, 1000, 1000, 1000]),
    (1000, 10, None, [1000, 10000, 10000, 10000, 10000, 10000, 10000, 10000, 10000, 10000]),
    (500, 1.25, 2000, [500, 625, 781, 976, 1220, 1525, 1907, 2000, 2000, 2000]),
    (2000, 0.5, None, [2000, 1000, 500, 250, 125, 62, 31, 15, 7, 3]),
    (60000, 1, 50000, [50000] * 10),
    (1000, 2, 0, [0] * 10),
    (0, 5, 60000, [None] * 10),
]


@pytest.mark.parametrize("delay, multiplier, cap, waits", TABLE)
def test_the_formula(delay: int, multiplier: float, cap: int | None, waits: list[int | None]) -> None:
    """Every row of the table; n = 0 (released without counting) waits as n = 1."""
    rules = QueueRules(redelivery_delay_ms=delay, redelivery_delay_multiplier=multiplier, max_redelivery_delay_ms=cap)
    assert [redelivery_delay_ms(rules, attempts, 0.5) for attempts in range(1, 11)] == waits
    assert redelivery_delay_ms(rules, 0, 0.5) == waits[0]


@given(
    delay=st.integers(1, 10**9),
    multiplier=st.floats(0.01, 1e6),
    factor=st.floats(0, 1),
    attempts=st.integers(0, 10_000),
    chance=st.floats(0, 1, exclude_max=True),
)
def test_d06_jitter_stays_in_its_range(
    delay: int, multiplier: float, factor: float, attempts: int, chance: float
) -> None:
    """Between wait x (1 - f) and wait x (1 + f), never above the cap, never negative, however large the numbers."""
    cap = 10 * delay
    plain = QueueRules(
        redelivery_delay_ms=delay, redelivery_delay_multiplier=multiplier, max_redelivery_delay_ms=NEVER**2
    )
    jittered = QueueRules(
        redelivery_delay_ms=delay,
        redelivery_delay_multiplier=multiplier,
        redelivery_collision_avoidance_factor=factor,
    )
    base = redelivery_delay_ms(plain, attempts, 0.5)
    wait = redelivery_delay_ms(jittered, attempts, chance)
    assert base is not None and wait is not None
    assert 0 <= wait <= cap
    low, high = base * (1 - factor), base * (1 + factor)
    assert min(low, cap) - 1 - low * 1e-9 <= wait <= min(high, cap) + 1 + high * 1e-9


# -- 8.5 dead letters -----------------------------------------------------------------------------------------------


def test_l01_attempts_exhausted() -> None:
    """The copy tells where it came from and why it died."""
    desk = Desk(x_max_delivery_attempts=1, x_dead_letter_address="dead")
    desk.declare("dead")
    desk.publish("heyho")
    desk.nack(desk.get())
    assert desk.counts() == (0, 0, 0)
    dead = desk.get("dead")
    headers = dead.properties.headers
    assert (dead.body, dead.frame.redelivered) == (b"heyho", False)
    assert (headers["_AMQ_ORIG_QUEUE"], headers["_AMQ_ORIG_ADDRESS"]) == ("q", "q")
    assert isinstance(headers["_AMQ_ORIG_MESSAGE_ID"], int)
    assert headers["x-death"][0]["reason"] == "delivery_limit"
    assert desk.counter("killed") == 1


def test_l02_the_count_is_told() -> None:
    """x-delivery-count is absent, 1, 2; then the message is dead, and its copy starts anew."""
    desk = Desk(x_max_delivery_attempts=3, x_dead_letter_address="dead")
    desk.declare("dead")
    desk.publish("A")
    for count in (None, 1, 2):
        got = desk.get()
        assert (got.properties.headers or {}).get("x-delivery-count") == count
        desk.nack(got)
    assert "x-delivery-count" not in desk.get("dead").properties.headers


def test_l03_order_is_kept_each_round() -> None:
    """16 rounds of five messages, all nacked: in order each time, and in the end."""
    desk = Desk(x_max_delivery_attempts=16, x_dead_letter_address="dead")
    desk.declare("dead")
    desk.publish(*"01234")
    for _ in range(16):
        assert b"".join(desk.get().body for _ in range(5)) == b"01234"
        desk.nack(0, multiple=True)
    assert desk.all("dead") == "01234"


def test_l05_without_an_address_it_is_gone() -> None:
    """Counted as killed."""
    desk = Desk(x_max_delivery_attempts=1)
    desk.publish("A")
    desk.nack(desk.get())
    assert (desk.counts(), desk.counter("killed")) == ((0, 0, 0), 1)


@pytest.mark.parametrize("address", ["letters", "exchange:letters", "exchange:letters/key"])
def test_l06_an_exchange_as_address(address: str) -> None:
    """An exchange of that name comes before a queue of that name; each queue bound to it has a copy."""
    desk = Desk(x_max_delivery_attempts=1, x_dead_letter_address=address)
    desk.peer.call(1, C.Exchange.Declare, exchange="letters", exchange_type="fanout")
    for queue in ("letters", "other"):
        desk.declare(queue)
        desk.peer.call(1, C.Queue.Bind, queue=queue, exchange="letters")
    desk.publish("A")
    desk.nack(desk.get())
    copy = desk.get("letters")
    assert copy.body == b"A"
    assert (copy.frame.exchange, copy.frame.routing_key) == ("letters", "key" if address.endswith("key") else "q")
    assert desk.all("other") == "A"


def test_l07_properties_are_kept_but_expiration() -> None:
    """Headers, priority and delivery mode stay; the expiration is in the history."""
    desk = Desk(x_max_delivery_attempts=1, x_dead_letter_address="queue:dead")
    desk.declare("dead")
    desk.publish("A", expiration="60000", headers={"a": 1}, priority=4, delivery_mode=2)
    desk.nack(desk.get())
    properties = desk.get("dead").properties
    assert (properties.expiration, properties.priority, properties.delivery_mode) == (None, 4, 2)
    assert properties.headers["a"] == 1
    assert properties.headers["x-death"][0]["original-expiration"] == "60000"


def test_l14_a_queue_that_is_its_own_target_keeps_its_messages() -> None:
    """No loop and no duplicate: attempts are unlimited there."""
    desk = Desk(x_max_delivery_attempts=1, x_dead_letter_address="q")
    desk.publish("A")
    for _ in range(5):
        desk.nack(desk.get())
    assert desk.all() == "A"


def test_l15_refused_for_good_is_dead_at_once() -> None:
    """requeue=false on the first delivery."""
    desk = Desk(x_max_delivery_attempts=9, x_redelivery_delay=1000, x_dead_letter_address="dead")
    desk.declare("dead")
    desk.publish("A")
    desk.nack(desk.get(), requeue=False)
    assert desk.get("dead").properties.headers["x-death"][0]["reason"] == "rejected"


def test_a_delayed_message_holds_up_nobody() -> None:
    """Thousands of messages with mixed delays: each due exactly at its time."""
    desk = Desk(x_redelivery_delay=100, x_redelivery_delay_multiplier=2, x_max_redelivery_delay=NEVER)
    count = 2_000
    desk.peer.send(b"".join(publish(1, "q", b"%d" % number) for number in range(count)))
    tags = [desk.get().frame.delivery_tag for _ in range(count)]
    for index, tag in enumerate(tags):
        desk.advance_ms(index % 7)
        desk.nack(tag)
    queue = desk.pair.broker.virtual_hosts["/"].queues["q"]
    while (due_ns := queue.scheduled.next_ns()) is not None:
        before = len(queue.scheduled)
        desk.pair.advance((due_ns - desk.pair.clock.monotonic_ns()) / 1e9)
        assert len(queue.scheduled) < before
    assert desk.all() == "".join(str(number) for number in range(count))
