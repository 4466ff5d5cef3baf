"""What leaves the memory of a queue, and what comes back: when disks fail, what usage says, what a snapshot holds."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
from typing import Any

import pytest
from queue_world import QueueWorld as World

from leveret.engine import Message, reconfigure, scheduled
from leveret.engine.messages.field_table import Field, FieldTable
from leveret.engine.stores import memory_budget, paged_run, tailed_store
from leveret.testing.harness import Harness

KINDS: dict[str, FieldTable] = {
    "plain": {},
    "priorities": {"x-max-priority": Field("l", 2)},
    "ring": {"x-ring-size": Field("l", 30)},
    "times to live": {"x-message-ttl": Field("l", 9000)},
    "kept": {"x-non-destructive": Field("t", True)},
    "last values": {"x-last-value-key": Field("S", b"k")},
}
TAILED = [kind for kind in KINDS if kind not in ("kept", "last values")]


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A deep queue has some messages in memory; runs are short."""
    for module, name, value in (
        (memory_budget, "SMALL", 0), (tailed_store, "LOAD_SLICE", 3), (tailed_store, "LOW", 3),
        (tailed_store, "HIGH", 3), (paged_run, "APART_MIN", 3), (paged_run, "RUN_MAX", 6),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, value)


def filled(kind: str, *, count: int = 20, durable: bool = True, mode: int = 2) -> World:
    """A deep queue, metered."""
    world = World(KINDS[kind], {}, memory=0, durable=durable)
    for number in range(count):
        world.write([b"%02d" % number], {"delivery_mode": mode, "priority": number % 3})
        world.end_turn()
    world.check()
    return world


@pytest.mark.parametrize("by_limit", [False, True])
@pytest.mark.parametrize("kind", TAILED)
def test_what_a_disk_did_not_take_leaves_when_it_is_well(kind: str, by_limit: bool) -> None:
    """Transient messages of a deep queue stay in memory while the temp store has no room, and not longer."""
    said, memory = ({"memory_limit": 100}, 1 << 40) if by_limit else ({}, 0)
    world = World(KINDS[kind], said, memory=memory, durable=False)
    world.temp.give_room(0)
    for number in range(20):
        world.write([b"%02d" % number], {"priority": number % 3})
        world.end_turn()
    assert world.temp.used == 0
    world.advance(700)
    world.temp.give_room(1 << 40)
    world.advance(100)
    before = world.temp.used
    for _ in range(12):
        world.advance(100)
    stuck = [part for part in world.q.store.paged_parts() if isinstance(part, Message)]
    assert (before, world.temp.used > 0, stuck) == (0, True, [])
    assert world.q.ready_count == 20
    world.check()


Way = Callable[[World], object]


def got(world: World, *, no_ack: bool = True) -> None:
    while world.fetch(no_ack=no_ack) is not None:
        pass


def acked(world: World) -> None:
    got(world, no_ack=False)
    world.sessions[2].ack(0, multiple=True)


def rejected(world: World) -> None:
    got(world, no_ack=False)
    world.sessions[2].reject(0, multiple=True, requeue=False)


def consumed(world: World) -> None:
    world.join("t", no_ack=True)
    world.end_turn()


def expired(world: World) -> None:
    world.write([b"expires"] * 5, {"delivery_mode": 2, "expiration": b"500"})
    world.end_turn()
    acked(world)
    world.write([b"expires"] * 5, {"delivery_mode": 2, "expiration": b"500"})
    world.advance(1000)


def in_ring(world: World) -> None:
    reconfigure.set_ring_size(world.q, 1)
    world.write([b"%d" % number for number in range(30)], {"delivery_mode": 2})
    world.end_turn()
    acked(world)


def cancelled(world: World) -> None:
    acked(world)
    world.write([b"waits"] * 3, {"delivery_mode": 2, "headers": {"x-delay": Field("l", 5000)}})
    for _, message in world.q.scheduled.entries():
        assert scheduled.cancel(world.q, message.id)


WAYS: dict[str, Way] = {
    "purged": lambda world: world.q.purge(),
    "deleted": lambda world: world.vhost.queues.delete("q", world.client),
    "got": got,
    "acknowledged": acked,
    "rejected": rejected,
    "consumed": consumed,
    "expired": expired,
    "in a ring": in_ring,
    "cancelled": cancelled,
}


def usage(world: World) -> dict[str, int]:
    """What is used of each limit of the broker, and of the temp store."""
    return {**{node.reason: node.used for node in world.broker.flow.nodes()}, "temp store": world.temp.used}


@pytest.mark.parametrize("mode", [1, 2], ids=["transient", "persistent"])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", ["plain", "priorities", "ring"])
def test_an_empty_queue_uses_nothing(kind: str, way: str, mode: int) -> None:
    """Whatever way its messages went, and wherever they were: publishers that wait for room would wait for ever."""
    world = filled(kind, mode=mode)
    assert world.q.store.is_deep
    before = usage(world)
    assert before["temp store"] > 0 or mode == 2
    WAYS[way](world)
    world.end_turn()
    world.check()
    assert sum(len(queue.store) + queue.unacked + len(queue.scheduled) for queue in world.queues) == 0
    assert set(usage(world).values()) == {0}
    if way in ("purged", "deleted"):
        assert world.broker.context.storage.memory.total == 0


@pytest.mark.parametrize("way", ["purged", "deleted"])
@pytest.mark.parametrize("kind", ["kept", "last values"])
def test_a_kept_queue_that_was_emptied_uses_nothing(kind: str, way: str) -> None:
    """The same where acknowledged messages stay, and where values replace others."""
    world = World(KINDS[kind], {}, memory=4000)
    for number in range(60):
        world.write([b"%02d" % number], {"delivery_mode": 2, "headers": {"k": Field("l", number % 50)}})
    world.end_turn()
    world.check(is_displaced=True)
    assert world.q.store.is_deep
    WAYS[way](world)
    world.end_turn()
    world.check()
    assert set(usage(world).values()) == {0}


@pytest.mark.parametrize("kind", ["plain", "priorities"])
@pytest.mark.parametrize("mode", [1, 2], ids=["transient", "persistent"])
def test_a_snapshot_of_what_is_paged_out_is_a_picture(kind: str, mode: int) -> None:
    """It names what was there when it was made, while others come and go: no more, and no less."""
    world = filled(kind, mode=mode)
    parts = world.q.store.paged_parts()
    taken = [(list(part.ids), list(part.sizes[:])) for part in parts if not isinstance(part, Message)]
    world.write([b"later"] * 9, {"delivery_mode": mode})
    for _ in range(11):
        world.fetch()
        world.end_turn()
    assert [(list(part.ids), list(part.sizes[:])) for part in parts if not isinstance(part, Message)] == taken
    here = {id_ for part in world.q.store.paged_parts() if not isinstance(part, Message) for id_ in part.ids}
    gone = {id_ for ids, _ in taken for id_ in ids} - here
    assert gone and not gone & {message.id for message in world.q.store if message.id in here}
    world.check()


@pytest.mark.parametrize("mode", [1, 2], ids=["transient", "persistent"])
@pytest.mark.parametrize("kind", ["plain", "priorities"])
def test_each_message_keeps_its_time_and_its_content(kind: str, mode: int) -> None:
    """Out of memory and back, in parts and in any order, by takes from the middle and returns to it."""
    world = World(KINDS[kind], {}, memory=0)
    now_ns = world.clock.monotonic_ns()
    expected: dict[bytes, int] = {}
    for number in range(30):
        body, wait_ms = b"%02d" % number + bytes(number % 4), (0, 700, 500, 900, 600)[number % 5]
        expected[body.rstrip(b"\0")] = now_ns + wait_ms * 1_000_000 if wait_ms else 0
        expiration = b"%d" % wait_ms if wait_ms else None
        world.write([body], {"delivery_mode": mode, "priority": number // 10, "expiration": expiration})
    world.end_turn()
    assert world.q.store.is_deep
    session = world.sessions[2]
    for wanted in (7, 12, 30):
        for _ in range(wanted):
            world.fetch(no_ack=False)
        out = dict(session.unacked)
        assert len(out) == wanted
        for message in out.values():
            body = world.content(message.envelope, message.content)[0]
            assert message.expires_ns == expected[body], body
        for tag in [*list(out)[::3], *list(out)[1::3], *list(out)[2::3]]:
            session.reject(tag, requeue=True)
            world.end_turn()
            world.check()


@pytest.mark.parametrize("mode", [1, 2], ids=["transient", "persistent"])
@pytest.mark.parametrize("kind", TAILED)
def test_what_stands_out_of_order_is_paged_out_and_read_back(kind: str, mode: int) -> None:
    """Messages whose delay is over stand before older ones, also when all has left memory, and when it is back."""
    world = World(KINDS[kind], {}, memory=1 << 40)
    for number, wait in enumerate((0, 500, 0, 300, 500, 0)):
        headers = {"headers": {"x-delay": Field("l", wait)}} if wait else {}
        bodies = [b"%d.%d" % (number, at) + bytes(number) for at in range(3)]
        world.write(bodies, {"delivery_mode": mode, **headers})
    world.end_turn()
    world.advance(600)
    before = world.ready(world.q)
    assert [one.id for one in before] != sorted(one.id for one in before)
    world.configure({"memory_limit": 1})
    world.end_turn()
    assert world.q.store.in_memory < 2 and world.q.store.is_deep
    world.check(is_displaced=True)
    assert world.ready(world.q) == before
    bodies = [world.fetch()[3][0] for _ in before]
    assert bodies == [b"%d.%d" % (number, at) for number in (1, 4, 3, 0, 2, 5) for at in range(3)]
    world.check(is_displaced=True)


def returned(world: World, how: str) -> None:
    """All that a client got comes back."""
    session = world.sessions[2]
    if how == "rejected":
        session.reject(0, multiple=True, requeue=True)
    elif how == "one by one":
        for tag in list(session.unacked):
            session.reject(tag, requeue=True)
    elif how == "recovered":
        session.recover()
    else:
        session.close(failed=how == "lost")
        world.sessions[2] = world.client.open_session()


@pytest.mark.parametrize("how", ["rejected", "one by one", "recovered", "closed", "lost"])
@pytest.mark.parametrize("by_limit", [False, True])
@pytest.mark.parametrize("kind", ["plain", "priorities"])
def test_what_comes_back_is_in_memory_within_its_limits(kind: str, by_limit: bool, how: str) -> None:
    """The limit of all queues, or the queue's own: what clients had out counts as soon as it is ready again."""
    limit = 3000
    said, memory = ({"memory_limit": limit}, 1 << 40) if by_limit else ({}, limit)
    world = World(KINDS[kind], said, memory=memory)
    for number in range(40):
        world.write([bytes(100)], {"delivery_mode": 2, "priority": number % 3})
        world.end_turn()
    world.join("t", who=2)
    world.end_turn()
    world.sessions[2].cancel("t")
    assert (world.q.unacked, world.q.store.in_memory) == (40, 0)
    returned(world, how)
    world.end_turn()
    world.check()
    assert world.q.ready_count == 40
    octets = sum(len(message.content) for message in world.q.store) if by_limit else world.q.store.held_octets
    assert octets <= limit


@pytest.mark.parametrize("way", ["purged", "deleted"])
@pytest.mark.parametrize("kind", KINDS)
def test_memory_of_an_emptied_queue_is_for_others(kind: str, way: str) -> None:
    """What it had, others may have: they do not page out."""
    world = World(KINDS[kind], {}, memory=20_000)
    for number in range(40):
        world.write([bytes(100)], {"delivery_mode": 2, "headers": {"k": Field("l", number)}})
    world.end_turn()
    WAYS[way](world)
    world.end_turn()
    memory = world.broker.context.storage.memory
    assert memory.total == sum(charge[0] for charge in memory._charges.values()) == 0
    for _ in range(40):
        world.write([bytes(100)], {"delivery_mode": 2}, "other.x")
    world.end_turn()
    other = world.named("other")
    assert (other.ready_count, other.store.is_deep) == (40, False)
    assert memory.total == sum(charge[0] for charge in memory._charges.values()) <= 20_000


@pytest.mark.parametrize("kind", TAILED)
def test_what_the_journal_does_not_have_stays_in_memory(kind: str) -> None:
    """While a disk is full nothing is recorded: nobody could read what left memory."""
    world = World(KINDS[kind], {}, memory=1 << 40)
    for number in range(20):
        world.write([b"%02d" % number], {"delivery_mode": 2, "priority": number // 7})
    world.end_turn()
    pager: Any = world.broker.context.storage.pager
    pager.journal = {id_: one for id_, one in world.published.items() if id_ % 3}
    world.configure({"memory_limit": 1})
    world.end_turn()
    assert world.q.store.is_deep
    parts = [part for part in world.q.store.paged_parts() if not isinstance(part, Message)]
    assert parts and {id_ for part in parts for id_ in part.ids} <= pager.journal.keys()
    world.check()
    bodies = [world.fetch()[3][0] for _ in range(20)]
    assert sorted(bodies) == [b"%02d" % number for number in range(20)]


@pytest.mark.parametrize("count", [1, 2, 3, 5, 9])
@pytest.mark.parametrize("memory", [None, 0], ids=["in memory", "deep"])
@pytest.mark.parametrize("kind", ["plain", "priorities"])
def test_a_ring_has_no_more_than_its_size_after_returns(kind: str, memory: int | None, count: int) -> None:
    """However many come back at once, and wherever those are that have to go: the newest stay."""
    world = World(KINDS[kind], {}, memory=memory)
    world.write([b"%d" % number for number in range(count)], {"delivery_mode": 2})
    world.join("t", who=2)
    world.end_turn()
    world.sessions[2].cancel("t")
    reconfigure.set_ring_size(world.q, 9)
    world.write([b"new %d" % number for number in range(9)], {"delivery_mode": 2})
    world.end_turn()
    world.sessions[2].reject(0, multiple=True, requeue=True)
    world.end_turn()
    world.check()
    assert (world.q.ready_count, world.q.counters.replaced) == (9, count)
    assert [world.fetch()[3][0] for _ in range(9)] == [b"new %d" % number for number in range(9)]


@pytest.mark.parametrize("order", list(permutations(range(3))))
@pytest.mark.parametrize("how", ["expires", "ring", "get"])
def test_the_head_of_what_is_kept_is_there(how: str, order: tuple[int, ...]) -> None:
    """Messages failed for good at the head of what is paged out, in any order: the next one is the head."""
    arguments = {"x-non-destructive": Field("t", True), **({"x-ring-size": Field("l", 60)} if how == "ring" else {})}
    world = World(arguments, {}, memory=4000)
    for number in range(60):
        expiration = b"500" if how == "expires" else None
        world.write([b"%02d" % number], {"delivery_mode": 2, "expiration": expiration})
    world.join("t", prefetch=3)
    world.end_turn()
    assert world.q.store.is_deep
    world.sessions[0].cancel("t")
    tags = list(world.sessions[0].unacked)
    for at in order:
        world.sessions[0].reject(tags[at], requeue=False)
        world.end_turn()
    assert world.fetch()[3][0] == b"03"
    if how == "expires":
        world.advance(500)
        assert (world.q.ready_count, world.q.counters.expired) == (0, 57)
    elif how == "ring":
        world.write([b"%02d" % number for number in range(60, 70)], {"delivery_mode": 2})
        world.end_turn()
        assert world.fetch()[3][0] == b"10"
        assert (world.q.ready_count, world.q.counters.replaced) == (60, 7)
    world.check()


def test_messages_that_come_one_by_one_add_up() -> None:
    """Each is far below what the broker may have in memory: together they are not let in above it."""
    harness = Harness(memory=1_000_000)
    queue = harness.queue()
    for _ in range(400):
        harness.publish(b"x" * 5000, delivery_mode=2)
    assert queue.store.has_tail
    assert queue.store.held_octets <= 1_000_000
    assert queue.ready_count == 400
