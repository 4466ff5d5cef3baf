"""What a connection does not say before the journal is so far: answers, and what the engine says must wait."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest
from late_journal import LateJournal
from pair import Pair
from pamqp import commands as C
from peer import Peer, is_heartbeat, method, publish

from leveret.amqp_frontend.session.handling import handle_bytes
from leveret.engine import BrokerOptions, ServiceExchange


class Bench:
    """A journal that is late, a peer with three channels, and another one that is never kept waiting."""

    def __init__(self, **options: int) -> None:
        self.pair = Pair(**options)
        self.other = self.pair.open(1)
        self.other.call(1, C.Queue.Declare, queue="q", durable=True)
        self.peer: Peer = self.pair.open(3, heartbeat_s=10)
        self.journal = LateJournal(self.pair.broker)

    def heard(self) -> list[str]:
        return [one.frame.name for one in self.peer.take() if not is_heartbeat(one)]


@pytest.mark.parametrize("barriers", list(permutations((2, 5, 9))))
def test_what_the_engine_withholds_waits_for_the_last_of_it(barriers: tuple[int, ...]) -> None:
    """In whatever order it is said; until then nothing at all goes out but heartbeats, and then all at once."""
    bench = Bench()
    bench.journal.next_lsn = 10
    client = bench.peer.session.login.client
    assert client is not None
    bench.peer.send(method(1, C.Basic.Consume, queue="q", consumer_tag="c", no_ack=True))
    bench.peer.take()
    for sync_lsn in barriers:
        client.send_after(sync_lsn, 1)
    bench.other.send(publish(1, "q", b"x"))
    for safe in range(2, 9):
        bench.journal.safe_lsn = safe
        bench.pair.broker.release_awaiting()
        assert bench.heard() == []
    bench.pair.advance(6000)
    assert any(map(is_heartbeat, bench.peer.take())), "a connection that waits is alive"
    bench.journal.safe_lsn = 9
    bench.pair.broker.release_awaiting()
    assert bench.heard() == ["Basic.Deliver"]


ANSWERED: list[tuple[bytes, str]] = [
    (method(1, C.Queue.Declare, queue="new", durable=True), "Queue.DeclareOk"),
    (method(1, C.Queue.Declare, queue="q", durable=True), "Queue.DeclareOk"),
    (method(1, C.Queue.Declare, queue="q", durable=True, passive=True), "Queue.DeclareOk"),
    (method(1, C.Queue.Bind, queue="q", exchange="amq.direct", routing_key="k"), "Queue.BindOk"),
    (method(1, C.Queue.Unbind, queue="q", exchange="amq.direct", routing_key="k"), "Queue.UnbindOk"),
    (method(1, C.Queue.Purge, queue="q"), "Queue.PurgeOk"),
    (method(1, C.Queue.Delete, queue="q"), "Queue.DeleteOk"),
    (method(1, C.Exchange.Declare, exchange="x", durable=True), "Exchange.DeclareOk"),
    (method(1, C.Exchange.Delete, exchange="none"), "Exchange.DeleteOk"),
    (method(1, C.Exchange.Bind, destination="amq.fanout", source="amq.topic"), "Exchange.BindOk"),
    (method(1, C.Exchange.Unbind, destination="amq.fanout", source="amq.topic"), "Exchange.UnbindOk"),
]


@pytest.mark.parametrize(("asked", "answer"), ANSWERED, ids=[f"{row[1]}-{at}" for at, row in enumerate(ANSWERED)])
@pytest.mark.parametrize("act", ["publish", "ack", "reject"])
def test_an_answer_says_that_what_was_done_before_is_safe(asked: bytes, answer: str, act: str) -> None:
    """On any channel of the connection; on another connection it waits for none of that."""
    bench = Bench()
    if act == "publish":
        bench.peer.send(publish(2, "q", b"x", delivery_mode=2))
    else:
        bench.other.send(publish(1, "q", b"x"))
        bench.peer.send(method(2, C.Basic.Consume, queue="q", consumer_tag="c"))
        bench.journal.next_lsn += 1
        bench.peer.send(method(1, C.Queue.Declare, queue="q", durable=True))  # with which all before was answered
        bench.journal.commit(100)
        bench.peer.take()
        bench.peer.send(method(2, C.Basic.Ack, delivery_tag=1) * (1 if act == "ack" else 0))
        if act == "reject":
            bench.peer.send(method(2, C.Basic.Reject, delivery_tag=1, requeue=False))
        bench.journal.next_lsn += 1  # it is recorded, and nobody waits for it yet
    lsn = bench.journal.next_lsn
    bench.peer.send(asked)
    while bench.journal.safe_lsn < lsn:
        assert bench.heard() == []
        bench.journal.commit(1)
    bench.journal.commit(100)
    assert bench.heard()[:1] == [answer]  # basic.cancel follows that the queue is gone


@pytest.mark.parametrize("is_one_read", [True, False], ids=["one read", "two reads"])
def test_an_answer_does_not_go_out_with_a_later_one_that_waits_for_less(is_one_read: bool) -> None:
    """The second answer states nothing but that a queue of another peer is there, which is recorded before."""
    bench = Bench()
    bench.other.send(method(1, C.Queue.Declare, queue="new", durable=True))
    queue_lsn = bench.journal.next_lsn
    asked = [publish(2, "q", b"x", delivery_mode=2), *[method(1, C.Queue.Declare, queue="q", durable=True)] * 2]
    for sent in [asked] if is_one_read else [asked[:2], asked[2:]]:
        bench.peer.send(*sent)
    bench.journal.safe_lsn = queue_lsn
    bench.pair.broker.release_awaiting()
    assert bench.heard() == []
    bench.journal.commit(1)
    assert bench.heard() == ["Queue.DeclareOk"] * 2


def test_a_queue_of_another_peer_is_told_when_it_is_safe() -> None:
    """Who asks has changed nothing, and waits no less: a power cut may take the queue away."""
    bench = Bench()
    bench.other.send(method(1, C.Queue.Declare, queue="new", durable=True))
    bench.journal.next_lsn += 1  # recorded behind it: nobody waits for that
    bench.peer.send(method(1, C.Queue.Declare, queue="new", durable=True, passive=True))
    assert bench.heard() == []
    bench.journal.commit(1)
    assert bench.heard() == ["Queue.DeclareOk"]


@pytest.mark.parametrize(
    "asked",
    [
        method(1, C.Queue.Declare, queue="mine", exclusive=True),
        method(1, C.Basic.Qos, prefetch_count=1),
        method(1, C.Basic.Consume, queue="none", consumer_tag="c"),
        method(3, C.Channel.Close, reply_code=200, class_id=0, method_id=0),
        method(1, C.Confirm.Select),
        method(1, C.Basic.Get, queue="q"),
    ],
)
def test_other_answers_do_not_wait(asked: bytes) -> None:
    """Of what no restart brings back anyway."""
    bench = Bench()
    bench.peer.send(publish(2, "q", b"x", delivery_mode=2), asked)
    assert len(bench.heard()) == 1


def test_a_request_to_a_service_is_answered_when_what_it_did_is_safe() -> None:
    """The replies to it, too; the next request waits for its own."""
    bench = Bench()
    exchange = ServiceExchange("service", lambda envelope, content: bench.journal.record())
    bench.pair.broker.virtual_hosts["/"].exchanges["service"] = exchange
    bench.peer.call(2, C.Confirm.Select)
    for _ in range(2):
        bench.peer.send(publish(2, "k", b"do it", exchange="service"))
        assert bench.heard() == []
        bench.journal.commit(100)
        assert bench.heard() == ["Basic.Ack"]


def test_what_will_never_be_safe_ends_the_connection() -> None:
    """The disk is not to be trusted any more: the peer does not read that its queue is declared (541)."""
    bench = Bench()
    bench.peer.send(method(1, C.Queue.Declare, queue="new", durable=True), method(2, C.Basic.Qos, prefetch_count=1))
    bench.journal.is_lost = True
    bench.journal.fail()
    closed: Any = bench.peer.expect(C.Connection.Close)
    assert closed.reply_code == 541
    bench.peer.expect_nothing()


def test_what_is_declared_while_the_disk_is_full_is_answered_when_it_is_stated() -> None:
    """Not when there is room again: a checkpoint has to have it first."""
    bench = Bench()
    bench.peer.send(method(1, C.Queue.Bind, queue="q", exchange="amq.direct", routing_key="k"))
    bench.journal.commit(100)
    bench.heard()
    bench.journal.fail()
    bench.peer.send(method(1, C.Queue.Delete, queue="q"))
    bench.journal.has_failed = False
    bench.pair.broker.release_awaiting()
    assert bench.heard() == []
    bench.journal.recover()
    assert bench.heard() == ["Queue.DeleteOk"]


def test_the_answer_to_a_purge_in_slices_waits_for_all_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if what is left for the last one is in no journal."""
    monkeypatch.setattr("leveret.engine.bulk_delete.MESSAGES_SLICE", 4)
    bench = Bench()
    bench.other.send(publish(1, "q", b"x", delivery_mode=2) * 4, publish(1, "q", b"x"))
    bench.journal.commit(100)
    handle_bytes(bench.peer.session, method(1, C.Queue.Purge, queue="q"))
    assert bench.peer.session.backlog.has_more
    bench.pair.broker.end_turn()
    bench.journal.record()  # the slice
    handle_bytes(bench.peer.session, b"")
    bench.peer._flush()
    assert not bench.peer.session.backlog.has_more and bench.heard() == []
    bench.journal.commit(100)
    bench.peer._flush()
    assert bench.heard() == ["Queue.PurgeOk"]


@pytest.mark.parametrize(
    "late",
    [
        method(1, C.Basic.Get, queue="r", no_ack=True),
        method(1, C.Basic.Consume, queue="r", consumer_tag="late", no_ack=True),
        method(1, C.Queue.Declare, queue="r", passive=True),
        method(1, C.Basic.Ack, delivery_tag=1),
        publish(1, "r", b"late"),
    ],
    ids=["get", "consume", "declare", "ack", "publish"],
)
def test_a_channel_whose_close_waits_is_closed(late: bytes) -> None:
    """What comes after its timeout is ignored, as if the close had been sent: no message is taken for nobody."""
    pair = Pair(broker={"options": BrokerOptions(consumer_timeout_ms=60_000)})
    other, peer = pair.open(1), pair.open(1)
    other.call(1, C.Queue.Declare, queue="r")
    other.send(publish(1, "r", b"x"))
    peer.send(method(1, C.Basic.Consume, queue="r", consumer_tag="c"))
    peer.take()
    journal = LateJournal(pair.broker)
    journal.next_lsn = 10
    peer.session.client.send_after(5, 1)
    for _ in range(30):
        pair.advance(10_000)
    assert not peer.session.client.sessions
    peer.send(late)
    journal.safe_lsn = 9
    pair.broker.release_awaiting()
    (closed,) = peer.take()
    assert isinstance(closed.frame, C.Channel.Close) and "timed out" in closed.frame.reply_text
    assert pair.named("r").ready_count == 1


def test_a_client_that_waits_for_the_disk_gets_no_more_into_memory_than_it_may() -> None:
    """However often it is heard, and the journal goes on, meanwhile: what waits is unsent. Then it gets all."""
    bench = Bench(unsent_max=10_000)
    bench.other.send(*(publish(1, "q", bytes(1000)) for _ in range(200)))
    queue = bench.pair.broker.virtual_hosts["/"].queues["q"]
    bench.peer.send(method(1, C.Queue.Declare, queue="new", durable=True))
    bench.peer.send(method(2, C.Basic.Consume, queue="q", consumer_tag="c", no_ack=True))
    for _ in range(30):
        bench.peer.send(method(3, C.Basic.Qos, prefetch_count=1))
        bench.pair.broker.release_awaiting()
        bench.pair.settle()
    assert bench.heard() == []
    assert queue.ready_count >= 200 - 2 * 10
    bench.journal.commit(100)
    bench.pair.settle()
    heard = bench.heard()
    assert heard.count("Basic.Deliver") == 200 and queue.ready_count == 0
    assert heard.count("Basic.QosOk") == 30


def test_a_consumer_that_waited_for_the_disk_gets_the_rest_by_itself() -> None:
    """It was paused when so much was out; nobody else does anything when the journal goes on."""
    bench = Bench(unsent_max=10_000)
    bench.other.send(*(publish(1, "q", bytes(1000)) for _ in range(200)))
    bench.peer.send(method(1, C.Queue.Declare, queue="new", durable=True))
    bench.peer.send(method(2, C.Basic.Consume, queue="q", consumer_tag="c", no_ack=True))
    assert bench.heard() == []
    bench.journal.commit(100)
    bench.pair.advance(0)
    assert bench.heard().count("Basic.Deliver") == 200
