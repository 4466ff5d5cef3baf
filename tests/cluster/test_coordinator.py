"""What every coordinator does: the model of etcd that tests and simulation use, and a real etcd where there is one.

Source: docs/cluster.md, the keys of a cluster and their transactions.
"""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trio
import trio.testing
from etcd_model import EtcdModel, ModelCoordinator
from etcd_servers import ETCD, WHY_NOT, etcd_servers

from leveret.cluster.agreement.view import (
    AGREED,
    INSYNC,
    JOURNAL,
    LEADER,
    PREFERRED,
    AgreedKey,
    InSync,
    Leader,
    NodeKey,
    Purpose,
    Transaction,
    View,
)
from leveret.cluster.coordinator.coordinator import Coordinator, Lease
from leveret.cluster.coordinator.errors import InDoubt, UnfitCoordinator
from leveret.cluster.coordinator.etcd import EtcdCoordinator
from leveret.cluster.coordinator.gateway import EtcdAccess, Gateway, octets64

A, B = b"\xaa" * 16, b"\xbb" * 16
JOURNAL_ID = b"\x01" * 16
#: Seconds of a lease.
SECONDS = 2

Put = Callable[[str, bytes], None]
#: Given two coordinators of one cluster, and what writes a key by hand.
Story = Callable[[Coordinator, Coordinator, Put], Awaitable[None]]


def on_model(story: Story) -> None:
    """In virtual time."""

    async def main() -> None:
        etcd = EtcdModel()
        await story(ModelCoordinator(etcd, seconds=SECONDS), ModelCoordinator(etcd, seconds=SECONDS), etcd.put)

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


@contextmanager
def real_etcd(directory: Path) -> Iterator[Callable[[Story], None]]:
    """One member; each story has a cluster of its own in it."""
    with etcd_servers(directory) as servers:
        access = EtcdAccess(servers.endpoints, answer_seconds=10)
        count = 0

        def put(key: str, value: bytes) -> None:
            request = {"key": octets64(key.replace("/leveret/leveret/", f"/leveret/c{count}/").encode())}
            Gateway(access).change("/v3/kv/put", {**request, "value": octets64(value)})

        def run(story: Story) -> None:
            nonlocal count
            count += 1
            one, other = (EtcdCoordinator(access, f"c{count}", SECONDS) for _ in range(2))
            trio.run(story, one, other, put)

        yield run


@pytest.fixture(scope="module", params=["model", "etcd"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[Story], None]]:
    """Runs a story."""
    if request.param == "model":
        yield on_model
    elif ETCD is None:
        pytest.skip(WHY_NOT)
    else:
        with real_etcd(tmp_path_factory.mktemp("etcd")) as real:
            yield real


def bootstrap(node: bytes) -> Transaction:
    """The first transaction of a cluster."""
    puts = ((JOURNAL, JOURNAL_ID), (INSYNC, InSync(0, frozenset({node}), 1)))
    return Transaction(Purpose.BOOTSTRAP, ((JOURNAL, 0), (INSYNC, 0)), puts)


def campaign(node: bytes, view: View) -> Transaction:
    """To lead after what is there."""
    assert view.insync is not None
    guards = ((LEADER, view.leader.revision if view.leader else 0), (INSYNC, view.insync.revision))
    term = view.insync.term + 1
    puts = ((LEADER, Leader(term, node, "a", "h:1")), (INSYNC, InSync(term, view.insync.nodes, view.insync.agreed)))
    return Transaction(Purpose.CAMPAIGN, guards, puts)


def registration(name: str, node: bytes, end: int = 0) -> NodeKey:
    """With something in each field."""
    return NodeKey(
        *(name, node, "h:1", JOURNAL_ID, 3, end, 2, "0.3", "f1"), True, frozenset({"b", "c"}), (("amqp", "h:5672"),)
    )


async def heard(coordinator: Coordinator, is_there: Callable[[View], bool]) -> View:
    """The first view of a watch that is so."""
    found: list[View] = []
    with trio.CancelScope() as scope:

        def hear(view: View, asked_ns: int) -> None:
            assert asked_ns > 0 or isinstance(coordinator, ModelCoordinator)
            if is_there(view):
                found.append(view)
                scope.cancel()

        await coordinator.watch(hear)
    return found[0]


def test_a_transaction_is_done_once(run: Callable[[Story], None]) -> None:
    """The second one that wants absent keys is not, and is told what is there."""

    async def story(one: Coordinator, other: Coordinator, put: Put) -> None:
        assert await one.read() == View((await one.read()).revision)
        assert one.last_answer_ns >= 0
        is_done, first = await one.transact(bootstrap(A))
        assert is_done and first.journal == JOURNAL_ID
        assert first.insync == InSync(0, frozenset({A}), 1, 0, first.revision)
        is_done, second = await other.transact(bootstrap(B))
        assert not is_done and second == first
        assert await other.read() == first

    run(story)


def test_one_of_two_campaigns_wins(run: Callable[[Story], None]) -> None:
    """The revision of `leader` names the term; what guards on an older one is not done; handing over deletes it."""

    async def story(one: Coordinator, other: Coordinator, put: Put) -> None:
        _, view = await one.transact(bootstrap(A))
        is_done, led = await one.transact(campaign(A, view))
        assert is_done and led.leader == Leader(1, A, "a", "h:1", led.revision)
        assert (await other.transact(campaign(B, view)))[0] is False
        shrink = InSync(1, frozenset({A, B}), 70, level=2)
        guards = ((LEADER, led.leader.revision), (INSYNC, led.revision))
        is_done, grown = await one.transact(Transaction(Purpose.GROW, guards, ((INSYNC, shrink),)))
        assert is_done and grown.insync is not None and grown.insync.agreed == 70 and grown.insync.level == 2
        progress = Transaction(Purpose.PROGRESS, ((LEADER, led.leader.revision),), ((AGREED, AgreedKey(1, 2**60)),))
        assert (agreed := (await one.transact(progress))[1].agreed) == AgreedKey(1, 2**60, led.revision + 2)
        guard = ((LEADER, led.leader.revision),)
        is_done, left = await one.transact(Transaction(Purpose.HAND_OVER, guard, ((PREFERRED, B),), (LEADER,)))
        assert is_done and left.leader is None and left.preferred == B and left.agreed == agreed
        assert (await one.transact(progress))[0] is False

    run(story)


def test_a_name_belongs_to_one_node(run: Callable[[Story], None]) -> None:
    """As long as it is registered; the node itself writes it again."""

    async def story(one: Coordinator, other: Coordinator, put: Put) -> None:
        assert await one.register(registration("a", A))
        assert await one.register(registration("a", A, end=9))
        assert not await other.register(registration("a", B))
        assert await other.register(registration("b", B))
        assert (await other.read()).nodes == (registration("a", A, end=9), registration("b", B))
        await one.end_lease(Lease.NODE)
        assert await other.register(registration("a", B))
        await one.end_lease(Lease.NODE)
        assert [node.node_id for node in (await one.read()).nodes] == [B, B]

    run(story)


def test_a_lease_that_is_not_renewed_ends(run: Callable[[Story], None]) -> None:
    """The key `leader` with that of the leader, which its node may not renew; the node's own is there as before."""

    async def story(one: Coordinator, other: Coordinator, put: Put) -> None:
        renewed: list[tuple[Lease, int]] = []
        async with trio.open_nursery() as nursery:
            assert await one.register(registration("a", A))
            _, view = await one.transact(bootstrap(A))
            await one.transact(campaign(A, view))
            nursery.start_soon(one.keep_leases, lambda lease: lease is Lease.NODE, lambda *told: renewed.append(told))
            view = await heard(other, lambda view: view.leader is None)
            assert [node.name for node in view.nodes] == ["a"]
            assert {lease for lease, _ in renewed} == {Lease.NODE}
            is_done, view = await one.transact(campaign(A, view))  # under a new lease
            assert is_done and view.leader is not None
            nursery.cancel_scope.cancel()
        view = await heard(other, lambda view: view.leader is None and not view.nodes)
        assert await one.register(registration("a", A))  # under a new lease

    run(story)


def test_a_lease_is_renewed(run: Callable[[Story], None]) -> None:
    """As often as it has to be for longer than its length."""

    async def story(one: Coordinator, other: Coordinator, put: Put) -> None:
        count = 0
        enough = trio.Event()

        def renewed(lease: Lease, asked_ns: int) -> None:
            nonlocal count
            count += 1
            if count == 5:
                enough.set()

        async with trio.open_nursery() as nursery:
            _, view = await one.transact(bootstrap(A))
            _, led = await one.transact(campaign(A, view))
            nursery.start_soon(one.keep_leases, lambda lease: True, renewed)
            await enough.wait()
            assert (await other.read()).leader == led.leader
            await one.end_lease(Lease.LEADER)
            assert (await other.read()).leader is None
            nursery.cancel_scope.cancel()

    run(story)


def test_a_watch_hears_what_others_do(run: Callable[[Story], None]) -> None:
    """Once it is there, and from then on; after its end nothing."""

    async def story(one: Coordinator, other: Coordinator, put: Put) -> None:
        told: list[View] = []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(other.watch, lambda view, asked_ns: told.append(view))
            _, view = await one.transact(bootstrap(A))
            await one.transact(campaign(A, view))
            await one.register(registration("a", A))
            view = await heard(one, lambda view: bool(view.nodes))
            while not told or told[-1] != view:
                await trio.testing.wait_all_tasks_blocked(0.01)
            nursery.cancel_scope.cancel()
        assert sorted({view.revision for view in told}) == [view.revision for view in told]

    run(story)


@pytest.mark.parametrize(
    "key, value, why",
    [
        ("insync", b"nonsense", "insync is not JSON: b'nonsense'"),
        ("insync", b"[]", "insync is no JSON object: b'[]'"),
        ("insync", b"[" * 9000, "insync is not JSON"),
        ("insync", b'{"term": true, "nodes": [], "agreed": 1, "level": 0}', "insync has an invalid term: True"),
        ("leader", b'{"term": 1, "node": "xy", "name": "a", "address": ""}', "leader has an invalid node: 'xy'"),
        ("node/a", b"{}", "node/a has an invalid node: None"),
        ("elsewhere", b"{}", "elsewhere, which no cluster of ours writes"),
    ],
)
def test_keys_that_are_not_ours_are_named(run: Callable[[Story], None], key: str, value: bytes, why: str) -> None:
    """With the value, if that is what is wrong."""

    async def story(one: Coordinator, other: Coordinator, put: Put) -> None:
        put(f"/leveret/leveret/0/{key}", value)
        with pytest.raises(UnfitCoordinator) as raised:
            await one.read()
        assert why in str(raised.value)
        with pytest.raises(UnfitCoordinator if key == "insync" else InDoubt) as raised:  # surely not done; done
            await one.transact(bootstrap(A))
        assert why in str(raised.value)

    run(story)


def test_fields_of_a_newer_node_are_ignored(run: Callable[[Story], None]) -> None:
    """So that nodes of two releases are one cluster."""

    async def story(one: Coordinator, other: Coordinator, put: Put) -> None:
        put("/leveret/leveret/0/agreed", b'{"term": 1, "lsn": 5, "more": {}}')
        agreed = (await one.read()).agreed
        assert agreed == AgreedKey(1, 5, agreed.revision)

    run(story)
