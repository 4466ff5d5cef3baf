"""What docs/cluster.md tells an operator to do, with real nodes and a real etcd."""

import shutil
from collections.abc import Iterator
from contextlib import suppress
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
    """CL09: nobody leads until an operator chooses the node that has the most; nothing is lost then."""
    nodes.start_all()
    nodes.await_in_sync()
    with Publisher(nodes, NAMES) as publisher:
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
    assert_each_once(publisher, drain(nodes, "b"))


def test_a_backup_is_put_back(nodes: ClusterNodes, capsys: pytest.CaptureFixture[str]) -> None:
    """R10: a node that has less than was agreed does not lead by itself. An operator may say that it shall."""
    nodes.start_all()
    nodes.await_in_sync()
    with Publisher(nodes, NAMES) as publisher:
        publisher.await_confirms(50)
    first = publisher.sent
    nodes.stop("c")
    backup = nodes.directory / "backup"
    shutil.copytree(nodes.data("c"), backup)
    nodes.start("c")
    nodes.await_in_sync()
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
    until(lambda: "was agreed: its disk was put back" in nodes.log("c"), "the reason why c does not lead")
    view = nodes.view()
    assert view is not None and view.leader is None
    assert recover(nodes, capsys, "c", "--yes")[-1] == "c begins the cluster"
    assert nodes.leader() == "c"
    nodes.await_in_sync()
    numbers = [number for number, _ in drain(nodes, "a")]
    assert set(publisher.confirmed) <= set(numbers) and len(numbers) <= first


def test_a_broker_that_was_alone_becomes_a_cluster(nodes: ClusterNodes, tmp_path: Path) -> None:
    """The node that has its data directory begins, and the others copy it."""
    (nodes.directory / "b").mkdir()
    place = tmp_path / "alone"
    place.mkdir()
    with leveret_serve(place, data=nodes.data("b")) as broker:
        connection = pika.BlockingConnection(pika.URLParameters(broker.url))
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("orders", durable=True)
        for number in range(20):
            channel.basic_publish("", "orders", str(number).encode(), pika.BasicProperties(delivery_mode=2))
        with suppress(pika.exceptions.AMQPError):
            connection.close()
        broker.stop()
    nodes.start_all()
    assert nodes.leader() == "b"
    nodes.await_in_sync()
    assert [number for number, _ in drain(nodes, "c")] == list(range(20))
