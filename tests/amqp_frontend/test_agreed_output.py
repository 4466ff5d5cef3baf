"""On a node of a cluster, quorum and leased queues deliver what other nodes have; nothing else waits for that.

Source: docs/decisions/0027-agreed-deliveries.md.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from agreed_pair import AgreedPair
from pamqp import commands as C
from peer import Peer, is_heartbeat, method, publish

from leveret.amqp_frontend.peer.agreed_output import AgreedOutput
from leveret.amqp_frontend.session.handling import handle_bytes
from leveret.engine.leases.control import REQUEST

QUORUM = {"x-queue-type": "quorum"}
LEASED = {"x-queue-type": "amps", "x-max-backlog-per-consumer": 100}
HELD: list[dict[str, Any]] = [QUORUM, LEASED, {"x-queue-type": "quorum", "x-message-ttl": 100_000}]


class Bench:
    """Queues q (of a kind that waits) and c (classic, which does not), a publisher, and a peer with three channels."""

    def __init__(self, arguments: dict[str, Any] | None = None, **options: Any) -> None:
        self.pair = AgreedPair(**options)
        self.publisher: Peer = self.pair.open(1)
        self.peer: Peer = self.pair.open(3, heartbeat_s=10)
        queue = {"queue": "q", "durable": True, "arguments": QUORUM if arguments is None else arguments}
        self.publisher.send(method(1, C.Queue.Declare, **queue), method(1, C.Queue.Declare, queue="c"))
        self.pair.agree()
        for channel in (1, 2, 3):
            self.peer.call(channel, C.Basic.Qos, prefetch_count=100)
        self.publisher.take()

    def consume(self, channel: int, queue: str, **options: Any) -> None:
        self.peer.send(method(channel, C.Basic.Consume, queue=queue, consumer_tag=queue, **options))

    def publish(self, *bodies: str, queue: str = "q", **properties: Any) -> None:
        """Written to the leader's disk at once."""
        self.publisher.send(*(publish(1, queue, body.encode(), **properties) for body in bodies))
        self.pair.settle()

    def heard(self, peer: Peer | None = None) -> list[str]:
        """Names of what came, and bodies of deliveries, with the channel."""
        return [
            f"{one.channel} {one.body.decode() if one.body is not None else one.frame.name}"
            for one in (peer or self.peer).take()
            if not is_heartbeat(one)
        ]


@pytest.mark.parametrize("arguments", HELD, ids=str)
def test_deliveries_wait_until_other_nodes_have_the_messages(arguments: dict[str, Any]) -> None:
    """Of new messages, and of those that were ready."""
    bench = Bench(arguments)
    bench.publish("a")
    bench.consume(1, "q")
    bench.publish("b")
    assert bench.heard() == ["1 Basic.ConsumeOk"]
    bench.pair.agree()
    assert bench.heard() == ["1 a", "1 b"]
    bench.publish("c")
    assert bench.heard() == []
    bench.pair.agree()
    assert bench.heard() == ["1 c"]


def test_each_delivery_waits_for_itself() -> None:
    """Under load nothing waits for what comes later."""
    bench = Bench()
    bench.consume(1, "q")
    bench.heard()
    ends = []
    for at in range(20):
        bench.publish(str(at))
        ends.append(bench.pair.journal.next_lsn)
        if at >= 5:
            bench.pair.agree(ends[at - 5])
            assert bench.heard() == [f"1 {at - 5}"]
    bench.pair.agree()
    assert bench.heard() == [f"1 {at}" for at in range(15, 20)]


def test_what_was_asked_for_without_an_answer_delays_the_next_answer() -> None:
    """A queue that was purged with nowait: who is told that it is there learns that it is empty, too."""
    bench = Bench()
    bench.publish("a")
    bench.pair.agree()
    bench.peer.send(method(2, C.Queue.Purge, queue="q", nowait=True))
    bench.pair.settle()
    bench.peer.send(method(2, C.Queue.Declare, queue="q", durable=True, passive=True))
    assert bench.heard() == []
    bench.pair.agree()
    assert bench.heard() == ["2 Queue.DeclareOk"]


def test_classic_queues_deliver_at_once_to_other_channels() -> None:
    """On the same channel their deliveries keep the order of delivery tags."""
    bench = Bench()
    bench.consume(1, "q")
    bench.consume(2, "c")
    bench.peer.send(method(1, C.Basic.Consume, queue="c", consumer_tag="c2"))
    bench.heard()
    bench.publish("q1")
    bench.publish("c1", "c2", "c3", "c4", queue="c")
    heard = bench.heard()
    assert len(heard) == 2 and all(one.startswith("2 c") for one in heard)
    bench.pair.agree()
    assert [one.partition(" ")[2][0] for one in bench.heard()] == ["q", "c", "c"]


def test_an_answer_that_waits_holds_back_its_channel_only() -> None:
    """A durable declaration is answered when it is agreed; other channels are answered and served meanwhile."""
    bench = Bench()
    bench.consume(2, "c")
    bench.heard()
    bench.peer.send(method(1, C.Queue.Declare, queue="new", durable=True), method(1, C.Basic.Qos, prefetch_count=1))
    bench.peer.send(method(3, C.Basic.Qos, prefetch_count=1))
    bench.publish("c1", queue="c")
    assert bench.heard() == ["3 Basic.QosOk", "2 c1"]
    bench.pair.agree()
    assert bench.heard() == ["1 Queue.DeclareOk", "1 Basic.QosOk"]


def test_a_connection_with_nothing_else_to_send_hears_of_the_agreement() -> None:
    """Nothing is taken for it before: its turn left nothing to send."""
    bench = Bench()
    session = bench.peer.session
    bench.pair.broker.context.awaiting.clear()
    handle_bytes(session, method(1, C.Queue.Declare, queue="new", durable=True))
    assert session.output.parts == [] and session.login.client in bench.pair.broker.context.awaiting


def test_answers_of_one_turn_wait_each_for_itself() -> None:
    """The first does not wait for what the second recorded."""
    bench = Bench()
    bench.peer.send(method(1, C.Queue.Declare, queue="one", durable=True))
    first = bench.pair.journal.next_lsn
    bench.peer.send(
        method(1, C.Queue.Declare, queue="two", durable=True),
        method(1, C.Queue.Declare, queue="three", durable=True, nowait=True),
        method(1, C.Queue.Declare, queue="one", durable=True, passive=True),
    )
    bench.pair.agree(first)
    assert bench.heard() == ["1 Queue.DeclareOk"]
    bench.pair.agree()
    assert bench.heard() == ["1 Queue.DeclareOk"] * 2


def test_an_answer_does_not_wait_for_deliveries_behind_it() -> None:
    """Of one read: what the delivery shows was recorded later."""
    bench = Bench()
    bench.consume(1, "q")
    bench.heard()
    bench.pair.agree()
    before = bench.pair.journal.next_lsn
    bench.peer.send(method(1, C.Queue.Declare, queue="new", durable=True) + publish(1, "q", b"a", delivery_mode=2))
    came = {}
    for lsn in range(before, bench.pair.journal.next_lsn + 1):
        bench.pair.agree(lsn)
        came |= dict.fromkeys(bench.heard(), lsn)
    assert came["1 Queue.DeclareOk"] < came["1 a"]


def test_an_answer_to_a_change_of_everything_holds_back_all_channels() -> None:
    """Whatever a request to the broker itself has changed; confirms of the same turn do not pass it either."""
    bench = Bench()
    bench.publish("a", delivery_mode=2)
    session = bench.peer.session
    session.journal.send_after(bench.pair.journal.next_lsn, 1)
    session.journal.send_all_after(bench.pair.journal.next_lsn)
    session.output.send_ahead(1, method(1, C.Basic.Ack, delivery_tag=1))
    bench.peer.send(*(method(channel, C.Basic.Qos, prefetch_count=1) for channel in (1, 2, 3)))
    assert bench.heard() == []
    bench.pair.agree()
    assert sorted(bench.heard()) == ["1 Basic.Ack", *(f"{channel} Basic.QosOk" for channel in (1, 2, 3))]


def test_a_declaration_without_an_answer_sends_none() -> None:
    """What was sent before it is not sent again, and the next answer says that it is safe."""
    bench = Bench()
    nowait = method(1, C.Queue.Declare, queue="new", durable=True, nowait=True)
    bench.peer.send(method(1, C.Basic.Qos, prefetch_count=1))
    assert bench.heard() == ["1 Basic.QosOk"]
    bench.peer.send(nowait)
    assert bench.heard() == []
    bench.peer.send(method(1, C.Queue.Declare, queue="new", durable=True, passive=True))
    assert bench.heard() == []
    bench.pair.agree()
    assert bench.heard() == ["1 Queue.DeclareOk"]


def test_a_purge_without_an_answer_is_awaited_by_the_next_answer() -> None:
    """Which states that the queue is empty."""
    bench = Bench()
    bench.publish("a")
    bench.pair.agree()
    bench.peer.send(method(1, C.Queue.Purge, queue="q", nowait=True))
    bench.peer.send(method(1, C.Queue.Declare, queue="q", durable=True, passive=True))
    assert bench.heard() == []
    bench.pair.agree()
    assert bench.heard() == ["1 Queue.DeclareOk"]


def test_a_change_without_an_answer_behind_an_answer_is_waited_for_by_the_next_one() -> None:
    """Of one read. The answer before it does not wait; one on another channel, which may show the change, does."""
    bench = Bench()
    bench.publish("a", delivery_mode=2)
    bench.pair.agree()
    bench.peer.send(method(1, C.Basic.Qos, prefetch_count=1) + method(1, C.Queue.Purge, queue="q", nowait=True))
    assert bench.heard() == ["1 Basic.QosOk"]
    bench.peer.send(method(2, C.Queue.Declare, queue="q", durable=True, passive=True))
    assert bench.heard() == []
    bench.pair.agree()
    assert bench.heard() == ["2 Queue.DeclareOk"]


@pytest.mark.parametrize("crosses", [False, True])
def test_an_answer_that_waits_comes_before_the_end_of_its_channel(crosses: bool) -> None:
    """Also when the peer closes the channel meanwhile; afterwards its number is free."""
    bench = Bench()
    bench.consume(1, "q")
    bench.heard()
    bench.publish("a")
    bench.peer.send(method(1, C.Queue.Declare, queue="new", durable=True), method(1, C.Queue.Purge, queue="none"))
    assert bench.heard() == []
    if crosses:
        bench.peer.send(method(1, C.Channel.Close, reply_code=200, class_id=0, method_id=0))
    bench.pair.agree()
    heard = bench.heard()
    assert heard[-2 - crosses :] == ["1 Queue.DeclareOk", "1 Channel.Close", *(["1 Channel.CloseOk"] * crosses)]
    bench.peer.send(method(1, C.Channel.CloseOk), method(1, C.Channel.Open))
    assert bench.heard() == ["1 Channel.OpenOk"]


@pytest.mark.parametrize("has_delivery", [False, True])
def test_an_answer_that_waits_comes_before_the_close_ok_of_its_channel(has_delivery: bool) -> None:
    """A client that does not wait for it before it closes the channel gets it. Other channels do not wait."""
    bench = Bench()
    if has_delivery:
        bench.consume(1, "q")
        bench.heard()
        bench.publish("a")
    bench.peer.send(method(1, C.Tx.Select), publish(1, "q", b"b", delivery_mode=2), method(1, C.Tx.Commit))
    bench.heard()
    bench.peer.send(method(1, C.Channel.Close, reply_code=200, class_id=0, method_id=0))
    bench.peer.send(method(2, C.Channel.Close, reply_code=200, class_id=0, method_id=0))
    assert bench.heard() == ["2 Channel.CloseOk"]
    bench.pair.agree()
    assert bench.heard()[-2:] == ["1 Tx.CommitOk", "1 Channel.CloseOk"]
    bench.peer.send(method(1, C.Channel.Open))
    assert bench.heard() == ["1 Channel.OpenOk"]


def test_a_channel_that_is_used_again_is_closed_by_its_client_like_any_other() -> None:
    """The broker's own close of it, which had to wait, is over: what waits now is dropped."""
    bench = Bench()
    bench.peer.send(method(1, C.Queue.Declare, queue="new", durable=True), method(1, C.Queue.Purge, queue="none"))
    bench.pair.agree()
    assert bench.heard() == ["1 Queue.DeclareOk", "1 Channel.Close"]
    bench.peer.send(method(1, C.Channel.CloseOk), method(1, C.Channel.Open))
    bench.consume(1, "q")
    bench.heard()
    bench.publish("a")
    bench.peer.send(method(1, C.Channel.Close, reply_code=200, class_id=0, method_id=0))
    assert bench.heard() == ["1 Channel.CloseOk"]
    bench.pair.agree()
    assert bench.heard() == []


def test_confirms_and_returns_pass_deliveries_on_their_channel() -> None:
    """A connection that publishes and consumes on one channel gets its confirm when that is agreed, not later."""
    bench = Bench()
    bench.consume(1, "q")
    bench.peer.send(method(1, C.Confirm.Select))
    bench.heard()
    bench.peer.send(publish(1, "q", b"1", delivery_mode=2))
    lsn = bench.pair.journal.next_lsn
    bench.publish("2")
    bench.peer.send(publish(1, "nowhere", b"x", mandatory=True))
    assert bench.heard() == ["1 x"]  # basic.return; its confirm comes in the order of the tags
    bench.pair.agree(lsn)
    assert bench.heard() == ["1 Basic.Ack", "1 1"]
    bench.pair.agree()
    assert bench.heard() == ["1 2"]


def test_confirms_do_not_pass_answers_of_their_channel() -> None:
    """confirm.select-ok behind a declaration, and what follows it."""
    bench = Bench()
    bench.peer.send(
        method(1, C.Queue.Declare, queue="new", durable=True),
        method(1, C.Confirm.Select),
        publish(1, "c", b"transient"),
    )
    assert bench.heard() == []
    bench.pair.agree()
    assert bench.heard() == ["1 Queue.DeclareOk", "1 Confirm.SelectOk", "1 Basic.Ack"]


def test_confirms_do_not_pass_answers_that_stand_behind_deliveries() -> None:
    """The deliveries alone could be passed."""
    bench = Bench()
    bench.peer.send(method(1, C.Confirm.Select))
    bench.consume(1, "q")
    bench.heard()
    bench.publish("a")
    bench.peer.send(method(1, C.Basic.Qos, prefetch_count=5) + publish(1, "c", b"transient"))
    assert bench.heard() == []
    bench.pair.agree()
    assert bench.heard() == ["1 a", "1 Basic.QosOk", "1 Basic.Ack"]


def test_confirms_do_not_pass_answers_that_stand_before_deliveries() -> None:
    """Deliveries behind an answer do not open the way."""
    bench = Bench()
    bench.peer.send(method(1, C.Confirm.Select))
    bench.consume(1, "q")
    bench.heard()
    bench.peer.send(method(1, C.Queue.Declare, queue="new", durable=True))
    bench.publish("a")
    bench.peer.send(publish(1, "c", b"transient"))
    assert bench.heard() == []
    bench.pair.agree()
    assert bench.heard() == ["1 Queue.DeclareOk", "1 a", "1 Basic.Ack"]


@pytest.mark.parametrize("arguments", HELD, ids=str)
def test_gets_wait_as_deliveries_do(arguments: dict[str, Any]) -> None:
    """Those from a classic queue do not."""
    bench = Bench(arguments)
    bench.publish("a")
    bench.publish("b", queue="c")
    bench.peer.send(method(1, C.Basic.Get, queue="q"), method(2, C.Basic.Get, queue="c"))
    assert bench.heard() == ["2 b"]
    bench.pair.agree()
    assert bench.heard() == ["1 a"]


def test_what_is_agreed_does_not_wait_when_it_comes_back() -> None:
    """A requeued message, though newer ones are not agreed."""
    bench = Bench()
    bench.publish("a")
    bench.pair.agree()
    bench.consume(1, "q")
    assert bench.heard() == ["1 Basic.ConsumeOk", "1 a"]
    bench.publish("b", queue="other")
    bench.peer.send(method(1, C.Basic.Reject, delivery_tag=1, requeue=True))
    assert bench.heard() == ["1 a"]


def test_what_comes_back_before_it_is_agreed_waits_for_itself() -> None:
    """Not for what is older alone; nor do old messages take new ones along."""
    bench = Bench()
    bench.consume(1, "q")
    bench.publish("a")
    lsn = bench.pair.journal.next_lsn
    bench.publish("b")
    bench.peer.send(method(1, C.Channel.Close, reply_code=200, class_id=0, method_id=0))
    bench.consume(2, "q")
    assert [one for one in bench.heard() if one.startswith("2 ")] == ["2 Basic.ConsumeOk"]
    bench.pair.agree(lsn)
    assert "2 b" not in bench.heard()
    bench.pair.agree()
    bench.peer.send(method(2, C.Channel.Close, reply_code=200, class_id=0, method_id=0))
    bench.publish("c")
    bench.consume(3, "q")
    assert "3 c" not in bench.heard()
    bench.pair.agree()
    assert "3 c" in bench.heard()


def test_a_new_message_in_front_of_an_old_one_waits() -> None:
    """It has the higher priority, and the delivery of both waits for it."""
    bench = Bench({**LEASED, "x-priority-expr": "/rank"})
    bench.consume(2, "q")
    bench.publish('{"rank": 1}')
    bench.pair.agree()
    assert bench.heard() == ["2 Basic.ConsumeOk", '2 {"rank": 1}']
    bench.peer.send(method(2, C.Channel.Close, reply_code=200, class_id=0, method_id=0))
    bench.publish('{"rank": 9}')
    bench.consume(1, "q")
    assert bench.heard() == ["2 Channel.CloseOk", "1 Basic.ConsumeOk"]
    bench.pair.agree()
    assert bench.heard() == ['1 {"rank": 9}', '1 {"rank": 1}']


def test_a_no_ack_consumer_waits_too() -> None:
    """At most once: nothing is removed for a message that nobody sees."""
    bench = Bench(HELD[0])
    bench.consume(1, "q", no_ack=True)
    bench.heard()
    bench.publish("a")
    assert bench.heard() == []
    bench.pair.agree()
    assert bench.heard() == ["1 a"]


def test_at_most_once_leases_wait_for_the_removal() -> None:
    """As on one node they wait for its disk."""
    bench = Bench({**LEASED, "x-semantics": "at-most-once"})
    bench.publish("a")
    bench.pair.agree()
    bench.consume(1, "q")
    assert bench.heard() == ["1 Basic.ConsumeOk"]
    bench.pair.agree()
    assert bench.heard() == ["1 a"]


def test_browsing_and_replays_show_what_is_agreed() -> None:
    """Of a leased queue; they take nothing from it."""
    bench = Bench(LEASED)
    bench.publish("a")
    bench.consume(1, "q", arguments={"x-browse": True})
    bench.peer.send(
        method(2, C.Basic.Consume, queue="q", consumer_tag="r", arguments={"x-bookmark": "0"}),
    )
    assert [one for one in bench.heard() if one.endswith(" a")] == []
    bench.pair.agree()
    assert sorted(one for one in bench.heard() if one.endswith(" a"))[:1] == ["1 a"]


def test_cancel_ok_follows_the_deliveries_that_wait() -> None:
    """No delivery comes for a consumer that the client knows to be gone."""
    bench = Bench()
    bench.consume(1, "q")
    bench.heard()
    bench.publish("a")
    bench.peer.send(method(1, C.Basic.Cancel, consumer_tag="q"))
    assert bench.heard() == []
    bench.pair.agree()
    assert bench.heard() == ["1 a", "1 Basic.CancelOk"]


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        (method(1, C.Channel.Close, reply_code=200, class_id=0, method_id=0), "1 Channel.CloseOk"),
        (method(0, C.Connection.Close, reply_code=200, class_id=0, method_id=0), "0 Connection.CloseOk"),
        (method(1, C.Basic.Ack, delivery_tag=99), "1 Channel.Close"),
    ],
)
def test_closes_do_not_wait_and_drop_what_waits(asked: bytes, answer: str) -> None:
    """Its messages are ready again, and were seen by nobody."""
    bench = Bench()
    bench.consume(1, "q")
    bench.heard()
    bench.publish("a")
    bench.peer.send(asked)
    assert bench.heard() == [answer]
    bench.pair.agree()
    assert bench.heard() == []
    got = bench.publisher.get("q")
    assert got is not None and got.body == b"a"


@pytest.mark.parametrize("seed", range(5))
def test_what_waits_is_counted_as_long_as_it_waits(seed: int) -> None:
    """Clients are paused, and not read, by these counts: octets that are dropped or sent count no more."""
    chance = Random(seed)
    bench = Bench()
    peer, output = bench.peer, bench.peer.session.output
    assert isinstance(output, AgreedOutput)
    for channel in (1, 2):
        bench.consume(channel, "q")
    for number in range(80):
        channel = chance.choice((1, 2))
        what = chance.choice(("publish", "publish", "declare", "declare", "qos", "close", "agree"))
        if what == "publish":
            bench.publish("x" * chance.randrange(100))
        elif what == "declare":
            peer.send(method(channel, C.Queue.Declare, queue=f"new {number}", durable=True))
        elif what == "qos":
            peer.send(method(channel, C.Basic.Qos, prefetch_count=chance.randrange(1, 50)))
        elif what == "close":
            peer.send(method(channel, C.Channel.Close, reply_code=200, class_id=0, method_id=0))
            peer.send(method(channel, C.Channel.Open), method(channel, C.Basic.Consume, queue="q"))
        else:
            bench.pair.agree(bench.pair.journal.next_lsn - chance.randrange(4))
        pieces = [piece for waiting in output.waiting.values() for piece in waiting]
        assert output.waiting_octets == sum(len(part) for piece in pieces for part in piece.parts)
        assert output.reply_size == sum(piece.reply_size for piece in pieces)
        assert all(piece.reply_size <= piece.octets for piece in pieces)
    bench.pair.agree()
    assert (output.waiting_octets, output.reply_size, output.waiting) == (0, 0, {})


def test_a_client_that_waits_is_alive_and_gets_no_more_than_it_may() -> None:
    """Octets that wait count as unsent: the client is paused, and goes on when they are sent."""
    bench = Bench(unsent_max=10_000)
    bench.consume(1, "q")
    bench.heard()
    for _ in range(50):
        bench.publish("x" * 1000)
    queue = bench.pair.named("q")
    assert 5 < queue.unacked < 20
    bench.pair.advance(6000)
    assert any(map(is_heartbeat, bench.peer.take()))
    for _ in range(10):
        bench.pair.agree()
    assert len(bench.heard()) == 50


def test_a_paused_client_gets_more_when_what_waited_is_sent() -> None:
    """Though no other turn comes."""
    bench = Bench(unsent_max=10_000)
    bench.consume(1, "q")
    bench.heard()
    for _ in range(50):
        bench.publish("x" * 1000)
    pair = bench.pair
    before = pair.named("q").unacked
    pair.recorder.agreed_lsn = pair.journal.next_lsn
    pair.broker.release_awaiting()
    bench.peer.take()
    assert pair.broker.context.deadlines.next_ns() == pair.clock.monotonic_ns()
    pair.advance(0)
    assert pair.named("q").unacked > before


def test_a_commit_is_answered_when_it_is_agreed() -> None:
    """Its returns are at once."""
    bench = Bench()
    bench.peer.send(method(1, C.Tx.Select))
    bench.heard()
    bench.peer.send(
        publish(1, "q", b"1", delivery_mode=2),
        publish(1, "nowhere", b"x", mandatory=True),
        method(1, C.Tx.Commit),
        method(2, C.Basic.Qos, prefetch_count=1),
    )
    assert bench.heard() == ["1 x", "2 Basic.QosOk"]
    bench.pair.agree()
    assert bench.heard() == ["1 Tx.CommitOk"]


@pytest.mark.parametrize("arguments", [*HELD, {"x-queue-type": "stream"}], ids=str)
def test_what_a_new_leader_has_restored_waits_until_others_have_it(arguments: dict[str, Any]) -> None:
    """It may be cut on the node that led before, or be there on this one alone."""
    before = Bench(arguments)
    before.publish("a", delivery_mode=2)
    pair = AgreedPair(before.pair.files.power_cut())
    peer = pair.open(1)
    peer.send(method(1, C.Basic.Qos, prefetch_count=10))
    more = {"arguments": {"x-stream-offset": "first"}} if arguments["x-queue-type"] == "stream" else {}
    peer.send(method(1, C.Basic.Consume, queue="q", consumer_tag="c", **more))
    assert [one.frame.name for one in peer.take()] == ["Basic.QosOk", "Basic.ConsumeOk"]
    pair.agree()
    assert [one.body for one in peer.take()] == [b"a"]


def test_a_publish_that_a_queue_refuses_is_nacked() -> None:
    """As without other nodes: behind the confirms of what was published before, which wait."""
    bench = Bench({**QUORUM, "x-max-length": 1, "x-overflow": "reject-publish"})
    bench.publisher.call(1, C.Confirm.Select)
    bench.publish("a", delivery_mode=2)
    bench.publish("b", delivery_mode=2)
    assert bench.heard(bench.publisher) == []
    bench.pair.agree()
    assert bench.heard(bench.publisher) == ["1 Basic.Ack", "1 Basic.Nack"]


def test_a_later_confirm_does_not_pass_a_return_that_waits() -> None:
    """It waits behind an answer; a client takes a confirm for the word that no return is to come."""
    bench = Bench()
    bench.peer.call(1, C.Confirm.Select)
    bench.consume(1, "q")
    bench.heard()
    bench.peer.send(method(1, C.Queue.Declare, queue="new", durable=True))
    declared_lsn = bench.pair.journal.next_lsn
    bench.publish("a")
    bench.peer.send(publish(1, "nowhere", b"x", mandatory=True))
    bench.pair.agree(declared_lsn)
    assert bench.heard() == ["1 Queue.DeclareOk"]
    bench.peer.send(publish(1, "c", b"y"))
    assert bench.heard() == []
    bench.pair.agree()
    confirmed = [getattr(one.frame, "delivery_tag", one.body) for one in bench.peer.take()]
    assert confirmed == [1, b"x", 1, 2]


def test_a_node_without_others_pays_nothing() -> None:
    """The parts of a connection that hold output back are those of a cluster alone."""
    from pair import Pair

    from leveret.amqp_frontend.peer.output import Output
    from leveret.amqp_frontend.session.confirming import Confirming
    from leveret.amqp_frontend.session.journal_wait import JournalWait

    session = Pair().open(1).session
    parts = (type(session.output), type(session.journal), type(session.confirming))
    assert parts == (Output, JournalWait, Confirming)


def test_no_offset_means_two_messages() -> None:
    """A leader is lost before the others have its last message: no consumer saw it, and its offset is given again."""
    bench = Bench({"x-queue-type": "stream"})
    from_first = {"x-stream-offset": "first"}
    bench.publish("a")
    bench.pair.agree()
    bench.consume(1, "q", arguments=from_first)
    assert bench.heard() == ["1 Basic.ConsumeOk", "1 a"]
    others_have = bench.pair.files.power_cut()
    bench.publish("b")
    assert bench.heard() == []
    pair = AgreedPair(others_have)
    peer = pair.open(1)
    peer.send(publish(1, "q", b"c"), method(1, C.Basic.Qos, prefetch_count=10))
    peer.send(method(1, C.Basic.Consume, queue="q", consumer_tag="c", arguments=from_first))
    pair.agree()
    bodies = {one.properties.headers["x-stream-offset"]: one.body for one in peer.take() if one.body is not None}
    assert bodies == {0: b"a", 1: b"c"}


def test_a_bookmark_of_a_record_that_was_cut_means_nothing() -> None:
    """Its acknowledgement by control, later, acknowledges no other message."""
    bench = Bench(LEASED)
    bench.publish("a")
    bench.pair.agree()
    others_have = bench.pair.files.power_cut()
    lost_id = bench.pair.broker.context.next_id
    bench.publish("b")
    pair = AgreedPair(others_have)
    peer = pair.open(1)
    peer.send(publish(1, "q", b"c"))
    pair.agree()
    control = {"exchange": "amps.control", "headers": {"queue": "q", "bookmark": f"1|{lost_id}|"}}
    peer.send(publish(1, REQUEST, b"", **control))  # type: ignore[arg-type]
    pair.agree()
    assert pair.named("q").ready_count == 2
    control["headers"]["bookmark"] = f"1|{lost_id - 1}|"  # type: ignore[index]
    peer.send(publish(1, REQUEST, b"", **control))  # type: ignore[arg-type]
    pair.agree()
    assert pair.named("q").ready_count == 1  # the request is understood
