"""A prefetch that the consumers of a channel share (`basic.qos` global): who is served, and who waits.

RabbitMQ asks by chance which queue may go on, so that rows with several queues say what is so whatever the chance.
Source: behaviour page 2.7; probed on 3.10.
"""

from __future__ import annotations

from collections import Counter

import pytest
from rawclient import Client, Method
from spec_broker import SpecBroker

NAMES = ("p.a", "p.b", "p.c")


def filled(broker: SpecBroker, *queues: str, count: int, channels: int = 1) -> Client:
    """Queues with messages of their own: p.a holds a0, a1, ..."""
    client = broker.open(channels=channels)
    for queue in queues:
        client.call("queue.declare", queue=queue)
        for number in range(count):
            client.publish("", queue, f"{queue[-1]}{number}".encode())
        client.wait_for_ready(queue, count)
    return client


def subscribe(client: Client, *queues: str, **values: object) -> list[Method]:
    """One consumer for each queue, by its name. Returns what came with the answers."""
    came: list[Method] = []
    for queue in queues:
        client.send("basic.consume", queue=queue, consumer_tag=queue, **values)
        came += client.collect(queue)
    return deliveries(came)


def deliveries(methods: list[Method]) -> list[Method]:
    return [method for method in methods if method.name == "basic.deliver"]


def told(methods: list[Method]) -> list[str]:
    return [method.body.decode() for method in deliveries(methods)]


def settled(client: Client, tag: int, queue: str = "p.a") -> list[str]:
    """Acknowledge one: what comes then."""
    client.send("basic.ack", delivery_tag=tag)
    return told(client.collect(queue))


@pytest.mark.parametrize("limit", [1, 2, 3, 5])
def test_queues_have_their_turns(limit: int, broker: SpecBroker) -> None:
    """Three queues with a consumer each: of 60 deliveries each has its share; none is passed over for ever."""
    client = filled(broker, *NAMES, count=60)
    client.call("basic.qos", prefetch_count=limit, global_=True)
    out = subscribe(client, *NAMES)
    assert len(out) == limit
    served = Counter(method["consumer_tag"] for method in out)
    while served.total() < 60 + limit:
        client.send("basic.ack", delivery_tag=out.pop(0)["delivery_tag"])
        out += client.deliveries(1)
        served[out[-1]["consumer_tag"]] += 1
    assert min(served[name] for name in NAMES) >= 5
    assert client.collect() == []


def test_queues_have_their_turns_when_all_are_settled_at_once(broker: SpecBroker) -> None:
    """A limit of 6, and each time everything is acknowledged in one go."""
    client = filled(broker, *NAMES, count=60)
    client.call("basic.qos", prefetch_count=6, global_=True)
    out = subscribe(client, *NAMES)
    served: Counter[str] = Counter()
    for _ in range(10):
        assert len(out) == 6
        client.send("basic.ack", delivery_tag=0, multiple=True)
        out = client.deliveries(6)
        served.update(method["consumer_tag"] for method in out)
    assert min(served[name] for name in NAMES) >= 5


def test_a_consumer_without_acknowledgements_waits_as_well(broker: SpecBroker) -> None:
    """It takes no room, and gets nothing while there is none."""
    client = filled(broker, "p.a", "p.b", count=0)
    client.call("basic.qos", prefetch_count=1, global_=True)
    subscribe(client, "p.a")
    subscribe(client, "p.b", no_ack=True)
    for number in range(3):
        client.publish("", "p.b", f"b{number}".encode())
    assert told(client.collect("p.b")) == ["b0", "b1", "b2"]
    client.publish("", "p.a", b"a0")
    held = client.expect("basic.deliver")
    for number in range(3, 6):
        client.publish("", "p.b", f"b{number}".encode())
    client.wait_for_ready("p.b", 3)
    assert client.collect("p.b") == []
    client.send("basic.ack", delivery_tag=held["delivery_tag"])
    assert told(client.deliveries(3)) == ["b3", "b4", "b5"]


@pytest.mark.parametrize("tags", [("acks", "takes"), ("takes", "acks")])
def test_both_kinds_of_consumers_of_one_queue(tags: tuple[str, str], broker: SpecBroker) -> None:
    """They have their turns, and each acknowledgement lets both go on."""
    client = filled(broker, "p.a", count=0)
    client.call("basic.qos", prefetch_count=1, global_=True)
    for tag in tags:
        client.call("basic.consume", queue="p.a", consumer_tag=tag, no_ack=tag == "takes")
    for number in range(6):
        client.publish("", "p.a", f"{number}".encode())
    for number in range(6):
        method = client.expect("basic.deliver")
        assert (method["consumer_tag"], method.body.decode()) == (tags[number % 2], f"{number}")
        if method["consumer_tag"] == "acks":
            assert client.collect("p.a") == []
            client.send("basic.ack", delivery_tag=method["delivery_tag"])


def test_consumers_of_other_channels_go_on(broker: SpecBroker) -> None:
    """Whoever shares the limit waits, on the same queue as well; the others get what there is."""
    client = filled(broker, "p.a", "p.b", count=0, channels=2)
    client.call("basic.qos", prefetch_count=1, global_=True)
    subscribe(client, "p.a")
    client.publish("", "p.a", b"a0")
    client.deliveries(1)
    for queue, no_ack in (("p.b", True), ("p.a", False)):
        client.call("basic.consume", queue=queue, no_ack=no_ack)
        client.call("basic.consume", channel=2, queue=queue)
        for number in range(3):
            client.publish("", queue, f"{number}".encode())
        assert told(client.deliveries(3, channel=2)) == ["0", "1", "2"]
        assert client.collect(queue) == []


def test_what_is_got_takes_no_room(broker: SpecBroker) -> None:
    """basic.get works at the limit, and what it takes gives no room back when it is settled, either way."""
    client = filled(broker, "p.a", "p.b", count=4)
    client.call("basic.qos", prefetch_count=1, global_=True)
    (held,) = subscribe(client, "p.a")
    got, own = client.take("p.b"), client.take("p.a")
    assert (got.body, own.body) == (b"b0", b"a1")
    assert client.collect("p.a") == []
    assert settled(client, got["delivery_tag"]) == []
    client.send("basic.nack", delivery_tag=own["delivery_tag"], requeue=True)
    assert client.collect("p.a") == []
    client.send("basic.ack", delivery_tag=held["delivery_tag"])
    assert told(client.deliveries(1)) == ["a1"]


def test_what_was_delivered_before_counts(broker: SpecBroker) -> None:
    """Four are out, then the limit is 2: three have to be settled before anybody gets one."""
    client = filled(broker, "p.a", "p.b", count=4)
    out = subscribe(client, "p.a")
    assert len(out) == 4
    client.call("basic.qos", prefetch_count=2, global_=True)
    assert subscribe(client, "p.b") == []
    assert settled(client, out[0]["delivery_tag"], "p.b") == settled(client, out[1]["delivery_tag"], "p.b") == []
    for number in range(2):
        client.send("basic.ack", delivery_tag=out[2 + number]["delivery_tag"])
        assert told(client.deliveries(1)) == [f"b{number}"]
    assert client.collect("p.b") == []


def test_a_limit_that_is_raised_lowered_and_lifted(broker: SpecBroker) -> None:
    """More comes at once; less holds everybody up until enough is settled; 0 is no limit."""
    client = filled(broker, "p.a", "p.b", count=6)
    client.call("basic.qos", prefetch_count=1, global_=True)
    assert len(subscribe(client, "p.a", "p.b")) == 1
    client.call("basic.qos", prefetch_count=4, global_=True)
    client.deliveries(3)
    client.call("basic.qos", prefetch_count=2, global_=True)
    assert settled(client, 1) == settled(client, 2) == []
    for tag in (3, 4):
        client.send("basic.ack", delivery_tag=tag)
        client.deliveries(1)
    client.send("basic.qos", prefetch_count=0, global_=True)
    came = [client.read() for _ in range(7)]
    assert Counter(method.name for method in came) == {"basic.deliver": 6, "basic.qos-ok": 1}


def test_limits_of_consumers_hold_beside_it(broker: SpecBroker) -> None:
    """2 each and 3 together: what one may not have goes to the other, and both get all in the end."""
    client = filled(broker, "p.a", "p.b", count=8)
    client.call("basic.qos", prefetch_count=2)
    assert told(subscribe(client, "p.a")) == ["a0", "a1"]
    client.call("basic.qos", prefetch_count=3, global_=True)
    assert told(subscribe(client, "p.b")) == ["b0"]
    out = [("p.a", 1), ("p.a", 2), ("p.b", 3)]
    for last in range(1, 17):
        while out[-1][1] < last:
            out.append(_where(client.read()))
        client.send("basic.ack", delivery_tag=last)
        out += map(_where, deliveries(client.collect("p.b")))
        held = Counter(queue for queue, tag in out if tag > last)
        assert max(held.values(), default=0) <= 2
        assert held.total() <= 3
    assert Counter(queue for queue, _ in out) == {"p.a": 8, "p.b": 8}


def _where(method: Method) -> tuple[str, int]:
    return method["consumer_tag"], method["delivery_tag"]


def test_replies_do_not_wait(broker: SpecBroker) -> None:
    """Direct replies are no queue's: they come also when the limit is reached."""
    client = filled(broker, "p.a", count=2)
    client.call("basic.qos", prefetch_count=1, global_=True)
    subscribe(client, "p.a")
    client.call("basic.consume", queue="amq.rabbitmq.reply-to", consumer_tag="replies", no_ack=True)
    client.call("queue.declare", queue="p.requests")
    client.publish("", "p.requests", b"question", reply_to="amq.rabbitmq.reply-to")
    client.wait_for_ready("p.requests", 1)
    question = client.take("p.requests", no_ack=True)
    assert question.content is not None
    client.publish("", question.content.properties["reply_to"], b"answer")
    assert client.expect("basic.deliver").body == b"answer"
