"""What docs/cluster.md tells an operator to do, with real nodes and a real etcd."""

import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pika
import pytest
from broker_process import leveret_serve
from cluster_nodes import NAMES, ClusterNodes, Publisher, assert_each_once, cluster_nodes, drain, until
from etcd_servers import ETCD, WHY_NOT

from leveret.__main__ import main

pytestmark = pytest.mark.skipif(ETCD is None, reason=WHY_NOT)


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[ClusterNodes]:
    """Three nodes that were not started."""
    with cluster_nodes(tmp_path) as nodes:
        yield nodes


def recover(nodes: ClusterNodes, capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    """What `leveret cluster recover` prints, with the configuration of node a."""
    main(["cluster", "recover", str(nodes.directory / "a/leveret.toml"), *arguments])
    return capsys.readouterr().out.splitlines()


def publish_alone(data: Path, count: int) -> None:
    """By a broker that is no node."""
    data.parent.mkdir()
    with leveret_serve(data.parent, data=data) as broker:
        with closing(pika.BlockingConnection(pika.URLParameters(broker.url))) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            channel.queue_declare("orders", durable=True)
            for number in range(count):
                channel.basic_publish("", "orders", str(number).encode(), pika.BasicProperties(delivery_mode=2))
        broker.stop()


def start_without_a_leader(nodes: ClusterNodes) -> None:
    """Until all are registered anew; nobody leads."""
    until(lambda: (view := nodes.view()) is not None and not view.nodes, "the end of the old registrations")
    for name in NAMES:
        nodes.start(name, waits=False)
    until(lambda: (view := nodes.view()) is not None and len(view.nodes) == 3, "three nodes")


def kill_all(nodes: ClusterNodes) -> None:
    """At once, as when the power is cut."""
    for name in NAMES:
        nodes.kill(name)


def test_etcd_lost_its_data(nodes: ClusterNodes, capsys: pytest.CaptureFixture[str]) -> None:
    """CL09: nobody leads until an operator chooses the node that has the most; nothing is lost then.

    The cluster began with the data directory of a broker that was alone.
    """
    publish_alone(nodes.data("b"), 20)
    nodes.start_all()
    assert nodes.leader() == "b"
    nodes.await_in_sync()
    with Publisher(nodes, NAMES, sent=20) as publisher:
        publisher.await_confirms(100)
        kill_all(nodes)
        nodes.etcd.kill(0)
    shutil.rmtree(nodes.directory / "etcd/m0")
    nodes.etcd.start(0)
    nodes.etcd.await_answer(0)
    start_without_a_leader(nodes)
    lines = recover(nodes, capsys)
    assert lines[:2] == ["leader: none", "in sync: etcd knows of none"]
    most = lines[-1].partition(" has the most")[0]
    assert most in NAMES
    until(lambda: "see `leveret cluster recover`" in nodes.log(most), "the reason why nobody begins")
    assert recover(nodes, capsys, most, "--yes")[-1] == f"{most} begins the cluster"
    assert nodes.leader() == most
    nodes.await_in_sync()
    found = drain(nodes, "a")
    assert_each_once(publisher, found)
    assert [number for number, _ in found[:20]] == list(range(20))


def test_a_backup_is_put_back(nodes: ClusterNodes, capsys: pytest.CaptureFixture[str]) -> None:
    """R10: a node that has less than was agreed does not lead by itself. An operator may say that it shall."""
    nodes.start_all()
    nodes.await_in_sync()
    with Publisher(nodes, NAMES) as publisher:
        publisher.await_confirms(50)
    first = publisher.sent
    backup = nodes.directory / "backup"
    shutil.copytree(nodes.data("c"), backup)
    before = nodes.view()
    assert before is not None and before.insync is not None
    with Publisher(nodes, NAMES) as later:
        later.await_confirms(50)
    until(lambda: (view := nodes.view()) and view.agreed and view.agreed.lsn > before.insync.agreed + 50, "agreed")
    kill_all(nodes)
    for name in NAMES:
        shutil.move(nodes.data(name), nodes.directory / f"away-{name}")
    shutil.copytree(backup, nodes.data("c"))
    start_without_a_leader(nodes)
    until(lambda: "was agreed: its disk was rolled back" in nodes.log("c"), "the reason why c does not lead")
    view = nodes.view()
    assert view is not None and view.leader is None
    assert recover(nodes, capsys, "c", "--yes")[-1] == "c begins the cluster"
    assert nodes.leader() == "c"
    nodes.await_in_sync()
    numbers = [number for number, _ in drain(nodes, "a")]
    assert set(publisher.confirmed) <= set(numbers) and len(numbers) <= first
