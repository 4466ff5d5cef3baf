"""A queue with priorities that memory has no room for, with a real client, a kill and a restart."""

import random
from pathlib import Path

import pika
from broker_process import leveret_serve

COUNT, SIZE = 600, 2500
CONFIG = '[limits]\nmemory = "192KiB"\n'


def test_order_after_a_kill(tmp_path: Path) -> None:
    """The highest first, each level in order of publishing, before the kill and after it."""
    chance = random.Random(7)
    priorities = [chance.randrange(12) for _ in range(COUNT)]
    with leveret_serve(tmp_path, data=tmp_path / "data", config=CONFIG) as broker:
        channel = pika.BlockingConnection(pika.URLParameters(broker.url)).channel()
        channel.confirm_delivery()
        channel.queue_declare("q", durable=True, arguments={"x-max-priority": 9})
        for number, priority in enumerate(priorities):
            body = b"%d." % number + bytes(SIZE)
            channel.basic_publish("", "q", body, pika.BasicProperties(delivery_mode=2, priority=priority))
        out = [channel.basic_get("q")[2] for _ in range(120)]
        channel.basic_ack(80, multiple=True)
        broker.process.kill()
        broker.process.wait()
    expected = sorted(range(COUNT), key=lambda number: (-min(priorities[number], 9), number))
    assert [number_of(body) for body in out] == expected[:120]
    with leveret_serve(tmp_path, data=tmp_path / "data", config=CONFIG) as broker:
        channel = pika.BlockingConnection(pika.URLParameters(broker.url)).channel()
        left = channel.queue_declare("q", passive=True).method.message_count
        found = []
        for method, _, body in channel.consume("q"):
            found.append(number_of(body))
            channel.basic_ack(method.delivery_tag)
            if len(found) == left:
                break
    # The acknowledgement was sent just before the kill: it is in the journal or not.
    acked = COUNT - left
    assert acked in (0, 80)
    assert found == expected[acked:]


def number_of(body: bytes) -> int:
    """Of a message."""
    return int(body.partition(b".")[0])
