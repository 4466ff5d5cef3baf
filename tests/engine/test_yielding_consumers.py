"""A single active consumer of a quorum queue yields to one of higher priority: RabbitMQ 4.0 (docs/profiles.md)."""

from __future__ import annotations

import pytest

from leveret.engine import Broker, Delivered, Envelope, ManualClock, Session, User
from leveret.engine.messages.content import PLAIN, encode_header
from leveret.engine.messages.field_table import Field
from leveret.engine.options import BrokerOptions

USER = User("guest")


class World:
    """A queue with a single active consumer; `got`: who got which bodies, in order."""

    def __init__(self, queue_type: str = "quorum", quorum_priorities: int = 2) -> None:
        self.broker = Broker(ManualClock(), options=BrokerOptions(quorum_priorities=quorum_priorities))
        self.vhost = self.broker.virtual_hosts["/"]
        self.got: list[tuple[str, str]] = []
        self.tags: dict[str, list[int]] = {}
        self.sessions: dict[str, Session] = {}
        self.publisher = self.session("publisher")
        arguments = {"x-queue-type": Field("S", queue_type.encode()), "x-single-active-consumer": Field("t", True)}
        self.queue = self.vhost.queues.declare("q", client=None, durable=True, arguments=arguments)

    def session(self, name: str) -> Session:
        client = self.broker.connections.open("/", USER, name=name, flush=lambda: None)

        def flush() -> None:
            for effect in client.take_outbox():
                if isinstance(effect, Delivered):
                    for number, content in enumerate(effect.contents):
                        self.got.append((name, PLAIN.split(content)[1].decode()))
                        self.tags.setdefault(name, []).append(effect.first_tag + number)
            client.drained()

        client.flush = flush  # type: ignore[method-assign]
        return client.open_session()

    def consume(self, name: str, priority: int = 0, prefetch: int = 0) -> None:
        session = self.sessions[name] = self.session(name)
        session.limit(prefetch, total=False)
        arguments = {"x-priority": Field("I", priority)}
        session.consume(self.queue, name, no_ack=False, exclusive=False, arguments=arguments)
        self.settle()

    def publish(self, *bodies: str) -> None:
        route = self.vhost.router.route("", "q", USER)
        contents = [PLAIN.join(encode_header(len(body)), body.encode()) for body in bodies]
        self.publisher.publish(route, Envelope("", "q"), contents, mandatory=False)
        self.settle()

    def ack(self, name: str) -> None:
        self.sessions[name].ack(self.tags[name].pop(0), multiple=False)
        self.settle()

    def settle(self) -> None:
        while self.broker.end_turn():
            pass

    def take(self) -> list[tuple[str, str]]:
        got, self.got = self.got, []
        return got


def test_it_yields_when_it_has_settled_what_it_has() -> None:
    """From the other's coming on it gets nothing; the other nothing before."""
    world = World()
    world.consume("low")
    world.publish("a", "b")
    world.consume("high", 5)
    world.publish("c")
    assert world.take() == [("low", "a"), ("low", "b")]
    world.ack("low")
    assert world.take() == []
    world.ack("low")
    assert world.take() == [("high", "c")]
    world.publish("d")
    assert world.take() == [("high", "d")]


@pytest.mark.parametrize("is_empty", [True, False], ids=["nothing is ready then", "some is"])
def test_one_that_has_nothing_yields_at_once(is_empty: bool) -> None:
    """Also when the next message comes much later."""
    world = World()
    world.consume("low", prefetch=1)
    world.publish("a") if is_empty else world.publish("a", "b")
    world.consume("high", 5)
    world.ack("low")
    if is_empty:
        world.publish("b")
    assert world.take() == [("low", "a"), ("high", "b")]


def test_what_it_gives_back_is_for_the_other() -> None:
    """By nack and by leaving; in its order."""
    world = World()
    world.consume("low")
    world.publish("a", "b")
    world.consume("high", 5)
    world.sessions["low"].reject(0, multiple=True, requeue=True)
    world.settle()
    assert world.take() == [("low", "a"), ("low", "b"), ("high", "a"), ("high", "b")]
    world = World()
    world.consume("low")
    world.publish("a")
    world.consume("high", 5)
    world.sessions["low"].client.close()
    world.settle()
    assert world.take() == [("low", "a"), ("high", "a")]


def test_it_goes_on_when_the_other_leaves_before() -> None:
    """With what waited meanwhile."""
    world = World()
    world.consume("low")
    world.publish("a")
    world.consume("high", 5)
    world.publish("b")
    world.sessions["high"].client.close()
    world.settle()
    assert world.take() == [("low", "a"), ("low", "b")]


def test_of_several_the_highest_follows() -> None:
    """The first to come of those; the one that yielded waits with the others."""
    world = World()
    world.consume("low")
    world.publish("a")
    for name, priority in (("middle", 3), ("high", 5), ("high too", 5), ("as low", 0)):
        world.consume(name, priority)
    world.publish("b")
    world.ack("low")
    assert world.take() == [("low", "a"), ("high", "b")]
    for leaving, following in (("high", "high too"), ("high too", "middle"), ("middle", "low")):
        world.sessions[leaving].client.close()
        world.settle()
        world.got.clear()
        world.publish("c")
        assert world.take()[-1][0] == following


@pytest.mark.parametrize(("queue_type", "levels"), [("classic", 2), ("quorum", 0)], ids=["classic", "before 4.0"])
def test_others_stay(queue_type: str, levels: int) -> None:
    """A priority takes nothing from who is active."""
    world = World(queue_type, levels)
    world.consume("low")
    world.publish("a")
    world.consume("high", 5)
    world.publish("b")
    world.ack("low")
    world.publish("c")
    assert [name for name, _ in world.take()] == ["low"] * 3
