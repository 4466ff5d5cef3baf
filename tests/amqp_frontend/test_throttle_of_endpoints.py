"""The gate where it waits: endpoints with sockets, on virtual time that jumps when nothing else can be done."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from pamqp import commands, frame
from peer import OPTIONS, handshake, method, publish
from trio.testing import MockClock

from leveret.amqp_frontend.edge.endpoint import Endpoint
from leveret.amqp_frontend.edge.server import Server
from leveret.amqp_frontend.flow.throttle import SLICE_S, SLICES_MAX
from leveret.amqp_frontend.peer.login import Peer
from leveret.engine import Broker, BrokerOptions, ManualClock, Users
from leveret.serving.runtime import Runtime
from leveret.testing.harness import GUEST

C = commands
READY_MAX = 10
Scene = Callable[["Stage"], Awaitable[None]]


class Link:
    """The client's end of a connection."""

    def __init__(self, sock: trio.SocketStream) -> None:
        self._stream = sock
        self._data = b""

    async def send(self, *parts: bytes) -> None:
        await self._stream.send_all(b"".join(parts))

    async def expect(self, kind: type[Any]) -> Any:
        """Returns: the next method, of that kind; contents are passed over."""
        while True:
            size, _, found = frame.unmarshal(self._data) if len(self._data) > 7 else (0, 0, None)
            if found is None:
                more = await self._stream.receive_some(65536)
                assert more, f"the end instead of {kind.name}"
                self._data += more
                continue
            self._data = self._data[size:]
            if isinstance(found, kind):
                return found
            assert not hasattr(found, "synchronous") or isinstance(found, C.Basic.Deliver), found

    async def open(self) -> None:
        header, start_ok, tune_ok, open_ = handshake()
        await self.send(header)
        for kind, answer in ((C.Connection.Start, start_ok), (C.Connection.Tune, tune_ok + open_)):
            await self.expect(kind)
            await self.send(answer)
        await self.expect(C.Connection.OpenOk)
        await self.call(C.Channel.Open, C.Channel.OpenOk)

    async def call(self, kind: type[Any], answer: type[Any], **fields: Any) -> Any:
        await self.send(method(1, kind, **fields))
        return await self.expect(answer)

    async def is_over(self) -> None:
        while await self._stream.receive_some(65536):
            pass

    async def close(self) -> None:
        await self._stream.aclose()


class Stage:
    """A server whose connections come from socket pairs; queue `q`."""

    def __init__(self, nursery: trio.Nursery) -> None:
        options = BrokerOptions(busy_queue_ready_max=READY_MAX)
        self.broker = Broker(ManualClock(), Users([GUEST]), options=options)
        self.runtime = Runtime(self.broker)
        self.server = Server(self.runtime, lambda: OPTIONS, nursery)
        self.nursery = nursery

    async def connect(self) -> Link:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        endpoint = Endpoint(self.server, ours, Peer("peer", is_loopback=True), None, False)
        self.server.endpoints[endpoint] = None
        self.nursery.start_soon(endpoint.serve)
        link = Link(trio.SocketStream(trio.socket.from_stdlib_socket(theirs)))
        await link.open()
        return link

    async def publisher_and_consumer(self) -> tuple[Link, Link]:
        """The publisher has just published so much into `q` that it is held; the consumer has one message."""
        publisher, consumer = await self.connect(), await self.connect()
        await publisher.call(C.Queue.Declare, C.Queue.DeclareOk, queue="q")
        await consumer.call(C.Basic.Qos, C.Basic.QosOk, prefetch_count=1)
        await consumer.call(C.Basic.Consume, C.Basic.ConsumeOk, queue="q", consumer_tag="t")
        await publisher.send(publish(1, "q", b"m") * (1 + READY_MAX + 2))
        await consumer.expect(C.Basic.Deliver)
        return publisher, consumer

    def ready(self) -> int:
        return self.broker.virtual_hosts["/"].queues["q"].ready_count


@asynccontextmanager
async def stage() -> AsyncIterator[Stage]:
    async with trio.open_nursery() as nursery:
        yield Stage(nursery)
        nursery.cancel_scope.cancel()


def play(scene: Scene) -> None:
    async def main() -> None:
        async with stage() as made:
            await scene(made)

    trio.run(main, clock=MockClock(autojump_threshold=0))


def test_the_next_read_waits_for_consumers() -> None:
    """Not for the time: it is read as soon as there is room."""

    async def scene(stage: Stage) -> None:
        publisher, consumer = await stage.publisher_and_consumer()
        since = trio.current_time()
        await publisher.send(method(1, C.Queue.Declare, queue="q"))
        for tag in (1, 2):
            await consumer.send(method(1, C.Basic.Ack, delivery_tag=tag))
            await consumer.expect(C.Basic.Deliver)
        assert (await publisher.expect(C.Queue.DeclareOk)).message_count == READY_MAX
        assert trio.current_time() == since

    play(scene)


def test_nobody_waits_long_for_consumers_that_take_nothing() -> None:
    """And not again while they still do not."""

    async def scene(stage: Stage) -> None:
        publisher, consumer = await stage.publisher_and_consumer()
        since = trio.current_time()
        for _ in range(3):
            await publisher.send(publish(1, "q", b"m"))
            await publisher.call(C.Queue.Declare, C.Queue.DeclareOk, queue="q")
            assert trio.current_time() - since == pytest.approx(SLICE_S)
        assert stage.ready() == READY_MAX + 2 + 3
        await consumer.close()

    play(scene)


@pytest.mark.parametrize("ends", ["the queue is deleted", "the consumer goes"])
def test_what_ends_the_wait(ends: str) -> None:
    async def scene(stage: Stage) -> None:
        publisher, consumer = await stage.publisher_and_consumer()
        since = trio.current_time()
        if ends == "the queue is deleted":
            await consumer.call(C.Queue.Delete, C.Queue.DeleteOk, queue="q")
            await publisher.call(C.Queue.Declare, C.Queue.DeclareOk, queue="q")
            assert trio.current_time() == since
        else:
            await consumer.close()
            await publisher.call(C.Queue.Declare, C.Queue.DeclareOk, queue="q")
            assert trio.current_time() - since <= SLICE_S * SLICES_MAX

    play(scene)


def test_a_broker_that_stops_reads_the_goodbye() -> None:
    async def scene(stage: Stage) -> None:
        publisher, consumer = await stage.publisher_and_consumer()
        since = trio.current_time()
        stage.nursery.start_soon(stage.server.stop, 1.0)
        for link in (publisher, consumer):
            await link.expect(C.Connection.Close)
            await link.send(method(0, C.Connection.CloseOk))
            await link.is_over()
        assert trio.current_time() == since

    play(scene)


def test_a_lost_publisher_waits_for_nothing() -> None:
    """Its endpoint is found out when it is read; nothing of it stays at the queue."""

    async def scene(stage: Stage) -> None:
        publisher, consumer = await stage.publisher_and_consumer()
        await publisher.close()
        await trio.sleep_until(trio.current_time() + SLICE_S * SLICES_MAX)
        gate = stage.broker.virtual_hosts["/"].queues["q"].throttle
        assert len(stage.server.endpoints) == 1 and not gate.waiting  # type: ignore[union-attr]
        await consumer.close()

    play(scene)


def test_a_connection_that_makes_room_waits_for_nothing() -> None:
    async def scene(stage: Stage) -> None:
        publisher, consumer = await stage.publisher_and_consumer()
        endpoint = next(iter(stage.server.endpoints))
        endpoint.make_room("somebody else comes")
        await trio.testing.wait_all_tasks_blocked()
        gate = stage.broker.virtual_hosts["/"].queues["q"].throttle
        assert endpoint not in stage.server.endpoints and not gate.waiting  # type: ignore[union-attr]
        await publisher.close()
        await consumer.close()

    play(scene)
