"""What the product's `cluster/node.py` is given in a simulated world: a coordinator, links and a process.

These are models: the product's links copy by threads of their own, which virtual time cannot step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import outcome
import trio

from leveret.cluster import following, leading, reachability
from leveret.cluster.agreement.view import Leader, NodeKey, Transaction, View
from leveret.cluster.coordinator import errors
from leveret.cluster.coordinator.coordinator import Lease
from leveret.cluster.link.introduction import Reach
from leveret.cluster.link.leader_link import Ending
from leveret.cluster.link.options import Address
from leveret.engine import Unreadable
from leveret.journal import ClusterJournal, Journal, JournalFailed

from .etcd import SECOND
from .node_broker import NodeBroker
from .process import Process, pass_time, processes
from .queues import KINDS, kind_of

if TYPE_CHECKING:
    from .node import Node


class Coordinator:
    """The five verbs on the world's etcd."""

    def __init__(self, owner: Node) -> None:
        self._owner = owner
        self._changed = trio.Event()
        self.last_answer_ns = 0

    async def _ask(self, work: Callable[[], Any]) -> tuple[Any, int]:
        task = trio.lowlevel.current_task()
        waits = [task]

        def end(result: Any) -> None:
            if waits:
                trio.lowlevel.reschedule(waits.pop(), result)

        def abort(_: Any) -> trio.lowlevel.Abort:
            waits.clear()
            return trio.lowlevel.Abort.SUCCEEDED

        self._owner.ask(
            work,
            lambda answer, asked_ns: end(outcome.Value((answer, asked_ns))),
            lambda is_in_doubt: end(
                outcome.Error((errors.InDoubt if is_in_doubt else errors.Unreachable)("no answer"))
            ),
        )
        answer, asked_ns = await trio.lowlevel.wait_task_rescheduled(abort)
        self.last_answer_ns = asked_ns
        return answer, asked_ns

    async def read(self) -> View:
        return (await self._read())[0]

    async def _read(self) -> tuple[View, int]:
        try:
            return await self._ask(self._owner.world.etcd.view)
        except errors.InDoubt as error:
            raise errors.Unreachable("no answer") from error

    async def transact(self, transaction: Transaction) -> tuple[bool, View]:
        (is_done, lease, view), _ = await self._ask(lambda: self._owner.world.etcd.transact(transaction))
        if lease:
            self._owner.leases["leader"] = lease
        return is_done, view

    async def register(self, key: NodeKey) -> bool:
        owner, etcd = self._owner, self._owner.world.etcd

        def work() -> tuple[bool, int]:
            lease = owner.leases.get("node", 0)
            if not etcd.renew(lease):
                lease = etcd.grant(6 * SECOND)
            return etcd.register(key, lease), lease

        (is_done, lease), _ = await self._ask(work)
        if is_done:
            owner.leases["node"] = lease
        return is_done

    async def keep_leases(self, may_renew: Callable[[Lease], bool], renewed: Callable[[Lease, int], None]) -> None:
        owner = self._owner
        while True:
            began_ns = owner.world.now_ns
            for lease in Lease:
                id_ = owner.leases.get(lease.value)
                if id_ is None or not may_renew(lease):
                    continue
                try:
                    is_kept, asked_ns = await self._ask(lambda id_=id_: owner.world.etcd.renew(id_))  # type: ignore[misc]
                except errors.CoordinatorError:
                    continue
                if is_kept:
                    renewed(lease, asked_ns)
                elif owner.leases.get(lease.value) == id_:
                    del owner.leases[lease.value]
            await pass_time(max(0.0, 2 - (owner.world.now_ns - began_ns) / SECOND))

    async def end_lease(self, lease: Lease) -> None:
        id_ = self._owner.leases.pop(lease.value, None)
        if id_ is not None:
            await self._ask(lambda: self._owner.world.etcd.revoke(id_))

    async def watch(self, heard: Callable[[View, int], None]) -> None:
        while True:
            self._changed = trio.Event()
            try:
                heard(*await self._read())
            except errors.CoordinatorError:
                await pass_time(0.5)
                continue
            await self._changed.wait()

    def tell(self) -> None:
        """A key has changed."""
        self._changed.set()


class NodeProcess:
    """Builds brokers of the world."""

    def __init__(self, owner: Node) -> None:
        self._owner = owner

    def preload(self) -> None:
        pass

    def build(self, cluster: ClusterJournal) -> Leadership:
        return Leadership(self._owner, cluster)

    def site(self) -> dict[str, object]:
        sites = self._owner.world.sites
        return {} if sites is None else sites.said_by(self._owner.name)

    def hold_clients(self) -> None:
        pass

    def pass_clients_on(self, leader: Leader) -> None:
        pass

    def refuse_clients(self) -> None:
        raise AssertionError(f"{self._owner.name} refuses clients")


class Leadership:
    """A broker of the world, as a node's process has it."""

    def __init__(self, owner: Node, cluster: ClusterJournal) -> None:
        self._owner = owner
        assert owner.real is not None and owner.real.leading is not None
        term = owner.real.leading.term
        assert owner.real.leading.terms is not None
        owner.term, owner.terms = term, owner.real.leading.terms
        owner.journal_id = cluster.directory.journal_id
        try:
            owner.broker = self._broker = NodeBroker(owner, cluster)
        except BaseException:
            owner.files.locked.clear()
            raise
        self._ended = trio.Event()
        self._lost: Unreadable | None = None
        self._broker.broker.context.storage.on_unreadable = self._lose
        sites = owner.world.sites
        self._sites = None if sites is None else sites.began(self._broker)
        owner.world.leads(owner)

    @property
    def journal(self) -> Journal:
        return self._broker.journal  # type: ignore[no-any-return]

    async def serve(self) -> None:
        broker, world = self._broker, self._owner.world
        if not broker.is_closed:
            broker.is_served = True
            world.served_term, world.served_ns = broker.term, world.now_ns
            for name in world.queues:
                if not kind_of(name).is_sited:
                    broker.queue(name, **KINDS[name].arguments)
            if world.sites is not None:
                world.sites.declare(broker)
            broker.end_turn()
        await self._ended.wait()
        await self.close_unserved()
        if self._lost is not None:
            raise ExceptionGroup("a broker that cannot read", [self._lost])

    def _lose(self, error: Unreadable) -> None:
        """A message cannot be read: the broker ends, as the product's does."""
        if not self._broker.is_closed:
            self._owner.world.note(f"{self._owner.name}: {error}")
            self._broker.is_closed, self._lost = True, error
            self._owner.soon(0, self._ended.set)

    def hold(self, reason: str) -> None:
        self._broker.is_held, self._broker.is_suspended = True, False

    def resume(self) -> None:
        self._broker.is_held = self._broker.is_suspended = False

    def suspend(self) -> None:
        self._broker.is_suspended = True

    async def quiesce(self) -> int:
        self._broker.is_suspended = True
        await pass_time(0.001)
        return int(self._broker.journal.next_lsn)

    async def close_unserved(self) -> None:
        while self._owner._hang_ns:
            await pass_time(self._owner._hang_ns / SECOND)
        if self._owner.broker is self._broker:
            self._owner.broker = None
        await trio.to_thread.run_sync(self._broker.close_as_follower)

    def resign(self) -> None:
        self._broker.is_closed = True
        self._ended.set()

    def agree(self, lsn: int, *, at_once: bool) -> None:
        self._broker.journal.agree(lsn)

    def set_sites(self, sites: Mapping[str, Mapping[str, object]]) -> None:
        if self._sites is not None:
            self._sites.begin(sites)

    def add_site(self, name: str, site: Mapping[str, object]) -> None:
        if self._sites is not None:
            self._sites.link_opened(name, site)

    def remove_site(self, name: str) -> None:
        if self._sites is not None:
            self._sites.link_ended(name)

    def note(self, kind: object, node: str, term: int, why: str) -> None:
        pass


class Listener:
    """Links come by the world."""

    links: Any = None

    async def serve(self, listeners: object, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        task_status.started()
        await trio.sleep_forever()


class LeaderLink:
    """As the product's, on the world's links."""

    def __init__(self, circle: object, name: str, path: str, copied: Any, report: object, **options: Any) -> None:
        process = Process.current
        assert process is not None
        self._owner: Node = process.owner
        self.copied = copied
        self.received, self.leader_status, self.why = 0, {}, ""
        self.acknowledges = self._owner.acknowledges = False

    @property
    def is_open(self) -> bool:
        return self._owner.link is not None

    def acknowledge(self, is_on: bool) -> None:
        self.acknowledges = self._owner.acknowledges = is_on
        self._owner.tell_fsynced()

    async def run(self, address: Address, term: int) -> Any:
        owner = self._owner
        if self.copied is None:
            owner.world.at(0, lambda generation=owner.generation: owner.wipe(generation))
            await trio.sleep_forever()
        owner.has_failed = False
        try:
            await trio.to_thread.run_sync(self.copied.sync)
            owner.followed, owner.target = self.copied, Target(address.host, term)
            while not owner.has_failed:
                owner._connect()
                await pass_time(0.1)
            return Ending.FAILED
        except JournalFailed:
            return Ending.FAILED
        finally:
            owner.target = owner.followed = None
            if owner.link is not None:
                owner.link.close()
                owner.link = None


class Target:
    """The leader that a node follows."""

    def __init__(self, name: str, term: int) -> None:
        self.name, self.term = name, term


class FollowerLinks:
    """As the product's, on the world's links."""

    def __init__(self, journal: Any, report: object, *, position: object, end: int, **options: Any) -> None:
        process = Process.current
        assert process is not None
        self._owner: Node = process.owner
        self.journal, self.end, self.is_closed = journal, end, False
        self.acknowledged: dict[bytes, int] = {}  # by each follower, as this leader has heard
        self._joined, self._left = options["on_joined"], options["on_left"]
        self._names: dict[bytes, str] = {}  # of those with links

    def is_linked(self, node_id: bytes) -> bool:
        return node_id in self._owner.followers

    def is_owed(self, lsn: int, catching_up: frozenset[bytes]) -> bool:
        return any(self.acknowledged.get(one, 0) < lsn for one in self._owner.followers if one not in catching_up)

    def opened(self, follower: Node) -> None:
        """A follower has a link."""
        sites = self._owner.world.sites
        self._names[follower.node_id] = follower.name
        self._joined(follower.name, {} if sites is None else sites.said_by(follower.name))

    def lost(self, node_id: bytes) -> None:
        """It has none."""
        if (name := self._names.pop(node_id, None)) is not None:
            self._left(name)

    def written(self, base_lsn: int, offset: int, octets: bytes, end_lsn: int) -> None:
        self._owner._written(base_lsn, offset, bytearray(octets), end_lsn)

    def needed(self, needs: frozenset[str]) -> None:
        pass

    def unlinked(self, base_lsns: Any) -> None:
        self._owner._unlinked(base_lsns)

    def set_agreed(self, agreed: int) -> None:
        self._owner.agrees(agreed)

    def order(self, node_id: bytes, verb: str) -> bool:
        return False

    def close_all(self, why: str) -> None:
        self.is_closed = True
        for link in list(self._owner.followers.values()):
            link.close()
        self._owner.followers.clear()

    def statistics(self) -> list[Any]:
        followers = self._owner.followers.values()
        return [
            SimpleNamespace(node_id=link.follower_id, is_full_copy=False, status=link.follower.status())
            for link in followers
        ]


async def _reach(address: Address, *more: object) -> Reach:
    process = Process.current
    assert process is not None
    world, name = process.world, process.owner.name
    await pass_time(2 * world.latency_ns() / SECOND)
    other = world.nodes[address.host]
    if not world.reaches(name, other.name) or (other.is_alive and other.is_paused):
        await pass_time(2)
        return Reach.UNREACHED
    return Reach.REACHED if other.is_alive else Reach.REFUSED


@contextmanager
def real_nodes(seed: int) -> Iterator[None]:
    """Nodes of the product can run."""
    with (
        processes(seed),
        patch.object(following, "LeaderLink", LeaderLink),
        patch.object(leading, "FollowerLinks", FollowerLinks),
        patch.object(reachability, "reach", _reach),
    ):
        yield
