"""Random steps of a cluster of five in simulated time: storms of faults, then calm, in which it must come to rest.

Each storm is a world of its own, made from a seed. The invariants are those of agreement_world; after the calm somebody
leads, all nodes are in sync, and everything that was written and is there is agreed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

from agreement_world import JOURNAL_ID, Broken, Live, Model, Place, World, index_of, name_of, named, node_id, put

from leveret.cluster.agreement import events as e
from leveret.cluster.agreement.states import State
from leveret.cluster.agreement.timers import MS, SECOND, Timers
from leveret.cluster.agreement.view import InSync, NodeKey, Transaction, View

ACKNOWLEDGES = {State.STARTING, State.FOLLOWING, State.IN_SYNC, State.DRAINED, State.REFUSED}
#: What all nodes read.
LEVEL = 9
#: Steps of a storm; seconds in which a cluster comes to rest.
STORM, CALM_S = 3000, 90


def level_of(view: View) -> int:
    """Of the journal, as etcd says; 0: of none."""
    return 0 if view.insync is None else view.insync.level


class Walk:
    """One world. `step` does one thing at random; `calm` ends all faults, and waits."""

    count = 5

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        self.machines = Live([replace(named(index, self.count), level=LEVEL) for index in range(self.count)], Timers())
        self.model = Model(self.machines)
        first = Place(has_journal=False)
        self.world = World((first,) * self.count, View(1), writes=10**9, crashes=10**9, breaks=10**9, losses=10**9)
        self.steps = self.takeovers = 0
        self.asked: dict[int, tuple[int, View]] = {}  # reads whose answers are on their way
        self.views = [View(1)]  # what a watch may say late
        self.cut_pairs: set[tuple[int, int]] = set()
        self.cut_etcd: set[int] = set()
        self.paused: set[int] = set()
        self.stalled: set[int] = set()
        self.renewed_ns = self.machines.now_ns
        self.beats_ns: dict[tuple[int, int], int] = {}
        self.registered_ns: dict[int, int] = {}
        for index in range(self.count):
            self._do(self.model.restart, index)
        faults = [(weight * self.chance.choice((0, 1, 1, 3)), what) for weight, what in FAULTS]
        self.weights, self.acts = zip(*USUAL, *faults)

    # -- one thing --

    def run(self, steps: int) -> None:
        """A storm. Raises: Broken."""
        for act in self.chance.choices(self.acts, self.weights, k=steps):
            self.steps += 1
            self.machines.now_ns += self.chance.randrange(20 * MS)
            act(self, self.chance.randrange(self.count))

    def _do(self, step: Callable[..., World | None], *how: Any) -> None:
        before = self.world
        after = step(before, *how)
        if after is not None:
            self.world = after
            if after.etcd is not before.etcd:
                if level_of(after.etcd) < level_of(before.etcd):
                    raise Broken(f"the level of the journal fell from {before.etcd.insync} to {after.etcd.insync}")
                self.views = [*self.views[-5:], after.etcd]

    def place(self, index: int) -> Place:
        """Of a node."""
        return self.world.places[index]

    def state(self, index: int) -> State | None:
        """Of a node; None: it is dead."""
        machine = self.place(index).machine
        return machine.state if machine is not None else None

    def is_awake(self, index: int) -> bool:
        """Whether its process runs."""
        return self.place(index).machine is not None and index not in self.paused

    def reaches(self, one: int, other: int) -> bool:
        """Whether octets pass from one node to the other."""
        return one != other and (min(one, other), max(one, other)) not in self.cut_pairs

    def has_etcd(self, index: int) -> bool:
        """Whether this node reaches etcd."""
        return self.is_awake(index) and index not in self.cut_etcd

    # -- what a cluster does --

    def act(self, index: int) -> None:
        """A node does all that is due: its ticks, what its journal and its links have to do."""
        if not self.is_awake(index):
            return
        place, model = self.place(index), self.model
        due_ns = place.machine.next_ns()
        if due_ns is not None and due_ns <= self.machines.now_ns:
            self._do(model.tick, index)
        if place.closing:
            self._do(model.reopen, index)
        if place.wins and index not in self.stalled:
            self._do(model.take_over, index)
            self.takeovers += 1
        place = self.place(index)
        machine = place.machine
        handover = machine.leadership.handover if machine.leadership is not None else None
        if place.quiet and handover is not None and handover.end is None:
            self._tell(index, e.Quiesced(handover.attempt, len(place.journal) + 1))
        if place.wants_read and index not in self.asked:
            self.ask(index)
        self.register(index)

    def _tell(self, index: int, event: e.Event) -> None:
        self.world = self.model.tell(self.world, index, event)

    def register(self, index: int) -> None:
        """Keep the key of a node, under its lease; what it reaches is in it."""
        place = self.place(index)
        if not place.is_registered or not self.has_etcd(index):
            return
        self.registered_ns[index] = self.machines.now_ns
        reached = frozenset(
            name_of(other)
            for other in range(self.count)
            if self.reaches(index, other) and self.place(other).machine is not None
        )
        machine = place.machine
        key = NodeKey(
            name_of(index),
            node_id(index),
            f"{name_of(index)}:1",
            JOURNAL_ID if place.has_journal else None,
            level=LEVEL,
            is_drained=machine.context.is_drained,
            reaches=reached,
        )
        nodes = self.world.etcd.nodes
        if key not in nodes:
            others = [one for one in nodes if one.name != key.name]
            self._change_etcd(nodes=tuple(sorted([*others, key], key=lambda one: one.name)))

    def _change_etcd(self, **changes: Any) -> None:
        etcd = self.world.etcd
        self.world = self.world._replace(etcd=replace(etcd, revision=etcd.revision + 1, **changes))

    def leases(self, index: int) -> None:
        """etcd ends the leases of those that do not renew them; others are renewed."""
        now_ns, etcd = self.machines.now_ns, self.world.etcd
        lease_ns = self.machines.timers.lease_ns
        leader = etcd.leader
        if leader is not None:
            holder = index_of(leader.node_id)
            machine = self.place(holder).machine
            leadership = machine.leadership if machine is not None else None
            holds = leadership is not None and leadership.key == leader and machine.state is not State.RESIGNING
            if self.has_etcd(holder) and holds and holder not in self.stalled:
                self.renewed_ns = now_ns
                self._tell(holder, e.LeaseRenewed(now_ns))
            elif now_ns > self.renewed_ns + lease_ns or (
                machine is not None and self.has_etcd(holder) and not holds and self.place(holder).sent is None
            ):
                self._do(self.model.expire)
        else:
            self.renewed_ns = now_ns
        over = [one for one in etcd.nodes if now_ns > self.registered_ns.get(index_of(one.node_id), 0) + lease_ns]
        if over:
            self._change_etcd(nodes=tuple(one for one in self.world.etcd.nodes if one not in over))
        if etcd.preferred is not None and self.chance.random() < 0.2:
            self._change_etcd(preferred=None)

    def ask(self, index: int) -> None:
        """A node sends a read; what etcd answers is on its way."""
        if self.has_etcd(index) and index not in self.asked:
            self.asked[index] = (self.machines.now_ns, self.world.etcd)

    def hear(self, index: int) -> None:
        """The answer to a read comes; or a watch says what changed, perhaps late."""
        if not self.is_awake(index):
            self.asked.pop(index, None)
        elif index in self.asked:
            asked_ns, view = self.asked.pop(index)
            self.world = put(self.world, index, wants_read=False)
            self._tell(index, e.Read(view, asked_ns))
        elif self.has_etcd(index):
            self._tell(index, e.Read(self.chance.choice(self.views)))

    def write(self, index: int) -> None:
        """A leader writes."""
        if self.is_awake(index) and not self.place(index).holds and index not in self.stalled:
            self._do(self.model.write, index)

    def sync(self, index: int) -> None:
        """A node fsyncs."""
        if self.is_awake(index) and index not in self.stalled:
            self._do(self.model.sync, index)

    def _leader_of(self, index: int) -> int | None:
        wants = self.place(index).wants
        return wants[0] if wants is not None and self.reaches(index, wants[0]) and self.is_awake(index) else None

    def join(self, index: int) -> None:
        """A follower joins its leader, or finds that its process is gone."""
        leader = self._leader_of(index)
        if leader is None:
            return
        if self.place(leader).machine is None:
            self._tell(index, e.LeaderRefused())
        elif leader not in self.paused and index not in self.stalled:
            if self.place(index).machine.state not in ACKNOWLEDGES:
                raise Broken(f"{name_of(index)} joins while it is {self.state(index)}")
            self._do(self.model.join, index)

    def copy(self, index: int) -> None:
        """Octets come."""
        leader = self._leader_of(index)
        if leader is not None and leader not in self.paused and index not in self.stalled:
            self._do(self.model.copy, index)
            self._do(self.model.unlink, index)

    def deliver(self, index: int) -> None:
        """An acknowledgement comes, perhaps one of a process that has died since."""
        place = self.place(index)
        leader = place.ack or place.wants
        if leader is None or not self.is_awake(leader[0]) or not self.reaches(index, leader[0]):
            return
        if self.model.acknowledgement(place) is not None and self.state(index) not in ACKNOWLEDGES:
            raise Broken(f"{name_of(index)} acknowledges while it is {self.state(index)}")
        self._do(self.model.deliver, index)

    def beat(self, index: int) -> None:
        """Beacons in both directions of a link; a silent link is closed."""
        leader = self._leader_of(index)
        place = self.place(index)
        if leader is None or not place.is_joined or not self.is_awake(leader):
            return
        if self.place(leader).leads == place.wants[1]:
            self._tell(leader, e.FollowerHeard(node_id(index)))
            self._tell(index, e.LeaderHeard(place.wants[1], self.place(leader).agreed))
        else:
            self.world = self.model.part(self.world, index)

    def look(self, index: int) -> None:
        """A leader tries the links of its followers; a link that is cut is closed, now or later."""
        if not self.is_awake(index) or not self.place(index).leads:
            return
        for other in range(self.count):
            if other == index or not self.reaches(index, other):
                if other != index and self.chance.random() < 0.3:
                    self._do(self.model.suspect, other)
            elif self.place(other).machine is None:
                self._tell(index, e.LinkClosed(node_id(other)))
                self._tell(index, e.FollowerRefused(node_id(other)))

    def apply(self, index: int) -> None:
        """etcd carries out a transaction, or it cannot be sent, or its answer does not come."""
        place = self.place(index)
        if place.sent is None or not self.is_awake(index):
            return
        if self.has_etcd(index):
            self._do(self.model.apply, index)
        elif self.chance.random() < 0.3 and place.sent[1] == "sent":
            self.world = put(self.world, index, sent=None)
            self._tell(index, e.Answered(place.sent[0], False))
        elif self.chance.random() < 0.3:
            self._do(self.model.lose, index)

    def answer(self, index: int) -> None:
        """The answer of etcd comes."""
        if self.has_etcd(index):
            self._do(self.model.answer, index)

    def late(self, index: int) -> None:
        """What was in doubt arrives after all."""
        if self.world.late:
            self._do(self.model.apply_late, self.chance.choice(sorted(self.world.late, key=_order)))

    def delete(self, index: int) -> None:
        """A leader deletes what its checkpoint frees."""
        if self.is_awake(index):
            self._do(self.model.delete, index)

    # -- faults --

    def crash(self, index: int) -> None:
        """kill -9, or the power."""
        place = self.place(index)
        self.asked.pop(index, None)
        self.paused.discard(index)
        self._do(self.model.crash, index, self.chance.randint(0, len(place.journal) - place.synced))

    def restart(self, index: int) -> None:
        """It comes back."""
        self._do(self.model.restart, index)
        self.stalled.discard(index)

    def pause(self, index: int) -> None:
        """SIGSTOP."""
        self.paused.add(index)

    def resume(self, index: int) -> None:
        """SIGCONT."""
        self.paused.discard(index)

    def cut(self, index: int) -> None:
        """No octets pass between two nodes, or one and all others."""
        others = range(self.count) if self.chance.random() < 0.3 else [self.chance.randrange(self.count)]
        for other in others:
            if other != index:
                self.cut_pairs.add((min(index, other), max(index, other)))
        self._do(self.model.cut_off, index)

    def heal(self, index: int) -> None:
        """One pair talks again."""
        if self.cut_pairs:
            self.cut_pairs.discard(self.chance.choice(sorted(self.cut_pairs)))

    def lose_etcd(self, index: int) -> None:
        """A node, or each, does not reach etcd."""
        self.cut_etcd |= set(range(self.count)) if self.chance.random() < 0.2 else {index}

    def find_etcd(self, index: int) -> None:
        """It does again."""
        self.cut_etcd.discard(index)

    def lose(self, index: int) -> None:
        """An answer of etcd does not come."""
        if self.is_awake(index):
            self._do(self.model.lose, index)

    def expire(self, index: int) -> None:
        """A lease ends too early: the clock of etcd is wrong."""
        self._do(self.model.expire)

    def close(self, index: int) -> None:
        """A link breaks."""
        self._do(self.model.suspect, index)

    def stall(self, index: int) -> None:
        """A disk hangs, until it does not."""
        if self.is_awake(index):
            self.stalled.add(index)
            self._tell(index, e.DiskStalled())

    def go_on(self, index: int) -> None:
        """The disk does something again."""
        if index in self.stalled and self.is_awake(index):
            self.stalled.discard(index)
            self._tell(index, e.DiskRecovered())

    def hand_over(self, index: int) -> None:
        """An operator, or SIGTERM."""
        if self.is_awake(index):
            self._tell(index, e.HandOver(is_leaving=self.chance.random() < 0.5))

    def drain(self, index: int) -> None:
        """An operator."""
        if self.is_awake(index):
            self._tell(index, e.Drain() if self.chance.random() < 0.3 else e.Revive())

    def raise_level(self, index: int) -> None:
        """An operator."""
        if self.is_awake(index):
            self._tell(index, e.RaiseLevel(self.chance.randrange(LEVEL + 1)))

    # -- the calm --

    def calm(self) -> None:
        """All faults end. Raises: Broken, if the cluster does not come to rest in `CALM_S`."""
        self.cut_pairs.clear()
        self.cut_etcd.clear()
        self.paused.clear()
        for index in range(self.count):
            self.restart(index)
            self.go_on(index)
            self._tell(index, e.DiskRecovered())
            self._tell(index, e.Revive())
        end_ns = self.machines.now_ns + CALM_S * SECOND
        while not self.is_at_rest():
            if self.machines.now_ns > end_ns:
                raise Broken(f"no rest in {CALM_S} s: {self.describe()}")
            for index in range(self.count):
                for what in CALM:
                    self.steps += 1
                    self.machines.now_ns += MS
                    what(self, index)

    def is_at_rest(self) -> bool:
        """Somebody leads, all are in sync, and everything is agreed."""
        insync = self.world.etcd.insync
        leading = [index for index in range(self.count) if self.state(index) is State.LEADING]
        if len(leading) != 1 or insync is None or len(insync.nodes) != self.count:
            return False
        leader = self.place(leading[0])
        followers = [self.place(index) for index in range(self.count) if index != leading[0]]
        return leader.agreed == len(leader.journal) + 1 and all(
            one.journal == leader.journal and one.is_joined and one.synced == len(one.journal) for one in followers
        )

    def describe(self) -> str:
        """Who is what."""
        states = ", ".join(f"{name_of(index)} {self.state(index)}" for index in range(self.count))
        return f"{states}; etcd {self.world.etcd.insync} {self.world.etcd.leader}"


def _order(transaction: Transaction) -> tuple:
    """An order that is the same in each process: hashes of octets are not."""
    puts = [(key, sorted(value.nodes) if isinstance(value, InSync) else []) for key, value in transaction.puts]
    return transaction.purpose.value, transaction.guards, puts


Act = Callable[[Walk, int], None]

#: What a cluster does all the time, and how often.
USUAL: list[tuple[float, Act]] = [
    (30, Walk.act),
    (6, Walk.leases),
    (6, Walk.ask),
    (10, Walk.hear),
    (20, Walk.write),
    (20, Walk.sync),
    (8, Walk.join),
    (16, Walk.copy),
    (20, Walk.deliver),
    (12, Walk.beat),
    (3, Walk.look),
    (8, Walk.apply),
    (8, Walk.answer),
    (1, Walk.delete),
    (1, Walk.late),
]

#: What goes wrong, and how often; each storm leaves some of it out.
FAULTS: list[tuple[float, Act]] = [
    (0.3, Walk.crash),
    (0.8, Walk.restart),
    (0.3, Walk.pause),
    (0.8, Walk.resume),
    (0.3, Walk.cut),
    (0.8, Walk.heal),
    (0.2, Walk.lose_etcd),
    (0.6, Walk.find_etcd),
    (0.5, Walk.lose),
    (0.2, Walk.expire),
    (0.4, Walk.close),
    (0.1, Walk.stall),
    (0.4, Walk.go_on),
    (0.1, Walk.hand_over),
    (0.1, Walk.drain),
    (0.1, Walk.raise_level),
]

CALM: list[Act] = [
    *(Walk.act, Walk.leases, Walk.ask, Walk.hear, Walk.join, Walk.copy, Walk.sync, Walk.deliver, Walk.beat, Walk.look),
    *(Walk.apply, Walk.answer),
]


def walk(seed: int, steps: int) -> Walk:
    """Storms, each in a world of its own, until so many steps were done. Returns: the last world, with all sums."""
    total = takeovers = 0
    while True:
        one = Walk(seed)
        try:
            one.calm()
            one.run(STORM)
            one.calm()
        except Exception as error:
            raise Broken(f"seed {seed}: {error}") from error
        total += one.steps
        takeovers += one.takeovers
        seed += 1
        if total >= steps:
            one.steps, one.takeovers = total, takeovers
            return one
