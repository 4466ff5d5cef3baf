"""A node of a simulated world: the product's agreement and journal, driven as `leveret.cluster.node` drives them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

from owners_book import OwnersBook
from simulated_files import SimulatedFiles

from leveret.cluster.agreement import decisions as do
from leveret.cluster.agreement import events as ev
from leveret.cluster.agreement.agreement import Agreement
from leveret.cluster.agreement.states import State
from leveret.cluster.agreement.timers import Timers
from leveret.cluster.agreement.view import Node as Identity
from leveret.cluster.agreement.view import NodeKey
from leveret.cluster.copying.joining import CutTo, FullCopy, Held, Refuse, join
from leveret.journal import (
    BadOctets,
    ClusterJournal,
    Journal,
    JournalFailed,
    JournalFull,
    JournalOptions,
    NotInJournal,
    TermTable,
)
from leveret.journal.copying.copied_journal import CopiedJournal
from leveret.journal.copying.octet_reader import OctetReader, position_of
from leveret.journal.disk.segment import path_of, segments_in
from leveret.journal.format.terms import FIRST_LSN
from leveret.testing.harness import DATA, Harness

from .etcd import SECOND
from .queues import KINDS

if TYPE_CHECKING:
    from .world import World

MS = 1_000_000
SMALL = JournalOptions(segment_size=20_000, preallocate_size=0)


class NodeBroker(Harness):
    """The broker of a leadership. Its journal writes when the node's disk has time for it."""

    took_over = True

    def __init__(self, node: Node, cluster: ClusterJournal) -> None:
        self.node, self.cluster, self.term = node, cluster, node.term
        self.is_served = self.is_suspended = self.is_held = self.is_closed = False
        self.book: OwnersBook | None = None
        self._due_ns: int | None = None
        sites = node.world.sites
        options = {} if sites is None else sites.options_of(node.name)
        super().__init__(journal=node.files, journal_options=SMALL, clock=node.clock, **options)

    def _open_journal(self) -> None:
        self.journal = Journal.open(DATA, self.clock, SMALL, files=self.files, threaded=False, cluster=self.cluster)
        self.recorder = self._make_recorder(self.broker, self.journal)
        self.recorder.hold_deliveries()

    def write_journal(self) -> None:
        self.journal.commit()
        self.node.write_soon()

    def end_turn(self) -> None:
        super().end_turn()
        if self.book is not None:
            self.book.turn_ended(self.journal.next_lsn, self.recorder.safe_lsn)
            self._plan_due()

    def _plan_due(self) -> None:
        """Have what is due done in time, unless the process stands still then."""
        due_ns, now_ns = self.broker.next_deadline_ns(), self.node.world.now_ns
        if due_ns is not None and (self._due_ns is None or due_ns < self._due_ns):
            self._due_ns = due_ns
            self.node.soon(max(due_ns - now_ns, 0), lambda: self._do_due(due_ns))

    def _do_due(self, due_ns: int) -> None:
        if self._due_ns == due_ns and self.node.broker is self and not self.is_closed:
            self._due_ns = None
            if self.is_suspended:
                self._due_ns = self.node.world.now_ns + 50 * MS
                self.node.soon(50 * MS, lambda: self._do_due(self._due_ns or 0))
            else:
                self.end_turn()

    def close_as_follower(self) -> None:
        """Write nothing more, and unlock the directory."""
        self.recorder.fail(for_good=True)
        assert self.journal.abandon()
        self.broker.context.storage.close()

    @property
    def is_connected(self) -> bool:
        """Whether clients are connected to it."""
        return not self.is_closed

    @property
    def answers(self) -> bool:
        """Whether it reads from clients and sends to them."""
        return self.is_served and not self.is_suspended and not self.is_closed


class NodeClock:
    """A machine's clock: what is monotonic is the world's time, its wall clock differs."""

    def __init__(self, world: World, difference_ms: int) -> None:
        self._clock, self.difference_ms = world.clock, difference_ms

    def monotonic_ns(self) -> int:
        return self._clock.monotonic_ns()

    def wall_ms(self) -> int:
        return self._clock.wall_ms() + self.difference_ms


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
    """`files`: its disk. `broker`: of its leadership; `copied`: while it does not lead."""

    looks_for_room = False  # when its disk is full and it leads
    tells_sites = False  # what nodes say of their sites, to the broker that leads
    PERFORM: ClassVar[dict[type[Any], Callable[[Node, Any], None]]] = {}

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name = world, name
        self.files = SimulatedFiles()
        self.clock: Any = NodeClock(world, 0)
        self.backup: tuple[SimulatedFiles, int] | None = None  # an old copy of the directory, and where that ends
        self.is_put_back = False  # the directory is an old copy, until the leader has sent what it lacks
        self.becomes_another = False  # at its next start
        self.hangs_since_ns = self.hangs_until_ns = 0  # its disk
        self.is_alive = self.has_failed = False
        self.generation = 0
        self.paused_until_ns = 0
        self.node_id = b""
        self.promised_lsn = 0  # what it acknowledged, or said of its own disk: below that it never ends again
        self.loses_power_next = False  # when it has acknowledged something

    def start(self) -> None:
        """The process begins."""
        if self.is_alive:
            return
        self.is_alive = True
        self.files.keeps_log = False
        self.broker: NodeBroker | None = None
        self.copied: CopiedJournal | None = CopiedJournal.open(
            DATA, files=self.files, node_id=self.world.chance.randbytes(16), is_put_back=self.becomes_another
        )
        self.becomes_another = False
        self.node_id = self.copied.terms.node_id
        end, promised = self.copied.end, self.promised_lsn
        assert end >= promised, f"{self.name} had acknowledged {promised}, and ends at {end} after its start"
        self.agreed = 0
        self.link: Link | None = None
        self.followers: dict[bytes, Link] = {}
        self.target: Any = None
        self._connecting_ns = 0
        self.acknowledges = False
        self.leases: dict[str, int] = {}
        self._was_stalled = False
        self._may_register = self._is_reading = self._is_syncing = self._is_writing = self._is_handling = False
        self._events: deque[ev.Event] = deque()
        self._tick_ns: int | None = None
        identity = Identity(
            self.name, self.node_id, f"{self.name}:1", 1, 2, frozenset("abc"), self.world.chance.randbytes(16)
        )
        copied = self.copied
        self.agreement = Agreement(identity, Timers(), copied.terms, copied.end, copied.journal_id, self.world.now_ns)
        self.world.note(f"{self.name} starts at {copied.end} {copied.terms.starts}")
        self.handle(ev.Tick())
        for task, seconds in (
            (self._beat, 0.5), (self._renew, 2), (self.register, 2), (self._connect, 0.1), (self._checkpoint, 0.7),
            (self._look_at_disk, 0.5),
        ):  # fmt: skip
            self._repeat(task, seconds)

    def _repeat(self, task: Callable[[], object], seconds: float) -> None:
        def again() -> None:
            task()
            self.soon(seconds * SECOND, again)

        self.soon(self.world.chance.random() * seconds * SECOND, again)

    def soon(self, delay_ns: float, action: Callable[[], object]) -> None:
        """Do something later, if the process still runs then; if it stands still, when it goes on."""
        generation = self.generation

        def act() -> None:
            if generation != self.generation or not self.is_alive:
                return
            if self.world.now_ns < self.paused_until_ns:
                self.world.at(self.paused_until_ns - self.world.now_ns, act)
                return
            action()

        self.world.at(delay_ns, act)

    def kill(self, *, power: bool) -> None:
        """The process ends at once."""
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

    def back_up(self) -> None:
        """Keep a copy of the directory."""
        if self.is_alive:
            self.backup = self.files.crash(), self.durable_lsn

    def put_back(self) -> None:
        """The directory of this node, which is dead, is an old copy."""
        assert self.backup is not None
        self.world.note(f"{self.name} has an old copy of its directory, which ends at {self.backup[1]}")
        self.files, self.promised_lsn, self.is_put_back = self.backup[0].crash(), 0, True

    def hang(self, length_ns: float) -> None:
        """Nothing is written or fsynced for a while."""
        self.world.note(f"the disk of {self.name} hangs for {length_ns / SECOND} s")
        self.hangs_since_ns = self.world.now_ns
        self.hangs_until_ns = self.world.now_ns + int(length_ns)

    @property
    def _hang_ns(self) -> int:
        """How long the disk hangs yet."""
        return max(self.hangs_until_ns - self.world.now_ns, 0)

    @property
    def _is_stalled(self) -> bool:
        return bool(self._hang_ns) and self.world.now_ns >= self.hangs_since_ns + 5 * SECOND

    def _look_at_disk(self) -> None:
        if self._is_stalled != self._was_stalled and (self.broker is not None or self._was_stalled):
            self._was_stalled = self._is_stalled
            self.handle(ev.DiskStalled() if self._is_stalled else ev.DiskRecovered())

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

    @property
    def state(self) -> State:
        return self.agreement.state

    @property
    def directory(self) -> CopiedJournal | None:
        """Its journal, while it does not lead."""
        return self.copied

    @property
    def durable_lsn(self) -> int:
        if self.broker is not None:
            return int(self.broker.journal.durable_lsn)
        assert self.copied is not None
        return self.copied.end

    # -- the agreement ----------------------------------------------------------------------------------------------

    def handle(self, event: ev.Event) -> None:
        """Tell the agreement, and do what it decides."""
        self._events.append(event)
        if self._is_handling:
            return
        self._is_handling = True
        before = self.state
        try:
            while self._events:
                for decision in self.agreement.handle(self._events.popleft(), self.world.now_ns):
                    self.PERFORM[type(decision)](self, decision)
        finally:
            self._is_handling = False
        if self.state is not before:
            self.world.note(f"{self.name}: {before.name} -> {self.state.name}")
            if self.state is State.CAMPAIGNING:
                self.world.campaigns(self)
        self._plan_tick()

    def _plan_tick(self) -> None:
        due_ns = self.agreement.next_ns()
        if due_ns is None:
            return
        due_ns = max(due_ns, self.world.now_ns + MS)
        if self._tick_ns is None or due_ns < self._tick_ns:
            self._tick_ns = due_ns
            self.soon(due_ns - self.world.now_ns, lambda: self._tick(due_ns))

    def _tick(self, due_ns: int) -> None:
        if self._tick_ns == due_ns:
            self._tick_ns = None
            self.handle(ev.Tick())

    # -- etcd -------------------------------------------------------------------------------------------------------

    def _ask(
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

    def look(self) -> None:
        """A watch says that keys have changed."""
        if self.is_alive:
            self._ask(
                self.world.etcd.view,
                lambda view, asked_ns: self.handle(ev.Read(view, asked_ns)),
                lambda _: self.soon(SECOND / 2, self.look),
            )

    def _read(self, decision: do.ReadKeys) -> None:
        if self._is_reading:
            return
        self._is_reading = True

        def done(view: Any, asked_ns: int) -> None:
            self._is_reading = False
            self.handle(ev.Read(view, asked_ns))

        self._ask(self.world.etcd.view, done, lambda _: setattr(self, "_is_reading", False))

    def _transact(self, decision: do.Transact) -> None:
        transaction = decision.transaction

        def done(answer: Any, asked_ns: int) -> None:
            is_done, lease, view = answer
            if lease:
                self.leases["leader"] = lease
            self.handle(ev.Answered(transaction, is_done, view, asked_ns))

        def failed(is_in_doubt: bool) -> None:
            self.handle(ev.InDoubt(transaction) if is_in_doubt else ev.Answered(transaction, False))

        self._ask(lambda: self.world.etcd.transact(transaction), done, failed)

    def _end_lease(self, decision: do.EndLease) -> None:
        lease = self.leases.pop("leader", None)
        if lease is not None:
            self._ask(lambda: self.world.etcd.revoke(lease), lambda *_: None, lambda _: None)

    def _renew(self) -> None:
        for name, lease in list(self.leases.items()):
            if name == "leader" and self.broker is not None and self._is_stalled:
                continue

            def renewed(is_kept: bool, asked_ns: int, name: str = name, lease: int = lease) -> None:
                if is_kept and name == "leader":
                    self.handle(ev.LeaseRenewed(asked_ns))
                elif not is_kept and self.leases.get(name) == lease:
                    del self.leases[name]

            self._ask(lambda lease=lease: self.world.etcd.renew(lease), renewed, lambda _: None)  # type: ignore[misc]

    def _may(self, decision: do.Register) -> None:
        self._may_register = True
        self.register()

    def register(self) -> None:
        """Write this node's key."""
        if not self._may_register:
            return
        world = self.world
        others = frozenset(
            name for name, node in world.nodes.items()
            if node is not self and world.reaches(self.name, name) and node.is_alive and not node.is_paused
        )  # fmt: skip
        copied = self.copied
        terms = self.terms if copied is None else copied.terms
        journal_id = self.journal_id if copied is None else copied.journal_id
        key = NodeKey(
            self.name, self.node_id, f"{self.name}:1", journal_id, terms.last_term, self.durable_lsn, 1, reaches=others
        )
        etcd = world.etcd

        def work() -> int:
            lease = self.leases.get("node", 0)
            if not etcd.renew(lease):
                lease = etcd.grant(6 * SECOND)
            return lease if etcd.register(key, lease) else 0

        def done(lease: int, asked_ns: int) -> None:
            if lease:
                self.leases["node"] = lease

        self._ask(work, done, lambda _: None)

    # -- following --------------------------------------------------------------------------------------------------

    def _follow(self, decision: do.Follow) -> None:
        self.target = decision.leader
        if self.link is not None:
            self.link.close()
            self.link = None

    def _acknowledge(self, decision: do.Acknowledge) -> None:
        self.acknowledges = decision.is_on
        self.tell_fsynced()

    def _become_another(self, decision: do.BecomeAnother) -> None:
        """It ends, and begins with another id."""
        generation = self.generation

        def begin() -> None:
            if generation == self.generation and self.is_alive:
                self.kill(power=False)
                self.becomes_another = True
                self.world.at(5 * MS, self.start)

        self.world.at(0, begin)

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
        held, generation = Held(self.copied.journal_id, self.copied.terms, self.copied.sync()), self.generation

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
            is_whole = insync is not None and self.node_id in insync.nodes and not self.is_put_back
            assert not is_whole or cut_lsn >= world.agreed_lsn, "agreed is cut"
            world.note(f"{self.name} cuts from {cut_lsn}, its end was {copied.end}")
            self.promised_lsn = min(self.promised_lsn, cut_lsn)
            copied.cut(cut_lsn)
        if copied.end > FIRST_LSN and copied.position != link.start:
            link.close()  # the answer to an older request than that of the link before
            return
        copied.set_terms(copied.terms.with_starts_of(terms))
        self.link = link
        self.is_put_back = False
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
        """A follower cannot take what this leader sends."""

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

    def _take_over(self, decision: do.TakeOver) -> None:
        if self.link is not None:
            self.link.close()
            self.link = None
        self.files.capacity = None  # an operator made room
        self.soon(self.world.chance.uniform(5, 40) * MS + self._hang_ns, lambda: self._open_broker(decision))

    def _open_broker(self, decision: do.TakeOver) -> None:
        copied = self.copied
        if copied is None or self.state is not State.TAKING_OVER:
            return
        if copied.journal_id is None:
            copied.begin(decision.journal_id)
        copied.upgrade()
        copied.set_terms(copied.terms.with_term(decision.term, copied.sync()))
        self.terms, self.journal_id, self.term = copied.terms, decision.journal_id, decision.term
        self.copied = None
        cluster = ClusterJournal(copied.hand_over(), self.agreed or 1, self._written, self._synced, self._unlinked)
        self.broker = broker = NodeBroker(self, cluster)
        self.world.leads(self)
        self.handle(ev.Durable(broker.journal.durable_lsn))
        self.handle(ev.TookOver(self.terms, broker.journal.next_lsn))

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

    def _synced(self, lsn: int) -> None:
        self._promise(lsn)
        self.soon(0, lambda: self.handle(ev.Durable(lsn)))

    def _unlinked(self, base_lsns: Any) -> None:
        gone = list(base_lsns)

        def tell() -> None:
            for link in self.followers.values():
                link.send(self, lambda link=link: link.follower.drop(link, gone))  # type: ignore[misc]

        self.soon(0, tell)

    def answer(self, follower: Node, generation: int, held: Held, term: int) -> None:
        """A follower wants to join."""
        broker = self.broker
        if broker is None or broker.is_closed or term != self.term:
            return
        file = broker.journal.writer.file
        oldest = segments_in(self.files, DATA)[0]
        answer = join(Held(self.journal_id, self.terms, file.written_lsn), oldest, held, wants_copy=False)
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
        end = broker.journal.written_position
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
            self.soon(20 * MS, lambda: self._look_closely(link))

    def _look_closely(self, link: Link) -> None:
        follower = link.follower
        if not follower.is_alive and self.world.reaches(self.name, follower.name) and self.broker is not None:
            self.handle(ev.FollowerRefused(link.follower_id))

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

    def _agree(self, decision: do.Agree) -> None:
        self.agreed = max(self.agreed, decision.lsn)
        broker = self.broker
        if broker is None or broker.is_closed:
            return
        broker.journal.agree(decision.lsn)
        self.world.agreed_lsn = max(self.world.agreed_lsn, decision.lsn)
        if self.world.chance.random() < 0.05:
            self.keep_agreed()
        self.soon(0, lambda: self.world.more_is_safe(broker))

    def _hold(self, decision: do.Hold) -> None:
        self._serve(is_held=True)

    def _go_on(self, decision: do.GoOn) -> None:
        self._serve(is_held=False)

    def _serve(self, *, is_held: bool) -> None:
        broker = self.broker
        assert broker is not None
        broker.is_held, broker.is_suspended = is_held, False
        if not broker.is_served:
            broker.is_served = True
            self.world.served_term, self.world.served_ns = self.term, self.world.now_ns
            for name in self.world.queues:
                broker.queue(name, **KINDS[name].arguments)
            broker.end_turn()

    def _suspend(self, decision: do.Suspend) -> None:
        if self.broker is not None:
            self.broker.is_suspended = True

    def _quiesce(self, decision: do.Quiesce) -> None:
        broker = self.broker
        if broker is not None:
            broker.is_suspended = True
            self.soon(MS, lambda: self.handle(ev.Quiesced(broker.journal.next_lsn)))

    def _resign(self, decision: do.Resign) -> None:
        self.world.note(f"{self.name} resigns: {decision.why}")
        if self.broker is not None:
            self.broker.is_closed = True
        for link in list(self.followers.values()):
            link.close()
        self.followers.clear()
        self.soon(self.world.chance.uniform(1, 50) * MS + self._hang_ns, self._reopen)

    def _reopen(self) -> None:
        if self.broker is not None:
            self.broker.close_as_follower()
            self.broker = None
        if self.copied is None:
            self.copied = CopiedJournal.open(DATA, files=self.files)
        self.handle(ev.Reopened(self.copied.terms, self.copied.end))

    def hand_over(self) -> None:
        """An operator's wish."""
        self.soon(0, lambda: self.handle(ev.HandOver()))

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

    def _refuse(self, decision: do.Refuse) -> None:
        raise AssertionError(f"{self.name} refuses: {decision.why}")

    def _keep_lead(self, decision: do.HandoverRefused) -> None:
        self.world.note(f"{self.name} leads on: {decision.why}")

    def _say(self, decision: do.Note) -> None:
        self.world.note(f"{self.name}: {decision.text}")

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


Node.PERFORM = {
    do.Register: Node._may,
    do.ReadKeys: Node._read,
    do.Transact: Node._transact,
    do.EndLease: Node._end_lease,
    do.Follow: Node._follow,
    do.Acknowledge: Node._acknowledge,
    do.BecomeAnother: Node._become_another,
    do.TakeOver: Node._take_over,
    do.Agree: Node._agree,
    do.Hold: Node._hold,
    do.GoOn: Node._go_on,
    do.Suspend: Node._suspend,
    do.Quiesce: Node._quiesce,
    do.Resign: Node._resign,
    do.Refuse: Node._refuse,
    do.HandoverRefused: Node._keep_lead,
    do.Note: Node._say,
}
