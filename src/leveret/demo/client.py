"""A small AMQP client for the programs of the demo: one connection with one channel. It uses the frontend's codec.

It is not a library for applications: an error from the broker ends it.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, TypeVar

import trio
from pamqp import base, commands

from ..amqp_frontend.wire.codec import METHODS, decode_method, encode_method
from ..amqp_frontend.wire.layout import (
    BODY,
    FRAME_HEAD,
    FRAME_HEAD_SIZE,
    FRAME_OVERHEAD,
    HEADER,
    HEARTBEAT,
    HEARTBEAT_FRAME,
    METHOD,
    PROTOCOL_HEADER,
    content_frames,
)
from ..engine import Field, encode_header

M = TypeVar("M", bound=base.Frame)

READ_SIZE = 65536
FRAME_MAX = 131072


class ClosedByBroker(Exception):
    """The broker closed the connection or the channel; the text says why."""


class Delivery(NamedTuple):
    """A message that a consumer got."""

    tag: int
    body: bytes


class Client:
    """One connection with one channel. Made by `connected`."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self._data = bytearray()
        self._sending = trio.Lock()  # keeps the frames of a message together
        self._answer_sender, self._answer_receiver = trio.open_memory_channel[base.Frame](1)
        self._delivery_sender, self.deliveries = trio.open_memory_channel[Delivery](0)

    # -- calls --------------------------------------------------------------------------------------------------------

    async def call(self, method: type[base.Frame], *values: object, answer: type[M]) -> M:
        """Send a method, with its arguments in wire order, and wait for its answer. Raises: ClosedByBroker."""
        await self._send(encode_method(1, method, *values))
        found = await self._answer_receiver.receive()
        assert isinstance(found, answer), found
        return found

    async def declare(self, queue: str) -> None:
        flags = (False, True, False, False, False)  # passive, durable, exclusive, auto-delete, nowait
        await self.call(commands.Queue.Declare, 0, queue, *flags, {}, answer=commands.Queue.DeclareOk)

    async def consume(self, queue: str, tag: str, *, prefetch: int) -> None:
        """Subscribe. Messages arrive in `deliveries`."""
        await self.call(commands.Basic.Qos, 0, prefetch, False, answer=commands.Basic.QosOk)
        flags = (False, False, False, False)  # no-local, no-ack, exclusive, nowait
        await self.call(commands.Basic.Consume, 0, queue, tag, *flags, {}, answer=commands.Basic.ConsumeOk)

    async def publish(self, queue: str, text: str, *, message_id: str = "") -> None:
        """Publish a persistent message by the name of its queue. Waits while the broker does not read."""
        content = text.encode()
        properties: dict[str, Any] = {"delivery_mode": 2, "content_type": b"application/json"}
        if message_id:
            properties["message_id"] = message_id.encode()
        method = encode_method(1, commands.Basic.Publish, 0, "", queue, False, False)
        await self._send(method + content_frames(1, encode_header(len(content), properties), content, FRAME_MAX))

    async def ack(self, delivery: Delivery) -> None:
        await self._send(encode_method(1, commands.Basic.Ack, delivery.tag, False))

    async def nack(self, delivery: Delivery) -> None:
        """Requeue a message."""
        await self._send(encode_method(1, commands.Basic.Nack, delivery.tag, False, True))

    # -- frames -------------------------------------------------------------------------------------------------------

    async def login(self, name: str, user: str, password: str) -> None:
        """Shake hands. `name`: the connection's name for operators. Raises: ClosedByBroker."""
        await self._send(PROTOCOL_HEADER)
        await self._expect(commands.Connection.Start)
        properties = {
            "connection_name": Field("S", name.encode()),
            "product": Field("S", b"leveret demo"),
            "capabilities": Field("F", {"basic.nack": Field("t", True)}),
        }
        response = f"\0{user}\0{password}"
        await self._send(encode_method(0, commands.Connection.StartOk, properties, "PLAIN", response, "en_US"))
        await self._expect(commands.Connection.Tune)
        await self._send(encode_method(0, commands.Connection.TuneOk, 1, FRAME_MAX, 60))
        await self._send(encode_method(0, commands.Connection.Open, "/", "", False))
        await self._expect(commands.Connection.OpenOk)
        await self._send(encode_method(1, commands.Channel.Open, ""))
        await self._expect(commands.Channel.OpenOk)

    async def read(self) -> None:
        """Pass answers and deliveries on, until the connection ends. Raises: ClosedByBroker."""
        while True:
            kind, payload = await self._next()
            if kind == HEARTBEAT:
                await self._send(HEARTBEAT_FRAME)
                continue
            assert kind == METHOD, kind
            method = _method(payload)
            if isinstance(method, commands.Basic.Deliver):
                assert method.delivery_tag is not None
                await self._delivery_sender.send(Delivery(method.delivery_tag, await self._content()))
            elif isinstance(method, commands.Connection.Close | commands.Channel.Close):
                raise ClosedByBroker(f"{method.reply_code} {method.reply_text}")
            else:
                await self._answer_sender.send(method)

    async def _content(self) -> bytes:
        """The body of a message."""
        kind, payload = await self._next()
        assert kind == HEADER, kind
        size, content = int.from_bytes(payload[4:12], "big"), b""
        while len(content) < size:
            kind, payload = await self._next()
            assert kind == BODY, kind
            content += payload
        return content

    async def _expect(self, wanted: type[base.Frame]) -> None:
        kind, payload = await self._next()
        method = _method(payload) if kind == METHOD else None
        if not isinstance(method, wanted):
            raise ClosedByBroker(f"{wanted.name} was expected, but {method} came")

    async def _next(self) -> tuple[int, bytes]:
        """Type and payload of the next frame. Raises: ClosedByBroker."""
        data = self._data
        while True:
            if len(data) >= FRAME_HEAD_SIZE:
                kind, _, size = FRAME_HEAD.unpack_from(data)
                if len(data) >= size + FRAME_OVERHEAD:
                    break
            try:
                octets = await self._stream.receive_some(READ_SIZE)
            except trio.BrokenResourceError:
                octets = b""
            if not octets:
                raise ClosedByBroker("the broker closed the connection")
            data += octets
        payload = bytes(data[FRAME_HEAD_SIZE : FRAME_HEAD_SIZE + size])
        del data[: size + FRAME_OVERHEAD]
        return kind, payload

    async def _send(self, octets: bytes) -> None:
        async with self._sending:
            try:
                await self._stream.send_all(octets)
            except trio.BrokenResourceError as error:
                raise ClosedByBroker("the broker closed the connection") from error


def _method(payload: bytes) -> base.Frame:
    return decode_method(METHODS[int.from_bytes(payload[:4], "big")], payload[4:])


@asynccontextmanager
async def connected(host: str, port: int, name: str) -> AsyncIterator[Client]:
    """A client that is logged in as guest. Raises: ClosedByBroker, OSError."""
    async with await trio.open_tcp_stream(host, port) as stream:
        client = Client(stream)
        await client.login(name, "guest", "guest")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.read)
            yield client
            nursery.cancel_scope.cancel()
