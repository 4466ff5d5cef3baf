"""The API of a node that leads a cluster: what it says of the other nodes, and checks of each, without sockets."""

import json
import random
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest
from all_routes import ROUTES
from api_client import basic

from leveret.console import steps as console_steps
from leveret.console.api import Api
from leveret.console.cluster import NOT_LED, ClusterFacts, NodeFacts
from leveret.console.encoding import encoded
from leveret.console.health_checks import CHECKS, Subject, answer_of
from leveret.console.http_messages import Answer, Peer, Refusal, Request, query_of
from leveret.console.metrics.buckets import DELAYS, Buckets
from leveret.console.metrics.facts import MetricsFacts, ProcessFigures
from leveret.console.metrics.requests import Metrics
from leveret.console.node_facts import Certificate, HostFacts, Listening
from leveret.console.sampler import Sampler
from leveret.console.static_pages import StaticPages
from leveret.console.steps import Steps
from leveret.engine import ManualClock
from leveret.engine.messages.field_table import Field
from leveret.operator.steps import finished
from leveret.serving.composition import build_broker
from leveret.serving.console import console_options
from leveret.settings import Configuration

A, B, C = "rabbit@a", "rabbit@b", "rabbit@c"
MACHINE = HostFacts(1, 2, 100, 4, 5, 6, 7, 8)
FIGURES = ProcessFigures(1, 2, 3, 4, 5, 6, 7.0, 8, 9)
MEMBER = NodeFacts(A, is_running=True, is_in_sync=True, host=MACHINE, listeners=(Listening("amqp", "h", 5672),))
#: As checks read them.
QUEUES: Any = [
    SimpleNamespace(vhost_name=vhost, name=name, type=kind, durable=name != "t")
    for vhost, name, kind in (
        ("/", "q", "quorum"),
        ("/", "c", "classic"),
        ("other", "r", "quorum"),
        ("/", "t", "classic"),
    )
]
DOWN, DRAINED = {"is_running": False, "host": None}, {"is_drained": True}


def cluster(own: str = A, leader: str | None = A, min_in_sync: int = 2, **changes: dict[str, Any]) -> ClusterFacts:
    """Three nodes, all in sync but for `changes` of a, b or c."""
    nodes = [replace(MEMBER, name=name, **changes.get(name[-1], {})) for name in (A, B, C)]
    return ClusterFacts(own, leader, tuple(nodes), min_in_sync)


@dataclass
class Desk:
    """The cluster, and what an operator asked of it."""

    told: ClusterFacts
    asked: tuple[str, str | None] | None = None
    facts_count: int = 0

    def facts(self) -> ClusterFacts:
        """What the console shows."""
        self.facts_count += 1
        return self.told

    def status(self) -> dict[str, Any]:
        """As for `leveret ctl`."""
        return {"leader": "a", "nodes": []}

    def configurations(self) -> dict[str, Any]:
        """Of the nodes."""
        return {"leader": "a", "differences": []}

    def compare(self, parts: Any) -> dict[str, Any]:
        """With those of a client."""
        self.asked = ("compare", None)
        return {"leader": "a", "differences": ["user 'x' (at a alone)"]}

    def forget(self, node: str) -> dict[str, Any]:
        """Of the path."""
        self.asked = ("forget", node)
        return {}

    def handover(self, node: str | None) -> dict[str, Any]:
        """Of the body."""
        self.asked = ("handover", node)
        return {"from": "a", "to": node}


class Console:
    """The API of rabbit@a, as guest. `node`: the one that the client is connected to."""

    def __init__(self, told: ClusterFacts, node: str = "") -> None:
        built = build_broker(Configuration(), ManualClock(), random.Random(1).random, None)
        self.desk = Desk(told)
        built.control.operator.cluster = self.desk  # type: ignore[assignment]
        arguments = {"x-queue-type": "quorum"}
        built.control.run("declare-queue", {"queue": "q", "durable": True, "arguments": arguments})
        built.control.run("declare-queue", {"queue": "classic", "durable": True})
        made = console_options(built.control, Configuration(), 0, None, lambda: [Listening("amqp", "h", 5672)])
        options = replace(made, host_facts=lambda: MACHINE, node=A)
        self.api = Api(lambda: built.broker, lambda: options, ROUTES, StaticPages(), Sampler(lambda: built.broker))
        self.node = node

    def steps(self, method: str, target: str, body: Any = None, *, user: str | None = "guest") -> Steps:
        """The steps to an answer. Raises: Refusal."""
        path, _, query = target.partition("?")
        headers = {"host": "localhost"} | ({} if user is None else {"authorization": basic(user, user)})
        peer = Peer("127.0.0.1", True, node=self.node)
        request = Request(method, f"/api/{path}", query_of(query), headers, peer)
        return self.api.open(request).steps(b"" if body is None else json.dumps(body).encode())

    def ask(self, method: str, target: str, body: Any = None, *, user: str | None = "guest") -> tuple[int, Any]:
        """Status and value of an answer."""
        try:
            found = finished(self.steps(method, target, body, user=user))
        except Refusal as refusal:
            return refusal.answer().status, refusal.answer().value
        octets = b"".join(found.body) if isinstance(found.body, list) else found.body or encoded(found.value)
        return found.status, json.loads(octets)

    def get(self, target: str) -> Any:
        """What must be there."""
        status, value = self.ask("GET", target)
        assert status == 200, (status, value)
        return value


def test_nodes_are_those_of_the_cluster() -> None:
    """By their names, no others; the one that is down says so, and the drained one."""
    console = Console(cluster(b=DOWN, c={"is_drained": True}))
    rows = {one["name"]: one for one in console.get("nodes")}
    assert rows[B] == {"name": B, "type": "disc", "running": False, "being_drained": False, "cluster_links": []}
    assert rows[A].keys() == rows[C].keys()
    assert (rows[A]["being_drained"], rows[C]["being_drained"], rows[C]["mem_used"]) == (False, True, MACHINE.memory)
    assert console.get(f"nodes/{C}/memory/relative")["memory"]["total"] == 100
    assert console.get(f"nodes/{B}/memory/relative") == console.get(f"nodes/{B}/memory") == {"memory": "not_available"}
    assert console.get(f"nodes/{C}?memory=true&binary=true")["memory"]["binary"] == 0
    for path in ("nodes/rabbit@d", "nodes/a", "auth/attempts/rabbit@d", "healthchecks/node/rabbit@d"):
        assert console.ask("GET", path)[0] == 404
    console.api.broker.users.attempts["http"][0] = 7
    assert (
        console.get(f"auth/attempts/{A}")[0]["auth_attempts"]
        >= 7
        > console.get(f"auth/attempts/{C}")[0]["auth_attempts"]
    )
    assert console.get(f"auth/attempts/{B}") == "not_available"
    assert console.ask("GET", f"healthchecks/node/{B}") == (503, {"status": "failed", "reason": "nodedown"})
    assert console.ask("DELETE", f"auth/attempts/{C}")[0] == 204 and console.api.broker.users.attempts["http"][0] >= 7
    assert console.ask("POST", f"vhosts/%2F/start/{B}", {})[1]["reason"] == f"Request to node {B} failed with nodedown"
    assert console.ask("POST", f"vhosts/%2F/start/{C}", {})[0] == 204


def test_certificates_of_links_expire_as_those_of_listeners() -> None:
    """Else the check is well until a link is opened anew, and the node is out of the cluster."""
    links = Certificate(Listening("clustering", "h", 5680, True), "/etc/link.pem", (1000,))
    console = Console(replace(cluster(), certificates=(links,)))
    status, found = console.ask("GET", "health/checks/certificate-expiration/1/days")
    (one,) = found["expired"]
    assert (status, one["protocol"], one["port"], one["certfile"]) == (503, "clustering", 5680, "/etc/link.pem")


def test_a_queue_is_on_every_node() -> None:
    """Its leader is the cluster's, its members are the nodes; a node that is named for a new one has to run."""
    console = Console(cluster(b=DOWN, c={"is_in_sync": False}))
    queue = console.get("queues/%2F/q")
    assert (queue["node"], queue["leader"], queue["members"], queue["online"]) == (A, A, [A, B, C], [A, C])
    plain = {one["name"]: one for one in console.get("queues/%2F?disable_stats=true&enable_queue_totals=true")}
    assert (plain["q"]["leader"], plain["q"]["members"], plain["q"]["online"]) == (A, [A, B, C], [A, C])
    assert plain["classic"].keys() == plain["q"].keys() - {"leader", "members", "online"}
    assert [(one["Raft State"], one["Membership"]) for one in console.get("queues/quorum/%2F/q/status")] == [
        ("leader", "voter"),
        ("nodedown", "voter"),
        ("follower", "promotable"),
    ]
    assert console.ask("PUT", "queues/%2F/r", {"durable": True, "node": C})[0] == 201
    assert console.ask("PUT", "queues/%2F/s", {"node": B})[1]["reason"] == f"Node {B} could not be contacted"
    assert console.get("vhosts/%2F")["cluster_state"] == {A: "running", C: "running"}


@pytest.mark.parametrize(
    "told, method, path, body, status, reason",
    [
        (cluster(), "POST", "%2F/q/replicas/add", {"node": B}, 204, None),
        (cluster(), "POST", "%2F/q/replicas/add", {"node": "rabbit@d"}, 400, "rabbit@d is not among the nodes"),
        (cluster(), "POST", "%2F/q/replicas/add", {}, 400, "[{key_missing,node}]"),
        (cluster(), "POST", "%2F/nope/replicas/add", {"node": B}, 404, "Not Found"),
        (cluster(), "POST", "%2F/classic/replicas/add", {"node": B}, 400, "not a quorum queue"),
        (cluster(b=DOWN), "POST", f"replicas/on/{B}/grow", {}, 404, "Not Found"),
        (cluster(), "POST", f"replicas/on/{B}/grow", {}, 204, None),
        (cluster(), "DELETE", f"replicas/on/{B}/shrink", {}, 400, f"drain {B} before it is removed"),
        (cluster(b={"is_drained": True}), "DELETE", f"replicas/on/{B}/shrink", {}, 202, None),
        (cluster(b=DOWN), "DELETE", f"replicas/on/{B}/shrink", {}, 202, None),
        (cluster(b={"is_drained": True}, c=DOWN), "DELETE", f"replicas/on/{B}/shrink", {}, 400, "confirms need 2"),
        (cluster(b={"is_drained": True}), "DELETE", "%2F/q/replicas/delete", {"node": B}, 202, None),
    ],
)
def test_replicas(told: ClusterFacts, method: str, path: str, body: Any, status: int, reason: str | None) -> None:
    """A node that is there has all queues; one can go if it is drained or gone, and confirms do not need it."""
    found, value = Console(told).ask(method, f"queues/quorum/{path}", body)
    assert found == status
    assert reason is None or reason in value["reason"]


def check(told: ClusterFacts, path: str, node: str | None = None, host_facts: HostFacts = MACHINE) -> tuple[int, Any]:
    """Status and body of a check at a node, by default the one that answers."""
    subject = Subject(
        told.own if node is None else node,
        lambda: host_facts,
        list,
        list,
        lambda: 0,
        lambda: [(one.name, alarm) for one in told.nodes for alarm in one.alarms],
        told,
        lambda: QUEUES,
    )
    found = finished(answer_of(CHECKS[path.partition("?")[0]], subject, {"V": "other"} if "/V" in path else {}))
    return found.status, found.value


CRITICAL, LOST = "node-is-quorum-critical", "quorum-queues-without-elected-leaders/all-vhosts"
READY, SERVICE, SIZE = "ready-to-serve-clients", "is-in-service", "reached-target-cluster-size"


@pytest.mark.parametrize(
    "told, path, status",
    [
        (cluster(), CRITICAL, 200),
        (replace(cluster(B), etcd="etcd is not reached"), CRITICAL, 503),
        (cluster(c=DOWN), CRITICAL, 503),
        (cluster(c={"is_in_sync": False}), CRITICAL, 503),
        (cluster(B, c=DOWN), "node-is-mirror-sync-critical", 503),
        (cluster(C, b=DOWN, c={"is_in_sync": False}), CRITICAL, 200),  # it is not waited for: losing it changes nothing
        (cluster(b=DOWN, c=DOWN), CRITICAL, 503),
        (cluster(min_in_sync=1, c=DOWN), CRITICAL, 200),
        (cluster(min_in_sync=1, b=DOWN, c=DOWN), CRITICAL, 503),
        (cluster(min_in_sync=3), CRITICAL, 503),
        (cluster(B, None, a=DOWN), CRITICAL, 503),
        (cluster(b=DRAINED, c={"is_older": True}), CRITICAL, 503),
        (cluster(B, b=DRAINED, c=DRAINED), CRITICAL, 200),  # it does not lead
        (cluster(b=DRAINED), CRITICAL, 200),
        (cluster(min_in_sync=1, b=DRAINED, c=DOWN), CRITICAL, 503),
        (cluster(), LOST, 200),
        (cluster(B), LOST, 200),
        (cluster(B, None), LOST, 503),
        (cluster(B, None), "virtual-hosts", 503),
        (cluster(B, None), "metadata-store/initialized", 503),
        (cluster(B), "metadata-store/initialized/with-data", 200),
        (cluster(B), READY, 200),
        (cluster(B, None), READY, 503),
        (cluster(B, b={"is_drained": True}), READY, 503),
        (cluster(B, a={"alarms": ("memory",)}), READY, 200),
        (cluster(B, None), SERVICE, 200),
        (cluster(B, b={"is_drained": True}), SERVICE, 503),
        (replace(cluster(B, None), is_refused=True), SERVICE, 503),
        (cluster(), SIZE, 200),
        (cluster(c={"is_in_sync": False}), SIZE, 200),
        (cluster(c=DOWN), SIZE, 503),
        (cluster(a={"alarms": ("memory",)}), "local-alarms", 503),
        (cluster(a={"alarms": ("memory",)}), "alarms", 503),
        (cluster(B, a={"alarms": ("memory",)}), "local-alarms", 200),
        (cluster(B, a={"alarms": ("memory",)}), "alarms", 503),
    ],
)
def test_checks(told: ClusterFacts, path: str, status: int) -> None:
    """Each is true of the node that is asked, whoever leads."""
    assert check(told, path)[0] == status


def test_what_failed_checks_say() -> None:
    """In RabbitMQ's words and fields, and why in ours."""
    assert check(cluster(b=DOWN), CRITICAL)[1] == {
        "status": "failed",
        "reason": "There are quorum queues that would lose their quorum if the target node is shut down",
        "queues": [
            {
                "name": "q",
                "readable_name": "queue 'q' in vhost '/'",
                "type": "quorum",
                "virtual_host": "/",
            },
            {
                "name": "r",
                "readable_name": "queue 'r' in vhost 'other'",
                "type": "quorum",
                "virtual_host": "other",
            },
        ],
        "detail": "2 of 3 nodes are in sync, and confirms need 2",
    }
    found = check(cluster(B, None), "quorum-queues-without-elected-leaders/vhost/V")[1]
    assert (found["reason"], found["detail"]) == (
        "Detected quorum queues without an elected leader",
        "no node of this cluster leads",
    )
    assert [one["name"] for one in found["queues"]] == ["r"]
    assert check(cluster(b=DOWN), SIZE)[1] == {
        "status": "failed",
        "reason": "target cluster size not reached: 2 of 3 nodes are online",
        "online": 2,
        "target": 3,
    }
    assert check(cluster(c={"alarms": ("disk",)}), "alarms")[1]["alarms"] == [{"node": C, "resource": "disk"}]
    assert [one["name"] for one in check(cluster(b=DOWN), "node-is-mirror-sync-critical")[1]["queues"]] == ["c"]
    found = check(replace(cluster(), etcd="etcd is not reached: x"), CRITICAL)[1]
    assert found["detail"] == "etcd is not reached: x, so no node could lead after this one"
    found = check(cluster(b=DRAINED, c=DRAINED), CRITICAL)[1]
    assert found["detail"].startswith(f"{A} leads, and no other node in sync can")
    alone = replace(cluster(), nodes=(MEMBER,))
    assert check(alone, CRITICAL) == (200, {"status": "ok", "reason": "single node cluster"})
    assert check(cluster(), READY, host_facts=replace(MACHINE, descriptors=100))[0] == 503


@pytest.mark.parametrize("path, kind", [(CRITICAL, "quorum"), ("node-is-mirror-sync-critical", "classic")])
def test_failed_checks_list_many_queues_in_steps(path: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Monitoring asks again and again while a node is down: the clients of the leader are served in between."""
    console = Console(cluster(b=DOWN))
    queues = console.api.broker.virtual_hosts["/"].queues
    for number in range(40):
        queues.declare(f"{number}", client=None, durable=True, arguments={"x-queue-type": Field("S", kind.encode())})
    monkeypatch.setattr(console_steps, "STEP_S", -1.0)
    steps, count, found = console.steps("GET", f"health/checks/{path}"), 0, None
    while found is None:
        try:
            next(steps)
        except StopIteration as end:
            found = end.value
        queues.declare(f"new{count}", client=None)
        queues.delete(f"new{count - 1}", client=None) if count else None
        count += 1
    listed = json.loads(b"".join(found.body))["queues"]
    assert (found.status, len(listed)) == (503, 41)
    assert count > len(queues) + 2 * len(listed)  # to find them, to show them, to write them


@pytest.mark.parametrize("query", ["", "?disable_stats=true"])
def test_a_list_of_many_virtual_hosts_does_not_hold_clients_up(query: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if they are empty: one at a time, and the nodes are looked at once for all of them."""
    console = Console(cluster(b=DOWN))
    for number in range(40):
        console.api.broker.virtual_hosts.create(f"{number}")
    monkeypatch.setattr(console_steps, "STEP_S", 60.0)
    assert sum(1 for _ in console.steps("GET", f"vhosts{query}")) > 40
    assert console.desk.facts_count < 5
    assert {tuple(one["cluster_state"]) for one in console.get(f"vhosts{query}")} == {(A, C)}


def test_a_check_is_about_the_node_that_the_client_is_connected_to() -> None:
    """Also where the leader answers it for a follower; and the old check names its node."""
    told = cluster(b={"is_drained": True, "alarms": ("disk",), "listeners": ()})
    here, there = Console(told), Console(told, B)
    for path in (SERVICE, "port-listener/5672"):
        assert (here.ask("GET", f"health/checks/{path}")[0], there.ask("GET", f"health/checks/{path}")[0]) == (200, 503)
    assert there.ask("GET", "health/checks/local-alarms")[1]["alarms"] == [{"node": B, "resource": "disk"}]
    assert here.ask("GET", "health/checks/local-alarms")[0] == 200
    assert (here.get("overview")["node"], there.get("overview")["node"]) == (A, B)
    assert here.ask("GET", f"health/checks/{SERVICE}", user=None)[0] == 200
    assert (here.ask("GET", f"healthchecks/node/{B}")[0], there.ask("GET", f"healthchecks/node/{C}")[0]) == (503, 200)
    assert here.ask("GET", f"health/checks/{CRITICAL}", user=None)[0] == 401


def test_checks_of_listeners_know_that_of_the_cluster_at_each_node() -> None:
    """As RabbitMQ's do, also at the node that leads."""
    listeners = (Listening("amqp", "h", 5672), Listening("clustering", "h", 5680))
    told = cluster(a={"listeners": listeners}, b={"listeners": listeners[:1]})
    for node, status in ((A, 200), (B, 503)):
        console = Console(told, node)
        assert console.ask("GET", "health/checks/protocol-listener/clustering")[0] == status
        assert console.ask("GET", "health/checks/port-listener/5680")[0] == status


def test_a_message_does_not_pass_while_publishers_are_held() -> None:
    """The old check of a whole broker says so at once: monitoring must not wait as publishers do."""
    console = Console(cluster(b=DOWN, c=DOWN))
    console.api.broker.flow.raise_replication("replication: 1 of 2 nodes in sync")
    status, said = console.ask("GET", "aliveness-test/%2F")
    assert (status, said["reason"]) == (503, "publishers are blocked: too few nodes are in sync")
    console.api.broker.flow.end_replication()
    assert console.get("aliveness-test/%2F") == {"status": "ok"}


def test_what_an_operator_asks_over_http() -> None:
    """As `leveret ctl` does, with the node in the body or the path; monitors may look, administrators act."""
    console = Console(cluster())
    assert console.get("leveret/cluster")["leader"] == "a"
    assert console.ask("POST", "leveret/cluster/handover", {"node": B}) == (200, {"from": "a", "to": B})
    assert console.ask("DELETE", f"nodes/{C}")[0] == 204
    assert console.ask("DELETE", "nodes/rabbit@d")[0] == console.ask("DELETE", "nodes/c")[0] == 404
    assert console.desk.asked == ("forget", C)
    console.api.broker.connections.replace_user(replace(console.api.broker.users.find("guest"), tags=("monitoring",)))  # type: ignore[type-var]
    assert console.ask("DELETE", f"nodes/{C}")[0] == console.ask("POST", "leveret/cluster/drain", {})[0] == 401
    assert console.ask("GET", "leveret/cluster")[0] == 200


def test_the_metrics_of_a_leader() -> None:
    """The state, the set, and how far each follower is behind; none of that on a broker alone."""
    told = cluster(b={"lag": 7, "lag_octets": 900, "lag_s": 1.5, "sent": 5000}, c={**DOWN, "is_in_sync": False})
    told = replace(told, name="t", state="held", states=("leading", "held"), takeovers=2, held_s=3.5, term=4)
    console = Console(told)
    facts = MetricsFacts(lambda: FIGURES, lambda: None, Buckets(DELAYS))
    pages = Metrics(lambda: console.api.broker, lambda: console.api.options, facts, lambda request: None)
    page = b"".join(finished(pages.open(Request("GET", "/metrics", {}, {}, Peer("127.0.0.1", True))).steps(b"")).body)
    lines = [line for line in page.decode().splitlines() if line.startswith("leveret_cluster_")]
    for line in (
        'leveret_cluster_state{node="rabbit@a",state="leading"} 0',
        'leveret_cluster_state{node="rabbit@a",state="held"} 1',
        "leveret_cluster_leads 1",
        "leveret_cluster_term 4",
        "leveret_cluster_nodes 3",
        "leveret_cluster_nodes_running 2",
        "leveret_cluster_nodes_in_sync 2",
        "leveret_cluster_takeovers_total 2",
        "leveret_cluster_held_seconds_total 3.5",
        'leveret_cluster_follower_lag_records{follower="rabbit@b"} 7',
        'leveret_cluster_follower_lag_bytes{follower="rabbit@b"} 900',
        'leveret_cluster_follower_lag_seconds{follower="rabbit@b"} 1.5',
        'leveret_cluster_link_sent_bytes_total{follower="rabbit@b"} 5000',
    ):
        assert line in lines
    assert not any("rabbit@c" in line for line in lines)
    ready = Request("GET", "/health/ready", {}, {}, Peer("127.0.0.1", True))
    assert finished(pages.open(ready).steps(b"")).status == 200
    console.desk.told = replace(told, leader=None)  # it is suspended
    assert finished(pages.open(ready).steps(b"")) == Answer(503, {"status": "failed", "reason": NOT_LED})
    assert 'rabbitmq_cluster_permanent_id="leveret-t"' in page.decode()


def test_only_administrators_compare_digests_of_their_own() -> None:
    """With none that are equal, the answer names all users and objects of the configuration."""
    console = Console(cluster())
    assert console.ask("PUT", "users/watcher", {"password": "watcher", "tags": "monitoring"})[0] == 201
    path = "leveret/cluster/differences"
    assert console.ask("GET", path, user="watcher") == (200, {"leader": "a", "differences": []})
    assert console.ask("GET", f'{path}?parts={{"fingerprint":"1"}}', user="watcher")[0] == 401
    assert console.desk.asked is None
    assert console.ask("GET", f'{path}?parts={{"fingerprint":"1"}}')[0] == 200
    assert console.desk.asked == ("compare", None)
