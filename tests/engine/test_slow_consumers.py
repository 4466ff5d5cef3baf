"""Consumers that are too slow: cancelled, their connections closed, or reported. Queues page E.1, E.6; address-settings
page 3.6.

In virtual time; over sockets: tests/server/test_slow_subscribers.py.
"""

from __future__ import annotations

from typing import Any

import pytest
from subscribers import Bench, topics

from leveret.engine import ConsumerCancelled, consumers
from leveret.engine.clients.slow_consumers import CANCELLED, CLOSED, REPORTED, SlowConsumer
from leveret.settings import entry

SLOW = {"abort_slow_consumer_after_ms": 2000, "abort_slow_consumer_check_period_ms": 500}
SLOW_ACK = {"abort_slow_ack_after_ms": 2000, "abort_slow_consumer_check_period_ms": 500}
RATE = {"slow_consumer_threshold": 10, "slow_consumer_check_period_s": 5}


class World:
    """A durable queue `q` with these settings, and what was found."""

    def __init__(self, **settings: Any) -> None:
        self.bench = Bench(entry("q", **settings))
        self.queue = self.bench.queue()
        self.found: list[SlowConsumer] = []
        self.bench.broker.context.slow_consumers.on_found = self.found.append
        self.deadlines = self.bench.broker.context.deadlines

    def consumer(self, name: str, *, prefetch: int = 5, no_ack: bool = False, selector: str = "") -> Consumer:
        return Consumer(self, name, prefetch=prefetch, no_ack=no_ack, selector=selector)

    def publish(self, count: int) -> None:
        self.bench.publish(*["x"] * count, exchange="", key="q", at_once=True)

    def advance(self, ms: int, step_ms: int = 100) -> None:
        for _ in range(ms // step_ms):
            self.bench.advance(step_ms)


class Consumer:
    """One client with a consumer."""

    def __init__(self, world: World, name: str, *, prefetch: int, no_ack: bool, selector: str) -> None:
        self.world = world
        self.got = 0
        self.is_cancelled = False
        self.reads = True
        self.session = world.bench.connect(name, flush=self._read)
        self.client = self.session.client
        arguments = {"x_selector": selector} if selector else {}
        world.bench.consume(world.queue, name, by=self.session, prefetch=prefetch, no_ack=no_ack, **arguments)
        world.bench.end_turn()

    def _read(self) -> None:
        bench = self.world.bench
        if self.reads:
            bench.read(self.client)
            assert all(isinstance(one, ConsumerCancelled) for one in bench.effects)
            self.got += len(bench.deliveries)
            self.is_cancelled = self.is_cancelled or bool(bench.effects)
            bench.deliveries.clear()
            bench.effects.clear()

    def ack(self, count: int = 1) -> None:
        """The oldest ones."""
        self.session.ack_each(list(self.session.unacked)[:count])
        self.world.bench.end_turn()


@pytest.mark.parametrize("before_ms", [0, 700, 1500])
def test_nobody_is_slow_in_a_paused_queue(before_ms: int) -> None:
    """It is given nothing; when the queue goes on its time begins anew, however long it was looked at before."""
    world = World(**SLOW)
    slow = world.consumer("slow")
    world.publish(20)
    world.advance(before_ms)
    consumers.pause(world.queue, True)
    world.advance(10_000)
    assert world.found == []
    consumers.pause(world.queue, False)
    world.advance(1900)
    assert world.found == []
    world.advance(1100)
    assert slow.is_cancelled


def test_all_that_are_too_slow_are_found_at_once() -> None:
    """However many came since the last look."""
    world = World(**SLOW)
    alone = [world.consumer("alone")]
    world.publish(20)
    world.advance(3000)
    assert [one.is_cancelled for one in alone] == [True]
    many = [world.consumer(f"{number}", prefetch=1) for number in range(4)]
    world.advance(3000)
    assert [one.is_cancelled for one in many] == [True] * 4


def test_what_it_acknowledges_within_a_second_is_settled() -> None:
    """Queues page E.6."""
    world = World(**SLOW)
    slow = world.consumer("slow")
    world.publish(20)
    world.advance(2500)
    assert slow.is_cancelled
    slow.ack(2)
    world.advance(1000)
    assert (world.queue.ready_count, world.queue.unacked) == (18, 0)


def test_a_consumer_that_gets_on_is_not_slow() -> None:
    """Its prefetch is always used up and messages always wait, and it takes one every now and then."""
    world = World(**SLOW)
    steady = world.consumer("steady", prefetch=1)
    world.publish(20)
    for _ in range(10):
        world.advance(1500)
        steady.ack()
    assert world.found == []


@pytest.mark.parametrize("waiting", [0, 5])
def test_a_consumer_with_nothing_waiting_is_not_slow(waiting: int) -> None:
    """However long it keeps what it has."""
    world = World(**SLOW)
    world.consumer("idle")
    world.publish(waiting)
    world.advance(10_000)
    assert world.found == []


def test_a_number_of_checks() -> None:
    world = World(abort_slow_consumer_count=3, abort_slow_consumer_check_period_ms=500)
    slow = world.consumer("slow")
    world.publish(20)
    world.advance(1900)  # the first check has nothing to compare with
    assert not slow.is_cancelled
    world.advance(100)
    assert slow.is_cancelled


def test_who_does_not_read_is_slow_also_without_acknowledgements() -> None:
    """What its socket does not take counts as a prefetch limit that is used up."""
    world = World(**SLOW)
    slow = world.consumer("slow", prefetch=0, no_ack=True)
    slow.reads = False
    world.bench.publish("x" * 2_000_000, exchange="", key="q")
    world.publish(5)
    assert slow.client.paused
    world.advance(3000)
    assert [one.action for one in world.found] == [CANCELLED]


def test_a_neighbour_on_its_channel_does_not_make_it_fast() -> None:
    world = World(**SLOW)
    slow = world.consumer("slow")
    world.bench.queue("other")
    world.bench.consume("other", "fast", by=slow.session, no_ack=True)
    world.publish(20)
    for _ in range(30):
        world.bench.publish("y", exchange="", key="other")
        world.advance(100)
    assert [one.tag for one in world.found] == ["slow"]


# -- acknowledgements -------------------------------------------------------------------------------------------------


def test_who_acknowledges_nothing_for_too_long() -> None:
    """Also while nothing waits."""
    world = World(**SLOW_ACK)
    slow = world.consumer("slow")
    world.publish(2)
    world.advance(3000)
    assert slow.is_cancelled
    world.advance(1000)
    assert world.queue.ready_count == 2


def test_one_acknowledgement_begins_the_time_again() -> None:
    world = World(**SLOW_ACK)
    consumer = world.consumer("c", prefetch=50)
    world.publish(20)
    for _ in range(8):
        world.advance(1500)
        consumer.session.ack(list(consumer.session.unacked)[-1])
    assert world.found == []


@pytest.mark.parametrize("ignores", [True, False])
def test_idle_consumers(ignores: bool) -> None:
    """Those that have nothing to acknowledge are spared, or not."""
    world = World(**SLOW_ACK, abort_slow_ack_ignores_idle=ignores)
    idle = world.consumer("idle")
    world.advance(5000)
    assert idle.is_cancelled is not ignores


# -- Artemis' threshold -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("policy", "action"), [("KILL", CLOSED), ("NOTIFY", REPORTED)])
def test_a_rate_of_acknowledgements(policy: str, action: str) -> None:
    """10 messages a second, and 2 of them acknowledged: looked at every 5 s."""
    world = World(**RATE, slow_consumer_policy=policy)
    slow = world.consumer("slow", prefetch=100)
    for second in range(10):
        for number in range(12):
            world.publish(1)
            if number < 2:
                slow.ack()
        world.advance(1000)
        if second == 4:
            assert world.found == []  # nothing to compare with
    assert [one.action for one in world.found] == [action]
    assert slow.client.closed is (policy == "KILL")


@pytest.mark.parametrize(("selector", "is_slow"), [("JMSPriority = 9", False), ("JMSPriority IS NULL", True)])
def test_who_takes_little_is_not_slow(selector: str, is_slow: bool) -> None:
    """A consumer whose selector takes nothing of what comes acknowledges nothing."""
    world = World(**RATE, slow_consumer_policy="NOTIFY")
    world.consumer("slow", prefetch=20, selector=selector)
    for _ in range(10):
        world.publish(12)
        world.advance(1000)
    assert bool(world.found) is is_slow


@pytest.mark.parametrize(
    ("published", "acknowledged", "consumers", "unit", "is_slow"),
    [
        (12, 11, 1, "SECOND", False),
        (12, 9, 1, "SECOND", True),
        (9, 2, 1, "SECOND", False),
        (12, 4, 2, "SECOND", False),
        (1, 0, 1, "MINUTE", True),
        (1, 1, 1, "MINUTE", False),
    ],
    ids=[
        "fast enough",
        "too slow",
        "the queue does not get enough",
        "not enough for two consumers",
        "in a minute",
        "fast enough in a minute",
    ],
)
def test_who_is_below_it(published: int, acknowledged: int, consumers: int, unit: str, is_slow: bool) -> None:
    """Address-settings page 3.6: a queue that does not itself get enough is passed over."""
    world = World(**RATE, slow_consumer_threshold_measurement_unit=f"MESSAGES_PER_{unit}")
    there = [world.consumer(f"c{number}", prefetch=1000) for number in range(consumers)]
    for _ in range(10):
        world.publish(published)
        for one in there:
            one.ack(acknowledged)
        world.advance(1000)
    assert bool(world.found) is is_slow


@pytest.mark.parametrize(("unit", "seconds"), [("SECOND", 1), ("MINUTE", 60), ("HOUR", 3600), ("DAY", 86_400)])
@pytest.mark.parametrize(("acknowledged", "is_slow"), [(5, True), (15, False)])
def test_ten_a_second_in_each_unit(unit: str, seconds: int, acknowledged: int, is_slow: bool) -> None:
    """The same threshold, however it is said."""
    asked = {**RATE, "slow_consumer_threshold": 10 * seconds}
    world = World(**asked, slow_consumer_threshold_measurement_unit=f"MESSAGES_PER_{unit}")
    consumer = world.consumer("c", prefetch=1000)
    for _ in range(10):
        world.publish(20)
        consumer.ack(acknowledged)
        world.advance(1000)
    assert bool(world.found) is is_slow


# -- what it costs ----------------------------------------------------------------------------------------------------


def test_one_deadline_for_all() -> None:
    """However many consumers and queues; gone when they are."""
    world = World(**SLOW, **RATE)
    before = len(world.deadlines)
    consumers = [world.consumer(f"c{number}") for number in range(10)]
    acknowledgement_watch = 1
    assert len(world.deadlines) == before + 1 + acknowledgement_watch
    for one in consumers:
        one.client.close()
    world.advance(6000)
    assert len(world.deadlines) == before


def test_no_deadline_without_such_rules() -> None:
    world = World()
    before = len(world.deadlines)
    world.consumer("c")
    assert len(world.deadlines) == before + 1  # that of the acknowledgement timeout


def test_many_queues_are_looked_at_in_slices() -> None:
    bench = Bench(entry("#", **SLOW))  # type: ignore[arg-type]
    session = bench.connect("c")
    for number in range(450):
        bench.consume(bench.queue(f"q{number}"), f"c{number}", by=session, prefetch=1)
        bench.publish("1", "2", exchange="", key=f"q{number}")
    for _ in range(6):
        bench.advance(500)
    assert bench.broker.context.slow_consumers.counts[CANCELLED] == 450


def test_a_reload() -> None:
    """The rules hold for consumers that are there, and no longer."""
    world = World()
    slow = world.consumer("slow")
    world.publish(20)
    world.bench.replace(entry("q", **SLOW))  # type: ignore[arg-type]
    world.advance(1000)
    world.bench.replace()
    world.advance(5000)
    assert not slow.is_cancelled
    world.bench.replace(entry("q", **SLOW))  # type: ignore[arg-type]
    world.advance(3000)
    assert slow.is_cancelled


def test_a_longer_period_of_a_reload_replaces_the_shorter_one() -> None:
    """Nobody is checked at the old one any more."""
    checks = {"abort_slow_consumer_count": 3, "abort_slow_consumer_check_period_ms": 500}
    world = World(**checks)
    slow = world.consumer("slow")
    world.publish(20)
    world.bench.replace(entry("q", **{**checks, "abort_slow_consumer_check_period_ms": 60_000}))  # type: ignore[arg-type]
    world.advance(10_000)
    assert not slow.is_cancelled
    world.advance(240_000, 10_000)
    assert slow.is_cancelled


def test_subscribers_of_a_topic() -> None:
    """By the topic's policy; an auto-delete queue goes with its consumer."""
    bench = Bench(destinations=topics(PRICES_=dict(SLOW)))
    session = bench.connect("c")
    bench.queue(client=session.client, durable=False, auto_delete=True)
    bench.bind("q", "amq.topic", "#")
    bench.consume(by=session, prefetch=1)
    bench.publish("1", "2", "3")
    for _ in range(40):
        bench.advance(100)
    assert bench.broker.context.slow_consumers.counts[CANCELLED] == 1
    assert "q" not in bench.vhost.queues
    assert not session.unacked


def test_what_many_have_out_goes_back_in_slices_and_in_order() -> None:
    world = World(**SLOW)
    slow = world.consumer("slow", prefetch=1200)
    world.publish(1500)
    world.advance(2500)
    assert slow.is_cancelled
    world.advance(1000)
    assert world.queue.ready_count == 1500
    assert [message.id for message in world.queue.store] == sorted(message.id for message in world.queue.store)


def test_checks_are_counted_in_a_row() -> None:
    """One delivery between two of them, and they begin anew."""
    world = World(abort_slow_consumer_count=3, abort_slow_consumer_check_period_ms=500)
    consumer = world.consumer("slow")
    world.publish(20)
    for _ in range(4):
        world.advance(1400)  # two or three checks, of which the first sees a new delivery
        consumer.ack()
    assert world.found == []
    world.advance(2000)
    assert consumer.is_cancelled
