"""Queues that keep to a limit of memory, over sockets: what is beyond it is in the journal or the temp store.

Queues page G.E, rows E15 and E29; without sockets: tests/journal/test_memory_caps.py.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pika
import pytest
from broker_process import BrokerProcess, leveret_serve
from node_forge import leveret
from pika.adapters.blocking_connection import BlockingChannel

LIMIT = 200 * 1024
COUNT, SIZE = 400, 2500
CONFIG = """
[[address-setting]]
match = "capped"
memory-limit = "200KiB"
producer-flow-control = false

[[address-setting]]
match = "paged"
max-size-bytes = "200KiB"

[[address-setting]]
match = "kept"
memory-limit = "100MiB"
cursor = "vm"

[system-usage]
memory = 0
"""


def status(broker: BrokerProcess) -> dict[str, Any]:
    """By the broker's own word."""
    found: dict[str, Any] = json.loads(leveret("ctl", "--url", broker.url, "--json", "status").stdout)
    return found


def used(broker: BrokerProcess, destination: str, limit: str) -> int:
    """Of one limit."""
    (node,) = [one for one in status(broker)["usage"] if destination in one["destination"] and one["limit"] == limit]
    assert not node["full"]
    return int(node["used"])


def opened(broker: BrokerProcess) -> tuple[pika.BlockingConnection, BlockingChannel]:
    connection = pika.BlockingConnection(pika.URLParameters(broker.url))
    return connection, connection.channel()


def numbers(channel: BlockingChannel, queue: str, count: int) -> list[int]:
    """The next messages, acknowledged fifty at a time."""
    channel.basic_qos(prefetch_count=100)
    found: list[int] = []
    for method, _, body in channel.consume(queue):
        found.append(int(body))
        if len(found) % 50 == 0:
            channel.basic_ack(method.delivery_tag, multiple=True)
        if len(found) == count:
            break
    channel.cancel()
    return found


@pytest.mark.parametrize("mode", [1, 2], ids=["transient", "stored"])
@pytest.mark.parametrize("has_journal", [True, False], ids=["journal", "memory"])
def test_what_is_beyond_the_limit_leaves_memory(tmp_path: Path, has_journal: bool, mode: int) -> None:
    """All is confirmed at once, memory keeps to the limits, and consumers get all of it in order."""
    with leveret_serve(tmp_path, config=CONFIG, data=tmp_path / "data" if has_journal else None) as broker:
        connection, channel = opened(broker)
        channel.confirm_delivery()
        for queue in ("capped", "paged", "kept"):
            channel.queue_declare(queue, durable=True)
            channel.queue_bind(queue, "amq.fanout")
        for number in range(COUNT):
            body = b"%0*d" % (SIZE, number)
            channel.basic_publish("amq.fanout", "", body, pika.BasicProperties(delivery_mode=mode))
        assert 0 < used(broker, "'capped'", "memory") <= LIMIT * 70 // 100
        assert 0 < used(broker, "'paged'", "max-size-bytes") <= LIMIT
        assert used(broker, "'kept'", "memory") >= COUNT * SIZE
        spooled = used(broker, "broker", "temp")
        assert (spooled == 0) if mode == 2 and has_journal else spooled > 2 * (COUNT * SIZE - LIMIT)
        for queue in ("capped", "paged"):
            assert numbers(channel, queue, COUNT) == list(range(COUNT))
        connection.close()
        assert used(broker, "broker", "temp") == 0
        assert used(broker, "'capped'", "memory") <= LIMIT


def test_after_a_kill(tmp_path: Path) -> None:
    """All that was confirmed is there, in order, and what is in memory keeps to the limits again."""
    data = tmp_path / "data"
    with leveret_serve(tmp_path, config=CONFIG, data=data) as broker:
        _, channel = opened(broker)
        channel.confirm_delivery()
        channel.queue_declare("capped", durable=True)
        for number in range(COUNT):
            channel.basic_publish("", "capped", b"%0*d" % (SIZE, number), pika.BasicProperties(delivery_mode=2))
        assert numbers(channel, "capped", COUNT // 2) == list(range(COUNT // 2))
        broker.process.kill()
        broker.process.wait()
    with leveret_serve(tmp_path, config=CONFIG, data=data) as broker:
        connection, channel = opened(broker)
        assert used(broker, "'capped'", "memory") <= LIMIT * 70 // 100 + SIZE  # the last one that was read
        count = channel.queue_declare("capped", passive=True).method.message_count
        assert count >= COUNT // 2  # the last acknowledgements may not have been written
        assert numbers(channel, "capped", count) == list(range(COUNT - count, COUNT))
        connection.close()
