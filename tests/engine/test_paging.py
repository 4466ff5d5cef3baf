"""What leaves the memory of a queue, and what comes back: when disks fail, what usage says, what a snapshot holds."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from queue_world import QueueWorld as World

from leveret.engine import Message
from leveret.engine.messages.field_table import Field, FieldTable
from leveret.engine.stores import memory_budget, paged_run, tail_paging

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
        (memory_budget, "SMALL", 0), (tail_paging, "SLICE", 3), (tail_paging, "LOW", 3), (tail_paging, "HIGH", 3),
        (paged_run, "APART_MIN", 3), (paged_run, "RUN_MAX", 6),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, value)


def filled(kind: str, *, count: int = 20, durable: bool = True, mode: int = 2) -> World:
    """A deep queue, metered."""
    world = World(KINDS[kind], {}, memory=0, durable=durable)
    for number in range(count):
        world.publish([b"%02d" % number], {"delivery_mode": mode, "priority": number % 3})
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
        world.publish([b"%02d" % number], {"priority": number % 3})
        world.end_turn()
    assert world.temp.used == 0
    world.advance(700)
    world.temp.give_room(1 << 40)
    world.advance(100)
    before = world.temp.used
    for _ in range(12):
        world.advance(100)
    stuck = [part for part in world.queue.store.paged_parts() if isinstance(part, Message)]
    assert (before, world.temp.used > 0, stuck) == (0, True, [])
    assert world.queue.ready_count == 20
    world.check()


Way = Callable[[World], object]


def got(world: World, *, no_ack: bool = True) -> None:
    while world.get(no_ack=no_ack) is not None:
        pass


def acked(world: World) -> None:
    got(world, no_ack=False)
    world.sessions[2].ack(0, multiple=True)


def rejected(world: World) -> None:
    got(world, no_ack=False)
    world.sessions[2].reject(0, multiple=True, requeue=False)


def consumed(world: World) -> None:
    world.consume("t", no_ack=True)
    world.end_turn()


def expired(world: World) -> None:
    world.publish([b"expires"] * 5, {"delivery_mode": 2, "expiration": b"500"})
    world.end_turn()
    acked(world)
    world.publish([b"expires"] * 5, {"delivery_mode": 2, "expiration": b"500"})
    world.advance(1000)


def in_ring(world: World) -> None:
    world.queue.set_ring_size(1)
    world.publish([b"%d" % number for number in range(30)], {"delivery_mode": 2})
    world.end_turn()
    acked(world)


def cancelled(world: World) -> None:
    acked(world)
    world.publish([b"waits"] * 3, {"delivery_mode": 2, "headers": {"x-delay": Field("l", 5000)}})
    for _, message in world.queue.scheduled.entries():
        assert world.queue.cancel_scheduled(message.id)


WAYS: dict[str, Way] = {
    "purged": lambda world: world.queue.purge(),
    "deleted": lambda world: world.vhost.delete_queue("q", world.client),
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
    assert world.queue.store.is_deep
    before = usage(world)
    assert before["temp store"] > 0 or mode == 2
    WAYS[way](world)
    world.end_turn()
    world.check()
    assert sum(len(queue.store) + queue.unacked + len(queue.scheduled) for queue in world.queues) == 0
    assert set(usage(world).values()) == {0}
    if way in ("purged", "deleted"):
        assert world.broker.storage.memory.total == 0


@pytest.mark.parametrize("way", ["purged", "deleted"])
@pytest.mark.parametrize("kind", ["kept", "last values"])
def test_a_kept_queue_that_was_emptied_uses_nothing(kind: str, way: str) -> None:
    """The same where acknowledged messages stay, and where values replace others."""
    world = World(KINDS[kind], {}, memory=4000)
    for number in range(60):
        world.publish([b"%02d" % number], {"delivery_mode": 2, "headers": {"k": Field("l", number % 50)}})
    world.end_turn()
    world.check(is_displaced=True)
    assert world.queue.store.is_deep
    WAYS[way](world)
    world.end_turn()
    world.check()
    assert set(usage(world).values()) == {0}


@pytest.mark.parametrize("kind", ["plain", "priorities"])
@pytest.mark.parametrize("mode", [1, 2], ids=["transient", "persistent"])
def test_a_snapshot_of_what_is_paged_out_is_a_picture(kind: str, mode: int) -> None:
    """It names what was there when it was made, while others come and go: no more, and no less."""
    world = filled(kind, mode=mode)
    parts = world.queue.store.paged_parts()
    taken = [(list(part.ids), list(part.sizes[:])) for part in parts if not isinstance(part, Message)]
    world.publish([b"later"] * 9, {"delivery_mode": mode})
    for _ in range(11):
        world.get()
        world.end_turn()
    assert [(list(part.ids), list(part.sizes[:])) for part in parts if not isinstance(part, Message)] == taken
    here = {id_ for part in world.queue.store.paged_parts() if not isinstance(part, Message) for id_ in part.ids}
    gone = {id_ for ids, _ in taken for id_ in ids} - here
    assert gone and not gone & {message.id for message in world.queue.store if message.id in here}
    world.check()
