"""Requests and replies by direct reply-to, as pika and aio-pika document them, through a real process."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import aio_pika
import pika
import pytest
from broker_process import BrokerProcess, leveret_serve

REPLY_TO = "amq.rabbitmq.reply-to"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker of its own."""
    with leveret_serve(tmp_path) as broker:
        yield broker


def test_pika(broker: BrokerProcess) -> None:
    """pika's example examples/direct_reply_to.py: client and server on one connection each."""
    server = pika.BlockingConnection(pika.URLParameters(broker.url))
    requests = server.channel()
    requests.queue_declare("rpc")

    def serve(channel, method, properties, body):  # type: ignore[no-untyped-def]
        channel.basic_publish("", properties.reply_to, body.upper(), properties)
        channel.basic_ack(method.delivery_tag)

    requests.basic_consume("rpc", serve)
    client = pika.BlockingConnection(pika.URLParameters(broker.url))
    replies = client.channel()
    got: list[tuple[str | None, bytes]] = []
    replies.basic_consume(
        REPLY_TO, lambda channel, method, properties, body: got.append((properties.correlation_id, body)), auto_ack=True
    )
    for number in range(20):
        properties = pika.BasicProperties(reply_to=REPLY_TO, correlation_id=str(number))
        replies.basic_publish("", "rpc", f"call {number}".encode(), properties)
    while len(got) < 20:
        server.process_data_events(0.05)
        client.process_data_events(0.05)
    assert got == [(str(number), f"CALL {number}".encode()) for number in range(20)]
    client.close()
    server.close()


def test_aio_pika(broker: BrokerProcess) -> None:
    """aio-pika's iterator over the reply queue, and its RPC pattern over a queue of its own."""

    async def run() -> None:
        connection = await aio_pika.connect_robust(broker.url)
        async with connection:
            channel = await connection.channel()
            callback_queue = await channel.get_queue(REPLY_TO)
            request_queue = await channel.declare_queue("rpc", auto_delete=True)
            answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
            tag = await callback_queue.consume(lambda message: answer.set_result(message.body), no_ack=True)  # type: ignore[arg-type,return-value]
            exchange = channel.default_exchange
            await exchange.publish(aio_pika.Message(b"question", reply_to=REPLY_TO), routing_key="rpc")
            request = await request_queue.get()
            assert request.reply_to is not None
            await exchange.publish(aio_pika.Message(request.body.upper()), routing_key=request.reply_to)
            assert await asyncio.wait_for(answer, 60) == b"QUESTION"
            await callback_queue.cancel(tag)

            async def multiply(*, x: int, y: int) -> int:
                return x * y

            rpc = await aio_pika.patterns.RPC.create(channel)
            await rpc.register("multiply", multiply, auto_delete=True)
            assert await asyncio.gather(*(rpc.proxy.multiply(x=number, y=2) for number in range(20))) == [
                2 * number for number in range(20)
            ]

    asyncio.run(run())
