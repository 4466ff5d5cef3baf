"""A commit of very many messages is applied in slices: others are served in between, and it is one thing all the same.

Work is counted in messages, never in time.
"""

from __future__ import annotations

from typing import Any

import pytest
from pair import Pair
from pamqp import commands
from peer import Peer, method, publish

from leveret.amqp_frontend.session.handling import handle_bytes
from leveret.engine import Queue
from leveret.engine.clients.transaction import COMMIT_SLICE
from leveret.engine.turn import PART_MIN

C = commands
COUNT = 9_000


class Stage(Pair):
    """One queue `q`, and turns that are ended by hand."""

    def __init__(self, **more: Any) -> None:
        super().__init__(**more)
        self.open().call(1, C.Queue.Declare, queue="q")

    @property
    def queue(self) -> Queue:
        return self.broker.virtual_hosts["/"].queues["q"]

    def prepared(self, *what: bytes) -> Peer:
        """A client that has sent a transaction."""
        peer = self.open()
        peer.call(1, C.Tx.Select)
        peer.send(*what)
        return peer

    def commit(self, peer: Peer, behind: bytes = b"") -> None:
        """It is read, and nothing more is done."""
        handle_bytes(peer.session, method(1, C.Tx.Commit) + behind)

    def committing(self, *what: bytes) -> Peer:
        """Both."""
        peer = self.prepared(*what)
        self.commit(peer)
        return peer

    def finish(self, peer: Peer) -> list[Any]:
        """All that is left; the frames that came."""
        self.end_turn()
        peer.send(b"")
        return [received.frame for received in peer.take()]


def bodies(queue: Queue) -> list[bytes]:
    return [message.body for message in queue.store]


def transaction(count: int = COUNT) -> bytes:
    return b"".join(publish(1, "q", b"%d" % number) for number in range(count))


def test_a_slice_at_a_time_and_one_answer() -> None:
    """Others see what is there so far; commit-ok and the answers to what follows come after all of it, in order."""
    stage = Stage()
    peer = stage.prepared(transaction())
    stage.commit(peer, method(1, C.Queue.Declare, queue="q", passive=True) + publish(1, "q", b"x"))
    seen = [0]
    while stage.broker.end_turn():
        seen.append(stage.queue.ready_count)
    assert seen[-1] == COUNT and len(seen) > 4
    assert max(after - before for before, after in zip(seen, seen[1:])) <= COMMIT_SLICE + PART_MIN
    ok, declared = stage.finish(peer)
    assert isinstance(ok, C.Tx.CommitOk) and declared.message_count == COUNT
    assert bodies(stage.queue) == [b"%d" % number for number in range(COUNT)]  # what followed is in the next one


def test_a_small_commit_is_one_turn() -> None:
    """As ever, also while a large one is under way."""
    stage = Stage()
    large, small = stage.prepared(transaction()), stage.prepared(transaction(5))
    stage.commit(large)
    assert stage.broker.end_turn()
    stage.commit(small)
    small._flush()
    assert isinstance(small.expect(C.Tx.CommitOk), C.Tx.CommitOk)
    assert 5 < stage.queue.ready_count < COUNT
    (ok,) = stage.finish(large)
    assert isinstance(ok, C.Tx.CommitOk) and stage.queue.ready_count == COUNT + 5


def test_large_ones_wait_for_each_other() -> None:
    """One after the other, so that a journal can write what each of them was."""
    stage = Stage()
    peers = [stage.prepared(transaction()) for _ in range(3)]
    for peer in peers:
        stage.commit(peer)
    was_whole = 0
    while stage.broker.end_turn():
        was_whole += not stage.broker.is_unfinished
        assert stage.broker.is_unfinished or not stage.queue.ready_count % COUNT
    assert was_whole >= 2
    assert bodies(stage.queue) == [b"%d" % number for number in range(COUNT)] * 3
    for peer in peers:
        assert [type(frame) for frame in stage.finish(peer)] == [C.Tx.CommitOk]


def test_a_run_to_many_queues_is_cut() -> None:
    """Also where few runs go to many queues: each message comes to all of them in the same slice."""
    stage = Stage()
    setup = stage.open()
    setup.call(1, C.Exchange.Declare, exchange="f", exchange_type="fanout")
    for number in range(600):
        setup.call(1, C.Queue.Declare, queue=f"f{number}")
        setup.call(1, C.Queue.Bind, queue=f"f{number}", exchange="f")
    peer = stage.committing(publish(1, "", b"x", exchange="f") * 50)
    queues = [stage.broker.virtual_hosts["/"].queues[f"f{number}"] for number in range(600)]
    before = 0
    while stage.broker.end_turn():
        (count,) = {queue.ready_count for queue in queues}
        assert count - before <= PART_MIN
        before = count
    assert [type(frame) for frame in stage.finish(peer)] == [C.Tx.CommitOk] and before == 50


@pytest.mark.parametrize("way", ["hangs up", "is expelled", "its virtual host goes"])
def test_a_client_that_goes_in_the_middle(way: str) -> None:
    """What was committed goes on to its end: publishes and acknowledgements; only the answer has nobody to go to."""
    stage = Stage()
    stage.open().send(transaction(2))
    peer = stage.open()
    peer.call(1, C.Tx.Select)
    for tag in (1, 2):
        assert peer.call(1, C.Basic.Get, queue="q").delivery_tag == tag
    peer.send(
        transaction()
        + method(1, C.Basic.Ack, delivery_tag=1)
        + method(1, C.Basic.Reject, delivery_tag=2, requeue=False)
    )
    handle_bytes(peer.session, method(1, C.Tx.Commit))
    assert stage.broker.end_turn()
    queue = stage.queue
    assert 0 < queue.ready_count < COUNT and len(queue.unacked_messages()) == queue.unacked == 2
    if way == "hangs up":
        peer.hang_up()
    elif way == "is expelled":
        peer.session.closing.stop()
    else:
        stage.broker.virtual_hosts.delete("/")
    stage.end_turn()
    assert queue.unacked == 0 and not queue.unacked_messages() and not queue.sessions
    if way != "its virtual host goes":
        assert bodies(queue) == [b"%d" % number for number in range(COUNT)]
        assert (queue.counters.acknowledged, queue.counters.killed) == (1, 1)
    else:
        assert queue.deleted and stage.broker.virtual_hosts == {}
    assert not stage.broker.is_unfinished and not peer.session.backlog.is_committing


def test_many_acknowledgements() -> None:
    """They come in slices, too; what is out is known at each moment."""
    stage = Stage()
    stage.open().send(transaction(3 * COMMIT_SLICE))
    peer = stage.open()
    peer.call(1, C.Tx.Select)
    peer.send(method(1, C.Basic.Consume, queue="q", consumer_tag="t"))
    peer.take()
    handle_bytes(peer.session, method(1, C.Basic.Ack, delivery_tag=0, multiple=True) + method(1, C.Tx.Commit))
    left = []
    while stage.broker.end_turn():
        left.append(stage.queue.unacked)
        assert len(stage.queue.unacked_messages()) == left[-1]
    assert left[0] == 2 * COMMIT_SLICE and left[-1] == 0
    assert [type(frame) for frame in stage.finish(peer)] == [C.Tx.CommitOk]


def test_what_nobody_took_and_what_a_queue_refused() -> None:
    """Returns come before commit-ok; a refusal anywhere in it is a partial commit."""
    stage = Stage()
    peer = stage.committing(transaction() + publish(1, "nowhere", b"back", mandatory=True))
    returned, ok = stage.finish(peer)
    assert isinstance(returned, C.Basic.Return) and isinstance(ok, C.Tx.CommitOk)
    arguments = {"x-max-length": 10, "x-overflow": "reject-publish"}
    stage.open().call(1, C.Queue.Declare, queue="short", arguments=arguments)
    peer = stage.committing(publish(1, "short", b"x") * 20 + transaction())
    (closed,) = stage.finish(peer)
    assert isinstance(closed, C.Channel.Close) and closed.reply_code == 406
    assert stage.queue.ready_count == 2 * COUNT


def test_heartbeats_do_not_miss_who_is_not_read() -> None:
    """A peer that waits for its commit counts as heard."""
    stage = Stage()
    peer = stage.committing(transaction())
    assert peer.session.backlog.is_committing and not peer.session.backlog.has_more
    peer.session.heartbeat.interval_s = 1
    for _ in range(10):
        peer.session.heartbeat.tick()
    assert not peer.is_closed
