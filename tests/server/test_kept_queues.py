"""Non-destructive queues deeper than memory, by a real client of a real process."""

from pathlib import Path

import pika
from broker_process import leveret_serve
from pika.adapters.blocking_connection import BlockingChannel

COUNT, KEYS, SIZE = 800, 200, 2500
CONFIG = '[limits]\nmemory = "340KiB"\n[journal]\nsegment-size = "1MiB"\n'


def read(channel: BlockingChannel, queue: str, count: int) -> list[int]:
    """The numbers of so many messages, each acknowledged."""
    channel.basic_qos(prefetch_count=100)
    numbers: list[int] = []
    for method, _, body in channel.consume(queue):
        assert method is not None and len(body) == 6 + SIZE
        numbers.append(int(body[:6]))
        channel.basic_ack(method.delivery_tag)
        if len(numbers) == count:
            break
    channel.cancel()
    return numbers


def test_every_consumer_reads_all_of_a_deep_queue(tmp_path: Path) -> None:
    """From the head, also after a restart; a get sees the head; of last values only the newest are there."""
    data = tmp_path / "data"
    values = {key: number for number in range(COUNT) if (key := number * 7 % KEYS) or True}
    for run in range(2):
        with leveret_serve(tmp_path, data=data, config=CONFIG) as broker:
            connection = pika.BlockingConnection(pika.URLParameters(broker.url))
            channel = connection.channel()
            channel.queue_declare("all", durable=True, arguments={"x-non-destructive": True})
            arguments = {"x-non-destructive": True, "x-last-value-key": "k"}
            channel.queue_declare("last", durable=True, arguments=arguments)
            channel.queue_declare("newest", durable=True, arguments={"x-last-value-key": "k"})
            if run == 0:
                channel.confirm_delivery()
                channel.exchange_declare("e", "fanout", durable=True)
                channel.queue_bind("all", "e")
                channel.queue_bind("last", "e")
                channel.queue_bind("newest", "e")
                for number in range(COUNT):
                    properties = pika.BasicProperties(delivery_mode=2, headers={"k": number * 7 % KEYS})
                    channel.basic_publish("e", "", b"%06d" % number + bytes(SIZE), properties)
            for _ in range(2):
                assert read(connection.channel(), "all", COUNT) == list(range(COUNT))
            method, _, body = channel.basic_get("all", auto_ack=True)
            assert method is not None and int(body[:6]) == 0 and method.message_count == COUNT
            assert read(connection.channel(), "last", KEYS) == sorted(values.values())
            assert channel.queue_declare("last", passive=True).method.message_count == KEYS
            if run == 1:  # its messages go when they are acknowledged
                assert sorted(read(connection.channel(), "newest", KEYS)) == sorted(values.values())
            assert channel.queue_declare("newest", passive=True).method.message_count == (0 if run else KEYS)
            connection.close()
