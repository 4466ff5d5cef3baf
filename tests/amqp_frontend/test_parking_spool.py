"""Held publishes that are too much for memory go to the temp store, so that the peer is still read. Queues page E.5."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pair import Pair
from pamqp import commands as C
from peer import method, publish

from leveret.amqp_frontend.flow.parking import OWN_STALL_MS, PARKED_MAX
from leveret.amqp_frontend.wire.states import ParkingState
from leveret.engine import BrokerOptions, errors
from leveret.engine.stores.tail import Unreadable
from leveret.journal.recording.temp_store import FileTempStore
from leveret.settings import Flow, SettingsRepository, SystemUsage, entry

KIB = 1024
SIZE = 64 * KIB


class Bench:
    """A queue that one message fills, and a publisher on channels 1 (confirms) and 2."""

    def __init__(self, directory: Path, flow: Flow, system: SystemUsage | None = None) -> None:
        self.pair = Pair(
            broker={
                "settings": SettingsRepository([entry("q", memory_limit=1_000, cursor="vm")], usage=system),
                "options": BrokerOptions(flow=flow, system_usage=system),
            }
        )
        self.temp = FileTempStore(str(directory))
        self.pair.broker.context.storage.open_temp = lambda: self.temp
        self.taker = self.pair.open(1)
        self.taker.call(1, C.Queue.Declare, queue="q")
        self.peer = self.pair.open(2)
        self.peer.call(1, C.Confirm.Select)
        self.published = 0

    def publish(self, count: int, size: int = SIZE, channel: int = 1) -> None:
        """Messages of different kinds in turn, so that each is held by itself."""
        for _ in range(count):
            self.published += 1
            body = b"%d" % self.published
            self.peer.send(publish(channel, "q", body + bytes(size), mandatory=bool(self.published % 2)))

    def take_all(self) -> list[int]:
        """The numbers of what comes while everything is taken."""
        found = []
        while True:
            got = self.taker.get()
            if got is None:
                return found
            found.append(int(got.body.rstrip(b"\0")))
            self.pair.settle()

    def take_one(self) -> bool:
        """Whether there was one."""
        self.taker.send(method(1, C.Basic.Get, queue="q", no_ack=True))
        (got,) = self.taker.take()
        self.pair.settle()
        return got.body is not None

    @property
    def area(self) -> Any:
        return self.peer.session.backlog.parking


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Any]:
    made: list[Bench] = []

    def one(system: SystemUsage | None = None, **flow: int) -> Bench:
        made.append(Bench(tmp_path, Flow(**{"hold_size": 256 * KIB, "hold_spool_size": 1024 * KIB, **flow}), system))
        return made[-1]

    yield one
    for bench in made:
        bench.temp.close()


def test_what_is_spooled_comes_in_order_and_is_confirmed(make: Any) -> None:
    bench = make()
    bench.publish(16)
    assert bench.area.contents.octets <= 256 * KIB + SIZE
    assert bench.temp.used == bench.area.contents.spooled > 500 * KIB
    assert bench.area.state is ParkingState.PARKING
    assert bench.take_all() == list(range(1, 17))
    assert [one.frame.delivery_tag for one in bench.peer.take()][-1] == 16
    assert (bench.temp.used, bench.area.contents.octets, bench.area.contents.count) == (0, 0, 0)
    assert bench.area.state is ParkingState.OPEN


def test_beyond_both_the_peer_is_not_read_until_half_is_gone(make: Any) -> None:
    bench = make()
    bench.publish(40)
    assert bench.area.state is ParkingState.STALLED
    assert bench.area.contents.octets + bench.area.contents.spooled < 1024 * KIB + 256 * KIB + 2 * (SIZE + KIB)
    assert bench.take_all() == list(range(1, 41))
    assert bench.area.state is ParkingState.OPEN


def test_small_messages_are_not_bounded_by_their_number(make: Any) -> None:
    """Where there is a temp store, what is over the number goes there; nobody is stalled for it."""
    bench = make()
    bench.publish(3 * PARKED_MAX, size=10)
    assert bench.area.contents.count <= PARKED_MAX
    assert bench.area.state is ParkingState.PARKING
    assert bench.take_all() == list(range(1, 3 * PARKED_MAX + 1))


@pytest.mark.parametrize(
    "end", ["channel", "error", "connection", "frame", "lost", "expelled", "stop", "timed out", "refused"]
)
def test_what_is_dropped_is_released(make: Any, end: str) -> None:
    """However it ends, of a channel or of all: the temp store and all accounts have what is still held, and no more."""
    bench = make()
    bench.publish(12)
    bench.publish(4, channel=2)
    flow = bench.pair.broker.flow
    assert bench.temp.used > 4 * SIZE
    if end in ("channel", "error"):
        if end == "channel":
            bench.peer.send(method(1, C.Channel.Close, reply_code=200, class_id=0, method_id=0))
        else:
            bench.peer.send(method(1, C.Basic.Ack, delivery_tag=99))
        assert bench.temp.used == bench.area.contents.spooled == flow.parked.spooled
        assert flow.parked.octets == bench.area.contents.octets
        assert bench.area.contents.publishes == 4
        assert bench.take_all() == [1, 13, 14, 15, 16]
    elif end == "frame":
        bench.peer.send(b"\x09" + bytes(7))
    elif end == "expelled":
        bench.peer.session.closing.expel(errors.ConnectionForced(reason="test"))
    elif end == "stop":
        bench.peer.session.closing.stop()
    elif end == "timed out":
        bench.peer.session.closing.give_up("silent")
        bench.peer.hang_up()
    elif end == "refused":
        settings = SettingsRepository([entry("q", memory_limit=1_000, cursor="vm", send_fail_if_no_space=True)])
        bench.pair.broker.reloading.replace_settings(settings, bench.pair.broker.context.options)
        bench.pair.settle()
        assert bench.take_all() == [1]
    elif end == "connection":
        bench.peer.send(method(0, C.Connection.Close, reply_code=200, class_id=0, method_id=0))
    else:
        bench.peer.hang_up()
    assert (bench.temp.used, flow.parked.spooled, flow.parked.octets) == (0, 0, 0)
    assert (bench.area.contents.count, bench.area.contents.spooled_count, bench.area.contents.publishes) == (0, 0, 0)
    assert flow.blocked() == []


def test_what_the_temp_store_refuses_is_counted_in_memory_alone(make: Any) -> None:
    """Queues page E.5: a full temp store takes nothing, so that nothing is missing from it later."""
    bench = make()
    bench.publish(8)
    bench.temp.limit = bench.temp.used
    bench.publish(4)
    parked, contents = bench.pair.broker.flow.parked, bench.area.contents
    assert bench.temp.used == contents.spooled == parked.spooled > 0
    assert parked.octets == contents.octets > 256 * KIB
    bench.take_all()
    assert (bench.temp.used, parked.spooled, parked.octets) == (0, 0, 0)


def test_each_held_message_is_counted_by_itself(make: Any) -> None:
    """What operators are shown are messages, wherever they are, not the runs in which they came."""
    bench = make()
    bench.publish(1)
    bench.peer.send(b"".join(publish(1, "q", bytes(SIZE), mandatory=True) for _ in range(12)))
    assert (
        bench.area.contents.publishes == sum(parked.count_messages() for parked in bench.area.channels.values()) == 12
    )
    while bench.take_one():
        pass
    assert bench.area.contents.publishes == 0


def test_a_stall_that_lasts_ends_the_connection(make: Any) -> None:
    """Queues page E.4, row 12: 506, and what was confirmed is there."""
    bench = make(max_stall_ms=2_000)
    bench.publish(40)
    bench.peer.take()
    bench.pair.advance(1900)
    assert not bench.peer.take()
    bench.pair.advance(200)
    closed = bench.peer.expect(C.Connection.Close)
    assert (closed.reply_code, closed.reply_text) == (
        506,
        "RESOURCE_ERROR - queue 'q' in vhost '/': memory limit, no room for 2000 ms",
    )
    assert bench.take_all() == [1]
    assert bench.temp.used == 0


@pytest.mark.parametrize("in_vain", [True, False])
def test_the_time_of_a_stall_begins_anew_when_something_is_published_and_only_then(make: Any, in_vain: bool) -> None:
    """What is tried in vain, because the settings are others now, gives it no more time."""
    bench = make(max_stall_ms=2_000)
    bench.publish(40)
    bench.peer.take()
    for number in range(3):
        bench.pair.advance(700)
        if in_vain:
            settings = SettingsRepository([entry("q", memory_limit=1_001 + number, cursor="vm")])
            bench.pair.broker.reloading.replace_settings(settings, bench.pair.broker.context.options)
            bench.pair.settle()
        else:
            assert bench.take_one()
    assert any(isinstance(one.frame, C.Connection.Close) for one in bench.peer.take()) is in_vain
    if not in_vain:
        assert bench.area.is_full
        bench.pair.advance(1900)
        assert not any(isinstance(one.frame, C.Connection.Close) for one in bench.peer.take())
        bench.pair.advance(200)
        assert bench.peer.expect(C.Connection.Close).reply_code == 506


def test_the_time_of_a_stall_ends_with_it(make: Any) -> None:
    """A connection that is read again stays, though something of it is held for longer."""
    bench = make(max_stall_ms=2_000)
    bench.publish(40)
    bench.pair.advance(1000)
    while bench.area.is_full:
        assert bench.take_one()
    assert bench.area.channels
    bench.pair.advance(30000)
    assert not bench.peer.is_closed
    assert not any(isinstance(one.frame, C.Connection.Close) for one in bench.peer.take())


def test_who_makes_the_room_itself_is_read_on(make: Any) -> None:
    """Its publishes go to the temp store, whatever its quota, so that its acknowledgements are seen."""
    bench = make()
    bench.peer.send(method(2, C.Basic.Qos, prefetch_count=1), method(2, C.Basic.Consume, queue="q", consumer_tag="c"))
    bench.publish(60)
    assert not bench.area.is_full
    got = 0
    while got < 60:
        for one in bench.peer.take():
            if isinstance(one.frame, C.Basic.Deliver):
                got += 1
                bench.peer.send(method(2, C.Basic.Ack, delivery_tag=one.frame.delivery_tag))
                bench.pair.settle()
    assert bench.temp.used == 0


def test_who_is_going_to_make_room_is_read_on(make: Any) -> None:
    """All that it had is acknowledged, and what comes next is not delivered yet: it is not stalled in between."""
    bench = make()
    bench.taker.send(method(1, C.Basic.Qos, prefetch_count=1), method(1, C.Basic.Consume, queue="q"))
    bench.peer.send(method(2, C.Basic.Qos, prefetch_count=1), method(2, C.Basic.Consume, queue="q", consumer_tag="c"))
    bench.publish(1)
    (got,) = (one for one in bench.taker.take() if isinstance(one.frame, C.Basic.Deliver))
    bench.publish(60)
    assert not bench.area.is_full


def test_at_the_temp_limit_it_is_ended_after_a_minute(make: Any) -> None:
    bench = make(SystemUsage(memory=0, store=0, temp=2048 * KIB))
    bench.peer.send(method(2, C.Basic.Qos, prefetch_count=1), method(2, C.Basic.Consume, queue="q", consumer_tag="c"))
    bench.publish(80)
    assert bench.area.is_full
    bench.peer.take()
    bench.pair.advance(1000 * (OWN_STALL_MS / 1000 - 1))
    assert not bench.peer.is_closed
    bench.pair.advance(2000)
    assert bench.peer.expect(C.Connection.Close).reply_code == 506


def test_what_it_has_of_another_queue_ends_no_connection(make: Any) -> None:
    """Only its own acknowledgements of a full queue could go unread while it stalls; others make room in time."""
    bench = make(SystemUsage(memory=0, store=0, temp=2048 * KIB))
    bench.taker.call(1, C.Queue.Declare, queue="r")
    bench.peer.send(method(2, C.Basic.Consume, queue="r", consumer_tag="c"), publish(2, "r", b"x"))
    bench.publish(80)
    assert bench.area.is_full
    bench.pair.advance(3 * OWN_STALL_MS)
    assert not any(isinstance(one.frame, C.Connection.Close) for one in bench.peer.take())
    assert not bench.peer.is_closed


def test_who_stalls_by_an_alarm_and_then_by_its_own_queue_is_ended_after_a_minute(make: Any) -> None:
    """After the alarm it waits for acknowledgements that nobody reads."""
    bench = make()
    bench.peer.send(method(2, C.Basic.Qos, prefetch_count=1), method(2, C.Basic.Consume, queue="q", consumer_tag="c"))
    bench.publish(1)
    bench.pair.broker.flow.raise_alarm("tea break")
    bench.publish(80)
    assert bench.area.is_full
    bench.pair.advance(2 * OWN_STALL_MS)
    bench.pair.broker.flow.end_alarm()
    bench.pair.settle()
    assert bench.area.is_full
    bench.peer.take()
    bench.pair.advance(OWN_STALL_MS - 1000)
    assert not bench.peer.is_closed
    bench.pair.advance(2000)
    assert bench.peer.expect(C.Connection.Close).reply_code == 506


def test_beyond_what_all_may_hold_in_memory_it_goes_to_the_temp_store(make: Any) -> None:
    """Five per cent of the broker's memory, although the connection itself may hold more: it is read on."""
    bench = make(SystemUsage(memory=3_000_000, store=0, temp=0))
    bench.publish(4)
    assert bench.area.contents.spooled_count > 0
    assert not bench.area.is_full


def test_an_alarm_may_last_longer_than_any_stall(make: Any) -> None:
    """Nobody can make room while it lasts: the connection stays, and what it has sent is published then."""
    bench = make(max_stall_ms=2_000)
    bench.pair.broker.flow.raise_alarm("tea break")
    bench.publish(40)
    assert bench.area.is_full
    bench.pair.advance(60_000)
    assert not bench.peer.is_closed
    assert not any(isinstance(one.frame, C.Connection.Close) for one in bench.peer.take())
    bench.pair.broker.flow.end_alarm()
    bench.pair.settle()
    assert bench.take_all()[:3] == [1, 2, 3]


def test_what_cannot_be_read_back_is_released(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection ends, and nothing of it is counted any more."""
    bench = make()
    bench.publish(16)
    assert bench.temp.used

    def broken(*_: object) -> bytes:
        raise Unreadable("broken")

    monkeypatch.setattr(bench.temp, "unspool", broken)
    for _ in range(16):
        bench.take_one()
    flow = bench.pair.broker.flow
    assert any(isinstance(one.frame, C.Connection.Close) for one in bench.peer.take())
    assert (bench.temp.used, flow.parked.spooled, flow.parked.octets) == (0, 0, 0)
