"""Whoever may have more of a queue whose messages are all paged out gets it, whichever way there is room again."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from leveret.engine import Session
from leveret.engine.queues import classic
from leveret.engine.stores import memory_budget
from leveret.testing.harness import Harness

COUNT = 400


class World(Harness):
    """A broker that keeps nothing in memory that nobody wants now, and a client that takes all that it is sent."""

    properties = {"delivery_mode": 2}

    def __init__(self) -> None:
        super().__init__(memory=0, unsent_max=1 << 40)

    def fill(self) -> None:
        self.publish(*(b"%03d" % number for number in range(COUNT)), by=self.connect("c"))


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(memory_budget, "SMALL", 0)
    return World()


def _ack_one(world: World, session: Session) -> None:
    session.ack(next(iter(session.unacked)))


def _ack_last(world: World, session: Session) -> None:
    session.ack(list(session.unacked)[-1])


def _ack_all(world: World, session: Session) -> None:
    session.ack(0, multiple=True)


def _ack_half(world: World, session: Session) -> None:
    session.ack(list(session.unacked)[(len(session.unacked) - 1) // 2], multiple=True)


def _reject_one(world: World, session: Session) -> None:
    session.reject(next(iter(session.unacked)), requeue=False)


def _commit_one(world: World, session: Session) -> None:
    session.select_transactions()
    session.ack(next(iter(session.unacked)))
    session.commit()


def _flow(world: World, session: Session) -> None:
    session.set_flowing(False)
    session.ack(0, multiple=True)
    world.end_turn()
    session.set_flowing(True)


def _raise_the_limit(world: World, session: Session) -> None:
    """Which all consumers share."""
    session.prefetch_total = max(session.prefetch_total, len(session.unacked))
    for consumer in session.consumers.values():
        consumer.prefetch = 0
    session.set_prefetch(session.prefetch_total + 1, total=True)


@pytest.mark.parametrize("prefetch", [1, 10, 63, 64, 100])
@pytest.mark.parametrize(
    "makes_room",
    [_ack_one, _ack_last, _ack_all, _ack_half, _reject_one, _commit_one, _flow, _raise_the_limit],
)
@pytest.mark.parametrize("is_total", [False, True], ids=["its own limit", "a shared limit"])
def test_a_consumer_goes_on(
    world: World, prefetch: int, makes_room: Callable[[World, Session], None], is_total: bool
) -> None:
    """In order, and as far as it may, until nothing is left."""
    queue, session = world.queue(), world.session
    world.fill()
    assert not queue.store.ready and len(queue.store) == COUNT
    world.consume(tag="t", prefetch=prefetch, total=is_total)
    got = prefetch
    for _ in range(8):
        assert len(session.unacked) == prefetch or makes_room is _raise_the_limit
        assert session.delivered == got
        before = len(session.unacked)
        makes_room(world, session)
        free = 1 if makes_room is _raise_the_limit else before - len(session.unacked)
        world.end_turn()
        got = min(COUNT, got + free)
        assert session.delivered == got
        assert [int(message.body) for message in session.unacked.values()][-1] == got - 1
        if got == COUNT:
            break


@pytest.mark.parametrize("prefetch", [1, 10, 64, 100])
@pytest.mark.parametrize("leaves", [lambda one: one.cancel("t"), Session.close, lambda one: one.client.close()])
def test_who_comes_next_goes_on(world: World, prefetch: int, leaves: Callable[[Session], object]) -> None:
    """The one before left with what it had; a consumer that had no credit and one that comes get the rest."""
    session = world.session
    world.queue()
    world.fill()
    world.consume(tag="t", prefetch=prefetch)
    leaves(session)
    heir = world.connect()
    world.consume(tag="t", by=heir, prefetch=COUNT)
    bodies = [int(message.body) for message in heir.unacked.values()]
    assert bodies == [number for number in range(COUNT) if number >= len(session.unacked)]


def test_a_get_takes_no_turn_from_a_consumer_that_waits_for_the_disk(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a get brought into memory is the consumer's, too, though nothing has to be loaded for it any more."""
    monkeypatch.setattr(classic, "STRAIGHT_SLICE", 50)
    queue = world.queue()
    world.fill()
    world.session.consume(queue, "c", no_ack=True, exclusive=False, arguments={})
    world.broker.end_turn()
    assert queue in world.broker.scheduler.to_load
    assert world.connect().get(queue, no_ack=True) is not None
    assert queue.store.ready
    world.end_turn()
    assert queue.ready_count == 0
