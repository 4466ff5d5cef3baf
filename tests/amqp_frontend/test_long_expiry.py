"""A whole queue expires at once: a slice a turn, others are served in between, and nobody gets what has expired.

Work is counted in messages, never in time.
"""

from __future__ import annotations

from typing import Any

import pytest
from pair import Pair
from pamqp import commands
from peer import Peer, method, publish

from leveret.amqp_frontend.session.handling import handle_bytes
from leveret.engine.queues.queue import DEAD_LETTERED_MAX, EXPIRE_SLICE, Queue

C = commands
COUNT = 10_000
DEAD = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}


class Stage(Pair):
    """Queue `q`: a message that stays, many that expire after 1 ms, and a last one that stays.

    `gone`: messages that left it in each part of a turn.
    """

    queue: Queue
    dead: Queue

    def __init__(self, arguments: dict[str, str]) -> None:
        super().__init__()
        self.peer = self.open()
        self.peer.call(1, C.Queue.Declare, queue="dead")
        self.peer.call(1, C.Queue.Declare, queue="q", arguments=arguments)
        self.peer.send(publish(1, "q", b"first"))
        self.peer.send(publish(1, "q", b"x", expiration="1") * COUNT)
        self.peer.send(publish(1, "q", b"last"))
        self.queue, self.dead = (self.broker.virtual_hosts["/"].queues[name] for name in ("q", "dead"))
        self.clock.advance_ns(2_000_000)
        assert self.queue.ready_count == COUNT + 2
        self.gone: list[int] = []

    def ask(self, peer: Peer, data: bytes) -> list[Any]:
        """All answers to these octets, and as many turns as they need."""
        before = self.queue.ready_count
        handle_bytes(peer.session, data)
        while True:
            self.gone.append(before - self.queue.ready_count)
            before = self.queue.ready_count
            is_more = self.broker.end_turn()
            self.gone.append(before - self.queue.ready_count)
            before = self.queue.ready_count
            if peer.session.backlog.has_more:
                handle_bytes(peer.session, b"")
            elif not is_more:
                break
        peer._flush()
        return [received.frame for received in peer.take()]


@pytest.fixture(params=[{}, DEAD], ids=["dropped", "dead-lettered"])
def stage(request: pytest.FixtureRequest) -> Stage:
    """With and without dead letters."""
    return Stage(request.param)


def test_what_stood_behind_the_head_goes_in_slices(stage: Stage) -> None:
    """The first is taken, and all behind it have expired."""
    get = method(1, C.Basic.Get, queue="q", no_ack=True)
    got, *_ = stage.ask(stage.peer, get)
    assert isinstance(got, C.Basic.GetOk)
    assert stage.queue.ready_count == 1
    assert max(stage.gone) <= 3 * EXPIRE_SLICE and len(stage.gone) > COUNT / (6 * EXPIRE_SLICE)
    assert stage.dead.ready_count == (COUNT if stage.queue.rules.dead_letter_exchange is not None else 0)


def test_a_get_waits_for_the_first_that_is_alive(stage: Stage) -> None:
    """The second get is answered when all that has expired is gone, in turns of their own; the last one is alive."""
    get = method(1, C.Basic.Get, queue="q", no_ack=True)
    answers = [one for one in stage.ask(stage.peer, get * 3) if isinstance(one, (C.Basic.GetOk, C.Basic.GetEmpty))]
    assert [type(one) for one in answers] == [C.Basic.GetOk, C.Basic.GetOk, C.Basic.GetEmpty]
    assert max(stage.gone) <= 3 * EXPIRE_SLICE + 1


@pytest.mark.parametrize("asked", [C.Queue.Purge, C.Queue.Delete], ids=["purge", "delete"])
def test_a_purge_or_a_deletion_finds_what_is_alive(stage: Stage, asked: type) -> None:
    """What had expired before died of that, and is dead-lettered."""
    get = method(1, C.Basic.Get, queue="q", no_ack=True)
    *_, done = stage.ask(stage.peer, get + method(1, asked, queue="q"))
    assert done.message_count == 1
    assert stage.dead.ready_count == (COUNT if stage.queue.rules.dead_letter_exchange is not None else 0)


def test_a_consumer_gets_nothing_that_has_expired(stage: Stage) -> None:
    """It waits while they go, and gets the first and the last."""
    consume = method(1, C.Basic.Consume, queue="q", no_ack=True)
    stage.ask(stage.peer, consume)
    assert stage.queue.counters.delivered == 2 and stage.queue.counters.expired == COUNT


def test_a_journal_may_write_between_dead_letters() -> None:
    """Few are on their way at a time: after so many the journal commits, and confirms of others go out."""
    stage = Stage(DEAD)
    handle_bytes(stage.peer.session, method(1, C.Basic.Get, queue="q", no_ack=True))
    parked, since = 0, stage.dead.ready_count
    while stage.broker.end_turn():
        if not stage.broker.is_unfinished:
            parked, since = max(parked, stage.dead.ready_count - since), stage.dead.ready_count
    assert stage.dead.ready_count == COUNT
    assert 0 < parked <= 2 * DEAD_LETTERED_MAX
