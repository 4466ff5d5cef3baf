"""Disks of nodes that hang, are full, rot, or are put back: three real nodes, and file systems of their own."""

import signal
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from cluster_nodes import NAMES, SHORT_LEASE, ClusterNodes, Publisher, assert_each_once, cluster_nodes, drain, until
from etcd_servers import ETCD, WHY_NOT
from small_disks import LoopDisk, loop_disk, why_no_disks

pytestmark = [
    pytest.mark.skipif(ETCD is None, reason=WHY_NOT),
    pytest.mark.skipif(bool(why_no_disks()), reason=why_no_disks()),
]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ClusterNodes, dict[str, LoopDisk]]]:
    """Three nodes, each with a disk of its own."""
    directory = tmp_path_factory.mktemp("disks")
    with ExitStack() as stack:
        disks = {name: stack.enter_context(loop_disk(directory, name)) for name in NAMES}
        nodes = stack.enter_context(cluster_nodes(directory, keys=f'{SHORT_LEASE}\ndisk-stall = "1s"'))
        nodes.places = {name: disk.path for name, disk in disks.items()}
        nodes.start_all()
        yield nodes, disks


@pytest.fixture
def nodes(cluster: tuple[ClusterNodes, dict[str, LoopDisk]]) -> ClusterNodes:
    """Three nodes in sync, and no queue."""
    nodes, _ = cluster
    nodes.await_in_sync()
    with nodes.channel(nodes.leader()) as channel:
        channel.queue_delete("orders")
    return nodes


@pytest.fixture
def disks(cluster: tuple[ClusterNodes, dict[str, LoopDisk]]) -> dict[str, LoopDisk]:
    """Of the nodes, by name."""
    return cluster[1]


def test_the_disk_of_a_leader_hangs(nodes: ClusterNodes, disks: dict[str, LoopDisk]) -> None:
    """CL06: another leads when `disk-stall` and the lease are over; the old one follows when its disk goes on."""
    leader = nodes.leader()
    with Publisher(nodes, NAMES) as publisher:
        publisher.await_confirms(20)
        disks[leader].freeze()
        nodes.leader(but=leader)
        publisher.await_confirms(20)
        disks[leader].thaw()
        nodes.await_in_sync()
        publisher.await_confirms(20)
        others = {name for name in NAMES if name != leader}
        for name in others:  # and may lead again
            nodes.signal(name, signal.SIGSTOP)
        assert nodes.leader(but=nodes.leader()) == leader
        for name in others:
            nodes.signal(name, signal.SIGCONT)
        nodes.await_in_sync()
    assert publisher.longest_gap_s < 20
    assert "the disk hangs" in nodes.log(leader)
    assert_each_once(publisher, drain(nodes, leader))


def test_the_disk_of_a_follower_hangs(nodes: ClusterNodes, disks: dict[str, LoopDisk]) -> None:
    """Confirms go on without it after `ack-deadline`; it comes back in sync by itself."""
    leader = nodes.leader()
    follower = next(name for name in NAMES if name != leader)
    with Publisher(nodes, (leader,)) as publisher:
        publisher.await_confirms(20)
        disks[follower].freeze()
        until(lambda: follower not in nodes.in_sync(), "the node out of the set")
        publisher.await_confirms(20)
        disks[follower].thaw()
        nodes.await_in_sync()
    assert nodes.leader() == leader
    assert_each_once(publisher, drain(nodes, follower))


def test_the_disk_of_a_follower_is_full(nodes: ClusterNodes, disks: dict[str, LoopDisk]) -> None:
    """CL21: it is shrunk away, and says so; with room it comes back by itself."""
    leader = nodes.leader()
    follower = next(name for name in NAMES if name != leader)
    with Publisher(nodes, (leader,), size=20_000) as publisher:
        publisher.await_confirms(20)
        disks[follower].fill()
        until(lambda: follower not in nodes.in_sync(), "the node out of the set")
        publisher.await_confirms(20)
        disks[follower].empty()
        nodes.await_in_sync()
    assert "no space" in nodes.log(follower).lower()
    assert nodes.leader() == leader
    assert_each_once(publisher, drain(nodes, follower))


def test_the_disk_of_a_leader_is_full(nodes: ClusterNodes, disks: dict[str, LoopDisk]) -> None:
    """CL21: it resigns, as another one has room; with room it comes back by itself."""
    leader = nodes.leader()
    with Publisher(nodes, NAMES, size=20_000) as publisher:
        publisher.await_confirms(20)
        disks[leader].fill()
        nodes.leader(but=leader)
        publisher.await_confirms(20)
        disks[leader].empty()
        nodes.await_in_sync()
    assert_each_once(publisher, drain(nodes, leader))
