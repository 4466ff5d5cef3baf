"""The gate before congested queues: it delays publishers whose consumers keep up, but none of them for ever.

Time is counted in slices of `SLICE_S`; the edge is played by hand, and the engine is the real one.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import settings, stateful
from hypothesis import strategies as st
from pair import Pair
from pamqp import commands
from peer import publish

from leveret.amqp_frontend.flow.throttle import SLICES_MAX, ThrottleWait, throttle_wait_of
from leveret.engine import (
    Broker,
    BrokerOptions,
    ConsumerCancelled,
    Delivered,
    Envelope,
    ManualClock,
    Queue,
    Session,
    User,
)
from leveret.engine.messages.content import NATIVE, encode_header

USER = User("guest")
READY_MAX = 8


@dataclass(eq=False)
class Connection:
    """A connection as its endpoint has it. `unread`: what the peer has sent, (queue name, messages) a read."""

    vhost: str
    session: Session
    unread: deque[tuple[str, int]] = field(default_factory=deque)
    tags: deque[int] = field(default_factory=deque)  # unacknowledged
    hold: ThrottleWait | None = None
    held_by: Queue | None = None
    held_for: int = 0  # slices
    is_woken: bool = False
    vain_at: int | None = None  # what its queue had delivered when this slice began


class Stage:
    """Virtual hosts `a` and `b` with queues `0` to `2` each, and the edge."""

    def __init__(self) -> None:
        self.broker = Broker(ManualClock(), options=BrokerOptions(busy_queue_ready_max=READY_MAX), unsent_max=1 << 40)
        self.connections: list[Connection] = []
        self.longest = 0
        for vhost in "ab":
            self.broker.virtual_hosts.create(vhost)
            for name in "012":
                self.declare(name, vhost)

    def connect(self, vhost: str = "a") -> Connection:
        made: list[Connection] = []

        def flush() -> None:
            connection = made[0]
            for effect in connection.session.client.take_outbox():  # type: ignore[attr-defined]
                if isinstance(effect, ConsumerCancelled):
                    continue
                assert isinstance(effect, Delivered)
                connection.tags.extend(range(effect.first_tag, effect.first_tag + len(effect.contents)))
            connection.session.client.drained()  # type: ignore[attr-defined]

        client = self.broker.connections.open(vhost, USER, name="c", flush=flush)
        made.append(Connection(vhost, client.open_session()))
        self.connections += made
        return made[0]

    def declare(self, name: str, vhost: str) -> None:
        client = self.broker.connections.open(vhost, USER, name="d", flush=lambda: None)
        self.broker.virtual_hosts[vhost].queues.declare(name, client=client)
        client.close()

    def queue(self, name: str, vhost: str = "a") -> Queue:
        return self.broker.virtual_hosts[vhost].queues[name]

    def end_turn(self) -> None:
        while self.broker.end_turn():
            pass

    def publish(self, connection: Connection, queue: str, count: int) -> None:
        """What one read of its connection does, but for the wait."""
        vhost = self.broker.virtual_hosts[connection.vhost]
        contents = [NATIVE.join(encode_header(0), b"")] * count
        connection.session.publish(vhost.router.route("", queue, USER), Envelope("", queue), contents, mandatory=False)

    def send(self, connection: Connection, queue: str, count: int) -> None:
        """The peer sends publishes; they are read if it is not held."""
        connection.unread.append((queue, count))
        self.run()

    def consume(self, connection: Connection, queue: str, prefetch: int = 0) -> None:
        connection.session.set_prefetch(prefetch, total=False)
        found = self.queue(queue, connection.vhost)
        connection.session.consume(found, f"t{queue}", no_ack=False, exclusive=False, arguments={})
        self.end_turn()
        self.run()

    def ack(self, connection: Connection, count: int) -> None:
        for _ in range(min(count, len(connection.tags))):
            connection.session.ack(connection.tags.popleft())
        self.end_turn()
        self.run()

    def run(self) -> None:
        """All that can be done at this time."""
        is_busy = True
        while is_busy:
            is_busy = False
            for connection in self.connections:
                if connection.hold is not None and connection.is_woken:
                    self._slice_is_over(connection)
                if connection.hold is None and connection.unread:
                    self._read(connection)
                    is_busy = True

    def pass_slice(self) -> None:
        """Nothing comes for `SLICE_S`."""
        for connection in self.connections:
            if connection.hold is not None:
                connection.held_for += 1
                self._slice_is_over(connection)
        self.run()

    def _read(self, connection: Connection) -> None:
        turn = self.broker.context.turn
        turn.congested = None
        self.publish(connection, *connection.unread.popleft())
        congested = turn.congested
        self.end_turn()
        if congested is not None:
            connection.held_by, connection.held_for = congested, 0
            connection.hold = throttle_wait_of(congested, connection.session.client)  # type: ignore[arg-type]
            if connection.hold is not None:
                self._begin_slice(connection)

    def _begin_slice(self, connection: Connection) -> None:
        assert connection.hold is not None and connection.held_by is not None
        connection.is_woken = False
        connection.vain_at = connection.held_by.counters.delivered

        def wake() -> None:
            connection.is_woken = True

        connection.hold.begin_slice(wake)

    def _slice_is_over(self, connection: Connection) -> None:
        assert connection.hold is not None and connection.held_by is not None
        goes_on = connection.hold.end_slice()
        self.longest = max(self.longest, connection.held_for)
        if goes_on:
            assert connection.held_by.counters.delivered > (connection.vain_at or 0), "nobody takes any"
            self._begin_slice(connection)
        else:
            connection.hold = None

    def end(self, connection: Connection) -> None:
        """It is lost."""
        if connection.hold is not None:
            connection.hold.end()
        self.connections.remove(connection)
        connection.session.client.close(failed=True)  # type: ignore[attr-defined]
        self.end_turn()
        self.run()


@pytest.fixture
def stage() -> Stage:
    return Stage()


# ------------------------------------------------------------------------------------------------------- who is held


def test_a_publisher_waits_until_consumers_have_taken_what_is_too_much(stage: Stage) -> None:
    publisher, consumer = stage.connect(), stage.connect()
    stage.consume(consumer, "0", prefetch=2)
    stage.send(publisher, "0", 2 + READY_MAX)
    assert publisher.hold is None
    stage.send(publisher, "0", 3)
    stage.send(publisher, "0", 1)
    assert publisher.hold is not None and stage.queue("0").ready_count == READY_MAX + 3
    stage.ack(consumer, 2)
    assert publisher.hold is not None and publisher.unread
    stage.ack(consumer, 1)
    assert not publisher.unread, "down to the maximum, it is read at once"


def test_only_the_queue_decides_not_its_length_before(stage: Stage) -> None:
    """What the end of the turn hands out does not count."""
    publisher, consumer = stage.connect(), stage.connect()
    stage.send(publisher, "0", 3 * READY_MAX)
    assert publisher.hold is None, "no consumer: a queue is there to wait in"
    stage.consume(consumer, "0")
    stage.send(publisher, "0", 1)
    assert publisher.hold is None and len(consumer.tags) == 3 * READY_MAX + 1


def test_who_consumes_is_never_held(stage: Stage) -> None:
    """From whatever queue: what it acknowledges may be what others wait for."""
    both, consumer = stage.connect(), stage.connect()
    stage.consume(both, "1")
    stage.consume(consumer, "0", prefetch=1)
    stage.send(both, "0", 5 * READY_MAX)
    assert both.hold is None
    both.session.cancel("t1")
    stage.send(both, "0", 1)
    assert both.hold is not None


def test_a_queue_whose_consumers_are_stuck_costs_one_wait(stage: Stage) -> None:
    """The next one comes when so many were delivered that consumers seem to take again."""
    publisher, consumer = stage.connect(), stage.connect()
    stage.consume(consumer, "0", prefetch=1)
    stage.send(publisher, "0", 3 * READY_MAX)
    assert publisher.hold is not None
    stage.pass_slice()
    for _ in range(10):
        stage.send(publisher, "0", 1)
        assert publisher.hold is None
    stage.ack(consumer, 1)
    stage.send(publisher, "0", 1)
    assert publisher.hold is None
    for _ in range(READY_MAX):
        stage.ack(consumer, 1)
    stage.send(publisher, "0", 1)
    assert publisher.hold is not None


@pytest.mark.parametrize("taken, is_soon", [(0, False), (1, False), (2, True), (3, True)])
def test_a_slow_consumer_does_not_slow_its_publishers_down(stage: Stage, taken: int, is_soon: bool) -> None:
    """It takes some, but the queue would not be short again in the time that a publisher may wait at most."""
    publisher, consumer = stage.connect(), stage.connect()
    stage.consume(consumer, "0", prefetch=1)
    stage.send(publisher, "0", 1 + READY_MAX + SLICES_MAX + 10 + taken)
    for _ in range(taken):
        stage.ack(consumer, 1)
    stage.pass_slice()
    assert (publisher.hold is not None) == is_soon


def test_nobody_is_held_for_long_where_others_fill_the_queue(stage: Stage) -> None:
    """Others who are not held themselves, because they consume, keep it congested."""
    publisher, both, consumer = stage.connect(), stage.connect(), stage.connect()
    stage.consume(consumer, "0", prefetch=1)
    stage.consume(both, "1")
    stage.send(publisher, "0", 2 * READY_MAX)
    for _ in range(SLICES_MAX - 1):
        stage.ack(consumer, 1)
        stage.send(both, "0", 1)
        stage.pass_slice()
        assert publisher.hold is not None
    stage.ack(consumer, 1)
    stage.send(both, "0", 1)
    stage.pass_slice()
    assert publisher.hold is None


def test_the_longest_queue_of_a_turn_is_waited_for(stage: Stage) -> None:
    publisher, consumer = stage.connect(), stage.connect()
    for name in "012":
        stage.consume(consumer, name, prefetch=1)
    turn = stage.broker.context.turn
    for name, more in (("0", 2), ("1", 5), ("2", 3)):
        stage.publish(publisher, name, 1 + READY_MAX + more)
    assert turn.congested is stage.queue("1")


@pytest.mark.parametrize("how", ["deleted", "purged"])
def test_a_queue_that_is_gone_holds_nobody(stage: Stage, how: str) -> None:
    publisher, consumer = stage.connect(), stage.connect()
    stage.consume(consumer, "0", prefetch=1)
    stage.send(publisher, "0", 3 * READY_MAX)
    stage.send(publisher, "1", 1)
    assert publisher.unread
    if how == "deleted":
        stage.broker.virtual_hosts["a"].queues.remove(stage.queue("0"))
    else:
        stage.queue("0").purge()
    stage.run()
    assert not publisher.unread


def test_one_after_the_other_goes_on(stage: Stage) -> None:
    """So that they do not all publish at once; all of them when the queue is half empty."""
    publishers, consumer = [stage.connect() for _ in range(3)], stage.connect()
    stage.consume(consumer, "0", prefetch=1)
    stage.send(publishers[0], "0", 3 + READY_MAX)
    for publisher in publishers[1:]:
        stage.send(publisher, "0", 1)
    parked = [publisher.hold is not None for publisher in publishers]
    assert parked == [True, True, True]
    stage.ack(consumer, 1)
    for expected in ([True] * 3, [True] * 3, [False, True, True], [False, False, True]):
        stage.ack(consumer, 1)
        assert [publisher.hold is not None for publisher in publishers] == expected
    for _ in range(READY_MAX // 2):
        stage.ack(consumer, 1)
    assert [publisher.hold is not None for publisher in publishers] == [False] * 3


def test_each_time_that_there_is_room_another_one_is_woken(stage: Stage) -> None:
    """Though the one before has not run since; and it goes on, though the queue is full again when it runs."""
    queue = stage.queue("0")
    publishers, consumer = [stage.connect() for _ in range(2)], stage.connect()
    stage.consume(consumer, "0", prefetch=1)
    stage.publish(consumer, "0", 1 + READY_MAX + 1)
    stage.end_turn()
    waits = [throttle_wait_of(queue, publisher.session.client) for publisher in publishers]  # type: ignore[arg-type]
    woken: list[int] = []
    for index, wait in enumerate(waits):
        assert wait is not None
        wait.begin_slice(lambda index=index: woken.append(index))
    for expected in ([0], [0, 1]):
        consumer.session.ack(consumer.tags.popleft())
        stage.end_turn()
        assert woken == expected
    stage.publish(consumer, "0", 3 * READY_MAX)
    stage.end_turn()
    assert [wait.end_slice() for wait in waits if wait is not None] == [False, False]


def test_a_queue_that_is_as_long_as_it_may_be_holds_nobody(stage: Stage) -> None:
    publisher, consumer = stage.connect(), stage.connect()
    stage.consume(consumer, "0", prefetch=1)
    stage.publish(consumer, "0", 1 + READY_MAX)
    stage.end_turn()
    queue = stage.queue("0")
    assert queue.ready_count == READY_MAX
    assert throttle_wait_of(queue, publisher.session.client) is None  # type: ignore[arg-type]
    stage.publish(consumer, "0", 1)
    assert throttle_wait_of(queue, publisher.session.client) is not None  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "properties",
    [
        [{}],
        [{"message_id": "{}"}],
        [{"headers": {"n": "{}"}, "delivery_mode": 2}],
        [{}, {"content_type": "text/plain"}, {"delivery_mode": 2}],
        [{"content_type": "a", "message_id": "{}"}, {"priority": 1}, {"correlation_id": "{}"}],
        [{"expiration": "60000"}, {}],
    ],
    ids=["alike", "ids", "headers", "mixed", "mixed with ids", "some expire"],
)
def test_however_a_read_is_handled_it_crowds_the_queue(properties: list[dict[str, Any]]) -> None:
    """In runs, in mixed ones, or message by message."""
    pair = Pair(broker={"options": BrokerOptions(busy_queue_ready_max=READY_MAX)})
    publisher, consumer = pair.open(), pair.open()
    publisher.call(1, commands.Queue.Declare, queue="q")
    consumer.call(1, commands.Basic.Qos, prefetch_count=1)
    consumer.call(1, commands.Basic.Consume, queue="q")
    for count in (1 + READY_MAX, 1, 40):
        read = b"".join(
            publish(1, "q", bytes(number % 7), **filled(properties[number % len(properties)], number))
            for number in range(count)
        )
        publisher.send(read)
        assert (pair.broker.context.turn.congested is not None) == (count != 1 + READY_MAX)


def filled(properties: dict[str, Any], number: int) -> dict[str, Any]:
    """Of one message: "{}" stands for its number."""
    return {
        name: filled(value, number)
        if isinstance(value, dict)
        else value.format(number)
        if isinstance(value, str)
        else value
        for name, value in properties.items()
    }


# ------------------------------------------------------------------------------------------------- whatever they do


class GateMachine(stateful.RuleBasedStateMachine):
    """Connections that publish, consume, settle late, feed each other, or die, and queues that are deleted."""

    def __init__(self) -> None:
        super().__init__()
        self.stage = Stage()
        self.reads = 0
        #: A program with two connections: what it consumes on one it publishes on the other, to queue `2` or `1`.
        self.programs: list[tuple[Connection, Connection, str]] = []
        for _ in range(3):
            self.stage.connect("a")
        self.stage.connect("b")

    def one(self, index: int) -> Connection:
        if not self.stage.connections:
            return self.stage.connect()
        return self.stage.connections[index % len(self.stage.connections)]

    INDEX = st.integers(0, 7)
    NAME = st.sampled_from("012")

    @stateful.rule(vhost=st.sampled_from("aab"))
    def connect(self, vhost: str) -> None:
        if len(self.stage.connections) < 8:
            self.stage.connect(vhost)

    @stateful.rule(index=INDEX, name=NAME, count=st.integers(1, 3 * READY_MAX))
    def publish(self, index: int, name: str, count: int) -> None:
        connection = self.one(index)
        if name in self.stage.broker.virtual_hosts[connection.vhost].queues:
            self.reads += 1
            self.stage.send(connection, name, count)

    @stateful.rule(index=INDEX, name=NAME, prefetch=st.integers(0, 3))
    def consume(self, index: int, name: str, prefetch: int) -> None:
        connection = self.one(index)
        if connection.hold is not None or f"t{name}" in connection.session.consumers:
            return  # a method that is not read, or is refused
        if name in self.stage.broker.virtual_hosts[connection.vhost].queues:
            self.stage.consume(connection, name, prefetch)

    @stateful.rule(index=INDEX, count=st.integers(1, 20))
    def acknowledge(self, index: int, count: int) -> None:
        connection = self.one(index)
        if connection.hold is None:
            self.stage.ack(connection, count)

    @stateful.rule(index=INDEX, name=NAME)
    def cancel(self, index: int, name: str) -> None:
        connection = self.one(index)
        if connection.hold is None:
            connection.session.cancel(f"t{name}")
            self.stage.end_turn()

    @stateful.rule(index=INDEX)
    def die(self, index: int) -> None:
        self.stage.end(self.one(index))
        there = self.stage.connections
        self.programs = [each for each in self.programs if each[0] in there and each[1] in there]

    @stateful.rule(vhost=st.sampled_from("ab"), name=NAME, is_there=st.booleans())
    def delete(self, vhost: str, name: str, is_there: bool) -> None:
        host = self.stage.broker.virtual_hosts[vhost]
        if name in host.queues:
            host.queues.remove(host.queues[name])
        if is_there or not host.queues:
            self.stage.declare(name, vhost)
        for connection in self.stage.connections:
            connection.tags = deque(tag for tag in connection.tags if tag in connection.session.unacked)
            connection.unread = deque(
                one for one in connection.unread if connection.vhost != vhost or one[0] in host.queues
            )
        self.stage.end_turn()
        self.stage.run()

    @stateful.rule()
    def start_two_that_feed_each_other(self) -> None:
        host = self.stage.broker.virtual_hosts["a"]
        if self.programs or not {"1", "2"} <= host.queues.keys() or len(self.stage.connections) > 6:
            return
        for source, target in (("1", "2"), ("2", "1")):
            consumer, publisher = self.stage.connect(), self.stage.connect()
            self.stage.consume(consumer, source, prefetch=5)
            self.programs.append((consumer, publisher, target))

    @stateful.rule(count=st.integers(1, 10))
    def programs_go_on(self, count: int) -> None:
        """Each answers a delivery with two publishes, and does nothing while these are not read."""
        for consumer, publisher, target in self.programs:
            if consumer.hold is None and not publisher.unread and target in "".join(self.names()):
                settled = min(count, len(consumer.tags))
                self.stage.ack(consumer, count)
                if settled:
                    self.reads += 1
                    self.stage.send(publisher, target, 2 * settled)

    def names(self) -> list[str]:
        return list(self.stage.broker.virtual_hosts["a"].queues)

    @stateful.rule(slices=st.integers(1, 3))
    def time_passes(self, slices: int) -> None:
        for _ in range(slices):
            self.stage.pass_slice()

    @stateful.invariant()
    def whoever_is_held_has_a_reason(self) -> None:
        """A queue of its own virtual host that it published into, that has too much and is there."""
        for connection in self.stage.connections:
            if connection.hold is None:
                assert not connection.unread, "not read although it is not held"
                continue
            queue = connection.held_by
            assert queue is not None and not queue.deleted and queue.vhost_name == connection.vhost
            assert queue.ready_count > READY_MAX // 2
            assert not connection.session.consumers
            assert connection.held_for < SLICES_MAX

    def teardown(self) -> None:
        """Whatever came before: everything is read, though nobody consumes any more."""
        bound = SLICES_MAX + sum(len(connection.unread) for connection in self.stage.connections) * SLICES_MAX
        for _ in range(bound):
            self.stage.pass_slice()
        assert not any(connection.unread or connection.hold for connection in self.stage.connections)
        for vhost in self.stage.broker.virtual_hosts.values():
            for queue in vhost.queues.values():
                assert queue.throttle is None or not queue.throttle.waiting  # type: ignore[attr-defined]


TestGateMachine = GateMachine.TestCase
TestGateMachine.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)
