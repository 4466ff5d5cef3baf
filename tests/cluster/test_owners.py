"""Leased queues of three real nodes: whose messages they are. The names of the cases are those of the cluster page."""

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import pika
import pytest
from cluster_nodes import LOST, NAMES, ClusterNodes, cluster_nodes, others, until
from etcd_servers import ETCD, WHY_NOT

pytestmark = [pytest.mark.cluster, pytest.mark.skipif(ETCD is None, reason=WHY_NOT)]

#: Seconds in which nothing more comes.
QUIET_S = 1.0
QUEUES = """
[[queue]]
name = "orders"
type = "amps"
replication = "distributed"
max-backlog-per-consumer = 100

[[queue]]
name = "desk"
type = "amps"
replication = "local"

[[queue]]
name = "few"
type = "amps"
replication = "distributed"
max-backlog-per-consumer = 100
max-backlog-total = 2

[[queue]]
name = "steps"
type = "amps"
replication = "distributed"
max-backlog-per-consumer = 100
barrier-expr = "/barrier IS NOT NULL"

[[queue]]
name = "bills"
type = "amps"
replication = "group"
initial-owner = "b"
queue-domain = "money"
max-backlog-per-consumer = 100
"""
#: Node -> the domain of its queue `rooms`.
DOMAINS = {"a": "X", "b": "X", "c": "Y"}
ROOMS = """
[[queue]]
name = "rooms"
type = "amps"
replication = "group"
initial-owner = "a"
queue-domain = "{}"
"""
FILES = {name: QUEUES + ROOMS.format(domain) for name, domain in DOMAINS.items()}
PAGE = Path(__file__).parents[2] / "docs" / "leases.md"
DIFFERENT = """
[[queue]]
name = "orders"
type = "amps"
replication = "distributed"
max-backlog-per-consumer = 100
queue-filter = "/a = 1"
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterNodes]:
    """Three nodes whose files have the same queues."""
    with cluster_nodes(tmp_path_factory.mktemp("cluster")) as nodes:
        nodes.extra = dict(FILES)
        nodes.start_all()
        yield nodes


@pytest.fixture
def nodes(cluster: ClusterNodes) -> ClusterNodes:
    """Three nodes in sync, with the same files."""
    for name in NAMES:
        cluster.extra[name] = FILES[name]
        if name not in cluster.processes:
            cluster.start(name)
    cluster.await_in_sync()
    return cluster


class Site:
    """A client at one node."""

    def __init__(self, nodes: ClusterNodes, name: str) -> None:
        self.connection = nodes.connect(name)
        self.channel = self.connection.channel()
        self.channel.confirm_delivery()
        self.got: list[tuple[str, bool]] = []  # bodies, and whether redelivered

    def publish(self, *bodies: str, queue: str = "orders") -> None:
        """Confirmed."""
        for body in bodies:
            self.channel.basic_publish("", queue, body.encode(), pika.BasicProperties(delivery_mode=2))

    def consume(self, queue: str = "orders", *, acks: bool = True, count: int = 100) -> None:
        """Take all that comes."""

        def take(channel: object, deliver: object, properties: object, body: bytes) -> None:
            self.got.append((body.decode(), deliver.redelivered))  # type: ignore[attr-defined]
            if acks:
                self.channel.basic_ack(deliver.delivery_tag)  # type: ignore[attr-defined]

        self.channel.basic_qos(prefetch_count=count)
        self.channel.basic_consume(queue, take)

    @property
    def bodies(self) -> list[str]:
        """What was delivered."""
        return [body for body, _ in self.got]

    def close(self) -> None:
        """Also a connection that is lost."""
        with suppress(*LOST):
            self.connection.close()

    def wait(self, seconds: float = QUIET_S) -> None:
        """Take what comes for a while."""
        self.connection.process_data_events(time_limit=seconds)

    def wait_for(self, count: int) -> None:
        """Take what comes until there are as many messages."""
        until(lambda: self.wait(0.05) or len(self.got) >= count or None, f"{count} messages, not {self.got}")


@pytest.fixture
def sites(nodes: ClusterNodes) -> Iterator[tuple[str, dict[str, Site]]]:
    """The leader, and a client at each node; empty queues."""
    with ExitStack() as stack:
        clients = {name: Site(nodes, name) for name in NAMES}
        for one in clients.values():
            stack.callback(one.close)
            for queue in ("orders", "desk", "few", "steps", "bills", "rooms"):
                until(lambda one=one, queue=queue: declared(one, queue), queue)
                one.channel.queue_purge(queue)
        yield nodes.leader(), clients


def declared(site: Site, queue: str) -> bool:
    """Whether the site has a queue; a new channel if not."""
    try:
        site.channel.queue_declare(queue, passive=True)
    except pika.exceptions.ChannelClosedByBroker:
        site.channel = site.connection.channel()
        site.channel.confirm_delivery()
        return False
    return True


def test_messages_of_a_node_go_to_its_own_consumers(sites: tuple[str, dict[str, Site]]) -> None:
    """D02, at each node in turn, whichever leads."""
    _, clients = sites
    for one in clients.values():
        one.consume()
    for name, one in clients.items():
        one.publish(*(f"{name}{number}" for number in range(5)))
    for name, one in clients.items():
        one.wait_for(5)
        one.wait(0.1)
        assert sorted(one.bodies) == [f"{name}{number}" for number in range(5)]


def test_without_a_consumer_at_home_another_node_gets_them(sites: tuple[str, dict[str, Site]]) -> None:
    """D01 and D03: once, at one of those that wait."""
    leader, clients = sites
    second, third = others(leader)
    clients[second].consume()
    clients[third].consume()
    clients[leader].publish("m")
    until(
        lambda: clients[second].wait(0.05) or clients[third].wait(0.05) or clients[second].got + clients[third].got,
        "a delivery",
    )
    for name in (second, third):
        clients[name].wait(0.2)
    assert clients[second].bodies + clients[third].bodies == ["m"]


def test_each_node_has_its_local_queue(sites: tuple[str, dict[str, Site]]) -> None:
    """D13."""
    _, clients = sites
    for name, one in clients.items():
        one.publish(f"for {name}", queue="desk")
    for name, one in clients.items():
        one.consume("desk")
        one.wait_for(1)
        one.wait(0.2)
        assert one.bodies == [f"for {name}"]


def test_two_domains_of_one_name_are_apart(sites: tuple[str, dict[str, Site]]) -> None:
    """D09: published at nodes of the one, nothing of it is in the other."""
    _, clients = sites
    for name, one in clients.items():
        one.publish(f"{name} 1", f"{name} 2", queue="rooms")
    clients["c"].consume("rooms")
    clients["b"].consume("rooms")
    clients["c"].wait_for(2)
    clients["b"].wait_for(4)
    for name in "bc":
        clients[name].wait(0.2)
    assert (clients["c"].bodies, sorted(clients["b"].bodies)) == (["c 1", "c 2"], ["a 1", "a 2", "b 1", "b 2"])


def test_messages_of_a_node_that_is_killed_go_elsewhere_once(
    nodes: ClusterNodes, sites: tuple[str, dict[str, Site]]
) -> None:
    """D05 and D06: without an operator, also those that were leased there; and the node that returns gets none."""
    leader, clients = sites
    owner, other = others(leader)
    clients[owner].consume(acks=False, count=3)
    clients[owner].publish(*map(str, range(10)))
    clients[owner].wait_for(3)
    nodes.kill(owner)
    clients[other].consume()
    clients[other].wait_for(10)
    got = sorted(clients[other].got, key=lambda one: int(one[0]))
    assert got == [(str(number), number < 3) for number in range(10)]
    nodes.start(owner)
    nodes.await_in_sync()
    with closing(Site(nodes, owner)) as returned:
        returned.consume()
        returned.wait()
        assert returned.got == []


def test_owners_outlive_a_takeover(nodes: ClusterNodes, sites: tuple[str, dict[str, Site]]) -> None:
    """Messages that wait are their node's own under the next leader, too."""
    leader, clients = sites
    owner = others(leader)[0]
    clients[owner].publish(*map(str, range(5)))
    nodes.kill(leader)
    following = nodes.leader(but=leader)
    third = next(name for name in NAMES if name not in (leader, owner))
    with closing(Site(nodes, owner)) as home, closing(Site(nodes, third)) as stranger:
        home.consume()
        stranger.consume()
        home.wait_for(5)
        stranger.wait(0.2)
        assert sorted(home.bodies) == [str(number) for number in range(5)] and stranger.got == []
    assert following != leader


def test_the_backlog_is_by_node(sites: tuple[str, dict[str, Site]]) -> None:
    """D15: MaxBacklog 2, consumers at three nodes: 2 at each."""
    leader, clients = sites
    for one in clients.values():
        one.consume("few", acks=False)
    clients[leader].publish(*map(str, range(10)), queue="few")
    for one in clients.values():
        one.wait_for(2)
    for one in clients.values():
        one.wait(0.2)
        assert len(one.got) == 2


def test_a_barrier_waits_for_what_is_out_at_another_node(sites: tuple[str, dict[str, Site]]) -> None:
    """D14: a message is leased at one node; the barrier comes at both when it is settled."""
    leader, clients = sites
    second = clients[others(leader)[0]]
    second.consume("steps", acks=False)
    clients[leader].publish('{"n": 1}', queue="steps")
    second.wait_for(1)
    clients[leader].consume("steps")
    clients[leader].publish('{"barrier": 1}', '{"n": 2}', queue="steps")
    clients[leader].wait(0.3)
    assert clients[leader].got == []
    second.channel.basic_ack(1)
    clients[leader].wait_for(2)
    second.wait_for(2)
    assert (clients[leader].bodies, second.bodies) == (['{"barrier": 1}', '{"n": 2}'], ['{"n": 1}', '{"barrier": 1}'])


def test_the_initial_owner_of_a_group_comes_first(sites: tuple[str, dict[str, Site]]) -> None:
    """Through whichever node its messages are published."""
    _, clients = sites
    for one in clients.values():
        one.consume("bills")
    for name, one in clients.items():
        one.publish(f"{name} 1", f"{name} 2", queue="bills")
    clients["b"].wait_for(6)
    assert sorted(clients["b"].bodies) == [f"{name} {number}" for name in NAMES for number in (1, 2)]
    assert clients["a"].got == clients["c"].got == []


def test_the_program_of_the_page(nodes: ClusterNodes, sites: tuple[str, dict[str, Site]]) -> None:
    """docs/leases.md: it runs as it stands, with the addresses of three nodes."""
    found = re.search(r"```python\n(# sites\.py\n.*?)```\n\n```text\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found is not None
    urls = [f"amqp://127.0.0.1:{nodes.ports[name]}/" for name in NAMES]
    done = subprocess.run([sys.executable, "-c", found[1], *urls], capture_output=True, text=True, timeout=180)
    assert (done.returncode, done.stdout) == (0, found[2]), done.stderr


def test_a_node_whose_file_differs_does_not_host_the_queue(
    nodes: ClusterNodes, sites: tuple[str, dict[str, Site]]
) -> None:
    """D10: its log, its clients and the leader say why; the other nodes are not touched."""
    leader, clients = sites
    odd, other = others(leader)
    nodes.stop(odd)
    nodes.extra[odd] = DIFFERENT
    nodes.start(odd)
    nodes.await_in_sync()
    until(lambda: "E-MISMATCH" in nodes.log(odd) or None, "the reason in the node's log")
    assert "E-MISMATCH" in nodes.log(leader)
    with closing(Site(nodes, odd)) as refused, pytest.raises(pika.exceptions.ChannelClosedByBroker) as refusal:
        refused.channel.queue_declare("orders", passive=True)
    assert refusal.value.reply_code == 404 and "E-MISMATCH" in refusal.value.reply_text
    clients[other].consume()
    clients[other].publish("here")
    clients[other].wait_for(1)
    file = nodes.directory / odd / "leveret.toml"
    file.write_text(file.read_text().replace(DIFFERENT, FILES[odd]))
    with closing(Site(nodes, odd)) as mended:
        until(lambda: declared(mended, "orders") or None, "the queue at the node whose file was mended")
