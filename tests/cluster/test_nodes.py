"""Three nodes as real processes on loopback with a real etcd: what clients see when nodes come and go.

The names of the cases are those of docs/cluster.md. `make cluster-rounds` repeats them with many seeds.
"""

import http.client
import json
import shutil
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pika
import pytest
from cluster_nodes import NAMES, ClusterNodes, Publisher, assert_each_once, ctl, drain, others, until
from etcd_servers import ETCD, WHY_NOT

pytestmark = pytest.mark.skipif(ETCD is None, reason=WHY_NOT)


def page(nodes: ClusterNodes, name: str, path: str) -> tuple[int, str]:
    """Status and body of an answer of a node's metrics port."""
    connection = http.client.HTTPConnection("127.0.0.1", nodes.metrics[name], timeout=30)
    with closing(connection):
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


def test_each_node_says_how_it_is(nodes: ClusterNodes) -> None:
    """Metrics and health at its own port, whether it leads or follows; the event log of the leader has the set."""
    leader = nodes.leader()
    follower, _ = others(leader)
    for name in NAMES:
        assert page(nodes, name, "/health/live")[0] == page(nodes, name, "/health/ready")[0] == 200
    state = f'leveret_cluster_state{{node="rabbit@{follower}",state="in_sync"}} 1'
    assert state in page(nodes, follower, "/metrics")[1]
    assert "rabbitmq_connections" in page(nodes, leader, "/metrics")[1]
    for name in NAMES:  # until the last record is in the journals of all
        text = until(
            lambda name=name: (found := journal_events(nodes, name)) and "in sync: a, b, c" in found and found, "events"
        )
        assert "led" in text and "followed" in text


def journal_events(nodes: ClusterNodes, name: str) -> str:
    """What `leveret journal` shows of a node's journal."""
    command = [sys.executable, "-m", "leveret", "journal", "cat", str(nodes.data(name))]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def test_a_leader_that_is_killed(nodes: ClusterNodes) -> None:
    """CL01, CL02: another leads, and every confirmed message is there once; a declared queue is there on all nodes."""
    leader = nodes.leader()
    follower, third = others(leader)
    with Publisher(nodes, (follower,)) as publisher:
        publisher.await_confirms(100)
        for name in NAMES:
            with nodes.channel(name) as channel:
                channel.queue_declare("orders", durable=True, passive=True)
        nodes.kill(leader)
        publisher.await_confirms(100)
    assert nodes.leader(but=leader) in (follower, third)
    found = drain(nodes, follower)
    assert_each_once(publisher, found)


def test_a_minority_confirms_nothing(nodes: ClusterNodes) -> None:
    """CL03: with two of three nodes killed publishers are blocked, and told so; one node back, and it goes on."""
    leader = nodes.leader()
    second, third = others(leader)
    blocked: list[str] = []
    connection = nodes.connect(leader)
    connection.add_on_connection_blocked_callback(lambda _, frame: blocked.append(frame.method.reason))
    with Publisher(nodes, (leader,)) as publisher:
        publisher.await_confirms(50)
        nodes.kill(second)
        publisher.await_confirms(50)
        nodes.kill(third)
        channel = connection.channel()

        def is_blocked() -> bool:
            channel.basic_publish("", "orders", b"-1", pika.BasicProperties(delivery_mode=1))
            connection.process_data_events(0)
            return bool(blocked)

        until(is_blocked, "connection.blocked, which the next publish gets")
        count = len(publisher.confirmed)
        assert "replication" in blocked[0]
        nodes.start(second)
        publisher.await_confirms(50)
    connection.close()
    found = [one for one in drain(nodes, leader) if one[0] >= 0]
    assert_each_once(publisher, found)
    assert len(publisher.confirmed) > count


def test_a_leader_that_is_stopped_and_continued(nodes: ClusterNodes) -> None:
    """CL04: another leads meanwhile; the old one closes its clients with 320 when it wakes, and follows."""
    leader = nodes.leader()
    follower, _ = others(leader)
    old = nodes.connect(leader)
    old.channel().queue_declare("orders", durable=True)
    with Publisher(nodes, (follower,)) as publisher:
        publisher.await_confirms(50)
        nodes.signal(leader, signal.SIGSTOP)
        nodes.leader(but=leader)
        publisher.await_confirms(50)
        nodes.signal(leader, signal.SIGCONT)
        with pytest.raises(pika.exceptions.AMQPConnectionError):
            while True:
                old.process_data_events(1)
        nodes.await_in_sync()
        publisher.await_confirms(50)
    assert_each_once(publisher, drain(nodes, leader))


def test_a_follower_that_is_stopped(nodes: ClusterNodes) -> None:
    """CL05: confirms stall at most for `ack-deadline`, then go on; it comes back in sync by itself."""
    leader = nodes.leader()
    follower, third = others(leader)
    with Publisher(nodes, (leader,)) as publisher:
        publisher.await_confirms(50)
        nodes.signal(follower, signal.SIGSTOP)
        publisher.await_confirms(100)
        until(lambda: follower not in nodes.in_sync(), "the stopped node out of the set")
        nodes.signal(follower, signal.SIGCONT)
        nodes.await_in_sync()
    assert nodes.leader() == leader
    assert_each_once(publisher, drain(nodes, third))


def test_the_lead_is_handed_over(nodes: ClusterNodes) -> None:
    """CL17: SIGTERM under load: nothing is lost; the node comes back and follows."""
    leader = nodes.leader()
    follower, third = others(leader)
    with Publisher(nodes, (follower, third)) as publisher:
        publisher.await_confirms(100)
        assert nodes.stop(leader) == 0
        publisher.await_confirms(100)
    assert_each_once(publisher, drain(nodes, third))
    assert "RESIGNING" in nodes.log(leader)


def test_an_empty_directory_under_an_old_name(nodes: ClusterNodes) -> None:
    """CL10: it gets a full copy under a new id, and has everything when it leads."""
    leader = nodes.leader()
    follower, third = others(leader)
    view = nodes.view()
    before = view and view.node_named(follower)
    with Publisher(nodes, (leader,)) as publisher:
        publisher.await_confirms(20)
        nodes.kill(follower)
        nodes.data(follower).rename(nodes.directory / "lost")
        until(lambda: (view := nodes.view()) and view.node_named(follower) is None, "its registration over")
        nodes.start(follower)
        nodes.await_in_sync()
        view = nodes.view()
        after = view and view.node_named(follower)
        assert before and after and before.node_id != after.node_id
        publisher.await_confirms(20)
    nodes.kill(third)
    nodes.kill(leader)
    nodes.start(third)
    assert_each_once(publisher, drain(nodes, follower))


def test_the_directory_of_another_broker(nodes: ClusterNodes, tmp_path: Path) -> None:
    """CL12: refused, in words, and untouched."""
    leader = nodes.leader()
    follower, third = others(leader)
    with nodes.channel(leader) as channel:
        channel.queue_declare("orders", durable=True)
    nodes.kill(follower)
    nodes.data(follower).rename(nodes.directory / "own")
    make_other_broker(nodes.data(follower), tmp_path)
    before = {path.name: path.read_bytes() for path in nodes.data(follower).iterdir() if path.is_file()}
    until(lambda: (view := nodes.view()) and view.node_named(follower) is None, "its registration over")
    nodes.start(follower)
    until(lambda: "belongs to another journal" in nodes.log(follower), "the refusal")
    after = {path.name: path.read_bytes() for path in nodes.data(follower).iterdir() if path.is_file()}
    assert after == before
    nodes.kill(follower)
    shutil.rmtree(nodes.data(follower))
    (nodes.directory / "own").rename(nodes.data(follower))


def make_other_broker(data: Path, directory: Path) -> None:
    """A directory of a plain broker with a queue in it."""
    from broker_process import leveret_serve

    other = directory / "other"
    other.mkdir()
    with leveret_serve(other, data=data) as broker:
        connection = pika.BlockingConnection(pika.URLParameters(broker.url))
        connection.channel().queue_declare("foreign", durable=True)
        connection.close()
        broker.stop()


def test_a_transaction_is_there_as_a_whole_or_not_at_all(nodes: ClusterNodes) -> None:
    """CL13: 200 messages in each transaction, the leader killed meanwhile."""
    leader = nodes.leader()
    follower, third = others(leader)
    connection = nodes.connect(follower)
    channel = connection.channel()
    channel.queue_declare("orders", durable=True)
    channel.tx_select()
    committed = 0
    try:
        for number in range(1000):
            for _ in range(200):
                channel.basic_publish("", "orders", str(number).encode(), pika.BasicProperties(delivery_mode=2))
            if number == 3:
                nodes.kill(leader)
            channel.tx_commit()
            committed += 1
    except pika.exceptions.AMQPError:
        pass
    assert committed >= 3
    numbers = [number for number, _ in drain(nodes, third)]
    counts = {number: numbers.count(number) for number in set(numbers)}
    assert set(counts.values()) == {200}
    assert set(range(committed)) <= set(counts)


def state(nodes: ClusterNodes, name: str) -> dict[str, Any]:
    """What a node that does not serve says of its cluster at the port of AMQP; {}: nothing."""
    with closing(http.client.HTTPConnection("127.0.0.1", nodes.ports[name], timeout=2)) as connection:
        try:
            connection.request("GET", "/cluster")
            return dict(json.loads(connection.getresponse().read()))
        except (OSError, ValueError, http.client.HTTPException):
            return {}


@pytest.mark.cluster
def test_an_operator_is_told_when_a_command_is_done(nodes: ClusterNodes) -> None:
    """Through any node: `handover` and `drain` of the leader end its connections, and are done when another leads."""
    leader = nodes.leader()
    second, third = others(leader)
    assert ctl(nodes, third, "handover", second) == (
        0, f"from: {leader}\nto: {second}\nterm: {nodes.view().leader.term}\n",
    )  # fmt: skip
    assert nodes.leader() == second
    assert ctl(nodes, third, "drain", leader) == (0, f"node: {leader}\nis-drained: True\n")
    code, text = ctl(nodes, third, "handover", leader)
    assert (code, text) == (1, f"leveret ctl: not handed over: node {leader} is drained\n")
    nodes.await_in_sync()
    code, text = ctl(nodes, third, "drain")
    assert (code, text.partition("term")[0]) == (0, f"node: {second}\nis-drained: True\nfrom: {second}\nto: {third}\n")
    code, text = ctl(nodes, leader, "drain")
    assert code == 1 and all(f"node {name} is drained" in text for name in (leader, second))
    for name in (leader, second):
        assert ctl(nodes, name, "revive", name) == (0, f"node: {name}\nis-drained: False\n")
    assert ctl(nodes, leader, "forget", second) == (
        1, f"leveret ctl: node {second} is up: stop it first\n",
    )  # fmt: skip
    nodes.kill(second)
    done = (0, f"node: {second}\nstate: absent\n")
    until(lambda: ctl(nodes, leader, "forget", second) == done, "the end of the dead node's key")


@pytest.mark.cluster
def test_two_of_three_nodes_are_killed_at_once(nodes: ClusterNodes) -> None:
    """CL03: the leader serves consumers and leads on; when etcd is gone, too, it still says how it is."""
    leader = nodes.leader()
    second, third = others(leader)
    before = len(nodes.log(leader))
    with closing(nodes.connect(leader)) as connection:
        channel = connection.channel()
        channel.queue_declare("orders", durable=True)
        channel.basic_publish("", "orders", b"1", pika.BasicProperties(delivery_mode=2))
        channel.basic_qos(prefetch_count=1)
        got: list[bytes] = []
        channel.basic_consume("orders", lambda channel_, method, properties, body: got.append(body))
        for name in (second, third):
            nodes.signal(name, signal.SIGKILL)
        until(lambda: (view := nodes.view()) and len(view.nodes) == 1, "the end of their leases")
        until(lambda: connection.process_data_events(0.1) or got, "a delivery")
        code, text = ctl(nodes, leader, "cluster")
        assert code == 0 and "replication: 1 of 2 nodes in sync" in text and f"insync: {leader}\n" in text
        answers = {name: ctl(nodes, leader, "forget", name) for name in (second, third)}
        needed = {name: (code, f"node {name} is needed" in text) for name, (code, text) in answers.items()}
        assert (1, True) in needed.values(), answers  # the first that was missed may have left the set before
        assert "RESIGNING" not in nodes.log(leader)[before:]
    nodes.etcd.signal(0, signal.SIGSTOP)
    found = until(lambda: state(nodes, leader), "the state of a leader that is suspended")
    assert (found["node"], found["state"]) == (leader, "suspended")
    until(lambda: "etcd is not reached" in state(nodes, leader).get("etcd", ""), "what it says of etcd")
    until(lambda: state(nodes, leader).get("state") == "in_sync", "the end of its lease")
    code, text = ctl(nodes, leader, "handover")
    assert code == 1 and f"; node {leader} is in_sync" in text and "; only the leader can do this" in text
    code, text = ctl(nodes, leader, "status")
    assert code == 1 and "no node leads: etcd is not reached" in text
    nodes.etcd.signal(0, signal.SIGCONT)
    for name in (second, third):
        nodes.kill(name)  # the next test starts them
