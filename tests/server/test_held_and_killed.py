"""kill -9 while publishes are held and spooled: what was confirmed is there, and nothing that was held had been."""

from __future__ import annotations

import json
from pathlib import Path

import pika
import pytest
from broker_process import leveret_serve
from node_forge import leveret
from peer import publish
from rawclient import Client, Eof

CONFIG = """
[[address-setting]]
match = "q"
memory-limit = "256KiB"
cursor = "vm"

[flow]
hold-bytes = "128KiB"
"""
COUNT, SIZE = 300, 10_000


def held(url: str) -> int:
    """How many connections wait for room, by the broker's own word."""
    return len(json.loads(leveret("ctl", "--url", url, "--json", "status").stdout)["blocked"])


def test_nothing_confirmed_is_lost_and_nothing_held_was_confirmed(tmp_path: Path) -> None:
    """Queues page E.5; the held publishes are in memory and in the temp store, beside a journal."""
    data = tmp_path / "data"
    with leveret_serve(tmp_path, config=CONFIG, data=data) as broker:
        client = Client.open("127.0.0.1", broker.port)
        client.call("queue.declare", queue="q", durable=True)
        client.call("confirm.select")
        client.send_octets(b"".join(publish(1, "q", b"%d" % n + bytes(SIZE), delivery_mode=2) for n in range(COUNT)))
        while not held(broker.url):
            pass
        broker.process.kill()
        broker.process.wait()
        confirmed = 0
        with pytest.raises(Eof):
            while True:
                confirm = client.read()
                if confirm.name != "connection.blocked":  # so much is held that it is told
                    assert confirm.name == "basic.ack"
                    confirmed = confirm["delivery_tag"]
    assert 0 < confirmed < COUNT
    with leveret_serve(tmp_path, config=CONFIG, data=data) as broker:
        connection = pika.BlockingConnection(pika.URLParameters(broker.url))
        channel = connection.channel()
        there = []
        while (got := channel.basic_get("q", auto_ack=True))[0] is not None:
            assert got[2] is not None
            there.append(int(got[2].rstrip(b"\0")))
        connection.close()
    assert there == list(range(len(there)))
    assert len(there) >= confirmed
    assert len(there) * SIZE < 2 * 256 * 1024
