"""Fill the data directory of an older broker: python make.py URL. See tests/journal/older/README.md."""

import sys

import pika

connection = pika.BlockingConnection(pika.URLParameters(sys.argv[1]))
channel = connection.channel()
channel.confirm_delivery()
channel.exchange_declare("shop", "topic", durable=True)
channel.exchange_declare("dead", "fanout", durable=True, auto_delete=False)
channel.queue_declare("failed", durable=True)
channel.queue_bind("failed", "dead")
channel.queue_declare("orders", durable=True, arguments={"x-dead-letter-exchange": "dead", "x-max-length": 1000})
channel.queue_bind("orders", "shop", "order.#")
channel.queue_declare("ranked", durable=True, arguments={"x-max-priority": 5})
channel.queue_declare("timed", durable=True, arguments={"x-message-ttl": 4_000_000_000})
channel.queue_declare("gone", durable=True)
channel.queue_declare("fleeting")
for number in range(60):
    headers = {"number": number, "text": "hare ü", "list": [1, True, None], "table": {"a": "b"}}
    properties = pika.BasicProperties(
        delivery_mode=2, content_type="text/plain", message_id=f"m{number}", timestamp=1_700_000_000, headers=headers
    )
    channel.basic_publish("shop", "order.new", b"order %d " % number + b"x" * number, properties)
for number in range(6):
    channel.basic_publish("", "ranked", b"rank %d" % number, pika.BasicProperties(delivery_mode=2, priority=number % 3))
channel.basic_publish("", "timed", b"timed", pika.BasicProperties(delivery_mode=2))
channel.basic_publish("", "gone", b"gone", pika.BasicProperties(delivery_mode=2))
channel.basic_publish("", "orders", b"transient", pika.BasicProperties(delivery_mode=1))
channel.queue_delete("gone")
for _ in range(10):  # acknowledged: orders 0 to 9
    channel.basic_ack(channel.basic_get("orders")[0].delivery_tag)
for _ in range(2):  # dead-lettered: 10 and 11
    channel.basic_reject(channel.basic_get("orders")[0].delivery_tag, requeue=False)
channel.basic_nack(channel.basic_get("orders")[0].delivery_tag, requeue=True)  # 12 was tried once
channel.queue_declare("last", durable=True)  # what came before is recorded when this is answered
connection.close()
