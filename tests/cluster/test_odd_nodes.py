"""Nodes that are not like the others: of an older release, with a wrong clock, with an old copy of their directory."""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pika
import pytest
from cluster_nodes import NAMES, ClusterNodes, Publisher, assert_each_once, cluster_nodes, drain, until
from etcd_servers import ETCD, WHY_NOT

from leveret.__main__ import main

pytestmark = [pytest.mark.cluster, pytest.mark.skipif(ETCD is None, reason=WHY_NOT)]

ODD = str(Path(__file__).parents[1] / "support" / "odd_node.py")
AHEAD_S = 600


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[ClusterNodes]:
    """Three nodes that were not started."""
    with cluster_nodes(tmp_path) as nodes:
        yield nodes


def test_one_is_ahead_and_one_is_older(nodes: ClusterNodes) -> None:
    """CL18, CL19: each says so in its log. b is ahead: message times move by that. c is older: it never leads."""
    for name, ahead_s in (("a", 0), ("b", AHEAD_S), ("c", 0)):
        nodes.commands[name] = (sys.executable, ODD, "2", str(ahead_s))
    nodes.start_all()
    assert nodes.leader() == "a"
    nodes.await_in_sync()
    assert main(["ctl", "--url", f"amqp://guest:guest@127.0.0.1:{nodes.ports['a']}/", "cluster", "raise-level"]) == 0
    assert nodes.stop("c") == 0
    nodes.commands["c"] = (sys.executable, ODD, "1", "0")
    nodes.start("c")
    nodes.await_in_sync()
    until(lambda: "needs a newer program than this one" in nodes.log("c"), "what c says of its release")
    until(lambda: "clock of this node is 600 s ahead of" in nodes.log("b"), "what b says of its clock")
    with nodes.channel("c") as channel:
        channel.queue_declare("timed", durable=True, arguments={"x-message-ttl": AHEAD_S * 500})
        channel.confirm_delivery()
        channel.basic_publish("", "timed", b"", pika.BasicProperties(delivery_mode=2))
    with Publisher(nodes, ("c",)) as publisher:
        publisher.await_confirms(20)
        nodes.kill("a")
        publisher.await_confirms(20)
        assert nodes.leader() == "b"
        until(lambda: "this node reads level 1" in nodes.log("c"), "why c does not campaign")
        nodes.start("a")
        nodes.await_in_sync()
        assert nodes.stop("b") == 0  # hands over, and not to c
        publisher.await_confirms(20)
    assert nodes.leader() == "a"
    with nodes.channel("c") as channel:
        assert channel.basic_get("timed") == (None, None, None)
    assert_each_once(publisher, drain(nodes, "c"))


def test_an_old_copy_of_a_directory_is_put_back(nodes: ClusterNodes) -> None:
    """CL11: a node that has less than was agreed does not campaign, and gets what it misses when another one leads."""
    nodes.start_all()
    nodes.await_in_sync()
    with Publisher(nodes, NAMES) as publisher:
        publisher.await_confirms(30)
        name = next(one for one in NAMES if one != nodes.leader())
        shutil.copytree(nodes.data(name), nodes.directory / "old")
        before = nodes.view()
        publisher.await_confirms(30)
    assert before is not None and before.insync is not None
    until(lambda: (view := nodes.view()) and view.agreed and view.agreed.lsn > before.insync.agreed + 60, "agreed")
    others = [one for one in NAMES if one != name]
    for one in NAMES:
        nodes.kill(one)
    shutil.rmtree(nodes.data(name))
    (nodes.directory / "old").rename(nodes.data(name))
    until(
        lambda: (view := nodes.view()) is not None and not view.nodes and view.leader is None, "the end of the leases"
    )
    nodes.start(name)
    until(lambda: "was agreed: its disk was rolled back" in nodes.log(name), "why it does not lead")
    nodes.start(others[0])
    assert nodes.leader() == others[0]
    nodes.start(others[1])
    nodes.await_in_sync()
    assert_each_once(publisher, drain(nodes, name))
    nodes.kill(others[0])
    assert nodes.leader(but=others[0]) in (name, others[1])
