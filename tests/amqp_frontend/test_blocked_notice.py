"""connection.blocked and unblocked: what is said, when, and to whom. Queues page E.4 rows 1 to 4, E.5; G.E E07, E12."""

from __future__ import annotations

from random import Random

import pytest
from effort import examples
from pair import Pair
from pamqp import commands as C
from peer import Peer, method, publish

from leveret.engine import BrokerOptions
from leveret.settings import SettingsRepository, SystemUsage, entry

CALM_MS = 200


@pytest.mark.parametrize("letter", ["x", "é", "€", "🐇"])
@pytest.mark.parametrize("octets", [1, 200, 216, 224, 225, 226, 227, 228, 229, 230, 251, 255])
def test_a_long_reason_is_cut_between_characters(letter: str, octets: int) -> None:
    """A short string has 255 octets at most; the names of queues may have as many, and stand in the reason."""
    pair = Pair(broker={"settings": SettingsRepository([entry("#", memory_limit=10, cursor="vm")])})
    peer = pair.open(1, hears_blocked=True)
    name = letter * max(1, octets // len(letter.encode()))
    peer.call(1, C.Queue.Declare, queue=name)
    peer.send(publish(1, name, b"fills"), publish(1, name, b"is held"))
    reason = peer.expect(C.Connection.Blocked).reason
    whole = f"queue '{name}' in vhost '/': memory limit"
    assert whole.startswith(reason)
    assert len(whole.encode()) <= 255 or 252 <= len(reason.encode()) <= 255
    assert reason == whole or len(whole.encode()) > 255


class World:
    """A queue that two messages fill, a broker that may be full or have an alarm, and two publishers: one can hear."""

    def __init__(self) -> None:
        usage = SystemUsage(memory=6_000, store=0, temp=0)
        self.pair = Pair(
            broker={
                "settings": SettingsRepository([entry("q", memory_limit=2_000, cursor="vm")], usage=usage),
                "options": BrokerOptions(system_usage=usage),
            }
        )
        self.taker = self.pair.open(1)
        for queue in ("q", "r"):
            self.taker.call(1, C.Queue.Declare, queue=queue)
        self.hears, self.deaf = self.pair.open(2, hears_blocked=True), self.pair.open(1)
        self.is_blocked = False
        self.is_open = True  # channel 2
        self.now_ms = 0
        self.last_ms: int | None = None
        self.held_ms = self.free_ms = 0  # for how long without being told

    def do(self, chance: Random) -> None:
        what = chance.choice(("publish", "publish", "take", "take", "alarm", "disk", "calm", "calm", "close"))
        if what == "publish":
            peer: Peer = chance.choice((self.hears, self.hears, self.deaf))
            number = 1 if peer is self.deaf or not self.is_open else chance.choice((1, 2))
            peer.send(publish(number, chance.choice("qqr"), bytes(1_200)))
        elif what == "take":
            for _ in range(chance.randint(1, 3)):
                self.taker.send(method(1, C.Basic.Get, queue=chance.choice("qqr"), no_ack=True))
        elif what == "alarm":
            self.pair.broker.flow.raise_alarm("test")
        elif what == "disk":
            self.pair.broker.flow.disk.switch("low on disk")
        elif what == "calm":
            self.end_alarms()
        elif self.is_open:
            self.hears.send(method(2, C.Channel.Close, reply_code=200, class_id=0, method_id=0))
            self.is_open = False  # until that is answered
        self.look()
        self.pair.settle()
        self.taker.take()
        self.held_ms = self.free_ms = 0
        self.look()

    def end_alarms(self) -> None:
        """That of an operator, and that of the disk."""
        self.pair.broker.flow.end_alarm()
        self.pair.broker.flow.disk.switch(None)

    @property
    def is_calm(self) -> bool:
        """No alarm, and no limit of the broker is reached."""
        flow = self.pair.broker.flow
        roots = [node for node in flow.nodes() if node.is_root]
        return not any(node.is_full for node in (flow.alarm, flow.replication, flow.disk, *roots))

    def wait(self, ms: int) -> None:
        for _ in range(ms // 10):
            self.look()
            self.pair.advance(10)
            self.now_ms += 10
            is_parked = bool(self.hears.session.backlog.parking.channels)
            is_free = not is_parked and self.is_calm
            self.look()
            self.held_ms = self.held_ms + 10 if is_parked and not self.is_blocked else 0
            self.free_ms = self.free_ms + 10 if is_free and self.is_blocked else 0
            assert self.held_ms <= CALM_MS, "held, and not told"
            assert self.free_ms <= CALM_MS, "free, and not told"

    def look(self) -> None:
        for peer in (self.deaf, self.hears):
            client = peer.session.login.client
            assert client is not None and client.is_blocked == bool(peer.session.backlog.parking.channels)
        assert not [one for one in self.deaf.take() if one.channel == 0]
        for one in self.hears.take():
            if isinstance(one.frame, C.Channel.CloseOk):
                self.is_open = True
                self.hears.send(method(2, C.Channel.Open))
            if one.channel:
                continue
            assert isinstance(one.frame, C.Connection.Unblocked if self.is_blocked else C.Connection.Blocked)
            assert self.last_ms is None or self.now_ms - self.last_ms >= CALM_MS, "in quick alternation"
            self.is_blocked, self.last_ms = not self.is_blocked, self.now_ms
            if self.is_blocked:
                assert self.hears.session.backlog.parking.channels, "told for nothing"
            else:
                assert self.is_calm, "unblocked, and the broker is full"


@pytest.mark.parametrize("seed", range(examples(16)))
def test_who_hears_it_hears_it_in_time_and_never_in_quick_alternation(seed: int) -> None:
    """Held by a queue, by the broker, by an alarm, while the disk is full or not; on two channels that come and go."""
    chance = Random(seed)
    world = World()
    for _ in range(50):
        world.do(chance)
        world.wait(chance.choice((0, 10, 10, 50, 150, 300)))
    world.end_alarms()
    for queue in "qrqr" * 20:
        world.taker.send(method(1, C.Basic.Get, queue=queue, no_ack=True))
        world.pair.settle()
    world.wait(3 * CALM_MS)
    assert not world.is_blocked
    assert not world.hears.session.backlog.parking.channels
