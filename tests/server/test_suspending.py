"""A leader that may not be one any more: it reads and sends nothing; then it goes on, or ends with connection.close."""

import random
import socket
from functools import partial
from typing import Any

import pytest
import trio
import trio.testing
from api_client import basic
from configured_broker import load
from rawclient import Client
from socket_broker import SocketBroker
from stand_in_journal import StandInJournal

from leveret.amqp_frontend.edge.server import RESIGN_TIMEOUT_S
from leveret.amqp_frontend.edge.server import serve as serve_amqp
from leveret.console.server import serve as serve_console
from leveret.engine import Broker, Event
from leveret.serving.composition import build_broker, default_users
from leveret.serving.console import console_options
from leveret.serving.runtime import Runtime, SystemClock

GOODBYE = "CONNECTION_FORCED - this node no longer leads"


def connect(broker: SocketBroker) -> Client:
    """A client with channel 1 open."""
    return Client.open("127.0.0.1", port_of(broker))


def port_of(broker: SocketBroker) -> int:
    return int(broker.url.rpartition(":")[2].partition("/")[0])


def is_silent(client: Client) -> bool:
    """Whether nothing has come. The broker's thread has had rounds of its loop since, and sends within its turns."""
    client._socket.setblocking(False)
    try:
        client._socket.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return True
    finally:
        client._socket.settimeout(60)
    return False


def rounds(broker: SocketBroker, count: int = 200) -> None:
    """The loop goes round: what can be read is read."""

    async def pass_by() -> None:
        for _ in range(count):
            await trio.lowlevel.checkpoint()

    trio.from_thread.run(pass_by, trio_token=broker._token)


def publish(broker: SocketBroker, payload: str) -> None:
    """Into the queue q, by an operator, in a turn of its own."""
    broker.do(lambda: broker.control.run("publish", {"exchange": "", "routing-key": "q", "payload": payload}))


def ready(broker: SocketBroker, queue: str) -> int:
    return broker.do(lambda: broker.broker.virtual_hosts["/"].queues.named(queue).ready_count)


def test_nothing_is_read_and_nothing_is_sent_until_it_goes_on(broker: SocketBroker) -> None:
    """Publishes stay in the socket, deliveries in the broker; all go on in their order."""
    publisher, consumer = connect(broker), connect(broker)
    publisher.call("queue.declare", queue="q")
    consumer.call("basic.consume", queue="q", consumer_tag="c")
    broker.do(broker._runtime.suspend)
    publisher.publish("", "q", b"1")
    publish(broker, "0")
    rounds(broker)
    assert is_silent(consumer) and is_silent(publisher)
    broker.do(broker._runtime.resume)
    assert [one.body for one in consumer.deliveries(2)] == [b"0", b"1"]
    publisher.publish("", "q", b"2")
    assert consumer.deliveries(1)[0].body == b"2"


def test_a_quiet_broker_reads_nothing_and_sends_what_is_due(broker: SocketBroker) -> None:
    """Before a handover: what has begun ends, and confirms and deliveries go out. A suspension may follow."""
    publisher, consumer = connect(broker), connect(broker)
    publisher.call("queue.declare", queue="q")
    consumer.call("basic.consume", queue="q", consumer_tag="c")
    broker.do(broker._runtime.quiesce)
    publisher.publish("", "q", b"1")
    publish(broker, "0")
    rounds(broker)
    assert consumer.deliveries(1)[0].body == b"0" and is_silent(consumer)
    broker.do(broker._runtime.suspend)
    publish(broker, "2")
    rounds(broker)
    assert is_silent(consumer)
    broker.do(broker._runtime.resume)
    assert [one.body for one in consumer.deliveries(2)] == [b"2", b"1"]


def test_suspended_again_before_it_went_on(broker: SocketBroker) -> None:
    """The last word counts."""
    publisher = connect(broker)
    publisher.call("queue.declare", queue="q")

    def flicker() -> None:
        broker._runtime.suspend()
        broker._runtime.suspend()
        broker._runtime.resume()
        broker._runtime.suspend()

    broker.do(flicker)
    publisher.publish("", "q", b"1")
    rounds(broker)
    assert ready(broker, "q") == 0
    broker.do(broker._runtime.resume)
    assert publisher.take("q").body == b"1"


def test_who_connects_meanwhile_is_held(broker: SocketBroker) -> None:
    """The connection is accepted, and its first octets are read afterwards."""
    broker.do(broker._runtime.suspend)
    client = Client("127.0.0.1", port_of(broker))
    client.send_octets(b"AMQP\0\0\x09\x01")
    rounds(broker)
    assert is_silent(client)
    broker.do(broker._runtime.resume)
    client.expect("connection.start", channel=0)
    client.start_ok()
    client.expect("connection.tune", channel=0)


@pytest.mark.parametrize("is_suspended", [True, False])
def test_all_connections_end_with_one_close(broker: SocketBroker, is_suspended: bool) -> None:
    """Unacknowledged messages go to nobody, and answers and deliveries that wait are dropped: another node may lead."""
    holder, waiting, publisher = connect(broker), connect(broker), connect(broker)
    publisher.call("queue.declare", queue="q", arguments={"x-max-length": ("l", 10)})
    holder.call("basic.consume", queue="q", consumer_tag="h")
    publisher.publish("", "q", b"1")
    assert holder.deliveries(1)[0].body == b"1"
    waiting.call("basic.consume", queue="q", consumer_tag="w")
    publisher.call("confirm.select")
    events: list[Event] = []
    broker.do(lambda: broker.broker.context.listeners.append(events.append))

    def resign() -> None:
        broker.broker.context.storage.durability = StandInJournal()  # type: ignore[assignment]
        for client in broker.broker.connections:
            client.send_after(10, 1)  # an answer waits
        if is_suspended:
            broker._runtime.suspend()
        broker._runtime.resign()

    trio.from_thread.run_sync(resign, trio_token=broker._token)
    publisher.publish("", "q", b"2")
    for client in (holder, waiting, publisher):
        close = client.expect("connection.close", channel=0)
        assert (close["reply_code"], close["reply_text"]) == (320, GOODBYE)
        client.send("connection.close-ok", channel=0)
        client.expect_eof()
    assert events == [] and not broker.broker.context.listeners
    broker.wait_for_clients(3)


def test_who_connects_after_the_end_is_not_served(broker: SocketBroker) -> None:
    """The broker that ended has no journal any more: a publish to it would be confirmed, and be nowhere."""
    trio.from_thread.run_sync(broker._runtime.resign, trio_token=broker._token)
    client = Client("127.0.0.1", port_of(broker))
    client.send_octets(b"AMQP\0\0\x09\x01")
    client.expect_eof()


@pytest.mark.parametrize("is_suspended", [False, True])
def test_who_connected_just_before_the_end_is_not_served(broker: SocketBroker, is_suspended: bool) -> None:
    """Accepted, and its first octets come when the broker has ended: a node that slept finds both when it wakes."""
    client = Client("127.0.0.1", port_of(broker))

    async def resign() -> None:
        server = broker._runtime.on_resign[0].__self__  # type: ignore[attr-defined]
        while not server.endpoints:
            await trio.lowlevel.checkpoint()
        await trio.testing.wait_all_tasks_blocked()
        client.send_octets(b"AMQP\0\0\x09\x01")  # in one turn with what follows
        if is_suspended:
            broker._runtime.suspend()
        broker._runtime.resign()

    trio.from_thread.run(resign, trio_token=broker._token)
    client.expect_eof()


def test_a_frame_that_was_sent_in_part_is_not_finished(broker: SocketBroker) -> None:
    """Its peer could not understand a close: the socket is closed."""
    consumer = connect(broker)
    consumer.call("queue.declare", queue="q")
    consumer.call("basic.consume", queue="q", consumer_tag="c", no_ack=True)
    body = "x" * 1_000_000
    for _ in range(20):  # more than the sockets' buffers take
        publish(broker, body)
    broker.do(broker._runtime.suspend)
    trio.from_thread.run_sync(broker._runtime.resign, trio_token=broker._token)
    octets = consumer.read_octets_to_eof()
    assert b"does not lead" not in octets and octets.count(b"x") < 20_000_000


async def passes(seconds: float) -> None:
    """The loop's clock goes on, which is a virtual one."""
    with trio.move_on_after(seconds):
        await trio.sleep_forever()


def test_no_deadline_comes_while_suspended_or_after_the_end() -> None:
    """In the loop's own time."""
    ran: list[str] = []

    class LoopClock:
        @staticmethod
        def monotonic_ns() -> int:
            return int(trio.current_time() * 1e9) + 1

        @staticmethod
        def wall_ms() -> int:
            return int(trio.current_time() * 1e3)

    async def main() -> None:
        broker = Broker(LoopClock())
        runtime = Runtime(broker)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(runtime.run)
            now_ns = broker.context.clock.monotonic_ns()
            for at_s in (1, 2, 3):
                broker.context.deadlines.set(now_ns + at_s * 1_000_000_000, lambda at_s=at_s: ran.append(f"at {at_s}"))
            await passes(1.5)
            runtime.suspend()
            await passes(1)
            ran.append("suspended")
            runtime.resume()
            await passes(0.1)
            runtime.suspend()
            runtime.resign()
            assert runtime.suspended is None
            await passes(10)
            nursery.cancel_scope.cancel()

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    assert ran == ["at 1", "suspended", "at 2"]


def test_the_frontend_ends_soon_after_the_last_close(monkeypatch: pytest.MonkeyPatch) -> None:
    """A peer that does not answer the close is waited for, for a second, and not as long as one is before an end."""
    monkeypatch.setattr("leveret.amqp_frontend.edge.server.STOP_TIMEOUT_S", 120.0)

    async def main() -> float:
        runtime = Runtime(Broker(SystemClock(), default_users()))
        listener = socket.create_server(("127.0.0.1", 0))
        stopping = trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(runtime.run)

            async def serve(task_status: Any = trio.TASK_STATUS_IGNORED) -> None:
                await serve_amqp(runtime, [listener], stopping=stopping, task_status=task_status)
                nursery.cancel_scope.cancel()

            await nursery.start(serve)
            client = await trio.to_thread.run_sync(Client.open, "127.0.0.1", listener.getsockname()[1])
            runtime.resign()
            stopping.set()
            began = trio.current_time()
        client.abort()
        listener.close()
        return trio.current_time() - began

    assert RESIGN_TIMEOUT_S <= trio.run(main) < 120


def test_a_request_that_waits_for_the_lead_is_told_that_it_has_ended() -> None:
    """With 503, and not with a connection that ends; one to a broker that goes on is answered."""

    async def main() -> list[bytes]:
        built = build_broker(load(""), SystemClock(), random.Random(1).random, None)
        runtime, stopping = Runtime(built.broker), trio.Event()
        listener = socket.create_server(("127.0.0.1", 0))
        options = console_options(built.control, load(""), 0, None, list)
        request = f"GET /api/overview HTTP/1.1\r\nhost: localhost\r\nauthorization: {basic('guest', 'guest')}\r\n\r\n"
        answers = []
        async with trio.open_nursery() as nursery:
            await nursery.start(partial(serve_console, runtime, [listener], lambda: options, stopping=stopping))
            for end in (runtime.resume, runtime.resign):
                client = await trio.open_tcp_stream(*listener.getsockname())
                runtime.suspend()
                await client.send_all(request.encode())
                with trio.move_on_after(0.2):
                    answers.append(await client.receive_some(1 << 16))
                end()
                if runtime.has_resigned:
                    stopping.set()
                answers.append(await client.receive_some(1 << 16))
        listener.close()
        return answers

    goes_on, ended = trio.run(main)
    assert goes_on.startswith(b"HTTP/1.1 200 ")
    assert ended.startswith(b"HTTP/1.1 503 ") and b"this node no longer leads" in ended
