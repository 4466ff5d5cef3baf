"""Consumer priorities, single active consumer, cancel notifications, acknowledgement time-out: by the wire.

Source: behaviour page 2.9, 2.16 and 3.8.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from rawclient import CAPABILITIES, Client
from spec_broker import SpecBroker, close_of, expect_channel_close, spec_broker

Q = "p.consumers"


def consume(
    client: Client, tag: str, *, priority: Any = None, prefetch: int = 0, channel: int = 1, **more: Any
) -> None:
    """A consumer of Q."""
    client.call("basic.qos", channel=channel, prefetch_count=prefetch)
    arguments = {} if priority is None else {"x-priority": priority}
    client.call("basic.consume", channel=channel, queue=Q, consumer_tag=tag, arguments=arguments, **more)


def publish(client: Client, count: int, *, start: int = 0) -> None:
    """Numbered messages to Q."""
    for number in range(start, start + count):
        client.publish("", Q, str(number).encode())


def got(client: Client, count: int) -> list[tuple[str, bytes]]:
    """Who got which of the next deliveries."""
    return [(method["consumer_tag"], method.body) for method in client.deliveries(count)]


# ------------------------------------------------------------------------------------------------ consumer priorities


def test_the_highest_priority_is_served_first(broker: SpecBroker) -> None:
    """Until it is full, then the next lower one; whoever has room again goes first again."""
    client = broker.open()
    client.call("queue.declare", queue=Q)
    consume(client, "low", priority=-1, prefetch=1)
    consume(client, "none", prefetch=1)
    consume(client, "high", priority=10, prefetch=2)
    publish(client, 5)
    assert got(client, 4) == [("high", b"0"), ("high", b"1"), ("none", b"2"), ("low", b"3")]
    assert client.collect(Q) == []
    client.send("basic.ack", delivery_tag=1)
    assert got(client, 1) == [("high", b"4")]


def test_equal_priorities_take_turns(broker: SpecBroker) -> None:
    """Round robin within a level, in order of consume; nothing for those below while there is room."""
    client = broker.open()
    client.call("queue.declare", queue=Q)
    consume(client, "below")
    for tag in ("a", "b", "c"):
        consume(client, tag, priority=1)
    publish(client, 6)
    assert [tag for tag, _ in got(client, 6)] == ["a", "b", "c", "a", "b", "c"]


def test_a_backlog_goes_to_the_highest_priority(broker: SpecBroker) -> None:
    """As much as it has room for; what is behind that to the other, which gets the rest when the first is gone."""
    client = broker.open(channels=2)
    client.call("queue.declare", queue=Q)
    consume(client, "low", prefetch=2)
    consume(client, "high", priority=5, prefetch=3, channel=2)
    publish(client, 7)
    seen = [client.read() for _ in range(5)]
    bodies = {tag: [one.body for one in seen if one["consumer_tag"] == tag] for tag in ("high", "low")}
    assert bodies == {"high": [b"0", b"1", b"2"], "low": [b"3", b"4"]}  # two channels: no order between them
    client.call("basic.cancel", channel=2, consumer_tag="high")
    client.send("basic.ack", delivery_tag=0, multiple=True)
    assert [body for _, body in got(client, 2)] == [b"5", b"6"]


@pytest.mark.parametrize("tag", ["b", "B", "s", "u", "I", "i", "l"])
def test_priorities_of_any_width(tag: str, broker: SpecBroker) -> None:
    """Any integer, zero and negatives included."""
    client = broker.open()
    client.call("queue.declare", queue=Q)
    consume(client, "zero", priority=(tag, 0))
    consume(client, "high", priority=(tag, 3))
    if tag in "bsIl":
        consume(client, "low", priority=(tag, -3))
    publish(client, 2)
    assert [tag for tag, _ in got(client, 2)] == ["high", "high"]


@pytest.mark.parametrize(("value", "word"), [("a", "longstr"), (1.5, "double"), (True, "bool"), (None, "void")])
def test_priorities_that_are_no_integers(value: Any, word: str, broker: SpecBroker) -> None:
    """Refused."""
    client = broker.open()
    client.call("queue.declare", queue=Q)
    client.send("basic.consume", queue=Q, arguments={"x-priority": value})
    text = f"PRECONDITION_FAILED - invalid arg 'x-priority' for queue '{Q}' in vhost '/': "
    expect_channel_close(client, 406, f'{text}"expected integer, got {word}"', (60, 20))


def test_a_requeued_message_goes_by_priority(broker: SpecBroker) -> None:
    """Also back to who gave it away, when that one has the highest priority."""
    client = broker.open()
    client.call("queue.declare", queue=Q)
    consume(client, "low")
    consume(client, "high", priority=1)
    publish(client, 1)
    assert got(client, 1) == [("high", b"0")]
    client.send("basic.nack", delivery_tag=1, requeue=True)
    assert got(client, 1) == [("high", b"0")]


def test_each_priority_has_its_turns(broker: SpecBroker) -> None:
    """What a higher one gets does not use up the turn of a lower one, wherever it joined."""
    client = broker.open()
    client.call("queue.declare", queue=Q)
    for tag, priority in (("a", 0), ("high", 1), ("b", 0)):
        consume(client, tag, priority=priority, prefetch=1)
    publish(client, 3)
    assert got(client, 3) == [("high", b"0"), ("a", b"1"), ("b", b"2")]
    client.send("basic.ack", delivery_tag=3)
    client.send("basic.ack", delivery_tag=2)
    client.call("queue.declare", queue=Q, passive=True)
    publish(client, 2, start=3)
    assert got(client, 2) == [("a", b"3"), ("b", b"4")]


# ---------------------------------------------------------------------------------------------- single active consumer

SAC = {"x-single-active-consumer": True}


def test_one_consumer_at_a_time(broker: SpecBroker) -> None:
    """The first to come gets everything; when it goes, the next in line, and what it held first."""
    client, second, third = (broker.open() for _ in range(3))
    client.call("queue.declare", queue=Q, arguments=SAC)
    for one, tag in ((client, "a"), (second, "b"), (third, "c")):
        one.call("basic.consume", queue=Q, consumer_tag=tag)
    publish(client, 3)
    assert got(client, 3) == [("a", b"0"), ("a", b"1"), ("a", b"2")]
    client.send("basic.ack", delivery_tag=1)
    client.call("channel.close")
    client.call("channel.open")
    publish(client, 1, start=3)
    again = second.deliveries(3)
    assert [(method.body, method["redelivered"]) for method in again] == [(b"1", True), (b"2", True), (b"3", False)]
    assert client.count(Q) == (0, 2)
    second.call("basic.cancel", consumer_tag="b")
    publish(client, 1, start=4)
    assert got(third, 1) == [("c", b"4")]


def test_a_full_active_consumer_stays_active(broker: SpecBroker) -> None:
    """Nobody steps in while it has no room."""
    client = broker.open()
    client.call("queue.declare", queue=Q, arguments=SAC)
    consume(client, "a", prefetch=1)
    consume(client, "b", prefetch=1)
    publish(client, 3)
    assert got(client, 1) == [("a", b"0")]
    assert client.collect(Q) == []
    client.send("basic.ack", delivery_tag=1)
    assert got(client, 1) == [("a", b"1")]


def test_exclusive_consumers_are_refused(broker: SpecBroker) -> None:
    """On a queue with a single active consumer nobody is exclusive."""
    client = broker.open()
    client.call("queue.declare", queue=Q, arguments=SAC)
    client.send("basic.consume", queue=Q, exclusive=True)
    text = f"ACCESS_REFUSED - queue '{Q}' in vhost '/' in exclusive use"
    expect_channel_close(client, 403, text, (60, 20))


def test_the_next_active_consumer_is_the_one_of_the_highest_priority(broker: SpecBroker) -> None:
    """A priority takes nothing from who is active; among those that wait it decides, then the order of coming."""
    client = broker.open()
    client.call("queue.declare", queue=Q, arguments=SAC)
    consume(client, "first")
    consume(client, "low")
    consume(client, "high", priority=5)
    consume(client, "high too", priority=5)
    publish(client, 1)
    assert got(client, 1) == [("first", b"0")]
    for leaving, following in (("first", "high"), ("high", "high too"), ("high too", "low")):
        client.call("basic.cancel", consumer_tag=leaving)
        publish(client, 1)
        assert got(client, 1) == [(following, b"0")]


def test_get_beside_a_single_active_consumer(broker: SpecBroker) -> None:
    """A classic queue allows it; on a quorum queue it is refused (case quorum-sac-get)."""
    client = broker.open()
    client.call("queue.declare", queue=Q, arguments=SAC)
    consume(client, "a", prefetch=1)
    publish(client, 2)
    assert got(client, 1) == [("a", b"0")]
    assert client.take(Q).body == b"1"


# ------------------------------------------------------------------------------------------------ cancel notifications


@pytest.mark.parametrize("wanted", [True, False])
def test_cancel_notification(wanted: bool, broker: SpecBroker) -> None:
    """A consumer whose queue is gone is told, if its client said that it wants to know; the channel goes on."""
    capabilities = {**CAPABILITIES, "consumer_cancel_notify": wanted}
    client, other = broker.open(capabilities=capabilities), broker.open()
    other.call("queue.declare", queue=Q)
    client.call("basic.consume", queue=Q, consumer_tag="t")
    other.call("queue.delete", queue=Q)
    if wanted:
        cancelled = client.expect("basic.cancel")
        assert cancelled.arguments == {"consumer_tag": "t", "nowait": True}
    assert client.collect() == []
    client.call("queue.declare", queue=Q)
    client.call("basic.consume", queue=Q, consumer_tag="t")  # the tag is free again


def test_what_a_cancelled_consumer_held(broker: SpecBroker) -> None:
    """Tags of a queue that is gone can still be settled, without effect."""
    client, other = broker.open(), broker.open()
    client.call("queue.declare", queue=Q)
    publish(client, 2)
    client.call("basic.consume", queue=Q)
    client.deliveries(2)
    other.call("queue.delete", queue=Q)
    client.expect("basic.cancel")
    client.send("basic.ack", delivery_tag=1)
    client.send("basic.nack", delivery_tag=2, requeue=True)
    assert client.collect() == []


# --------------------------------------------------------------------------------------------- acknowledgement time-out

TIMEOUT = (
    "PRECONDITION_FAILED - delivery acknowledgement on channel 1 timed out. Timeout value used: 1000 ms. "
    "This timeout value can be configured, see consumers doc guide to learn more"
)


@pytest.mark.parametrize("by", ["consume", "get"])
def test_acknowledgement_timeout(by: str, tmp_path: Path) -> None:
    """A delivery that is not acknowledged in time ends the channel, and goes back to its queue."""
    rabbitmq = "[{rabbit, [{consumer_timeout, 1000}, {channel_tick_interval, 1000}]}]."
    with spec_broker(tmp_path, "consumer-timeout = 1000\n", rabbitmq=rabbitmq) as broker:
        client = broker.open(channels=2)
        client.call("queue.declare", queue=Q)
        publish(client, 1)
        client.wait_for_ready(Q, 1)
        if by == "consume":
            client.call("basic.consume", queue=Q)
            client.expect("basic.deliver")
        else:
            client.take(Q)
        closed = client.expect("channel.close")
        assert close_of(closed) == (406, TIMEOUT, 0, 0)
        client.send("channel.close-ok")
        client.wait_for_ready(Q, 1, channel=2)
        assert client.take(Q, channel=2, no_ack=True)["redelivered"]
        broker.clean_up()
