"""CL07: partitions between real nodes, by relays in each link and on the way to etcd that let nothing pass."""

from collections.abc import Iterator

import pytest
from cluster_nodes import NAMES, ClusterNodes, Publisher, cluster_nodes, drain, others
from etcd_servers import ETCD, WHY_NOT

pytestmark = [pytest.mark.cluster, pytest.mark.skipif(ETCD is None, reason=WHY_NOT)]


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterNodes]:
    """Three nodes with relays."""
    with cluster_nodes(tmp_path_factory.mktemp("partitions"), has_wires=True) as nodes:
        nodes.start_all()
        nodes.await_in_sync()
        yield nodes


def cut_from_all(nodes: ClusterNodes, leader: str) -> None:
    """The leader alone."""
    cut_from_nodes(nodes, leader)
    for wire in nodes.etcd_wires[leader]:
        wire.cut()


def cut_from_nodes(nodes: ClusterNodes, leader: str) -> None:
    """The leader with etcd alone."""
    nodes.link_wires[leader].cut()
    for wire in nodes.link_wires.values():
        wire.cut(whose=leader)


def cut_acknowledgements(nodes: ClusterNodes, leader: str) -> None:
    """One way: followers hear the leader, and it hears neither them nor etcd."""
    nodes.link_wires[leader].cut(back=False)
    for wire in nodes.etcd_wires[leader]:
        wire.cut(forth=False)
    for wire in nodes.link_wires.values():
        wire.cut(forth=False, whose=leader)


@pytest.mark.parametrize("cut", [cut_from_all, cut_from_nodes, cut_acknowledgements])
def test_one_side_of_a_partition_confirms(nodes: ClusterNodes, cut: object) -> None:
    """Others lead, and confirm; the old leader confirms nothing meanwhile, and follows afterwards; nothing is lost."""
    assert callable(cut)
    leader = nodes.leader()
    followers = others(leader)
    with Publisher(nodes, (leader,), sent=0) as old, Publisher(nodes, followers, sent=1_000_000) as new:
        for one in (old, new):
            one.await_confirms(10)
        cut(nodes, leader)
        nodes.leader(but=leader)
        count = len(old.confirmed)
        new.await_confirms(20)
        assert len(old.confirmed) == count
        for wire in (*nodes.link_wires.values(), *nodes.etcd_wires[leader]):
            wire.mend()
        nodes.await_in_sync()
        for one in (old, new):
            one.await_confirms(10)
    numbers = [number for number, _ in drain(nodes, leader)]
    assert len(numbers) == len(set(numbers))
    assert {*old.confirmed, *new.confirmed} <= set(numbers)


def test_followers_without_each_other(nodes: ClusterNodes) -> None:
    """Nothing happens; when the leader is lost, too, no side has two nodes: nothing is confirmed until one is back."""
    leader = nodes.leader()
    one, other = others(leader)
    with Publisher(nodes, NAMES) as publisher:
        publisher.await_confirms(10)
        nodes.link_wires[one].cut(whose=other)
        nodes.link_wires[other].cut(whose=one)
        publisher.await_confirms(20)
        assert nodes.leader() == leader and nodes.in_sync() == set(NAMES)
        nodes.kill(leader)
        nodes.leader(but=leader)
        count = len(publisher.confirmed)
        assert len(publisher.confirmed) == count
        nodes.start(leader)
        publisher.await_confirms(20)
        for name in (one, other):
            nodes.link_wires[name].mend()
        nodes.await_in_sync()
    numbers = [number for number, _ in drain(nodes, leader)]
    assert len(numbers) == len(set(numbers)) and set(publisher.confirmed) <= set(numbers)
