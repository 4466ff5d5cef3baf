"""Limits that come by policy to a deep queue, of which memory holds only the head."""

from __future__ import annotations

import pytest
from durable_desk import DurableDesk
from simulated_files import SimulatedFiles

from leveret.engine import Message, Queue
from leveret.engine.stores.paged_run import octets_paged
from leveret.journal.recording.pager import JournalPager
from leveret.settings import SettingsRepository, entry

COUNT, SIZE = 5000, 100


def deep_desk() -> DurableDesk:
    """A durable queue `q` of many messages, the most of them in the journal alone."""
    desk = DurableDesk(SimulatedFiles())
    broker = desk.pair.broker
    broker.context.storage.pager = JournalPager(broker, desk.journal, desk.recorder, 200_000)
    desk.declare()
    desk.publish(*[f"{number:0{SIZE}}" for number in range(COUNT)], delivery_mode=2)
    desk.settle()
    queue = desk.vhost.queues["q"]
    assert queue.store.is_deep and len(queue.store) - queue.store.in_memory > COUNT // 2
    return desk


def settle_limits(desk: DurableDesk) -> None:
    """All slices."""
    while desk.pair.broker.end_turn():
        pass
    desk.settle()
    desk.confirms()


@pytest.mark.parametrize(
    "definition, left", [({"max-length": 7}, 7), ({"max-length-bytes": 9 * SIZE + 1}, 9), ({"max-length-bytes": 0}, 0)]
)
def test_the_newest_stay(definition: dict[str, int], left: int) -> None:
    """From memory and from behind it; they are gone for good, and what comes is counted with what is there."""
    desk = deep_desk()
    desk.command("policies", action="set", name="p", pattern="", definition=definition)
    settle_limits(desk)
    assert desk.counts()[0] == left
    assert desk.counter("dropped") == COUNT - left
    desk.publish("z" * SIZE, delivery_mode=2)
    settle_limits(desk)
    again = DurableDesk(desk.files.power_cut())
    assert again.counts()[0] == left
    bodies = [f"{number:0{SIZE}}" for number in range(COUNT - left + 1, COUNT)] + ["z" * SIZE] if left else []
    assert again.all() == "".join(bodies)


def test_a_limit_that_lets_all_stay() -> None:
    """Their order is what it was, also when it goes again and more come."""
    desk = deep_desk()
    desk.command("policies", action="set", name="p", pattern="", definition={"max-length-bytes": COUNT * SIZE * 2})
    desk.publish("y" * SIZE, delivery_mode=2)
    desk.command("policies", action="clear", name="p")
    desk.publish("z" * SIZE, delivery_mode=2)
    settle_limits(desk)
    assert desk.counts()[0] == COUNT + 2
    expected = [f"{number:0{SIZE}}" for number in range(COUNT)] + ["y" * SIZE, "z" * SIZE]
    assert desk.all() == "".join(expected)


def test_an_address_that_counts_octets_comes_late() -> None:
    """All counts from then on: what is in memory, and what is in the journal alone; it ends at nothing."""
    desk = deep_desk()
    queue = desk.vhost.queues["q"]
    said = {"max_size_bytes": 10**9, "address_full_policy": "DROP"}
    desk.pair.broker.reloading.replace_settings(SettingsRepository([entry("q", **said)]))
    assert queue.events.octets == octets_of(queue)
    desk.publish(*["z" * SIZE] * 3, delivery_mode=2)
    assert queue.events.octets == octets_of(queue)
    for _ in range(COUNT - 10):
        desk.ack(desk.must_get("q"))
        assert queue.events.octets == octets_of(queue)
    assert queue.purge() == 13
    assert queue.events.octets == 0
    desk.settle()


def octets_of(queue: Queue) -> int:
    """Of all messages: those in memory, and those that are only in the journal."""
    parts = queue.store.paged_parts()
    aside = [part for part in parts if isinstance(part, Message)]
    in_memory = sum(len(message.content) for message in (*queue.messages(), *aside, *queue.unacked_messages()))
    return in_memory + sum(octets_paged(part.sizes, part.location) for part in parts if not isinstance(part, Message))
