"""The leases of a node in etcd, in each turn of what etcd may answer; without an etcd."""

import threading
from base64 import b64decode
from typing import Any

import pytest
import trio
from in_trio import in_trio

from leveret.cluster.agreement.transactions import campaign
from leveret.cluster.agreement.view import InSync, NodeIdentity, NodeKey
from leveret.cluster.coordinator.coordinator import Lease
from leveret.cluster.coordinator.errors import Unreachable
from leveret.cluster.coordinator.etcd import EtcdCoordinator
from leveret.cluster.coordinator.gateway import EtcdAccess, octets64
from leveret.cluster.coordinator.gateway import Gateway as EtcdGateway
from leveret.cluster.coordinator.keys import Keys

A = b"a" * 16
CAMPAIGN = campaign(NodeIdentity("a", A, "a:1"), InSync(1, frozenset({A}), 0, revision=3), None)


class Gateway:
    """Answers as it is told, and keeps what was asked. Leases that are granted are 7, 8, 9, ..."""

    def __init__(self, *, renewed: Any = None, is_done: bool = True) -> None:
        self.renewed, self.is_done = renewed, is_done
        self.granted = 6
        self.changes: list[Any] = []

    def read(self, path: str, body: Any) -> Any:
        if path.endswith("keepalive"):
            if isinstance(self.renewed, Exception):
                raise self.renewed
            return self.renewed
        self.granted += 1
        return {"ID": str(self.granted)}

    def change(self, path: str, request: Any, seconds: float) -> Any:
        self.changes.append(request)
        everything = {"response_range": {"kvs": []}}
        return {"header": {"revision": "9"}, "succeeded": self.is_done, "responses": [everything]}


def coordinator() -> EtcdCoordinator:
    return EtcdCoordinator(EtcdAccess(("http://127.0.0.1:1",)), "orders")


@pytest.mark.parametrize(
    "answer, is_renewed, is_kept",
    [
        ({"result": {"ID": "7", "TTL": "6"}}, True, True),
        ({"result": {"ID": "7"}}, False, False),
        (Unreachable("no member"), False, True),
    ],
    ids=["renewed", "over", "no answer"],
)
@in_trio
async def test_a_lease_is_tried_again_unless_etcd_says_that_it_is_over(
    answer: Any, is_renewed: bool, is_kept: bool
) -> None:
    """One answer that does not come ends no leadership; a lease that is over is not asked for again."""
    etcd = coordinator()
    etcd._leases[Lease.LEADER] = "7"
    assert etcd._renew(Gateway(renewed=answer), Lease.LEADER, "7") is is_renewed  # type: ignore[arg-type]
    assert (Lease.LEADER in etcd._leases) is is_kept


@in_trio
async def test_leases_are_renewed_three_times_in_their_time_however_slow_etcd_is() -> None:
    """If each pause began at an answer, an etcd that needs seconds for it would let the leader's lease end."""
    now_ns, pauses = 0, []

    class Over:
        def is_set(self) -> bool:
            return len(pauses) == 2

        def wait(self, seconds: float) -> None:
            pauses.append(seconds)

    class Slow(Gateway):
        def read(self, path: str, body: Any) -> Any:
            nonlocal now_ns
            now_ns += int((1.5 if not pauses else 4) * 1e9)
            return super().read(path, body)

    etcd = EtcdCoordinator(EtcdAccess(("http://127.0.0.1:1",)), "orders", 6, lambda: now_ns)
    etcd._leases[Lease.LEADER] = "7"
    slow: Any = Slow(renewed={"result": {"ID": "7", "TTL": "6"}})
    over: Any = Over()
    etcd._renew_until(over, slow, Lease.LEADER, lambda lease: True, lambda lease, asked_ns: None)
    assert pauses == [0.5, 0]


@in_trio
async def test_the_lease_of_a_leader_does_not_wait_for_that_of_its_node() -> None:
    """With an etcd that needs seconds for each answer the two together would take as long as the lease lasts."""
    both = threading.Barrier(2)

    class Slow(Gateway):
        """Answers no lease before it is asked for both."""

        def read(self, path: str, body: Any) -> Any:
            both.wait(60)
            return super().read(path, body)

        def abort(self) -> None:
            both.abort()

    etcd = coordinator()
    etcd.new_gateway = lambda: Slow(renewed={"result": {"TTL": "6"}})  # type: ignore[assignment, return-value]
    etcd._leases.update({Lease.NODE: "7", Lease.LEADER: "8"})
    renewed: set[Lease] = set()
    async with trio.open_nursery() as nursery:

        def note(lease: Lease, asked_ns: int) -> None:
            renewed.add(lease)
            if len(renewed) == 2:
                nursery.cancel_scope.cancel()

        await etcd.keep_leases(lambda lease: True, note)
    assert renewed == {Lease.NODE, Lease.LEADER}


@pytest.mark.parametrize("is_done", [True, False])
@in_trio
async def test_the_key_of_a_leader_is_under_a_lease_that_ends_with_it(is_done: bool) -> None:
    """Else it would stay when the leader is gone. The lease of a campaign that was lost is not renewed."""
    etcd, gateway = coordinator(), Gateway(is_done=is_done)
    assert etcd._transact(gateway, CAMPAIGN)[0] is is_done  # type: ignore[arg-type]
    puts = [one["request_put"] for one in gateway.changes[0]["success"] if "request_put" in one]
    leases = {one["key"]: one.get("lease") for one in puts}
    assert sorted(leases.values(), key=str) == ["7", None]
    assert (etcd._leases.get(Lease.LEADER) == "7") is is_done
    assert len(gateway.changes[0]["compare"]) == 2


@in_trio
async def test_a_node_is_registered_under_one_lease_however_often() -> None:
    """Its key is written again with each change: else etcd would keep a lease for each, and none but one be renewed."""
    etcd, gateway = coordinator(), Gateway()
    key = NodeKey("a", A, "a:1")
    for _ in range(3):
        assert etcd._register(gateway, key)  # type: ignore[arg-type]
    puts = [one["request_put"] for request in gateway.changes for one in request["success"] if "request_put" in one]
    assert [one["lease"] for one in puts] == ["7"] * 3 and gateway.granted == 7
    assert etcd._leases == {Lease.NODE: "7"}


def test_an_answer_proves_what_was_true_when_it_was_asked_for() -> None:
    """It may have been under way for seconds."""
    now = [3]

    class Slow(EtcdGateway):
        def _send(self, *how: Any) -> Any:
            now[0] = 9

        def _answer(self, response: Any) -> Any:
            return {"header": {"revision": "9"}}

    gateway = Slow(EtcdAccess(("http://127.0.0.1:1",)), lambda: now[0])
    gateway.read("/v3/kv/range", {})
    assert gateway.last_sent_ns == 3


def test_no_cluster_reads_the_keys_of_another() -> None:
    """Whose name begins with its own."""
    ours, theirs = Keys("production"), Keys("production-eu")
    pair = {"key": octets64(f"{theirs.prefix}journal".encode()), "value": octets64(b"{}"), "mod_revision": "3"}
    first, end = (b64decode(ours.range[edge]) for edge in ("key", "range_end"))
    assert not first <= b64decode(pair["key"]) < end
