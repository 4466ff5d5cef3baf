"""An alarm by hand: who publishes is blocked and told so, who consumes goes on, and nothing is lost or out of order.

Real sockets and clients. Source: behaviour page 1.9; ruling 15.
"""

import gc
import threading
from collections.abc import Callable
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from rawclient import Client
from socket_broker import SocketBroker
from traps import trap

from leveret.amqp_frontend.flow.notices import CALM_MS
from leveret.amqp_frontend.flow.parking import PARKED_MAX, Parking
from leveret.cli.control_client import request
from leveret.operator.command_error import CommandError
from leveret.settings import Flow

#: Octets that a connection may hold.
HOLD_SIZE = Flow().hold_size

Ctl = Callable[..., Any]


@pytest.fixture
def ctl(broker: SocketBroker) -> Ctl:
    """A command of the table."""
    return lambda command, **arguments: broker.do(lambda: broker.control.run(command, arguments))


def raw(broker: SocketBroker, **options: Any) -> Client:
    """A bare client with channel 1 open."""
    return Client.open("127.0.0.1", int(broker.url.rpartition(":")[2].partition("/")[0]), **options)


def states(ctl: Ctl) -> list[str]:
    """Of all connections."""
    return [row["state"] for row in ctl("connections")]


def wait_for(ctl: Ctl, *expected: str) -> None:
    """Until the connections are in these states."""
    while states(ctl) != list(expected):
        pass


def declared(client: Client, queue: str = "q") -> None:
    """A queue."""
    client.call("queue.declare", queue=queue)


def hears_the_end(broker: SocketBroker, client: Client) -> None:
    """When nothing has been held for a while."""
    broker.advance_ms(CALM_MS)
    client.expect("connection.unblocked", channel=0)


def test_who_publishes_is_told_and_waits(broker: SocketBroker, ctl: Ctl) -> None:
    """connection.blocked with the reason at the first publish; then connection.unblocked, and all is there in order."""
    client, other = raw(broker), raw(broker)
    declared(client)
    ctl("block")
    assert ctl("status")["alarm"] == "low on memory"
    assert states(ctl) == ["blocking", "blocking"]
    for number in range(3):
        client.publish("", "q", b"%d" % number)
    assert client.expect("connection.blocked", channel=0)["reason"] == "low on memory"
    wait_for(ctl, "blocked", "blocking")
    assert other.count("q") == (0, 0)
    assert ctl("unblock") == {"alarm": None, "were_blocked": 1}
    hears_the_end(broker, client)
    assert client.bodies("q") == [b"0", b"1", b"2"]
    assert states(ctl) == ["running", "running"]
    for one in (client, other):
        one.close()


def test_acknowledgements_pass_and_deliveries_go_on(broker: SocketBroker, ctl: Ctl) -> None:
    """On the very channel whose publish waits; what asks for an answer there waits, on other channels it does not."""
    client, other = raw(broker), raw(broker)
    client.call("channel.open", channel=2)
    for queue in ("q", "out"):
        declared(client, queue)
    for body in (b"1", b"2", b"3"):
        other.publish("", "q", body)
    other.wait_for_ready("q", 3)
    client.send("basic.qos", prefetch_count=1)
    client.expect("basic.qos-ok")
    client.call("basic.consume", queue="q", consumer_tag="c")
    ctl("block", reason="tea break")
    client.publish("", "out", b"answer")
    tag = client.expect("basic.deliver")["delivery_tag"]
    assert client.expect("connection.blocked", channel=0)["reason"] == "tea break"
    for _ in range(2):
        client.send("basic.ack", delivery_tag=tag)
        tag = client.expect("basic.deliver")["delivery_tag"]
    client.send("queue.declare", queue="out", passive=True)
    client.call("queue.declare", channel=2, queue="late")
    client.send("basic.ack", delivery_tag=tag)
    while any(row["unacked"] for row in ctl("channels")):
        pass
    assert other.count("out") == (0, 0)
    ctl("unblock")
    assert client.expect("queue.declare-ok")["message_count"] == 1
    hears_the_end(broker, client)
    for one in (client, other):
        one.close()


def test_a_transaction_waits_with_its_commit(broker: SocketBroker, ctl: Ctl) -> None:
    """As one (queues page E.4, row 13); one that only acknowledges does not wait, nor does a rollback."""
    client, other = raw(broker), raw(broker)
    declared(client)
    other.publish("", "q", b"old")
    other.wait_for_ready("q", 1)
    tag = client.take("q")["delivery_tag"]
    client.call("tx.select")
    ctl("block")
    client.publish("", "q", b"rolled back")
    client.send("basic.ack", delivery_tag=tag)
    client.call("tx.rollback")
    client.send("basic.nack", delivery_tag=tag, requeue=True)
    client.call("tx.commit")
    client.publish("", "q", b"new")
    client.send("tx.commit")
    client.publish("", "q", b"behind it")
    client.send("tx.rollback")
    client.expect("connection.blocked", channel=0)
    assert other.bodies("q") == [b"old"]
    ctl("unblock")
    client.expect("tx.commit-ok")
    client.expect("tx.rollback-ok")
    hears_the_end(broker, client)
    assert other.bodies("q") == [b"new"]
    for one in (client, other):
        one.close()


def test_who_does_not_want_to_know_is_not_told(broker: SocketBroker, ctl: Ctl) -> None:
    """Without the capability it waits all the same."""
    client = raw(broker, capabilities={})
    declared(client)
    ctl("block")
    client.publish("", "q", b"x")
    wait_for(ctl, "blocked")
    ctl("unblock")
    assert client.count("q") == (1, 0)
    client.close()


@trap(75)
def test_a_new_connection_is_blocked_when_it_publishes(broker: SocketBroker, ctl: Ctl) -> None:
    """Until then it may do what it likes; also a publish to nowhere waits for its refusal."""
    ctl("block")
    client = raw(broker)
    declared(client)
    client.publish("none", "q", b"x")
    client.expect("connection.blocked", channel=0)
    client.publish("", "q", b"of a channel that will be closed")
    ctl("unblock")
    closed = client.expect("channel.close")
    hears_the_end(broker, client)
    assert (closed["reply_code"], closed["class_id"], closed["method_id"]) == (404, 60, 40)
    client.send("channel.close-ok")
    client.call("channel.open")
    assert client.count("q") == (0, 0)
    client.close()


@pytest.mark.parametrize("size", [10, 10_000])
def test_a_flood_is_not_read_and_not_lost(broker: SocketBroker, ctl: Ctl, size: int) -> None:
    """What is held is bounded; all of it comes afterwards, once, in order, with its confirms."""
    client, other = raw(broker), raw(broker)
    declared(client)
    client.call("confirm.select")
    ctl("block")
    count = 2000

    def publish() -> None:
        for number in range(count):  # not two alike in a row: each is an event of its own
            client.publish("", "q", b"%d" % number + bytes(size), mandatory=number % 2 == 0)

    flood = threading.Thread(target=publish)
    flood.start()
    wait_for(ctl, "blocked", "blocking")
    area = broker.do(only_parking)
    while not broker.do(lambda: area.is_full):
        pass
    held, octets = broker.do(lambda: (area.contents.count, area.contents.octets))
    assert held <= PARKED_MAX + 1 and octets <= HOLD_SIZE + 2 * size
    client.expect("connection.blocked", channel=0)
    ctl("unblock")
    flood.join()
    confirmed = 0
    while confirmed < count:
        method = client.expect("basic.ack")
        confirmed = method["delivery_tag"] if method["multiple"] else confirmed + 1
    hears_the_end(broker, client)
    other.wait_for_ready("q", count)
    assert [body.rstrip(b"\0") for body in other.bodies("q")] == [b"%d" % number for number in range(count)]
    for one in (client, other):
        one.close()


def only_parking() -> Parking:
    """The frontend's, of the connection that is blocked."""
    return next(one for one in gc.get_objects() if isinstance(one, Parking) and one.channels)


def test_who_hangs_up_meanwhile_has_published(broker: SocketBroker, ctl: Ctl) -> None:
    """What was sent before the end is done once it may be, as in RabbitMQ, which reads no further till then."""
    client, other = raw(broker), raw(broker)
    declared(client)
    ctl("block")
    client.publish("", "q", b"last words")
    client.expect("connection.blocked", channel=0)
    client.abort()
    assert other.count("q") == (0, 0)
    ctl("unblock")
    broker.wait_for_clients(1)
    assert other.bodies("q") == [b"last words"]
    other.close()


def test_pika_closes_when_its_publishes_are_done(broker: SocketBroker, ctl: Ctl) -> None:
    """Without confirms, publish and close is all that a script does: nothing of it is lost."""
    other = raw(broker)
    declared(other)
    ctl("block")

    def script() -> None:
        connection = pika.BlockingConnection(pika.URLParameters(broker.url))
        channel = connection.channel()
        for number in range(3):
            channel.basic_publish("", "q", b"%d" % number)
        connection.close()

    thread = threading.Thread(target=script)
    thread.start()
    wait_for(ctl, "blocking", "blocked")
    assert other.count("q") == (0, 0)
    ctl("unblock")
    thread.join(60)
    assert not thread.is_alive()
    assert other.bodies("q") == [b"0", b"1", b"2"]
    other.close()


def test_who_is_sent_away_meanwhile_hears_so(broker: SocketBroker, ctl: Ctl) -> None:
    """An operator's close passes; what was held is gone with it."""
    client, other = raw(broker), raw(broker)
    declared(client)
    ctl("block")
    client.publish("", "q", b"x")
    client.expect("connection.blocked", channel=0)
    ctl("close-connection", name=ctl("connections")[0]["name"], reason="enough")
    closed = client.expect("connection.close", channel=0)
    assert closed["reply_text"] == "CONNECTION_FORCED - enough"
    client.send("connection.close-ok", channel=0)
    client.abort()
    broker.wait_for_clients(1)
    ctl("unblock")
    assert other.count("q") == (0, 0)
    other.close()


def test_pika_hears_of_both(broker: SocketBroker, ctl: Ctl) -> None:
    """Through its callbacks; a reason is a short string."""
    told: list[str] = []
    connection = pika.BlockingConnection(pika.URLParameters(broker.url))
    connection.add_on_connection_blocked_callback(lambda _, frame: told.append(frame.method.reason))
    connection.add_on_connection_unblocked_callback(lambda _, frame: told.append("unblocked"))
    channel: BlockingChannel = connection.channel()
    channel.queue_declare("q")
    with pytest.raises(CommandError, match="block: expected reason=NAME"):
        ctl("block", reason="x" * 256)
    ctl("block", reason="low on tea")
    channel.basic_publish("", "q", b"x")
    while not told:
        connection.process_data_events(0.01)
    ctl("unblock")
    assert channel.queue_declare("q", passive=True).method.message_count == 1
    broker.advance_ms(CALM_MS)
    while len(told) < 2:
        connection.process_data_events(0.01)
    assert told == ["low on tea", "unblocked"]
    connection.close()


def test_the_operator_is_never_blocked() -> None:
    """Requests to the control exchange are publishes, too."""
    from leveret.testing import start_broker

    with start_broker() as running:
        for command in ("block", "block", "unblock", "block"):
            request(running.url, command, {})
        assert request(running.url, "status", {})["alarm"] == "low on memory"
