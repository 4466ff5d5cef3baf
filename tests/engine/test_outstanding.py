"""What is out of a queue is found without a look at what is out of others; what ends costs what is of it.

Work is counted in lines of Python, as in test_hostile_growth.py.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from recorded_broker import RecordedBroker
from steps import steps

from leveret.console.views.queues import COUNTED_MAX, head_timestamp, octets_of
from leveret.engine import Broker, Consumer, Message, Queue, Session
from leveret.engine.clients.unacked import SETTLED_MAX
from leveret.testing.harness import Harness

TWICE = 2.2


class World(Harness):
    """A broker with somebody who listens, and a client that takes everything."""

    def __init__(self) -> None:
        super().__init__()
        self.broker.context.listeners.append(lambda event: None)

    def fill(self, name: str, count: int) -> None:
        self.publish(*"x" * count, key=name, by=self.client.open_session())

    def hold(self, session: Session, name: str, count: int) -> Queue:
        """So many unacknowledged messages of a new queue."""
        queue = self.queue(name, durable=False)
        self.consume(queue, name, by=session)
        self.fill(name, count)
        assert queue.unacked == count
        return queue


def test_what_is_settled_is_forgotten_though_other_queues_are_asked_for() -> None:
    """A session that works for months, and a checkpoint of another of its queues now and then."""
    world = World()
    session = world.client.open_session()
    other = world.hold(session, "other", 1)
    world.hold(session, "busy", 100)
    for _ in range(100):
        assert len(other.unacked_messages()) == 1
        for tag in list(session.unacked)[1:]:
            session.ack(tag)
        world.fill("busy", 100)
    assert session.unacked_index._size < 2 * 101 + SETTLED_MAX + 200


@pytest.mark.parametrize("is_same_session", [False, True])
def test_the_end_of_a_queue_costs_what_is_of_it(is_same_session: bool) -> None:
    """With somebody who listens (a journal), whatever else is out: of other sessions, or of its own."""

    def work(others: int) -> int:
        world = World()
        session = world.client.open_session()
        world.hold(session if is_same_session else world.client.open_session(), "much", others)
        world.hold(session, "first", 1)
        queue = world.hold(session, "little", 3)
        assert len(world.vhost.queues["first"].unacked_messages()) == 1  # what is out is looked at once
        return steps(partial(world.vhost.queues.remove, queue))

    work(1)  # what is done once in a process
    assert work(2000) == work(200)


def test_some_of_what_is_out_costs_what_is_asked_for() -> None:
    """A view of a queue, of which a console asks every few seconds, though a consumer without a limit has all of it."""

    def work(count: int) -> int:
        world = World()
        session = world.client.open_session()
        queue = world.hold(session, "much", count)
        assert queue.first_unacked(3) == list(session.unacked.values())[:3]
        session.ack(2)
        world.fill("much", 5)
        return steps(lambda: (octets_of(queue), head_timestamp(queue)))

    assert work(COUNTED_MAX * 8) < 1.2 * work(COUNTED_MAX * 2)


def test_the_ends_of_many_queues_of_one_session() -> None:
    """Not queues times what is out."""

    def work(queues: int) -> int:
        world = World()
        session = world.client.open_session()
        held = [world.hold(session, f"q{number}", 50) for number in range(queues)]

        def end() -> None:
            for queue in held:
                world.vhost.queues.remove(queue)

        return steps(end)

    assert work(40) <= TWICE * work(20)


def test_what_a_transaction_settles_is_looked_at_once() -> None:
    """However often somebody asks what is out of a queue before the commit."""

    def work(settled: int) -> int:
        world = World()
        session = world.client.open_session()
        world.hold(session, "much", settled)
        session.select_transactions()
        session.ack(0, multiple=True)
        queue = world.hold(session, "little", 3)
        session.ack(settled + 1)
        assert len(queue.unacked_messages()) == 3
        return steps(lambda: [queue.unacked_messages() for _ in range(10)])

    assert work(2000) == work(200)


def test_a_checkpoint_costs_what_is_there(tmp_path: Path) -> None:
    """Not durable queues times what is out."""

    def work(queues: int) -> int:
        world = RecordedBroker(tmp_path / f"{queues}", scope="durable")
        for number in range(queues):
            world.declare(f"q{number}")
            queue = world.vhost.queues.named(f"q{number}")
            world.session.consume(queue, f"t{number}", no_ack=False, exclusive=False, arguments={})
            world.publish(f"q{number}", 50)
        count = steps(world.checkpoint)
        world.kill()
        return count

    assert work(40) <= TWICE * work(20)


Ends = Callable[[World, list[Session], Queue], None]


def _delete(world: World, sessions: list[Session], queue: Queue) -> None:
    world.vhost.queues.remove(queue)


def _close_session(world: World, sessions: list[Session], queue: Queue) -> None:
    sessions[0].close()


def _close_client(world: World, sessions: list[Session], queue: Queue) -> None:
    sessions[0].client.close()


@pytest.mark.parametrize("end", [_delete, _close_session, _close_client])
@pytest.mark.parametrize("kind", ["plain", "priorities", "single active", "groups", "non-destructive"])
def test_the_end_of_many_consumers(end: Ends, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice the consumers of a queue: twice the work, whichever way they end."""
    compared = 0

    def is_same(self: Consumer, other: object) -> bool:
        nonlocal compared
        compared += 1
        return self is other

    monkeypatch.setattr(Consumer, "__eq__", is_same)  # what list.index and list.remove do in C
    monkeypatch.setattr(Consumer, "__hash__", object.__hash__)
    arguments: dict[str, dict[str, bool]] = {
        "single active": {"x_single_active_consumer": True},
        "non-destructive": {"x_non_destructive": True},
    }

    def work(count: int) -> int:
        nonlocal compared
        world = World()
        queue = world.queue(durable=False, **arguments.get(kind, {}))
        if kind == "groups":
            queue.consumer_list.enable_groups()
        session = world.connect()
        for number in range(count):
            priority = {"x_priority": number % 3} if kind == "priorities" else {}
            # They do not end in the order they came.
            world.consume(queue, f"t{number * 7919 % count}", by=session, **priority)
        before = compared
        lines = steps(partial(end, world, [session], queue))
        assert queue.consumers == [] and session.consumers == {}
        return lines + compared - before

    assert work(400) <= TWICE * work(200)


def test_priorities_are_looked_at_as_far_as_needed() -> None:
    """One of many consumers of different priorities is cancelled: not a look at all of them."""

    def work(count: int) -> int:
        world = World()
        queue, session = world.queue(durable=False), world.client.open_session()
        for number in range(count):
            world.consume(queue, f"t{number}", by=session, x_priority=number % 2)
        return steps(lambda: session.cancel("t5"))

    assert work(2000) == work(200)


def _all_out(broker: Broker, queue: Queue) -> set[int]:
    """By a look at everything."""
    found: list[Message] = []
    for client in broker.connections:
        for session in client.sessions:
            found += session.unacked.values()
            if session.transaction is not None:
                found += session.transaction.tags.values()
    return {message.id for message in found if getattr(message.holder, "queue", None) is queue}


STEP = st.tuples(
    st.sampled_from(
        [
            "publish", "publish", "ask", "ask", "ask for some", "ack", "ack all", "ack some", "nack", "get", "select",
            "commit", "roll back", "recover", "reopen", "cancel", "delete",
        ]
    ),
    st.integers(0, 2),
    st.integers(0, 50),
)  # fmt: skip


@given(st.lists(STEP, max_size=40))
def test_the_same_as_a_look_at_everything(walk: list[tuple[str, int, int]]) -> None:
    """Whatever is delivered, settled, withheld, given back and asked about, in whatever order."""
    world = World()
    sessions = [world.client.open_session() for _ in range(2)]

    def subscribe(number: int) -> None:
        queue = world.queue(f"q{number}", durable=False)
        for session in sessions:
            if f"t{number}" not in session.consumers:
                world.consume(queue, f"t{number}", by=session)

    for number in range(3):
        subscribe(number)
    for what, number, pick in walk:
        session = sessions[pick % 2]
        tags = list(session.unacked)
        tag = tags[pick % len(tags)] if tags else 0
        if what == "publish":
            world.fill(f"q{number}", 1 + pick % 5)
        elif what == "ask":
            queue = world.vhost.queues.named(f"q{number}")
            found = queue.unacked_messages()
            assert {message.id for message in found} == _all_out(world.broker, queue)
            assert len(found) == len(_all_out(world.broker, queue)) == queue.unacked
        elif what == "ask for some":
            queue = world.vhost.queues.named(f"q{number}")
            found = queue.first_unacked(1 + pick)
            assert len({message.id for message in found}) == len(found) == min(1 + pick, queue.unacked)
            assert {message.id for message in found} <= _all_out(world.broker, queue)
        elif what == "ack" and tag:
            session.ack(tag)
        elif what == "ack some" and tag:
            session.ack(tag, multiple=True)
        elif what == "ack all":
            session.ack(0, multiple=True)
        elif what == "nack" and tag:
            session.reject(tag, requeue=True)
        elif what == "get":
            session.get(world.vhost.queues.named(f"q{number}"), no_ack=False)
        elif what == "select":
            session.select_transactions()
        elif what == "commit" and session.transaction is not None:
            session.commit()
        elif what == "roll back" and session.transaction is not None:
            session.roll_back()
        elif what == "recover":
            session.recover()
        elif what == "cancel":
            session.cancel(f"t{number}")
        elif what == "reopen":
            session.close()
            sessions[pick % 2] = world.client.open_session()
            subscribe(number)
        elif what == "delete":
            world.vhost.queues.remove(world.vhost.queues.named(f"q{number}"))
            subscribe(number)
        world.end_turn()
        for queue in world.vhost.queues.values():
            assert all(queue in one.subscriptions.queues for one in queue.sessions)
