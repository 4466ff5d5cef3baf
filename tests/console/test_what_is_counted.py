"""Statistics mean what RabbitMQ's mean: the figures here are those of a RabbitMQ 3.10 after the same load."""

import socket
from collections.abc import Iterator

import pika
import pytest
from api_client import ApiClient, basic

from leveret.testing import RunningBroker, start_broker


@pytest.fixture(scope="module")
def loaded() -> Iterator[ApiClient]:
    """Messages that are ready, out, acknowledged by hand and by themselves, dead, and in several queues at once."""
    with start_broker(management=True) as broker:
        connection = pika.BlockingConnection(pika.URLParameters(broker.url))
        channel = connection.channel()
        channel.confirm_delivery()
        to_letters = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "letters"}
        for name, arguments in {
            "first": {},
            "auto": {},
            "letters": {},
            "f1": {},
            "f2": {},
            "dying": to_letters,
            "short": {"x-max-length": 2, **to_letters},
        }.items():
            channel.queue_declare(name, durable=True, arguments=arguments)
        channel.exchange_declare("f", "fanout")
        for name in ("f1", "f2"):
            channel.queue_bind(name, "f")
        for at in range(10):
            channel.basic_publish("", "first", b"x", pika.BasicProperties(timestamp=1000 + at))
        for _ in range(4):
            channel.basic_publish("f", "", b"x")
            channel.basic_publish("", "dying", b"x")
            channel.basic_publish("", "short", b"x")
            channel.basic_publish("", "auto", b"x")
        for _ in range(2):
            channel.basic_reject(channel.basic_get("dying")[0].delivery_tag, requeue=False)
        for _ in range(3):
            channel.basic_get("auto", auto_ack=True)
        tags = [channel.basic_get("first")[0].delivery_tag for _ in range(4)]
        channel.basic_ack(tags[0])
        yield ApiClient(broker.management_url)
        connection.close()


def _metrics(api: ApiClient, path: str) -> dict[str, float]:
    lines = api.ask("GET", path).body.decode().splitlines()
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if not line.startswith("#")}


def test_dead_letters_are_no_publishes(loaded: ApiClient) -> None:
    """Not of the queue that gets them, not of their exchange, not in the sums."""
    assert loaded.get("queues/%2F/letters")["messages"] == 4
    assert loaded.get("queues/%2F/letters").get("message_stats", {}).get("publish", 0) == 0
    assert loaded.get("exchanges/%2F/amq.default")["message_stats"]["publish_in"] == 22
    assert loaded.get("exchanges/%2F/amq.default")["message_stats"]["publish_out"] == 22
    found = _metrics(loaded, "/metrics")
    assert found["rabbitmq_queue_messages_published_total"] == 30
    assert found['rabbitmq_global_messages_received_total{protocol="amqp091"}'] == 26
    assert found['rabbitmq_global_messages_routed_total{protocol="amqp091"}'] == 30  # as many as there are queues


def test_acknowledgements_are_those_that_clients_send(loaded: ApiClient) -> None:
    """Not those that stand for a delivery without any."""
    found = _metrics(loaded, "/metrics")
    kind = '{protocol="amqp091",queue_type="rabbit_classic_queue"}'
    assert found[f"rabbitmq_global_messages_acknowledged_total{kind}"] == 1
    assert found[f"rabbitmq_global_messages_delivered_get_auto_ack_total{kind}"] == 3
    assert found["rabbitmq_channel_messages_acked_total"] == 1
    (channel,) = loaded.get("channels")
    for shown in (channel, loaded.get("vhosts/%2F"), loaded.get("overview")):
        assert shown["message_stats"]["ack"] == 1


def test_the_first_message_may_be_out(loaded: ApiClient) -> None:
    """`head_message_timestamp` is how old the queue's oldest message is."""
    assert loaded.get("queues/%2F/first")["head_message_timestamp"] == 1001
    found = _metrics(loaded, "/metrics/per-object")
    assert found['rabbitmq_queue_head_message_timestamp{vhost="/",queue="first"}'] == 1001


def test_what_is_global_is_at_each_page(loaded: ApiClient) -> None:
    """The per-object page has the families by protocol, with the same values."""
    sums, objects = _metrics(loaded, "/metrics"), _metrics(loaded, "/metrics/per-object")
    assert len({name.partition("{")[0] for name in objects if name.startswith("rabbitmq_global_")}) == 21
    assert {name: sums[name] for name in sums if name.startswith("rabbitmq_global_")} == {
        name: objects[name] for name in objects if name.startswith("rabbitmq_global_")
    }


def test_who_it_is_has_one_name_at_each_page(loaded: ApiClient) -> None:
    """Dashboards join by it."""
    for path in ("/metrics", "/metrics/per-object", "/metrics/detailed?family=queue_metrics"):
        names = {name.partition("{")[0] for name in _metrics(loaded, path)}
        assert {"rabbitmq_identity_info", "rabbitmq_build_info"} <= names
        assert "rabbitmq_detailed_identity_info" not in names


@pytest.mark.parametrize("count, got", [(-1, 3), (-7, 3), (0, 0), (2, 2), (9, 3)])
def test_a_count_below_zero_gets_all(api: ApiClient, broker: RunningBroker, count: int, got: int) -> None:
    """As tools ask that empty a queue."""
    api.ask("PUT", "queues/%2F/all", {})
    api.ask("DELETE", "queues/%2F/all/contents")
    message = {"routing_key": "all", "payload": "x", "payload_encoding": "string", "properties": {}}
    for _ in range(3):
        api.ask("POST", "exchanges/%2F/amq.default/publish", message)
    asked = {"ackmode": "ack_requeue_false", "count": count, "encoding": "auto"}
    assert len(api.ask("POST", "queues/%2F/all/get", asked).json) == got
    assert api.ask("POST", "queues/%2F/absent/get", asked).status == 404


def test_a_monitor_sees_all_virtual_hosts(api: ApiClient) -> None:
    """Their names and sums, also without permissions there; who only manages sees his own."""
    api.ask("PUT", "vhosts/elsewhere", {})
    for tag, seen in (("monitoring", {"/", "elsewhere"}), ("management", {"/"})):
        api.ask("PUT", f"users/{tag}", {"password": tag, "tags": tag})
        api.ask("PUT", f"permissions/%2F/{tag}", {"configure": "", "write": "", "read": ""})
        assert {one["name"] for one in api.get("vhosts", user=tag)} == seen


def test_a_length_beside_chunks(api: ApiClient) -> None:
    """A proxy could see the body end elsewhere: refused, and what follows on the connection is not read."""
    login = f"authorization: {basic('guest', 'guest')}\r\n"
    head = f"PUT /api/queues/%2F/two HTTP/1.1\r\nhost: localhost\r\n{login}"
    for lengths in (
        "content-length: 5\r\ntransfer-encoding: chunked",
        "transfer-encoding: chunked\r\ncontent-length: 2",
    ):
        with socket.create_connection(api.address) as peer:
            peer.sendall(
                f"{head}{lengths}\r\n\r\n2\r\n{{}}\r\n0\r\n\r\nGET / HTTP/1.1\r\nhost: localhost\r\n\r\n".encode()
            )
            raw = b"".join(iter(lambda: peer.recv(65536), b""))
        assert raw.startswith(b"HTTP/1.1 400") and raw.count(b"HTTP/1.1") == 1
        assert raw.lower().count(b"connection: close") == 1
    assert api.ask("GET", "queues/%2F/two").status == 404
