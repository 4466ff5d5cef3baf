"""The rows' vocabulary through a real socket, spoken by pika; see `desk.py`."""

from __future__ import annotations

import socket
from contextlib import suppress
from decimal import Decimal
from typing import Any

import pika
from desk import Desk, Got, Refused, dashed, load, tag_of
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import AMQPError, ChannelClosedByBroker, NackError, UnroutableError
from socket_broker import SocketBroker


class PikaDesk(Desk):
    """One connection with a channel that consumes and gets, and one that publishes with confirms."""

    def __init__(self, broker: SocketBroker) -> None:
        self.broker = broker
        self._connection = pika.BlockingConnection(pika.URLParameters(broker.url))
        self._deliveries: list[Got] = []
        self._channel = self._connection.channel()
        self._publisher = self._connection.channel()
        self._publisher.confirm_delivery()
        self._others: list[PikaDesk] = []

    def _do(self, name: str, *arguments: Any, **options: Any) -> Any:
        """A method of the channel. Raises: Refused."""
        try:
            return getattr(self._channel, name)(*arguments, **options)
        except ChannelClosedByBroker as closed:
            self._channel = self._connection.channel()
            raise Refused(closed.reply_code, closed.reply_text) from None

    def _settled(self) -> None:
        """What was said without an answer has arrived, and what it caused has come."""
        self._do("exchange_declare", "amq.direct", passive=True)

    def declare(self, queue: str = "q", *, passive: bool = False, **arguments: Any) -> int:
        # pika has no floats, but decimals.
        table = {
            name: Decimal(str(value)) if isinstance(value, float) else value
            for name, value in dashed(arguments).items()
        }
        answer = self._do("queue_declare", queue, durable=True, passive=passive, arguments=table)
        return int(answer.method.message_count)

    def exchange(self, name: str, kind: str = "fanout", **arguments: Any) -> None:
        table = dashed(arguments)
        self._do("exchange_declare", name, kind, durable=True, arguments=table)

    def bind(self, queue: str, exchange: str, key: str = "") -> None:
        self._do("queue_bind", queue, exchange, key)

    def publish(
        self, *bodies: str, exchange: str = "", key: str = "q", mandatory: bool = False, **properties: Any
    ) -> list[str]:
        outcomes = []
        for body in bodies:
            try:
                self._publisher.basic_publish(
                    exchange, key, body.encode(), pika.BasicProperties(**properties), mandatory=mandatory
                )
                outcomes.append("ack")
            except NackError:
                outcomes.append("nack")
            except UnroutableError:
                outcomes.append("returned")
        return outcomes

    def get(self, queue: str = "q", *, no_ack: bool = False) -> Got | None:
        method, properties, body = self._do("basic_get", queue, auto_ack=no_ack)
        return None if method is None else _got(method, properties, body)

    def ack(self, got: Got | int) -> None:
        self._do("basic_ack", tag_of(got))
        self._settled()

    def nack(self, got: Got | int, *, multiple: bool = False, requeue: bool = True) -> None:
        self._do("basic_nack", tag_of(got), multiple=multiple, requeue=requeue)
        self._settled()

    def reject(self, got: Got, *, requeue: bool = True) -> None:
        self._do("basic_reject", got.tag, requeue=requeue)
        self._settled()

    def recover(self) -> None:
        self._do("basic_recover", requeue=True)

    def consume(
        self, queue: str = "q", *, prefetch: int = 0, no_ack: bool = False, tag: str = "t", **arguments: Any
    ) -> None:
        def delivered(channel: BlockingChannel, method: Any, properties: Any, body: bytes) -> None:
            self._deliveries.append(_got(method, properties, body))

        self._do("basic_qos", prefetch_count=prefetch)
        table = dashed(arguments)
        self._do("basic_consume", queue, delivered, auto_ack=no_ack, consumer_tag=tag, arguments=table)

    def cancel(self, tag: str = "t") -> None:
        self.taken_later()
        self._do("basic_cancel", tag)

    def taken_later(self) -> None:
        """Deliveries that have come are put aside: pika would requeue them at a cancel."""
        self._settled()
        self._connection.process_data_events(time_limit=0)

    def taken(self) -> list[Got]:
        self.taken_later()
        taken, self._deliveries = self._deliveries, []
        return taken

    def reopen_channel(self) -> None:
        self._channel.close()
        self._channel = self._connection.channel()

    def drop(self) -> None:
        before = len(self.broker.broker.connections)
        self._connection._impl._transport._sock.shutdown(socket.SHUT_RDWR)
        self.broker.wait_for_clients(before - 1)

    def close(self) -> None:
        """Say goodbye, if there is anybody left to say it; the others too."""
        for desk in (*self._others, self):
            with suppress(AMQPError):
                desk._connection.close()

    def other(self) -> PikaDesk:
        self._others.append(PikaDesk(self.broker))
        return self._others[-1]

    def purge(self, queue: str = "q") -> int:
        return int(self._do("queue_purge", queue).method.message_count)

    def delete(self, queue: str = "q", *, if_empty: bool = False) -> int:
        return int(self._do("queue_delete", queue, if_empty=if_empty).method.message_count)

    def select(self) -> None:
        self._do("tx_select")

    def publish_in_transaction(self, *bodies: str, key: str = "q") -> None:
        for body in bodies:
            self._do("basic_publish", "", key, body.encode())
        self._settled()

    def commit(self) -> None:
        self._do("tx_commit")

    def roll_back(self) -> None:
        self._do("tx_rollback")

    def advance_ms(self, ms: float) -> None:
        self.broker.advance_ms(ms)

    def reload(self, settings: str) -> None:
        self.broker.apply(load(settings))

    def command(self, name: str, /, **arguments: Any) -> Any:
        return self.broker.do(lambda: self.broker.control.run(name, arguments))

    @property
    def wall_ms(self) -> int:
        return self.broker.clock.wall_ms()


def _got(method: Any, properties: Any, body: bytes) -> Got:
    return Got(
        method.delivery_tag,
        body.decode(),
        method.redelivered,
        method.exchange,
        method.routing_key,
        properties,
        properties.headers or {},
        getattr(method, "consumer_tag", ""),
    )
