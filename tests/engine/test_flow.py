"""The usage tree: what charges it, what holds publishers, and in which order they go on. Queues page E.1, E.4, E.5."""

from __future__ import annotations

from collections import deque

import pytest

from leveret.engine import (
    Broker,
    BrokerOptions,
    Client,
    Envelope,
    Full,
    ManualClock,
    PropertyFacts,
    Queue,
    Route,
    Session,
    User,
)
from leveret.engine.messages.content import PLAIN, encode_header
from leveret.settings import SettingsRepository, SystemUsage, entry

USER = User("guest")
MIB = 1024 * 1024
#: A header without properties.
HEADER = encode_header(0)


def blob(size: int) -> bytes:
    """A message of so many octets."""
    return PLAIN.join(HEADER, bytes(size - len(PLAIN.join(HEADER, b""))))


class Publisher:
    """A confirming publisher on a connection of its own: `wants` are the messages that it holds."""

    def __init__(self, bench: Bench, name: str) -> None:
        self.bench = bench
        self.client: Client = bench.broker.connect("/", USER, name=name, flush=lambda: None)
        self.session: Session = self.client.open_session()
        self.session.select_confirms()
        self.wants: deque[bytes] = deque()
        self.published = 0
        self.refused = 0
        self.full: Full | None = None

    def publish(self, *blobs: bytes, to: str = "q") -> None:
        """As a frontend does: what there is no room for waits, behind what waits already."""
        self.to = to
        waited = bool(self.wants)
        self.wants += blobs
        if not waited:
            self._go_on(1 << 60, 1 << 60)

    def resume(self, octets: int, messages: int) -> int:
        """See `Waiter`."""
        return self._go_on(octets, messages)

    def _go_on(self, octets: int, messages: int) -> int:
        used = 0
        while self.wants:
            offer = self.session.offer(
                self.bench.route(self.to),
                Envelope("", self.to, self.bench.facts),
                list(self.wants),
                mandatory=False,
                octets_max=octets - used,
                messages_max=messages,
            )
            for _ in range(offer.taken):
                used += len(self.wants.popleft())
            messages -= offer.taken
            self.published += offer.taken
            if offer.full is not None:
                self.full = offer.full
                if not self.full.fails:
                    break
                self.wants.popleft()
                self.session.pass_over(1, refused=True)
                self.refused += 1
            elif not offer.taken:
                break  # the quantum is used up
        if self.wants:
            assert self.full is not None
            self.bench.broker.flow.wait(self.full, self.client, self)
        return used


class Bench:
    """One broker with settings for the queue `q`."""

    def __init__(self, *, system: SystemUsage | None = None, **settings: object) -> None:
        repository = SettingsRepository([entry("q", **settings)], usage=system)
        options = BrokerOptions(system_usage=system)
        self.broker = Broker(ManualClock(), settings=repository, options=options, unsent_max=1 << 40)
        self.vhost = self.broker.virtual_hosts["/"]
        self.facts = PropertyFacts()
        self.queue: Queue = self.vhost.declare_queue("q", client=None, durable=True, arguments={})
        self.consumer: Session = self.broker.connect("/", USER, name="consumer", flush=lambda: None).open_session()
        self.got: list[int] = []

    def route(self, name: str) -> Route:
        return self.vhost.route("", name, USER)

    def take(self, count: int) -> None:
        """Get and acknowledge so many."""
        for _ in range(count):
            got = self.consumer.get(self.queue, no_ack=False)
            assert got is not None
            self.consumer.ack(got[0])
        self.end_turn()

    def end_turn(self) -> None:
        while self.broker.end_turn():
            pass

    @property
    def used(self) -> int:
        return self.broker.flow.nodes()[-1].used


def test_the_numeric_trace() -> None:
    """Queues page E.5.1, step by step."""
    bench = Bench(memory_limit=MIB, cursor="vm")
    a, b = Publisher(bench, "A"), Publisher(bench, "B")
    a.publish(*[blob(1100)] * 953)
    node = bench.broker.flow.nodes()[-1]
    assert (node.used, node.is_full, node.low) == (1_048_300, False, 983_040)
    a.publish(blob(1100))
    assert (node.used, node.is_full, a.published) == (1_049_400, True, 954)
    a.publish(*[blob(1100)] * 3)
    b.publish(*[blob(1100)] * 3)
    assert (a.published, b.published, node.used) == (954, 0, 1_049_400)
    assert [blocked.client.name for blocked in bench.broker.flow.blocked()] == ["A", "B"]
    bench.take(30)
    assert (node.used, node.is_full, a.published, b.published) == (1_016_400, True, 954, 0)
    bench.take(31)
    assert (node.used, node.is_full, a.published, b.published) == (988_900, False, 957, 3)
    assert bench.broker.flow.blocked() == []


@pytest.mark.parametrize("settings", [{"memory_limit": 10_000, "cursor": "vm"}, {"max_size_bytes": 10_000}])
def test_what_is_full_holds_and_its_room_is_shared_in_turn(settings: dict[str, object]) -> None:
    """Each blocked connection gets a quantum in its turn, however much it holds (queues page G.E, row E11)."""
    if "max_size_bytes" in settings:
        settings["address_full_policy"] = "BLOCK"
    bench = Bench(minimum_message_size=0, **settings)
    filler = Publisher(bench, "filler")
    filler.publish(blob(20_000))
    many, few = Publisher(bench, "many"), Publisher(bench, "few")
    many.publish(*[blob(30_000)] * 20)
    few.publish(*[blob(30_000)] * 4)
    assert many.published == few.published == 0
    for _ in range(8):
        bench.take(bench.queue.ready_count)
        assert abs(many.published - few.published) <= 3  # a quantum, and the message that goes over it
    assert few.published == 4


def test_a_large_message_waits_for_as_many_quanta_as_it_takes() -> None:
    bench = Bench(memory_limit=MIB, cursor="vm")
    first, large = Publisher(bench, "first"), Publisher(bench, "large")
    first.publish(blob(2 * MIB))
    large.publish(blob(3 * MIB), blob(100))
    bench.take(1)
    assert (large.published, bench.queue.ready_count) == (1, 1)
    bench.take(1)
    assert large.published == 2


def test_messages_are_counted_where_the_limit_is_in_messages() -> None:
    """What is out counts (address-settings page 3.3); below 5 % less, and at least one, publishers go on."""
    bench = Bench(max_size_messages=40, address_full_policy="BLOCK")
    publisher = Publisher(bench, "p")
    publisher.publish(*[blob(100)] * 100)
    assert publisher.published == 40
    tags = [bench.consumer.get(bench.queue, no_ack=False) for _ in range(10)]
    bench.end_turn()
    assert publisher.published == 40
    for tag in tags[:2]:
        assert tag is not None
        bench.consumer.ack(tag[0])
    bench.end_turn()
    assert publisher.published == 42


def test_a_publish_to_several_queues_waits_for_the_strictest() -> None:
    """All or nothing, before any queue has it (queues page E.2)."""
    bench = Bench(memory_limit=5_000, cursor="vm")
    bench.vhost.declare_queue("free", client=None, durable=True, arguments={})
    bench.vhost.bind_queue("q", "amq.fanout", "", {})
    bench.vhost.bind_queue("free", "amq.fanout", "", {})
    publisher = Publisher(bench, "p")
    route = bench.vhost.route("amq.fanout", "", USER)
    envelope = Envelope("amq.fanout", "")
    offer = publisher.session.offer(route, envelope, [blob(2_000)] * 10, mandatory=False)
    assert (offer.taken, offer.full) == (3, None)
    offer = publisher.session.offer(route, envelope, [blob(2_000)] * 7, mandatory=False)
    assert offer.taken == 0
    assert offer.full is not None
    assert offer.full.destination == "queue 'q' in vhost '/'"
    assert bench.vhost.queues["free"].ready_count == 3


def test_the_limits_of_the_broker_are_above_those_of_queues() -> None:
    system = SystemUsage(memory=10_000, store=0, temp=0)
    bench = Bench(system=system, memory_limit=MIB, cursor="vm")
    publisher = Publisher(bench, "p")
    publisher.publish(*[blob(1_500)] * 10)
    assert publisher.published == 7
    assert publisher.full is not None
    assert (publisher.full.destination, publisher.full.limit, publisher.full.is_alarm) == ("broker", "memory", True)
    bench.take(7)
    assert publisher.published == 10


def test_a_store_limit_holds_what_is_stored_also_without_producer_flow_control() -> None:
    """Queues page E.4, row 10; queues page, row E17."""
    system = SystemUsage(memory=3_000, store=10_000, temp=0)
    bench = Bench(system=system, producer_flow_control=False)
    transient, stored = Publisher(bench, "t"), Publisher(bench, "s")
    transient.publish(*[blob(1_500)] * 10)
    assert transient.published == 10
    bench.facts = PropertyFacts(persistent=True)
    stored.publish(*[blob(1_500)] * 10)
    assert stored.published == 7
    assert stored.full is not None
    assert stored.full.limit == "store"


def test_a_deleted_queue_holds_nobody() -> None:
    bench = Bench(memory_limit=2_000, cursor="vm")
    publisher = Publisher(bench, "p")
    publisher.publish(*[blob(1_500)] * 5)
    assert publisher.published == 2
    bench.vhost.delete_queue("q", None)
    bench.end_turn()
    assert publisher.published == 5
    assert bench.broker.flow.nodes() == []
    assert bench.broker.counters.unroutable == 3


@pytest.mark.parametrize(
    ("settings", "published"),
    [
        ({"memory_limit": 4_000, "cursor": "vm"}, 3),
        ({}, 10),
        ({"memory_limit": 4_000, "producer_flow_control": False}, 10),
    ],
    ids=["more", "none", "switched off"],
)
def test_a_reload_lets_go_what_is_held(settings: dict[str, object], published: int) -> None:
    bench = Bench(memory_limit=2_000, cursor="vm")
    publisher = Publisher(bench, "p")
    publisher.publish(*[blob(1_500)] * 10)
    assert publisher.published == 2
    bench.broker.replace_settings(SettingsRepository([entry("q", **settings)]), bench.broker.options)
    bench.end_turn()
    assert publisher.published == published


def test_a_limit_that_comes_later_counts_what_is_there() -> None:
    bench = Bench()
    publisher = Publisher(bench, "p")
    publisher.publish(*[blob(1_500)] * 10)
    got = bench.consumer.get(bench.queue, no_ack=False)
    bench.broker.replace_settings(SettingsRepository([entry("q", memory_limit=MIB, cursor="vm")]), bench.broker.options)
    assert got is not None
    assert bench.used == 15_000
    bench.consumer.ack(got[0])
    assert bench.used == 13_500


def test_refused_at_once() -> None:
    """Queues page E.4, row 5: the confirms are in order, and those that were refused are nacks."""
    bench = Bench(memory_limit=2_000, cursor="vm", send_fail_if_no_space=True)
    publisher = Publisher(bench, "p")
    publisher.publish(*[blob(1_500)] * 4)
    assert (publisher.published, publisher.refused) == (2, 2)
    assert publisher.session.confirms is not None
    assert publisher.session.confirms.take() == [(2, True, True), (3, False, False), (4, False, False)]


def test_a_commit_waits_as_one() -> None:
    """Queues page E.4, row 13."""
    bench = Bench(memory_limit=2_000, cursor="vm")
    filler, session = (
        Publisher(bench, "p"),
        bench.broker.connect("/", USER, name="t", flush=lambda: None).open_session(),
    )
    session.select_transactions()
    session.publish(bench.route("q"), Envelope("", "q"), [blob(1_500)] * 5, mandatory=False)
    assert session.full_for_commit() is None
    filler.publish(*[blob(1_500)] * 2)
    full = session.full_for_commit()
    assert full is not None
    assert full.limit == "memory"
    bench.take(2)
    assert session.full_for_commit() is None
