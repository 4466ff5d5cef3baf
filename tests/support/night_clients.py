"""Clients that make a night's work for an operator. Source: management page 15, 16."""

from contextlib import suppress
from typing import Any

import pika
import pika.exceptions

from leveret.testing import RunningBroker

DEAD, EVERY = 5_000, 137
#: One of acme's, about which somebody calls.
MISSED = f"order-{3 * EVERY}"
#: So many of the dead letters are acme's.
ACME = len(range(0, DEAD, EVERY))
SETTINGS = {"match": "archive", "max-size-messages": 2, "address-full-policy": "BLOCK"}


class Clients:
    """Clients of one night: the operator sees only what they do."""

    def __init__(self, broker: RunningBroker) -> None:
        self._broker = broker
        self._connections: list[pika.BlockingConnection] = []
        self._publisher = self.connect("shop")
        dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "orders.dead"}
        for name, arguments in [
            ("orders", dead),
            *((one, {}) for one in ("orders.dead", "mails", "invoices", "archive")),
        ]:
            self._publisher.queue_declare(name, durable=True, arguments=arguments)

    def connect(self, name: str) -> Any:
        parameters = pika.URLParameters(self._broker.url)
        parameters.client_properties = {"connection_name": name}
        parameters.heartbeat = 0  # the night is longer than a heartbeat that nothing answers
        connection = pika.BlockingConnection(parameters)
        self._connections.append(connection)
        return connection.channel()

    def publish(self, queue: str, count: int) -> None:
        for number in range(count):
            self._publisher.basic_publish("", queue, b"%d" % number)
        self._publisher.queue_declare(queue, passive=True)  # answered behind them

    def fall_ill(self) -> None:
        """5,000 orders expire; acme's are every 137th, each with an id of its own."""
        for number in range(DEAD):
            customer = "acme" if number % EVERY == 0 else "others"
            properties = pika.BasicProperties(delivery_mode=2, expiration="1000", message_id=f"order-{number}")
            body = b'{"order": %d, "customer": "%s"}' % (number, customer.encode())
            self._publisher.basic_publish("", "orders", body, properties)
        self._publisher.queue_declare("orders", passive=True)
        self._broker.clock.advance(seconds=2)

    def sleep(self, tag: str) -> None:
        """A consumer gets one message, and does nothing with it."""
        channel = self.connect(tag)
        channel.basic_qos(prefetch_count=1)
        channel.basic_consume("invoices", lambda *delivery: None, consumer_tag=tag)
        channel.basic_publish("", "invoices", tag.encode())
        channel.connection.process_data_events(0)

    def fill(self) -> None:
        """A publisher does not get its third message into the archive."""
        channel = self.connect("archivist")
        for _ in range(3):
            channel.basic_publish("", "archive", b"x")
        channel.connection.process_data_events(0)

    def close(self) -> None:
        for connection in self._connections:
            with suppress(pika.exceptions.AMQPError):  # some were closed by the operator
                connection.close()
