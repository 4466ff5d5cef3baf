"""What several parts of the broker keep to together: queues with their stores, meters, consumers, sessions, sites."""

import pytest

from leveret.settings import SettingsRepository, entry
from leveret.testing.harness import Harness
from leveret.testing.memory_pager import MemoryTempStore


@pytest.mark.parametrize("first", ["full", "open"])
def test_a_message_is_refused_if_one_of_its_queues_refuses_it(first: str) -> None:
    """Whichever is asked first, where each message may have other queues (behaviour page 3.3, reject-publish)."""
    world = Harness()
    world.session.select_confirms()
    for name in (first, {"full": "open", "open": "full"}[first]):
        world.queue(name, **({"x_max_length": 0, "x_overflow": "reject-publish"} if name == "full" else {}))
        world.bind(name, "amq.headers", a="b")
    world.publish("a", key="", exchange="amq.headers", headers={"a": "b"})
    assert (world.confirms(), world.all("open")) == ("N", "a")


def test_a_group_whose_consumer_is_free_passes_a_busy_one_beyond_a_memory_limit() -> None:
    """Messages of groups stay in memory, so that each consumer finds its own (address-settings page 3.4)."""
    settings = entry("q", max_size_messages=3, address_full_policy="PAGE")
    world = Harness(SettingsRepository([settings]), memory=1 << 20)
    world.queue()
    world.consume(tag="busy", prefetch=1)
    world.publish("first", headers={"JMSXGroupID": "a"})
    world.consume(tag="free", prefetch=1, by=world.connect())
    world.publish(*"abcdef", headers={"JMSXGroupID": "a"})
    world.publish("other", headers={"JMSXGroupID": "b"})
    assert (world.taken("busy"), world.taken("free")) == ("first", "other")


@pytest.mark.parametrize("arguments", [{}, {"x_max_priority": 1}], ids=["runs", "one by one"])
def test_all_that_no_disk_took_leaves_memory_when_the_disk_is_well_again(arguments: dict[str, int]) -> None:
    """A slice at a time, without another message (queues page F)."""
    world = Harness(memory=20_000)
    queue = world.queue(**arguments)
    temp = MemoryTempStore(0)
    world.broker.context.storage.open_temp = lambda: temp
    world.publish(*["x"] * 5000)
    assert temp.used == 0 and queue.paged_count > 4000
    temp.give_room(1 << 30)
    world.advance(2000)
    assert all(hasattr(part, "location") for part in queue.store.paged_parts()) and temp.used > 4000
    assert world.all() == "x" * 5000


@pytest.mark.parametrize("priorities", [(0,), (5,), (0, 5)], ids=["low", "high", "high behind low"])
@pytest.mark.parametrize(
    "arguments", [{"x_max_priority": 5}, {"x_max_length_bytes": 1 << 30}], ids=["levels", "octets"]
)
def test_small_messages_leave_memory_in_any_queue(arguments: dict[str, int], priorities: tuple[int, ...]) -> None:
    """Also in a queue that has priorities, or counts the octets of bodies (queues page F; ruling 5)."""
    world = Harness(memory=100_000)
    queue = world.queue(**arguments)
    for priority in priorities:
        for _ in range(10):
            world.publish(*["x" * 100] * 100, delivery_mode=2, priority=priority)
    assert queue.store.held_octets <= 100_000
    assert world.all() == "x" * 100_000 * len(priorities)
