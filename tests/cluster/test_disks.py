"""Disks of nodes that hang, are full, rot, or are rolled back: three real nodes, and file systems of their own."""

import signal
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from cluster_nodes import (
    LOST,
    NAMES,
    SHORT_LEASE,
    ClusterNodes,
    Publisher,
    assert_each_once,
    cluster_nodes,
    ctl,
    drain,
    others,
    until,
)
from etcd_servers import ETCD, WHY_NOT
from small_disks import LoopDisk, loop_disk, why_no_disks

from leveret.journal.disk.files import REAL
from leveret.journal.recovery.recovery import recover

pytestmark = [
    pytest.mark.cluster,
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
        followers = others(leader)
        for name in followers:  # and may lead again
            nodes.signal(name, signal.SIGSTOP)
        assert nodes.leader(but=nodes.leader()) == leader
        for name in followers:
            nodes.signal(name, signal.SIGCONT)
        nodes.await_in_sync()
    assert publisher.longest_gap_s < 20
    assert "the disk hangs" in nodes.log(leader)
    assert_each_once(publisher, drain(nodes, leader))


def test_the_disk_of_a_follower_hangs(nodes: ClusterNodes, disks: dict[str, LoopDisk]) -> None:
    """Confirms go on without it after `ack-deadline`; it comes back in sync by itself."""
    leader = nodes.leader()
    follower = others(leader)[0]
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
    follower = others(leader)[0]
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


@pytest.fixture
def small_segments(tmp_path: Path) -> Iterator[ClusterNodes]:
    """Three nodes whose messages are soon in sealed segments alone, and not in memory."""
    yield from _paging(tmp_path, 'segment-size = "256KiB"')


@pytest.fixture
def no_checkpoint(tmp_path: Path) -> Iterator[ClusterNodes]:
    """Three nodes whose messages are not in memory, and whose journals are too short for a checkpoint."""
    yield from _paging(tmp_path, "")


def _paging(tmp_path: Path, journal: str) -> Iterator[ClusterNodes]:
    with cluster_nodes(tmp_path) as nodes:
        nodes.journal = f'{journal}\n[limits]\nmemory = "64KiB"'
        nodes.start_all()
        nodes.await_in_sync()
        yield nodes


def rot(data: Path, number: int) -> None:
    """Change an octet in the middle of the nth segment, which is sealed."""
    segment = segments(data)[number]
    assert segment != segments(data)[-1]
    with segment.open("r+b") as file:
        file.seek(segment.stat().st_size // 2)
        octet = file.read(1)
        file.seek(-1, 1)
        file.write(bytes([octet[0] ^ 255]))


def segments(data: Path) -> list[Path]:
    """Oldest first."""
    return sorted(data.glob("*.log"))


def replayed_from(data: Path) -> int:
    """The number of the segment with which a takeover begins to read: that of the last whole checkpoint, or 0."""
    begin = recover(REAL, str(data)).checkpoint_begin
    return max(bisect_right([int(one.stem) for one in segments(data)], begin) - 1, 0)


def test_a_segment_of_the_leader_rots(small_segments: ClusterNodes) -> None:
    """CL20: the leader resigns when it reads it, and gets a full copy."""
    nodes = small_segments
    leader = nodes.leader()
    with Publisher(nodes, NAMES, size=20_000) as publisher:
        publisher.await_confirms(60)
    rot(nodes.data(leader), 1)
    found = drain_over_losses(nodes)
    assert nodes.leader() != leader
    until(lambda: "a full copy is complete" in nodes.log(leader), "the full copy")
    nodes.await_in_sync()
    until(lambda: not nodes.data(leader).with_name("data.old").exists(), "the end of the journal before the copy")
    assert set(publisher.confirmed) <= found


def test_a_segment_rots_that_a_takeover_reads(no_checkpoint: ClusterNodes) -> None:
    """CL20: a node that needs it to take over does not lead, and gets a full copy from the node that has it whole."""
    nodes = no_checkpoint
    with Publisher(nodes, NAMES, size=20_000) as publisher:
        publisher.await_confirms(30)
    assert ctl(nodes, nodes.leader(), "handover")[0] == 0  # the takeover seals the segment
    nodes.await_in_sync()
    leader = nodes.leader()
    followers = others(leader)
    for name in followers:
        assert replayed_from(nodes.data(name)) == 0
        rot(nodes.data(name), 0)
    nodes.kill(leader)
    for name in followers:
        until(lambda name=name: "cannot take over" in nodes.log(name), f"{name}, which cannot take over")
    nodes.start(leader)
    assert nodes.leader() == leader
    for name in followers:
        until(lambda name=name: "a full copy is complete" in nodes.log(name), f"the full copy of {name}")
    nodes.await_in_sync()
    assert_each_once(publisher, drain(nodes, followers[0]))


def test_a_segment_rots_that_a_takeover_does_not_read(small_segments: ClusterNodes) -> None:
    """CL20: it is before the checkpoint. A node leads until a client needs it; then a node leads that has it whole."""
    nodes = small_segments
    leader = nodes.leader()
    followers = others(leader)
    with Publisher(nodes, (leader,), size=20_000) as publisher:
        until(lambda: all(replayed_from(nodes.data(name)) > 1 for name in NAMES), "a checkpoint on all nodes")
    for name in followers:
        rot(nodes.data(name), 1)
    nodes.kill(leader)
    assert nodes.leader() in followers
    nodes.start(leader)
    nodes.await_in_sync()
    found = drain_over_losses(nodes)
    assert nodes.leader() == leader
    seen = [name for name in followers if "cannot be read back" in nodes.log(name)]  # one, or both after each other
    assert seen
    for name in seen:
        until(lambda name=name: "a full copy is complete" in nodes.log(name), f"the full copy of {name}")
    nodes.await_in_sync()
    assert set(publisher.confirmed) <= found


def drain_over_losses(nodes: ClusterNodes) -> set[int]:
    """The numbers of all messages, acknowledged, whoever leads meanwhile."""
    found: set[int] = set()
    while True:
        with suppress(*LOST), nodes.channel(nodes.leader()) as channel:
            while (method := (got := channel.basic_get("orders"))[0]) is not None:
                found.add(int(got[2]))
                channel.basic_ack(method.delivery_tag)
            return found
