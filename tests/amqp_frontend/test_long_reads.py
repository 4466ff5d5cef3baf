"""A read full of methods that each cost something is cut like one full of publishes: others have turns in between.

Work is counted as the broker itself counts it, or in methods and messages; never in time.
"""

from __future__ import annotations

import pytest
from pair import Pair
from pamqp import commands
from peer import Peer, method, publish

from leveret.amqp_frontend.peer.channel import EFFORT_MAX
from leveret.amqp_frontend.session.handling import METHOD_COST, TOPOLOGY_COST, handle_bytes
from leveret.engine import Queue
from leveret.engine.broker import TURN_END_EFFORT
from leveret.engine.delivery.consumer_list import CHECKS_PER_EFFORT, RUN_MAX

C = commands


class Stage(Pair):
    """A queue `q`; `turns` is the work of each turn of `step`, `ends` that of each end of one."""

    queue: Queue

    def __init__(self, messages: int, size: int, unsent_max: int = 1 << 30) -> None:
        super().__init__(unsent_max=unsent_max)
        self.turns: list[int] = []
        self.ends: list[int] = []
        other = self.open()
        other.call(1, C.Queue.Declare, queue="q")
        other.send(publish(1, "q", b"x" * size) * messages)
        self.queue = self.broker.virtual_hosts["/"].queues["q"]
        assert self.queue.ready_count == messages

    def step(self, peer: Peer, data: bytes = b"") -> None:
        """One turn."""
        before = self.broker.context.turn.effort
        handle_bytes(peer.session, data)
        self.turns.append(self.broker.context.turn.effort - before)
        is_more = True
        while is_more:
            before = self.broker.context.turn.effort
            is_more = self.broker.end_turn()
            self.ends.append(self.broker.context.turn.effort - before)
        peer._flush()

    def finish(self, peer: Peer) -> None:
        """All that is left."""
        while peer.session.backlog.has_more:
            self.step(peer)


def test_many_methods() -> None:
    """All are answered in order, so many a turn."""
    stage = Stage(1, 1)
    peer = stage.open()
    answered = []
    stage.step(peer, method(1, C.Queue.Declare, queue="q", passive=True) * 1000)
    while peer.session.backlog.has_more:
        answered.append(len(peer.take()))
        stage.step(peer)
    answered.append(len(peer.take()))
    assert sum(answered) == 1000 and max(answered) <= 1 + EFFORT_MAX // TOPOLOGY_COST


def test_others_are_served_in_between() -> None:
    """Another client's question is answered before all of the first one's."""
    stage = Stage(1, 1)
    peer, other = stage.open(), stage.open()
    stage.step(peer, method(1, C.Queue.Declare, queue="q", passive=True) * 1000)
    assert other.call(1, C.Queue.Declare, queue="q", passive=True).message_count == 1
    assert peer.session.backlog.has_more
    stage.finish(peer)
    assert len(peer.take()) == 1000


def test_ever_more_consumers_that_recover() -> None:
    """Each recover asks all consumers whether they can have something: the more there are, the fewer a turn has."""
    stage = Stage(200, 1000, unsent_max=10_000)
    peer = stage.open()
    peer.is_reading = False
    one = method(1, C.Basic.Consume, queue="q", nowait=True) + method(1, C.Basic.Recover, requeue=True)
    stage.step(peer, one * 1500)
    stage.finish(peer)
    count = len(stage.queue.consumers)
    assert count == 1500
    # One event more than fits: it takes back what is out, and looks at all consumers a few times.
    assert max(stage.turns) <= EFFORT_MAX + METHOD_COST + 200 + 4 * count // CHECKS_PER_EFFORT
    assert sum(stage.turns) > 4 * EFFORT_MAX


@pytest.mark.parametrize("requeue", [True, False])
def test_very_many_are_given_back_at_once(requeue: bool) -> None:
    """What comes back goes out again a slice at a time, and all of it in the end."""
    stage = Stage(10_000, 1)
    peer = stage.open()
    stage.step(peer, method(1, C.Basic.Consume, queue="q", consumer_tag="c"))
    assert stage.queue.unacked == 10_000
    stage.step(peer, method(1, C.Basic.Nack, delivery_tag=0, multiple=True, requeue=requeue))
    assert stage.queue.unacked == (10_000 if requeue else 0) and not stage.queue.ready_count
    assert max(stage.ends) <= TURN_END_EFFORT + RUN_MAX


def test_a_nack_of_very_many_is_the_last_of_its_turn() -> None:
    """What follows it in the read is for the next."""
    stage = Stage(10_000, 1)
    peer = stage.open()
    stage.step(peer, method(1, C.Basic.Consume, queue="q", consumer_tag="c"))
    peer.take()
    before = len(stage.turns)
    stage.step(
        peer,
        method(1, C.Basic.Nack, delivery_tag=0, multiple=True, requeue=True)
        + method(1, C.Queue.Declare, queue="q", passive=True),
    )
    assert peer.session.backlog.has_more
    stage.finish(peer)
    assert len(stage.turns) == before + 2
    assert isinstance(peer.take()[-1].frame, C.Queue.DeclareOk)


def test_a_read_that_was_cut_is_over_once() -> None:
    """Then the connection has nothing to do until more comes: it takes no turns for nothing."""
    stage = Stage(1, 1)
    peer = stage.open()
    stage.step(peer, method(1, C.Basic.CancelOk, consumer_tag="x") * 600)
    assert peer.session.backlog.has_more
    for _ in range(10):
        stage.step(peer)
    assert not peer.session.backlog.has_more
