"""Methods that are sent before the first of them is answered: where RabbitMQ's answers depend on its processes' haste,
ours come in the order of the questions."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from rawclient import Client

from leveret.interop.wire.raw_codec import BODY, HEADER, frame, header_payload, method_frame

Q = "pipelined"


@pytest.fixture
def client(subject_url: str) -> Iterator[Client]:
    """A channel, and a queue that nobody else has."""
    parts = urlsplit(subject_url)
    assert parts.hostname is not None and parts.port is not None
    client = Client.open(parts.hostname, parts.port, vhost=parts.path[1:])
    client.call("queue.declare", queue=Q, exclusive=True)
    yield client
    client.close()


def answers(client: Client, *asked: bytes, count: int) -> list[str]:
    """The names of what comes, one after the other."""
    client.send_octets(b"".join(asked))
    return [client.read().name for _ in range(count)]


PASSIVE = method_frame(1, "queue.declare", queue=Q, passive=True)
MISSING = method_frame(1, "queue.declare", queue="missing", passive=True)
CONSUME = method_frame(1, "basic.consume", queue=Q, consumer_tag="t")
CANCEL = method_frame(1, "basic.cancel", consumer_tag="t")
CONTENT = frame(HEADER, 1, header_payload(1)) + frame(BODY, 1, b"x")
PUBLISH = method_frame(1, "basic.publish", exchange="", routing_key=Q) + CONTENT


def test_answers_come_in_the_order_of_the_questions(client: Client) -> None:
    """RabbitMQ's queues answer consume and cancel, its channels all else."""
    names = answers(client, PASSIVE, CONSUME, PASSIVE, CANCEL, PASSIVE, count=5)
    assert names == [
        *("queue.declare-ok", "basic.consume-ok", "queue.declare-ok", "basic.cancel-ok", "queue.declare-ok"),
    ]


def test_what_was_answered_is_said_before_the_channel_fails(client: Client) -> None:
    """Consumers are told, and publishes confirmed."""
    names = answers(client, method_frame(1, "confirm.select"), PUBLISH, CONSUME, PUBLISH, MISSING, count=4)
    assert names[:2] == ["confirm.select-ok", "basic.consume-ok"]
    assert names[-1] != "channel.close"
    rest = [client.read().name]
    while rest[-1] != "channel.close":
        rest.append(client.read().name)
    assert "basic.ack" in [*names, *rest]
    client.send("channel.close-ok")
    client.call("channel.open")


def test_what_follows_a_failure_is_not_looked_at(client: Client) -> None:
    """Also where it names no queue: RabbitMQ fails a second time then."""
    bind = method_frame(2, "queue.bind", queue="", exchange="amq.fanout")
    purge = method_frame(2, "queue.purge", queue="missing")
    assert answers(client, method_frame(2, "channel.open"), purge, bind, bind, count=2)[1] == "channel.close"
    assert answers(client, method_frame(2, "channel.close-ok"), method_frame(2, "channel.open"), count=1) == [
        "channel.open-ok"
    ]


def test_a_consumer_of_a_queue_that_is_deleted_and_declared_anew_is_cancelled(client: Client) -> None:
    """RabbitMQ takes it over to the new queue, as to another mirror."""
    client.call("basic.consume", queue=Q, consumer_tag="t")
    again = method_frame(1, "queue.declare", queue=Q, exclusive=True, auto_delete=True)
    names = answers(client, method_frame(1, "queue.delete", queue=Q), again, count=3)
    assert sorted(names) == ["basic.cancel", "queue.declare-ok", "queue.delete-ok"]
    assert client.count(Q) == (0, 0)


def test_what_follows_finds_the_dead_letters(client: Client) -> None:
    """RabbitMQ's come some time later."""
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": Q, "x-message-ttl": 0}
    client.call("queue.declare", queue="deadly", exclusive=True, arguments=arguments)
    publish = method_frame(1, "basic.publish", exchange="", routing_key="deadly")
    client.send_octets(publish + CONTENT + method_frame(1, "queue.purge", queue=Q))
    assert client.expect("queue.purge-ok")["message_count"] == 1


def test_the_tag_of_a_deleted_queues_consumer_is_free_at_once(client: Client) -> None:
    """RabbitMQ's channel may not have heard yet."""
    client.call("basic.consume", queue=Q, consumer_tag="t")
    client.call("queue.declare", queue="pipelined-2", exclusive=True)
    consume = method_frame(1, "basic.consume", queue="pipelined-2", consumer_tag="t")
    names = answers(client, method_frame(1, "queue.delete", queue=Q), consume, count=3)
    assert sorted(names) == ["basic.cancel", "basic.consume-ok", "queue.delete-ok"]


def test_a_dead_letter_comes_behind_the_publishes_of_the_same_read(client: Client) -> None:
    """Also into the queue that it comes from."""
    arguments = {"x-dead-letter-exchange": ("S", ""), "x-dead-letter-routing-key": ("S", "pipelined-3")}
    client.call("queue.declare", queue="pipelined-3", exclusive=True, arguments=arguments)
    client.publish("", "pipelined-3", b"dies")
    assert client.call("basic.get", queue="pipelined-3").body == b"dies"
    nack = method_frame(1, "basic.nack", delivery_tag=1, requeue=False)
    client.send_octets(nack + method_frame(1, "basic.publish", exchange="", routing_key="pipelined-3") + CONTENT)
    assert [client.call("basic.get", queue="pipelined-3").body for _ in range(2)] == [b"x", b"dies"]


def test_what_a_quorum_queue_handed_out_is_gone_with_the_connection(subject_url: str) -> None:
    """To a consumer that acknowledges nothing."""
    parts = urlsplit(subject_url)
    assert parts.hostname is not None and parts.port is not None
    first, second = (Client.open(parts.hostname, parts.port, vhost=parts.path[1:]) for _ in range(2))
    quorum = {"x-queue-type": ("S", "quorum")}
    first.call("queue.declare", queue="pipelined-q", durable=True, arguments=quorum)
    first.publish("", "pipelined-q", b"x")
    second.wait_for_ready("pipelined-q", 1)
    first.send_octets(
        method_frame(1, "basic.consume", queue="pipelined-q", no_ack=True) + method_frame(1, "channel.open")
    )
    while first.read().name != "connection.close":
        pass
    first.send("connection.close-ok", channel=0)
    assert second.count("pipelined-q") == (0, 0)
    second.call("queue.delete", queue="pipelined-q")
    second.close()


def test_what_several_methods_give_back_goes_out_in_the_queues_order(client: Client) -> None:
    """RabbitMQ's queue hears of the second when the first is out again."""
    for body in (b"0", b"1"):
        client.publish("", Q, body)
    assert client.count(Q) == (2, 0)
    client.call("basic.consume", queue=Q, consumer_tag="t")
    assert [one.body for one in client.deliveries(2)] == [b"0", b"1"]
    client.send_octets(b"".join(method_frame(1, "basic.nack", delivery_tag=tag, requeue=True) for tag in (2, 1)))
    assert [one.body for one in client.deliveries(2)] == [b"0", b"1"]
    client.call("basic.cancel", consumer_tag="t")


def test_a_lazy_queues_dead_letter_tells_its_expiration(client: Client) -> None:
    """RabbitMQ's lazy queues forget it."""
    arguments = {
        "x-dead-letter-exchange": ("S", ""),
        "x-dead-letter-routing-key": ("S", Q),
        "x-queue-mode": ("S", "lazy"),
    }
    client.call("queue.declare", queue="pipelined-lazy", exclusive=True, arguments=arguments)
    client.publish("", "pipelined-lazy", b"x", expiration="0")
    client.wait_for_ready(Q, 1)
    (death,) = client.take(Q, no_ack=True).content.headers["x-death"][1]
    assert dict(death[1])["original-expiration"][1] == b"0"


def test_a_decimal_where_a_number_was_declared_is_another_argument(client: Client) -> None:
    """RabbitMQ's channel falls over it."""
    client.call("queue.declare", queue="pipelined-d", exclusive=True, arguments={"x-max-length-bytes": ("I", 0)})
    client.call("channel.open", channel=2)
    arguments = {"x-max-length-bytes": ("D", (0, 5))}
    client.send("queue.declare", channel=2, queue="pipelined-d", exclusive=True, arguments=arguments)
    assert client.expect("channel.close", channel=2)["reply_code"] == 406
    client.send("channel.close-ok", channel=2)


def test_a_quorum_queue_counts_what_was_published_before_it_is_deleted(client: Client) -> None:
    """RabbitMQ's may not have it yet."""
    client.call("queue.declare", queue="pipelined-q2", durable=True, arguments={"x-queue-type": ("S", "quorum")})
    publish = method_frame(1, "basic.publish", exchange="", routing_key="pipelined-q2") + CONTENT
    client.send_octets(publish + method_frame(1, "queue.delete", queue="pipelined-q2"))
    assert client.expect("queue.delete-ok")["message_count"] == 1
