"""Each limit of the broker on both sides: the last that it allows, and the first that it refuses."""

from collections.abc import Callable
from typing import Any

import pytest

from leveret.engine import User, Users, VirtualHostLimits
from leveret.engine.errors import (
    AllQueuesMaxReached,
    BindingsMaxReached,
    ConnectionsMaxReached,
    ConsumersMaxReached,
    EngineError,
    QueuesMaxReached,
    UnackedMaxReached,
    UserChannelsMaxReached,
    UserConnectionsMaxReached,
)
from leveret.engine.options import BrokerOptions
from leveret.testing.harness import GUEST, Harness

ANN, BOB = User("ann", max_connections=2), User("bob", max_channels=2)
Act = Callable[[Harness, int], Any]


def _host(**limits: int) -> Callable[[Harness], None]:
    def limit(world: Harness) -> None:
        world.broker.virtual_hosts.limit(world.vhost, VirtualHostLimits(**limits))

    return limit


def _nothing(world: Harness) -> None:
    """The broker's options have the limit."""


def _connect(world: Harness, number: int, user: User = GUEST) -> None:
    world.broker.connections.open("/", user, name=str(number), flush=lambda: None)


def _channel_of_bob(world: Harness, number: int) -> None:
    """Each on a connection of its own."""
    world.broker.connections.open("/", BOB, name=str(number), flush=lambda: None).open_session()


def _declare(world: Harness, number: int) -> None:
    world.queue(f"new {number}", client=world.client)


def _bind(world: Harness, number: int) -> None:
    world.vhost.bindings.add("queue", "q", "amq.direct", str(number), {}, world.client)


def _get(world: Harness, number: int) -> None:
    world.session.get(world.named(), no_ack=False)


def _consume(world: Harness, number: int) -> None:
    world.consume("few", str(number))


#: What is limited, how the limit is set, what is done again and again, how often it is allowed, how it is refused.
ROWS: list[tuple[str, BrokerOptions, Callable[[Harness], None], Act, int, type[EngineError]]] = [
    ("connections of a virtual host", BrokerOptions(), _host(max_connections=3), _connect, 2, ConnectionsMaxReached),
    (
        "connections of a user",
        BrokerOptions(),
        _nothing,
        lambda world, number: _connect(world, number, ANN),
        2,
        UserConnectionsMaxReached,
    ),
    ("channels of a user", BrokerOptions(), _nothing, _channel_of_bob, 2, UserChannelsMaxReached),
    ("queues of a virtual host", BrokerOptions(), _host(max_queues=4), _declare, 2, QueuesMaxReached),
    ("queues", BrokerOptions(queues_max=5), _nothing, _declare, 2, AllQueuesMaxReached),
    ("bindings", BrokerOptions(bindings_max=3), _nothing, _bind, 2, BindingsMaxReached),
    ("unacknowledged deliveries", BrokerOptions(unacked_per_session_max=2), _nothing, _get, 2, UnackedMaxReached),
    ("consumers of a queue", BrokerOptions(), _nothing, _consume, 2, ConsumersMaxReached),
]


@pytest.mark.parametrize(
    ("options", "limit", "act", "allowed", "refusal"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS]
)
def test_the_last_is_allowed_and_the_next_refused(
    options: BrokerOptions, limit: Callable[[Harness], None], act: Act, allowed: int, refusal: type[EngineError]
) -> None:
    """With one client, two queues and a binding there before; another virtual host has as many of each and more."""
    world = Harness(options=options, users=Users([GUEST, ANN, BOB]))
    other = world.broker.virtual_hosts.create("other")
    other.queues.declare("theirs", client=None)
    other.bindings.add("queue", "theirs", "amq.direct", "", {})
    for number in range(3):
        world.broker.connections.open("other", GUEST, name=f"other {number}", flush=lambda: None)
    world.queue()
    world.queue("few", x_max_consumers=2)
    world.publish(*"abcd")
    limit(world)
    for number in range(allowed):
        act(world, number)
    with pytest.raises(refusal):
        act(world, allowed)


def test_what_goes_makes_room_under_each_limit() -> None:
    """A queue, its bindings, and a connection; not only their first."""
    world = Harness(options=BrokerOptions(queues_max=2, bindings_max=1))
    world.broker.virtual_hosts.limit(world.vhost, VirtualHostLimits(max_connections=2, max_queues=2))
    world.queue(client=world.client)
    for number in range(3):
        _declare(world, 0)
        world.bind("new 0", "amq.direct")
        world.vhost.bindings.remove("queue", "new 0", "amq.direct", "", {}, world.client)
        _bind(world, number)
        with pytest.raises(BindingsMaxReached):
            _bind(world, number + 1)
        world.vhost.bindings.remove("queue", "q", "amq.direct", str(number), {}, world.client)
        world.vhost.queues.delete("new 0", world.client)
        client = world.broker.connections.open("/", GUEST, name="2", flush=lambda: None)
        with pytest.raises(ConnectionsMaxReached):
            _connect(world, 3)
        client.close()


def test_a_consumer_makes_no_queue_beyond_the_limit() -> None:
    """A queue that is created for its first consumer counts as one that is declared."""
    world = Harness('[[address-setting]]\nmatch = "#"\nauto-create-queues = true')
    world.broker.virtual_hosts.limit(world.vhost, VirtualHostLimits(max_queues=1))
    assert world.vhost.queues.for_consumer("a", world.client).is_auto_created
    with pytest.raises(QueuesMaxReached):
        world.vhost.queues.for_consumer("b", world.client)
