"""Streams over AMQP 0-9-1: behaviour page 3.7, by the wire."""

from __future__ import annotations

import time
from typing import Any

import pytest
from rawclient import Client, Method
from spec_broker import SpecBroker, expect_channel_close, expect_connection_close

Q = "p.stream"
NAMED = f"queue '{Q}' in vhost '/'"


def declare(client: Client, **arguments: Any) -> None:
    """The stream; underscores of the arguments' names stand for dashes."""
    named = {key.replace("_", "-"): value for key, value in arguments.items()}
    client.call("queue.declare", queue=Q, durable=True, arguments={"x-queue-type": "stream", **named})


def publish(client: Client, count: int, *, start: int = 0, channel: int = 9, size: int = 0) -> None:
    """Numbered messages, each confirmed before the next, so that each is a chunk of its own."""
    client.call("channel.open", channel=channel)
    client.call("confirm.select", channel=channel)
    for number in range(start, start + count):
        client.publish("", Q, str(number).encode().ljust(size), channel=channel)
        client.expect("basic.ack", channel=channel)
    client.call("channel.close", channel=channel)


def consume(client: Client, offset: Any = None, *, prefetch: int = 100, tag: str = "t", **more: Any) -> None:
    """A consumer that begins at an offset; None: says nothing."""
    client.call("basic.qos", prefetch_count=prefetch)
    arguments = {} if offset is None else {"x-stream-offset": offset}
    client.call("basic.consume", queue=Q, consumer_tag=tag, arguments=arguments, **more)


def numbers(methods: list[Method]) -> list[int]:
    """The numbers in the bodies."""
    return [int(method.body) for method in methods]


OFFSETS: dict[str, tuple[Any, int]] = {
    # name: (x-stream-offset, number of the first message that comes, of 0 to 4 and 5, which comes later)
    "nothing": (None, 5),
    "first": ("first", 0),
    "first-as-octets": (("x", b"first"), 0),
    "last": ("last", 4),
    "next": ("next", 5),
    "offset-0": (0, 0),
    "offset-3": (("l", 3), 3),
    "offset-of-the-next": (5, 5),
    "offset-negative": (-1, 0),
    "interval-long-ago": ("1h", 0),
    "interval-in-years": ("2Y", 0),
    "timestamp-long-ago": (("T", 1_000_000_000), 0),
    "timestamp-to-come": (("T", 4_000_000_000), 5),
}


@pytest.mark.parametrize(("offset", "first"), OFFSETS.values(), ids=list(OFFSETS))
def test_where_a_consumer_begins(offset: Any, first: int, broker: SpecBroker) -> None:
    """x-stream-offset: first, last, next (also when it is not there), an offset, a time stamp, an interval ago."""
    client = broker.open()
    declare(client)
    publish(client, 5)
    consume(client, offset)
    there = client.deliveries(5 - first)
    assert client.collect() == []
    client.publish("", Q, b"5")
    assert numbers([*there, *client.deliveries(1)]) == list(range(first, 6))


@pytest.mark.parametrize("offset", ["foo", "5", "5x", "", "-5m", "5m ", "0s", "00D"])
def test_offsets_that_make_no_sense(offset: str, broker: SpecBroker) -> None:
    """406; 3.10 crashes over some of them with 541."""
    client = broker.open()
    declare(client)
    client.call("basic.qos", prefetch_count=1)
    client.send("basic.consume", queue=Q, arguments={"x-stream-offset": offset})
    if broker.is_rabbitmq and not offset.startswith(("5", "0")):
        expect_connection_close(client, 541, "INTERNAL_ERROR", (0, 0))
        return
    reason = f'{{invalid_stream_offset_arg,{{longstr,<<"{offset}">>}}}}'
    text = f"PRECONDITION_FAILED - invalid arg 'x-stream-offset' for {NAMED}: {reason}"
    expect_channel_close(client, 406, text, (60, 20))


def test_what_streams_of_rabbitmq_lose(broker: SpecBroker) -> None:
    """It keeps messages as those of AMQP 1.0: without cluster-id, and without headers that are arrays or tables."""
    client = broker.open()
    declare(client)
    client.publish("", Q, b"kept", cluster_id="c", headers={"CC": ["nowhere"], "t": {"n": 1}})
    consume(client, "first")
    (delivered,) = client.deliveries(1)
    assert delivered.content is not None
    kept = set() if broker.is_rabbitmq else {"CC", "t"}
    assert delivered.content.properties.get("cluster_id") == (None if broker.is_rabbitmq else "c")
    assert set(delivered.content.headers) == {"x-stream-offset", *kept}


def test_dead_letters_go_into_streams(broker: SpecBroker) -> None:
    """In 3.10 they never come."""
    if broker.is_rabbitmq:
        pytest.skip("it never comes")
    client = broker.open()
    declare(client)
    client.call(
        "queue.declare", queue="p.dying", arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": Q}
    )
    client.publish("", "p.dying", b"0")
    client.send("basic.reject", delivery_tag=client.take("p.dying")["delivery_tag"], requeue=False)
    consume(client, "first")
    assert numbers(client.deliveries(1)) == [0]


def test_deliveries_say_their_offset(broker: SpecBroker) -> None:
    """A header x-stream-offset (long) beside the message's own; never redelivered."""
    client = broker.open()
    declare(client)
    client.publish("", Q, b"a", headers={"h": "1"}, message_id="i")
    client.publish("", Q, b"b")
    client.wait_for_ready(Q, 2)
    consume(client, "first")
    for number, (method, own) in enumerate(zip(client.deliveries(2), ({"h": ("S", b"1")}, {}), strict=True)):
        assert method.content is not None
        headers = method.content.headers
        assert headers == {"x-stream-offset": ("l", number), **own}
        assert not method["redelivered"] and method["routing_key"] == Q


def test_everybody_reads_everything(broker: SpecBroker) -> None:
    """Consumers do not take messages from each other; acknowledged ones stay for those to come."""
    client = broker.open()
    declare(client)
    publish(client, 3)
    for tag in ("a", "b"):
        consume(client, "first", tag=tag)
        got = client.deliveries(3)
        assert (numbers(got), {method["consumer_tag"] for method in got}) == ([0, 1, 2], {tag})
        client.send("basic.ack", delivery_tag=got[-1]["delivery_tag"], multiple=True)
    client.wait_for_ready(Q, 3)


def test_acknowledging_gives_room_and_nothing_else(broker: SpecBroker) -> None:
    """The next ones come, and none comes again."""
    client = broker.open()
    declare(client)
    publish(client, 4)
    consume(client, "first", prefetch=2)
    first = client.deliveries(2)
    assert client.collect() == []
    client.send("basic.ack", delivery_tag=first[1]["delivery_tag"], multiple=True)
    second = client.deliveries(2)
    assert numbers([*first, *second]) == [0, 1, 2, 3]
    assert not any(method["redelivered"] for method in second)


@pytest.mark.parametrize("requeue", [True, False])
@pytest.mark.parametrize("method", ["nack", "reject"])
def test_rejecting_is_not_supported(method: str, requeue: bool, broker: SpecBroker) -> None:
    """Nothing can be put back or thrown away."""
    client = broker.open()
    declare(client)
    publish(client, 1)
    consume(client, "first")
    client.expect("basic.deliver")
    client.send(f"basic.{method}", delivery_tag=1, requeue=requeue)
    text = f"NOT_IMPLEMENTED - basic.nack and basic.reject not supported by stream queues {NAMED}"
    expect_connection_close(client, 540, text, (60, 120 if method == "nack" else 90))


@pytest.mark.parametrize("octets", [3_000_000_000, 3_000_000_001])
def test_the_size_of_segments_has_a_maximum(octets: int, broker: SpecBroker) -> None:
    """The whole text is RabbitMQ's own for this argument (behaviour page 3.1)."""
    client = broker.open()
    arguments = {"x-queue-type": ("S", "stream"), "x-stream-max-segment-size-bytes": ("l", octets)}
    client.send("queue.declare", queue="p.segments", durable=True, arguments=arguments)
    reply = client.read()
    if octets > 3_000_000_000:
        text = "PRECONDITION_FAILED - Exceeded max value for x-stream-max-segment-size-bytes"
        assert (reply["reply_code"], reply["reply_text"]) == (406, text)
    else:
        assert reply.name == "queue.declare-ok"


def test_recover_brings_nothing_back(broker: SpecBroker) -> None:
    """What is out counts as settled; RabbitMQ 3.10 crashes over it."""
    if broker.is_rabbitmq:
        pytest.skip("541 in RabbitMQ 3.10: a bug of theirs")
    client = broker.open()
    declare(client)
    publish(client, 4)
    consume(client, "first", prefetch=2)
    client.deliveries(2)
    client.call("basic.recover", requeue=True)
    assert numbers(client.deliveries(2)) == [2, 3]


def test_a_consumer_that_comes_back(broker: SpecBroker) -> None:
    """It says where it was; what it had and did not acknowledge is nobody's business."""
    client = broker.open()
    declare(client)
    publish(client, 4)
    other = broker.open()
    consume(other, "first", prefetch=2)
    assert numbers(other.deliveries(2)) == [0, 1]
    other.abort()
    consume(client, 2)
    assert numbers(client.deliveries(2)) == [2, 3]


def test_an_offset_to_come(broker: SpecBroker) -> None:
    """An offset beyond the end is waited for."""
    client = broker.open()
    declare(client)
    publish(client, 2)
    consume(client, 4)
    for number in range(2, 6):
        client.publish("", Q, str(number).encode())
    assert numbers(client.deliveries(2)) == [4, 5]


def test_a_time_stamp_between(broker: SpecBroker) -> None:
    """What came in that second or later."""
    client = broker.open()
    declare(client)
    publish(client, 2)
    client.count(Q)  # they are there, and have their times
    second = int(time.time()) + 1
    while time.time() < second:
        client.count(Q)
    publish(client, 2, start=2)
    consume(client, ("T", second))
    assert numbers(client.deliveries(2)) == [2, 3]


REFUSED: dict[str, tuple[str, dict[str, Any], dict[str, Any] | None, int, str, tuple[int, int]]] = {
    "get": (
        "basic.get",
        {},
        None,
        540,
        f"NOT_IMPLEMENTED - basic.get not supported by stream queues {NAMED}",
        (60, 70),
    ),
    "purge": (
        "queue.purge",
        {},
        None,
        540,
        f"NOT_IMPLEMENTED - queue.purge not supported by stream queues {NAMED}",
        (50, 30),
    ),
    "consume-no-ack": (
        "basic.consume",
        {"no_ack": True},
        {"prefetch_count": 1},
        540,
        f"NOT_IMPLEMENTED - automatic acknowledgement not supported by stream queues {NAMED}",
        (60, 20),
    ),
    "consume-no-ack-without-prefetch": (
        "basic.consume",
        {"no_ack": True},
        None,
        406,
        f"PRECONDITION_FAILED - consumer prefetch count is not set for '{NAMED}'",
        (60, 20),
    ),
    "consume-without-prefetch": (
        "basic.consume",
        {},
        None,
        406,
        f"PRECONDITION_FAILED - consumer prefetch count is not set for '{NAMED}'",
        (60, 20),
    ),
    "consume-with-global-prefetch": (
        "basic.consume",
        {},
        {"prefetch_count": 1, "global_": True},
        406,
        f"PRECONDITION_FAILED - consumer prefetch count is not set for '{NAMED}'",
        (60, 20),
    ),
}


@pytest.mark.parametrize(("method", "values", "qos", "code", "text", "ids"), REFUSED.values(), ids=list(REFUSED))
def test_refused(
    method: str,
    values: dict[str, Any],
    qos: dict[str, Any] | None,
    code: int,
    text: str,
    ids: tuple[int, int],
    broker: SpecBroker,
) -> None:
    """What streams do not do."""
    client = broker.open()
    declare(client)
    if qos is not None:
        client.call("basic.qos", **qos)
    client.send(method, queue=Q, **values)
    if code == 540:
        expect_connection_close(client, code, text, ids)
    else:
        expect_channel_close(client, code, text, ids)


def test_exclusive_consumers_do_not_exclude(broker: SpecBroker) -> None:
    """The flag is accepted and means nothing."""
    client = broker.open()
    declare(client)
    publish(client, 1)
    for tag in ("a", "b"):
        consume(client, "first", tag=tag, exclusive=True)
        assert client.expect("basic.deliver")["consumer_tag"] == tag


def test_expiration_is_ignored(broker: SpecBroker) -> None:
    """Messages stay however short their time to live."""
    client = broker.open()
    declare(client)
    client.publish("", Q, b"0", expiration="0")
    client.publish("", Q, b"1", expiration="1")
    client.wait_for_ready(Q, 2)
    consume(client, "first")
    assert numbers(client.deliveries(2)) == [0, 1]


def test_old_segments_go(broker: SpecBroker) -> None:
    """x-max-length-bytes drops whole segments from the head; what is left is whole, and offsets stay what they were."""
    client = broker.open()
    declare(client, x_max_length_bytes=20_000, x_stream_max_segment_size_bytes=5_000)
    publish(client, 60, size=1000)
    while client.count(Q)[0] > 40:  # RabbitMQ drops in the background; the test's own time-out ends it
        pass
    consume(client, "first")
    first = client.expect("basic.deliver")
    assert first.content is not None
    number = int(first.body)
    tag, offset = first.content.headers["x-stream-offset"]
    assert number > 0 and tag == "l"
    assert offset >= number if broker.is_rabbitmq else offset == number  # RabbitMQ's segments begin with one of its own
    rest = client.deliveries(59 - number)
    assert numbers(rest) == list(range(number + 1, 60))
    assert client.collect() == []


def test_a_queue_delete_tells_consumers(broker: SpecBroker) -> None:
    """As for other queues."""
    client, other = broker.open(), broker.open()
    declare(other)
    consume(client)
    other.call("queue.delete", queue=Q)
    assert client.expect("basic.cancel")["consumer_tag"] == "t"
