"""The HTTP API of three real nodes, as tools of RabbitMQ ask it: which node is which, whichever of them is asked."""

from collections.abc import Iterator
from typing import Any

import pika
import pytest
from api_client import ApiClient
from cluster_nodes import NAMES, ClusterNodes, cluster_nodes, until
from etcd_servers import ETCD, WHY_NOT

pytestmark = pytest.mark.skipif(ETCD is None, reason=WHY_NOT)

TRACE = "amq.rabbitmq.trace"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterNodes]:
    """Three nodes for all tests."""
    with cluster_nodes(tmp_path_factory.mktemp("cluster")) as nodes:
        nodes.start_all()
        yield nodes


@pytest.fixture
def nodes(cluster: ClusterNodes) -> ClusterNodes:
    """Three nodes in sync."""
    for name in NAMES:
        if name not in cluster.processes:
            cluster.start(name)
    cluster.await_in_sync()
    return cluster


def api(nodes: ClusterNodes, name: str) -> ApiClient:
    """The API through a node."""
    return ApiClient(nodes.console(name))


def shown(name: str) -> str:
    """A node's name in all that tools read."""
    return f"rabbit@{name}"


def roles(nodes: ClusterNodes) -> tuple[str, str, str]:
    """The leader, and its followers."""
    leader = nodes.leader()
    second, third = (name for name in NAMES if name != leader)
    return leader, second, third


def row(rows: list[dict[str, Any]], name: str) -> dict[str, Any]:
    """The row of a name."""
    return next(one for one in rows if one["name"] == name)


def test_who_is_who(nodes: ClusterNodes) -> None:
    """Connections, channels, consumers and traced messages name the node that the client is connected to; queues and
    the answering node are the leader's. The name of the cluster is one, and each connection gets it.
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
        "node": shown(leader),
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
