"""Behaviour page 4: what comes before what, topic by topic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from rawclient import Client, Method
from spec_broker import SpecBroker

Q = "p.order"

# Topic of the table -> why no test of this file shows it yet.
LATER = {
    "between channels and exchanges": "no guarantee, so nothing to show",
    "requeue with parallel consumers": "best effort, so nothing to show",
    "requeue, quorum": "RabbitMQ's order varies by version (behaviour page 3.6); ours is that of classic queues",
    "TTL and drop-head": "shown in tests/spec/traps/test_expiry_and_limits.py",
}
TOPICS = (
    *("base", "between channels and exchanges", "e2e", "requeue, classic", "requeue with parallel consumers"),
    *("requeue, quorum", "redelivered flag", "basic.get then consumer", "multiple consumers", "SAC", "exclusive"),
    *("priorities", "consumer priority", "TTL and drop-head", "dead-lettering", "confirms", "replies", "consume-ok"),
    *("cancel-ok", "channel.close by client", "connection loss", "publisher pipelining", "tx", "clean-up order"),
)
SHOWN: set[str] = set()

Test = Callable[..., None]


def topic(name: str) -> Callable[[Test], Test]:
    """This test shows that topic of the table."""
    SHOWN.add(name)
    return lambda test: test


def test_every_topic_is_shown_or_deferred() -> None:
    """No row of the table is forgotten."""
    assert set(TOPICS) == SHOWN | LATER.keys()
    assert SHOWN & LATER.keys() == set()


def queue_of(client: Client, count: int, *, queue: str = Q) -> None:
    """The queue with the messages 0, 1, ... count - 1."""
    client.call("queue.declare", queue=queue)
    for number in range(count):
        client.publish("", queue, str(number).encode())
    client.wait_for_ready(queue, count)


def numbers(methods: list[Method]) -> list[int]:
    return [int(method.body) for method in methods]


@topic("base")
def test_publish_order_is_delivery_order(broker: SpecBroker) -> None:
    """Messages of one channel through one exchange reach a single consumer in publish order."""
    client = broker.open()
    client.call("queue.declare", queue=Q)
    client.call("queue.bind", queue=Q, exchange="amq.fanout")
    for number in range(300):
        client.publish("amq.fanout", "", str(number).encode())
    client.call("basic.consume", queue=Q, no_ack=True)
    assert numbers(client.deliveries(300)) == list(range(300))


@topic("e2e")
def test_publish_order_through_a_chain_of_exchanges(broker: SpecBroker) -> None:
    """Bindings between exchanges keep the publish order of each destination queue."""
    client = broker.open()
    client.call("exchange.declare", exchange="p.in", type="topic")
    for queue in ("p.o1", "p.o2"):
        client.call("exchange.declare", exchange=f"{queue}.x", type="fanout")
        client.call("exchange.bind", source="p.in", destination=f"{queue}.x", routing_key="#")
        client.call("queue.declare", queue=queue)
        client.call("queue.bind", queue=queue, exchange=f"{queue}.x")
    for number in range(20):
        client.publish("p.in", f"k.{number % 3}", str(number).encode())
    expected = [str(number).encode() for number in range(20)]
    assert client.bodies("p.o1") == expected
    assert client.bodies("p.o2") == expected


@topic("requeue, classic")
def test_requeue_restores_the_original_position(broker: SpecBroker) -> None:
    """get 0, 1, 2; requeue 1: it comes next; requeue 0 and 2 later: 0, 2 and then what was behind them."""
    client = broker.open()
    queue_of(client, 5)
    tags = [client.take(Q)["delivery_tag"] for _ in range(3)]
    client.send("basic.nack", delivery_tag=tags[1], requeue=True)
    again = client.take(Q)
    assert (again.body, again["redelivered"]) == (b"1", True)
    client.send("basic.ack", delivery_tag=again["delivery_tag"])
    client.send("basic.reject", delivery_tag=tags[2], requeue=True)
    client.send("basic.reject", delivery_tag=tags[0], requeue=True)
    assert client.bodies(Q) == [b"0", b"2", b"3", b"4"]


@topic("requeue, classic")
@pytest.mark.parametrize("how", ["nack-multiple", "recover", "recover-async", "channel-close"])
def test_every_way_to_requeue_restores_the_order(how: str, broker: SpecBroker) -> None:
    """nack of many, recover and the end of the channel put the messages back where they were."""
    client = broker.open(channels=2)
    queue_of(client, 5)
    for _ in range(3):
        client.take(Q, channel=2)
    match how:
        case "nack-multiple":
            client.send("basic.nack", channel=2, delivery_tag=0, multiple=True, requeue=True)
            client.collect(channel=2)
        case "recover":
            client.call("basic.recover", channel=2, requeue=True)
        case "recover-async":
            client.send("basic.recover-async", channel=2, requeue=True)
            client.collect(channel=2)
        case _:
            client.call("channel.close", channel=2)
    got = [client.take(Q) for _ in range(5)]
    assert numbers(got) == [0, 1, 2, 3, 4]
    assert [method["redelivered"] for method in got] == [True, True, True, False, False]


@topic("redelivered flag")
def test_redelivered_is_set_once_the_message_was_sent_and_came_back(broker: SpecBroker) -> None:
    """First delivery false; after a return for any reason true; a message that was never sent stays false."""
    client = broker.open()
    queue_of(client, 2)
    first = client.take(Q)
    assert first["redelivered"] is False
    client.send("basic.reject", delivery_tag=first["delivery_tag"], requeue=True)
    again, fresh = client.take(Q), client.take(Q)
    assert (again.body, again["redelivered"]) == (b"0", True)
    assert (fresh.body, fresh["redelivered"]) == (b"1", False)


@topic("basic.get then consumer")
def test_get_and_consume_share_position_and_flag(broker: SpecBroker) -> None:
    """What basic.get took and returned is delivered first to a consumer, redelivered."""
    client = broker.open()
    queue_of(client, 3)
    client.send("basic.nack", delivery_tag=client.take(Q)["delivery_tag"], requeue=True)
    client.call("basic.consume", queue=Q)
    got = client.deliveries(3)
    assert numbers(got) == [0, 1, 2]
    assert [method["redelivered"] for method in got] == [True, False, False]
    assert [method["delivery_tag"] for method in got] == [2, 3, 4]


@topic("multiple consumers")
def test_consumers_take_turns_in_the_order_they_came(broker: SpecBroker) -> None:
    """Round robin in consume order, one message each: a b c a b c; a new consumer joins at the end of the consumer
    list."""
    client = broker.open()
    client.call("queue.declare", queue=Q)
    for tag in ("a", "b", "c"):
        client.call("basic.consume", queue=Q, consumer_tag=tag, no_ack=True)
    for number in range(7):
        client.publish("", Q, str(number).encode())
    got = client.deliveries(7)
    assert "".join(method["consumer_tag"] for method in got) == "abcabca"
    assert numbers(got) == list(range(7))
    client.call("basic.consume", queue=Q, consumer_tag="d", no_ack=True)
    for number in range(4):
        client.publish("", Q, str(number).encode())
    assert "".join(method["consumer_tag"] for method in client.deliveries(4)) == "bcad"


@topic("multiple consumers")
def test_a_consumer_without_credit_is_passed_over(broker: SpecBroker) -> None:
    """A consumer that holds its whole prefetch is skipped and takes its turn again after an ack."""
    client = broker.open()
    client.call("queue.declare", queue=Q)
    client.call("basic.qos", prefetch_count=1)
    client.call("basic.consume", queue=Q, consumer_tag="one")
    client.call("basic.qos", prefetch_count=0)
    client.call("basic.consume", queue=Q, consumer_tag="all")
    for number in range(4):
        client.publish("", Q, str(number).encode())
    got = client.deliveries(4)
    assert [method["consumer_tag"] for method in got] == ["one", "all", "all", "all"]
    client.send("basic.ack", delivery_tag=got[0]["delivery_tag"])
    for number in range(2):
        client.publish("", Q, str(number).encode())
    assert {method["consumer_tag"] for method in client.deliveries(2)} == {"one", "all"}


@topic("exclusive")
def test_an_exclusive_consumer_gets_strict_queue_order(broker: SpecBroker) -> None:
    """A single exclusive consumer sees queue order, returned messages in their old place."""
    client = broker.open()
    queue_of(client, 4)
    client.call("basic.qos", prefetch_count=2)
    client.call("basic.consume", queue=Q, exclusive=True)
    first, second = client.deliveries(2)
    client.send("basic.nack", delivery_tag=second["delivery_tag"], multiple=True, requeue=True)
    got = client.deliveries(2)
    assert numbers([first, second, *got]) == [0, 1, 0, 1]
    client.send("basic.ack", delivery_tag=got[1]["delivery_tag"], multiple=True)
    assert numbers(client.deliveries(2)) == [2, 3]


@topic("confirms")
def test_a_return_precedes_its_own_confirm(broker: SpecBroker) -> None:
    """Unroutable mandatory in confirm mode: basic.return with its content, then basic.ack."""
    client = broker.open()
    client.call("confirm.select")
    for number in (1, 2):
        client.publish("", "p.nowhere", b"lost", mandatory=True)
        assert client.expect("basic.return").body == b"lost"
        ack = client.expect("basic.ack")
        assert (ack["delivery_tag"], ack["multiple"]) == (number, False)


@topic("replies")
def test_replies_come_in_request_order(broker: SpecBroker) -> None:
    """A reply is never overtaken by the reply to a later request of the channel."""
    client = broker.open()
    requests: list[tuple[str, dict[str, Any]]] = [
        ("queue.declare", {"queue": Q}),
        ("basic.qos", {"prefetch_count": 3}),
        ("queue.bind", {"queue": Q, "exchange": "amq.direct", "routing_key": "p.k"}),
        ("exchange.declare", {"exchange": "p.x", "type": "fanout"}),
        ("exchange.bind", {"source": "p.x", "destination": "amq.direct"}),
        ("queue.purge", {"queue": Q}),
        ("exchange.delete", {"exchange": "p.x"}),
        ("queue.unbind", {"queue": Q, "exchange": "amq.direct", "routing_key": "p.k"}),
        ("confirm.select", {}),
        ("queue.delete", {"queue": Q}),
    ]
    for method, values in requests:
        client.send(method, **values)
    assert [client.read().name for _ in requests] == [f"{method}-ok" for method, _ in requests]


@topic("consume-ok")
def test_consume_ok_precedes_the_first_delivery(broker: SpecBroker) -> None:
    """Of a full queue too, and with the tag that the deliveries carry."""
    client = broker.open()
    queue_of(client, 3)
    tag = client.call("basic.consume", queue=Q)["consumer_tag"]
    assert [method["consumer_tag"] for method in client.deliveries(3)] == [tag] * 3


@topic("cancel-ok")
def test_nothing_is_delivered_after_cancel_ok(broker: SpecBroker) -> None:
    """Deliveries may come before cancel-ok; what is published later stays in the queue."""
    client = broker.open()
    queue_of(client, 3)
    client.call("basic.consume", queue=Q, consumer_tag="c", no_ack=True)
    client.deliveries(3)
    client.call("basic.cancel", consumer_tag="c")
    client.publish("", Q, b"3")
    assert client.collect(Q) == []
    assert client.bodies(Q) == [b"3"]


@topic("channel.close by client")
def test_channel_close_ok_comes_after_the_requeue(broker: SpecBroker) -> None:
    """Another connection that then gets sees the unacked messages, redelivered, in their order."""
    owner, other = broker.open(), broker.open()
    queue_of(owner, 3)
    owner.call("basic.consume", queue=Q)
    owner.deliveries(3)
    owner.call("channel.close")
    got = [other.take(Q) for _ in range(3)]
    assert numbers(got) == [0, 1, 2]
    assert all(method["redelivered"] for method in got)


@topic("connection loss")
@pytest.mark.parametrize("polite", [True, False], ids=["connection.close", "socket-closed"])
def test_the_end_of_a_connection_requeues_in_order(polite: bool, broker: SpecBroker) -> None:
    """connection.close and a socket that just ends: unacked messages are back, redelivered, in their order."""
    owner, other = broker.open(), broker.open()
    queue_of(owner, 4)
    owner.call("basic.qos", prefetch_count=3)
    owner.call("basic.consume", queue=Q)
    owner.deliveries(3)
    owner.close() if polite else owner.abort()
    while other.count(Q) != (4, 0):  # each look is a round trip; the test's own time-out ends it
        assert not polite, "close-ok came before the requeue"
    got = [other.take(Q) for _ in range(4)]
    assert numbers(got) == [0, 1, 2, 3]
    assert [method["redelivered"] for method in got] == [True, True, True, False]


@topic("publisher pipelining")
def test_a_channel_sees_its_own_publish(broker: SpecBroker) -> None:
    """publish, then basic.get, passive declare, purge or delete on the same channel: the message is there."""
    client = broker.open()
    client.call("queue.declare", queue=Q)
    client.publish("", Q, b"0")
    assert client.bodies(Q) == [b"0"]
    if broker.is_rabbitmq:
        pytest.skip("RabbitMQ may answer the passive declare first; we promise more (behaviour page 4, REC)")
    client.publish("", Q, b"1")
    assert client.count(Q) == (1, 0)
    client.publish("", Q, b"2")
    assert client.call("queue.purge", queue=Q)["message_count"] == 2
    client.publish("", Q, b"3")
    assert client.call("queue.delete", queue=Q)["message_count"] == 1


@topic("tx")
def test_a_commit_publishes_in_order(broker: SpecBroker) -> None:
    """Nothing is visible before the commit, everything with commit-ok, in publish order."""
    client = broker.open(channels=2)
    client.call("queue.declare", queue=Q)
    client.call("tx.select")
    for number in range(5):
        client.publish("", Q, str(number).encode())
    client.collect()
    assert client.count(Q, channel=2) == (0, 0)
    client.call("tx.commit")
    client.wait_for_ready(Q, 5, channel=2)
    assert client.bodies(Q, channel=2) == [b"0", b"1", b"2", b"3", b"4"]


@topic("clean-up order")
def test_a_closing_connection_leaves_nothing_behind(broker: SpecBroker) -> None:
    """With connection.close-ok the messages are requeued, auto-delete and exclusive queues are gone."""
    owner, other = broker.open(), broker.open()
    queue_of(owner, 2)
    owner.call("queue.declare", queue="p.auto", auto_delete=True)
    owner.call("queue.declare", queue="p.mine", exclusive=True)
    for queue in (Q, "p.auto", "p.mine"):
        owner.send("basic.consume", queue=queue)
    owner.collect(Q)
    owner.close()
    assert other.count(Q) == (2, 0)
    for queue in ("p.auto", "p.mine"):
        other.send("queue.declare", queue=queue, passive=True)
        close = other.expect("channel.close")
        assert close["reply_text"] == f"NOT_FOUND - no queue '{queue}' in vhost '/'"
        other.send("channel.close-ok")
        other.call("channel.open")


@topic("SAC")
def test_a_single_active_consumer_gets_queue_order(broker: SpecBroker) -> None:
    """All of it, however many consumers wait; after a change what was held comes first, in its old order."""
    client, other = broker.open(), broker.open()
    client.call("queue.declare", queue=Q, arguments={"x-single-active-consumer": True})
    for one in (client, other):
        one.call("basic.consume", queue=Q)
    for number in range(6):
        client.publish("", Q, str(number).encode())
    assert numbers(client.deliveries(6)) == [0, 1, 2, 3, 4, 5]
    client.send("basic.ack", delivery_tag=2)
    client.call("channel.close")
    assert numbers(other.deliveries(5)) == [0, 2, 3, 4, 5]


@topic("priorities")
def test_priorities_go_by_level(broker: SpecBroker) -> None:
    """The highest level first, FIFO inside each; what was delivered is not recalled, what is requeued has its level."""
    client = broker.open()
    client.call("queue.declare", queue=Q, arguments={"x-max-priority": 5})
    client.publish("", Q, b"0", priority=1)
    client.wait_for_ready(Q, 1)
    assert client.take(Q).body == b"0"
    for number, priority in ((1, 3), (2, 5), (3, 3), (4, 9), (5, 0)):
        client.publish("", Q, str(number).encode(), priority=priority)
    client.wait_for_ready(Q, 5)
    client.send("basic.nack", delivery_tag=1, requeue=True)
    client.wait_for_ready(Q, 6)
    assert client.bodies(Q) == [b"2", b"4", b"1", b"3", b"0", b"5"]


@topic("consumer priority")
def test_a_consumer_of_higher_priority_goes_first(broker: SpecBroker) -> None:
    """As long as it has room; more of it in test_consumer_extensions.py."""
    client = broker.open()
    client.call("queue.declare", queue=Q)
    client.call("basic.qos", prefetch_count=2)
    client.call("basic.consume", queue=Q, consumer_tag="low")
    client.call("basic.consume", queue=Q, consumer_tag="high", arguments={"x-priority": 1})
    for number in range(3):
        client.publish("", Q, str(number).encode())
    assert [method["consumer_tag"] for method in client.deliveries(3)] == ["high", "high", "low"]


@topic("dead-lettering")
def test_dead_letters_come_in_order_of_death(broker: SpecBroker) -> None:
    """Whatever their order in the queue was."""
    client = broker.open()
    client.call("queue.declare", queue="p.dead")
    client.call(
        "queue.declare",
        queue=Q,
        arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "p.dead"},
    )
    for number in range(3):
        client.publish("", Q, str(number).encode())
    client.wait_for_ready(Q, 3)
    for _ in range(3):
        client.take(Q)
    for tag in (2, 3, 1):
        client.send("basic.reject", delivery_tag=tag, requeue=False)
    client.wait_for_ready("p.dead", 3)
    assert client.bodies("p.dead") == [b"1", b"2", b"0"]
