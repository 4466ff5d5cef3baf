"""What all connections together may hold in memory: 5 % of the broker's. Queues page E.5, "Hold area"."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pair import Pair
from pamqp import commands as C
from peer import Peer, method, publish

from leveret.amqp_frontend.wire.states import ParkingState
from leveret.engine import BrokerOptions
from leveret.journal.recording.temp_store import FileTempStore
from leveret.settings import Flow, SettingsRepository, SystemUsage, entry

MEMORY = 1_000_000
LIMIT = 50_000
SIZE = 20_000


class Bench:
    """A queue that one message fills, and publishers each of which might hold all that they may together."""

    def __init__(self, temp: FileTempStore | None, *, memory: int = MEMORY, publishers: int = 4) -> None:
        self.pair = Pair(broker={"settings": self.settings(memory), "options": self.options(memory)})
        if temp is not None:
            self.pair.broker.context.storage.open_temp = lambda: temp
        self.taker = self.pair.open(1)
        self.taker.call(1, C.Queue.Declare, queue="q")
        self.peers = [self.pair.open(1) for _ in range(publishers)]
        for peer in self.peers:
            peer.call(1, C.Confirm.Select)
        self.published: dict[Peer, int] = dict.fromkeys(self.peers, 0)
        self.taker.send(publish(1, "q", b"fills"))

    @staticmethod
    def settings(memory: int) -> SettingsRepository:
        return SettingsRepository([entry("q", memory_limit=10, cursor="vm")], usage=SystemUsage(memory, 0, 0))

    @staticmethod
    def options(memory: int) -> BrokerOptions:
        return BrokerOptions(system_usage=SystemUsage(memory, 0, 0), flow=Flow(hold_size=200_000))

    def publish(self, *peers: Peer, size: int = SIZE) -> None:
        for peer in peers:
            self.published[peer] += 1
            number = self.published[peer]
            body = b"%d" % number + bytes(size)
            peer.send(publish(1, "q", body, mandatory=bool(number % 2)))

    def take_all(self) -> int:
        """How many messages there were."""
        count = 0
        while True:
            got = self.taker.get()
            if got is None:
                return count
            count += 1
            self.pair.settle()

    def areas(self) -> list[Any]:
        return [peer.session.backlog.parking for peer in self.peers]

    @property
    def whole(self) -> int:
        """Octets that all of them hold in memory, as it is counted for the broker."""
        octets = self.pair.broker.flow.parked.octets
        assert octets == sum(area.contents.octets for area in self.areas())
        return octets

    def confirmed(self, peer: Peer) -> int:
        """The last tag that was confirmed."""
        return max((one.frame.delivery_tag for one in peer.take() if isinstance(one.frame, C.Basic.Ack)), default=0)


@pytest.fixture
def temp(tmp_path: Path) -> Iterator[FileTempStore]:
    made = FileTempStore(str(tmp_path))
    yield made
    made.close()


def test_beyond_it_contents_go_to_the_temp_store(temp: FileTempStore) -> None:
    """Although each connection would have room for its own; all come in the end, in order, and are confirmed."""
    bench = Bench(temp)
    for _ in range(3):
        bench.publish(*bench.peers)
    assert LIMIT - SIZE < bench.whole <= LIMIT
    assert temp.used > 12 * SIZE - LIMIT
    assert [area.state for area in bench.areas()] == [ParkingState.PARKING] * 4
    assert bench.take_all() == 13
    assert [bench.confirmed(peer) for peer in bench.peers] == [3] * 4
    assert (bench.whole, temp.used) == (0, 0)


def test_without_room_there_either_peers_are_left_unread() -> None:
    """Each with what it had sent when the whole was full; they are read again when their own is gone."""
    bench = Bench(None)
    for peer in bench.peers[:3]:
        bench.publish(peer)
    assert [area.is_full for area in bench.areas()] == [False, False, True, False]
    bench.publish(bench.peers[3])
    assert bench.areas()[3].is_full
    over = bench.whole
    bench.publish(*bench.peers[2:], size=10)
    assert bench.whole == over, "a peer that is not read holds no more"
    assert bench.take_all() == 7
    assert [bench.confirmed(peer) for peer in bench.peers] == [1, 1, 2, 2]
    assert bench.whole == 0


def test_what_has_no_contents_needs_no_room() -> None:
    """A method behind a held publish is held, whatever others hold."""
    bench = Bench(None)
    bench.publish(bench.peers[0], size=10)
    bench.publish(bench.peers[1], size=3 * SIZE)
    assert bench.areas()[1].is_full
    bench.peers[0].send(method(1, C.Queue.Declare, queue="other"))
    assert not bench.areas()[0].is_full
    assert bench.take_all() == 3
    assert any(isinstance(one.frame, C.Queue.DeclareOk) for one in bench.peers[0].take())


@pytest.mark.parametrize("end", ["channel", "connection", "lost"])
def test_what_is_dropped_makes_room(temp: FileTempStore, end: str) -> None:
    bench = Bench(temp)
    first, second = bench.peers[:2]
    bench.publish(first, first)
    bench.publish(second)
    assert temp.used > SIZE
    if end == "lost":
        first.hang_up()
    else:
        number, kind = (1, C.Channel.Close) if end == "channel" else (0, C.Connection.Close)
        first.send(method(number, kind, reply_code=200, class_id=0, method_id=0))
    assert bench.whole == 0
    bench.publish(second)
    assert SIZE < bench.whole < LIMIT


def test_the_limit_follows_a_reload(temp: FileTempStore) -> None:
    """Also to none: without a limit of memory there is none on what is held."""
    bench = Bench(temp, memory=0)
    for _ in range(3):
        bench.publish(*bench.peers)
    assert (bench.whole > LIMIT, temp.used) == (True, 0)
    bench.pair.broker.reloading.replace_settings(bench.settings(MEMORY), bench.options(MEMORY))
    bench.publish(bench.peers[0])
    assert temp.used > SIZE
    assert bench.take_all() == 14
    assert bench.whole == 0


def test_publishes_of_many_kinds_wait_as_those_of_one_kind_do() -> None:
    """A read of publishes to two queues in turn does not pass the limit of one of them."""
    pair = Pair(broker={"settings": SettingsRepository([entry("q", memory_limit=10_000, cursor="vm")])})
    peer = pair.open(1)
    for queue in ("q", "free"):
        peer.call(1, C.Queue.Declare, queue=queue)
    for _ in range(20):
        peer.send(b"".join(publish(1, queue, bytes(1000)) for queue in ("q", "free") * 3))
    queues = pair.broker.virtual_hosts["/"].queues
    assert queues["q"].ready_count < 20
    assert peer.session.backlog.parking.channels
