"""A leader and its followers over real sockets and files: octets, acknowledgements, joining, silence, strangers."""

import errno
import os
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import trio
import trustme
from in_trio import in_trio
from written_journal import JOURNAL_ID, WrittenJournal, segments

from leveret.cluster.agreement.events import (
    Acknowledged,
    Drain,
    Durable,
    Event,
    FollowerHeard,
    Joined,
    JoinRefused,
    JournalDamaged,
    LeaderHeard,
    LeaderRefused,
    LinkClosed,
    LinkOpened,
    Revive,
)
from leveret.cluster.copying import full_copy
from leveret.cluster.copying.joining import JournalSummary
from leveret.cluster.link import feed as feed_module
from leveret.cluster.link.challenge import Credentials
from leveret.cluster.link.follower_links import FollowerLinks
from leveret.cluster.link.follower_segments import forget_readers, readers_of
from leveret.cluster.link.frames import (
    Ack,
    Beacon,
    Client,
    Copy,
    Decoder,
    Greet,
    Hello,
    No,
    Octets,
    Proof,
    Prove,
    Status,
    Welcome,
    encode,
)
from leveret.cluster.link.introduction import Reach, accept, connect, reach
from leveret.cluster.link.leader_link import Ending, LeaderLink
from leveret.cluster.link.listener import LinkListener
from leveret.cluster.link.options import Address, LinkOptions, LinkTls
from leveret.cluster.link.stream import Declined, LinkFault, LinkStream
from leveret.journal import REAL, JournalFull, TermTable, reader_offsets, register_reader
from leveret.journal.copying.copied_journal import CopiedJournal
from leveret.journal.disk.segment import SegmentSummary, opened, path_of
from leveret.journal.disk.segment_scan import SegmentScan

CIRCLE = Credentials("orders", 0, b"a secret of the cluster")
OPTIONS = LinkOptions(beacon_s=0.05, silence_s=5, retry_s=0.01)


class World:
    """A leader with its listener; followers are made by `follower`."""

    def __init__(self, path: Path, options: LinkOptions = OPTIONS, tls: LinkTls | None = None) -> None:
        self.path = path
        self.options, self.tls = options, tls
        self.journal = WrittenJournal(str(path / "leader"))
        self.told: list[Event] = []
        self.clients: list[tuple[socket.socket, bytes, bytes, str, str]] = []
        self.listener = LinkListener(CIRCLE, "n1", lambda *said: self.clients.append(said), options, tls=tls)
        self.links: FollowerLinks | None = None
        self.address = Address("127.0.0.1", 0)

    def lead(self) -> FollowerLinks:
        """Begin to lead, in the last term of the journal's table."""
        journal = self.journal
        self.links = self.listener.links = links = FollowerLinks(
            journal.led, self.told.append, position=journal.position, end=journal.end, options=self.options
        )
        journal.on_written = links.written
        return links

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        listening = socket.create_server(("127.0.0.1", 0))
        self.address = Address(*listening.getsockname()[:2])
        async with trio.open_nursery() as nursery:
            await nursery.start(self.listener.serve, [listening])
            yield
            nursery.cancel_scope.cancel()


class Follower:
    """A node that follows, with what it reported."""

    def __init__(
        self, world: World, name: str = "n2", credentials: Credentials = CIRCLE, damaged: JournalSummary | None = None
    ) -> None:
        self.world = world
        self.path = str(world.path / name)
        self.told: list[Event] = []
        full_copy.finish(self.path)
        self.copied = CopiedJournal.open(self.path) if damaged is None else None
        self.link = LeaderLink(
            credentials,
            name,
            self.path,
            self.copied,
            self.told.append,
            damaged=damaged,
            options=world.options,
            tls=world.tls,
            reload=self._reload,
        )
        self.reloads = 0
        self.ending: Ending | None = None
        self.ended = trio.Event()
        self._scope = trio.CancelScope()

    def _reload(self) -> None:
        self.reloads += 1

    @property
    def node_id(self) -> bytes:
        assert self.copied is not None
        return self.copied.terms.node_id

    async def run(self, term: int = 1) -> None:
        with self._scope:
            self.ending = await self.link.run(self.world.address, term)
        self.ended.set()

    async def stop(self) -> None:
        self._scope.cancel()
        await self.ended.wait()
        if self.copied is not None:
            self.copied.close()


@asynccontextmanager
async def following(world: World, name: str = "n2", term: int = 1, **options: Any) -> AsyncIterator[Follower]:
    """A follower that follows while the block runs."""
    follower = Follower(world, name, **options)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(follower.run, term)
        yield follower
        await follower.stop()


async def until(fact: Callable[[], object]) -> None:
    """Wait for a fact."""
    with trio.fail_after(120):
        while not fact():
            with trio.move_on_after(0.002):
                await trio.sleep_forever()


def same(world: World, follower: Follower) -> bool:
    """Whether the follower has the leader's octets."""
    try:
        return segments(follower.path) == world.journal.segments()
    except FileNotFoundError:  # one was deleted just now
        return False


@in_trio
async def test_a_new_node_gets_everything_and_what_is_written_then(tmp_path: Path) -> None:
    """From an empty directory: all segments octet for octet, ticks and footers as well."""
    world = World(tmp_path)
    for _ in range(3):
        world.journal.block()
        world.journal.tick()
        world.journal.roll()
    links = world.lead()
    async with world.listening(), following(world) as follower:
        follower.link.acknowledge(True)
        await until(lambda: same(world, follower))
        for _ in range(20):
            world.journal.block()
            await trio.lowlevel.checkpoint()
        world.journal.roll()
        world.journal.block(1, 700_000)
        await until(lambda: Acknowledged(follower.node_id, 1, world.journal.end) in world.told)
        assert same(world, follower)
        opened = world.told.index(LinkOpened(follower.node_id, 1))
        assert world.told[:opened] == []
        assert follower.copied is not None
        assert follower.copied.journal_id == JOURNAL_ID
        assert follower.copied.terms.starts == world.journal.terms.starts
        await until(lambda: Durable(world.journal.end) in follower.told)
        await until(lambda: FollowerHeard(follower.node_id) in world.told)
        links.set_agreed(17)
        await until(lambda: any(isinstance(one, LeaderHeard) and one.agreed == 17 for one in follower.told))
    await until(lambda: LinkClosed(follower.node_id) in world.told)
    assert reader_offsets(world.journal.path) == {}


@in_trio
async def test_octets_and_acknowledgements_pass_tls(tmp_path: Path) -> None:
    """Also those that come with the Welcome, and megabytes; the end of a link ends it on both sides."""
    server, client = (ssl.SSLContext(kind) for kind in (ssl.PROTOCOL_TLS_SERVER, ssl.PROTOCOL_TLS_CLIENT))
    authority = trustme.CA()
    authority.issue_cert("127.0.0.1").configure_cert(server)
    authority.configure_trust(client)
    world = World(tmp_path, tls=LinkTls(server, client))
    world.journal.block()
    links = world.lead()
    async with world.listening(), following(world) as follower:
        follower.link.acknowledge(True)
        for _ in range(20):
            world.journal.block(1, 200_000)
            await trio.lowlevel.checkpoint()
        await until(lambda: Acknowledged(follower.node_id, 1, world.journal.end) in world.told)
        assert same(world, follower)
        links.close_all("another node leads")
        await until(lambda: "does not lead" in follower.link.why)


@in_trio
async def test_an_authority_that_a_reload_dropped_is_trusted_no_more(tmp_path: Path) -> None:
    """Links that were opened with it end; a node with a certificate of another authority is there again at once."""
    tls, other = (LinkTls(*contexts(trustme.CA()), frozenset({name})) for name in ("one", "other"))
    assert tls.client is not None
    world = World(tmp_path, tls=tls)
    links = world.lead()
    async with world.listening(), following(world) as follower:
        await until(lambda: links.is_linked(follower.node_id))
        before, theirs = tls.client, LinkTls(tls.server, tls.client)
        follower.link._tls = theirs
        tls.replace(tls)
        assert not tls.has_dropped
        tls.replace(other)
        assert tls.has_dropped and tls.client is not before
        tls.replace(other)
        assert tls.has_dropped, "until the links have ended"
        world.listener.end_all()
        await until(lambda: "TLS" in follower.link.why and not links.is_linked(follower.node_id))
        theirs.replace(other)
        await until(lambda: links.is_linked(follower.node_id))


def appending_by(append: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """One that leads with a block, and whose followers append by this. They link again soon after a fault."""
    monkeypatch.setattr(CopiedJournal, "append", append)
    monkeypatch.setattr("leveret.cluster.link.leader_link.FAULT_PAUSE_S", 0.01)
    world = World(tmp_path)
    world.journal.block()
    world.lead()
    return world


@in_trio
async def test_a_node_whose_disk_is_full_does_not_fill_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its links open and end, each with the same reason."""
    tried: list[object] = []

    def refuse(copied: CopiedJournal, *octets: object) -> None:
        tried.append(copied)
        raise JournalFull("no room")

    world = appending_by(refuse, tmp_path, monkeypatch)
    async with world.listening(), following(world):
        await until(lambda: len(tried) >= 4)
    assert sum("no room" in record.getMessage() for record in caplog.records) == 1


@in_trio
async def test_a_node_whose_disk_is_full_behind_a_whole_block_joins_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The block is written, and no fsync came: what the node says of its journal has to include it."""
    append, is_full, refused = CopiedJournal.append, False, 0

    def take(copied: CopiedJournal, *octets: Any) -> None:
        nonlocal is_full, refused
        append(copied, *octets)
        if is_full:
            is_full, refused = False, refused + 1
            raise JournalFull("no room")

    world = appending_by(take, tmp_path, monkeypatch)
    async with world.listening(), following(world) as follower:
        await until(lambda: same(world, follower))
        is_full = True
        world.journal.block()
        await until(lambda: refused)
        world.journal.block()
        await until(lambda: same(world, follower))


@in_trio
async def test_a_node_whose_certificate_has_expired_says_so(tmp_path: Path) -> None:
    """The leader closes the link without a reason, as no alert of TLS is sent; with a new certificate all is well."""
    authority = trustme.CA()
    tls, begun, over = LinkTls(*contexts(authority)), *(datetime(year, 1, 1, tzinfo=UTC) for year in (2020, 2021))
    expired = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    authority.issue_cert("127.0.0.1", not_before=begun, not_after=over).configure_cert(expired)
    authority.configure_trust(expired)
    world = World(tmp_path, tls=tls)
    links = world.lead()
    async with world.listening(), following(world) as follower:
        await until(lambda: links.is_linked(follower.node_id))
        follower.link._tls = LinkTls(tls.server, expired, expires_ms=(0,))
        world.listener.end_all()
        await until(lambda: follower.link.why.endswith(" (the certificate of this node has expired)"))
        follower.link._tls.replace(tls)
        await until(lambda: links.is_linked(follower.node_id) and follower.link.why == "")


def contexts(authority: trustme.CA) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Of both sides, each with a certificate of this authority, and for certificates of it."""
    found = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    for context in found:
        context.verify_mode = ssl.CERT_REQUIRED
        authority.issue_cert("127.0.0.1").configure_cert(context)
        authority.configure_trust(context)
    return found


@in_trio
async def test_acknowledgements_are_sent_only_while_they_are_allowed(tmp_path: Path) -> None:
    """What was fsynced meanwhile is acknowledged as soon as they are."""
    world = World(tmp_path)
    links = world.lead()
    async with world.listening(), following(world) as follower:
        assert not links.is_owed(1)
        world.journal.block()
        await until(lambda: Durable(world.journal.end) in follower.told)
        await until(lambda: FollowerHeard(follower.node_id) in world.told)
        assert not any(isinstance(one, Acknowledged) for one in world.told)
        assert links.is_owed(world.journal.end)
        follower.link.acknowledge(True)
        await until(lambda: Acknowledged(follower.node_id, 1, world.journal.end) in world.told)
        assert not links.is_owed(world.journal.end)
        follower.link.acknowledge(False)
        world.journal.block()
        await until(lambda: Durable(world.journal.end) in follower.told)
        del world.told[:]
        await until(lambda: world.told.count(FollowerHeard(follower.node_id)) == 2)
        assert not any(isinstance(one, Acknowledged) for one in world.told)


@in_trio
async def test_what_was_fsynced_is_not_acknowledged_when_that_is_forbidden(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R6: forbidden between the fsync, in the thread that copies, and the acknowledgement, by the event loop."""
    world = World(tmp_path)
    world.lead()
    sync = CopiedJournal.sync
    async with world.listening(), following(world) as follower:
        follower.link.acknowledge(True)
        await until(lambda: Acknowledged(follower.node_id, 1, world.journal.end) in world.told)

        def sync_and_forbid(copied: CopiedJournal) -> int:
            lsn = sync(copied)
            trio.from_thread.run_sync(follower.link.acknowledge, False)
            return lsn

        monkeypatch.setattr(CopiedJournal, "sync", sync_and_forbid)
        del world.told[:]
        world.journal.block()
        await until(lambda: Durable(world.journal.end) in follower.told)
        await until(lambda: world.told.count(FollowerHeard(follower.node_id)) == 2)
        assert not any(isinstance(one, Acknowledged) for one in world.told)
        monkeypatch.setattr(CopiedJournal, "sync", sync)


@in_trio
async def test_acknowledgements_that_were_allowed_before_the_link_are_sent(tmp_path: Path) -> None:
    """The agreement says so once, when it names the leader."""
    world = World(tmp_path)
    world.lead()
    follower = Follower(world)
    follower.link.acknowledge(True)
    async with world.listening(), trio.open_nursery() as nursery:
        nursery.start_soon(follower.run)
        world.journal.block()
        await until(lambda: Acknowledged(follower.node_id, 1, world.journal.end) in world.told)
        await follower.stop()


@in_trio
async def test_a_node_goes_on_where_it_ended(tmp_path: Path) -> None:
    """Whether nothing, a block, a segment, or half a block is missing; ticks at its end come again."""
    world = World(tmp_path)
    world.lead()
    async with world.listening():
        for step in range(6):
            async with following(world) as follower:
                world.journal.block()
                world.journal.tick()
                await until(lambda: same(world, follower))
            if step == 1:
                world.journal.block()
            elif step == 2:
                world.journal.roll()
            elif step == 3:
                world.journal.roll()
                world.journal.block()
                world.journal.roll()
            elif step == 4:
                newest = max(segments(follower.path))
                with open(os.path.join(follower.path, f"{newest:020d}.log"), "r+b") as file:
                    file.truncate(len(segments(follower.path)[newest]) - 50)
        assert not any(isinstance(one, (JoinRefused, LeaderRefused)) for one in follower.told)
        assert sorted(os.listdir(tmp_path)) == ["leader", "n2"]


@in_trio
async def test_records_of_a_lost_leader_are_cut(tmp_path: Path) -> None:
    """They are kept in cut/ for people; the term table is the leader's."""
    world = World(tmp_path)
    world.journal.block()
    world.lead()
    async with world.listening():
        async with following(world) as follower:
            await until(lambda: same(world, follower))
        assert follower.copied is not None
        end = world.journal.end
        # The node goes on with records that nobody else has; another leads in term 2.
        lost = WrittenJournal(str(tmp_path / "lost"))
        newest = max(segments(follower.path))
        lost.end = end
        lost.path = follower.path
        lost._segment = follower_segment(follower.path, newest)
        lost.block(5)
        lost.roll()
        lost.block()
        world.journal.term(2)
        world.journal.block()
        world.lead()
        async with following(world, term=2) as follower:
            await until(lambda: same(world, follower))
            assert follower.copied is not None
            assert follower.copied.terms.starts == ((1, 1), (2, end))
            assert Joined(follower.copied.terms, end) in follower.told
            assert os.listdir(os.path.join(follower.path, "cut")) == [f"1-{end}.log"]
            assert LinkOpened(follower.node_id, end) in world.told


def follower_segment(path: str, base_lsn: int) -> Any:
    """The summary of a follower's open segment, to write on in it, where zeros are reserved."""
    segment = SegmentSummary(base_lsn)
    with opened(REAL, path, base_lsn) as handle:
        for block in SegmentScan(REAL, handle, base_lsn):
            segment.add(block)
    os.truncate(path_of(path, base_lsn), segment.size)
    return segment


@in_trio
async def test_a_node_that_the_leader_has_no_records_for_is_copied_beside(tmp_path: Path) -> None:
    """The old directory stays until the node is in sync; the copy has another node id, and acknowledges nothing."""
    world = World(tmp_path)
    links, owed = world.lead(), []
    entered = links.add

    def enter(follower: Any) -> None:
        entered(follower)
        owed.append(links.is_owed(world.journal.end))

    links.add = enter  # type: ignore[method-assign]
    async with world.listening():
        async with following(world) as follower:
            world.journal.block()
            await until(lambda: same(world, follower))
        old_id, old = follower.copied.terms.node_id, segments(follower.path)  # type: ignore[union-attr]
        for _ in range(3):
            world.journal.block()
            world.journal.roll()
        world.journal.unlink()
        world.journal.unlink()
        (tmp_path / "n2" / "readers" / "spark.json").write_text('{"lsn": 1}\n')
        del world.told[:]
        async with following(world) as follower:
            follower.link.acknowledge(True)
            await follower.ended.wait()
        assert follower.ending is Ending.COPIED and owed == [True, False]
        assert not any(isinstance(one, (LinkOpened, Acknowledged, LinkClosed)) for one in world.told)
        assert segments(str(tmp_path / "n2.old")) == old
        assert sorted(os.listdir(tmp_path)) == ["leader", "n2", "n2.old"]
        async with following(world) as follower:
            follower.link.acknowledge(True)
            await until(lambda: Acknowledged(follower.node_id, 1, world.journal.end) in world.told)
            assert follower.node_id != old_id
            assert same(world, follower)
        assert reader_offsets(str(tmp_path / "n2")) == {"spark": 1}
        assert full_copy.drop_old(str(tmp_path / "n2"))
        assert not full_copy.drop_old(str(tmp_path / "n2"))
        assert sorted(os.listdir(tmp_path)) == ["leader", "n2"]


@in_trio
async def test_a_damaged_journal_is_copied_beside(tmp_path: Path) -> None:
    """It cannot even be opened."""
    world = World(tmp_path)
    world.journal.roll()
    world.lead()
    async with world.listening():
        async with following(world) as follower:
            await until(lambda: same(world, follower))
        oldest = min(segments(follower.path))
        with open(os.path.join(follower.path, f"{oldest:020d}.log"), "r+b") as file:
            file.truncate(10)
        held = JournalSummary(JOURNAL_ID, TermTable(b"d" * 16, ((1, 1),)), 1)
        async with following(world, damaged=held) as follower:
            await follower.ended.wait()
        assert follower.ending is Ending.COPIED
        async with following(world) as follower:
            await until(lambda: same(world, follower))


@in_trio
async def test_another_journal_is_refused_and_untouched(tmp_path: Path) -> None:
    """CL12, in words."""
    world = World(tmp_path)
    world.lead()
    async with world.listening():
        async with following(world) as follower:
            world.journal.block()
            await until(lambda: same(world, follower))
        (tmp_path / "n2" / "format").write_text(
            (tmp_path / "n2" / "format").read_text().replace(JOURNAL_ID.hex(), "ab" * 16)
        )
        before = segments(follower.path)
        async with following(world) as follower:
            await until(follower.ended.is_set)
        assert follower.ending is Ending.DECLINED
        why = f"this directory belongs to another journal ({'ab' * 16}): move it away to join"
        assert follower.told == [JoinRefused(why)]
        assert segments(follower.path) == before


@in_trio
async def test_old_segments_go_when_the_leader_s_do(tmp_path: Path) -> None:
    """While the link is open, and at the next joining; not those that a reader of the follower's directory needs."""
    world = World(tmp_path)
    for _ in range(6):
        world.journal.block()
        world.journal.roll()
    links = world.lead()
    async with world.listening():
        async with following(world) as follower:
            await until(lambda: same(world, follower))
            links.unlinked([world.journal.unlink()])
            await until(lambda: same(world, follower))
        world.journal.unlink()
        async with following(world) as follower:
            await until(lambda: same(world, follower))
            kept = min(segments(follower.path))
            (tmp_path / "n2" / "readers" / "spark.json").write_text(f'{{"lsn": {kept + 1}}}\n')
            links.unlinked([world.journal.unlink(), world.journal.unlink()])
            world.journal.block()
            await until(lambda: max(segments(follower.path).items()) == max(world.journal.segments().items()))
            assert min(segments(follower.path)) == kept


@in_trio
async def test_needs_come_before_the_octets_that_need_them(tmp_path: Path) -> None:
    """At the beginning, and while the link is open."""
    world = World(tmp_path)
    world.lead().needed(frozenset({"leased queues"}))
    async with world.listening(), following(world) as follower:
        assert follower.copied is not None
        await until(lambda: follower.copied.needs == {"leased queues"})  # type: ignore[union-attr]
        world.links.needed(frozenset({"logged topics"}))  # type: ignore[union-attr]
        world.journal.block()
        await until(lambda: same(world, follower))
        assert follower.copied.needs == {"leased queues", "logged topics"}


def test_segments_are_kept_for_no_follower_of_an_earlier_leadership(tmp_path: Path) -> None:
    """Its process was killed: their readers stay in the directory; those of others do, too."""
    journal = WrittenJournal(str(tmp_path / "leader"))
    for name in ("node-b-1", "node-c-7", "spark"):
        register_reader(journal.path, name, 1)
    forget_readers(journal.path, readers_of(journal.path))
    assert reader_offsets(journal.path) == {"spark": 1}


def test_segments_are_kept_no_more_for_a_node_that_is_forgotten(tmp_path: Path) -> None:
    """And for one whose name only begins with that one's."""
    journal = WrittenJournal(str(tmp_path / "leader"))
    for name in ("node-b-1", "node-b-7", "node-b-x-2", "node-c-7"):
        register_reader(journal.path, name, 1)
    forget_readers(journal.path, readers_of(journal.path, node="b"))
    assert set(reader_offsets(journal.path)) == {"node-b-x-2", "node-c-7"}


@in_trio
async def test_an_operator_s_order_gets_to_the_follower(tmp_path: Path) -> None:
    """At once, in order; one of a later release is ignored, and a node without a link gets none."""
    world = World(tmp_path, LinkOptions(beacon_s=60, silence_s=60))
    links = world.lead()
    async with world.listening(), following(world) as follower:
        await until(lambda: same(world, follower))
        for verb in ("drain", "dance", "reload", "revive"):
            assert links.order(follower.node_id, verb)
        await until(lambda: follower.told[-2:] == [Drain(), Revive()])
        assert follower.reloads == 1
        assert not links.order(b"?" * 16, "drain")


@in_trio
async def test_a_leader_whose_segment_has_rotted_is_told_by_the_follower_that_cannot_take_it(tmp_path: Path) -> None:
    """CL20: it looks at its files, and reports the damage, at each complaint."""
    world = World(tmp_path)
    world.journal.block(2, 1000)
    world.journal.roll()
    world.journal.block()
    with open(path_of(world.journal.path, 1), "r+b") as file:
        file.seek(500)
        file.write(b"rot")
    world.lead()

    def damages() -> list[JournalDamaged]:
        return [one for one in world.told if isinstance(one, JournalDamaged)]

    async with world.listening(), following(world):
        await until(lambda: len(damages()) > 1)
    assert damages()[0].damage.segment == "00000000000000000001.log"


@in_trio
async def test_a_leader_that_cannot_read_its_journal_for_a_follower_looks_at_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The follower is told, and is not even sent octets of which it could complain."""
    world = World(tmp_path)
    world.journal.roll()
    world.lead()

    def broken(*how: object) -> tuple[int, int]:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("leveret.cluster.link.follower_links.segments_in", broken)
    with open(path_of(world.journal.path, 1), "r+b") as file:
        file.truncate(10)
    async with world.listening(), following(world) as follower:
        await until(lambda: any(isinstance(one, JournalDamaged) for one in world.told))
        await until(lambda: follower.link.why == "the leader cannot read its journal: [Errno 5] Input/output error")


@in_trio
async def test_a_link_is_closed_before_the_leader_looks_at_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That takes as long as the files are large."""
    looks, goes_on = threading.Event(), threading.Event()

    def look(*how: object) -> None:
        looks.set()
        goes_on.wait()

    def broken(*how: object) -> tuple[int, int]:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("leveret.cluster.link.follower_links.segments_in", broken)
    monkeypatch.setattr("leveret.cluster.link.follower_links.damage_in", look)
    world = World(tmp_path)
    world.lead()
    async with world.listening(), stranger(world) as follower:
        await follower.send(hello(world))
        await until(looks.is_set)
        try:
            await follower.until_closed()
        finally:
            goes_on.set()


@pytest.mark.parametrize("complains", [True, False])
@in_trio
async def test_a_complaint_about_whole_files_is_the_follower_s_trouble(
    complains: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The leader looks at them, once a minute at most. A link that just ends is no complaint."""
    looks: list[object] = []

    def look(*how: object) -> None:
        looks.append(how)

    verify, heeded = FollowerLinks._check_for_damage, list[int]()

    async def heed(links: FollowerLinks, base_lsn: int) -> None:
        await verify(links, base_lsn)
        heeded.append(base_lsn)

    monkeypatch.setattr(FollowerLinks, "_check_for_damage", heed)
    monkeypatch.setattr("leveret.cluster.link.follower_links.damage_in", look)
    world = World(tmp_path)
    world.lead()
    async with world.listening():
        for _ in range(3):
            async with stranger(world) as follower:
                await follower.send(hello(world))
                await follower.receive(Welcome, copying=True)
                if complains:
                    await follower.send(No("no block begins at 7"))
                    await follower.until_closed()
        await until(lambda: sum(isinstance(one, LinkClosed) for one in world.told) == 3)
        await until(lambda: len(heeded) == 3 * complains)
    assert len(looks) == complains and not any(isinstance(one, JournalDamaged) for one in world.told)


@in_trio
async def test_a_leader_that_cannot_find_out_its_own_figures_keeps_its_links(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its disk may be in trouble: then the followers are all that is left. It is logged once."""
    world = World(tmp_path)
    links = world.lead()

    def broken() -> dict[str, object]:
        raise OSError(5, "Input/output error")

    links.status = broken
    async with world.listening(), following(world) as follower:
        await until(lambda: sum(isinstance(one, LeaderHeard) for one in follower.told) > 2)
        assert LinkClosed(follower.node_id) not in world.told
    assert caplog.text.count("the status of this node cannot be sent: [Errno 5] Input/output error") == 1


@in_trio
async def test_a_status_that_has_no_room_in_a_frame_is_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The copy is needed all the same: at either side neither the process nor the link ends. It is logged once."""
    world = World(tmp_path)
    links = world.lead()
    links.status = lambda: {"data": "x" * 64 * 1024}
    async with world.listening(), following(world) as follower:
        follower.link._follower.status = lambda: {"data": "x" * 64 * 1024}
        await until(lambda: sum(isinstance(one, LeaderHeard) for one in follower.told) > 2)
        await until(lambda: sum(isinstance(one, FollowerHeard) for one in world.told) > 2)
        assert LinkClosed(follower.node_id) not in world.told
        assert not follower.link.leader_status and not links.statistics()[0].status
    assert caplog.text.count("the status of this node cannot be sent: Beacon of ") == 2


@in_trio
async def test_a_slow_follower_is_read_for_from_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Above the backlog nothing is kept for it in memory; it misses nothing, and comes back to live octets."""
    monkeypatch.setattr(feed_module, "NEAR", 100_000)
    world = World(tmp_path, LinkOptions(beacon_s=0.05, silence_s=20, retry_s=0.01, backlog_octets=200_000))
    links = world.lead()
    append, is_quick = CopiedJournal.append, threading.Event()

    def append_slowly(copied: CopiedJournal, *octets: Any) -> None:
        is_quick.wait()
        append(copied, *octets)

    async with world.listening(), following(world) as follower:
        follower.link.acknowledge(True)
        await until(lambda: same(world, follower))
        (only,) = links._followers.values()
        monkeypatch.setattr(CopiedJournal, "append", append_slowly)
        at = 0
        while only.feed.to_read is None or at % 10:
            world.journal.block(1, 100_000)
            if at % 40 == 39:
                world.journal.roll()
            assert only.feed.queued_octets <= 200_000
            at += 1
            if at % 10 == 0:
                await trio.lowlevel.checkpoint()
        is_quick.set()
        await until(lambda: Acknowledged(follower.node_id, 1, world.journal.end) in world.told)
        assert same(world, follower)
        await until(lambda: reader_offsets(world.journal.path) == {})
        world.journal.block()
        await until(lambda: Acknowledged(follower.node_id, 1, world.journal.end) in world.told)
        assert only.feed.to_read is None and only.feed.is_queued


@in_trio
async def test_a_node_that_does_not_lead_says_so_and_is_asked_again(tmp_path: Path) -> None:
    """Recovery waits for nobody: followers come when the leader is ready."""
    world = World(tmp_path)
    async with world.listening(), following(world) as follower:
        await until(lambda: "does not lead" in follower.link.why)
        assert follower.told == []
        world.lead()
        await until(lambda: same(world, follower))


@in_trio
async def test_a_leader_of_another_term_is_not_followed(tmp_path: Path) -> None:
    """R6: only the leader whose term was read in etcd."""
    world = World(tmp_path)
    world.lead()
    async with world.listening(), following(world, term=7) as follower:
        await until(lambda: "leads in term 1, not 7" in follower.link.why)
        assert segments(follower.path) == {}
        assert world.told == []


@in_trio
async def test_a_process_that_is_gone_is_reported(tmp_path: Path) -> None:
    """Connection refused, each time; a machine that does not answer is something else."""
    world = World(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as unused:
        world.address = Address(*unused.getsockname()[:2])
    async with following(world) as follower:
        await until(lambda: follower.told == [LeaderRefused()] * 3 or len(follower.told) > 3)
        assert set(map(type, follower.told)) == {LeaderRefused}


@in_trio
async def test_a_node_that_connects_again_replaces_its_old_link(tmp_path: Path) -> None:
    """The old one is closed and reported first: it may be half open for minutes."""
    world = World(tmp_path)
    world.lead()
    async with world.listening():
        async with stranger(world) as first, stranger(world) as second:
            for one in (first, second):
                await one.send(hello(world))
                assert isinstance(await one.receive(Welcome, copying=True), Welcome)
            await until(lambda: len(world.told) == 3)
            node = hello(world).terms.node_id
            assert world.told == [LinkOpened(node, 1), LinkClosed(node), LinkOpened(node, 1)]
            await first.until_closed()
        await until(lambda: world.told[3:] == [LinkClosed(node)])


@in_trio
async def test_a_node_that_is_back_under_another_node_id_has_not_left(tmp_path: Path) -> None:
    """After a full copy; its old link may be half open for minutes."""
    world = World(tmp_path)
    links, told = world.lead(), []
    links._on_joined = lambda name, site: told.append(f"{name} joined")
    links._on_left = lambda name: told.append(f"{name} left")
    async with world.listening():
        async with stranger(world) as second:
            async with stranger(world) as first:
                for one, terms in ((first, TermTable(b"s" * 16)), (second, TermTable(b"t" * 16))):
                    await one.send(hello(world, terms=terms))
                    await one.receive(Welcome, copying=True)
            await until(lambda: LinkClosed(b"s" * 16) in world.told)
            assert told == ["n9 joined", "n9 joined"]
        await until(lambda: LinkClosed(b"t" * 16) in world.told)
        assert told == ["n9 joined", "n9 joined", "n9 left"]


@in_trio
async def test_all_links_end_with_the_leadership(tmp_path: Path) -> None:
    """And no other begins."""
    world = World(tmp_path)
    links = world.lead()
    async with world.listening(), following(world) as follower:
        await until(lambda: same(world, follower))
        links.close_all("another node leads")
        assert world.told[-1] == LinkClosed(follower.node_id)
        count = len(world.told)
        await until(lambda: "does not lead" in follower.link.why)
        world.journal.block()
        assert len(world.told) == count


# -- strangers ---------------------------------------------------------------------------------------------------------


class Stranger:
    """A connection that a test speaks for."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.link = LinkStream(stream)
        self.stream = stream

    async def send(self, *messages: Any) -> None:
        await self.link.send(*messages)

    async def receive(self, *expected: type, copying: bool = False) -> Any:
        with trio.fail_after(120):
            while True:
                message = await self.link.receive(*expected, *([Copy] if copying else []), timeout_s=120)
                if not copying or not isinstance(message, Copy):
                    return message

    async def until_closed(self) -> None:
        with trio.fail_after(120):
            try:
                while await self.stream.receive_some(100_000):
                    pass
            except trio.BrokenResourceError:
                pass


@asynccontextmanager
async def stranger(world: World, *, proves: bool = True) -> AsyncIterator[Stranger]:
    """Connected; with the secret proven, unless told otherwise."""
    if proves:
        link = await connect(world.address, CIRCLE, None, OPTIONS)
        stream = link.stream
        assert isinstance(stream, trio.SocketStream)
    else:
        stream = await trio.open_tcp_stream(world.address.host, world.address.port)
    try:
        yield Stranger(stream)
    finally:
        await trio.aclose_forcefully(stream)


def hello(world: World, **changed: Any) -> Hello:
    """What an honest new node says."""
    said: dict[str, Any] = {
        "version": 1,
        "cluster": "orders",
        "group": 0,
        "name": "n9",
        "level": 0,
        "term": 1,
        "journal_id": None,
        "terms": TermTable(b"s" * 16),
        "end": 1,
    }
    return Hello(**{**said, **changed})


@pytest.mark.parametrize(
    "octets",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"AMQP\x00\x00\x09\x01",
        b"\x16\x03\x01\x02\x00" + bytes(512),
        bytes(100_000),
        b"\xff" * 100_000,
        encode(Prove(1, b"n" * 32, b"p" * 32)),
        encode(Prove(0, b"", b"")),
        encode(Greet(1, b"")),
        encode(Ack(1, 1)),
        encode(Proof(b"")),
        encode(Prove(1, b"", b""))[:-1],
        b"",
    ],
)
@in_trio
async def test_garbage_before_the_secret_closes_the_connection(tmp_path: Path, octets: bytes) -> None:
    """Nothing is reported, and honest nodes go on."""
    world = World(tmp_path)
    world.lead()
    async with world.listening():
        async with stranger(world, proves=False) as one:
            try:
                await one.stream.send_all(octets)
                await one.stream.send_eof()
            except (trio.BrokenResourceError, OSError):
                pass
            await one.until_closed()
        assert world.told == []
        async with following(world) as follower:
            await until(lambda: same(world, follower))


@in_trio
async def test_nothing_is_said_for_too_long(tmp_path: Path) -> None:
    """A connection that proves nothing, and one that then says nothing, make room."""
    world = World(tmp_path, LinkOptions(introduction_s=0.2))
    async with world.listening(), stranger(world, proves=False) as silent, stranger(world) as proven:
        await silent.until_closed()
        await proven.until_closed()


@in_trio
async def test_a_flood_pushes_itself_out(tmp_path: Path) -> None:
    """The oldest connection that has not said what it wants makes room for each newcomer."""
    world = World(tmp_path, LinkOptions(introductions_max=4, introduction_s=60))
    world.lead()
    async with world.listening():
        flood = [await trio.open_tcp_stream(world.address.host, world.address.port) for _ in range(20)]
        async with following(world) as follower:
            await until(lambda: same(world, follower))
        for one in flood[:16]:
            await Stranger(one).until_closed()
        for one in flood:
            await trio.aclose_forcefully(one)


REFUSED = [
    ({"cluster": "invoices"}, "belongs to cluster 'orders', group 0, not 'invoices', group 0", True),
    ({"group": 3}, "not 'orders', group 3", True),
    ({"term": 2}, "this node leads in term 1, not 2", False),
    ({"journal_id": b"x" * 16, "end": 5}, "this directory belongs to another journal", True),
]


@pytest.mark.parametrize("changed, words, is_final", REFUSED)
@in_trio
async def test_foreigners_are_told_why(tmp_path: Path, changed: dict[str, Any], words: str, is_final: bool) -> None:
    """Of another cluster, group, term, journal."""
    world = World(tmp_path)
    world.lead()
    async with world.listening(), stranger(world) as one:
        await one.send(hello(world, **changed))
        with pytest.raises(Declined, match=words) as no:
            await one.receive(Welcome)
        assert no.value.is_final is is_final
        await one.until_closed()
        assert world.told == []


@in_trio
async def test_a_leader_without_followers_names_clients_the_reason(tmp_path: Path) -> None:
    """A client that is passed on to a node that does not lead."""
    world = World(tmp_path)
    async with world.listening(), stranger(world) as one:
        await one.send(Client(1, "orders", 0, "n9", "amqp", b""))
        with pytest.raises(Declined, match="node n1 does not lead"):
            await one.receive(Welcome)


WRONG_FOLLOWERS = [
    [Ack(1, 10**9)],
    [Ack(2, 1)],
    [Octets(1, 0, b"octets")],
    [Beacon(1, 1, 1, {})],
    [No("no")],
]


@pytest.mark.parametrize("messages", WRONG_FOLLOWERS)
@in_trio
async def test_a_follower_that_says_what_it_may_not_is_closed(tmp_path: Path, messages: list[Any]) -> None:
    """An acknowledgement of what was never written, of another term; octets; a beacon."""
    world = World(tmp_path)
    world.lead()
    async with world.listening(), stranger(world) as one:
        await one.send(hello(world))
        await one.receive(Welcome, copying=True)
        await one.send(*messages)
        await one.until_closed()
        await until(lambda: LinkClosed(b"s" * 16) in world.told)
        assert not any(isinstance(told, Acknowledged) for told in world.told)


@in_trio
async def test_a_follower_that_is_not_heard_is_closed(tmp_path: Path) -> None:
    """It may be stopped, or cut off: its socket tells nothing. One that speaks but takes nothing stays."""
    world = World(tmp_path, LinkOptions(silence_s=1.5, beacon_s=0.05, backlog_octets=1_000_000))
    links = world.lead()
    async with world.listening(), stranger(world) as one:
        await one.send(hello(world))
        await one.receive(Welcome, copying=True)
        for _ in range(60):
            world.journal.block(1, 1_000_000)  # far more than the sockets hold
        began_s, heard = trio.current_time(), FollowerHeard(b"s" * 16)
        while trio.current_time() < began_s + 2 * world.options.silence_s:
            before = world.told.count(heard)
            await one.send(Status(0, {}))
            await until(lambda: world.told.count(heard) > before)  # noqa: B023
        assert LinkClosed(b"s" * 16) not in world.told
        (only,) = links._followers.values()
        assert only.feed.queued_octets <= 1_000_000
        await until(lambda: LinkClosed(b"s" * 16) in world.told)


class FakeLeader:
    """A leader that a test speaks for: `say` is called with each connection once the secret is proven."""

    def __init__(self, say: Callable[[LinkStream], Any]) -> None:
        self._say = say

    @asynccontextmanager
    async def listening(self, world: World) -> AsyncIterator[None]:
        async def serve(stream: trio.SocketStream) -> None:
            try:
                link = await accept(stream, "127.0.0.1", CIRCLE, None)
                await link.receive(Hello, timeout_s=60)
                await self._say(link)
            except (LinkFault, trio.BrokenResourceError):
                pass
            finally:
                await trio.aclose_forcefully(stream)

        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        world.address = Address(*listeners[0].socket.getsockname()[:2])
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.serve_listeners, serve, listeners)
            yield
            nursery.cancel_scope.cancel()


def welcome(**changed: Any) -> Welcome:
    said: dict[str, Any] = {
        "version": 1,
        "level": 0,
        "journal_id": JOURNAL_ID,
        "terms": TermTable(b"L" * 16, ((1, 1),)),
        "base_lsn": 1,
        "offset": 0,
        "lsn": 1,
        "oldest": 1,
        "needs": frozenset(),
    }
    return Welcome(**{**said, **changed})


WRONG_LEADERS: list[tuple[list[Any], str]] = [
    ([welcome(terms=TermTable(b"L" * 16, ((2, 1),)))], "it leads in term 2, not 1"),
    ([welcome(), Beacon(2, 1, 1, {})], "a beacon of term 2"),
    (
        [welcome(), Octets(1, 0, b"no block" * 8)],
        "no block begins at 0",
    ),
    ([welcome(), Octets(1, 7, b"octets")], "do not follow"),
    ([welcome(), Ack(1, 1)], "Ack, but No or Octets"),
    ([Octets(1, 0, b"octets")], "Octets, but No or Cut or Copy or Welcome is expected"),
    ([No("busy")], "busy"),
    ([], "the other node closed the connection"),
    ([welcome()], "the other node closed the connection"),
]


@pytest.mark.parametrize("messages, words", WRONG_LEADERS)
@in_trio
async def test_a_leader_that_says_what_it_may_not_is_left(tmp_path: Path, messages: list[Any], words: str) -> None:
    """The link is closed and tried again; nothing wrong is in the journal."""

    async def say(link: LinkStream) -> None:
        if messages:
            await link.send(*messages)
            with trio.move_on_after(0.05):  # closing at once could take away what was sent
                await trio.sleep_forever()

    world = World(tmp_path)
    async with FakeLeader(say).listening(world), following(world) as follower:
        await until(lambda: words in follower.link.why)
        assert not any(isinstance(told, Durable) for told in follower.told)
    assert not any(map(len, segments(follower.path).values()))


@in_trio
async def test_a_leader_that_is_not_heard_is_left(tmp_path: Path) -> None:
    """It was stopped after its Welcome."""

    async def say(link: LinkStream) -> None:
        await link.send(welcome())
        await trio.sleep_forever()

    world = World(tmp_path, LinkOptions(silence_s=0.2))
    async with FakeLeader(say).listening(world), following(world) as follower:
        await until(lambda: "nothing was heard for 0.2 s" in follower.link.why)


@in_trio
async def test_a_leader_that_knows_no_secret_gets_no_hello(tmp_path: Path) -> None:
    """It could be anybody who took the address."""
    heard = []

    async def serve(stream: trio.SocketStream) -> None:
        link = LinkStream(stream)
        await link.send(Greet(1, b"n" * 32))
        await link.receive(Prove, timeout_s=60)
        await link.send(Proof(b"p" * 32))
        decoder = Decoder(Hello)
        while data := await stream.receive_some(1000):
            decoder.receive(data)
            heard.extend(decoder.messages())

    world = World(tmp_path)
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    world.address = Address(*listeners[0].socket.getsockname()[:2])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, serve, listeners)
        async with following(world) as follower:
            await until(lambda: "has not proven that it knows the secret" in follower.link.why)
        assert heard == []
        nursery.cancel_scope.cancel()


@in_trio
async def test_nodes_find_out_whom_they_reach(tmp_path: Path) -> None:
    """Whoever proves the secret; refused and unreached are told apart."""
    world = World(tmp_path)
    async with world.listening():
        assert await reach(world.address, CIRCLE, None, OPTIONS) is Reach.REACHED
        other = Credentials("orders", 0, b"another secret, as long")
        assert await reach(world.address, other, None, OPTIONS) is Reach.UNREACHED
    with socket.create_server(("127.0.0.1", 0)) as unused:
        nobody = Address(*unused.getsockname()[:2])
        hasty = LinkOptions(connect_s=0.1, introduction_s=60)
        assert await reach(nobody, CIRCLE, None, hasty) is Reach.UNREACHED  # it does not answer
    assert await reach(nobody, CIRCLE, None, OPTIONS) is Reach.REFUSED
    assert await reach(Address("no such host.invalid", 1), CIRCLE, None, OPTIONS) is Reach.UNREACHED
    assert await reach(Address("192.0.2.1", 1), Credentials("orders"), None, hasty) is Reach.UNREACHED


@in_trio
async def test_a_node_without_a_free_descriptor_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It reaches nobody for now. Neither its process nor its copy of the journal is at fault."""
    world = World(tmp_path)
    async with world.listening():
        world.lead()
        with monkeypatch.context() as patches:
            patches.setattr(trio.socket, "socket", raising(OSError(errno.EMFILE, os.strerror(errno.EMFILE))))
            assert await reach(world.address, CIRCLE, None, OPTIONS) is Reach.UNREACHED
            async with following(world) as follower:
                await until(lambda: "Too many open files" in follower.link.why)
                assert "journal" not in follower.link.why
                patches.undo()
                await until(lambda: follower.link.is_open)
                assert follower.ending is None


def raising(error: Exception) -> Callable[..., Any]:
    """A function that the system refuses."""

    def refuse(*arguments: object) -> Any:
        raise error

    return refuse
