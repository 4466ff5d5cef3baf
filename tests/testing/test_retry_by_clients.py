"""One retry policy, three clients, exact instants: pika, aio-pika, and amqplib of Node.

Each publishes a message and fails at every delivery; the broker's clock says when each attempt was.
"""

import asyncio
import json
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import aio_pika
import pytest
from consumers import channel_of, consuming, reject

from leveret.testing import RunningBroker, start_broker

POLICY = {
    "x-redelivery-delay": 1_000,
    "x-redelivery-delay-multiplier": 3,
    "x-max-redelivery-delay": 1_800_000,
    "x-max-delivery-attempts": 9,
    "x-dead-letter-address": "failed",
}

#: Seconds: 1, 3, 9, 27, 81, 243, 729 after each other, then the cap of 1800.
INSTANTS = [0, 1, 4, 13, 40, 121, 364, 1093, 2893]


@contextmanager
def pika_worker(url: str) -> Iterator[None]:
    """A thread with a blocking connection."""
    with consuming(url, "jobs", reject, durable=True, arguments=POLICY), channel_of(url) as channel:
        channel.basic_publish("", "jobs", b"again")
        yield


@contextmanager
def aio_pika_worker(url: str) -> Iterator[None]:
    """A thread with an asyncio loop."""
    is_ready, is_over = threading.Event(), threading.Event()

    async def work() -> None:
        async with await aio_pika.connect(url) as connection:
            channel = await connection.channel()
            queue = await channel.declare_queue("jobs", durable=True, arguments=POLICY)

            async def fail(message: aio_pika.abc.AbstractIncomingMessage) -> None:
                await message.nack(requeue=True)

            await queue.consume(fail)
            await channel.default_exchange.publish(aio_pika.Message(b"again"), "jobs")
            is_ready.set()
            await asyncio.to_thread(is_over.wait, 30)

    thread = threading.Thread(target=lambda: asyncio.run(work()))
    thread.start()
    assert is_ready.wait(60)
    yield
    is_over.set()
    thread.join(60)


@pytest.fixture(scope="module")
def node_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where amqplib is installed. Skips without node, npm, or their registry."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        pytest.skip("needs node and npm")
    folder = tmp_path_factory.mktemp("node")
    (folder / "package.json").write_text('{"private": true}')
    command = [npm, "install", "--no-audit", "--no-fund", "--silent", "amqplib@2"]
    try:
        subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=180)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        pytest.skip(f"npm cannot install amqplib: {error}")
    shutil.copy(Path(__file__).with_name("retry_worker.js"), folder)
    return folder


@contextmanager
def node_worker(folder: Path, url: str) -> Iterator[None]:
    """A process of Node."""
    command = ["node", "retry_worker.js", url, "jobs", json.dumps(POLICY)]
    with subprocess.Popen(command, cwd=folder, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            yield
            assert process.stdin is not None
            process.stdin.close()
            assert process.wait(60) == 0
        finally:
            process.kill()


def check_instants(worker: Callable[[str], AbstractContextManager[None]]) -> None:
    """Let a worker fail until the message is dead, and look at when it got it."""
    with start_broker(clock="virtual", quiet_ms=50) as broker, channel_of(broker.url) as channel:
        channel.queue_declare("failed", durable=True)
        with worker(broker.url):
            broker.assert_published(routing_key="jobs", within=20)
            broker.clock.advance(hours=1)
            assert instants(broker) == INSTANTS
            (dead,) = broker.queue("failed").ready
            assert dead.body == b"again"
            assert dead.headers["x-death"][0]["reason"] == "delivery_limit"
            assert [event.at for event in broker.history("dead_lettered")] == [INSTANTS[-1]]


def instants(broker: RunningBroker) -> list[float]:
    """When the message was delivered, in seconds of virtual time."""
    return [event.at for event in broker.history("delivered", queue="jobs")]


def test_pika() -> None:
    """Nine attempts."""
    check_instants(pika_worker)


def test_aio_pika() -> None:
    """Nine attempts."""
    check_instants(aio_pika_worker)


def test_amqplib_of_node(node_folder: Path) -> None:
    """Nine attempts."""
    check_instants(lambda url: node_worker(node_folder, url))
