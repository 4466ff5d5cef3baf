"""A purge and the end of a queue cost the same however much is ready: it is freed in slices, and copied by nobody."""

from __future__ import annotations

import pytest
from steps import steps

from leveret.engine import Broker, Field, ManualClock, User
from leveret.settings import SettingsRepository, entry
from leveret.testing.harness import Harness

COUNT = 30_000  # more than one slice


@pytest.mark.parametrize("is_deleted", [False, True])
def test_what_was_ready_is_freed_as_it_is(is_deleted: bool) -> None:
    """The very list that was in the store waits to be freed."""
    harness = Harness(unsent_max=1 << 40)
    broker, vhost, client = harness.broker, harness.vhost, harness.client
    queue = harness.queue(durable=False)
    harness.publish(*["x"] * COUNT)
    ready = queue.store.ready
    remove = vhost.queues.delete if is_deleted else vhost.queues.purge
    assert remove("q", client) == COUNT
    assert list(map(id, broker.background._freed)) == [id(ready)]
    harness.finish_turns()
    assert not ready and not broker.background.pending


@pytest.mark.parametrize("kind", ["direct", "fanout", "topic", "headers", "x-consistent-hash", "x-delayed-message"])
def test_an_exchange_goes_with_its_bindings_at_once(kind: str) -> None:
    """Nobody looks anything up in it any more, so each binding costs little; nothing of it is left anywhere."""
    count = 2_000
    broker = Broker(ManualClock())
    vhost = broker.virtual_hosts["/"]
    delayed = {"x-delayed-type": Field("S", b"topic")} if kind == "x-delayed-message" else {}
    vhost.exchanges.declare("e", kind, arguments=delayed)
    vhost.exchanges.declare("f", "fanout")
    queue = vhost.queues.declare("q", client=None)
    for number in range(count):
        key = str(number + 1) if kind == "x-consistent-hash" else f"a.{number}.*"
        arguments = {"n": Field("I", number)} if kind == "headers" else {}
        vhost.bindings.add("queue", "q", "e", key, arguments)
    vhost.bindings.add("exchange", "e", "amq.topic", "#", {})
    vhost.bindings.add("exchange", "f", "e", "1", {"n": Field("I", 1)})
    vhost.bindings.add("queue", "q", "amq.topic", "kept", {})
    assert vhost.bindings.count == count + 3
    led = vhost.router.route("amq.topic", "a.7.x", User("guest"))
    assert steps(lambda: vhost.exchanges.delete("e")) <= 12 * count
    assert [binding.routing_key for binding in queue.incoming] == ["kept"]
    assert vhost.bindings.count == 1
    assert not vhost.exchanges["f"].incoming and vhost.exchanges["amq.topic"].destinations == {queue: 1}
    assert led.is_stale or led.queues is None
    assert list(vhost.router.route("amq.topic", "kept", User("guest")).queues or ()) == [queue]
    assert list(vhost.router.route("amq.topic", "a.7.x", User("guest")).queues or ()) == []


def test_the_end_of_a_queue_costs_the_same_beside_many_others_with_limits() -> None:
    """Each address has a limit of its own, which ends with its queue."""
    harness = Harness(SettingsRepository([entry("#", max_size_bytes=1000, address_full_policy="BLOCK")]))
    found = []
    for count in (10, 1_000):
        for number in range(count):
            harness.queue(f"q{number}")
        found.append(steps(lambda: harness.vhost.queues.delete("q5", harness.client)))
    assert found[0] == found[1]
    assert len(harness.broker.flow.nodes()) == 999
