"""The load of benchmarks/cluster.py on JetStream, by nats-py: unique messages, each confirmed, delivered, acknowledged.

The client is Python's and costs more than the servers do: its rate is a lower bound, and its latencies have its own
microseconds in them. CPU of the servers is measured without it.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

from generator import CheckFailed

WITHOUT_CLIENT = "no nats-py in this environment (pip install nats-py)"
BODY_SIZE = 1024
FETCHED = 200
#: Seconds until a cluster that has just started has a leader for a stream.
START_SECONDS_MAX = 60.0


def check_client() -> None:
    """Raises: FileNotFoundError: the client is not installed."""
    if find_spec("nats") is None:
        raise FileNotFoundError(WITHOUT_CLIENT)


def make_stream(ports: Sequence[int], name: str) -> int:
    """Make a stream with three copies on disk, a message of which goes when it is acknowledged. Returns its leader's
    port, which is the name of that server.
    """
    return asyncio.run(_make_stream(ports, name))


async def _make_stream(ports: Sequence[int], name: str) -> int:
    import nats
    from nats.errors import Error
    from nats.js.api import RetentionPolicy, StorageType

    deadline = time.monotonic() + START_SECONDS_MAX
    client = await nats.connect([f"nats://127.0.0.1:{port}" for port in ports])
    try:
        stream = client.jetstream()
        while True:
            try:
                made = await stream.add_stream(
                    name=name,
                    subjects=[name],
                    num_replicas=3,
                    storage=StorageType.FILE,
                    retention=RetentionPolicy.WORK_QUEUE,
                )
            except Error:
                if time.monotonic() > deadline:
                    raise
                await asyncio.sleep(0.2)
            else:
                assert made.cluster is not None and made.cluster.leader is not None
                return int(made.cluster.leader.removeprefix("n"))
    finally:
        await client.close()


def run_load(
    port: int, name: str, *, window: int, count: int = 0, seconds: float = 0.0, rate: float = 0.0
) -> dict[str, Any]:
    """Publish `count` messages, or for some seconds, with at most `window` unconfirmed, and acknowledge each.

    Returns: what the generator for AMQP prints, as far as it is read. Raises: CheckFailed.
    """
    from nats.errors import Error

    try:
        return asyncio.run(_run_load(port, name, window, count, seconds, rate))
    except* Error as group:
        raise CheckFailed(f"JetStream: {group.exceptions[0]}") from group


async def _run_load(port: int, name: str, window: int, count: int, seconds: float, rate: float) -> dict[str, Any]:
    import nats

    client = await nats.connect(f"nats://127.0.0.1:{port}")
    stream = client.jetstream()
    consumer = await stream.pull_subscribe(name, durable="consumer")
    room, micros, delivered = asyncio.Semaphore(window), [], 0
    began = time.monotonic()
    published = 0

    async def confirm(body: bytes) -> None:
        since = time.monotonic()
        await stream.publish(name, body, timeout=30)
        micros.append((time.monotonic() - since) * 1e6)
        room.release()

    async def publish() -> None:
        nonlocal published
        async with asyncio.TaskGroup() as group:
            while published < count or time.monotonic() < began + seconds:
                if rate:
                    await asyncio.sleep(max(0.0, began + published / rate - time.monotonic()))
                await room.acquire()
                group.create_task(confirm(os.urandom(BODY_SIZE)))
                published += 1

    publishing = asyncio.create_task(publish())
    while not publishing.done() or delivered < published:
        try:
            fetched = await consumer.fetch(FETCHED, timeout=1)
        except nats.errors.TimeoutError:
            continue
        for message in fetched:
            await message.ack()
        delivered += len(fetched)
    await publishing
    elapsed = time.monotonic() - began
    await client.close()
    micros.sort()
    quantiles = {"p50": micros[len(micros) // 2], "p99": micros[len(micros) * 99 // 100]}
    return {"delivered": delivered, "msgs_per_s": delivered / elapsed, "confirm_us": quantiles}
