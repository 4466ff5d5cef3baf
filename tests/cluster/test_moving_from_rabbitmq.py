"""A team moves from RabbitMQ to a cluster, as docs/from-rabbitmq.md says: by definitions, then by shovels there."""

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pika
import pytest
from api_client import ApiClient
from cluster_nodes import NAMES, ClusterNodes, others, until
from etcd_servers import ETCD, WHY_NOT

from leveret.interop.brokers.peers import WITHOUT_RABBITMQ, Peer, find_rabbitmq, rabbitmq
from leveret.interop.wire.loopback import free_ports

pytestmark = [
    pytest.mark.peer,
    pytest.mark.skipif(ETCD is None, reason=WHY_NOT),
    pytest.mark.skipif(find_rabbitmq() is None, reason=WITHOUT_RABBITMQ),
]

#: What a three-node RabbitMQ has: kinds of queues, placements, mirrors, a dead-letter exchange, users and permissions.
QUEUES = {
    "orders": {"x-queue-type": "quorum", "x-quorum-initial-group-size": 3, "x-delivery-limit": 5},
    "mail": {"x-queue-type": "classic", "x-dead-letter-exchange": "dead", "x-queue-master-locator": "min-masters"},
    "log": {"x-queue-type": "stream", "x-max-length-bytes": 10_000_000, "x-initial-cluster-size": 3},
    "ha.jobs": {},
}
MOVED = ("orders", "mail", "ha.jobs")
COUNT = 1000
#: The words of docs/from-rabbitmq.md.
SHOVEL = {
    **{"src-protocol": "amqp091", "src-uri": "amqp://", "dest-protocol": "amqp091"},
    **{"src-prefetch-count": 100, "ack-mode": "on-confirm", "reconnect-delay": 1},
}


@pytest.fixture(scope="module")
def theirs() -> Iterator[tuple[Peer, ApiClient]]:
    """A RabbitMQ with objects and messages."""
    (port,) = free_ports(1)
    config = f"management.tcp.ip = 127.0.0.1\nmanagement.tcp.port = {port}\n"
    plugins = ("rabbitmq_management", "rabbitmq_shovel", "rabbitmq_shovel_management")
    with rabbitmq(config=config, plugins=plugins) as peer:
        api = ApiClient(f"http://127.0.0.1:{port}")
        put(api, "users/shop", {"password": "secret", "tags": "monitoring"})
        put(api, "permissions/%2F/shop", {"configure": "", "write": "^orders$", "read": ".*"})
        put(api, "exchanges/%2F/dead", {"type": "fanout", "durable": True})
        put(api, "policies/%2F/ha", {"pattern": "^ha\\.", "definition": {"ha-mode": "exactly", "ha-params": 2}})
        for name, arguments in QUEUES.items():
            put(api, f"queues/%2F/{name}", {"durable": True, "arguments": arguments})
        assert api.ask("POST", "bindings/%2F/e/amq.topic/q/orders", {"routing_key": "order.#"}).status == 201
        with closing(pika.BlockingConnection(pika.URLParameters(peer.url))) as connection:
            channel = connection.channel()
            for name in MOVED:
                for number in range(COUNT):
                    channel.basic_publish("", name, str(number).encode(), pika.BasicProperties(delivery_mode=2))
        until(lambda: sum(row.get("messages", 0) for row in api.get("queues")) == len(MOVED) * COUNT, "their messages")
        yield peer, api


def put(api: ApiClient, path: str, body: dict[str, Any]) -> None:
    """Declare something."""
    answer = api.ask("PUT", path, body)
    assert answer.status in (201, 204), answer


def test_definitions_and_shovels_bring_everything(theirs: tuple[Peer, ApiClient], nodes: ClusterNodes) -> None:
    """Through followers, while the leader is lost: nothing is missing, and in order but for what came again."""
    peer, there = theirs
    leader = nodes.leader()
    follower, third = others(leader)
    definitions = there.get("definitions")
    definitions["users"] = [user for user in definitions["users"] if user["name"] != "guest"]
    here = ApiClient(nodes.console(follower))
    assert here.ask("POST", "definitions", definitions).status == 204
    for api in (here, ApiClient(nodes.console(third))):
        assert {one["name"]: one["arguments"] for one in api.get("queues")} == QUEUES
    assert here.get("policies/%2F/ha")["definition"] == {"ha-mode": "exactly", "ha-params": 2}
    assert here.get("bindings/%2F/e/amq.topic/q/orders")[0]["routing_key"] == "order.#"
    assert here.ask("GET", "whoami", user="shop", password="secret").json["tags"] == ["monitoring"]
    places = [f"amqp://guest:guest@127.0.0.1:{nodes.ports[name]}" for name in NAMES]
    for name in MOVED:
        value = {**SHOVEL, "dest-uri": places, "src-queue": name, "dest-queue": name}
        put(there, f"parameters/shovel/%2F/{name}", {"value": value})
    until(lambda: moved(ApiClient(nodes.console(follower))) > COUNT // 3, "the first messages")
    nodes.kill(leader)
    nodes.leader(but=leader)
    until(lambda: sum(row["messages"] for row in there.get("queues")) == 0, "the last messages")
    for name in MOVED:
        assert there.ask("DELETE", f"parameters/shovel/%2F/{name}").status == 204
    with nodes.channel(third) as channel:
        for name in MOVED:
            numbers = [int(body) for body in bodies(channel, name)]
            again = len(numbers) - len(set(numbers))
            print(f"{name}: {again} came twice")
            assert set(numbers) == set(range(COUNT))
            assert list(dict.fromkeys(numbers)) == sorted(set(numbers)), name


def moved(api: ApiClient) -> int:
    """Messages that are here."""
    answer = api.ask("GET", "queues")
    return sum(row["messages"] for row in answer.json) if answer.status == 200 else 0


def bodies(channel: pika.channel.Channel, queue: str) -> Iterator[bytes]:
    """Of all messages."""
    while (got := channel.basic_get(queue, auto_ack=True))[0] is not None:
        yield got[2]


def test_the_shovel_is_the_one_of_the_docs() -> None:
    """Word for word."""
    text = (Path(__file__).parents[2] / "docs/from-rabbitmq.md").read_text()
    value = next(part for part in text.split("```") if "src-queue" in part)
    said = json.loads(value[value.index("{") : value.rindex("}") + 1])
    assert {name: one for name, one in said.items() if name in SHOVEL} == SHOVEL
