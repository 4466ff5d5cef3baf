"""The HTTP API of three real nodes, as tools of RabbitMQ ask it: which node is which, whichever of them is asked."""

import re
from typing import Any

import pika
import pytest
from api_client import ApiClient
from cluster_nodes import NAMES, ClusterNodes, others, until
from etcd_servers import ETCD, WHY_NOT

pytestmark = [pytest.mark.cluster, pytest.mark.skipif(ETCD is None, reason=WHY_NOT)]

TRACE = "amq.rabbitmq.trace"


def api(nodes: ClusterNodes, name: str) -> ApiClient:
    """The API through a node."""
    return ApiClient(nodes.console(name))


def shown(name: str) -> str:
    """A node's name in all that tools read."""
    return f"rabbit@{name}"


def roles(nodes: ClusterNodes) -> tuple[str, str, str]:
    """The leader, and its followers."""
    leader = nodes.leader()
    second, third = others(leader)
    return leader, second, third


def row(rows: list[dict[str, Any]], name: str) -> dict[str, Any]:
    """The row of a name."""
    return next(one for one in rows if one["name"] == name)


def test_who_is_who(nodes: ClusterNodes) -> None:
    """Connections, channels, consumers, traced messages and the overview name the node that the client is connected to;
    queues are the leader's. The name of the cluster is one, and each connection gets it.
    """
    leader, follower, _ = roles(nodes)
    there, here = nodes.connect(follower), nodes.connect(leader)
    assert {one._impl.server_properties["cluster_name"] for one in (there, here)} == {"t"}
    channel = there.channel()
    channel.queue_declare("who", exclusive=True)
    channel.basic_consume("who", lambda *_: None)
    asked = api(nodes, follower)
    found = until(lambda: len(rows := asked.get("connections")) == 2 and rows, "two connections")
    assert sorted(one["node"] for one in found) == sorted(map(shown, (leader, follower)))
    (of_follower,) = (one for one in found if one["node"] == shown(follower))
    assert of_follower["port"] == nodes.ports[follower]
    assert asked.get("channels")[0]["node"] == shown(follower)
    assert asked.get("consumers")[0]["channel_details"]["node"] == shown(follower)
    assert asked.get("queues/%2F/who")["node"] == shown(leader)
    assert {key: asked.get("overview")[key] for key in ("node", "cluster_name")} == {
        "node": shown(follower),
        "cluster_name": "t",
    }
    traced = here.channel()
    queue = traced.queue_declare("", exclusive=True).method.queue
    traced.queue_bind(queue, TRACE, "publish.#")
    assert asked.ask("PUT", "vhosts/%2F", {"tracing": True}).status == 204
    channel.basic_publish("", "nobody", b"x")
    got = until(lambda: (one := traced.basic_get(queue, auto_ack=True))[0] and one, "a traced message")
    assert isinstance(got[1], pika.BasicProperties) and got[1].headers["node"] == shown(follower)
    assert asked.ask("PUT", "vhosts/%2F", {"tracing": False}).status == 204
    assert asked.ask("PUT", "cluster-name", {"name": "shop"}).status == 204
    later = nodes.connect(follower)
    assert later._impl.server_properties["cluster_name"] == "shop" == asked.get("overview")["cluster_name"]
    for one in (there, here, later):
        one.close()


def test_the_nodes(nodes: ClusterNodes) -> None:
    """Through any node: all of them, each with its own figures; their listeners; where a queue is; who is not there."""
    leader, follower, third = roles(nodes)
    asked = api(nodes, third)
    rows = until(
        lambda: (found := asked.get("nodes")) and all(one["running"] for one in found) and found, "three nodes"
    )
    assert sorted(one["name"] for one in rows) == [shown(name) for name in NAMES]
    assert len({one["os_pid"] for one in rows}) == 3
    assert {frozenset(one) for one in rows} == {frozenset(rows[0])}
    here = row(rows, shown(follower))
    assert here["os_pid"] == str(nodes.processes[follower].pid)
    assert here["mem_used"] > 10**6 and here["fd_used"] > 3 and here["disk_free"] > 0 and here["uptime"] > 0
    assert here["db_dir"] == str(nodes.data(follower)) and not here["being_drained"]
    assert asked.get(f"nodes/{shown(follower)}")["name"] == shown(follower)
    assert asked.get(f"nodes/{shown(follower)}/memory")["memory"]["total"]["rss"] > 10**6
    assert asked.ask("GET", "nodes/rabbit@elsewhere").status == 404
    listeners = {(one["node"], one["protocol"]) for one in asked.get("overview")["listeners"]}
    protocols = ("amqp", "http", "http/prometheus", "clustering")
    assert listeners == {(shown(name), protocol) for name in NAMES for protocol in protocols}
    assert (
        asked.ask("PUT", "queues/%2F/orders", {"durable": True, "arguments": {"x-queue-type": "quorum"}}).status < 300
    )
    queue = asked.get("queues/%2F/orders")
    assert sorted(queue["members"]) == sorted(queue["online"]) == [shown(name) for name in NAMES]
    assert queue["leader"] == queue["node"] == shown(leader)
    status = {
        one["Node Name"]: (one["Raft State"], one["Membership"]) for one in asked.get("queues/quorum/%2F/orders/status")
    }
    assert status == {shown(name): ("leader" if name == leader else "follower", "voter") for name in NAMES}
    assert set(asked.get("vhosts/%2F")["cluster_state"]) == {shown(name) for name in NAMES}
    nodes.kill(follower)
    down = until(lambda: not (one := asked.get(f"nodes/{shown(follower)}"))["running"] and one, "a node that is down")
    assert down == {
        "name": shown(follower), "type": "disc", "running": False, "being_drained": False, "cluster_links": [],
    }  # fmt: skip
    assert set(asked.get("queues/%2F/orders")["online"]) == {shown(leader), shown(third)}
    assert asked.get(f"nodes/{shown(follower)}/memory") == {"memory": "not_available"}
    grow, shrink = f"queues/quorum/replicas/on/{shown(third)}/grow", f"queues/quorum/replicas/on/{shown(third)}/shrink"
    assert asked.ask("POST", grow, {}).status == 204
    assert "confirms need 2" in asked.ask("DELETE", shrink, {}).reason


def check(nodes: ClusterNodes, name: str, path: str) -> tuple[int, dict[str, Any]]:
    """A health check at a node, without a login where it does not lead."""
    answer = api(nodes, name).ask("GET", f"health/checks/{path}")
    return answer.status, answer.json


def metrics(nodes: ClusterNodes, name: str, path: str = "/metrics") -> dict[str, list[tuple[dict[str, str], float]]]:
    """The samples of a node's exporter, by their names: labels and value."""
    asked = ApiClient(f"http://127.0.0.1:{nodes.metrics[name]}").ask("GET", path, user=None)
    assert asked.status == 200
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for line in asked.body.decode().splitlines():
        if not line.startswith("#"):
            family, labels, value = re.fullmatch(r"(\w+)(?:\{(.*)\})? (\S+)", line).groups()  # type: ignore[union-attr]
            found.setdefault(family, []).append((dict(re.findall(r'(\w+)="([^"]*)"', labels or "")), float(value)))
    return found


def test_each_node_is_an_instance_for_prometheus(nodes: ClusterNodes) -> None:
    """With its own identity in one cluster, and its own process; queues are at the leader, which knows all copies."""
    leader, follower, third = roles(nodes)
    for name in NAMES:
        until(lambda name=name: metrics(nodes, name)["leveret_cluster_nodes_in_sync"][0][1] == 3, "a set of three")
    until(
        lambda: len({metrics(nodes, n)["rabbitmq_identity_info"][0][0]["rabbitmq_cluster"] for n in NAMES}) == 1, "name"
    )
    pages = {name: metrics(nodes, name) for name in NAMES}
    identities = [labels for name in NAMES for labels, _ in pages[name]["rabbitmq_identity_info"]]
    assert [one["rabbitmq_node"] for one in identities] == [shown(name) for name in NAMES]
    for label in ("rabbitmq_cluster", "rabbitmq_cluster_permanent_id"):
        assert len({one[label] for one in identities}) == 1
    assert "rabbitmq_queues" in pages[leader] and "rabbitmq_queues" not in pages[follower]
    assert {name for name in NAMES if pages[name]["leveret_cluster_leads"][0][1]} == {leader}
    for name in NAMES:
        for family in ("rabbitmq_process_resident_memory_bytes", "process_open_fds", "leveret_cluster_term"):
            assert pages[name][family][0][1] > 0
    found = {labels["follower"]: value for labels, value in pages[leader]["leveret_cluster_link_sent_bytes_total"]}
    assert found.keys() == {shown(follower), shown(third)} and min(found.values()) > 0
    assert "leveret_cluster_follower_lag_records" not in pages[follower]
    detailed = metrics(nodes, follower, "/metrics/detailed?family=queue_metrics")
    assert detailed["rabbitmq_identity_info"][0][0]["rabbitmq_endpoint"] == "detailed"


def test_health_in_each_state(nodes: ClusterNodes) -> None:
    """With all nodes up, one down, two down: each node that runs says what is so."""
    leader, follower, third = roles(nodes)
    critical, elected = "node-is-quorum-critical", "quorum-queues-without-elected-leaders/all-vhosts"
    for name in NAMES:
        until(lambda name=name: check(nodes, name, "reached-target-cluster-size")[0] == 200, "all nodes")
        for path in (critical, "node-is-mirror-sync-critical", elected, "alarms", "local-alarms", "virtual-hosts"):
            until(lambda name=name, path=path: check(nodes, name, path) == (200, {"status": "ok"}), path)
        for path in (
            "is-in-service",
            "ready-to-serve-clients",
            "protocol-listener/amqp",
            f"port-listener/{nodes.ports[name]}",
        ):
            assert check(nodes, name, path)[0] == 200, path
        assert check(nodes, name, f"port-listener/{nodes.ports[third if name != third else leader]}")[0] == 503
    nodes.kill(third)
    for name in (leader, follower):
        until(lambda name=name: check(nodes, name, critical)[0] == 503, f"{name} is needed")
        assert check(nodes, name, elected)[0] == check(nodes, name, "ready-to-serve-clients")[0] == 200
        until(lambda name=name: check(nodes, name, "reached-target-cluster-size")[0] == 503, "a node is missing")
    nodes.kill(leader)
    status, body = until(lambda: told if (told := check(nodes, follower, elected))[0] == 503 else None, "nobody leads")
    assert (status, body["status"]) == (503, "failed")
    assert check(nodes, follower, "ready-to-serve-clients")[0] == check(nodes, follower, "virtual-hosts")[0] == 503
    assert check(nodes, follower, "is-in-service")[0] == 200
