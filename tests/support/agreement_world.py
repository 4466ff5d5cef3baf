"""A small model of a cluster around the pure agreement: etcd, the links and the journals, one action at a time.

A world is a value: every action makes another one. Its machines are values, too, in the exploration (`Interned`), or
live objects in random walks (`Live`). Records are told apart by the term that wrote them: one leader writes a term, so
(term, LSN) names a record. The record `CHECKPOINT` frees those before it.

The invariants are checked where they could break; `Broken` says which one did.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass, replace
from enum import Enum
from typing import Any, NamedTuple

from leveret.cluster.agreement import decisions as d
from leveret.cluster.agreement import events as e
from leveret.cluster.agreement.agreement import Agreement
from leveret.cluster.agreement.timers import Timers
from leveret.cluster.agreement.view import (
    AGREED,
    INSYNC,
    JOURNAL,
    LEADER,
    AgreedKey,
    InSync,
    Leader,
    NodeIdentity,
    Purpose,
    Transaction,
    View,
)
from leveret.journal.format.terms import TermTable

JOURNAL_ID = b"j" * 16
#: Of each node of a world.
MIN_IN_SYNC = 2
#: LSN of the record that is a checkpoint, whoever writes it.
CHECKPOINT = 2


class Broken(AssertionError):
    """An invariant does not hold."""


def node_id(index: int) -> bytes:
    """Id of a node of the world."""
    return bytes([97 + index]) * 16


def index_of(one: bytes) -> int:
    """The inverse."""
    return one[0] - 97


def name_of(index: int) -> str:
    """Name of a node of the world."""
    return chr(97 + index)


# -- etcd -------------------------------------------------------------------------------------------------------------


def revisions(view: View) -> dict[str, int]:
    """mod_revisions of the keys that are there."""
    found = {JOURNAL: 1 if view.journal else 0, INSYNC: view.insync.revision if view.insync else 0}
    return {
        **found,
        LEADER: view.leader.revision if view.leader else 0,
        AGREED: view.agreed.revision if view.agreed else 0,
    }


@dataclass(frozen=True, slots=True, eq=False)
class KnownView(View):
    """A view of which there is but one object, so that it compares and hashes at no cost."""

    __hash__ = object.__hash__
    __eq__ = object.__eq__


def carry_out(view: View, transaction: Transaction) -> tuple[bool, View]:
    """What etcd does."""
    if not transaction.fits(revisions(view)):
        return False, view
    revision = view.revision + 1
    changes: dict[str, Any] = {"revision": revision}
    for key, value in transaction.puts:
        changes[key] = replace(value, revision=revision) if isinstance(value, InSync | Leader | AgreedKey) else value
    for key in transaction.deletes:
        changes[key] = None
    return True, replace(view, **changes)


# -- machines ---------------------------------------------------------------------------------------------------------


class Live:
    """Machines that change in place, on one clock."""

    def __init__(self, nodes: list[NodeIdentity], timers: Timers) -> None:
        self.nodes, self.timers, self.now_ns = nodes, timers, 10**9

    def start(self, index: int, starts: tuple, end: int, has_journal: bool) -> Any:
        """A process begins."""
        terms = TermTable(node_id(index), starts)
        journal_id = JOURNAL_ID if has_journal else None
        return Agreement(self.nodes[index], self.timers, terms, end, journal_id, self.now_ns)

    def handle(self, machine: Any, event: e.Event) -> tuple[Any, list[d.Decision]]:
        """Tell it."""
        return machine, machine.handle(event, self.now_ns)

    def tick(self, machine: Any) -> tuple[Any, list[d.Decision]]:
        """Its time may have come."""
        return self.handle(machine, e.Tick())

    def of(self, machine: Any) -> Agreement:
        """The machine itself."""
        return machine


#: In the exploration the time stands still: what would come by time comes at any moment, by an event. A member without
#: a link is overdue at once; whatever only bounds duplicates or traffic never comes.
NEVER = 10**12
EXPLORED = Timers(
    lease_ns=0,
    beacon_ns=0,
    suspend_after_ns=NEVER,
    ack_deadline_ns=NEVER,
    join_patience_ns=0,
    resign_after_ns=NEVER,
    refused_within_ns=NEVER,
    preferred_first_ns=0,
    progress_ns=NEVER,
    grow_within_ns=-1,
)
#: What does not change what a machine does next, with these timers.
_IDLE = {"owed_lsn", "mark_lsn", "noted", "reason", "told"}


class Interned:
    """Machines by number: each state of a machine is computed once, and each step from it."""

    def __init__(self, nodes: list[NodeIdentity]) -> None:
        self.nodes = nodes
        self.states: list[Agreement] = []
        self.prints: list[Any] = []
        self.numbers: dict[Any, int] = {}
        self.steps: dict[tuple[int, e.Event], tuple[int, list[d.Decision]]] = {}

    def start(self, index: int, starts: tuple, end: int, has_journal: bool) -> int:
        """A process begins."""
        terms = TermTable(node_id(index), starts)
        return self._number(Agreement(self.nodes[index], EXPLORED, terms, end, JOURNAL_ID, 0))

    def _number(self, machine: Agreement) -> int:
        key = print_of(machine)
        number = self.numbers.get(key)
        if number is None:
            number = self.numbers[key] = len(self.states)
            self.states.append(machine)
            self.prints.append(key)
        return number

    def handle(self, machine: int, event: e.Event) -> tuple[int, list[d.Decision]]:
        """Tell a copy."""
        found = self.steps.get((machine, event))
        if found is None:
            after = copied(self.states[machine], {})
            decisions = after.handle(event, 0)
            found = self.steps[machine, event] = self._number(after), decisions
        return found

    def tick(self, machine: int) -> tuple[int, list[d.Decision]]:
        """Its time may have come."""
        return self.handle(machine, e.Tick())

    def of(self, machine: int) -> Agreement:
        """The machine itself, not to be changed."""
        return self.states[machine]


def _attributes(value: Any) -> tuple[str, ...]:
    if is_dataclass(value):
        return tuple(one.name for one in fields(value))
    return getattr(value, "__slots__", None) or tuple(vars(value))


def _is_settled(value: Any) -> bool:
    """Whether it is never changed, so that copies may share it."""
    if value is None or isinstance(value, int | str | bytes | tuple | frozenset | Enum | float):
        return True
    return is_dataclass(value) and value.__dataclass_params__.frozen


def copied(value: Any, known: dict[int, Any]) -> Any:
    """A copy of a machine: parts that are shared stay shared."""
    if _is_settled(value):
        return value
    if id(value) in known:
        return known[id(value)]
    if isinstance(value, list):
        return [copied(one, known) for one in value]
    if isinstance(value, set):
        return set(value)
    if isinstance(value, dict):
        return {key: copied(one, known) for key, one in value.items()}
    other = known[id(value)] = object.__new__(type(value))
    for name in _attributes(value):
        setattr(other, name, copied(getattr(value, name), known))
    return other


_SHARED = ("context", "follower")


def print_of(value: Any, named: Callable[[Any], Any] | None = None) -> Any:
    """All that a machine is but its times, hashable. `named`: what stands for a value that is never changed."""
    if isinstance(value, dict):
        return tuple(sorted((print_of(key, named), print_of(one, named)) for key, one in value.items()))
    if isinstance(value, set):
        return tuple(sorted(print_of(one, named) for one in value))
    if isinstance(value, list):
        return tuple(print_of(one, named) for one in value)
    if _is_settled(value):
        return value if named is None else named(value)
    known: list[Any] = [type(value).__name__]
    for name in _attributes(value):
        one = getattr(value, name)
        if name == "refusals_ns":
            known.append(len(one))
        elif not name.endswith("_ns") and name not in _IDLE and (name not in _SHARED or type(value) is Agreement):
            known.append(print_of(one, named))
    return tuple(known)


# -- the world --------------------------------------------------------------------------------------------------------

SENT, DONE, UNDONE = "sent", "done", "undone"


class Place(NamedTuple):
    """One node: its machine, its disk, its end of the link to the leader."""

    machine: Any = None  # None: the process is dead
    journal: tuple[int, ...] = ()  # the term that wrote each record
    synced: int = 0  # how many of them are fsynced
    starts: tuple[tuple[int, int], ...] = ()  # the term table
    floor: int = 0  # records before this LSN are deleted
    has_journal: bool = True
    wants: tuple[int, int] | None = None  # (leader, term) to follow
    is_joined: bool = False
    acks: bool = False
    ack: tuple[int, int, int] | None = None  # (leader, term, LSN): on its way while the link is closed already
    sent: tuple[Transaction, str, View | None] | None = None  # a transaction on its way, or its answer
    wins: int = 0  # a term that was won, the broker not yet running
    leads: int = 0  # term of the broker that runs
    agreed: int = 0  # as its machine decided, while it leads
    closing: bool = False  # its broker is to be closed
    holds: bool = False  # publishers are blocked, or the broker is suspended
    wants_read: bool = False
    quiet: bool = False  # nothing is written: the lead is handed over
    is_registered: bool = False


class World(NamedTuple):
    """All nodes, etcd, what is agreed, and how much may still happen."""

    places: tuple[Place, ...]
    etcd: View
    late: frozenset[Transaction] = frozenset()  # in doubt: they may still be done
    agreed: tuple[int, ...] = ()  # all records that were ever agreed
    top: int = 0  # the highest term in which something was agreed
    writes: int = 0
    crashes: int = 0
    breaks: int = 0
    losses: int = 0
    changes: int = 10**9


class Rules(NamedTuple):
    """Rules that the edge has to keep, so that a test can break them: agreement_faults.py."""

    acknowledges_after_fsync: bool = True
    cuts: bool = True
    deletes_what_is_agreed: bool = True
    notes_its_term: bool = True  # in its term table, before the first record


class Model:
    """The actions of a world. Each returns the world afterwards, or None when it is not possible."""

    def __init__(self, machines: Any, rules: Rules = Rules(), last_term: int = 10**9, block: int = 1) -> None:  # noqa: B008
        self.machines, self.rules, self.last_term = machines, rules, last_term
        self.block = block  # records of one write
        self.is_live = isinstance(machines, Live)
        self.views: dict[Any, View] = {}

    def known(self, view: View) -> View:
        """The one object for it, in the exploration."""
        if self.is_live:
            return view
        key = (view.revision, view.insync, view.leader, view.agreed, view.preferred)
        found = self.views.get(key)
        if found is None:
            found = self.views[key] = KnownView(**{one.name: getattr(view, one.name) for one in fields(view)})
        return found

    # -- telling a machine --

    def tell(self, world: World, index: int, *told: e.Event) -> World:
        """Events to one node; its decisions are carried out at once, but for what waits in flight."""
        for event in told:
            place = world.places[index]
            if type(event) is e.Tick:
                machine, decided = self.machines.tick(place.machine)
            else:
                machine, decided = self.machines.handle(place.machine, event)
            world = put(world, index, machine=machine)
            for decision in decided:
                world = CARRY_OUT[type(decision)](self, world, index, decision)
        return world

    def _transact(self, world: World, index: int, decision: d.Transact) -> World:
        world = self._forget_sent(world, index)  # what is on its way is of a leadership that is over
        return put(world, index, sent=(decision.transaction, SENT, None))

    def _end_lease(self, world: World, index: int, decision: d.EndLease) -> World:
        return world  # `expire` may come at any time

    def _follow(self, world: World, index: int, decision: d.Follow) -> World:
        leader = decision.leader
        wants = None if leader is None else (index_of(leader.node_id), leader.term)
        return put(self.part(world, index), index, wants=wants)

    def part(self, world: World, index: int) -> World:
        """The link of a follower is closed. Its last acknowledgement may be on its way, to a leader that knows less."""
        place = world.places[index]
        after = put(world, index, is_joined=False, ack=self.left_behind(world, index, place))
        return after if self.is_live or not place.is_joined else self.notice(after, index, place)

    def notice(self, world: World, index: int, place: Place) -> World:
        """The leader finds the link closed: in the exploration at once, as what follows may still take its time."""
        host, term = place.wants if place.wants is not None else (index, 0)
        leader = world.places[host]
        if host == index or leader.machine is None or leader.leads != term:
            return world
        return self.tell(world, host, e.LinkClosed(node_id(index)))

    def left_behind(self, world: World, index: int, place: Place) -> tuple[int, int, int] | None:
        """The acknowledgement that is on its way when a link is closed, if it can tell its leader anything."""
        ack = self.acknowledgement(place) or place.ack
        if ack is None:
            return None
        leader = world.places[ack[0]]
        if leader.machine is None or leader.leads != ack[1]:
            return None
        member = self.machines.of(leader.machine).leadership.members.by_id.get(node_id(index))
        return ack if member is not None and member.is_linked and member.acked_lsn < ack[2] else None

    def acknowledgement(self, place: Place) -> tuple[int, int, int] | None:
        """What a follower acknowledges, if it does."""
        if not (place.is_joined and place.acks) or place.wants is None:
            return None
        count = place.synced if self.rules.acknowledges_after_fsync else len(place.journal)
        return (*place.wants, count + 1)

    def _acknowledge(self, world: World, index: int, decision: d.Acknowledge) -> World:
        place = world.places[index]
        return put(world, index, acks=decision.is_on, ack=self.left_behind(world, index, place))

    def _take_over(self, world: World, index: int, decision: d.TakeOver) -> World:
        return put(world, index, wins=decision.term)

    def _level_raised(self, world: World, index: int, decision: d.LevelRaised) -> World:
        insync = world.etcd.insync
        if insync is None or insync.level < decision.level:
            raise Broken(f"{name_of(index)} writes what needs level {decision.level}, and etcd has {insync}")
        return world

    def _agree(self, world: World, index: int, decision: d.Agree) -> World:
        place = world.places[index]
        count = decision.lsn - 1
        if count > place.synced:
            raise Broken(f"{name_of(index)} agrees to {count} records and has fsynced {place.synced}")
        records = place.journal[:count]
        common = min(count, len(world.agreed))
        if records[:common] != world.agreed[:common]:
            raise Broken(f"{name_of(index)} agrees to {records}, and {world.agreed} were agreed")
        world = put(world, index, agreed=decision.lsn)
        if count > len(world.agreed):
            if place.leads < world.top:
                raise Broken(f"{name_of(index)} confirms in term {place.leads} after the leader of {world.top} did")
            world = world._replace(agreed=records, top=place.leads)
            self.check_members(world)
        return world

    def _resign(self, world: World, index: int, decision: d.Resign) -> World:
        return put(world, index, leads=0, wins=0, closing=True, agreed=0, quiet=False)

    def _hold(self, world: World, index: int, decision: d.Hold) -> World:
        return put(world, index, holds=True, quiet=False) if self.is_live else world

    def _go_on(self, world: World, index: int, decision: d.Resume) -> World:
        return put(world, index, holds=False, quiet=False) if self.is_live else world

    def _suspend(self, world: World, index: int, decision: d.Suspend) -> World:
        return put(world, index, holds=True) if self.is_live else world

    def _quiesce(self, world: World, index: int, decision: d.Quiesce) -> World:
        return put(world, index, quiet=True) if self.is_live else world

    def _read_keys(self, world: World, index: int, decision: d.ReadKeys) -> World:
        return put(world, index, wants_read=True) if self.is_live else world

    def _register(self, world: World, index: int, decision: d.Register) -> World:
        return put(world, index, is_registered=True) if self.is_live else world

    def _rejoin_as_new(self, world: World, index: int, decision: d.RejoinAsNew) -> World:
        raise Broken(f"{name_of(index)} gives its place in the set away, and no disk was rolled back")

    def _nothing(self, world: World, index: int, decision: d.Decision) -> World:
        return world

    # -- what is true of all nodes --

    def check_members(self, world: World) -> None:
        """Every node of the set has everything that was agreed, fsynced."""
        insync = world.etcd.insync
        for one in insync.nodes if insync is not None else ():
            place = world.places[index_of(one)]
            if place.journal[: min(place.synced, len(world.agreed))] != world.agreed:
                had = place.journal[: place.synced]
                raise Broken(f"{name_of(index_of(one))} is in the set with {had}, and {world.agreed} were agreed")

    def check_size(self, before: View, after: View) -> None:
        """The set never shrinks below two nodes, which is `min-in-sync` here."""
        counts = [len(one.insync.nodes) if one.insync is not None else 0 for one in (before, after)]
        if counts[1] < min(counts[0], MIN_IN_SYNC):
            raise Broken(f"the set shrinks from {counts[0]} nodes to {counts[1]}")

    def check_floor(self, world: World, index: int) -> None:
        """What a node deleted is in a checkpoint that it has."""
        place = world.places[index]
        if place.floor > len(place.journal):
            raise Broken(f"{name_of(index)} deleted what is before {place.floor}, and has {place.journal}")

    # -- etcd --

    def apply(self, world: World, index: int) -> World | None:
        """etcd carries out the transaction of a node; the answer is on its way."""
        sent = world.places[index].sent
        if sent is None or sent[1] != SENT or not self._is_within(world, sent[0]):
            return None
        is_done, after = self._carry_out(world, sent[0])
        return put(after, index, sent=(sent[0], DONE if is_done else UNDONE, after.etcd))

    def apply_late(self, world: World, transaction: Transaction) -> World | None:
        """A transaction whose sender has given up, or is dead, arrives after all."""
        if not self._is_within(world, transaction):
            return None
        world = world._replace(late=world.late - {transaction})
        return self._carry_out(world, transaction)[1]

    def _is_within(self, world: World, transaction: Transaction) -> bool:
        if transaction.purpose in (Purpose.SHRINK, Purpose.GROW):
            return world.changes > 0
        return transaction.purpose is not Purpose.CAMPAIGN or transaction.put(LEADER).term <= self.last_term

    def _carry_out(self, world: World, transaction: Transaction) -> tuple[bool, World]:
        before = world.etcd
        is_done, view = carry_out(before, transaction)
        if not is_done:
            return False, world
        if transaction.purpose is Purpose.CAMPAIGN:
            one = transaction.put(LEADER).node_id
            if before.insync is None or one not in before.insync.nodes:
                raise Broken(f"{name_of(index_of(one))} leads from outside the set")
        late = frozenset(other for other in world.late if other.fits(revisions(view)))
        world = world._replace(etcd=self.known(view), late=late)
        if transaction.purpose in (Purpose.SHRINK, Purpose.GROW):
            world = world._replace(changes=world.changes - 1)
            self.check_size(before, view)
        self.check_members(world)
        return True, world

    def answer(self, world: World, index: int) -> World | None:
        """The answer comes."""
        sent = world.places[index].sent
        if sent is None or sent[1] == SENT or world.places[index].machine is None:
            return None
        world = put(world, index, sent=None)
        return self.tell(world, index, e.Answered(sent[0], sent[1] == DONE, sent[2], None))

    def lose(self, world: World, index: int) -> World | None:
        """The answer never comes; the transaction is done already, or may be done later."""
        sent = world.places[index].sent
        if sent is None or world.places[index].machine is None:
            return None
        world = self._forget_sent(world, index)._replace(losses=world.losses - 1)
        return self.tell(world, index, e.InDoubt(sent[0]))

    def _forget_sent(self, world: World, index: int) -> World:
        sent = world.places[index].sent
        if sent is not None and sent[1] == SENT and sent[0].fits(revisions(world.etcd)):
            world = world._replace(late=world.late | {sent[0]})
        return put(world, index, sent=None)

    def expire(self, world: World) -> World | None:
        """The lease of `leader` is over, at any time: clocks may be wrong."""
        leader = world.etcd.leader
        if leader is None or leader.term >= self.last_term:
            return None
        view = replace(world.etcd, revision=world.etcd.revision + 1, leader=None)
        late = frozenset(one for one in world.late if one.fits(revisions(view)))
        return world._replace(etcd=self.known(view), late=late)

    def read(self, world: World, index: int) -> World | None:
        """A node reads all keys."""
        if world.places[index].machine is None:
            return None
        return self.tell(put(world, index, wants_read=False), index, e.Read(world.etcd, 0))

    def tick(self, world: World, index: int) -> World | None:
        """The clock of a node goes on."""
        return None if world.places[index].machine is None else self.tell(world, index, e.Tick())

    # -- the leader --

    def take_over(self, world: World, index: int) -> World | None:
        """The term goes into the table, the journal is recovered, the broker runs."""
        place = world.places[index]
        if not place.wins or place.machine is None:
            return None
        is_overtaken = place.wins < world.top  # it slept since it won: nobody will acknowledge anything to it
        if not is_overtaken and place.journal[: len(world.agreed)] != world.agreed:
            raise Broken(f"{name_of(index)} leads with {place.journal}, and {world.agreed} were agreed")
        terms = TermTable(node_id(index), place.starts).with_term(place.wins, len(place.journal) + 1)
        starts = terms.starts if self.rules.notes_its_term else place.starts
        changes = {"wins": 0, "leads": place.wins, "starts": starts, "synced": len(place.journal)}
        world = put(world, index, **changes, has_journal=True, holds=False, quiet=False)
        end = len(place.journal) + 1
        return self.tell(world, index, e.Durable(end), e.TookOver(terms))

    def write(self, world: World, index: int) -> World | None:
        """The leader writes a block of records."""
        place = world.places[index]
        if not place.leads or place.machine is None or place.quiet:
            return None
        journal = (*place.journal, *(place.leads,) * self.block)
        return put(world._replace(writes=world.writes - 1), index, journal=journal)

    def sync(self, world: World, index: int) -> World | None:
        """A node fsyncs what it has written; a follower acknowledges that."""
        place = world.places[index]
        if place.machine is None or place.synced == len(place.journal):
            return None
        world = put(world, index, synced=len(place.journal))
        return self.tell(world, index, e.Durable(len(place.journal) + 1))

    def delete(self, world: World, index: int) -> World | None:
        """The leader deletes what its checkpoint frees, and tells the followers."""
        place = world.places[index]
        covered = place.agreed - 1 if self.rules.deletes_what_is_agreed else place.synced
        if not place.leads or place.machine is None or place.floor or covered < CHECKPOINT:
            return None
        return put(world, index, floor=CHECKPOINT)

    def unlink(self, world: World, index: int) -> World | None:
        """A follower deletes what its leader deleted."""
        place, leader = world.places[index], self.leader_of(world, index)
        if leader is None or place.floor >= leader.floor or place.synced < leader.floor:
            return None
        return put(world, index, floor=leader.floor)

    # -- followers --

    def leader_of(self, world: World, index: int) -> Place | None:
        """The leader that this node has joined, while both run."""
        place = world.places[index]
        if place.machine is None or not place.is_joined or place.wants is None:
            return None
        leader = world.places[place.wants[0]]
        return leader if leader.machine is not None and leader.leads == place.wants[1] else None

    def join(self, world: World, index: int) -> World | None:
        """HELLO, CUT, WELCOME: the follower's journal becomes a beginning of the leader's."""
        place = world.places[index]
        if place.machine is None or place.wants is None or place.is_joined:
            return None
        host, term = place.wants
        leader = world.places[host]
        if leader.machine is None or leader.leads != term:
            return None
        theirs = TermTable(node_id(host), leader.starts)
        table = TermTable(node_id(index), place.starts)
        end = len(place.journal) + 1
        if place.has_journal:
            common = table.common_end(theirs, end, len(leader.journal) + 1) if self.rules.cuts else end
        else:
            common = 1
        same = common_length(place.journal, world.agreed)
        if common <= leader.floor and common < end or common <= leader.floor and end == 1:
            kept, floor = leader.journal, leader.floor  # a full copy
        else:
            kept, floor = place.journal[: common - 1], place.floor
            if len(kept) < same:
                raise Broken(f"{name_of(index)} cuts {place.journal} to {kept}, and {world.agreed} were agreed")
        if kept != leader.journal[: len(kept)]:
            raise Broken(f"{name_of(index)} goes on from {kept}, and its leader has {leader.journal}")
        terms = table.with_starts_of(theirs)
        disk = {"journal": kept, "synced": len(kept), "starts": terms.starts, "floor": floor, "has_journal": True}
        world = put(world, index, is_joined=True, ack=None, **disk)
        self.check_floor(world, index)
        self.check_members(world)
        lsn = len(kept) + 1
        world = self.tell(world, index, e.Joined(terms, lsn))
        return self.tell(world, host, e.LinkOpened(node_id(index), lsn))

    def copy(self, world: World, index: int) -> World | None:
        """All that the leader has comes, and is written."""
        place, leader = world.places[index], self.leader_of(world, index)
        if leader is None or len(place.journal) >= len(leader.journal):
            return None
        if place.journal != leader.journal[: len(place.journal)]:
            raise Broken(f"{name_of(index)} has {place.journal}, and its leader {leader.journal}")
        return put(world, index, journal=leader.journal)

    def deliver(self, world: World, index: int) -> World | None:
        """An acknowledgement comes to the leader, if that is still the one it was sent to."""
        place = world.places[index]
        ack = self.acknowledgement(place) or place.ack
        if ack is None:
            return None
        host, term, lsn = ack
        leader = world.places[host]
        if not place.is_joined:
            world = put(world, index, ack=None)
        if leader.machine is None or leader.leads != term:
            return world
        return self.tell(world, host, e.Acknowledged(node_id(index), term, lsn))

    def suspect(self, world: World, index: int) -> World | None:
        """The leader closes the link of a follower: it is silent, or slow, or gone."""
        place = world.places[index]
        for host, leader in enumerate(world.places):
            if host != index and leader.machine is not None and leader.leads:
                leadership = self.machines.of(leader.machine).leadership
                member = leadership.members.by_id.get(node_id(index)) if leadership is not None else None
                if member is not None and member.is_linked:
                    if place.wants == (host, leader.leads):
                        world = self.part(world, index)
                    return self.tell(world, host, e.LinkClosed(node_id(index)))
        return None

    def refuse(self, world: World, index: int) -> World | None:
        """The process of the leader is gone: its link refuses three connections."""
        place = world.places[index]
        if place.machine is None or place.wants is None:
            return None
        leader = world.places[place.wants[0]]
        key = world.etcd.leader
        is_dead = leader.machine is None or self.machines.of(leader.machine).context.view is None
        if not is_dead or key is None or key.term >= self.last_term:
            return None
        if len(self.machines.of(place.machine).follower.refusals_ns) >= 3:
            return None
        return self.tell(self.part(world, index), index, *[e.LeaderRefused()] * 3)

    # -- faults --

    def crash(self, world: World, index: int, kept: int) -> World | None:
        """The process, or its machine, dies; `kept`: how many of the records that are not fsynced stay."""
        place = world.places[index]
        if place.machine is None:
            return None
        world = self._forget_sent(world, index)
        journal = place.journal[: place.synced + kept]
        ack = self.left_behind(world, index, place)
        if place.is_joined and not self.is_live:
            world = self.notice(world, index, place)
        dead = Place(journal=journal, synced=len(journal), starts=place.starts, floor=place.floor, ack=ack)
        dead = dead._replace(has_journal=place.has_journal)
        places = (*world.places[:index], dead, *world.places[index + 1 :])
        world = world._replace(places=places, crashes=world.crashes - 1)
        self.check_floor(world, index)
        return world

    def restart(self, world: World, index: int) -> World | None:
        """It begins again, with what is on its disk."""
        place = world.places[index]
        if place.machine is not None:
            return None
        machine = self.machines.start(index, place.starts, len(place.journal) + 1, place.has_journal)
        return self.tell(put(world, index, machine=machine), index, e.Tick())

    def reopen(self, world: World, index: int) -> World | None:
        """The broker of a leader that resigned is closed: what it had written stays, or is torn."""
        place = world.places[index]
        if place.machine is None or not place.closing:
            return None
        world = put(world, index, closing=False, synced=len(place.journal))
        end = len(place.journal) + 1
        return self.tell(world, index, e.Reopened(TermTable(node_id(index), place.starts), end))

    def cut_off(self, world: World, index: int, *, is_backwards: bool = False) -> World | None:
        """All links of a node break: that of the first node first, or that of the last one (`is_backwards`)."""
        places = list(enumerate(world.places))
        for other, place in reversed(places) if is_backwards else places:
            if place.is_joined and place.wants is not None and index in (other, place.wants[0]):
                world = self.part(world, other)
        return world


def common_length(one: tuple[int, ...], other: tuple[int, ...]) -> int:
    """How many first records are the same."""
    count = 0
    while count < min(len(one), len(other)) and one[count] == other[count]:
        count += 1
    return count


def put(world: World, index: int, **changes: Any) -> World:
    """The world with one node changed."""
    places = world.places
    place = places[index]._replace(**changes)
    return world._replace(places=(*places[:index], place, *places[index + 1 :]))


CARRY_OUT: dict[type, Callable[[Model, World, int, Any], World]] = {
    d.Transact: Model._transact,
    d.EndLease: Model._end_lease,
    d.Follow: Model._follow,
    d.Acknowledge: Model._acknowledge,
    d.TakeOver: Model._take_over,
    d.Agree: Model._agree,
    d.LevelRaised: Model._level_raised,
    d.Resign: Model._resign,
    d.Hold: Model._hold,
    d.Resume: Model._go_on,
    d.Suspend: Model._suspend,
    d.Quiesce: Model._quiesce,
    d.ReadKeys: Model._read_keys,
    d.Register: Model._register,
    d.RejoinAsNew: Model._rejoin_as_new,
    d.Refuse: Model._nothing,
    d.HandoverRefused: Model._nothing,
    d.Note: Model._nothing,
}


def named(index: int, count: int) -> NodeIdentity:
    """A node of a cluster of so many."""
    names = frozenset(name_of(one) for one in range(count))
    return NodeIdentity(name_of(index), node_id(index), f"{name_of(index)}:1", 0, MIN_IN_SYNC, names, JOURNAL_ID)
