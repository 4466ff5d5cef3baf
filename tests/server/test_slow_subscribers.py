"""Slow subscribers and consumers, and clients that pause their deliveries: real sockets, pika, time turned by hand.

Queues page G.E, rows E19 to E32. In virtual time alone: tests/engine/test_slow_subscribers.py, test_slow_consumers.py.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import pika
import pytest
from configured_broker import load
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ConnectionClosedByBroker
from socket_broker import SocketBroker

from leveret.engine.broker import UNSENT_MAX_DEFAULT
from leveret.serving.flow_log import log_flow


def policy(topic: str, inner: str, attributes: str = "") -> str:
    """ActiveMQ's XML with one entry for a topic."""
    return (
        f"<broker><destinationPolicy><policyMap><policyEntries><policyEntry topic='{topic}' {attributes}>{inner}"
        "</policyEntry></policyEntries></policyMap></destinationPolicy></broker>"
    )


def limit(strategy: str, eviction: str = "") -> str:
    """Children of a policyEntry."""
    evicts = f"<messageEvictionStrategy>{eviction}</messageEvictionStrategy>" if eviction else ""
    return f"<pendingMessageLimitStrategy>{strategy}</pendingMessageLimitStrategy>{evicts}"


#: Of the subscribers of a test: a broker waits for those that are open when it stops.
CONNECTIONS: list[pika.BlockingConnection] = []


@contextmanager
def broker_with(text: str, name: str = "activemq.xml") -> Iterator[SocketBroker]:
    with SocketBroker(load(text, name)) as broker:
        broker.do(lambda: log_flow(broker.broker))
        try:
            yield broker
        finally:
            while CONNECTIONS:
                connection = CONNECTIONS.pop()
                if connection.is_open:
                    connection.close()


class Subscriber:
    """A connection with one consumer of a queue: its own, bound to topics, or one that is there."""

    def __init__(self, broker: SocketBroker, *, prefetch: int = 0, queue: str = "") -> None:
        self.connection = pika.BlockingConnection(pika.URLParameters(broker.url))
        CONNECTIONS.append(self.connection)
        self.channel: BlockingChannel = self.connection.channel()
        self.channel.basic_qos(prefetch_count=prefetch)
        self.got: list[str] = []
        self.tags: list[int] = []
        self.cancelled: list[str] = []
        self.queue = queue
        if not queue:
            self.queue = self.channel.queue_declare("", exclusive=True).method.queue
            self.channel.queue_bind(self.queue, "amq.topic", "PRICES.#")
        self.channel.add_on_cancel_callback(lambda frame: self.cancelled.append(frame.method.consumer_tag))
        self.tag = self.channel.basic_consume(self.queue, self._received)

    def _received(self, channel: BlockingChannel, method: pika.spec.Basic.Deliver, properties: object, body: bytes):
        self.got.append(body.decode())
        self.tags.append(method.delivery_tag)

    def settle(self) -> None:
        """All that was sent up to now is here."""
        self.channel.exchange_declare("amq.topic", passive=True)
        self.connection.process_data_events(time_limit=0)

    def ack(self) -> None:
        """All of it; what comes for that is here afterwards."""
        self.channel.basic_ack(0, multiple=True)
        self.settle()


def publish(broker: SocketBroker, *bodies: str, key: str = "PRICES.X", exchange: str = "amq.topic", **headers: object):
    """Each is confirmed."""
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for body in bodies:
            channel.basic_publish(exchange, key, body.encode(), pika.BasicProperties(headers=headers or None))


def numbers(first: int, last: int) -> list[str]:
    return [str(number) for number in range(first, last + 1)]


def test_a_slow_and_a_fast_subscriber() -> None:
    """Queues page G.E, row E19."""
    with broker_with(policy("PRICES.>", limit("<constantPendingMessageLimitStrategy limit='10'/>"))) as broker:
        slow, fast = Subscriber(broker, prefetch=5), Subscriber(broker)
        publish(broker, *numbers(1, 100))
        slow.settle()
        fast.settle()
        assert slow.got == numbers(1, 5)
        assert fast.got == numbers(1, 100)
        for _ in range(3):
            slow.ack()
        assert slow.got == [*numbers(1, 5), *numbers(91, 100)]


@pytest.mark.parametrize(
    ("inner", "kept"),
    [
        (limit("<prefetchRatePendingMessageLimitStrategy multiplier='2.5'/>"), 25),
        (limit("<constantPendingMessageLimitStrategy limit='-1'/>"), 90),
        (limit("<constantPendingMessageLimitStrategy limit='0'/>"), 0),
    ],
    ids=["E20", "E23: all", "E23: none"],
)
def test_how_many_wait_beyond_the_prefetch(inner: str, kept: int) -> None:
    with broker_with(policy("PRICES.>", inner)) as broker:
        slow = Subscriber(broker, prefetch=10)
        publish(broker, *numbers(1, 100))
        slow.settle()
        assert slow.got == numbers(1, 10)
        for _ in range(12):
            slow.ack()
        assert slow.got[10:] == numbers(101 - kept, 100)


def test_the_last_of_each_value_is_kept() -> None:
    """Queues page G.E, row E21."""
    inner = limit(
        "<constantPendingMessageLimitStrategy limit='10'/>",
        "<uniquePropertyMessageEvictionStrategy propertyName='symbol'/>",
    )
    with broker_with(policy("PRICES.>", inner)) as broker:
        slow = Subscriber(broker, prefetch=1)
        publish(broker, "out")
        for number in range(50):
            publish(broker, str(number), symbol="ABC"[number % 3])
        slow.settle()
        for _ in range(12):
            slow.ack()
        assert len(slow.got) <= 11
        assert slow.got[-3:] == ["47", "48", "49"]


def test_who_never_acknowledges_is_cancelled(caplog: pytest.LogCaptureFixture) -> None:
    """Queues page G.E, row E24; what it had goes to another consumer, and the log says why."""
    text = (
        "[[address-setting]]\nmatch = 'q'\nabort-slow-consumer-after = 2000\nabort-slow-consumer-check-period = 500\n"
        "[[address]]\nname = 'q'\n[[address.queue]]\nname = 'q'\n"
    )
    with caplog.at_level(logging.WARNING, logger="leveret.amqp"), broker_with(text, "f.toml") as broker:
        slow = Subscriber(broker, prefetch=5, queue="q")
        publish(broker, *numbers(1, 20), key="q", exchange="")
        slow.settle()
        assert slow.got == numbers(1, 5)
        broker.advance_ms(3000)
        slow.settle()
        assert slow.cancelled == [slow.tag]
        broker.advance_ms(1000)
        other = Subscriber(broker, queue="q")
        other.settle()
        assert sorted(map(int, other.got)) == list(range(1, 21))
        status = broker.do(lambda: broker.control.run("status", {}))
        assert status["slow_consumers"] == {"cancelled": 1, "closed": 0, "reported": 0}
    assert "slow consumer" in caplog.text
    assert "15 messages are ready; cancelled" in caplog.text


def test_the_connection_is_closed() -> None:
    """Queues page G.E, row E25."""
    strategy = "<abortSlowConsumerStrategy maxSlowDuration='2000' checkPeriod='500' abortConnection='true'/>"
    entry = policy("PRICES.>", f"<slowConsumerStrategy>{strategy}</slowConsumerStrategy>")
    with broker_with(entry) as broker:
        slow = Subscriber(broker, prefetch=5)
        publish(broker, *numbers(1, 20))
        slow.settle()
        broker.advance_ms(3000)
        with pytest.raises(ConnectionClosedByBroker) as closed:
            slow.settle()
        assert closed.value.reply_code == 320
        assert "got nothing for" in closed.value.reply_text


def test_a_rate_that_is_too_low() -> None:
    """Artemis' KILL (address-settings page 3.6)."""
    text = (
        "[[address-setting]]\nmatch = 'q'\nslow-consumer-threshold = 1\nslow-consumer-policy = 'KILL'\n"
        "[[address]]\nname = 'q'\n[[address.queue]]\nname = 'q'\n"
    )
    with broker_with(text, "f.toml") as broker:
        slow = Subscriber(broker, queue="q")
        broker.advance_ms(5000)
        publish(broker, *numbers(1, 20), key="q", exchange="")
        slow.settle()
        broker.advance_ms(5000)
        with pytest.raises(ConnectionClosedByBroker) as closed:
            slow.settle()
        assert closed.value.reply_code == 320
        assert "acknowledged 0 messages in 5000 ms" in closed.value.reply_text


def test_a_subscriber_without_a_limit_holds_nobody_either() -> None:
    """Queues page G.E, rows E29 and E30: without producer flow control all of it is taken, whatever the memory limit.

    A subscriber that goes on gets it in order; one that dies leaves nothing behind.
    """
    with broker_with(policy("PRICES.>", "", "producerFlowControl='false' memoryLimit='10 kb'")) as broker:
        slow, fast, dying = (Subscriber(broker, prefetch=prefetch) for prefetch in (5, 0, 5))
        bodies = [f"{number:01000}" for number in range(100)]
        publish(broker, *bodies)
        fast.settle()
        assert fast.got == bodies
        for _ in range(20):
            slow.ack()
        assert slow.got == bodies
        dying.settle()
        assert len(dying.got) == 5
        dying.connection.close()
        for one in (slow, fast):
            one.ack()
        used = broker.do(lambda: {node.limit_name: node.used for node in broker.broker.flow.nodes()})
        assert set(used.values()) <= {0}


def test_a_client_that_pauses_its_deliveries() -> None:
    """Queues page G.E, row E32: flow-ok, no deliveries, basic.get as ever; active again, they come."""
    with broker_with("", "f.toml") as broker:
        subscriber = Subscriber(broker)
        publish(broker, "1")
        subscriber.settle()
        assert subscriber.channel.flow(False) is False
        publish(broker, "2", "3")
        subscriber.settle()
        assert subscriber.got == ["1"]
        method, _, body = subscriber.channel.basic_get(subscriber.queue, auto_ack=True)
        assert method is not None
        assert body == b"2"
        assert subscriber.channel.flow(True) is True
        subscriber.settle()
        assert subscriber.got == ["1", "3"]


@pytest.mark.parametrize("no_ack", [False, True])
def test_a_consumer_gets_more_than_fits_into_its_output(no_ack: bool) -> None:
    """Beyond a limit of unsent octets the connection is paused; it goes on when the kernel has taken them."""
    count, body = 40, bytes(UNSENT_MAX_DEFAULT // 8)
    with (
        broker_with("", "leveret.toml") as broker,
        pika.BlockingConnection(pika.URLParameters(broker.url)) as connection,
    ):
        channel = connection.channel()
        channel.queue_declare("deep")
        for number in range(count):
            channel.basic_publish("", "deep", body, pika.BasicProperties(message_id=str(number)))
        got = []
        for _, properties, _ in channel.consume("deep", auto_ack=no_ack, inactivity_timeout=10):
            got.append(properties and properties.message_id)
            if got[-1] is None or len(got) == count:
                break
        assert got == list(map(str, range(count)))
