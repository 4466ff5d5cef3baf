"""A node of a simulated world: the product's `cluster/node.py` and `leading.py` in a process of its own.

The links, the coordinator and the process are models, see `models.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from copying_nodes import written
from simulated_files import SimulatedFiles

from leveret.cluster import node
from leveret.cluster.agreement import events as ev
from leveret.cluster.agreement.states import State
from leveret.cluster.copying.joining import CutTo, FullCopy, JournalSummary, Refuse, join
from leveret.cluster.link.challenge import Credentials
from leveret.cluster.link.options import Address
from leveret.cluster.options import NodeOptions
from leveret.engine import Unreadable
from leveret.journal import BadOctets, JournalFailed, JournalFull, NotInJournal, TermTable
from leveret.journal.copying.octet_reader import OctetReader, damage_in, position_of
from leveret.journal.disk.segment import path_of, segments_in
from leveret.journal.format.terms import FIRST_LSN
from leveret.testing.harness import DATA

from .etcd import SECOND
from .models import Coordinator, Listener, NodeProcess
from .node_broker import NodeBroker, NodeClock
from .process import Process

if TYPE_CHECKING:
    from .world import World

MS = 1_000_000


class Link:
    """A connection from a follower to its leader: octets in order, late, until it breaks."""

    def __init__(self, world: World, leader: Node, follower: Node, term: int) -> None:
        self.world, self.leader, self.follower, self.term = world, leader, follower, term
        self.follower_id = follower.node_id
        self.is_closed = False
        self.acknowledged = 0
        self.reader: OctetReader | None = None
        self.start = (0, 0)  # of the octets that are sent
        self._last_ns = {leader: 0, follower: 0}

    def send(self, sender: Node, action: Callable[[], object]) -> None:
        """Do something at the other end, behind all that was sent before."""
        receiver = self.follower if sender is self.leader else self.leader
        due_ns = max(self._last_ns[sender], self.world.now_ns + int(self.world.latency_ns()))
        self._last_ns[sender] = due_ns

        def arrive() -> None:
            if self.is_closed:
                return
            if not self.world.passes(sender.name, receiver.name):
                self.close(2 * SECOND)
                return
            receiver.soon(0, lambda: None if self.is_closed else action())

        self.world.at(due_ns - self.world.now_ns, arrive)

    def close(self, delay_ns: float = 0) -> None:
        """Break it; both ends hear of it within the time."""
        if not self.is_closed:
            self.is_closed = True
            chance = self.world.chance
            self.leader.soon(chance.uniform(0, delay_ns), lambda: self.leader.link_closed(self))
            self.follower.soon(chance.uniform(0, delay_ns), lambda: self.follower.link_lost(self))


class Node:
    """`files`: its disk. `broker`: of its leadership; `followed`: its journal, while a link may use it."""

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name = world, name
        self.files = SimulatedFiles()
        self.clock: Any = NodeClock(world, 0)
        self.real: node.Node | None = None
        self.process: Process | None = None
        self.broker: NodeBroker | None = None
        self.link: Link | None = None
        self.followed: Any = None
        self.backup: tuple[SimulatedFiles, int] | None = None  # an old copy of the directory, and where that ends
        self.is_rolled_back = False  # the directory is an old copy, until the leader has sent what it lacks
        self.hangs_until_ns = 0  # its disk
        self.is_alive = self.has_failed = False
        self.generation = 0
        self.paused_until_ns = 0
        self.node_id = b""
        self.promised_lsn = 0  # what it acknowledged: below that it never ends again
        self.loses_power_next = False  # when it has acknowledged something
        self._end = 1  # of the journal, when the process was killed
        self.term: int  # this and the next two: of its leadership, when it has a broker
        self.terms: TermTable
        self.journal_id: bytes

    # -- its process ------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """The process begins."""
        if self.is_alive:
            return
        self.is_alive, self.files.keeps_log = True, False
        self.broker = self.link = self.target = self.followed = None
        self.followers: dict[bytes, Link] = {}
        self.leases: dict[str, int] = {}
        self.agreed = self._connecting_ns = 0
        self.acknowledges = self._is_syncing = self._is_writing = False
        self.world.note(f"{self.name} starts")
        self.process = Process(self.world, self, self._main)
        self.soon(0, lambda: None)
        for task, seconds in ((self._beat, 0.5), (self._checkpoint, 0.7)):
            self._repeat(task, seconds)

    async def _main(self) -> None:
        self.coordinator, self.listener = Coordinator(self), Listener()
        options = NodeOptions(
            self.name, DATA, Credentials("t", 0, b"secret of this world"), {one: Address(one, 1) for one in "abc"},
            files=self.files,
        )  # fmt: skip
        self.real = node.Node(
            options,
            self.coordinator,
            self.listener,  # type: ignore[arg-type]
            NodeProcess(self),
            now_ns=lambda: self.world.now_ns,
            wall_ms=self.clock.wall_ms,
            status=self.status,
        )
        await self.real.run([])

    def status(self) -> dict[str, object]:
        """What it says of its machine."""
        capacity = self.files.capacity
        return {"disk-free": 2**40 if capacity is None else max(capacity - self.files.used, 0)}

    def soon(self, delay_ns: float, action: Callable[[], object]) -> None:
        """Do something later, if the process still runs then; if it stands still, when it goes on."""
        generation = self.generation

        def act() -> None:
            if generation != self.generation or not self.is_alive or self.process is None:
                return
            if self.world.now_ns < self.paused_until_ns:
                self.world.at(self.paused_until_ns - self.world.now_ns, act)
                return
            before = self.state
            try:
                self.process.call(action)
            except Unreadable:
                assert self.broker is not None and self.broker.is_closed
            if self.state is not before:
                self.world.note(f"{self.name}: {before.name} -> {self.state.name}")
                if self.state is State.CAMPAIGNING:
                    self.world.campaigns(self)
            copied = None if self.real is None else self.real.directory.copied
            if copied is not None and copied.terms.node_id != self.node_id:
                self._check_promise()

        self.world.at(delay_ns, act)

    def _check_promise(self) -> None:
        """The directory is open, perhaps as another node's."""
        assert self.real is not None and self.real.directory.copied is not None
        self.node_id = self.real.directory.copied.terms.node_id
        end, promised = self.real.directory.copied.end, self.promised_lsn
        assert end >= promised, f"{self.name} had acknowledged {promised}, and ends at {end} after its start"

    def kill(self, *, power: bool) -> None:
        """The process ends at once."""
        process, self.process, self._end = self.process, None, self.durable_lsn
        self.world.note(f"{self.name} is killed{', its power is gone' if power else ''}")
        self.is_alive = self.loses_power_next = False
        self.generation += 1
        self.paused_until_ns = 0
        if self.broker is not None:
            self.broker.is_closed = True
            self.broker = None
        self.files = self.files.power_cut(self.world.chance) if power else self.files.crash()
        for link in (*self.followers.values(), *([self.link] if self.link else [])):
            link.close(5 * MS)
        self.node_id = b""
        self.real = None
        if process is not None:
            process.kill()

    def back_up(self) -> None:
        """Keep a copy of the directory."""
        if self.is_alive and self.real is not None:
            self.backup = self.files.crash(), self.durable_lsn

    def put_back(self) -> None:
        """The directory of this node, which is dead, is an old copy."""
        assert self.backup is not None
        self._end = self.backup[1]
        self.world.note(f"{self.name} has an old copy of its directory, which ends at {self._end}")
        self.files, self.promised_lsn, self.is_rolled_back = self.backup[0].crash(), 0, True

    def _repeat(self, task: Callable[[], object], seconds: float) -> None:
        def again() -> None:
            task()
            self.soon(seconds * SECOND, again)

        self.soon(self.world.chance.random() * seconds * SECOND, again)

    def hang(self, length_ns: float) -> None:
        """Nothing is written or fsynced for a while."""
        self.world.note(f"the disk of {self.name} hangs for {length_ns / SECOND} s")
        self.hangs_until_ns = self.world.now_ns + int(length_ns)

    @property
    def _hang_ns(self) -> int:
        """How long the disk hangs yet."""
        return max(self.hangs_until_ns - self.world.now_ns, 0)

    def pause(self, length_ns: float) -> None:
        """The process stands still."""
        if self.is_alive:
            self.world.note(f"{self.name} stands still for {length_ns / SECOND} s")
            self.paused_until_ns = max(self.paused_until_ns, self.world.now_ns + int(length_ns))
            generation = self.generation

            def wake() -> None:
                """First it sees how late it is: what a client had sent before may be answered (CL04)."""
                if generation == self.generation and not self.is_paused:
                    self.handle(ev.Tick())

            self.world.at(int(length_ns), wake)

    @property
    def is_paused(self) -> bool:
        return self.world.now_ns < self.paused_until_ns

    # -- what the world asks ----------------------------------------------------------------------------------------

    @property
    def copied(self) -> Any:
        """Its journal, while a link may write to it."""
        return None if self.has_failed else self.followed

    @property
    def directory(self) -> Any:
        """Its journal, while it does not lead."""
        return None if self.real is None else self.real.directory.copied

    @property
    def state(self) -> State:
        return State.STARTING if self.real is None or not hasattr(self.real, "agreement") else self.real.agreement.state

    @property
    def durable_lsn(self) -> int:
        if self.broker is not None:
            return int(self.broker.journal.durable_lsn)
        if self.real is None:
            return self._end
        directory = self.real.directory
        if directory.copied is not None:
            return directory.copied.end
        return directory.summary.end if hasattr(directory, "held") else self._end

    def handle(self, event: ev.Event) -> None:
        """Tell the product's node."""
        assert self.real is not None
        if isinstance(event, ev.Acknowledged | ev.FollowerHeard | ev.LinkOpened | ev.LinkClosed | ev.FollowerRefused):
            if self.real.leading is not None:
                links: Any = self.real.leading.links  # a model
                if isinstance(event, ev.Acknowledged) and links is not None:
                    links.acknowledged[event.node_id] = event.lsn
                self._tell_of_link(event)
                self.real.leading._tell(event)
        elif not isinstance(event, ev.Tick):
            self.real._link_reported(event)
        elif self.process is not None:  # it stood still: its tasks see how late it is before a client is read
            self.process.call(lambda: None)

    def _tell_of_link(self, event: ev.Event) -> None:
        assert self.real is not None and self.real.leading is not None
        links: Any = self.real.leading.links
        if links is not None and isinstance(event, ev.LinkOpened):
            links.opened(self.followers[event.node_id].follower)
        elif links is not None and isinstance(event, ev.LinkClosed):
            links.lost(event.node_id)

    def look(self) -> None:
        """A watch says that keys have changed."""
        if self.is_alive and self.real is not None:
            self.soon(0, self.coordinator.tell)

    def hand_over(self) -> None:
        """An operator's wish."""
        self.soon(0, lambda: self.real is None or self.real.handle(ev.HandOver()))

    # -- etcd -------------------------------------------------------------------------------------------------------

    def ask(
        self, work: Callable[[], Any], done: Callable[[Any, int], object], failed: Callable[[bool], object]
    ) -> None:
        """A request. `failed(is_in_doubt)`: it was not sent, or no answer came in time; it may be done yet."""
        world, asked_ns, is_over = self.world, self.world.now_ns, False

        def once(action: Callable[[], object]) -> None:
            nonlocal is_over
            if not is_over:
                is_over = True
                action()

        if not world.reaches(self.name, "etcd"):
            self.soon(100 * MS, lambda: failed(False))
            return

        def arrive() -> None:
            if not world.passes(self.name, "etcd"):
                return
            answer = work()
            if world.chance.random() >= world.loses_answers and world.passes("etcd", self.name):
                self.soon(world.etcd_latency_ns(), lambda: once(lambda: done(answer, asked_ns)))

        world.at(world.etcd_latency_ns(), arrive)
        self.soon(2 * SECOND, lambda: once(lambda: failed(True)))

    # -- following --------------------------------------------------------------------------------------------------

    def tell_fsynced(self) -> None:
        """Acknowledge what is on the disk, if that is allowed."""
        link, copied = self.link, self.copied
        if link is None or copied is None or not self.acknowledges or link.is_closed or copied.end <= link.acknowledged:
            return
        lsn = link.acknowledged = copied.end
        self.world.check_acknowledgement(self, link.term)
        self._promise(lsn)
        event = ev.Acknowledged(self.node_id, link.term, lsn)
        link.send(self, lambda: link.leader.handle(event))
        if self.loses_power_next:
            self.world.at(self.world.chance.uniform(0, 2) * MS, lambda: self.world.kill(self, power=True))

    def _promise(self, lsn: int) -> None:
        self.promised_lsn = max(self.promised_lsn, lsn)

    def _connect(self) -> None:
        """Try to join the leader."""
        world, target = self.world, self.target
        if target is None or self.link is not None or self.copied is None or world.now_ns < self._connecting_ns:
            return
        leader = world.nodes[target.name]
        if leader is self or not world.reaches(self.name, leader.name):
            return
        self._connecting_ns = world.now_ns + SECOND
        held, generation = (
            JournalSummary(self.copied.journal_id, self.copied.terms, self.copied.sync()),
            self.generation,
        )

        def arrive() -> None:
            if not world.reaches(self.name, leader.name):
                return
            if leader.is_alive:
                leader.soon(0, lambda: leader.answer(self, generation, held, target.term))
            else:
                self._connecting_ns = 0
                self.soon(world.latency_ns(), lambda: self.handle(ev.LeaderRefused()))

        world.at(world.latency_ns(), arrive)

    def joined(self, link: Link, terms: TermTable, cut_lsn: int | None, oldest: int) -> None:
        """The leader's welcome."""
        try:
            self._join(link, terms, cut_lsn)
        except (JournalFull, JournalFailed) as error:
            self.lack_room(link, error)

    def lack_room(self, link: Link | None, error: JournalFull | JournalFailed) -> None:
        """The disk is full, or has failed: the link is tried again later; if it failed, with the directory anew."""
        self.world.note(f"{self.name}: {error}")
        self.has_failed = self.has_failed or isinstance(error, JournalFailed)
        if link is not None:
            link.close()

    def _join(self, link: Link, terms: TermTable, cut_lsn: int | None) -> None:
        copied, world = self.copied, self.world
        if copied is None or self.link is not None or self.target is None or self.target.term != link.term:
            link.close()
            return
        if copied.journal_id is None:
            copied.begin(link.leader.journal_id)
        copied.upgrade()
        if cut_lsn is not None:
            insync = world.etcd.view().insync
            is_whole = insync is not None and self.node_id in insync.nodes and not self.is_rolled_back
            assert not is_whole or cut_lsn >= world.agreed_lsn, "agreed is cut"
            world.note(f"{self.name} cuts from {cut_lsn}, its end was {copied.end}")
            self.promised_lsn = min(self.promised_lsn, cut_lsn)
            copied.cut(cut_lsn)
        if copied.end > FIRST_LSN and copied.position != link.start:
            link.close()  # the answer to an older request than that of the link before
            return
        copied.set_terms(copied.terms.with_starts_of(terms))
        self.link = link
        self.is_rolled_back = False
        self.handle(ev.Joined(copied.terms, copied.end))
        self.tell_fsynced()

    def take(self, link: Link, base_lsn: int, offset: int, octets: bytes) -> None:
        """Octets of the leader."""
        if link is self.link and self.copied is not None:
            try:
                self.copied.append(base_lsn, offset, octets)
            except (JournalFull, JournalFailed) as error:
                self.lack_room(link, error)
                return
            except BadOctets as error:
                self.world.note(f"{self.name}: {error}")
                self.copied.sync()
                link.close()
                link.leader.soon(MS, lambda: link.leader.verify(link))
                return
            self.sync_soon()

    def verify(self, link: Link) -> None:
        """A follower cannot take what this leader sends: look for damage, as the product does."""
        leading = None if self.real is None else self.real.leading
        if self.broker is None or self.broker.is_closed or leading is None:
            return
        damage = damage_in(DATA, link.start[0], written(self.broker.journal), self.files)
        if damage is not None:
            self.world.note(f"{self.name}: {damage}")
            self.soon(0, lambda: leading._tell(ev.JournalDamaged(damage)))

    def sync_soon(self) -> None:
        """Fsync what came, when the disk has time."""
        if not self._is_syncing:
            self._is_syncing = True
            self.soon(self.world.chance.uniform(1, 4) * MS + self._hang_ns, self._sync)

    def _sync(self) -> None:
        if self._hang_ns:
            self.soon(self._hang_ns, self._sync)
            return
        self._is_syncing = False
        if self.copied is not None:
            try:
                end = self.copied.sync()
            except (JournalFull, JournalFailed) as error:
                self.lack_room(self.link, error)
                return
            self.handle(ev.Durable(end))
            self.tell_fsynced()

    def drop(self, link: Link, base_lsns: list[int]) -> None:
        """The leader deleted segments."""
        if link is self.link and self.copied is not None:
            try:
                self.copied.sync()
                self.copied.unlink(base_lsns)
            except (JournalFull, JournalFailed) as error:
                self.lack_room(link, error)

    def link_lost(self, link: Link) -> None:
        """The follower's end of a link."""
        if self.link is link:
            self.link = None

    # -- leading ----------------------------------------------------------------------------------------------------

    def write_soon(self) -> None:
        """The journal's thread writes, when the disk has time."""
        if not self._is_writing:
            self._is_writing = True
            self.soon(self.world.chance.uniform(1, 4) * MS + self._hang_ns, self._write)

    def _write(self) -> None:
        if self._hang_ns:
            self.soon(self._hang_ns, self._write)
            return
        self._is_writing = False
        if self.broker is not None and not self.broker.is_closed:
            while self.broker.journal.writer.run_once():
                pass

    def _written(self, base_lsn: int, offset: int, octets: bytearray, end_lsn: int) -> None:
        self.soon(0, self._pump)

    def _unlinked(self, base_lsns: Any) -> None:
        gone = list(base_lsns)

        def tell() -> None:
            for link in self.followers.values():
                link.send(self, lambda link=link: link.follower.drop(link, gone))  # type: ignore[misc]

        self.soon(0, tell)

    def answer(self, follower: Node, generation: int, held: JournalSummary, term: int) -> None:
        """A follower wants to join."""
        broker, links = self.broker, None if self.real is None else self.listener.links
        if links is None or links.is_closed or broker is None or broker.is_closed or term != self.term:
            return
        file = broker.journal.writer.file
        oldest = segments_in(self.files, DATA)[0]
        answer = join(JournalSummary(self.journal_id, self.terms, file.written_lsn), oldest, held, wants_copy=False)
        assert not isinstance(answer, Refuse), answer.why
        cut_lsn = answer.lsn if isinstance(answer, CutTo) else None
        position = (oldest, 0)
        if not isinstance(answer, FullCopy):
            if follower.copied is not None and follower.copied.end == held.end:  # else this request is an old one
                self._check_common(follower, answer.lsn)
            try:
                position = position_of(DATA, answer.lsn, self.files)
            except NotInJournal as error:
                answer = FullCopy(is_beside=True, why=str(error))
        if isinstance(answer, FullCopy) and answer.is_beside:
            self.world.at(self.world.latency_ns(), lambda: follower.wipe(generation))
            return
        lsn = oldest if isinstance(answer, FullCopy) else answer.lsn
        link = Link(self.world, self, follower, term)
        link.reader, link.start = OctetReader(DATA, *position, self.files), position
        if (former := self.followers.get(follower.node_id)) is not None:
            former.close()
            self.handle(ev.LinkClosed(follower.node_id))
        self.followers[link.follower_id] = link
        self.handle(ev.LinkOpened(link.follower_id, lsn))
        terms = self.terms
        link.send(self, lambda: follower.joined(link, terms, cut_lsn, oldest))
        self._pump()

    def wipe(self, generation: int) -> None:
        """A full copy: this node begins anew with an empty directory, as another node."""
        if generation == self.generation and self.is_alive:
            self.world.note(f"{self.name} gets a full copy")
            self.kill(power=False)
            self.files = SimulatedFiles()
            self.promised_lsn, self.backup = 0, None
            self.world.at(8 * SECOND, self.start)

    def _pump(self) -> None:
        broker = self.broker
        if broker is None:
            return
        end = written(broker.journal)
        for link in list(self.followers.values()):
            reader = link.reader
            assert reader is not None
            try:
                while (piece := reader.read(end, self.world.chance.randint(1, 9000))) is not None:
                    base_lsn, offset, octets = piece
                    is_cut = self.world.is_stormy and len(octets) > 1 and self.world.chance.random() < 0.002
                    if is_cut:
                        piece = base_lsn, offset, octets[: self.world.chance.randint(1, len(octets) - 1)]
                    link.send(self, lambda link=link, piece=piece: link.follower.take(link, *piece))  # type: ignore[misc]
                    if is_cut:  # the connection breaks within a block
                        self.world.note(f"{link.follower.name} gets only the beginning of a piece")
                        link.send(self, link.close)
                        break
            except NotInJournal:
                link.close()
                self.verify(link)

    def link_closed(self, link: Link) -> None:
        """The leader's end of a link."""
        if self.followers.get(link.follower_id) is link:
            del self.followers[link.follower_id]
            self.handle(ev.LinkClosed(link.follower_id))

    def _beat(self) -> None:
        if self.broker is not None and not self.broker.is_closed:
            wall_ms, term, agreed = self.clock.wall_ms(), self.term, self.agreed
            for link in list(self.followers.values()):
                link.send(self, lambda link=link: link.follower.hear(link, term, agreed, wall_ms))  # type: ignore[misc]
        link = self.link
        if link is not None:
            heard = ev.FollowerHeard(self.node_id)
            link.send(self, lambda: link.leader.handle(heard))

    def hear(self, link: Link, term: int, agreed: int, wall_ms: int) -> None:
        """A beacon of the leader."""
        if link is self.link:
            self.agreed = max(self.agreed, agreed)
            if self.copied is not None:
                self.handle(ev.Durable(self.copied.end))
            self.handle(ev.LeaderHeard(term, agreed, (wall_ms - self.clock.wall_ms()) * MS))

    def agrees(self, lsn: int) -> None:
        """Everything below `lsn` is agreed."""
        self.agreed = max(self.agreed, lsn)
        broker, world = self.broker, self.world
        if broker is None or broker.is_closed:
            return
        world.agreed_lsn = max(world.agreed_lsn, lsn)
        if world.chance.random() < 0.05:
            self.keep_agreed()
        self.soon(0, lambda: world.release_awaiting(broker))

    def _checkpoint(self) -> None:
        broker = self.broker
        if broker is not None and broker.answers:
            if self.world.chance.random() < 0.3:
                broker.checkpoint()
            _, end = broker.journal.old_segments._turns.checkpoint
            gone = broker.journal.old_segments.reclaim()
            agreed = self.world.agreed_lsn
            assert not gone or end <= agreed, f"a checkpoint up to {end} frees segments, and {agreed} is agreed"
            broker.journal.tick()
            self.write_soon()

    # -- books ------------------------------------------------------------------------------------------------------

    def keep_agreed(self) -> None:
        """What is agreed now has what was agreed before, octet for octet."""
        assert self.broker is not None
        agreed_lsn = self.broker.journal.committed_lsn
        if agreed_lsn <= 1:
            return
        base, offset = position_of(DATA, agreed_lsn, self.files)
        for one in segments_in(self.files, DATA):
            if one > base or (one == base and not offset):
                break
            if self.world.is_rotten(self, one):
                continue
            octets = self.files.content(path_of(DATA, one))[: offset if one == base else None]
            before = self.world.agreed_octets.get(one, b"")
            assert octets.startswith(before) or before.startswith(octets), f"{self.name}: agreed octets of {one} differ"
            self.world.agreed_octets[one] = max(before, octets, key=len)

    def _check_common(self, follower: Node, lsn: int) -> None:
        """A follower that goes on at a record has what the leader has before it, octet for octet (R8)."""
        try:
            base, offset = position_of(DATA, lsn, follower.files)
            mine = position_of(DATA, lsn, self.files)
        except NotInJournal as error:
            if lsn >= segments_in(self.files, DATA)[0]:
                raise AssertionError(f"{follower.name} goes on at {lsn}: {error}") from error
            return
        assert mine == (base, offset), f"{follower.name} goes on at {lsn}, behind other blocks than {self.name} has"
        for one in segments_in(self.files, DATA):
            if (one < base or (one == base and offset)) and not self.world.is_rotten(base=one):
                path, end = path_of(DATA, one), offset if one == base else None
                theirs = follower.files.content(path)[:end] if path in follower.files.names_now else None
                same = theirs is None or self.files.content(path)[:end].startswith(theirs.rstrip(b"\0"))
                assert same, f"{follower.name} goes on at {lsn}, and differs from {self.name} before it, in {one}"

    def compare(self, agreed: dict[int, bytes]) -> None:
        """This node has what is agreed."""
        for base in segments_in(self.files, DATA):
            if self.world.is_rotten(self, base):
                continue
            assert self.files.content(path_of(DATA, base)).startswith(agreed.get(base, b"")), f"{self.name}: {base}"
