"""What is held behind a publish that is not accepted now, and what passes it. Queues page E.5, the table of methods.

Held by an alarm here; virtual time.
"""

from collections.abc import Callable
from typing import Any

import pytest
from pair import Pair
from pamqp import commands as C
from peer import Cut, Peer, byte_by_byte, method, publish, whole

from leveret.amqp_frontend.flow.parking import PARKED_MAX
from leveret.amqp_frontend.session.handling import handle_bytes
from leveret.amqp_frontend.wire.states import PARKING_NEXT, ParkingState
from leveret.settings import Flow

#: Octets that a connection may hold.
HOLD_SIZE = Flow().hold_size

CLOSE_CHANNEL = method(1, C.Channel.Close, reply_code=200, class_id=0, method_id=0)
CLOSE_CONNECTION = method(0, C.Connection.Close, reply_code=200, class_id=0, method_id=0)
CUTS = pytest.mark.parametrize("cut", [whole, byte_by_byte])


class Bench:
    """A connection with channels 1 and 2 whose publishes are held, and two deliveries to channel 1, not settled.

    `in_mode`: what was said on channel 1 before.
    """

    def __init__(self, cut: Cut = whole, *, hears_blocked: bool = False, in_mode: bytes = b"") -> None:
        self.pair = Pair()
        self.other = self.pair.open(1)
        self.peer = self.pair.open(2, hears_blocked=hears_blocked, cut=cut)
        self.other.call(1, C.Queue.Declare, queue="q")
        self.other.call(1, C.Queue.Declare, queue="work")
        self.other.send(publish(1, "work", b"1") + publish(1, "work", b"2"))
        self.peer.call(1, C.Basic.Get, queue="work")
        self.peer.call(1, C.Basic.Get, queue="work")
        self.peer.send(in_mode)
        self.peer.take()
        self.commits = in_mode == method(1, C.Tx.Select)

    def hold(self) -> None:
        """A publish on channel 1, or the commit behind it, is held from now on."""
        self.pair.broker.flow.raise_alarm("test")
        self.peer.send(publish(1, "q", b"held"))
        if self.commits:
            self.peer.send(method(1, C.Tx.Commit))

    def let_go(self) -> None:
        """Publishes are accepted again."""
        self.pair.broker.flow.end_alarm()
        self.pair.end_turn()
        self.peer.go_on()

    def ready(self, queue: str) -> int:
        """Messages that are ready."""
        return int(self.other.call(1, C.Queue.Declare, queue=queue, passive=True).message_count)

    def bodies(self, queue: str) -> list[bytes]:
        """What is in a queue, which is empty then."""
        return self.other.bodies(queue)

    @property
    def unacked(self) -> int:
        """Deliveries to channel 1 that are not settled."""
        session: Any = self.peer.session.connection.channels[1]
        return len(session.session.unacked)


def settled(bench: Bench) -> bool:
    """One of the two deliveries."""
    return bench.unacked == 1


def answered(kind: type[Any]) -> Callable[[Bench], bool]:
    """With this method."""
    return lambda bench: any(isinstance(one.frame, kind) and one.channel < 2 for one in bench.peer.received)


SETTLING: list[tuple[str, bytes, Callable[[Bench], bool]]] = [
    ("basic.ack", method(1, C.Basic.Ack, delivery_tag=1), settled),
    ("basic.nack", method(1, C.Basic.Nack, delivery_tag=1, requeue=False), settled),
    ("basic.reject", method(1, C.Basic.Reject, delivery_tag=1, requeue=False), settled),
]
PASSES: list[tuple[str, bytes, Callable[[Bench], bool]]] = [
    *SETTLING,
    ("basic.cancel", method(1, C.Basic.Cancel, consumer_tag="none"), answered(C.Basic.CancelOk)),
    ("channel.flow", method(1, C.Channel.Flow, active=True), answered(C.Channel.FlowOk)),
]
CLOSES: list[tuple[str, bytes, type[Any]]] = [
    ("channel.close", CLOSE_CHANNEL, C.Channel.CloseOk),
    ("connection.close", CLOSE_CONNECTION, C.Connection.CloseOk),
]
WAITS: list[tuple[str, bytes, type[Any]]] = [
    ("tx.select", method(1, C.Tx.Select), C.Tx.SelectOk),
    ("confirm.select", method(1, C.Confirm.Select), C.Confirm.SelectOk),
    ("queue.declare", method(1, C.Queue.Declare, queue="new"), C.Queue.DeclareOk),
    ("queue.bind", method(1, C.Queue.Bind, queue="q", exchange="amq.topic", routing_key="k"), C.Queue.BindOk),
    ("queue.purge", method(1, C.Queue.Purge, queue="q"), C.Queue.PurgeOk),
    ("queue.delete", method(1, C.Queue.Delete, queue="work"), C.Queue.DeleteOk),
    ("exchange.declare", method(1, C.Exchange.Declare, exchange="x"), C.Exchange.DeclareOk),
    ("basic.get", method(1, C.Basic.Get, queue="work"), C.Basic.GetEmpty),
    ("basic.consume", method(1, C.Basic.Consume, queue="work", consumer_tag="c"), C.Basic.ConsumeOk),
    ("basic.qos", method(1, C.Basic.Qos, prefetch_count=1), C.Basic.QosOk),
    ("basic.recover", method(1, C.Basic.Recover, requeue=True), C.Basic.RecoverOk),
]


@CUTS
@pytest.mark.parametrize("name, octets, is_done", PASSES, ids=[row[0] for row in PASSES])
def test_what_settles_or_ends_something_passes(
    name: str, octets: bytes, is_done: Callable[[Bench], bool], cut: Cut
) -> None:
    """It is done at once, on the very channel whose publish is held."""
    bench = Bench(cut)
    bench.hold()
    assert not bench.peer.received
    bench.peer.send(octets)
    assert is_done(bench)
    assert bench.ready("q") == 0


@CUTS
@pytest.mark.parametrize("mode", [C.Confirm.Select, C.Tx.Select])
@pytest.mark.parametrize("name, octets, answer", CLOSES, ids=[row[0] for row in CLOSES])
def test_a_close_passes_where_the_client_knows_what_was_accepted(
    name: str, octets: bytes, answer: type[Any], mode: type[Any], cut: Cut
) -> None:
    """It got no confirm, or no commit-ok: what is held is dropped, and the close answered at once."""
    bench = Bench(cut, in_mode=method(1, mode))
    bench.hold()
    bench.peer.send(octets)
    bench.peer.expect(answer)
    bench.let_go()
    assert bench.ready("q") == 0
    assert not bench.peer.session.backlog.parking.channels


@CUTS
@pytest.mark.parametrize("name, octets, answer", CLOSES, ids=[row[0] for row in CLOSES])
def test_without_confirms_a_close_waits(name: str, octets: bytes, answer: type[Any], cut: Cut) -> None:
    """Nobody would hear that the publishes were dropped: they come first, as in RabbitMQ."""
    bench = Bench(cut)
    bench.hold()
    bench.peer.send(publish(1, "q", b"last words"), octets)
    bench.peer.expect_nothing()
    bench.let_go()
    assert bench.bodies("q") == [b"held", b"last words"]
    bench.peer.expect(answer)
    bench.peer.expect_nothing()
    assert not bench.peer.session.backlog.parking.channels


def test_what_comes_behind_a_close_that_waits_is_not_looked_at() -> None:
    """Nor kept; the peer's silence is forgiven, and other channels' publishes are done before, too."""
    bench = Bench()
    bench.hold()
    bench.peer.send(publish(2, "q", b"of channel 2"), CLOSE_CONNECTION + publish(1, "q", b"too late"))
    bench.peer.send(*[publish(2, "q", bytes(100_000))] * 3)
    bench.peer.send(method(1, C.Basic.Ack, delivery_tag=99))
    bench.peer.expect_nothing()
    assert bench.peer.buffered_max < 100_000
    assert bench.peer.session._is_reading_paused()
    bench.let_go()
    bench.peer.expect(C.Connection.CloseOk)
    assert bench.bodies("q") == [b"held", b"of channel 2"]


@pytest.mark.parametrize("octets", [CLOSE_CHANNEL, CLOSE_CONNECTION], ids=["channel", "connection"])
def test_a_close_that_waits_is_answered_although_ours_crosses_it(octets: bytes) -> None:
    """What was held before it is refused in the end, or the broker stops."""
    bench = Bench()
    bench.pair.broker.flow.raise_alarm("test")
    bench.peer.send(publish(1, "k", b"x", exchange="none"), octets)
    bench.peer.expect_nothing()
    if octets is CLOSE_CHANNEL:
        bench.let_go()
        assert bench.peer.expect(C.Channel.Close).reply_code == 404
        bench.peer.expect(C.Channel.CloseOk)
        bench.peer.send(method(1, C.Channel.CloseOk))
        assert isinstance(bench.peer.call(1, C.Channel.Open), C.Channel.OpenOk)
    else:
        bench.peer.session.closing.stop()
        bench.peer.expect(C.Connection.Close)
        bench.peer.expect(C.Connection.CloseOk)
        bench.peer.send(method(0, C.Connection.CloseOk))
        assert bench.peer.is_closed


@CUTS
@pytest.mark.parametrize("name, octets, answer", WAITS, ids=[row[0] for row in WAITS])
def test_what_depends_on_order_waits(name: str, octets: bytes, answer: type[Any], cut: Cut) -> None:
    """It is done behind the held publish, and answered then; on another channel it is done at once."""
    bench = Bench(cut)
    bench.hold()
    bench.peer.send(octets)
    bench.peer.expect_nothing()
    bench.let_go()
    assert isinstance(bench.peer.received[0].frame, answer)
    assert bench.peer.session.backlog.parking.state is ParkingState.OPEN

    bench = Bench(cut)
    bench.hold()
    bench.peer.send(octets[:1] + (2).to_bytes(2, "big") + octets[3:])
    assert isinstance(bench.peer.received[0].frame, answer)
    assert bench.peer.received[0].channel == 2


@pytest.mark.parametrize("name, octets, is_done", SETTLING, ids=[row[0] for row in SETTLING])
@pytest.mark.parametrize("is_before", [True, False])
def test_what_is_settled_in_a_transaction_waits(
    name: str, octets: bytes, is_done: Callable[[Bench], bool], is_before: bool
) -> None:
    """It belongs to the commit, also where tx.select is itself held."""
    select = method(1, C.Tx.Select)
    bench = Bench(in_mode=select if is_before else b"")
    bench.hold()
    if not is_before:
        bench.peer.send(select)
    bench.peer.send(octets)
    assert bench.unacked == 2
    bench.let_go()
    bench.peer.send(method(1, C.Tx.Rollback))
    assert bench.unacked == 2
    assert bench.ready("q") == 1


def test_a_cancel_does_not_overtake_its_consume() -> None:
    """Or the consumer would stay for ever."""
    bench = Bench()
    bench.hold()
    bench.peer.send(method(1, C.Basic.Consume, queue="work", consumer_tag="c"))
    bench.peer.send(method(1, C.Basic.Cancel, consumer_tag="c"))
    bench.peer.expect_nothing()
    bench.let_go()
    bench.peer.expect(C.Basic.ConsumeOk)
    bench.peer.expect(C.Basic.CancelOk)
    assert not next(iter(bench.pair.broker.virtual_hosts.queues())).consumer_list.consumers


@CUTS
def test_each_channel_is_held_for_itself(cut: Cut) -> None:
    """Publishes and commits of a channel are in order; another channel is held with its own first publish."""
    bench = Bench(cut)
    bench.hold()
    bench.peer.send(method(1, C.Queue.Declare, queue="q1"), publish(1, "q1", b"a"))
    bench.peer.call(2, C.Queue.Declare, queue="q2")
    bench.peer.send(publish(2, "q2", b"b"), method(2, C.Basic.Get, queue="q2"))
    bench.peer.expect_nothing()
    area = bench.peer.session.backlog.parking
    assert [parked.channel.number for parked in area.channels.values()] == [1, 2] and area.contents.count == 5
    bench.let_go()
    assert [type(one.frame) for one in bench.peer.take()] == [C.Queue.DeclareOk, C.Basic.GetOk]
    assert (bench.bodies("q"), bench.bodies("q1")) == ([b"held"], [b"a"])
    assert (area.contents.count, area.contents.octets, area.state) == (0, 0, ParkingState.OPEN)


def test_confirms_come_in_order_and_none_early() -> None:
    """Held publishes are confirmed when they have been accepted."""
    bench = Bench(in_mode=method(1, C.Confirm.Select))
    bench.peer.send(publish(1, "q", b"1"))
    assert bench.peer.expect(C.Basic.Ack).delivery_tag == 1
    bench.hold()
    bench.peer.send(publish(1, "q", b"3"), publish(1, "work", b"4"))
    bench.peer.expect_nothing()
    bench.let_go()
    ack = bench.peer.expect(C.Basic.Ack)
    assert (ack.delivery_tag, ack.multiple) == (4, True)
    assert bench.bodies("q") == [b"1", b"held", b"3"]


@pytest.mark.parametrize("end", ["channel", "connection", "error", "operator"])
def test_what_is_held_ends_with_its_channel(end: str) -> None:
    """It was not accepted, and is not confirmed; another channel's is not touched by the end of a channel."""
    bench = Bench(in_mode=method(1, C.Confirm.Select) + method(2, C.Confirm.Select))
    bench.hold()
    bench.peer.send(publish(2, "q", b"of channel 2"))
    if end == "channel":
        bench.peer.send(CLOSE_CHANNEL)
    elif end == "connection":
        bench.peer.send(CLOSE_CONNECTION)
    elif end == "error":
        bench.peer.send(method(1, C.Basic.Ack, delivery_tag=99))
    else:
        bench.peer.session.closing.stop()
    area = bench.peer.session.backlog.parking
    is_over = end in ("connection", "operator")
    assert [parked.channel.number for parked in area.channels.values()] == ([] if is_over else [2])
    bench.let_go()
    assert not any(isinstance(one.frame, C.Basic.Ack) and one.channel == 1 for one in bench.peer.received)
    assert bench.bodies("q") == ([] if is_over else [b"of channel 2"])
    assert (area.contents.count, area.contents.octets) == (0, 0)


def test_a_peer_is_blocked_until_the_alarm_is_over_although_it_closed_the_channel() -> None:
    """connection.blocked and connection.unblocked come in pairs."""
    bench = Bench(hears_blocked=True, in_mode=method(1, C.Confirm.Select) + method(2, C.Confirm.Select))
    bench.hold()
    assert bench.peer.expect(C.Connection.Blocked, channel=0).reason == "test"
    bench.peer.call(1, C.Channel.Close, reply_code=200, class_id=0, method_id=0)
    bench.peer.send(publish(2, "q", b"x"), method(2, C.Channel.Close, reply_code=200, class_id=0, method_id=0))
    bench.peer.expect(C.Channel.CloseOk, channel=2)
    bench.pair.advance(1000)
    bench.peer.expect_nothing()
    bench.let_go()
    bench.peer.expect_nothing()
    bench.pair.advance(200)
    bench.peer.expect(C.Connection.Unblocked, channel=0)
    bench.peer.expect_nothing()
    assert bench.peer.session.backlog.parking.state is ParkingState.OPEN


@pytest.mark.parametrize("hears_blocked", [True, False])
@pytest.mark.parametrize("size", [10, 10_000])
def test_a_peer_is_read_until_so_much_is_held(hears_blocked: bool, size: int) -> None:
    """Beyond that nothing of it is looked at, and its silence is forgiven; all of it is done in the end."""
    bench = Bench(hears_blocked=hears_blocked)
    area = bench.peer.session.backlog.parking
    bench.hold()
    count = 1
    while not area.is_full:
        for _ in range(16):  # two in a row that are not alike: each is held by itself
            bench.peer.send(publish(1, "q", bytes(size), mandatory=bool(count % 2)))
            count += 1
    assert area.contents.count <= PARKED_MAX + 1 and area.contents.octets < HOLD_SIZE + 2 * size
    assert area.state is (ParkingState.NOTIFIED_STALLED if hears_blocked else ParkingState.STALLED)
    bench.peer.take()
    bench.peer.send(method(1, C.Basic.Ack, delivery_tag=1))
    assert bench.unacked == 2
    assert bench.peer.session._is_reading_paused()
    bench.let_go()
    assert bench.unacked == 1
    assert bench.ready("q") == count
    assert not area.is_full


def test_the_table_of_holding_has_no_dead_end() -> None:
    """From every state there is a way to OPEN, and every state is reached from there."""

    def reached(first: ParkingState) -> set[ParkingState]:
        found, left = set(), [first]
        while left:
            state = left.pop()
            if state not in found:
                found.add(state)
                left += PARKING_NEXT[state].values()
        return found

    assert all(reached(state) == set(ParkingState) for state in ParkingState)


def test_an_unfinished_publish_comes_before_what_is_held_behind_it() -> None:
    """A publish to many queues is cut into turns; an alarm that begins meanwhile holds its rest, in front."""
    bench = Bench()
    for number in range(30):
        bench.other.call(1, C.Queue.Declare, queue=f"many {number}")
        bench.other.call(1, C.Queue.Bind, queue=f"many {number}", exchange="amq.fanout")
    bench.other.call(1, C.Queue.Bind, queue="q", exchange="amq.fanout")
    peer = bench.peer
    data = b"".join(publish(1, "", b"%d" % number, exchange="amq.fanout") for number in range(1000))
    read_once(peer, data + publish(1, "q", b"last"))
    assert peer.session.backlog.unfinished is not None
    bench.pair.broker.flow.raise_alarm("test")
    peer.go_on()
    bench.let_go()
    assert bench.bodies("q") == [*(b"%d" % number for number in range(1000)), b"last"]


@pytest.mark.parametrize("are_runs", [True, False], ids=["a run on each channel", "one by one"])
def test_what_was_held_goes_on_without_another_word_of_the_client(are_runs: bool) -> None:
    """However much it is: it is cut into turns, and each turn leads to the next one."""
    bench, count = Bench(), 100
    for number in range(150):
        bench.other.call(1, C.Queue.Declare, queue=f"many {number}")
        bench.other.call(1, C.Queue.Bind, queue=f"many {number}", exchange="amq.fanout")
    bench.hold()
    for channel in (1, 2):
        keys = ["" if are_runs else f"{number}" for number in range(count)]
        bench.peer.send(b"".join(publish(channel, key, b"x", exchange="amq.fanout") for key in keys))
    bench.pair.broker.flow.end_alarm()
    bench.pair.end_turn()
    assert 0 < bench.ready("many 7") < 2 * count
    bench.pair.settle()
    assert bench.ready("many 7") == 2 * count


def read_once(peer: Peer, data: bytes) -> None:
    """One turn, and no more, although there is more to do."""
    peer.session.broker.end_turn()
    handle_bytes(peer.session, data)
