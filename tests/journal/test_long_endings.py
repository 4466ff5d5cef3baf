"""A large queue is purged or deleted in slices, which the journal has as one: after a kill all is there, or nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from recorded_broker import RecordedBroker

from leveret.engine.bulk_delete import BINDINGS_SLICE, MESSAGES_SLICE, BulkDelete

COUNT = 3 * MESSAGES_SLICE + 5
BINDINGS = 3 * BINDINGS_SLICE + 5


def _started(path: Path) -> RecordedBroker:
    world = RecordedBroker(path, scope="durable")
    world.declare("q")
    world.declare("other")
    for number in range(COUNT // 500):
        world.publish("q", 500)
        if number % 7 == 0:
            world.publish("other", 1)  # ids have gaps
    world.publish("q", COUNT % 500)
    for number in range(BINDINGS):
        world.vhost.bindings.add("queue", "q", "amq.topic", f"k.{number}.#", {})
    world.settle()
    return world


def _begin(world: RecordedBroker, *, deletes: bool) -> BulkDelete:
    vhost, client = world.vhost, world.session.client
    return vhost.queues.begin_delete("q", client) if deletes else vhost.queues.begin_purge("q", client)


def _turn(world: RecordedBroker) -> bool:
    """One, and all that the journal has of it is on the disk. Returns whether there is more to do."""
    is_more = world.broker.end_turn()
    if not world.broker.is_unfinished:
        world.journal.commit()
    world.journal.wait(world.journal.writer.next_lsn)
    return is_more


@pytest.mark.parametrize("deletes", [False, True], ids=["purge", "delete"])
@pytest.mark.parametrize("turns", [1, 4, 12])
def test_a_kill_in_the_middle(tmp_path: Path, turns: int, deletes: bool) -> None:
    """All of it is there again, as with a small queue: nothing is half done."""
    world = _started(tmp_path)
    queue = world.vhost.queues.named("q")
    ids = [message.id for message in queue.messages()]
    _begin(world, deletes=deletes)
    for _ in range(turns):
        assert _turn(world)
    assert queue.ready_count < COUNT or len(queue.incoming) < BINDINGS
    world.kill()
    again = RecordedBroker(tmp_path, scope="durable")
    found = again.vhost.queues.named("q")
    assert [message.id for message in found.messages()] == ids
    assert len(found.incoming) == BINDINGS
    again.journal.close()


@pytest.mark.parametrize("deletes", [False, True], ids=["purge", "delete"])
def test_a_kill_behind_it(tmp_path: Path, deletes: bool) -> None:
    """All of it is gone, and only its own."""
    world = _started(tmp_path)
    bulk_delete = _begin(world, deletes=deletes)
    while not bulk_delete.is_small:
        assert _turn(world)
    client = world.session.client
    rest = world.vhost.queues.delete("q", client) if deletes else world.vhost.queues.purge("q", client)
    assert bulk_delete.finish() + rest == COUNT
    while _turn(world):
        pass
    world.kill()
    again = RecordedBroker(tmp_path, scope="durable")
    assert ("q" in again.vhost.queues) is not deletes
    assert deletes or again.vhost.queues.named("q").ready_count == 0
    assert again.vhost.queues.named("other").ready_count == world.vhost.queues.named("other").ready_count > 0
    again.journal.close()
