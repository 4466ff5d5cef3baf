"""A paused queue hands nothing to consumers, whatever its kind; resumed, it hands out what came meanwhile."""

import pytest

from leveret.engine import (
    Field,
    FieldTable,
    consumers,
)
from leveret.testing.harness import Harness

KINDS: dict[str, tuple[FieldTable, FieldTable]] = {
    "classic": ({}, {}),
    "quorum": ({"x-queue-type": Field("S", b"quorum")}, {}),
    "priorities": ({"x-max-priority": Field("l", 3)}, {}),
    "stream": ({"x-queue-type": Field("S", b"stream")}, {"x-stream-offset": Field("S", b"first")}),
    "leased": (
        {"x-queue-type": Field("S", b"amps"), "x-max-backlog-per-consumer": Field("l", 100)},
        {"x-max-backlog": Field("l", 100)},
    ),
    "non-destructive": ({"x-non-destructive": Field("t", True)}, {}),
    "a filter": ({}, {"x-filter": Field("S", b"ROUTING_KEY() = 'q'")}),
    "times to live": ({"x-message-ttl": Field("l", 60_000)}, {}),
    "single active": ({"x-single-active-consumer": Field("t", True)}, {}),
}


class World(Harness):
    """A broker with a queue `q`; who consumes may have a hundred."""

    properties = {"delivery_mode": 2}

    def __init__(self, arguments: FieldTable) -> None:
        super().__init__()
        self.session.set_prefetch(100, total=False)
        self.q = self.queue(client=self.client, **arguments)


@pytest.mark.parametrize("kind", KINDS)
def test_paused_and_resumed(kind: str) -> None:
    """What came before it was paused, while it is, and who comes then."""
    arguments, options = KINDS[kind]
    world = World(arguments)
    first = world.consume(**options)
    world.publish(*"x" * 3)
    assert first.unacked == 3
    consumers.pause(world.q, True)
    world.publish(*"x" * 4)
    second = world.consume(tag="d", **options)
    world.publish(*"x" * 1)
    assert (first.unacked, second.unacked) == (3, 0)
    consumers.pause(world.q, False)
    world.end_turn()
    assert first.unacked + second.unacked == (16 if world.q.keeps_acked or world.q.type == "stream" else 8)


def test_gets_are_served() -> None:
    """They are asked for by hand."""
    world = World({})
    consumers.pause(world.q, True)
    world.publish(*"x" * 1)
    assert world.session.get(world.q, no_ack=True) is not None
