"""What clients' recovery tests need of an operator: who is connected, what they hold, and sending them away.

Real sockets and clients; time is virtual where it matters.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aio_pika
import pika
import pytest
from broker_process import leveret_serve
from configured_broker import make, reload
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ConnectionClosedByBroker
from socket_broker import SocketBroker

from leveret.cli.control_client import request
from leveret.operator.command_error import CommandError
from leveret.settings import load_configuration
from leveret.testing import start_broker

Ctl = Callable[..., Any]


@pytest.fixture
def ctl(broker: SocketBroker) -> Ctl:
    """A command of the table; arguments have underscores for dashes."""

    def run(command: str, **arguments: Any) -> Any:
        said = {key.replace("_", "-"): value for key, value in arguments.items()}
        return broker.do(lambda: broker.control.run(command, said))

    return run


def connect(broker: SocketBroker, name: str = "worker") -> pika.BlockingConnection:
    """A client that gives its connection a name."""
    parameters = pika.URLParameters(broker.url)
    parameters.client_properties = {"connection_name": name}
    return pika.BlockingConnection(parameters)


def only(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The one that is expected."""
    (row,) = rows
    return row


def declared(broker: SocketBroker, queue: str, *bodies: bytes) -> BlockingChannel:
    """A channel, with a queue that has some messages."""
    channel = connect(broker).channel()
    channel.queue_declare(queue)
    for body in bodies:
        channel.basic_publish("", queue, body)
    channel.queue_declare(queue, passive=True)
    return channel


def test_connections_tell_who_is_there(broker: SocketBroker, ctl: Ctl) -> None:
    """Name, peer, user, virtual host, what the client says of itself, state, channels, since when."""
    assert ctl("connections") == []
    broker.advance_ms(5000)
    connection = connect(broker)
    connection.channel()
    connection.channel()
    row = only(ctl("connections"))
    port = broker.url.rpartition(":")[2].partition("/")[0]
    peer, _, local = row["name"].partition(" -> ")
    assert (row["peer"], local) == (peer, f"127.0.0.1:{port}")
    assert (row["user"], row["vhost"], row["state"], row["channels"]) == ("guest", "/", "running", 2)
    assert row["connection_name"] == "worker"
    assert row["product"] == "Pika Python Client Library"
    assert row["since_ms"] == broker.do(broker.clock.wall_ms)
    assert ctl("connections", vhost="/", user="guest") == [row]
    assert ctl("connections", user="nobody") == []
    with pytest.raises(CommandError, match="no virtual host 'none'"):
        ctl("connections", vhost="none")
    connection.close()
    broker.wait_for_clients(0)
    assert ctl("connections") == []


def test_channels_tell_their_mode_and_what_they_hold(broker: SocketBroker, ctl: Ctl) -> None:
    """By the number that the client uses; since when the oldest delivery is out, at the latest."""
    channel = declared(broker, "q", b"1", b"2", b"3")
    connection = channel.connection
    other = connection.channel(7)
    other.confirm_delivery()
    other.basic_qos(prefetch_count=5)
    other.basic_qos(prefetch_count=9, global_qos=True)
    third = connection.channel(9)
    third.tx_select()
    channel.basic_get("q")
    channel.basic_get("q")
    rows = ctl("channels")
    assert [row["number"] for row in rows] == [channel.channel_number, 7, 9]
    assert [row["unacked"] for row in rows] == [2, 0, 0]
    assert [row["confirm"] for row in rows] == [False, True, False]
    assert [row["transactional"] for row in rows] == [False, False, True]
    assert (rows[1]["prefetch"], rows[1]["prefetch_total"]) == (5, 9)
    assert {row["connection"] for row in rows} == {only(ctl("connections"))["name"]}
    assert [row["oldest_unacked_since_ms"] for row in rows] == [None] * 3  # not looked at yet
    before = broker.do(broker.clock.wall_ms)
    broker.advance_ms(200_000)
    assert before <= ctl("channels")[0]["oldest_unacked_since_ms"] <= before + 60_000
    channel.basic_ack(0, multiple=True)
    channel.queue_declare("q", passive=True)
    assert ctl("channels")[0]["oldest_unacked_since_ms"] is None
    connection.close()


def test_consumers_tell_how_they_acknowledge_and_what_is_out(broker: SocketBroker, ctl: Ctl) -> None:
    """Queue, tag, mode, prefetch, unacknowledged, and since when the oldest of each is out."""
    channel = declared(broker, "slow", b"1", b"2", b"3")
    channel.queue_declare("fast")
    channel.basic_qos(prefetch_count=2)
    channel.basic_consume("slow", lambda *_: None, consumer_tag="s", arguments={"x-priority": 4})
    channel.basic_consume("fast", lambda *_: None, consumer_tag="f", auto_ack=True, exclusive=True)
    broker.advance_ms(120_000)
    channel.basic_publish("", "fast", b"x")
    channel.queue_declare("fast", passive=True)
    rows = {row["tag"]: row for row in ctl("consumers")}
    slow, fast = rows["s"], rows["f"]
    assert (slow["queue"], slow["ack"], slow["prefetch"], slow["unacked"], slow["priority"]) == ("slow", True, 2, 2, 4)
    assert slow["oldest_unacked_since_ms"] is not None
    assert (fast["ack"], fast["exclusive"], fast["unacked"], fast["oldest_unacked_since_ms"]) == (False, True, 0, None)
    assert slow["channel"] == channel.channel_number
    assert ctl("consumers", queue="fast") == [fast]
    channel.connection.close()


def test_close_connection_says_what_rabbitmq_says(broker: SocketBroker, ctl: Ctl) -> None:
    """320 with the reason as it stands, or with that of RabbitMQ's management; by either name."""
    first, second, third = connect(broker, "a"), connect(broker, "b"), connect(broker, "b")
    name = ctl("connections")[0]["name"]
    assert ctl("close-connection", name=name, reason="my reason é {x}")["closed"] == [name]
    for connection, text in ((first, "my reason é {x}"), (second, None), (third, None)):
        if connection is second:
            assert len(ctl("close-connection", name="b")["closed"]) == 2
        with pytest.raises(ConnectionClosedByBroker) as closed:
            connection.process_data_events(time_limit=60)
        assert closed.value.reply_code == 320
        assert closed.value.reply_text == f"CONNECTION_FORCED - {text or 'Closed via management plugin'}"
    broker.wait_for_clients(0)
    with pytest.raises(CommandError, match="no connection 'b'"):
        ctl("close-connection", name="b")


def test_the_nearest_connection_is_named(broker: SocketBroker, ctl: Ctl) -> None:
    """By the names that clients gave."""
    connection = connect(broker, "billing-worker")
    with pytest.raises(CommandError, match="no connection 'biling-worker', did you mean 'billing-worker'"):
        ctl("close-connection", name="biling-worker")
    connection.close()


def test_a_reason_longer_than_a_short_string_is_cut(broker: SocketBroker, ctl: Ctl) -> None:
    """At 255 octets, between characters; an empty one stays empty."""
    for reason, text in (("ü" * 300, "CONNECTION_FORCED - " + "ü" * 100), ("", "CONNECTION_FORCED - ")):
        connection = connect(broker, "long")
        ctl("close-connection", name="long", reason=reason)
        with pytest.raises(ConnectionClosedByBroker) as closed:
            connection.process_data_events(time_limit=60)
        assert closed.value.reply_text.startswith(text)
        assert len(closed.value.reply_text.encode()) <= 255
        assert bool(reason) == (len(closed.value.reply_text) > len("CONNECTION_FORCED - "))


def test_a_client_that_recovers(broker: SocketBroker, ctl: Ctl) -> None:
    """aio-pika's robust connection: what it held comes again, redelivered, to the consumer that it restores."""
    channel = declared(broker, "jobs", b"job")

    async def run() -> list[bool]:
        robust = await aio_pika.connect_robust(
            broker.url, client_properties={"connection_name": "robust"}, reconnect_interval=0.01
        )
        seen: list[bool] = []
        again = asyncio.Event()

        async def work(message: aio_pika.abc.AbstractIncomingMessage) -> None:
            seen.append(bool(message.redelivered))
            if len(seen) == 1:
                await asyncio.to_thread(ctl, "close-connection", name="robust", reason="test of recovery")
            else:
                await message.ack()
                again.set()

        async with robust:
            queue = await (await robust.channel()).declare_queue("jobs")
            await queue.consume(work)
            await again.wait()
        return seen

    assert asyncio.run(run()) == [False, True]
    channel.connection.close()


# -- a virtual host's default queue type (its effect on declarations: tests/spec/test_default_queue_type.py) ----------


def test_the_default_queue_type_is_set_and_taken_back(broker: SocketBroker, ctl: Ctl) -> None:
    """For queues to come; one that is there is redeclared as what it is."""
    channel = connect(broker).channel()
    channel.queue_declare("before", durable=True)
    assert ctl("vhosts", action="default-queue-type", name="/", type="quorum")["default_queue_type"] == "quorum"
    assert only(ctl("vhosts"))["default_queue_type"] == "quorum"
    channel.queue_declare("q", durable=True)
    assert broker.broker.virtual_hosts["/"].queues["q"].type == "quorum"
    ctl("vhosts", action="limits", name="/", max_queues=50)
    assert only(ctl("vhosts"))["default_queue_type"] == "quorum"
    described = {"description": "Default virtual host", "tags": []}
    exported = ctl("definitions", action="export")
    assert exported["vhosts"] == [{"name": "/", "metadata": {**described, "default_queue_type": "quorum"}}]
    ctl("vhosts", action="default-queue-type", name="/")
    channel.queue_declare("before", durable=True)
    assert ctl("definitions", action="export")["vhosts"] == [{"name": "/", "metadata": described}]
    ctl("definitions", action="import", definitions=exported)
    row = only(ctl("vhosts"))
    assert (row["default_queue_type"], row["max_queues"]) == ("quorum", 50)
    assert ctl("vhosts", action="default-queue-type", name="/", type="amps")["default_queue_type"] == "amps"
    for said in ("priority", 3):
        with pytest.raises(CommandError, match="type must be one of classic, quorum, stream, amps, not"):
            ctl("vhosts", action="default-queue-type", name="/", type=said)
    channel.connection.close()


@pytest.mark.parametrize(
    "entry, default",
    [
        ({"name": "v", "default_queue_type": "stream"}, "stream"),
        ({"name": "v", "metadata": {"default_queue_type": "rabbit_quorum_queue"}}, "quorum"),
        ({"name": "v", "metadata": {"default_queue_type": "undefined"}}, None),
        ({"name": "v", "metadata": {"description": ""}}, None),
    ],
)
def test_definitions_bring_it(broker: SocketBroker, ctl: Ctl, entry: dict[str, Any], default: str | None) -> None:
    """In the places where RabbitMQ's versions have it; queues of definitions are as they say."""
    queue = {"name": "q", "vhost": "v", "durable": True, "auto_delete": False, "arguments": {}}
    ctl("definitions", action="import", definitions={"vhosts": [entry], "queues": [queue]})
    rows = {row["name"]: row for row in ctl("vhosts")}
    assert rows["v"]["default_queue_type"] == default
    assert broker.broker.virtual_hosts["v"].queues["q"].type == "classic"


def test_definitions_with_a_type_that_is_none_change_nothing(ctl: Ctl) -> None:
    """The place is named, and every type that is taken."""
    entry = {"name": "v", "default_queue_type": "fast"}
    with pytest.raises(CommandError, match=r"vhosts\[0\]: default_queue_type: expected .* stream, amps"):
        ctl("definitions", action="import", definitions={"vhosts": [entry]}, **{"all-or-nothing": True})
    assert len(ctl("vhosts")) == 1


def test_the_configuration_says_it() -> None:
    """`[[vhost]] default-queue-type`; a type that is none is refused with its line."""
    objects = make('[[vhost]]\nname = "v"\ndefault-queue-type = "quorum"\n')
    assert objects.broker.virtual_hosts["v"].context.limits.default_queue_type == "quorum"
    reload(objects, '[[vhost]]\nname = "v"\n')
    assert objects.broker.virtual_hosts["v"].context.limits.default_queue_type is None
    _, faults = load_configuration([("f.toml", '[[vhost]]\nname = "v"\ndefault-queue-type = "fast"\n')])
    assert [str(fault) for fault in faults] == [
        "f.toml:3: default-queue-type: 'fast' is invalid, expected one of classic, quorum, stream"
    ]


# -- the firehose (its copies, field by field: tests/spec/test_firehose.py) -------------------------------------------


def copies(channel: BlockingChannel) -> int:
    """How many are there, those of this very turn as well."""
    channel.queue_declare("trace", passive=True)
    return int(channel.queue_declare("trace", passive=True).method.message_count)


def test_the_firehose_costs_nothing_while_it_is_off(broker: SocketBroker, ctl: Ctl) -> None:
    """Nobody listens, and routes are kept; switched off again it is as if it had never been on."""
    channel = declared(broker, "q", b"1")
    vhost = broker.broker.virtual_hosts["/"]
    assert (broker.broker.context.listeners, vhost.context.firehose) == ([], None)
    ctl("trace-on")
    ctl("trace-on", vhost="/")
    assert len(broker.broker.context.listeners) == 1
    assert only(ctl("vhosts"))["tracing"] is True
    ctl("trace-off")
    assert (broker.broker.context.listeners, vhost.context.firehose) == ([], None)
    looked_up: list[str] = []
    router = vhost.router
    route: Any = router.route
    type(router).route = lambda self, exchange, *more: looked_up.append(exchange) or route(exchange, *more)
    try:
        for _ in range(20):
            channel.basic_publish("", "q", b"x")
            channel.queue_declare("q", passive=True)
    finally:
        del type(router).route
        type(router).route = route.__func__
    assert looked_up == [""]
    with pytest.raises(CommandError, match="no virtual host 'none'"):
        ctl("trace-on", vhost="none")
    channel.connection.close()


def test_the_firehose_is_of_one_virtual_host(broker: SocketBroker, ctl: Ctl) -> None:
    """What happens in another one is nobody's business; a virtual host that is deleted takes its tracing along."""
    ctl("vhosts", action="add", name="other")
    channel = declared(broker, "q")
    channel.queue_declare("trace")
    channel.queue_bind("trace", "amq.rabbitmq.trace", "#")
    ctl("trace-on", vhost="other")
    channel.basic_publish("", "q", b"1")
    assert copies(channel) == 0
    ctl("vhosts", action="delete", name="other")
    assert broker.broker.context.listeners == []
    ctl("trace-on")
    channel.basic_publish("", "q", b"2")
    assert copies(channel) == 1
    channel.connection.close()


def test_requests_to_the_broker_are_not_traced(tmp_path: Path) -> None:
    """They may hold passwords. And tracing ends with the process, as in RabbitMQ."""
    with leveret_serve(tmp_path, data=tmp_path / "data") as process:
        request(process.url, "trace-on", {})
        channel = pika.BlockingConnection(pika.URLParameters(process.url)).channel()
        channel.queue_declare("trace", durable=True)
        channel.queue_bind("trace", "amq.rabbitmq.trace", "#")
        request(process.url, "users", {"action": "add", "name": "ann", "password": "secret"})
        assert copies(channel) == 0
        process.process.kill()
        process.process.wait()
    with leveret_serve(tmp_path, data=tmp_path / "data") as process:
        assert only(request(process.url, "vhosts", {}))["tracing"] is False
        channel = pika.BlockingConnection(pika.URLParameters(process.url)).channel()
        channel.basic_publish("", "trace", b"x")
        assert copies(channel) == 1
        channel.connection.close()


def test_long_names_and_big_runs_are_traced_whole(broker: SocketBroker, ctl: Ctl) -> None:
    """A key is cut at 255 octets (RabbitMQ fails there); of a thousand messages in one read each has its copies."""
    name = "ü" * 125
    channel = declared(broker, name)
    channel.queue_declare("trace")
    channel.queue_bind("trace", "amq.rabbitmq.trace", "#")
    ctl("trace-on")
    channel.basic_publish("", name, b"x")
    channel.basic_get(name, auto_ack=True)
    keys = [channel.basic_get("trace", auto_ack=True)[0].routing_key for _ in range(2)]
    assert keys == ["publish.", "deliver." + "ü" * 123]
    channel.basic_consume("trace", lambda *_: None, auto_ack=True, consumer_tag="t")
    channel.basic_cancel("t")
    for _ in range(1000):
        channel.basic_publish("", name, b"x")
    channel.basic_consume(name, lambda *_: None, auto_ack=True)
    while channel.queue_declare(name, passive=True).method.message_count:
        channel.connection.process_data_events(0)
    assert copies(channel) == 2000
    channel.connection.close()


def test_the_test_broker_has_the_same_commands() -> None:
    """Over AMQP, as any broker."""
    with start_broker() as running:
        request(running.url, "trace-on", {})
        assert only(request(running.url, "connections", {}))["product"] == "leveret ctl"
