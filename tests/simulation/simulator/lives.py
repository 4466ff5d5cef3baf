"""One broker after the other on one disk: how each comes to its end, and what is there for the next."""

from __future__ import annotations

from random import Random
from typing import Protocol

from leveret.configured.configured import Report
from leveret.engine import Unreadable
from leveret.journal.recovery.check import verify
from leveret.serving.composition import DataUnusable
from leveret.settings import Configuration

from .accounts import check_sums
from .audit import audit
from .books import Books
from .clients.knowledge import Knowledge
from .disk import DATA, Disk, Struck
from .fingerprint import Fingerprint
from .host import Host
from .invariants import Invariants
from .ledger import Broken, Ledger
from .loop import SimulatedClock, now_ns, pass_time
from .network import Network
from .objects import Objects
from .parts import NORMAL_PACE
from .past import Past
from .plan import Plan
from .rehearsals import Rehearsals

#: Ends after which what was not synced may be gone.
LOSES_POWER = ("power cut", "struck")
#: Journals of more octets are not audited after each restart.
AUDITED_MAX = 2_000_000


class Ground(Protocol):
    """A world, as far as brokers live in it."""

    disk: Disk
    network: Network
    clock: SimulatedClock
    configuration: Configuration
    ledger: Ledger
    objects: Objects
    fingerprint: Fingerprint
    books: Books
    knowledge: Knowledge
    host: Host | None
    past: Past | None
    plan: Plan

    def chance(self, name: str) -> Random:
        """Chance for one purpose."""

    def note(self, text: str) -> None:
        """Something that two runs of one seed have in common."""


class Lives:
    """`goes_on`: whether another broker starts when one has ended. `rots_next`: damage comes with the next end."""

    def __init__(self, world: Ground) -> None:
        self._world = world
        self._chance = world.chance("host")
        self.invariants = Invariants(world.plan.checked, world.chance("invariants"))
        self.rehearsals = Rehearsals(world, world.chance("rehearsals"))
        self._sites = world.chance("sites of brokers")
        self.goes_on = True
        self.rots_next: Random | None = None
        self._written_lsn = 0  # by the last one

    async def run(self) -> None:
        """One life after the other. Raises: Broken."""
        while self.goes_on:
            host = self._start()
            if host is not None:
                await host.run()
                self._ended(host)
            await pass_time(self._chance.random() * NORMAL_PACE / self._world.plan.pace)
        self._audit(is_last=True)

    def _happened(self, what: str) -> None:
        self._world.note(what)
        self._world.knowledge.happened[what] += 1

    def _count_strike(self) -> None:
        disk = self._world.disk
        if disk.struck_before:
            self._world.knowledge.happened[f"struck before: {disk.struck_before}"] += 1
            disk.struck_before = ""

    def _start(self) -> Host | None:
        """None: it was not to be."""
        world = self._world
        disk = world.disk
        disk.begin()
        disk.strike = lambda: None
        world.network.gone.clear()
        groups = world.plan.sites
        try:
            host = Host(
                disk,
                world.network,
                world.clock,
                self._chance,
                world.configuration,
                happened=world.knowledge.happened,
                site=self._sites.choice(list(groups)) if groups else "",
                groups=groups,
                reload=self._reload,
                on_turn=self._turn_ended,
            )
        except Struck:
            self._happened("broker: struck while it started")
            self._count_strike()
            (disk.cut_power if self._chance.random() < 0.5 else disk.lose_process)()
            return None
        except (DataUnusable, Unreadable) as error:
            self._happened(f"start refused: {type(error.__cause__).__name__}")
            if not disk.is_troubled:
                raise Broken(f"a start was refused without a reason: {error}") from error
            disk.lose_process()
            disk.repair()
            return None
        disk.started()
        world.host = host
        written_lsn = None if disk.has_lost_power else self._written_lsn
        world.ledger.attach(host.broker, written_lsn)
        world.objects.attach(host.broker, written_lsn)
        if world.past is not None:
            self._happened(f"past: {world.plan.past}")
            world.past.check_objects(host.broker)
            world.past = None
        world.ledger.committed_lsn = lambda: host.supervisor.journal.committed_lsn
        self._audit()
        host.broker.context.listeners.append(world.fingerprint)
        if written_lsn is not None:
            world.books.survived(written_lsn)
        world.books.attach(host.broker)
        world.books.deaths.are_due(world.ledger.died)
        self.invariants.attach(host.broker)
        disk.has_lost_power = False
        return host

    def _audit(self, *, is_last: bool = False) -> None:
        """What is in the journal is what the new broker has, or the last one had."""
        disk = self._world.disk
        if disk.is_rotten or (not is_last and disk.size > AUDITED_MAX and self._chance.random() < 0.8):
            return
        self._world.knowledge.happened["audit"] += 1
        with disk.looked_at() as files:
            found = audit(files)
        self._world.ledger.compare_audit(found)

    def _turn_ended(self, host: Host) -> None:
        journal, is_unfinished = host.supervisor.journal, host.broker.is_unfinished
        ends = journal.next_lsn, journal.durable_lsn
        self._world.ledger.turn_ended(*ends, is_unfinished=is_unfinished or host.is_giving_up)
        self._world.objects.turn_ended(*ends, is_unfinished=is_unfinished)
        if host.is_giving_up:
            return
        if self.invariants.turn_ended(host.broker) and self._world.network.accept is not None:
            check_sums(host)
            self._world.books.flow.check_used()
        if not is_unfinished:
            if journal.committed_lsn < journal.next_lsn:
                self._world.knowledge.unsafe_ns = now_ns()
            takes_nothing = host.supervisor.recorder.takes_nothing
            self._world.books.recorded(journal.next_lsn, journal.durable_lsn, takes_nothing=takes_nothing)
            self._world.books.turn_ended()
            self.rehearsals.turn_ended(host)

    def _reload(self) -> Report:
        host = self._world.host
        assert host is not None
        host.configuration = self._world.configuration
        return host.built.objects.apply(host.configuration)

    def _ended(self, host: Host) -> None:
        disk, how = self._world.disk, host.ended_by
        self._happened(f"broker: {how}")
        self._count_strike()
        if how in ("directory lost", "unreadable") and not disk.is_troubled:
            raise Broken(f"the broker ended without a reason: {how}")
        self._written_lsn = host.supervisor.journal.writer.file.written_lsn
        (disk.cut_power if how in LOSES_POWER else disk.lose_process)()
        disk.repair()
        if self.rots_next is not None:
            self._rot(self.rots_next)
            self.rots_next = None

    def _rot(self, chance: Random) -> None:
        """In a segment that is sealed, so that it can be told from what a crash left."""
        disk = self._world.disk
        path = disk.rot(chance)
        if path is None:
            self._happened("no segment could rot")
            return
        self._happened("a segment is rotten")
        with disk.looked_at() as files:
            is_seen = bool(verify(DATA, files).faults)
        if not is_seen:
            raise Broken(f"nobody sees that an octet of {path} is wrong")
