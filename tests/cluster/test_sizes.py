"""Clusters of other sizes than three, and a node more: as docs/cluster.md says it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster_nodes import SHORT_LEASE, ClusterNodes, Publisher, assert_each_once, drain, until
from etcd_servers import ETCD, WHY_NOT, etcd_servers

from leveret.__main__ import main
from leveret.interop.wire.loopback import free_ports

pytestmark = [pytest.mark.cluster, pytest.mark.skipif(ETCD is None, reason=WHY_NOT)]


@pytest.fixture
def two(tmp_path: Path) -> Iterator[ClusterNodes]:
    """Two nodes, of which one may confirm alone."""
    (tmp_path / "etcd").mkdir()
    with etcd_servers(tmp_path / "etcd", 1) as etcd:
        nodes = ClusterNodes(tmp_path, etcd, ("a", "b"), f"min-in-sync = 1\n{SHORT_LEASE}")
        try:
            nodes.start_all()
            nodes.await_in_sync()
            yield nodes
        finally:
            nodes.close()


def test_one_of_two_nodes_confirms_alone(two: ClusterNodes, capsys: pytest.CaptureFixture[str]) -> None:
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
        until(lambda: ctl(two, leader, "cluster") == 0 and why in capsys.readouterr().out, why)
        two.start(follower)
        publisher.await_confirms(20)
    assert two.leader() == follower
    assert_each_once(publisher, drain(two, follower))


def test_a_third_node_is_added(two: ClusterNodes, capsys: pytest.CaptureFixture[str]) -> None:
    """The others are restarted with the new list, one by one, then it joins. It may lead."""
    with Publisher(two, two.names) as publisher:
        publisher.await_confirms(20)
        two.links["c"], two.ports["c"], two.metrics["c"] = free_ports(3)
        for name, other in (("b", "a"), ("a", "b")):
            assert ctl(two, other, "cluster", "wait-safe-to-stop", name) == 0
            assert two.stop(name) == 0
            two.start(name)
            assert ctl(two, other, "cluster", "wait-in-sync", name) == 0
        assert ctl(two, "a", "--timeout", "1", "cluster", "wait-in-sync") == 1
        assert "node c is absent" in capsys.readouterr().err
        two.start("c")
        for command in (("cluster", "wait-in-sync"), ("handover", "c")):
            assert ctl(two, "c", *command) == 0, capsys.readouterr().err
        publisher.await_confirms(20)
    assert two.leader() == "c"
    assert_each_once(publisher, drain(two, "b"))


def ctl(nodes: ClusterNodes, through: str, *command: str) -> int:
    """`leveret ctl` through a node."""
    return main(["ctl", "--url", f"amqp://guest:guest@127.0.0.1:{nodes.ports[through]}/", *command])
