"""Messages that an operator moves are in one place or the other whenever the broker is killed, and nowhere twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from recorded_broker import RecordedBroker

from leveret.engine import (
    EventKind,
    Field,
    LeftEvent,
    PublishedEvent,
)
from leveret.engine.move_targets import FindTarget, to_exchange, to_origin, to_queue
from leveret.engine.moving import MOVED_MAX, OCTETS_MAX, Choice, Moving
from leveret.testing.harness import Harness

COUNT = 130
ALL = Choice(lambda message: True)


def _started(path: Path, arguments: dict[str, Any], count: int = COUNT) -> RecordedBroker:
    world = RecordedBroker(path, scope="durable")
    world.declare("from", arguments=arguments)
    world.declare("to", arguments=arguments)
    for number in range(count):
        more = {"priority": number % 4, "headers": {"n": number}}
        Harness.publish(world, str(number), key="from", delivery_mode=2, **more)
    world.settle()
    return world


def _moving(world: RecordedBroker, find_target: Callable[[Any], FindTarget] | None, choice: Choice = ALL) -> Moving:
    client = world.session.client
    return Moving(
        world.vhost.queues.named("from"), client, choice, None if find_target is None else find_target(client), "moved"
    )


def _into_to(client: Any) -> FindTarget:
    return to_queue(client, "to")


KINDS = {
    "classic": {},
    "quorum": {"x-queue-type": Field("S", b"quorum")},
    "priorities": {"x-max-priority": Field("l", 3)},
    "last value": {"x-last-value-key": Field("S", b"n")},
}


@pytest.mark.parametrize("slices", [0, 1, 2, 5])
@pytest.mark.parametrize("kind", KINDS)
def test_a_kill_between_two_slices(tmp_path: Path, kind: str, slices: int) -> None:
    """Each message is in one of both queues, in order, and all that a slice moved is in the second."""
    world = _started(tmp_path, KINDS[kind])
    before = world.bodies("from")
    moving = _moving(world, _into_to)
    for _ in range(slices):
        moving.work(40)
        world.end_turn()
    moved = moving.done
    assert (moved, moving.is_done) == (min(40 * slices, COUNT), slices == 5)
    world.kill()
    again = RecordedBroker(tmp_path, scope="durable")
    assert (again.bodies("to"), again.bodies("from")) == (before[:moved], before[moved:])
    again.journal.close()


def test_a_kill_before_it_is_written(tmp_path: Path) -> None:
    """What one slice did is in the journal whole or not at all."""
    world = _started(tmp_path, {})
    moving = _moving(world, _into_to)
    moving.work()
    assert moving.done == MOVED_MAX
    world.kill()
    again = RecordedBroker(tmp_path, scope="durable")
    assert (len(again.bodies("from")), again.bodies("to")) == (COUNT, [])
    again.journal.close()


def test_what_is_chosen(tmp_path: Path) -> None:
    """By filter, by position, and at most so many; what comes while it goes on is none of it."""
    world = _started(tmp_path, {}, 30)
    queue = world.vhost.queues.named("from")
    positions = frozenset(queue.store.position_of(message) for message in list(queue.messages())[:20])
    moving = _moving(world, _into_to, Choice(lambda one: one.body.endswith(b"1"), positions))
    world.publish("from", body=b"101")
    while not moving.is_done:
        moving.work()
    assert world.bodies("to") == [b"1", b"11"]
    limited = _moving(world, _into_to, Choice(lambda one: True, limit=3))
    while not limited.is_done:
        limited.work(2)
    assert world.bodies("to")[2:] == [b"0", b"2", b"3"]
    world.journal.close()


def test_large_messages_are_looked_at_a_few_at_a_time(tmp_path: Path) -> None:
    """A slice is short whatever they weigh."""
    world = _started(tmp_path, {}, 0)
    for _ in range(5):
        Harness.publish(world, bytes(OCTETS_MAX // 2), key="from", delivery_mode=2)
    world.settle()
    moving = _moving(world, _into_to, Choice(lambda one: b"x" in one.body))
    moving.work()
    assert (moving.looked_at, moving.is_done) == (2, False)
    world.journal.close()


def test_positions_end_it_early(tmp_path: Path) -> None:
    """What is behind the last of them is not looked at."""
    world = _started(tmp_path, {})
    queue = world.vhost.queues.named("from")
    positions = [queue.store.position_of(message) for message in list(queue.messages())]
    moving = _moving(world, _into_to, Choice(lambda one: True, frozenset(positions[10:12])))
    moving.work()
    assert (moving.done, moving.looked_at, moving.is_done) == (2, 2, True)
    assert world.bodies("to") == [b"10", b"11"]
    world.journal.close()


def test_a_dry_run_changes_nothing(tmp_path: Path) -> None:
    """It says where each would go, and which would stay for what reason."""
    world = _started(tmp_path, {}, 5)
    events: list[object] = []
    world.broker.context.listeners.append(events.append)
    moving = _moving(world, lambda client: to_exchange(client, "", None))
    (reason,) = {one.reason for one in moving.dry_work()}
    assert reason == "it would come back into this queue"
    moving = _moving(world, lambda client: to_exchange(client, "amq.direct", None))
    assert {one.reason for one in moving.dry_work()} == {"no queue takes it: exchange amq.direct, key from"}
    moving = _moving(world, _into_to)
    assert [one.target.title for one in moving.dry_work() if one.target] == ["queue to"] * 5
    assert (moving.done, moving.is_done, moving.looked_at, events) == (5, True, 5, [])
    world.journal.close()


def test_what_events_tell(tmp_path: Path) -> None:
    """Out of one queue, for a reason and to a place; into the other one, by the broker itself."""
    world = _started(tmp_path, {}, 2)
    events: list[Any] = []
    world.broker.context.listeners.append(events.append)
    _moving(world, _into_to).work()
    (left,) = [event for event in events if isinstance(event, LeftEvent)]
    assert (left.kind, left.reason, left.to, len(left.messages)) == (EventKind.PURGED, "moved", "queue to", 2)
    assert Counter(event.cause for event in events if isinstance(event, PublishedEvent)) == {"moved": 2}
    world.journal.close()


def test_discarded(tmp_path: Path) -> None:
    """What is meant is gone, also after a kill; the rest is there."""
    world = _started(tmp_path, {}, 10)
    moving = _moving(world, None, Choice(lambda one: one.body in (b"3", b"7")))
    moving.work()
    world.end_turn()
    assert (moving.done, moving.is_done) == (2, True)
    world.kill()
    again = RecordedBroker(tmp_path, scope="durable")
    assert again.bodies("from") == [b"%d" % number for number in range(10) if number not in (3, 7)]
    again.journal.close()


@pytest.mark.parametrize("overflow", [b"drop-head", b"reject-publish"])
def test_no_room(tmp_path: Path, overflow: bytes) -> None:
    """It waits, pushes nothing out, and goes on when there is room."""
    world = _started(tmp_path, {}, 5)
    world.declare("small", arguments={"x-max-length": Field("l", 2), "x-overflow": Field("S", overflow)})
    moving = _moving(world, lambda client: to_queue(client, "small"))
    moving.work()
    moving.work()
    assert (moving.waits_for, moving.done, moving.looked_at) == ("room in queue 'small'", 2, 2)
    assert (world.bodies("small"), len(world.bodies("from"))) == ([b"0", b"1"], 3)
    world.get("small", 2)
    moving.work()
    assert (moving.waits_for, moving.done) == ("room in queue 'small'", 4)
    assert not moving.is_done
    world.journal.close()


def test_back_to_where_they_came_from(tmp_path: Path) -> None:
    """By the newest death: exchange and routing keys, or the queue; with or without what tells of it."""
    world = RecordedBroker(tmp_path, scope="durable")
    dead = {"x-dead-letter-exchange": Field("S", b""), "x-dead-letter-routing-key": Field("S", b"from")}
    world.declare("from")
    world.declare("orders", arguments=dead)
    world.vhost.bindings.add("queue", "orders", "amq.topic", "order.#", {})
    for name in ("order.new", "order.old"):
        Harness.publish(world, "x", exchange="amq.topic", key=name, delivery_mode=2)
    for _ in range(2):
        tag = world.session.get(world.vhost.queues.named("orders"), no_ack=False)[0]
        world.session.reject(tag, multiple=False, requeue=False)
    world.settle()
    assert len(world.bodies("from")) == 2
    _moving(world, lambda client: to_origin(client, into_queue=False, without_history=False), _first(1)).work()
    _moving(world, lambda client: to_origin(client, into_queue=True, without_history=True)).work()
    kept, clean = list(world.vhost.queues.named("orders").messages())
    assert [(one.envelope.exchange, one.envelope.routing_key) for one in (kept, clean)] == [
        ("amq.topic", "order.new"),
        ("amq.topic", "order.old"),
    ]
    assert "x-death" in kept.envelope.headers(kept.content) and not clean.envelope.headers(clean.content)
    world.publish("from", body=b"never died")
    moving = _moving(world, lambda client: to_origin(client, into_queue=False, without_history=False))
    moving.work()
    assert (moving.done, moving.kept) == (0, {"no header says where it came from": 1})
    world.journal.close()


def test_queues_that_keep_their_messages(tmp_path: Path) -> None:
    """Are refused with a sentence."""
    world = RecordedBroker(tmp_path, scope="durable")
    for name, said in (("stream", "a stream"), ("amps", "a leased queue")):
        world.declare(name, arguments={"x-queue-type": Field("S", name.encode())})
        assert world.vhost.queues.named(name).kind.move_refusal.startswith(said)
    world.declare("kept", arguments={"x-non-destructive": Field("t", True)})
    assert world.vhost.queues.named("kept").kind.move_refusal.startswith("a non-destructive queue")
    assert _started(tmp_path / "other", {}, 0).vhost.queues.named("from").kind.move_refusal == ""
    world.journal.close()


def _first(count: int) -> Choice:
    return Choice(lambda message: True, limit=count)
