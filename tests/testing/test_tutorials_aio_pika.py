"""The six RabbitMQ tutorials with aio-pika, as tests: the programs as they are taught, with another URL."""

import asyncio
import uuid
from collections.abc import MutableMapping

import pytest
from aio_pika import DeliveryMode, ExchangeType, Message, connect
from aio_pika.abc import AbstractIncomingMessage

from leveret.testing import RunningBroker

#: Their queues are not exclusive: they stay, and that is no leak.
pytestmark = [pytest.mark.asyncio, pytest.mark.amqp(leaks=True)]


# -- 1: hello world -------------------------------------------------------------------------------------------------


async def send(url: str) -> None:
    """send.py"""
    connection = await connect(url)
    async with connection:
        channel = await connection.channel()
        queue = await channel.declare_queue("hello")
        await channel.default_exchange.publish(Message(b"Hello World!"), routing_key=queue.name)


async def test_hello_world(amqp_broker: RunningBroker, amqp_url: str) -> None:
    """What is sent first is received later."""
    received: asyncio.Queue[bytes] = asyncio.Queue()

    async def on_message(message: AbstractIncomingMessage) -> None:
        await received.put(message.body)

    await send(amqp_url)
    amqp_broker.assert_queue("hello", ready=[b"Hello World!"])
    connection = await connect(amqp_url)
    async with connection:
        channel = await connection.channel()
        queue = await channel.declare_queue("hello")
        await queue.consume(on_message, no_ack=True)
        assert await received.get() == b"Hello World!"  # without acknowledgement the broker cannot know when


# -- 2: work queues -------------------------------------------------------------------------------------------------


async def new_task(url: str, text: str) -> None:
    """new_task.py"""
    connection = await connect(url)
    async with connection:
        channel = await connection.channel()
        message = Message(text.encode(), delivery_mode=DeliveryMode.PERSISTENT)
        await channel.default_exchange.publish(message, routing_key="task_queue")


async def test_work_queues(amqp_broker: RunningBroker, amqp_url: str) -> None:
    """A worker acknowledges by `process()`; what it fails at is not lost."""
    done: list[str] = []
    is_first = True

    async def on_message(message: AbstractIncomingMessage) -> None:
        nonlocal is_first
        async with message.process(requeue=True):
            if is_first:
                is_first = False
                raise RuntimeError("the worker stumbles")
            done.append(message.body.decode())

    connection = await connect(amqp_url)
    async with connection:
        channel = await connection.channel()
        await channel.set_qos(prefetch_count=1)
        queue = await channel.declare_queue("task_queue", durable=True)
        await new_task(amqp_url, "First task...")
        await queue.consume(on_message)
        await amqp_broker.settled_async()
    assert done == ["First task..."]
    assert len(amqp_broker.history("delivered", queue="task_queue")) == 2


# -- 3, 4, 5: publish/subscribe, routing, topics --------------------------------------------------------------------


async def emit(url: str, exchange_name: str, exchange_type: ExchangeType, routing_key: str, text: str) -> None:
    """emit_log.py, emit_log_direct.py, emit_log_topic.py"""
    connection = await connect(url)
    async with connection:
        channel = await connection.channel()
        exchange = await channel.declare_exchange(exchange_name, exchange_type)
        message = Message(text.encode(), delivery_mode=DeliveryMode.PERSISTENT)
        await exchange.publish(message, routing_key=routing_key)


@pytest.mark.parametrize(
    "exchange_name, exchange_type, binding_keys, expected",
    [
        ("logs", ExchangeType.FANOUT, [""], ["info", "kern.error", "kern.disk.error"]),
        ("direct_logs", ExchangeType.DIRECT, ["info", "warning"], ["info"]),
        ("topic_logs", ExchangeType.TOPIC, ["kern.*", "*.critical"], ["kern.error"]),
        ("topic_logs", ExchangeType.TOPIC, ["#"], ["info", "kern.error", "kern.disk.error"]),
    ],
)
async def test_exchanges(
    amqp_broker: RunningBroker,
    amqp_url: str,
    exchange_name: str,
    exchange_type: ExchangeType,
    binding_keys: list[str],
    expected: list[str],
) -> None:
    """receive_logs.py and its sisters get what they are bound to."""
    received: list[str] = []

    async def on_message(message: AbstractIncomingMessage) -> None:
        async with message.process():
            received.append(message.routing_key or "")

    connection = await connect(amqp_url)
    async with connection:
        channel = await connection.channel()
        await channel.set_qos(prefetch_count=1)
        exchange = await channel.declare_exchange(exchange_name, exchange_type)
        queue = await channel.declare_queue(exclusive=True)
        for binding_key in binding_keys:
            await queue.bind(exchange, routing_key=binding_key)
        await queue.consume(on_message)
        for routing_key in ("info", "kern.error", "kern.disk.error"):
            await emit(amqp_url, exchange_name, exchange_type, routing_key, "a line of log")
        await amqp_broker.settled_async()
    assert received == expected


# -- 6: RPC ---------------------------------------------------------------------------------------------------------


def fib(n: int) -> int:
    """The tutorial's, as slow as it is there."""
    return n if n < 2 else fib(n - 1) + fib(n - 2)


class FibonacciRpcClient:
    """rpc_client.py"""

    def __init__(self, url: str) -> None:
        self.url = url
        self.futures: MutableMapping[str, asyncio.Future[bytes]] = {}

    async def connect(self) -> "FibonacciRpcClient":
        """As the tutorial does."""
        self.connection = await connect(self.url)
        self.channel = await self.connection.channel()
        self.callback_queue = await self.channel.declare_queue(exclusive=True)
        await self.callback_queue.consume(self.on_response, no_ack=True)
        return self

    async def on_response(self, message: AbstractIncomingMessage) -> None:
        """The future that waits for it."""
        assert message.correlation_id is not None
        self.futures.pop(message.correlation_id).set_result(message.body)

    async def call(self, n: int) -> int:
        """Ask, and wait for the answer."""
        correlation_id = str(uuid.uuid4())
        future = asyncio.get_running_loop().create_future()
        self.futures[correlation_id] = future
        await self.channel.default_exchange.publish(
            Message(
                str(n).encode(),
                content_type="text/plain",
                correlation_id=correlation_id,
                reply_to=self.callback_queue.name,
            ),
            routing_key="rpc_queue",
        )
        return int(await future)


async def test_rpc(amqp_broker: RunningBroker, amqp_url: str) -> None:
    """Three calls at once, each gets its own answer."""
    connection = await connect(amqp_url)
    async with connection:
        channel = await connection.channel()
        queue = await channel.declare_queue("rpc_queue")

        async def on_request(message: AbstractIncomingMessage) -> None:
            async with message.process(requeue=False):
                assert message.reply_to is not None
                await channel.default_exchange.publish(
                    Message(str(fib(int(message.body))).encode(), correlation_id=message.correlation_id),
                    routing_key=message.reply_to,
                )

        await queue.consume(on_request)
        client = await FibonacciRpcClient(amqp_url).connect()
        assert await asyncio.gather(client.call(10), client.call(11), client.call(12)) == [55, 89, 144]
        await client.connection.close()
    assert len(amqp_broker.published(routing_key="rpc_queue")) == 3
