"""A paused queue hands nothing to consumers, whatever its kind; resumed, it hands out what came meanwhile."""

from typing import Any

import pytest

from leveret.engine import (
    PLAIN,
    Broker,
    Envelope,
    Field,
    FieldTable,
    ManualClock,
    User,
    consumers,
    encode_header,
    scan_properties,
)

USER = User("guest")
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


class World:
    """A broker with a queue `q`; who consumes may have a hundred."""

    def __init__(self, arguments: FieldTable) -> None:
        self.broker = Broker(ManualClock())
        self.client = self.broker.connections.open("/", USER, name="test", flush=self._flush)
        self.session = self.client.open_session()
        self.session.limit(100, total=False)
        self.queue = self.client.vhost.queues.declare("q", client=self.client, durable=True, arguments=arguments)

    def _flush(self) -> None:
        self.client.take_outbox()
        self.client.drained()

    def consume(self, arguments: FieldTable, tag: str = "c") -> Any:
        consumer = self.session.consume(self.queue, tag, no_ack=False, exclusive=False, arguments=dict(arguments))
        self.settle()
        return consumer

    def publish(self, count: int) -> None:
        header = encode_header(1, {"delivery_mode": 2})
        route = self.client.vhost.router.route("", "q", USER)
        envelope = Envelope("", "q", scan_properties(header[12:]))
        self.session.publish(route, envelope, [PLAIN.join(header, b"x")] * count, mandatory=False)
        self.settle()

    def settle(self) -> None:
        while self.broker.end_turn() or self.broker.scheduler.load():
            pass


@pytest.mark.parametrize("kind", KINDS)
def test_paused_and_resumed(kind: str) -> None:
    """What came before it was paused, while it is, and who comes then."""
    arguments, options = KINDS[kind]
    world = World(arguments)
    first = world.consume(options)
    world.publish(3)
    assert first.unacked == 3
    consumers.pause(world.queue, True)
    world.publish(4)
    second = world.consume(options, "d")
    world.publish(1)
    assert (first.unacked, second.unacked) == (3, 0)
    consumers.pause(world.queue, False)
    world.settle()
    assert first.unacked + second.unacked == (16 if world.queue.keeps or world.queue.type == "stream" else 8)


def test_gets_are_served() -> None:
    """They are asked for by hand."""
    world = World({})
    consumers.pause(world.queue, True)
    world.publish(1)
    assert world.session.get(world.queue, no_ack=True) is not None
