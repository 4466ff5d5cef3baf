"""Clusters of other sizes than three, and a node more: as docs/cluster.md says it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster_nodes import SHORT_LEASE, ClusterNodes, Publisher, assert_each_once, ctl, drain, started, until
from etcd_servers import ETCD, WHY_NOT, etcd_servers

from leveret.interop.wire.loopback import free_ports

pytestmark = [pytest.mark.cluster, pytest.mark.skipif(ETCD is None, reason=WHY_NOT)]


@pytest.fixture
def two(tmp_path: Path) -> Iterator[ClusterNodes]:
    """Two nodes, of which one may confirm alone."""
    (tmp_path / "etcd").mkdir()
    with etcd_servers(tmp_path / "etcd", 1) as etcd:
        nodes = ClusterNodes(tmp_path, etcd, ("a", "b"), f"min-in-sync = 1\n{SHORT_LEASE}")
        with started(nodes):
            yield nodes


def test_one_of_two_nodes_confirms_alone(two: ClusterNodes) -> None:
    """Whichever is lost, if it is back before the other one goes. One that is behind does not lead."""
    leader, follower = two.leader(), next(name for name in two.names if name != two.leader())
    with Publisher(two, two.names) as publisher:
        publisher.await_confirms(20)
        two.kill(follower)
        publisher.await_confirms(50)
        two.start(follower)
        two.await_in_sync()
        two.kill(leader)
        assert two.leader(but=leader) == follower
        publisher.await_confirms(50)
        two.kill(follower)
        two.start(leader)
        why = "no node leads, and this one does not campaign: it is not in sync"
        until(lambda: why in ctl(two, leader, "cluster")[1], why)
        two.start(follower)
        publisher.await_confirms(20)
    assert two.leader() == follower
    assert_each_once(publisher, drain(two, follower))


def test_a_third_node_is_added(two: ClusterNodes) -> None:
    """The others are restarted with the new list, one by one, then it joins. It may lead."""
    with Publisher(two, two.names) as publisher:
        publisher.await_confirms(20)
        two.links["c"], two.ports["c"], two.metrics["c"] = free_ports(3)
        for name, other in (("b", "a"), ("a", "b")):
            assert ctl(two, other, "cluster", "wait-safe-to-stop", name)[0] == 0
            assert two.stop(name) == 0
            two.start(name)
            assert ctl(two, other, "cluster", "wait-in-sync", name)[0] == 0
        code, text = ctl(two, "a", "--timeout", "1", "cluster", "wait-in-sync")
        assert code == 1 and "node c is absent" in text
        two.start("c")
        for command in (("cluster", "wait-in-sync"), ("handover", "c")):
            code, text = ctl(two, "c", *command)
            assert code == 0, text
        publisher.await_confirms(20)
    assert two.leader() == "c"
    assert_each_once(publisher, drain(two, "b"))
