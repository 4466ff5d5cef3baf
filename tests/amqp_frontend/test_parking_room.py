"""What a full destination does to publishers: held, refused, expired; what they are told. Queues page E.4, row by row.

Virtual time; each conversation also octet by octet.
"""

from __future__ import annotations

from typing import Any

import pytest
from pair import Pair
from pamqp import commands as C
from peer import Cut, Peer, byte_by_byte, content, method, publish, whole

from leveret.amqp_frontend.wire.states import ParkingState
from leveret.engine import BrokerOptions
from leveret.settings import Flow, SettingsRepository, SystemUsage, entry

CUTS = pytest.mark.parametrize("cut", [whole, byte_by_byte])
#: Octets of a message, and how many of them fill the queue.
SIZE, FILL = 1_500, 2
BODY = b"b" * SIZE
BLOCKED, UNBLOCKED = ("Connection.Blocked", "queue 'q' in vhost '/': memory limit"), ("Connection.Unblocked",)
TEXT = "RESOURCE_ERROR - queue 'q' in vhost '/': memory limit"


class Bench:
    """A queue with a limit of two messages, and a publisher on channels 1 (`mode`) and 2."""

    def __init__(
        self,
        cut: Cut = whole,
        *,
        mode: type[Any] | None = None,
        hears_blocked: bool = False,
        system: SystemUsage | None = None,
        flow: Flow | None = None,
        **settings: Any,
    ) -> None:
        limit = {} if system is not None else {"memory_limit": 2_000, "cursor": "vm"}
        self.pair = Pair(
            broker={
                "settings": SettingsRepository([entry("q", **limit, **settings)], usage=system),
                "options": BrokerOptions(system_usage=system, flow=flow or Flow()),
            }
        )
        self.taker = self.pair.open(1)
        self.taker.call(1, C.Queue.Declare, queue="q", durable=True)
        self.taker.call(1, C.Queue.Declare, queue="work")
        self.peer = self.pair.open(2, hears_blocked=hears_blocked, cut=cut)
        if mode is not None:
            self.peer.send(method(1, mode))
            self.peer.take()
        self.published = 0

    def publish(self, count: int, channel: int = 1, **fields: Any) -> None:
        """So many messages, numbered."""
        for _ in range(count):
            self.published += 1
            self.peer.send(publish(channel, "q", b"%d" % self.published + BODY, **fields))

    def take(self, count: int) -> list[int]:
        """Get so many messages; their numbers."""
        found = []
        for _ in range(count):
            got = self.taker.get()
            if got is None:
                break
            found.append(int(got.body.removesuffix(BODY)))
            self.pair.settle()
        return found

    def ready(self) -> int:
        """Messages in the queue."""
        return self.pair.broker.virtual_hosts["/"].queues["q"].ready_count

    def heard(self) -> list[tuple[Any, ...]]:
        """What the publisher was sent: confirms as (ack or nack, tag, multiple), others by their names."""
        said: list[tuple[Any, ...]] = []
        for one in self.peer.take():
            frame = one.frame
            if isinstance(frame, C.Basic.Ack | C.Basic.Nack):
                said.append((frame.name[6:].lower(), frame.delivery_tag, frame.multiple))
            elif isinstance(frame, C.Basic.Return | C.Channel.Close | C.Connection.Close):
                said.append((frame.name, frame.reply_code, frame.reply_text))
            else:
                said.append((frame.name, *(getattr(frame, name) for name in frame.__slots__[:1])))
        return said

    def confirmed(self) -> list[int]:
        """Tags that were acked, each by itself."""
        tags: list[int] = []
        for kind, tag, multiple in self.heard():
            assert kind == "ack"
            tags += range(tags[-1] + 1 if tags else self._last + 1, tag + 1) if multiple else [tag]
        self._last = tags[-1] if tags else self._last
        return tags

    _last = 0

    @property
    def state(self) -> ParkingState:
        return self.peer.session.backlog.parking.state


@CUTS
def test_a_confirm_is_sent_when_there_is_room(cut: Cut) -> None:
    """Row 1: held; no error; confirms in order."""
    bench = Bench(cut, mode=C.Confirm.Select, hears_blocked=True)
    bench.publish(2)
    assert bench.confirmed() == [1, 2]
    bench.publish(4)
    assert bench.heard() == [BLOCKED]
    assert bench.state is ParkingState.NOTIFIED
    assert bench.take(1) == [1]
    assert bench.confirmed() == []  # above the low mark
    assert bench.take(1) == [2]
    assert bench.confirmed() == [3, 4]
    assert bench.take(9) == [3, 4, 5, 6]
    assert bench.confirmed() == [5, 6]
    bench.pair.advance(200)
    assert bench.heard() == [UNBLOCKED]
    assert bench.state is ParkingState.OPEN


@pytest.mark.parametrize("mode", [None, C.Confirm.Select, C.Tx.Select])
@pytest.mark.parametrize("hears_blocked", [True, False])
def test_the_first_held_publish_is_told(mode: type[Any] | None, hears_blocked: bool) -> None:
    """Rows 1, 2 and 13: connection.blocked if the peer announced it, else not a word; once."""
    bench = Bench(mode=mode, hears_blocked=hears_blocked)
    others = [bench.pair.open(hears_blocked=True) for _ in range(2)]
    bench.publish(FILL)
    if mode is C.Tx.Select:
        bench.peer.send(method(1, C.Tx.Commit))
    bench.heard()
    bench.publish(1)
    if mode is C.Tx.Select:
        bench.peer.send(method(1, C.Tx.Commit))
    assert bench.heard() == ([BLOCKED] if hears_blocked else [])
    bench.publish(2)
    bench.publish(1, channel=2)
    assert bench.heard() == []
    for other in others:
        other.expect_nothing()
    others[1].send(publish(1, "q", BODY))
    others[0].expect_nothing()
    assert others[1].expect(C.Connection.Blocked).reason == BLOCKED[1]


def one_by_one(bench: Bench, count: int, held_s: float) -> list[str]:
    """Publish so often into the full queue, each held for so long before there is room; what the peer is told."""
    heard = []
    for number in range(1, count + 1):
        bench.publish(1)
        bench.pair.advance(1000 * held_s)
        while [name for name, *_ in heard].count("ack") < number:
            heard += bench.heard() or [bench.take(1)]
    return [name for name, *_ in heard if name in (BLOCKED[0], UNBLOCKED[0])]


def test_who_goes_on_is_not_blocked_for_ever() -> None:
    """A publisher with confirms whose messages are each held for a moment: told once, and soon that it is over.

    Clients count from connection.blocked, and would hang up although all their publishes are accepted.
    """
    bench = Bench(mode=C.Confirm.Select, hears_blocked=True)
    bench.publish(FILL)
    bench.heard()
    assert one_by_one(bench, 100, 0.03) == [BLOCKED[0], UNBLOCKED[0]]


def test_who_is_held_for_long_is_told_each_time() -> None:
    """Each notice is taken back 200 ms after its publish was accepted."""
    bench = Bench(mode=C.Confirm.Select, hears_blocked=True)
    bench.publish(FILL)
    bench.heard()
    assert one_by_one(bench, 10, 0.7) == [BLOCKED[0], UNBLOCKED[0]] * 5  # every second publish finds no room


def test_room_for_a_moment_then_none() -> None:
    """What was told of is accepted, the next publish stays held: unblocked, then blocked, 200 ms apart."""
    bench = Bench(mode=C.Confirm.Select, hears_blocked=True)
    bench.publish(FILL)
    bench.heard()
    bench.publish(1)
    assert bench.heard() == [BLOCKED]
    bench.take(2)
    bench.publish(FILL)
    bench.heard()
    bench.pair.advance(199)
    assert bench.heard() == []
    bench.pair.advance(1)
    assert bench.heard() == [UNBLOCKED]
    assert bench.state is ParkingState.PARKING
    bench.pair.advance(199)
    assert bench.heard() == []
    bench.pair.advance(1)
    assert bench.heard() == [BLOCKED]
    bench.pair.advance(60000)
    assert bench.heard() == []


def test_who_waits_for_room_does_not_wait_for_the_journal() -> None:
    """Or each commit of the journal would flush everybody who is held."""
    bench = Bench(mode=C.Confirm.Select)
    bench.publish(FILL + 1)
    assert bench.peer.session.backlog.parking.state is ParkingState.PARKING
    assert not bench.pair.broker.context.awaiting


@pytest.mark.parametrize("hears_blocked", [True, False])
def test_a_full_broker_is_an_alarm(hears_blocked: bool) -> None:
    """Rows 3 and 4: connection.blocked at the first held publish, once; unblocked after 200 ms of calm."""
    bench = Bench(system=SystemUsage(memory=2_000, store=0, temp=0), hears_blocked=hears_blocked)
    bench.publish(4)
    told = [("Connection.Blocked", "broker: memory limit")] if hears_blocked else []
    assert bench.heard() == told
    assert bench.take(9) == [1, 2, 3, 4]
    assert bench.heard() == []
    bench.pair.advance(199)
    assert bench.heard() == []
    bench.pair.advance(2)
    assert [name for name, *_ in bench.heard()] == (["Connection.Unblocked"] if hears_blocked else [])


def test_blocked_and_unblocked_do_not_alternate() -> None:
    """Queues page, row E12: never a pair closer than 200 ms."""
    bench = Bench(system=SystemUsage(memory=2_000, store=0, temp=0), hears_blocked=True)
    bench.publish(3)
    for _ in range(20):
        bench.take(1)
        bench.publish(1)
        bench.pair.advance(50)
    assert [name for name, *_ in bench.heard()] == ["Connection.Blocked"]


@CUTS
def test_refused_at_once(cut: Cut) -> None:
    """Row 5: a nack, and nothing is stored."""
    bench = Bench(cut, mode=C.Confirm.Select, send_fail_if_no_space=True)
    bench.publish(4)
    said = bench.heard()
    assert [(kind, tag) for kind, tag, _ in said if kind == "nack"] == [("nack", 3), ("nack", 4)]
    assert bench.take(9) == [1, 2]


@CUTS
def test_refused_mandatory_publishes_come_back(cut: Cut) -> None:
    """Row 6: basic.return with 506."""
    bench = Bench(cut, send_fail_if_no_space=True)
    bench.publish(4, mandatory=True)
    assert bench.heard() == [("Basic.Return", 506, TEXT)] * 2
    assert bench.take(9) == [1, 2]


def test_the_text_of_a_return_is_cut() -> None:
    """Row 6: a reply text has 255 octets at most, and the name of a queue alone may have as many."""
    name = "q" * 250
    settings = SettingsRepository([entry(name, memory_limit=2_000, cursor="vm", send_fail_if_no_space=True)])
    peer = Pair(broker={"settings": settings}).open(1)
    peer.call(1, C.Queue.Declare, queue=name)
    for _ in range(4):
        peer.send(publish(1, name, BODY, mandatory=True))
    returned = peer.take()
    assert {one.frame.name for one in returned} == {"Basic.Return"}
    (text,) = {one.frame.reply_text for one in returned}
    assert text == f"RESOURCE_ERROR - queue '{name}"[:252] + "..."


@CUTS
def test_a_refused_publish_that_nobody_asks_for_ends_its_channel(cut: Cut) -> None:
    """Row 7: channel.close with 406; other channels go on."""
    bench = Bench(cut, send_fail_if_no_space=True)
    bench.publish(4)
    assert bench.heard() == [("Channel.Close", 406, TEXT)]
    assert isinstance(bench.peer.call(2, C.Queue.Declare, queue="other"), C.Queue.DeclareOk)
    assert bench.take(9) == [1, 2]


def test_a_run_that_is_refused_in_the_middle_is_counted() -> None:
    """Row 7: what stands behind the refused one in the same run is dropped with its channel, and counted, too."""
    bench = Bench(send_fail_if_no_space=True)
    bench.peer.send(b"".join(publish(1, "q", b"%d" % number + BODY) for number in range(1, 8)))
    assert bench.heard() == [("Channel.Close", 406, TEXT)]
    there = bench.take(9)
    assert there == list(range(1, len(there) + 1)) and 2 <= len(there) < 7
    assert bench.pair.broker.context.counters.dropped == 7 - len(there)


@pytest.mark.parametrize(
    ("mode", "mandatory", "answer"),
    [
        (C.Confirm.Select, False, "nack"),
        (None, True, "Basic.Return"),
        (None, False, "Channel.Close"),
    ],
)
def test_refused_after_a_time(mode: type[Any] | None, mandatory: bool, answer: str) -> None:
    """Row 8: each publish waits so long, one that was accepted before is confirmed."""
    bench = Bench(mode=mode, send_fail_if_no_space_after_ms=500)
    bench.publish(2, mandatory=mandatory)
    bench.publish(1, mandatory=mandatory)
    bench.pair.advance(300)
    bench.publish(1, mandatory=mandatory)
    bench.heard()
    bench.pair.advance(190)
    assert bench.heard() == []
    bench.pair.advance(20)
    assert [said[0] for said in bench.heard()] == [answer]
    if answer != "Channel.Close":
        bench.pair.advance(280)
        assert bench.heard() == []
        assert bench.take(2) == [1, 2]
        assert [said[0] for said in bench.heard()] == (["ack"] if mode else [])
        assert bench.take(9) == [4]


def test_what_is_tried_in_vain_has_waited_since_it_came() -> None:
    """Row 8: there was room for a moment, and somebody else had it; that begins no new time."""
    bench = Bench(mode=C.Confirm.Select, send_fail_if_no_space_after_ms=500)
    bench.publish(FILL)
    bench.publish(1)
    bench.heard()
    bench.pair.advance(300)
    bench.pair.broker.reloading.replace_settings(bench.pair.broker.context.settings, bench.pair.broker.context.options)
    bench.pair.settle()
    assert bench.heard() == []
    bench.pair.advance(190)
    assert bench.heard() == []
    bench.pair.advance(20)
    assert bench.heard() == [("nack", 3, False)]


def test_each_publish_waits_for_its_own_time() -> None:
    """One that is held behind an older one that went on has waited since it came, and no longer."""
    bench = Bench(mode=C.Confirm.Select, send_fail_if_no_space_after_ms=500)
    bench.publish(FILL)
    bench.publish(1)
    bench.pair.advance(400)
    assert bench.take(2) == [1, 2]
    bench.publish(2)
    bench.heard()
    bench.pair.advance(300)
    assert bench.heard() == []
    bench.pair.advance(210)
    assert bench.heard() == [("nack", 5, False)]


@pytest.mark.parametrize("kinds", [1, 2])
def test_the_rest_of_a_held_run_stays_before_what_came_behind_it(kinds: int) -> None:
    """Messages of a channel are in its order, however often a run of them is held in the middle."""
    bench = Bench(mode=C.Confirm.Select)
    for _ in range(2):  # from the second time on, kinds that alternate are read as one run
        first = bench.published + 1
        numbers = range(first, first + 8)
        bench.peer.send(b"".join(publish(1, "q", b"%d" % one + BODY, mandatory=one % kinds == 1) for one in numbers))
        bench.published += len(numbers)
        bench.publish(3)
        assert [one for _ in range(12) for one in bench.take(1)] == list(range(first, first + 11))
        assert bench.confirmed() == list(range(first, first + 11))


@pytest.mark.parametrize(
    ("change", "seconds"), [({"send_fail_if_no_space": True}, 0.0), ({"send_fail_if_no_space_after_ms": 500}, 0.6)]
)
def test_a_reload_may_refuse_what_is_held(change: dict[str, Any], seconds: float) -> None:
    """What waits is looked at again; confirms stay in order."""
    bench = Bench(mode=C.Confirm.Select)
    bench.publish(4)
    assert bench.confirmed() == [1, 2]
    settings = SettingsRepository([entry("q", memory_limit=2_000, cursor="vm", **change)])
    bench.pair.broker.reloading.replace_settings(settings, bench.pair.broker.context.options)
    bench.pair.settle()
    bench.pair.advance(1000 * seconds)
    assert [(kind, tag) for kind, tag, _ in bench.heard()] == [("nack", 3), ("nack", 4)]
    assert bench.pair.broker.flow.blocked() == []
    assert bench.take(9) == [1, 2]


def test_without_producer_flow_control_nobody_waits() -> None:
    """Row 9."""
    bench = Bench(mode=C.Confirm.Select, producer_flow_control=False)
    bench.publish(9)
    assert bench.confirmed() == list(range(1, 10))


def test_a_transaction_is_held_at_its_commit_as_one() -> None:
    """Row 13; what comes behind the commit on its channel waits, other channels do not."""
    bench = Bench(mode=C.Tx.Select)
    bench.publish(FILL, channel=2)
    bench.publish(3)
    bench.peer.send(method(1, C.Tx.Commit))
    assert bench.heard() == []
    assert isinstance(bench.peer.call(2, C.Queue.Declare, queue="other"), C.Queue.DeclareOk)
    assert bench.take(1) == [1]
    assert bench.heard() == []
    assert bench.take(1) == [2]
    assert [name for name, *_ in bench.heard()] == ["Tx.CommitOk"]
    assert bench.take(9) == [3, 4, 5]


@pytest.mark.parametrize("size", [1, 2_000])
def test_commits_take_turns_as_publishes_do(size: int) -> None:
    """Many transactions of one connection do not use up the room before another has its turn (queues page E.5)."""
    bench = Bench(mode=C.Tx.Select, max_size_messages=1_000, address_full_policy="BLOCK", system=SystemUsage(0, 0, 0))
    filler, other = bench.pair.open(1), bench.pair.open(1)
    filler.send(publish(1, "q", b"f") * 1_000)
    for _ in range(10):
        bench.peer.send(publish(1, "q", bytes(size)) * 20 + method(1, C.Tx.Commit))
    other.send(publish(1, "q", b"o"))
    bench.taker.call(1, C.Queue.Purge, queue="q")
    bench.pair.settle()
    assert bench.ready() == 201
    bodies = []
    while (got := bench.taker.get()) is not None:
        bodies.append(got.body)
    assert bodies.index(b"o") < 100


def test_a_refused_commit_ends_its_channel() -> None:
    """Row 13: rolled back."""
    bench = Bench(mode=C.Tx.Select, send_fail_if_no_space=True)
    bench.publish(FILL, channel=2)
    bench.publish(3)
    bench.peer.send(method(1, C.Tx.Commit))
    assert bench.heard() == [("Channel.Close", 406, TEXT)]
    assert bench.take(9) == [1, 2]


def test_what_expires_while_it_is_held_is_confirmed_and_not_there() -> None:
    """Row 15."""
    bench = Bench(mode=C.Confirm.Select)
    bench.publish(2)
    bench.publish(1, expiration="100")
    bench.publish(1)
    assert bench.confirmed() == [1, 2]
    bench.pair.advance(1000)
    assert bench.take(2) == [1, 2]
    assert bench.confirmed() == [3, 4]
    assert bench.take(9) == [4]


def test_what_a_next_transaction_publishes_behind_a_commit_that_waits_is_not_lost() -> None:
    """Row 15 is for publishes that are answered by themselves: here the time to live begins with the commit."""
    bench = Bench(mode=C.Tx.Select)
    bench.publish(FILL, channel=2)
    bench.publish(1)
    bench.peer.send(method(1, C.Tx.Commit))
    bench.publish(1, expiration="100")
    bench.pair.advance(1000)
    assert bench.take(2) == [1, 2]
    bench.peer.send(method(1, C.Tx.Commit))
    assert [name for name, *_ in bench.heard()] == ["Tx.CommitOk"] * 2
    assert bench.take(9) == [3, 4]


def test_acknowledgements_pass_and_make_room() -> None:
    """Queues page, row E09: on the connection that is held, on the same channel."""
    bench = Bench(mode=C.Confirm.Select)
    bench.peer.send(method(1, C.Basic.Qos, prefetch_count=1), method(1, C.Basic.Consume, queue="q", consumer_tag="c"))
    bench.publish(8)
    got = []
    while len(got) < 8:
        for one in bench.peer.take():
            if isinstance(one.frame, C.Basic.Deliver):
                assert one.body is not None
                got.append(int(one.body.removesuffix(BODY)))
                bench.peer.send(method(1, C.Basic.Ack, delivery_tag=one.frame.delivery_tag))
                bench.pair.settle()
    assert got == list(range(1, 9))


def test_a_closed_channel_drops_what_it_holds() -> None:
    """Held publishes were not confirmed; those of the other channel go on (queues page E.5)."""
    bench = Bench(mode=C.Confirm.Select)
    bench.publish(4)
    bench.publish(1, channel=2)
    bench.peer.send(method(1, C.Channel.Close, reply_code=200, class_id=0, method_id=0))
    assert bench.take(9) == [1, 2, 5]
    assert bench.pair.broker.context.counters.dropped == 2
    assert bench.pair.broker.flow.blocked() == []


@pytest.mark.parametrize("close", ["channel", "connection"])
def test_a_close_is_not_held_up_by_a_limit(close: str, caplog: pytest.LogCaptureFixture) -> None:
    """Queues page E.5; whether there are confirms or not, but without them the log warns of what is lost."""
    bench = Bench()
    bench.publish(4)
    bench.publish(1, channel=2)
    number, kind = (1, C.Channel.Close) if close == "channel" else (0, C.Connection.Close)
    bench.peer.send(method(number, kind, reply_code=200, class_id=0, method_id=0))
    assert [name for name, *_ in bench.heard()] == [f"{close.capitalize()}.CloseOk"]
    assert bench.take(9) == ([1, 2, 5] if close == "channel" else [1, 2])
    assert "channel 1 is over, 2 parked publishes are dropped" in caplog.text
    assert {record.levelname for record in caplog.records} == {"WARNING"}


def test_a_lost_connection_drops_what_it_holds() -> None:
    bench = Bench(mode=C.Confirm.Select)
    bench.publish(4)
    bench.peer.hang_up()
    assert bench.take(9) == [1, 2]
    assert bench.pair.broker.flow.blocked() == []


def test_a_connection_that_ends_as_it_continues_disturbs_nobody() -> None:
    """One of its held publishes is refused with the whole connection, in the turn of whoever made room."""
    bench = Bench()
    bench.publish(FILL)
    bench.publish(1)
    bench.peer.send(method(1, C.Basic.Publish, exchange="", routing_key="q", immediate=True) + content(1, b"x"))
    bench.publish(1, channel=2)
    other = bench.pair.open(1)
    other.send(publish(1, "q", b"9" + BODY))
    assert bench.take(9) == [1, 2, 3, 9]
    assert [one[:2] for one in bench.heard()] == [("Connection.Close", 540)]
    assert bench.pair.broker.flow.blocked() == []


def test_two_connections_share_room_in_turn() -> None:
    """Queues page E.5: first come is first served, message by message where there is room for no more."""
    bench = Bench(mode=C.Confirm.Select)
    bench.publish(2)
    other: Peer = bench.pair.open(1)
    for number in (3, 4):
        bench.peer.send(publish(1, "q", b"%d" % number + BODY))
        other.send(publish(1, "q", b"%d" % (number + 10) + BODY))
    assert bench.take(9) == [1, 2, 3, 4, 13, 14]


@pytest.mark.parametrize("kind", ["memory", "store"])
def test_a_message_that_is_larger_than_the_limit_passes_into_an_empty_queue(kind: str) -> None:
    """Queues page, row E27."""
    bench = Bench(mode=C.Confirm.Select)
    bench.peer.send(publish(1, "q", b"1" * 9_000))
    assert bench.confirmed() == [1]


def test_the_rest_of_a_long_run_has_waited_as_long_as_its_head() -> None:
    """A run to many queues is cut into turns: its rest is refused when it has waited long enough since it came."""
    settings = {"max_size_messages": 100, "address_full_policy": "BLOCK", "send_fail_if_no_space_after_ms": 500}
    bench = Bench(mode=C.Confirm.Select, system=SystemUsage(0, 0, 0), **settings)
    for number in range(150):
        bench.taker.call(1, C.Queue.Declare, queue=f"many {number}")
        bench.taker.call(1, C.Queue.Bind, queue=f"many {number}", exchange="amq.fanout")
    bench.taker.call(1, C.Queue.Bind, queue="q", exchange="amq.fanout")
    count = 130
    bench.peer.send(b"".join(publish(1, "q", b"%d" % number) for number in range(100)))
    assert bench.heard()
    bench.peer.send(b"".join(publish(1, "", b"%d" % number, exchange="amq.fanout") for number in range(count)))
    assert bench.peer.session.backlog.parking.channels
    bench.pair.advance(300)
    bench.taker.send(method(1, C.Queue.Purge, queue="q"))
    bench.pair.settle()
    assert bench.ready() == 100
    assert {kind for kind, *_ in bench.heard()} == {"ack"}
    bench.pair.advance(190)
    assert bench.heard() == []
    bench.pair.advance(20)
    assert [kind for kind, *_ in bench.heard()] == ["nack"] * (count - 100)


@pytest.mark.parametrize("is_one_run", [True, False], ids=["the rest of a run", "what is behind it"])
def test_what_comes_after_a_held_publish_has_not_waited_yet(is_one_run: bool) -> None:
    """What was held goes on and is cut into turns; a new publish on another channel then has its whole time."""
    settings = {"max_size_messages": 100, "address_full_policy": "BLOCK", "send_fail_if_no_space_after_ms": 500}
    bench = Bench(mode=C.Confirm.Select, system=SystemUsage(0, 0, 0), **settings)
    bench.peer.call(2, C.Confirm.Select)
    for number in range(100):
        bench.taker.call(1, C.Queue.Declare, queue=f"many {number}")
        bench.taker.call(1, C.Queue.Bind, queue=f"many {number}", exchange="amq.fanout")
    fill = b"".join(publish(1, "q", b"%d" % number) for number in range(100))
    bench.peer.send(fill)
    bench.heard()
    if is_one_run:
        bench.taker.call(1, C.Queue.Bind, queue="q", exchange="amq.fanout")
        fill = b""
    keys = ["", "" if is_one_run else "other"]
    to_all = [publish(1, keys[number % 2], b"x", exchange="amq.fanout") for number in range(100)]
    bench.peer.send(fill + b"".join(to_all))
    bench.pair.advance(400)
    bench.taker.send(method(1, C.Queue.Purge, queue="q"))
    backlog = bench.peer.session.backlog
    assert backlog.unfinished is not None if is_one_run else backlog.has_more
    bench.pair.clock.advance_ns(200_000_000)  # the connection's own turn comes late
    bench.peer.take()
    bench.peer.send(publish(2, "q", b"new"))
    assert bench.ready() == 100
    assert {one.channel for one in bench.peer.take()} == {1}
    bench.pair.advance(490)
    assert bench.peer.take() == []
    bench.pair.advance(20)
    (refused,) = bench.peer.take()
    assert (refused.channel, refused.frame.name) == (2, "Basic.Nack")


def test_room_that_comes_bit_by_bit_is_shared() -> None:
    """Whoever is cut short goes on first, but no further than its quantum of messages (queues page E.5)."""
    bench = Bench(max_size_messages=20, address_full_policy="BLOCK", system=SystemUsage(0, 0, 0))
    bench.pair.open(1).send(publish(1, "q", b"f") * 20)
    peers = [bench.pair.open(1) for _ in range(2)]
    for peer in peers:
        peer.call(1, C.Confirm.Select)
        peer.send(publish(1, "q", b"x") * 200)
    confirmed = [0, 0]
    for _ in range(200):
        bench.taker.send(method(1, C.Basic.Get, queue="q", no_ack=True))
        bench.taker.take()
        bench.pair.settle()
        confirmed = [
            max([was, *(one.frame.delivery_tag for one in peer.take())]) for was, peer in zip(confirmed, peers)
        ]
        assert abs(confirmed[0] - confirmed[1]) <= 64
    assert sum(confirmed) == 200


def test_a_limit_that_its_queue_has_later_holds_those_who_publish_already(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reload of many queues takes several turns, in which routes are looked up."""
    monkeypatch.setattr("leveret.engine.reloading.SETTINGS_SLICE", 1)
    pair = Pair()
    peer = pair.open(1)
    for name in ("first", "q"):
        peer.call(1, C.Queue.Declare, queue=name)
    pair.broker.reloading.replace_settings(SettingsRepository([entry("q", memory_limit=2_000, cursor="vm")]))
    for _ in range(5):
        peer.send(publish(1, "q", BODY))
    assert pair.named("q").ready_count == FILL


def test_a_large_message_is_not_put_off_for_ever() -> None:
    """It saves its quanta while others go on, and comes in its turn."""
    bench = Bench(flow=Flow(hold_size=1 << 24))
    bench.publish(FILL)
    peers = [bench.pair.open(1) for _ in range(3)]
    peers[0].send(publish(1, "q", b"large" + bytes(200_000)))
    for peer in peers[1:]:
        for number in range(40):
            peer.send(publish(1, "q", bytes(30_000), mandatory=bool(number % 2)))
    came = []
    while (got := bench.taker.get()) is not None:
        came.append(got.body[:5])
        bench.pair.settle()
    assert len(came) == FILL + 81
    assert came.index(b"large") < 40


@pytest.mark.parametrize("memory", [1_000, 50_000, 300_000])
def test_room_in_several_limits_is_shared_in_turn(memory: int) -> None:
    """Queues page, row E11: in octets and in messages; one holds ten times as much, one publishes elsewhere."""
    both = {"memory_limit": memory, "cursor": "vm", "max_size_messages": 12, "address_full_policy": "BLOCK"}
    bench = Bench(system=SystemUsage(40_000_000, 0, 0), flow=Flow(hold_size=1 << 24), **both)
    bench.taker.call(1, C.Queue.Declare, queue="elsewhere")
    size, quantum = 10_000, 64 * 1024
    filler = bench.pair.open(1)
    filler.send(*[publish(1, "q", bytes(size))] * 40)  # full, whichever limit it is
    filler.hang_up()
    peers = [bench.pair.open(1) for _ in range(5)]
    counts = [100, 10, 10, 10, 10]
    for peer, count in zip(peers, counts):
        queue = "elsewhere" if peer is peers[-1] else "q"
        peer.call(1, C.Confirm.Select)
        for number in range(count):
            peer.send(publish(1, queue, bytes(size), mandatory=bool(number % 2)))
    confirmed = [0] * len(peers)
    left = [*counts]
    while any(left[1:-1]):
        bench.taker.send(method(1, C.Basic.Get, queue="q", no_ack=True))
        bench.taker.take()
        bench.pair.settle()
        for at, peer in enumerate(peers):
            for one in peer.take():
                assert isinstance(one.frame, C.Basic.Ack)
                confirmed[at] = one.frame.delivery_tag
            left[at] = counts[at] - confirmed[at]
        behind = [confirmed[at] for at in range(len(peers) - 1) if left[at]]
        assert max(behind) - min(behind) <= quantum // size + 1, confirmed
    assert confirmed[-1] == counts[-1]
    assert left[0] > 80


def test_a_return_for_want_of_room_comes_behind_deliveries_of_its_turn() -> None:
    """Row 6: what was published before, on the same channel, is delivered before."""
    bench = Bench(send_fail_if_no_space=True)
    bench.publish(FILL)
    bench.peer.send(method(1, C.Basic.Consume, queue="work", consumer_tag="c", no_ack=True))
    bench.peer.take()
    bench.peer.send(publish(1, "work", b"x") + publish(1, "q", BODY, mandatory=True))
    assert [one.frame.name for one in bench.peer.take()] == ["Basic.Deliver", "Basic.Return"]
