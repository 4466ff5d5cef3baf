"""A queue with very much in it is purged or deleted in slices: nobody else waits long, and the answer comes at the end.

Work is counted in messages and bindings, never in time.
"""

from __future__ import annotations

from typing import Any

import pytest
from pair import Pair
from pamqp import commands
from peer import Peer, method, publish

from leveret.amqp_frontend.session.handling import handle_bytes
from leveret.engine import Event, EventKind, LeftEvent, Queue
from leveret.engine.bulk_delete import BINDINGS_SLICE, MESSAGES_SLICE, WAIT_MAX

C = commands
COUNT = 5 * MESSAGES_SLICE + 7
BINDINGS = 4 * BINDINGS_SLICE + 3


class Stage(Pair):
    """Somebody listens; `left`: messages of each event. `gone`: messages and bindings of each part of a turn."""

    queue: Queue

    def __init__(self, *, messages: int = COUNT, bindings: int = 0) -> None:
        super().__init__()
        self.left: list[tuple[EventKind, int]] = []
        self.gone: list[int] = []
        self.broker.context.listeners.append(self._heard)
        self.peer = self.open()
        self.peer.call(1, C.Queue.Declare, queue="q")
        self.peer.send(publish(1, "q", b"x") * messages)
        bind = (
            method(1, C.Queue.Bind, queue="q", exchange="amq.topic", routing_key=f"k.{n}.#") for n in range(bindings)
        )
        for octets in bind:
            self.peer.send(octets)
        self.peer.take()
        self.queue = self.broker.virtual_hosts["/"].queues["q"]
        assert (self.queue.ready_count, len(self.queue.incoming)) == (messages, bindings)

    def _heard(self, event: Event) -> None:
        if isinstance(event, LeftEvent):
            self.left.append((event.kind, len(event.messages)))

    def _note(self, before: int) -> int:
        now = self.queue.ready_count + len(self.queue.incoming)
        self.gone.append(before - now)
        return now

    def ask(self, peer: Peer, data: bytes, *, turns: int | None = None) -> list[Any]:
        """The answers to these octets, after as many turns as they need, or these."""
        before = self.queue.ready_count + len(self.queue.incoming)
        handle_bytes(peer.session, data)
        while turns is None or turns > 0:
            before = self._note(before)
            is_more = self.broker.end_turn()
            before = self._note(before)
            if peer.session.backlog.has_more:
                handle_bytes(peer.session, b"")
            elif not is_more:
                break
            turns = None if turns is None else turns - 1
        peer._flush()
        return [received.frame for received in peer.take()]


@pytest.mark.parametrize(
    ("asked", "kind"), [(C.Queue.Purge, EventKind.PURGED), (C.Queue.Delete, EventKind.DELETED)], ids=["purge", "delete"]
)
def test_messages_go_in_slices(asked: type, kind: EventKind) -> None:
    """All are counted and told of, each once."""
    stage = Stage()
    (answer,) = stage.ask(stage.peer, method(1, asked, queue="q"))
    assert answer.message_count == COUNT
    assert max(stage.gone) <= MESSAGES_SLICE
    assert {one for one, _ in stage.left} == {kind} and sum(count for _, count in stage.left) == COUNT
    assert stage.queue.deleted == (kind is EventKind.DELETED)
    assert not stage.queue.freeze_count and not stage.broker.is_unfinished


def test_bindings_go_in_slices() -> None:
    """A deletion takes those that lead to the queue away, some in each turn."""
    stage = Stage(messages=3, bindings=BINDINGS)
    (answer,) = stage.ask(stage.peer, method(1, C.Queue.Delete, queue="q"))
    assert answer.message_count == 3
    assert max(stage.gone) <= BINDINGS_SLICE + 3
    assert stage.queue.deleted and not stage.broker.virtual_hosts["/"].bindings.count


def test_a_purge_keeps_the_bindings() -> None:
    """However many they are."""
    stage = Stage(messages=3, bindings=BINDINGS)
    (answer,) = stage.ask(stage.peer, method(1, C.Queue.Purge, queue="q"))
    assert answer.message_count == 3 and len(stage.queue.incoming) == BINDINGS


def test_nobody_gets_a_message_meanwhile() -> None:
    """A consumer that waits, a get and a second deletion: they find the queue when it is done."""
    stage = Stage()
    other = stage.open()
    stage.ask(stage.peer, method(1, C.Queue.Purge, queue="q"), turns=2)
    assert 0 < stage.queue.ready_count < COUNT
    handle_bytes(other.session, method(1, C.Basic.Get, queue="q", no_ack=True))
    assert other.session.backlog.has_more and stage.queue.counters.delivered == 0
    (answer,) = stage.ask(stage.peer, b"")
    assert answer.message_count == COUNT
    (got,) = stage.ask(other, b"")
    assert isinstance(got, C.Basic.GetEmpty)


def test_what_comes_behind_is_answered_behind() -> None:
    """Nothing of the peer's is handled before the purge is done; what others publish meanwhile goes with the rest."""
    stage = Stage()
    other = stage.open()
    octets = method(1, C.Queue.Purge, queue="q") + method(1, C.Queue.Declare, queue="q", passive=True)
    stage.ask(stage.peer, octets, turns=1)
    other.send(publish(1, "q", b"y") * 5)
    purged, declared = stage.ask(stage.peer, b"")
    assert (purged.message_count, declared.message_count) == (COUNT + 5, 0)


@pytest.mark.parametrize("asked", [C.Queue.Purge, C.Queue.Delete], ids=["purge", "delete"])
def test_who_asked_is_gone(asked: type) -> None:
    """It is done all the same, to its end."""
    stage = Stage()
    stage.ask(stage.peer, method(1, asked, queue="q"), turns=1)
    stage.peer.session.handle_end()
    while stage.broker.end_turn():
        pass
    assert stage.queue.ready_count == 0 and stage.queue.deleted == (asked is C.Queue.Delete)
    assert not stage.queue.freeze_count and not stage.broker.is_unfinished


def test_who_asked_does_not_come_back() -> None:
    """A queue is not held for ever for a peer that does not go on, say since it reads no answers."""
    stage = Stage()
    handle_bytes(stage.peer.session, method(1, C.Queue.Purge, queue="q"))
    for _ in range(WAIT_MAX + COUNT // MESSAGES_SLICE + 2):
        stage.broker.end_turn()
    assert not stage.queue.freeze_count and stage.queue.ready_count == 0 and not stage.broker.is_unfinished
    (answer,) = stage.ask(stage.peer, b"")
    assert answer.message_count == COUNT


def test_a_queue_that_goes_meanwhile() -> None:
    """Its connection ends, and it was exclusive: a purge of it finds nothing, and nothing is left over."""
    stage = Stage()
    vhost = stage.broker.virtual_hosts["/"]
    stage.ask(stage.peer, method(1, C.Queue.Delete, queue="q"), turns=1)
    vhost.queues.remove(stage.queue)
    (answer,) = stage.ask(stage.peer, b"")
    assert isinstance(answer, C.Queue.DeleteOk) and answer.message_count >= MESSAGES_SLICE


@pytest.mark.parametrize("condition", ["if_unused", "if_empty"])
def test_conditions_are_asked_first(condition: str) -> None:
    """A queue that may not be deleted keeps all it has."""
    stage = Stage(bindings=BINDINGS)
    other = stage.open()
    other.call(1, C.Basic.Qos, prefetch_count=1)
    other.send(method(1, C.Basic.Consume, queue="q", consumer_tag="c"))
    (answer,) = stage.ask(stage.peer, method(1, C.Queue.Delete, queue="q", **{condition: True}))
    assert isinstance(answer, C.Channel.Close) and answer.reply_code == 406
    assert (stage.queue.ready_count, len(stage.queue.incoming)) == (COUNT - 1, BINDINGS)


def test_our_own_consumers_hear_of_it_behind_the_answer() -> None:
    """As with a small queue (kombu relies on it)."""
    stage = Stage()
    stage.peer.call(1, C.Basic.Qos, prefetch_count=1)
    stage.peer.send(method(1, C.Basic.Consume, queue="q", consumer_tag="c"))
    stage.peer.take()
    answers = stage.ask(stage.peer, method(1, C.Queue.Delete, queue="q"))
    assert [type(one) for one in answers] == [C.Queue.DeleteOk, C.Basic.Cancel]
    assert answers[0].message_count == COUNT - 1


@pytest.mark.parametrize("condition", ["if_unused", "if_empty"])
def test_conditions_are_not_asked_again(condition: str) -> None:
    """A half-deleted queue is deleted, whatever comes meanwhile."""
    stage = Stage(messages=0, bindings=BINDINGS)
    other = stage.open()
    assert not stage.ask(stage.peer, method(1, C.Queue.Delete, queue="q", **{condition: True}), turns=1)
    handle_bytes(other.session, method(1, C.Basic.Consume, queue="q", consumer_tag="c") + publish(1, "q", b"x"))
    (answer,) = stage.ask(stage.peer, b"")
    assert isinstance(answer, C.Queue.DeleteOk) and "q" not in stage.vhost.queues
