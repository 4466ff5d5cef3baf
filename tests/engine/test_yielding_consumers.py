"""A single active consumer of a quorum queue yields to one of higher priority: RabbitMQ 4.0 (docs/profiles.md)."""

from __future__ import annotations

from typing import Any

import pytest

from leveret.engine import Session
from leveret.engine.options import BrokerOptions
from leveret.testing.harness import Harness


class World(Harness):
    """A queue with a single active consumer."""

    def __init__(self, queue_type: str = "quorum", quorum_priorities: int = 2) -> None:
        super().__init__(options=BrokerOptions(quorum_priorities=quorum_priorities), kind=queue_type)
        self.sessions: dict[str, Session] = {}
        self.queue(x_single_active_consumer=True)

    def join(self, name: str, priority: int = 0, prefetch: int = 0) -> None:
        session = self.sessions[name] = self.connect(name)
        self.consume(tag=name, by=session, prefetch=prefetch, x_priority=priority)

    def ack(self, name: str) -> None:
        self.sessions[name].ack(next(iter(self.sessions[name].unacked)))
        self.end_turn()

    def got(self) -> list[tuple[str, str]]:
        """Who got which bodies since the last look, in order."""
        got, self.deliveries = self.deliveries, []
        return [(one.consumer.tag, one.body.decode()) for one in got]


def yielding(**options: Any) -> World:
    """A consumer that has "a" and makes room for one of higher priority."""
    world = World(**options)
    world.join("low")
    world.publish("a")
    world.join("high", 5)
    return world


def test_it_yields_when_it_has_settled_what_it_has() -> None:
    """From the other's coming on it gets nothing; the other nothing before."""
    world = World()
    world.join("low")
    world.publish("a", "b")
    world.join("high", 5)
    world.publish("c")
    assert world.got() == [("low", "a"), ("low", "b")]
    world.ack("low")
    assert world.got() == []
    world.ack("low")
    assert world.got() == [("high", "c")]
    world.publish("d")
    assert world.got() == [("high", "d")]


@pytest.mark.parametrize("is_empty", [True, False], ids=["nothing is ready then", "some is"])
def test_one_that_has_nothing_yields_at_once(is_empty: bool) -> None:
    """Also when the next message comes much later."""
    world = World()
    world.join("low", prefetch=1)
    world.publish("a") if is_empty else world.publish("a", "b")
    world.join("high", 5)
    world.ack("low")
    if is_empty:
        world.publish("b")
    assert world.got() == [("low", "a"), ("high", "b")]


def test_what_it_gives_back_is_for_the_other() -> None:
    """By nack and by leaving; in its order."""
    world = World()
    world.join("low")
    world.publish("a", "b")
    world.join("high", 5)
    world.sessions["low"].reject(0, multiple=True, requeue=True)
    world.end_turn()
    assert world.got() == [("low", "a"), ("low", "b"), ("high", "a"), ("high", "b")]
    world = yielding()
    world.sessions["low"].client.close()
    world.end_turn()
    assert world.got() == [("low", "a"), ("high", "a")]


def test_it_goes_on_when_the_other_leaves_before() -> None:
    """With what waited meanwhile."""
    world = yielding()
    world.publish("b")
    world.sessions["high"].client.close()
    world.end_turn()
    assert world.got() == [("low", "a"), ("low", "b")]


def test_of_several_the_highest_follows() -> None:
    """The first to come of those; the one that yielded waits with the others."""
    world = World()
    world.join("low")
    world.publish("a")
    for name, priority in (("middle", 3), ("high", 5), ("high too", 5), ("as low", 0)):
        world.join(name, priority)
    world.publish("b")
    world.ack("low")
    assert world.got() == [("low", "a"), ("high", "b")]
    for leaving, following in (("high", "high too"), ("high too", "middle"), ("middle", "low")):
        world.sessions[leaving].client.close()
        world.end_turn()
        world.got()
        world.publish("c")
        assert world.got()[-1][0] == following


@pytest.mark.parametrize(("queue_type", "levels"), [("classic", 2), ("quorum", 0)], ids=["classic", "before 4.0"])
def test_others_stay(queue_type: str, levels: int) -> None:
    """A priority takes nothing from who is active."""
    world = yielding(queue_type=queue_type, quorum_priorities=levels)
    world.publish("b")
    world.ack("low")
    world.publish("c")
    assert [name for name, _ in world.got()] == ["low"] * 3


def test_one_that_joins_later_does_not_keep_it_from_yielding() -> None:
    """It has a lower priority than the one for which the active consumer makes room."""
    world = yielding()
    world.join("later")
    world.ack("low")
    world.publish("b")
    assert world.got() == [("low", "a"), ("high", "b")]
