"""Three nodes in one world: virtual time, one source of chance, and whatever can go wrong between them.

Each node has the agreement, the journal and a broker of the product, on a disk that can lose what was not synced. etcd
and the links are modelled: requests and answers are late or lost, links break, nodes are killed, lose their power, or
stand still. Nothing here waits: the same seed is the same world.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from random import Random

from leveret.cluster.agreement.states import State
from leveret.cluster.agreement.transactions import recover
from leveret.cluster.agreement.view import InSync, Leader
from leveret.engine import ManualClock
from leveret.journal.disk.segment import path_of, segments_in
from leveret.testing.harness import DATA

from .books import Books
from .clients import Client, Committer, Consumer, Controller, Publisher, Replayer, Stranger
from .etcd import SECOND, Etcd
from .node import Node
from .node_broker import NodeBroker
from .queues import KINDS, TARGETS
from .sites import FILTERS, NAMES, PUBLISHERS, WorldSites

MS = 1_000_000
#: How many worlds have leased queues with owners.
WITH_SITES = 0.5
#: And in how many segments rot. In these no disk is rolled back and etcd keeps its data: one fault of a disk at a time.
WITH_ROT = 0.3


class World:
    """`storm` makes trouble, `calm` ends it; `check` is asked at the end. `log`: what happened, for people. `sites`:
    leased queues with owners, in half of the worlds.
    """

    def __init__(self, seed: int, *, has_sites: bool | None = None) -> None:
        """`has_sites`: whether it has leased queues with owners; None: by the seed."""
        self.chance = Random(seed)
        self.now_ns = 0
        self.clock = ManualClock()
        self.log: list[str] = []
        self.fault: AssertionError | None = None  # of a book, where a process may have taken it for its own
        self.is_calm = False
        is_sited = Random(f"has sites {seed}").random() < WITH_SITES if has_sites is None else has_sites
        self.sites = WorldSites(self, seed) if is_sited else None
        self.takeovers = self.rots = 0
        self.agreed_lsn = 0
        self.led: list[tuple[int, NodeBroker]] = []  # the first id that each leader gave, and its broker
        self.served_term = self.served_ns = 0  # the latest leader that let clients in, and when
        self.blocked: set[tuple[str, str]] = set()  # octets do not pass from the first to the second; "etcd" is one
        self.loses_answers = 0.0
        self.slow = self.slow_etcd = 1.0
        self.is_stormy = False
        self._events: list[tuple[int, int, Callable[[], object]]] = []
        self._count = 0
        self.etcd = Etcd(lambda: self.now_ns, self._etcd_changed, self._check_campaign)
        self.can_rot = Random(f"rots {seed}").random() < WITH_ROT
        self.rotten: tuple[Node, str] | None = None  # a node, and the file of a segment
        self.agreed_octets: dict[int, bytes] = {}  # of each segment, what was ever agreed
        self.confirmed_term = 0
        self.nodes = {name: Node(self, name) for name in NAMES}
        self.books = Books()
        self._populate()
        self._set_clocks()
        self._restarted_ns = 0  # when all nodes were restarted, as etcd had lost its data
        for node in self.nodes.values():
            node.start()
        for client in self.clients:
            client.begin()
        for name in NAMES:
            self._back_up(self.nodes[name])
        self._operate()

    def _set_clocks(self) -> None:
        """In a third of the worlds the wall clock of one node is wrong."""
        if self.chance.random() < 1 / 3:
            most_s = 8 if "later" in self.queues else 600
            node = self.nodes[self.chance.choice(NAMES)]
            node.clock.difference_ms = round(self.chance.uniform(-most_s, most_s) * 1000)
            self.note(f"the clock of {node.name} differs by {node.clock.difference_ms} ms")

    def _back_up(self, node: Node) -> None:
        node.back_up()
        self.at(self.chance.uniform(6, 12) * SECOND, lambda: self._back_up(node))

    def _operate(self) -> None:
        """An operator begins anew with the node that has the most, when etcd has lost its data (CL09)."""
        self.at(2 * SECOND, self._operate)
        view, nodes = self.etcd.view(), list(self.nodes.values())
        if view.insync is not None or self.now_ns < 3 * SECOND:
            return
        if not self._restarted_ns:
            self.note("all nodes are restarted")
            self._restarted_ns = self.now_ns
            for node in nodes:
                if node.is_alive:
                    node.kill(power=False)
                    self.at(SECOND, node.start)
        elif self.now_ns > self._restarted_ns + 3 * SECOND and all(
            node.is_alive and node.directory is not None and not node.is_paused for node in nodes
        ):
            best = max(nodes, key=lambda node: (node.directory.terms.last_term, node.directory.end))  # type: ignore[union-attr]
            copied = best.directory
            assert copied is not None and copied.journal_id is not None
            self.note(f"recover with {best.name}")
            self.etcd.transact(recover(view, best.node_id, copied.terms.last_term, copied.journal_id))
            self._restarted_ns = 0

    def _populate(self) -> None:
        """Some kinds of queues, and their clients."""
        chance = self.chance
        targets = sorted(chance.sample(TARGETS, 4 if self.sites is None else 1))
        if self.can_rot and self.sites is None:  # whose log is read from its beginning, again and again
            targets = sorted({*targets[1:], "leased"})
        self.queues = [name for name in KINDS if name in targets or (name == "dead" and "work" in targets)]
        self.publishers: list[Publisher | Committer] = []
        for name in targets:
            draw = chance.random()
            if draw < 0.25 and not KINDS[name].kept:
                self.publishers.append(Committer(self, f"t{name}", name))
            else:
                repeats = draw < 0.5 and not KINDS[name].kept
                self.publishers.append(Publisher(self, f"p{name}", name, repeats=repeats))
        self.consumers = [Consumer(self, name) for name in self.queues if not KINDS[name].kept]
        others: list[Client] = [Controller(self), Replayer(self)] if "leased" in self.queues else []
        if self.sites is not None:
            others += self._populate_sites(self.sites)
        self.clients: list[Client] = [*self.publishers, *self.consumers, *others]

    def _populate_sites(self, sites: WorldSites) -> list[Client]:
        """Clients of queues with owners. Most stay at one node; one consumer of `owned` takes all, at any node."""
        chance = self.chance
        bills = next(name for name in sites.queues if name.startswith("bills"))
        self.queues += sites.queues
        for name in PUBLISHERS:
            self.publishers.append(
                Publisher(self, name, "owned", homes=self._home(NAMES), repeats=chance.random() < 0.3)
            )
        if chance.random() < 0.5:
            self.publishers.append(Committer(self, "towned", "owned", homes=self._home(NAMES)))
        for number in (1, 2):
            self.publishers.append(Publisher(self, f"pbills{number}", bills, homes=chance.choice(("ab", "a", "b"))))
        self.consumers.append(Consumer(self, "owned", homes=NAMES))
        for home in chance.sample(NAMES, chance.randint(1, 3)):
            self.consumers.append(Consumer(self, "owned", homes=home, of=chance.choice(FILTERS)))
        self.consumers.append(Consumer(self, bills, homes="ab"))
        for home in chance.sample("ab", chance.randint(0, 2)):
            self.consumers.append(Consumer(self, bills, homes=home))
        for name in NAMES:
            self.publishers.append(Publisher(self, f"pdesk{name}", f"desk@{name}", homes=name))
            self.consumers.append(Consumer(self, f"desk@{name}", homes=name))
        return [Controller(self, chance.choice(["owned", bills])), *(Stranger(self, home) for home in NAMES)]

    def _home(self, names: Sequence[str]) -> Sequence[str]:
        """One of them, or all."""
        return names if self.chance.random() < 0.25 else self.chance.choice(names)

    # -- time -----------------------------------------------------------------------------------------------------

    def at(self, delay_ns: float, action: Callable[[], object]) -> None:
        """Do something later."""
        self._count += 1
        heappush(self._events, (self.now_ns + int(delay_ns), self._count, action))

    def run(self, seconds: float) -> None:
        """Let time pass."""
        end_ns = self.now_ns + int(seconds * SECOND)
        while self._events and self._events[0][0] <= end_ns:
            due_ns, _, action = heappop(self._events)
            self._pass(due_ns)
            action()
            if self.fault is not None:
                raise self.fault
        self._pass(end_ns)

    def _pass(self, now_ns: int) -> None:
        if now_ns > self.now_ns:
            self.clock.advance_ns(now_ns - self.now_ns)
            self.now_ns = now_ns

    def note(self, text: str) -> None:
        """Write down what happened."""
        self.log.append(f"{self.now_ns / SECOND:9.4f} {text}")

    # -- between the nodes ----------------------------------------------------------------------------------------

    def latency_ns(self) -> float:
        """Of one way."""
        return self.chance.uniform(0.1, 2) * MS * self.slow

    def etcd_latency_ns(self) -> float:
        """Of one way between a node and etcd: what takes longer was given up, and its connection closed."""
        return min(self.latency_ns() * self.slow_etcd, 4 * SECOND)

    def passes(self, one: str, other: str) -> bool:
        """Whether octets pass from one to the other now."""
        return (one, other) not in self.blocked

    def reaches(self, one: str, other: str) -> bool:
        """Whether one gets answers from the other."""
        return self.passes(one, other) and self.passes(other, one)

    def _etcd_changed(self) -> None:
        for node in self.nodes.values():
            self.at(self.latency_ns() * self.chance.choice([1, 1, 1, 20]), node.look)

    # -- books ----------------------------------------------------------------------------------------------------

    def leads(self, node: Node) -> None:
        """A broker is restored."""
        assert node.broker is not None
        self.takeovers += 1
        self.led.append((node.broker.broker.context.next_id, node.broker))
        self._check_ids()
        node.keep_agreed()
        self.note(f"{node.name} leads term {node.term} at {node.durable_lsn}")
        if self.is_stormy and self.chance.random() < 0.12:  # before others have what it writes
            self.at(self.chance.uniform(0, 40) * MS, lambda: self.kill(node, power=self.chance.random() < 0.5))

    def _check_ids(self) -> None:
        """No two leaders gave the same id to messages."""
        used = sorted((first, led.broker.context.next_id, led.term) for first, led in self.led)
        for (_, end, one), (first, _, other) in zip(used, used[1:]):
            assert end <= first, f"ids mean two messages: those of terms {one} and {other}"

    def _check_campaign(self, leader: Leader, insync: InSync) -> None:
        """Only a node of the set leads, and it has all that is agreed (R2, R10)."""
        assert leader.node_id in insync.nodes, f"{leader.name} leads, and is not in the set"
        end = self.nodes[leader.name].durable_lsn
        assert end >= self.agreed_lsn, f"{leader.name} leads from {end} on, and {self.agreed_lsn} is agreed"

    def release_awaiting(self, broker: NodeBroker) -> None:
        """Clients are told."""
        if broker.answers:
            broker.broker.release_awaiting()
            broker.end_turn()
            for client in self.clients:
                client.release_awaiting(broker)

    def check_served(self, broker: NodeBroker) -> None:
        """A leader that was replaced has ended, or is suspended, soon after the next one serves: `suspend-after`."""
        is_old = broker.term < self.served_term and self.now_ns > self.served_ns + 2.5 * SECOND
        assert not is_old, f"{broker.node.name} still serves term {broker.term}, {self.served_term} is led"

    def check_confirm(self, node: Node, lsn: int) -> None:
        """One node confirms at a time, and what is confirmed is on the disks of all that could lead."""
        assert node.term >= self.confirmed_term, f"{node.name} confirms in term {node.term} after {self.confirmed_term}"
        self.confirmed_term = node.term
        insync = self.etcd.view().insync
        if insync is None:
            return  # etcd has lost its data, and the leader goes on
        for other in self.nodes.values():
            if other.node_id in insync.nodes and other.is_alive and not other.is_rolled_back:
                assert other.durable_lsn >= lsn, f"{other.name} ends at {other.durable_lsn}; {lsn} is confirmed"

    def check_acknowledgement(self, node: Node, term: int) -> None:
        """Who won a campaign has stopped to acknowledge to the leader before (R6)."""
        view = self.etcd.view()
        won = view.leader.term if view.leader is not None and view.leader.node_id == node.node_id else 0
        assert term >= won, f"{node.name} acknowledges in term {term}, and was elected for term {won}"

    # -- trouble ----------------------------------------------------------------------------------------------------

    def storm(self, seconds: float) -> None:
        """Trouble, one after the other and at once."""
        end_ns = self.now_ns + int(seconds * SECOND)
        troubles = [
            self._kill, self._kill, self._power, self._pause, self._part, self._part, self._no_etcd, self._lose_answers,
            self._slow_down, self._all_power, self._one_way, self._hand_over, self._leader_without_etcd,
            self._power_after_an_acknowledgement, self._put_back, self._hang_disk, self._fill_disk, self._lose_etcd,
            self._break_disk, self._cut_link,
        ]  # fmt: skip
        if self.can_rot:
            troubles = [self._rot if one in (self._put_back, self._lose_etcd) else one for one in troubles]
        self.is_stormy = True
        while self.now_ns < end_ns:
            self.run(self.chance.expovariate(1 / 2))
            self.chance.choice(troubles)()
        self.is_stormy = False

    def _any(self) -> Node:
        leaders = [node for node in self.nodes.values() if node.broker is not None]
        if leaders and self.chance.random() < 0.6:
            return self.chance.choice(leaders)
        return self.nodes[self.chance.choice(NAMES)]

    def _kill(self) -> None:
        self.kill(self._any(), power=False)

    def kill(self, node: Node, *, power: bool) -> None:
        """A process ends at once, and begins again after a while."""
        if node.is_alive:
            node.kill(power=power)
            self.at(self.chance.choice([0.05, 0.5, 4, 12]) * SECOND, node.start)

    def _power(self) -> None:
        self.kill(self._any(), power=True)

    def _power_after_an_acknowledgement(self) -> None:
        node = self.nodes[self.chance.choice(NAMES)]
        node.loses_power_next = node.is_alive

    def _put_back(self) -> None:
        """An old copy of a directory (CL11): etcd knows of more than that has. One node in sync stays whole."""
        node, view = self.nodes[self.chance.choice(NAMES)], self.etcd.view()
        agreed, insync = view.agreed, frozenset() if view.insync is None else view.insync.nodes
        if all(one is node or one.is_rolled_back for one in self.nodes.values() if one.node_id in insync):
            return
        if node.is_alive and node.backup is not None and agreed is not None and agreed.lsn > node.backup[1]:
            node.kill(power=False)
            node.put_back()
            self.at(self.chance.choice([0.05, 4]) * SECOND, node.start)

    def _hang_disk(self) -> None:
        self._any().hang(self.chance.choice([0.5, 3, 12]) * SECOND)

    def _fill_disk(self) -> None:
        """Of a follower, or of the leader (CL21)."""
        node = self.nodes[self.chance.choice(NAMES)]
        if node.is_alive:
            node.files.capacity = node.files.used + self.chance.choice([0, 500, 5000])
            self.note(f"the disk of {node.name} is full")
            self.at(self.chance.choice([1, 6]) * SECOND, lambda: self._make_room(node))

    def _break_disk(self) -> None:
        """One fsync of a follower's segment fails, and the system forgets what it should have written."""
        node = self.nodes[self.chance.choice(NAMES)]
        if not node.is_alive:
            return
        files = node.files

        def forget(operation: str, path: str) -> None:
            if operation == "sync" and path.endswith(".log") and node.broker is None:
                files.fault = lambda operation, path: None
                files.names_now[path].unsynced.clear()
                self.note(f"an fsync of {node.name} fails")
                raise OSError(5, "Input/output error")

        files.fault = forget

    def _rot(self) -> None:
        """An octet of a segment behind which others were begun changes on one node (CL20), while all are in sync."""
        node, insync = self._any(), self.etcd.view().insync
        if self.is_rotten() or insync is None or insync.nodes != {one.node_id for one in self.nodes.values()}:
            return
        for base in segments_in(node.files, DATA)[:-1]:
            path = path_of(DATA, base)
            file = node.files.names_now[path]
            if not file.unsynced and self.chance.random() < 0.5:
                offset = self.chance.randrange(file.size)
                node.files.rot(path, offset)
                self.rotten, self.rots = (node, path), self.rots + 1
                self.note(f"{path} of {node.name} rots at {offset} of {file.size}")
                return

    def is_rotten(self, node: Node | None = None, base: int | None = None) -> bool:
        """Whether there is such a segment, of this node, or this one."""
        if self.rotten is None:
            return False
        one, path = self.rotten
        if path not in one.files.names_now:  # a full copy has none, and old ones are deleted
            self.rotten = None
            return False
        return node in (None, one) and (base is None or path == path_of(DATA, base))

    def _make_room(self, node: Node) -> None:
        node.files.capacity = None
        if node.is_alive and node.broker is not None:
            node.write_soon()

    def _lose_etcd(self) -> None:
        if self.chance.random() < 0.25:
            self.note("etcd has lost its data")
            self.etcd.delete_all()

    def campaigns(self, node: Node) -> None:
        """A node sends its campaign: now and then it stops, or ends, before it reads the answer."""
        if self.is_stormy and self.chance.random() < 0.15:
            delay_ns = self.chance.uniform(0, 4) * MS
            if self.chance.random() < 0.5:
                self.at(delay_ns, lambda: self.kill(node, power=self.chance.random() < 0.5))
            else:
                length_ns = self.chance.choice([0.3, 3, 10]) * SECOND
                self.at(delay_ns, lambda: node.pause(length_ns))

    def _all_power(self) -> None:
        if self.chance.random() < 0.3:
            for node in self.nodes.values():
                if node.is_alive:
                    node.kill(power=True)
                    self.at(self.chance.choice([0.05, 1, 5]) * SECOND, node.start)

    def _pause(self) -> None:
        self._any().pause(self.chance.choice([0.3, 1, 3, 8, 15]) * SECOND)

    def _cut_link(self) -> None:
        """A connection breaks, with what is on its way."""
        links = [link for node in self.nodes.values() if node.is_alive for link in node.followers.values()]
        if links:
            link = self.chance.choice(links)
            self.note(f"the link of {link.follower.name} to {link.leader.name} breaks")
            link.close(5 * MS)

    def _block(self, *pairs: tuple[str, str], seconds: float | None = None) -> None:
        self.blocked |= set(pairs)
        self.note(f"blocked {sorted(self.blocked)}")
        self.at((seconds or self.chance.choice([0.3, 2, 5, 12])) * SECOND, lambda: self._heal(pairs))

    def _heal(self, pairs: tuple[tuple[str, str], ...]) -> None:
        self.blocked -= set(pairs)
        self.note(f"healed {pairs}")

    def _part(self) -> None:
        one = self._any().name
        others = [name for name in (*NAMES, "etcd") if name != one]
        chosen = self.chance.sample(others, self.chance.randint(1, 3))
        self._block(*[(one, other) for other in chosen], *[(other, one) for other in chosen])

    def _one_way(self) -> None:
        one, other = self.chance.sample([*NAMES, "etcd"], 2)
        self._block((one, other))

    def _no_etcd(self) -> None:
        self._block(*[(name, "etcd") for name in NAMES])

    def _leader_without_etcd(self) -> None:
        """Its followers answer, so it goes on; its lease ends. Campaigns take their time."""
        for node in self.nodes.values():
            if node.broker is not None and node.broker.answers:
                self.slow_etcd = self.chance.choice([1, 30, 150])
                self._block((node.name, "etcd"), ("etcd", node.name), seconds=self.chance.uniform(6, 12))
                self.at(12 * SECOND, lambda: setattr(self, "slow_etcd", 1.0))
                return

    def _lose_answers(self) -> None:
        self.loses_answers = 0.5
        self.note("answers of etcd are lost")
        self.at(self.chance.choice([1, 4, 8]) * SECOND, lambda: setattr(self, "loses_answers", 0.0))

    def _slow_down(self) -> None:
        self.slow = self.chance.choice([5, 50, 200])
        self.note(f"slow: {self.slow}")
        self.at(self.chance.choice([1, 4]) * SECOND, lambda: setattr(self, "slow", 1.0))

    def _hand_over(self) -> None:
        for node in self.nodes.values():
            if node.broker is not None:
                node.hand_over()

    # -- the end ------------------------------------------------------------------------------------------------------

    def calm(self) -> None:
        """All is well again: within a while one node leads, all are in sync, every question is answered."""
        self.is_calm = True
        self.blocked.clear()
        self.slow = self.slow_etcd = 1.0
        self.loses_answers = 0.0
        for publisher in self.publishers:
            publisher.rests = True
        for consumer in self.consumers:
            consumer.is_ending = True
        for node in self.nodes.values():
            node.files.capacity, node.hangs_until_ns = None, 0
            if not node.is_alive:
                self.at(0, node.start)
        self.run(20)
        for node in self.nodes.values():
            if self.is_rotten(node):  # nobody has read it
                node.wipe(node.generation)
        self.run(20)
        if not all(node.is_alive for node in self.nodes.values()):  # one had to begin anew with an empty directory
            self.run(20)
        for _ in range(100):  # a record of the leader's own, such as a checkpoint's, may be under way
            if len({node.durable_lsn for node in self.nodes.values()}) == 1:
                break
            self.run(0.01)
        self.note("calm")
        leaders = [node for node in self.nodes.values() if node.state is State.LEADING]
        assert len(leaders) == 1, {node.name: node.state for node in self.nodes.values()}
        view = self.etcd.view()
        assert view.insync is not None
        assert view.insync.nodes == {node.node_id for node in self.nodes.values()}, "not all are in sync"
        assert all(not client.unanswered for client in self.publishers), "a publish was never answered"
        self._check(leaders[0])

    def _check(self, leader: Node) -> None:
        """What was confirmed is there or was consumed; nothing that was gone for good is back; all have the same."""
        leader.keep_agreed()
        self._check_ids()
        end = leader.durable_lsn
        for node in self.nodes.values():
            assert node.durable_lsn == end, f"{node.name} ends at {node.durable_lsn}, not {end}"
            node.compare(self.agreed_octets)
        broker = leader.broker
        assert broker is not None
        if broker.book is not None:
            broker.book.check()
        self.books.check({name: [body.split(b",")[0].decode() for body in broker.bodies(name)] for name in self.queues})
