"""Real journals over real links: what is confirmed is on the follower's disk, and whoever takes over has it."""

import os
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import trio
from in_trio import in_trio
from journal_workload import ID, Driver, model_of
from written_journal import segments

from leveret.cluster.agreement.events import Acknowledged, Durable, Event
from leveret.cluster.link.challenge import Credentials
from leveret.cluster.link.follower_links import FollowerLinks, LeaderJournal
from leveret.cluster.link.leader_link import LeaderLink
from leveret.cluster.link.listener import LinkListener
from leveret.cluster.link.options import Address, LinkOptions
from leveret.engine import ManualClock
from leveret.journal import ClusterJournal, Journal, JournalOptions, MessageState
from leveret.journal.copying.copied_journal import CopiedJournal

CIRCLE = Credentials("orders", 0, b"a secret of the cluster")
OPTIONS = LinkOptions(beacon_s=0.05, silence_s=30, retry_s=0.01)
SMALL = JournalOptions(segment_size=40_000)


class Node:
    """A node that follows or leads. Everything is agreed that it and the other one have fsynced."""

    def __init__(self, path: str, name: str) -> None:
        self.path = path
        self.name = name
        self.address = Address("127.0.0.1", 0)
        self.listener = LinkListener(CIRCLE, name, lambda *said: None, OPTIONS)
        self.confirmed = 0  # LSN

    # -- leading -------------------------------------------------------------------------------------------------------

    def lead(self, term: int) -> None:
        token = trio.lowlevel.current_trio_token()
        copied = CopiedJournal.open(self.path)
        if copied.journal_id is None:
            copied.begin(ID)
        copied.upgrade()
        copied.set_terms(copied.terms.with_term(term, copied.end))
        self.terms = copied.terms
        self.durable = self.acknowledged = self.first_lsn = copied.end
        self.links: FollowerLinks | None = None
        cluster = ClusterJournal(
            copied.hand_over(),
            copied.end,
            lambda *said: token.run_sync_soon(self._written, *said),
            lambda lsn: token.run_sync_soon(self._fsynced, lsn),
            lambda base_lsns: token.run_sync_soon(self._unlinked, base_lsns),
            lambda needs: token.run_sync_soon(self._needed, needs),
        )
        self.journal = Journal.open(self.path, ManualClock(), SMALL, cluster=cluster)
        self.journal.set_callbacks(self._safe, lambda error: None)
        self.driver = Driver(self.journal)

    def _written(self, base_lsn: int, offset: int, octets: bytearray, end_lsn: int) -> None:
        if self.links is None:
            led = LeaderJournal(self.path, ID, self.terms)
            position = (base_lsn, offset + len(octets))
            self.links = FollowerLinks(led, self._told, position=position, end=end_lsn, options=OPTIONS)
            self.listener.links = self.links
        else:
            self.links.written(base_lsn, offset, octets, end_lsn)

    def _needed(self, needs: frozenset[str]) -> None:
        assert self.links is not None
        self.links.needed(needs)

    def _unlinked(self, base_lsns: list[int]) -> None:
        assert self.links is not None
        self.links.unlinked(base_lsns)

    def _fsynced(self, lsn: int) -> None:
        self.durable = lsn
        self._agree()

    def _told(self, event: Event) -> None:
        if isinstance(event, Acknowledged):
            self.acknowledged = event.lsn
            self._agree()

    def _agree(self) -> None:
        lsn = min(self.durable, self.acknowledged)
        if lsn > self.first_lsn:
            self.journal.agree(lsn)

    def _safe(self, lsn: int) -> None:
        self.confirmed = lsn

    async def publish(self, count: int) -> None:
        """Messages that are confirmed when this returns."""
        for number in range(count):
            self.driver.publish([b"x" * (number % 900)], "a")
            lsn = self.journal.commit()
        await until(lambda: self.confirmed >= lsn)

    def write(self, lsn: int) -> None:
        """Wait until the own disk has what is below `lsn`."""
        assert self.journal.writer.wait(lsn, 10, on_own_disk=True)

    def resign(self) -> None:
        assert self.links is not None
        self.listener.links = None
        self.links.close_all("resigned")
        assert self.journal.abandon(10)


async def until(fact: Callable[[], object]) -> None:
    with trio.fail_after(120):
        while not fact():
            with trio.move_on_after(0.002):
                await trio.sleep_forever()


@asynccontextmanager
async def following(node: Node, leader: Node, term: int) -> AsyncIterator[list[Event]]:
    told: list[Event] = []
    copied = CopiedJournal.open(node.path)
    link = LeaderLink(CIRCLE, node.name, node.path, copied, told.append, options=OPTIONS)
    link.acknowledge(True)
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(link.run, leader.address, term)
            yield told
            nursery.cancel_scope.cancel()
    finally:
        copied.close()


@in_trio
async def test_leaders_take_turns(tmp_path: Path) -> None:
    """Six terms of two nodes. Each leader writes more than the other gets: that is cut when it follows again."""
    nodes = [Node(str(tmp_path / name), name) for name in ("n1", "n2")]
    async with trio.open_nursery() as nursery:
        for node in nodes:
            listening = socket.create_server(("127.0.0.1", 0))
            node.address = Address(*listening.getsockname()[:2])
            await nursery.start(node.listener.serve, [listening])
        leader, follower = nodes
        confirmed: dict[int, tuple[bytes, MessageState]] = {}
        for term in range(1, 7):
            leader.lead(term)
            driver = leader.driver
            if term == 1:
                driver.declare("a")
            else:
                driver.queue_ids, driver.exchange = follower.driver.queue_ids, follower.driver.exchange
                assert model_of(leader.journal.recovered, leader.journal) == {"a": confirmed}
                driver.model = {"a": dict(confirmed)}
            async with following(follower, leader, term) as told:
                await leader.publish(100)
                end = leader.confirmed
                await until(lambda: any(isinstance(one, Durable) and one.lsn >= end for one in told))  # noqa: B023
                assert same(leader, follower)
            confirmed = dict(driver.model["a"])
            # Nobody follows: nothing more is confirmed, and the next leader does not know of it.
            driver.publish([b"lost"] * term, "a")
            lsn = leader.journal.commit()
            await trio.to_thread.run_sync(leader.write, lsn)
            assert leader.confirmed == end
            leader.resign()
            leader, follower = follower, leader
        nursery.cancel_scope.cancel()
    for node in nodes:
        names = [name for name in os.listdir(node.path) if name != "cut"]
        assert {"format", "terms", "lock", "readers"} < set(names)
        assert os.listdir(os.path.join(node.path, "readers")) == []
        assert os.path.isdir(os.path.join(node.path, "cut"))


def same(leader: Node, follower: Node) -> bool:
    """Whether both have the same octets: the zeros that the leader has reserved behind the last block are none."""
    return octets_of(leader) == octets_of(follower)


def octets_of(node: Node) -> dict[int, bytes]:
    return {base_lsn: octets.rstrip(b"\0") for base_lsn, octets in segments(node.path).items()}
