"""What rarely happens to nodes of a cluster: other numbers of nodes in sync, slow links, etcd that answers nonsense or
lost its data, names that are taken, clocks that jump, clients that stop in the middle. Real nodes and a real etcd.
"""

import shutil
import signal
import socket
import sys
import threading
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import pika
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
from faulty_etcd import FAULTS, FaultyEtcd

from leveret.__main__ import main

pytestmark = [pytest.mark.cluster, pytest.mark.skipif(ETCD is None, reason=WHY_NOT)]

ODD = str(Path(__file__).parents[1] / "support" / "odd_node.py")
HEADER = b"AMQP\0\0\x09\x01"
PERSISTENT = pika.BasicProperties(delivery_mode=2)


# -- how many nodes are in sync ----------------------------------------------------------------------------------------


def test_one_node_in_sync_is_enough(tmp_path: Path) -> None:
    """min-in-sync = 1: confirms go on with the last node, and it alone leads when all are back."""
    with cluster_nodes(tmp_path, keys=f"{SHORT_LEASE}\nmin-in-sync = 1") as nodes:
        nodes.start_all()
        nodes.await_in_sync()
        leader = nodes.leader()
        with Publisher(nodes, (leader,)) as publisher:
            publisher.await_confirms(20)
            for name in others(leader):
                nodes.kill(name)
            until(lambda: nodes.in_sync() == {leader}, "the leader alone in sync")
            publisher.await_confirms(20)
            nodes.kill(leader)
        for name in others(leader):
            nodes.start(name)
        until(lambda: (view := nodes.view()) is not None and view.leader is None, "the end of the lease")
        threading.Event().wait(3)
        view = nodes.view()
        assert view is not None and view.leader is None, "only one node has what was confirmed"
        nodes.start(leader)
        assert nodes.leader() == leader
        nodes.await_in_sync()
        assert_each_once(publisher, drain(nodes, others(leader)[0]))


def test_all_three_nodes_are_to_be_in_sync(tmp_path: Path) -> None:
    """min-in-sync = 3: publishers are blocked while one is away, whichever it is."""
    with cluster_nodes(tmp_path, keys=f"{SHORT_LEASE}\nmin-in-sync = 3") as nodes:
        nodes.start_all()
        nodes.await_in_sync()
        with Publisher(nodes, NAMES) as publisher:
            for name in (nodes.leader(), others(nodes.leader())[0]):
                publisher.await_confirms(20)
                nodes.kill(name)
                until(
                    lambda: any("replication: 2 of 3 nodes in sync" in nodes.log(one) for one in NAMES),
                    "publishers blocked",
                )
                count = len(publisher.confirmed)
                threading.Event().wait(3)
                assert len(publisher.confirmed) <= count + 1
                nodes.start(name)
                nodes.await_in_sync()
            publisher.await_confirms(20)
        assert_each_once(publisher, drain(nodes, "a"))


# -- links, clocks -----------------------------------------------------------------------------------------------------


def test_a_link_that_is_slow_holds_nobody(tmp_path: Path) -> None:
    """10 KiB a second to one follower: it leaves the set and keeps its link, and comes back when that is fast again."""
    with cluster_nodes(tmp_path, has_wires=True) as nodes:
        nodes.start_all()
        nodes.await_in_sync()
        leader = nodes.leader()
        slow, _ = others(leader)
        with Publisher(nodes, (leader,), size=20_000) as publisher:
            publisher.await_confirms(20)
            nodes.link_wires[leader].rates[slow] = 10_000
            until(lambda: slow not in nodes.in_sync(), "the slow one out of the set")
            publisher.await_confirms(100)
            assert slow not in nodes.in_sync()
            links = nodes.log(slow).count("link to the leader")
            threading.Event().wait(5)
            assert nodes.log(slow).count("link to the leader") == links
            nodes.link_wires[leader].rates.clear()
            nodes.await_in_sync()
            publisher.await_confirms(20)
        assert nodes.leader() == leader
        assert_each_once(publisher, drain(nodes, "a"))


def test_a_clock_that_jumps_an_hour(tmp_path: Path) -> None:
    """Forth and back, of the leader and of a follower: others say so, and nothing that has no time is lost."""
    with cluster_nodes(tmp_path) as nodes:
        for name in NAMES:
            (tmp_path / f"{name}.clock").write_text("0")
            nodes.commands[name] = (sys.executable, ODD, "1", str(tmp_path / f"{name}.clock"))
        nodes.start_all()
        nodes.await_in_sync()
        leader = nodes.leader()
        with nodes.channel(leader) as channel:
            channel.queue_declare("timed", durable=True, arguments={"x-message-ttl": 600_000})
            channel.confirm_delivery()
            channel.basic_publish("", "timed", b"", PERSISTENT)
        with Publisher(nodes, NAMES) as publisher:
            publisher.await_confirms(20)
            for name in (leader, others(leader)[0]):
                for ahead_s in (3600, -3600, 0):
                    (tmp_path / "next").write_text(str(ahead_s))
                    (tmp_path / "next").rename(tmp_path / f"{name}.clock")  # never half of it is read
                    publisher.await_confirms(20)
                    until(lambda: "3600 s behind the leader's" in "".join(map(nodes.log, NAMES)), "what a node says")
            assert nodes.leader() == leader
            nodes.kill(leader)
            publisher.await_confirms(20)
            nodes.start(leader)
            nodes.await_in_sync()
        assert publisher.longest_gap_s < 30
        assert_each_once(publisher, drain(nodes, "a"))
        assert all("Traceback" not in nodes.log(name) for name in NAMES)


# -- etcd --------------------------------------------------------------------------------------------------------------


def test_an_etcd_that_answers_nonsense(tmp_path: Path) -> None:
    """For a moment, each kind: confirms go on, and no node ends. For longer than the lease: another may lead then."""
    with cluster_nodes(tmp_path) as nodes, closing(FaultyEtcd(nodes.etcd.endpoints[0])) as faulty:
        true_endpoints, nodes.etcd.endpoints = nodes.etcd.endpoints, (faulty.endpoint,)
        for name in NAMES:
            nodes.start(name, waits=False)
        nodes.etcd.endpoints = true_endpoints
        for name in NAMES:
            nodes.await_ready(name)
        nodes.await_in_sync()
        with Publisher(nodes, NAMES) as publisher:
            for fault in FAULTS:
                asked, faulty.fault = faulty.asked, fault
                until(lambda: faulty.asked > asked + 5, f"requests that are answered by {fault}")  # noqa: B023
                publisher.await_confirms(10)
                faulty.fault = None
                until(lambda: (view := nodes.view()) and view.leader, f"a leader behind {fault}")
                publisher.await_confirms(10)
            faulty.fault = "error"
            until(lambda: (view := nodes.view()) is not None and not view.nodes, "the end of all leases")
            publisher.await_confirms(10)
            faulty.fault = None
            nodes.await_in_sync()
            publisher.await_confirms(10)
        assert_each_once(publisher, drain(nodes, "a"))
        assert all("Traceback" not in nodes.log(name) for name in NAMES)


def lose_etcds_data(nodes: ClusterNodes) -> None:
    """etcd begins again with nothing."""
    nodes.etcd.kill(0)
    shutil.rmtree(nodes.etcd.directory / "m0")
    nodes.etcd.start(0)
    nodes.etcd.await_answer(0)


def await_registered(nodes: ClusterNodes) -> None:
    """Wait until all three nodes are registered."""
    until(lambda: (view := nodes.view()) is not None and len(view.nodes) == 3, "all nodes registered")


def test_etcd_loses_its_data_under_a_leader(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The leader goes on. When it is killed nobody leads, until an operator chooses."""
    with cluster_nodes(tmp_path) as nodes:
        nodes.start_all()
        nodes.await_in_sync()
        leader = nodes.leader()
        with Publisher(nodes, NAMES) as publisher:
            publisher.await_confirms(20)
            lose_etcds_data(nodes)
            await_registered(nodes)
            publisher.await_confirms(50)
            nodes.kill(leader)
            threading.Event().wait(4)
            view = nodes.view()
            assert view is not None and view.leader is None
            nodes.start(leader)
            config = str(tmp_path / "a/leveret.toml")
            await_registered(nodes)
            main(["cluster", "recover", config])
            most = capsys.readouterr().out.splitlines()[-1].partition(" has the most")[0]
            assert most in NAMES
            main(["cluster", "recover", "--yes", config, most])
            publisher.await_confirms(20)
            nodes.await_in_sync()
        assert_each_once(publisher, drain(nodes, "a"))


def test_the_cluster_is_recovered_with_the_node_that_still_leads(tmp_path: Path) -> None:
    """It tells what etcd lost, has all records, and leads the new set: docs/cluster.md, the day etcd is gone."""
    with cluster_nodes(tmp_path) as nodes:
        nodes.start_all()
        nodes.await_in_sync()
        leader = nodes.leader()
        with Publisher(nodes, NAMES) as publisher:
            publisher.await_confirms(20)
            lose_etcds_data(nodes)
            until(lambda: "etcd's data were restored or deleted" in ctl(nodes, leader, "status")[1], "what is lost")
            await_registered(nodes)
            assert main(["cluster", "recover", "--yes", str(tmp_path / "a/leveret.toml"), leader]) == 0
            until(lambda: (view := nodes.view()) is not None and view.leader is not None, "a leader of the new set")
            publisher.await_confirms(20)
            nodes.await_in_sync()
            until(lambda: "restored or deleted" not in ctl(nodes, nodes.leader(), "status")[1], "ok")
        assert_each_once(publisher, drain(nodes, "a"))


# -- one cluster for the rest ------------------------------------------------------------------------------------------


def test_a_second_node_of_the_same_name(nodes: ClusterNodes) -> None:
    """With another directory and another port: it is refused, and the first one goes on."""
    leader = nodes.leader()
    name = others(leader)[0]
    place = nodes.directory / "second"
    place.mkdir(exist_ok=True)
    twin = ClusterNodes(place, nodes.etcd, keys=nodes.keys)
    twin.links = {**nodes.links, name: twin.links[name]}
    with Publisher(nodes, (name,)) as publisher:
        try:
            twin.start(name)
            until(lambda: f"the name {name} is taken by another node" in twin.log(name), "a refusal")
            publisher.await_confirms(20)
        finally:
            twin.close()
        assert nodes.leader() == leader and nodes.in_sync() == set(NAMES)
        publisher.await_confirms(20)
    assert_each_once(publisher, drain(nodes, name))


@pytest.mark.parametrize("after_s", [0.0, 0.02, 0.1])
def test_a_leader_that_stands_still_while_it_hands_over(nodes: ClusterNodes, after_s: float) -> None:
    """Another node leads all the same; the old one follows when it goes on."""
    leader = nodes.leader()
    to = others(leader)[0]
    url = f"amqp://guest:guest@127.0.0.1:{nodes.ports[to]}/"
    with Publisher(nodes, NAMES) as publisher:
        publisher.await_confirms(20)
        asking = threading.Thread(target=main, args=(["ctl", "--url", url, "handover", to],))
        asking.start()
        threading.Event().wait(after_s)
        nodes.signal(leader, signal.SIGSTOP)
        try:
            assert nodes.leader(but=leader) in others(leader)
            publisher.await_confirms(20)
        finally:
            nodes.signal(leader, signal.SIGCONT)
        asking.join()
        nodes.await_in_sync()
        publisher.await_confirms(20)
    assert_each_once(publisher, drain(nodes, leader))


def test_only_a_drained_node_is_left(nodes: ClusterNodes) -> None:
    """`drain` of the last one that could follow the leader, `forget` of those that live, and what to do then."""
    leader = nodes.leader()
    drained, third = others(leader)
    with Publisher(nodes, (leader, drained)) as publisher:
        publisher.await_confirms(10)
        for name in NAMES:
            code, text = ctl(nodes, drained, "forget", name)
            assert (code, f"node {name} is up: stop it first" in text) == (1, True)
        nodes.kill(third)
        until(lambda: third not in nodes.in_sync(), "the third out of the set")
        assert ctl(nodes, leader, "drain", drained)[0] == 0
        code, text = ctl(nodes, leader, "--timeout", "1", "cluster", "wait-safe-to-stop", leader)
        assert code == 1 and "no other node in sync can" in text
        publisher.await_confirms(10)
        nodes.kill(leader)
        until(lambda: (view := nodes.view()) is not None and view.leader is None, "the end of the lease")
        code, text = ctl(nodes, drained, "cluster")
        assert "an operator has drained it" in text, text
        code, text = ctl(nodes, drained, "revive", drained)
        assert code == 1 and f"node {drained} is drained: an operator has drained it" in text, text
        nodes.start(leader)
        publisher.await_confirms(10)
        assert nodes.leader() == leader
    assert_each_once(publisher, drain(nodes, leader))


def raw(nodes: ClusterNodes, name: str) -> socket.socket:
    """A connection without a client library."""
    return socket.create_connection(("127.0.0.1", nodes.ports[name]), timeout=60)


def test_two_hundred_clients_of_one_follower(nodes: ClusterNodes) -> None:
    """Their leader is killed: each is closed soon, and each that comes again is served by the next."""
    leader = nodes.leader()
    through = others(leader)[0]
    with ExitStack() as stack:
        clients = [stack.enter_context(raw(nodes, through)) for _ in range(200)]
        for one in clients:
            one.sendall(HEADER)
        for one in clients:
            assert one.recv(7)[:1] == b"\x01"
        nodes.kill(leader)
        for one in clients:
            while one.recv(65536):
                pass
        again = [stack.enter_context(raw(nodes, through)) for _ in range(200)]
        for one in again:
            one.sendall(HEADER)
        for one in again:
            assert one.recv(7)[:1] == b"\x01"


def test_clients_that_stop_in_the_middle(nodes: ClusterNodes) -> None:
    """Of the header, or of a body while the leader is killed: the rest never comes, and nothing of it is there."""
    leader = nodes.leader()
    through = others(leader)[0]
    with ExitStack() as stack:
        half = stack.enter_context(raw(nodes, through))
        half.sendall(HEADER[:4])
        silent = stack.enter_context(raw(nodes, through))
        with Publisher(nodes, (through,)) as publisher:
            publisher.await_confirms(10)
            connection = nodes.connect(through)
            channel = connection.channel()
            channel.queue_declare("bodies", durable=True)
            channel.confirm_delivery()
            channel.basic_publish("", "bodies", b"whole", PERSISTENT)
            transport = connection._impl._transport._sock  # type: ignore[attr-defined]
            number = channel.channel_number.to_bytes(2)
            method = b"\0\x3c\0\x28\0\0\0\x06bodies\0"
            head = b"\0\x3c\0\0" + (100_000).to_bytes(8) + b"\x10\0\x02"
            for kind, content in ((b"\x01", method), (b"\x02", head)):
                transport.sendall(kind + number + len(content).to_bytes(4) + content + b"\xce")
            transport.sendall(b"\x03" + number + (100_000).to_bytes(4) + bytes(50_000))
            nodes.kill(leader)
            publisher.await_confirms(10)
            with pytest.raises(LOST):
                while True:
                    connection.process_data_events(1)
            with nodes.channel(through) as other:
                assert other.queue_declare("bodies", durable=True, passive=True).method.message_count == 1
                other.queue_delete("bodies")
        for one in (half, silent):
            with suppress(ConnectionResetError):  # what it had sent and was not read is reset
                while one.recv(65536):
                    pass
    nodes.start(leader)
    nodes.await_in_sync()
    assert_each_once(publisher, drain(nodes, through))
