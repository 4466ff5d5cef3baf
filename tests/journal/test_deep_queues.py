"""Deep or not makes no difference: two brokers do the same, one pages everything it can to its journal.

Compared after each step: what each consumer and get received, in order, with its redelivered flag and death headers;
how much is ready, unacknowledged and waiting; all counters.
"""

from __future__ import annotations

import unittest
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from depth_world import MEMORY_LIMITS, PERSISTENT, DepthMachine, page_early, stories
from depth_world import DepthWorld as World
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from leveret.engine import Message, reconfigure
from leveret.engine.invariants import check_broker
from leveret.engine.messages.content import SCHEDULED_DELIVERY
from leveret.engine.messages.field_table import Field, FieldTable
from leveret.engine.queues import classic
from leveret.engine.stores.tail import Unreadable
from leveret.journal.disk.segment import path_of, segments_in

ARGUMENTS = st.sampled_from(
    [
        *[FieldTable()] * 3,
        {"x-message-ttl": Field("l", 900)},
        {"x-max-length": Field("l", 6)},
        *[{"x-max-priority": Field("l", 3)}] * 3,
        {"x-max-priority": Field("l", 3), "x-max-length": Field("l", 6)},
        {"x-max-priority": Field("l", 2), "x-message-ttl": Field("l", 900)},
        {"x-max-priority": Field("l", 3), "x-max-length-bytes": Field("l", 120)},
        {"x-max-length-bytes": Field("l", 120)},
        {"x-max-length-bytes": Field("l", 120), "x-overflow": Field("S", b"reject-publish")},
        {"x-single-active-consumer": Field("t", True)},
    ]
)
SETTINGS = st.fixed_dictionaries(
    {},
    optional={
        "redelivery_delay_ms": st.sampled_from([0, 100, 5000]),
        "max_delivery_attempts": st.sampled_from([-1, 2, 5]),
        "dead_letter_address": st.sampled_from(["", "dead"]),
        "memory_limit": st.sampled_from([100, 400, 3000]),
        "max_size_bytes": st.sampled_from([0, 300]),
        "max_size_messages": st.sampled_from([0, 3]),
    },
)
#: Octets of the largest message, with what its header may say.
LARGEST = 400
SIZES = st.lists(st.sampled_from([0, 3, 50]), min_size=1, max_size=7)


@pytest.fixture(autouse=True, scope="module")
def _small() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        page_early(patch)
        patch.setattr(classic, "STRAIGHT_MIN", 2)
        yield


class QueueMachine(DepthMachine):
    """A queue that pages."""

    @initialize(
        arguments=ARGUMENTS,
        said=SETTINGS,
        runs=st.lists(st.tuples(SIZES, st.sampled_from([True, True, False])), min_size=1, max_size=5),
        memory=st.sampled_from([0, 1500, 4000, 1 << 30]),
    )
    def start(
        self, arguments: FieldTable, said: dict[str, Any], runs: list[tuple[list[int], bool]], memory: int
    ) -> None:
        """There is something to begin with: most stories begin with a deep queue."""
        self.worlds = [World(arguments, said, memory=share) for share in (None, memory)]
        self.number = 0
        for sizes, persistent in runs:
            self.publish(sizes, persistent, None, len(sizes) % 4, 0)

    @rule(
        sizes=SIZES,
        persistent=st.sampled_from([True, True, True, False]),
        expiration=st.sampled_from([None, None, None, b"400"]),
        priority=st.sampled_from([None, 0, 1, 2, 3, 9]),
        delay_ms=st.sampled_from([0, 0, 0, 0, 300]),
    )
    def publish(
        self, sizes: list[int], persistent: bool, expiration: bytes | None, priority: int | None, delay_ms: int
    ) -> None:
        self.number += 1
        mode = 2 if persistent else 1
        properties: dict[str, Any] = {"delivery_mode": mode, "expiration": expiration, "priority": priority}
        if delay_ms:
            due_ms = self.worlds[0].clock.wall_ms() + delay_ms
            properties["headers"] = {SCHEDULED_DELIVERY: Field("l", due_ms)}
        self.both(lambda world: world.fill(sizes, properties, self.number))

    @rule(no_ack=st.booleans(), count=st.integers(1, 3), name=st.sampled_from(["q", "q", "dead"]))
    def get(self, no_ack: bool, count: int, name: str) -> None:
        self.both(lambda world: [world.fetch(name, no_ack=no_ack) for _ in range(count)])

    @rule(who=st.integers(0, 1), prefetch=st.integers(0, 4), no_ack=st.booleans())
    def consume(self, who: int, prefetch: int, no_ack: bool) -> None:
        self.number += 1
        tag = f"t{self.number}"

        def act(world: World) -> None:
            if not world.sessions[who].consumers:
                world.join(tag, prefetch=prefetch, no_ack=no_ack, who=who)

        self.both(act)

    @rule(what=st.sampled_from(["purge", "recover", "recover", "ring", "no ring", "settings"]), said=SETTINGS)
    def intervene(self, what: str, said: dict[str, Any]) -> None:
        self.both((lambda world: world.configure(said)) if what == "settings" else self.intervention(what))

    @rule(said=SETTINGS)
    def restart(self, said: dict[str, Any]) -> None:
        """The power goes, and comes back."""
        for world in self.worlds:
            world.said = said
            world.kill(power_cut=True)

    @precondition(lambda self: hasattr(self, "worlds"))
    @invariant()
    def what_is_there_is_counted(self) -> None:
        """To the octet, also after a restart: in memory, in the journal and in the temp store."""
        world = self.worlds[1]
        assert (world.q.meter is None) is (not MEMORY_LIMITS & world.said.keys())
        check_broker(world.broker)

    @precondition(lambda self: hasattr(self, "worlds"))
    @invariant()
    def memory_is_within_its_limits(self) -> None:
        """Whatever was ready has left it but for the last one that was read back, and what has to stay."""
        queue = self.worlds[1].q
        is_stuck = any(isinstance(part, Message) for part in queue.store.paged_parts())
        if queue.meter is None or is_stuck or queue.consumer_list.groups is not None:
            return
        for bound in queue.meter.memory_bounds:
            assert bound.room >= 0 or queue.store.in_memory <= 1 or bound.room + LARGEST >= 0


class TestDepth(QueueMachine.TestCase):  # type: ignore[misc,valid-type]
    """Many short stories."""

    settings = stories(80)


assert issubclass(TestDepth, unittest.TestCase)


@pytest.mark.parametrize("is_deep", [False, True])
def test_what_expires_behind_an_evicted_head(is_deep: bool) -> None:
    """A ring's arrival takes the head away; those behind it that have expired go at once."""
    world = World({}, {}, memory=0 if is_deep else None)
    world.fill([0], PERSISTENT, 1)
    world.fill([0, 0, 0], PERSISTENT | {"expiration": b"400"}, 2)
    world.end_turn()
    world.advance(500)
    reconfigure.set_ring_size(world.q, 4)
    world.fill([0], PERSISTENT, 3)
    world.end_turn()
    world.advance(1)
    counters = world.q.counters
    world.close()
    assert (world.q.ready_count, counters.replaced, counters.expired) == (1, 1, 3)


@pytest.mark.parametrize("count", range(1, 12))
def test_a_consumer_comes_when_gets_took_all_that_was_in_memory(count: int) -> None:
    """What is ready in the journal alone is ready."""
    world = World({}, {}, memory=0)
    world.fill([0] * 12, PERSISTENT, 1)
    world.fill([0] * 12, PERSISTENT, 2)
    world.end_turn()
    for _ in range(count):
        world.fetch()
    world.end_turn()
    world.join("late")
    world.end_turn()
    assert len(world.seen["late"]) == 24 - count
    world.close()


@pytest.mark.parametrize("is_deep", [False, True])
def test_groups_survive_a_restart(is_deep: bool) -> None:
    """Messages of a group that come back from the journal, paged or not, still go to one consumer."""
    before = World({}, {}, memory=None)
    for group in (b"a", b"b"):
        before.fill([0] * 6, PERSISTENT | {"headers": {"JMSXGroupID": Field("S", group)}}, ord(group))
    before.end_turn()
    world = World({}, {}, memory=0 if is_deep else None, files=before.files.power_cut())
    for who, tag in enumerate(("one", "two")):
        world.join(tag, prefetch=1, no_ack=False, who=who)
    world.end_turn()
    for _ in range(12):
        for session in world.sessions[:2]:
            session.ack_each(list(session.unacked))
            world.end_turn()
    bodies = {tag: [content[0].partition(b".")[0] for _, content in seen] for tag, seen in world.seen.items()}
    world.close()
    assert bodies == {"one": [b"97"] * 6, "two": [b"98"] * 6}


@pytest.mark.parametrize("recovers", [False, True])
def test_a_full_disk_under_a_deep_queue(recovers: bool) -> None:
    """What was taken before anybody heard that the disk is full is nowhere but in memory; consumers get it."""
    world = World(FieldTable(), {}, memory=0)
    world.fill([3] * 7, {"delivery_mode": 2}, 0)
    world.end_turn()

    def fault(operation: str, path: str) -> None:
        if operation == "write":
            raise OSError(28, "No space left on device")

    world.files.fault = fault
    world.fill([3] * 6, {"delivery_mode": 2}, 1)
    world.broker.end_turn()
    world.journal.commit()
    assert not world.journal.wait(world.journal.next_lsn)
    world.recorder.fail(for_good=False)
    world.join("t")
    while world.broker.end_turn() or world.broker.scheduler.load():
        pass
    expected = [b"%d.%d" % (run, at) for run, count in ((0, 7), (1, 6)) for at in range(count)]
    assert [body[:3] for _, (body, *_) in world.seen["t"]] == expected
    world.files.fault = lambda operation, path: None
    if recovers:
        world.journal.retry()
        world.recorder.recover()
        world.end_turn()
    world.close()


@pytest.mark.parametrize("arguments", [{"x-ring-size": Field("l", 6)}, {"x-max-length": Field("l", 6)}])
def test_a_turn_that_reads_back_what_it_wrote_is_not_cut_in_two(arguments: FieldTable) -> None:
    """The head that has to go came in the same turn and stands in the journal alone: a kill finds all of it or nothing.

    Else what the turn took out could be gone, and what it put in its place not there.
    """
    arguments = {**arguments, "x-dead-letter-exchange": Field("S", b"e")}
    world = World(arguments, {}, memory=0)
    world.fill([50] * 8, PERSISTENT, 1)
    world.end_turn()
    before = held(world)
    world.fill([50] * 20, PERSISTENT, 2)
    assert world.q.store.is_deep
    world.journal.writer.run_once()  # its thread may write at any time
    assert held(World(arguments, {}, memory=0, files=world.files.crash())) == before
    world.end_turn()
    after = held(world)
    assert after != before and len(after) == 6
    assert held(World(arguments, {}, memory=0, files=world.files.crash())) == after


def held(world: World) -> list[bytes]:
    """The bodies in the queue, oldest first."""
    bodies = []
    while (taken := world.get(no_ack=False, by=world.sessions[2])) is not None:
        bodies.append(taken[1].envelope.framing.split(taken[1].content)[1].rstrip(bytes(1)))
    world.sessions[2].recover()
    world.end_turn()
    return bodies


def test_deep_queues_are_fed_in_turns() -> None:
    """Two of them want messages in memory, several slices each: neither waits until the other one has enough."""
    world = World(FieldTable(), {}, memory=2_000_000)
    world.fill([1] * 20_000, PERSISTENT, 1, "q.both")
    world.end_turn()
    queues = [world.named(name) for name in ("q", "other")]
    for queue in queues:
        assert queue.store.is_deep
        queue.context.broker.scheduler.load_later(queue)
    fed = []
    while all(queue.wants_load() for queue in queues):
        before = [queue.store.in_memory for queue in queues]
        world.broker.scheduler.load()
        fed += [at for at, queue in enumerate(queues) if queue.store.in_memory > before[at]]
    assert len(fed) >= 3
    assert all(one != following for one, following in pairwise(fed))
    world.close()


@pytest.mark.parametrize("arguments", [{}, {"x-max-priority": Field("l", 3)}], ids=["plain", "priorities"])
@pytest.mark.parametrize("memory", [None, 0], ids=["in memory", "deep"])
def test_where_a_delayed_message_is_when_it_is_due(memory: int | None, arguments: FieldTable) -> None:
    """At the head of the queue, wherever the rest of it is; those of one time in their order, later ones before them.

    So it is also when the broker looks late, at all of them at once.
    """
    world = World(arguments, {}, memory=memory)
    headers = [{"x-delay": Field("l", wait)} for wait in (0, 500, 500, 300, 0)]
    for number, waits in enumerate(headers):
        world.fill([1, 1], {**PERSISTENT, "headers": waits if waits["x-delay"].value else {}}, number)
    world.end_turn()
    assert world.q.store.is_deep is (memory is not None)
    world.clock.advance_ns(600 * 1_000_000)
    world.broker.advance()
    world.end_turn()
    got = [world.fetch()[3][0][:3] for _ in range(10)]
    assert got == [b"%d.%d" % (number, at) for number in (1, 2, 3, 0, 4) for at in range(2)]
    world.close()


@pytest.mark.parametrize("memory", [None, 0], ids=["in memory", "deep"])
def test_where_a_delayed_message_is_after_a_restart(memory: int | None) -> None:
    """One that still waits comes to the head when it is due; what is ready is in the order of publishing again."""
    world = World(FieldTable(), {}, memory=memory)
    for number, wait in enumerate((0, 500, 1500, 0)):
        headers = {"headers": {"x-delay": Field("l", wait)}} if wait else {}
        world.fill([1], {**PERSISTENT, **headers}, number)
    world.end_turn()
    world.advance(600)
    assert (world.q.ready_count, len(world.q.scheduled)) == (3, 1)
    world.kill(power_cut=True)
    assert (world.q.ready_count, len(world.q.scheduled)) == (3, 1)
    world.advance(1000)
    assert [world.fetch()[3][0][:1] for _ in range(4)] == [b"2", b"0", b"1", b"3"]
    world.close()


def test_a_ring_counts_what_is_not_in_memory() -> None:
    """Wherever the messages are, and also while their address pages: the newest stay, and no more than the ring has."""
    said = {"max_size_bytes": 200, "address_full_policy": "PAGE"}
    world = World({"x-ring-size": Field("l", 6)}, said, memory=0)
    for number in range(20):
        world.fill([100, 100], PERSISTENT, number)
        world.end_turn()
        assert world.q.store.is_deep
        assert world.q.ready_count <= 6
    assert world.q.counters.replaced == 34
    got = [world.fetch()[3][0][:4].rstrip(b"\0") for _ in range(6)]
    assert got == [b"%d.%d" % (number, at) for number in (17, 18, 19) for at in (0, 1)]
    world.close()


def test_messages_that_cannot_be_read_back_are_named() -> None:
    """The broker learns which, from the error and beside it: it cannot go on without them."""
    world = World({}, {}, memory=1000)
    for number in range(100):
        world.fill([100], PERSISTENT, number)
        world.end_turn()
    told: list[Unreadable] = []
    world.broker.context.storage.on_unreadable = told.append
    for base_lsn in segments_in(world.files, world.path):
        path = path_of(world.path, base_lsn)
        octets = bytearray(world.files.content(path))
        octets[::64] = bytes(len(octets[::64]))
        world.files.put(path, bytes(octets))
    with pytest.raises(Unreadable, match=r"messages \d+ to \d+ cannot be read back: .*\.log") as error:
        while world.q.pop():
            pass
    assert told == [error.value]
