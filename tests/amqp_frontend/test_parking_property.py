"""Any interleaving of publishes, settlements, closes and reloads while publishes are held: order, confirms, accounts.

Queues page E.5. Each read of a socket may bring several publishes, and a part of one.
"""

from __future__ import annotations

import tempfile
from typing import Any

from effort import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pair import Pair
from pamqp import commands as C
from peer import cut_at, method, publish

from leveret.amqp_frontend.flow.parked_channel import contents_of
from leveret.engine import BrokerOptions
from leveret.journal.recording.temp_store import FileTempStore
from leveret.settings import Flow, SettingsRepository, SystemUsage, entry

CHANNELS = (1, 2)
sizes = st.sampled_from([10, 3_000, 40_000, 40_000, 90_000])
#: (size, which kind of message: kinds that follow each other are mixed runs)
messages = st.lists(st.tuples(sizes, st.integers(0, 2)), min_size=1, max_size=8)
operations = st.one_of(
    st.tuples(st.just("publish"), st.integers(0, 1), st.sampled_from(CHANNELS), messages),
    st.tuples(st.just("publish"), st.integers(0, 1), st.sampled_from(CHANNELS), messages),
    st.tuples(st.just("take"), st.integers(1, 6)),
    st.tuples(st.just("limit"), st.sampled_from([None, 1_000, 5_000, 60_000])),
    st.tuples(st.just("alarm"), st.booleans()),
    st.tuples(st.just("wait"), st.sampled_from([0.1, 0.3])),
    st.tuples(st.just("close"), st.integers(0, 1), st.sampled_from(CHANNELS)),
)


class World:
    """Two publishers with two confirming channels each, and one who takes. Bodies: publisher, channel, number."""

    def __init__(self, cuts: list[int], system: SystemUsage | None, directory: str) -> None:
        flow = Flow(hold_size=20_000, hold_spool_size=60_000)
        self.options = BrokerOptions(flow=flow, system_usage=system)
        self.system = system
        self.pair = Pair(broker={"options": self.options, "settings": self._settings(1_000)})
        self.temp = FileTempStore(directory)
        self.pair.broker.context.storage.open_temp = lambda: self.temp
        self.taker = self.pair.open(1)
        self.taker.call(1, C.Queue.Declare, queue="q")
        self.peers = [self.pair.open(2, hears_blocked=bool(n), cut=cut_at(cuts)) for n in range(2)]
        self.sent: dict[tuple[int, int], int] = {}
        self.confirmed: dict[tuple[int, int], int] = {}
        self.open: set[tuple[int, int]] = set()
        for n, peer in enumerate(self.peers):
            for channel in CHANNELS:
                peer.call(channel, C.Confirm.Select)
                self.sent[n, channel] = self.confirmed[n, channel] = 0
                self.open.add((n, channel))
        self.got: dict[tuple[int, int], list[int]] = {one: [] for one in self.open}
        for n, channel in self.open:  # their kinds are known from now on, so that they are read as mixed runs
            for kind in range(3):
                self.publish(n, channel, [(10, kind)])
                self.take(9)

    def _settings(self, limit: int | None) -> SettingsRepository:
        given = {} if limit is None else {"memory_limit": limit, "cursor": "vm"}
        return SettingsRepository([entry("q", **given)], usage=self.system)

    def publish(self, n: int, channel: int, run: list[tuple[int, int]]) -> None:
        if (n, channel) not in self.open:
            return
        octets = b""
        for size, kind in run:
            self.sent[n, channel] += 1
            body = b"%d %d %d " % (n, channel, self.sent[n, channel]) + bytes(size)
            octets += publish(channel, "q", body, mandatory=kind == 1, delivery_mode=1 + (kind == 2))
        self.peers[n].send(octets)

    def take(self, count: int) -> bool:
        for _ in range(count):
            got = self.taker.get()
            if got is None:
                return False
            n, channel, number = map(int, got.body.split(b" ", 3)[:3])
            self.got[n, channel].append(number)
            self.pair.settle()
        return True

    def limit(self, limit: int | None) -> None:
        self.pair.broker.reloading.replace_settings(self._settings(limit), self.options)

    def alarm(self, is_on: bool) -> None:
        if is_on:
            self.pair.broker.flow.raise_alarm("test")
        else:
            self.pair.broker.flow.end_alarm()

    def wait(self, seconds: float) -> None:
        self.pair.advance(1000 * seconds)

    def close(self, n: int, channel: int) -> None:
        if (n, channel) in self.open:
            self.open.discard((n, channel))
            self.peers[n].send(method(channel, C.Channel.Close, reply_code=200, class_id=0, method_id=0))

    def look(self) -> None:
        """What always holds."""
        self.pair.settle()
        for n, peer in enumerate(self.peers):
            for one in peer.take():
                if isinstance(one.frame, C.Basic.Ack):
                    before = self.confirmed[n, one.channel]
                    assert one.frame.delivery_tag > before
                    assert one.frame.multiple or one.frame.delivery_tag == before + 1
                    self.confirmed[n, one.channel] = one.frame.delivery_tag
                else:
                    allowed = (C.Connection.Blocked, C.Connection.Unblocked, C.Channel.CloseOk)
                    assert isinstance(one.frame, allowed), one.frame.name
            area: Any = peer.session.backlog.parking
            works = [work for parked in area.channels.values() for work in parked.work]
            assert all(work.octets == sum(map(len, contents_of(work.event))) for work in works if work.location is None)
            assert area.contents.octets == sum(work.octets for work in works if work.location is None)
            assert area.contents.count == sum(work.location is None for work in works)
            assert area.contents.spooled == sum(work.octets for work in works if work.location is not None)
            assert area.contents.spooled_count == sum(work.location is not None for work in works)
        assert self.temp.used == sum(peer.session.backlog.parking.contents.spooled for peer in self.peers)
        ready = self.pair.broker.virtual_hosts["/"].queues["q"].ready_count
        assert sum(self.confirmed.values()) == ready + sum(map(len, self.got.values()))


@settings(max_examples=examples(150), deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(operations, max_size=30),
    st.lists(st.integers(0, 1 << 20), max_size=4),
    st.none() | st.builds(SystemUsage, memory=st.sampled_from([0, 4_000]), store=st.just(0), temp=st.just(50_000)),
)
def test_order_confirms_and_accounts(done: list[Any], cuts: list[int], system: SystemUsage | None) -> None:
    """Each channel's messages come in order and are confirmed in order; in the end all of open channels are there."""
    with tempfile.TemporaryDirectory() as directory:
        world = World(cuts, system, directory)
        for name, *arguments in done:
            getattr(world, name)(*arguments)
            world.look()
        world.alarm(False)
        world.look()
        for _ in range(200):
            if not world.take(50):
                world.look()
                if not world.take(1):
                    break
        world.look()
        for one, numbers in world.got.items():
            assert numbers == list(range(1, len(numbers) + 1)), one
            if one in world.open:
                assert len(numbers) == world.sent[one] == world.confirmed[one], one
        assert world.pair.broker.flow.blocked() == []
        assert world.temp.used == 0
        world.temp.close()
