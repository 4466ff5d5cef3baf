"""The engine's invariants see what is written down in two ways; each test here also ends with none broken."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from leveret.engine import (
    BrokerOptions,
    Field,
    FieldTable,
)
from leveret.engine.invariants import InvariantBroken, check_broker, check_queues
from leveret.engine.leases.state import ActiveSet, leases_of
from leveret.settings import SystemUsage
from leveret.testing.harness import Harness

KINDS: dict[str, FieldTable] = {
    "classic": {},
    "priorities": {"x-max-priority": Field("l", 3)},
    "a limit": {"x-max-length-bytes": Field("l", 1 << 20)},
    "leased": {"x-queue-type": Field("S", b"amps"), "x-max-backlog-per-consumer": Field("l", 3)},
    "leases that end": {
        "x-queue-type": Field("S", b"amps"),
        "x-max-backlog-per-consumer": Field("l", 3),
        "x-lease-period": Field("l", 5000),
    },
    "leased at most once": {
        "x-queue-type": Field("S", b"amps"),
        "x-max-backlog-per-consumer": Field("l", 3),
        "x-semantics": Field("S", b"at-most-once"),
    },
    "non-destructive": {"x-non-destructive": Field("t", True)},
    "times to live": {"x-message-ttl": Field("l", 60_000), "x-expires": Field("l", 60_000)},
}


class World(Harness):
    """A metered queue `q` with eight messages, three of which are out, and one that waits for its time."""

    properties = {"delivery_mode": 2}

    def __init__(self, kind: str = "classic") -> None:
        super().__init__(options=BrokerOptions(system_usage=SystemUsage(memory=1 << 20, store=0, temp=0)))
        self.session.set_prefetch(3, total=False)
        self.q: Any = self.queue(client=self.client, **KINDS[kind])
        self.bind("q", "amq.direct", "key")
        self.used_route = self.client.vhost.router.route("amq.direct", "key", self.client.user)
        self.session.select_confirms()
        self.publish(*"x" * 8)
        if kind != "times to live":
            self.consumer = self.consume()


def _unacked(world: World) -> None:
    world.q.events.unacked += 1


def _tag(world: World) -> None:
    del world.session.unacked[1]


def _consumer(world: World) -> None:
    world.consumer.unacked -= 1


def _session(world: World) -> None:
    world.session.unacked_by_consumers -= 1


def _forgotten(world: World) -> None:
    world.q.sessions.clear()


def _rota(world: World) -> None:
    world.q.consumer_list.consumers.clear()


def _twice(world: World) -> None:
    world.q.store.append(world.session.unacked[1])


def _held(world: World) -> None:
    next(iter(world.q.store)).holder = world.consumer


def _order(world: World) -> None:
    world.q.store.ready.rotate()


def _due(world: World) -> None:
    world.q.scheduled.add(5, world.q.store.take(1, 1)[0])


def _woken(world: World) -> None:
    world.q.timers.arm_due(5, print)


def _expiring(world: World) -> None:
    world.q.store.expiring = True
    next(iter(world.q.store)).expires_ns = 1 << 60


def _waits(world: World) -> None:
    world.consumer.prefetch = 9


def _meter(world: World) -> None:
    world.q.events.meter.in_memory_octets += 1


def _node(world: World) -> None:
    world.broker.flow._roots["memory"].used += 1


def _budget(world: World) -> None:
    world.broker.context.storage.memory.total += 1


def _binding(world: World) -> None:
    world.q.incoming.clear()


def _binding_count(world: World) -> None:
    world.client.vhost.bindings.count += 1


def _route(world: World) -> None:
    world.used_route.queues = []


def _used_route_goes_on(world: World) -> None:
    """An index and the routes know nothing of a binding's end."""
    exchange = world.q.incoming.popitem()[0].source
    world.client.vhost.bindings.count -= 1
    exchange.bindings.popitem()
    exchange.destinations.clear()


def _cancelled(world: World) -> None:
    world.broker.context.deadlines.set(5, print).action = None


def _confirms(world: World) -> None:
    world.session.confirms.confirmed = 9  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "mistake, words",
    [
        (_unacked, "counts 4 unacknowledged, sessions have 3 tags of it"),
        (_tag, "consumer 'c' counts 3 unacknowledged, tags 2"),
        (_consumer, "consumer 'c' counts 2 unacknowledged, tags 3"),
        (_session, "counts 2 unacknowledged of consumers, tags 3"),
        (_forgotten, "does not know of its deliveries here"),
        (_rota, "consumer 'c' is not in the consumer list of queue 'q'"),
        (_twice, "messages are in two places: [1]"),
        (_held, "messages are ready, and have a holder: [4]"),
        (_order, "level 0 counts as sorted and is not"),
        (_due, "a message is due at 5, no deadline is set"),
        (_woken, "nothing waits for its time, the deadline is 5"),
        (_expiring, "a head expires at"),
        (_waits, "a consumer could get a ready message, and no dispatch is pending"),
        (_meter, "octets, there are"),
        (_node, "broker: memory limit"),
        (_budget, "stores may take 1 octets of memory, they were charged 0"),
        (_binding, "'q' does not know of its binding 'key'"),
        (_binding_count, "vhost '/' counts"),
        (_route, "route of 'key' at exchange 'amq.direct' in vhost '/': leads to [], bindings to ['q']"),
        (_used_route_goes_on, "leads to ['q'], bindings to []"),
        (_cancelled, "the deadlines count"),
        (_confirms, "9 of 8 publishes are confirmed"),
    ],
)
def test_a_contradiction_is_named(mistake: Callable[[World], None], words: str) -> None:
    """What was changed at one place only, in the words of those who look for it."""
    world = World()
    check_broker(world.broker)
    mistake(world)
    with pytest.raises(InvariantBroken) as caught:
        check_broker(world.broker)
    assert words in str(caught.value)
    world.broker.connections.clear()  # what is left contradicts nothing
    world.broker.virtual_hosts.clear()
    world.broker.context.deadlines.__init__()  # type: ignore[misc]
    world.broker.flow._roots.clear()
    world.broker.context.storage.memory.__init__()  # type: ignore[misc]


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_queue_is_in_order(kind: str) -> None:
    """While deliveries are out, when they came back, and when their client is gone."""
    world = World(kind)
    check_broker(world.broker)
    if kind != "times to live":
        world.session.reject(1, requeue=True)
        world.session.ack(2)
        world.end_turn()
        check_broker(world.broker)
    check_queues([world.q])
    world.client.close()
    world.end_turn()
    check_broker(world.broker)


def test_a_lease_without_a_tag_is_named() -> None:
    """And a tag without a lease."""
    world = World("leased")
    lease = leases_of(world.q).book.leases.by_id.popitem()[1]
    with pytest.raises(InvariantBroken, match="tags are out without a lease"):
        check_broker(world.broker)
    leases_of(world.q).book.leases.by_id[lease.id] = lease
    check_broker(world.broker)


def test_a_lease_that_no_deadline_ends_is_named() -> None:
    """Unless the queue waits for its next slice, which sets it."""
    world = World("leases that end")
    check_broker(world.broker)
    context, leases = world.broker.context, leases_of(world.q)
    context.deadlines.cancel(leases.deadline)
    with pytest.raises(InvariantBroken, match="a lease ends at .*, and no deadline is set"):
        check_broker(world.broker)
    context.background.trim_later(world.q)
    check_broker(world.broker)
    world.end_turn()
    assert world.q not in context.background.to_trim
    check_broker(world.broker)


def test_a_head_that_no_deadline_expires_is_named() -> None:
    """Unless the queue waits for its next slice, which sets the deadline."""
    world = World("times to live")
    check_broker(world.broker)
    background = world.broker.context.background
    world.q.timers.arm_expiry(0, lambda: None)
    with pytest.raises(InvariantBroken, match="a head expires at .*, no deadline is set"):
        check_broker(world.broker)
    background.trim_later(world.q)
    check_broker(world.broker)
    world.end_turn()
    assert world.q not in background.to_trim
    check_broker(world.broker)


def _stranger(world: World) -> None:
    leases_of(world.q).consumer_list.overdue.add(world.session)


def _cancels(world: World) -> None:
    leases_of(world.q).book.cancels[99] = 1


def _active(world: World) -> None:
    leases_of(world.q).active = active = ActiveSet(1000)
    active.refill(world.q.store)


@pytest.mark.parametrize(
    "mistake, words",
    [
        (_stranger, "remembers 1 holders that are not its consumers"),
        (_cancels, "counts cancels of messages that are gone: [99]"),
        (_active, "counts 5 active messages, 8 are there"),
    ],
)
def test_a_contradiction_of_a_leased_queue_is_named(mistake: Callable[[World], None], words: str) -> None:
    """What is written down of messages and consumers is of those that are there."""
    world = World("leased")
    check_broker(world.broker)
    mistake(world)
    with pytest.raises(InvariantBroken, match=re.escape(words)):
        check_broker(world.broker)
    leases = leases_of(world.q)
    leases.consumer_list.overdue.clear()
    leases.book.cancels.clear()
    leases.active = None
