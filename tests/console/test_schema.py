"""Names and types of what is shown, against what RabbitMQ 3.10.8 showed (`tests/spec/management/`).

Every name of a sample is there with a value of the same type, in lists and in objects as deep as they are; what is
absent is listed with its reason. Names that are ours alone are under `leveret`.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pika
import pytest
from api_client import ApiClient
from schema_check import missing

from leveret.testing import start_broker

SAMPLES = Path(__file__).resolve().parents[1] / "spec" / "management"

#: Sample -> path.
ASKED = {
    "overview": "overview",
    "overview-disable_stats": "overview?disable_stats=true",
    "whoami": "whoami",
    "cluster-name": "cluster-name",
    "auth": "auth",
    "extensions": "extensions",
    "nodes": "nodes",
    "node-memory": "nodes/rabbit@localhost?memory=true",
    "node-memory-only": "nodes/rabbit@localhost/memory",
    "node-memory-relative": "nodes/rabbit@localhost/memory/relative",
    "node-binary": "nodes/rabbit@localhost?binary=true&columns=binary",
    "connections": "connections",
    "channels": "channels",
    "consumers": "consumers",
    "exchanges": "exchanges",
    "exchange": "exchanges/%2F/x.topic",
    "queues": "queues",
    "queue-classic": "queues/%2F/orders",
    "queue-quorum": "queues/%2F/qq",
    "queue-stream": "queues/%2F/st",
    "queue-exclusive": "queues/%2F/excl",
    "queues-paginated": "queues?page=1&page_size=5",
    "queues-disable_stats": "queues?disable_stats=true",
    "queues-disable_stats-totals": "queues?disable_stats=true&enable_queue_totals=true",
    "queue-ranges": "queues/%2F/orders?lengths_age=20&lengths_incr=5&msg_rates_age=20&msg_rates_incr=5",
    "bindings": "bindings",
    "queue-bindings": "queues/%2F/orders/bindings",
    "vhosts": "vhosts",
    "vhost": "vhosts/%2F",
    "users": "users",
    "user": "users/guest",
    "permissions": "permissions",
    "policies": "policies",
    "operator-policies": "operator-policies",
    "parameters": "parameters",
    "global-parameters": "global-parameters",
    "definitions": "definitions",
    "definitions-vhost": "definitions/%2F",
    "vhost-limits": "vhost-limits",
    "user-limits": "user-limits",
    "feature-flags": "feature-flags",
    "auth-attempts": "auth/attempts/rabbit@localhost",
    "aliveness-test": "aliveness-test/%2F",
    "health-alarms": "health/checks/alarms",
    "health-vhosts": "health/checks/virtual-hosts",
    "health-mirror": "health/checks/node-is-mirror-sync-critical",
    "health-local-alarms": "health/checks/local-alarms",
    "topic-permissions": "topic-permissions",
    "users-without-permissions": "users/without-permissions",
    "health-quorum": "health/checks/node-is-quorum-critical",
    "healthchecks-node": "healthchecks/node",
}


@pytest.fixture(scope="module")
def api() -> Iterator[ApiClient]:
    """A broker with one of everything, that has had some traffic."""
    with start_broker(management=True) as broker:
        client = ApiClient(broker.management_url)
        for path, body in (
            ("exchanges/%2F/x.topic", {"type": "topic", "durable": True}),
            ("queues/%2F/orders", {"durable": True, "arguments": {"x-max-priority": 5}}),
            ("queues/%2F/qq", {"durable": True, "arguments": {"x-queue-type": "quorum"}}),
            ("queues/%2F/st", {"durable": True, "arguments": {"x-queue-type": "stream"}}),
            ("policies/%2F/pol1", {"pattern": "^idle", "definition": {"max-length": 10}}),
            ("operator-policies/%2F/op1", {"pattern": "^idle", "definition": {"max-length": 5}}),
            ("parameters/federation-upstream/%2F/up1", {"value": {"uri": "amqp://127.0.0.1:1"}}),
            ("global-parameters/gp1", {"value": {"a": 1}}),
            ("users/man", {"password": "man", "tags": "management"}),
        ):
            assert client.ask("PUT", path, body).status == 201
        topic = {"exchange": "x.topic", "write": "^a", "read": ".*"}
        assert client.ask("PUT", "topic-permissions/%2F/guest", topic).status == 201
        for path in ("vhost-limits/%2F/max-queues", "user-limits/man/max-connections"):
            assert client.ask("PUT", path, {"value": 100}).status == 204
        client.ask("POST", "bindings/%2F/e/x.topic/q/orders", {"routing_key": "a.#"})
        parameters = pika.URLParameters(broker.url)
        parameters.client_properties = {"connection_name": "named"}
        with pika.BlockingConnection(parameters) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            channel.queue_declare("excl", exclusive=True)
            for queue in ("orders", "qq", "st", "excl"):
                channel.basic_publish("", queue, b"x")
            channel.basic_publish("x.topic", "a.1", b"x")
            channel.basic_qos(prefetch_count=1)
            channel.basic_consume("orders", lambda *_: None)
            channel.basic_get("qq")
            channel.basic_ack(channel.basic_get("excl")[0].delivery_tag)
            yield client


@pytest.mark.parametrize("sample", ASKED)
def test_names_and_types(sample: str, api: ApiClient) -> None:
    """What RabbitMQ shows is there, of the same type, or listed."""
    theirs = json.loads((SAMPLES / f"{sample}.json").read_text())["answer"]
    assert list(dict.fromkeys(missing(theirs, api.get(ASKED[sample]), sample))) == []
