"""Much work of one client through real sockets: it is all done and answered in order, and others are served."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pika
import pytest
from desk import load
from socket_broker import SocketBroker

from leveret.testing import start_broker

COUNT = 6_000
QUEUES = 300


@contextmanager
def _url(kind: str, path: Path) -> Iterator[str]:
    if kind == "sockets":
        with SocketBroker(load("")) as socket_broker:
            yield socket_broker.url
    else:
        with start_broker(data=path) as broker:
            yield broker.url


@pytest.mark.parametrize("kind", ["sockets", "test broker with a journal"])
def test_a_large_commit_and_a_wide_fanout(kind: str, tmp_path: Path) -> None:
    """tx.commit of thousands of messages, a burst to hundreds of queues with confirms, and what is sent behind them."""
    persistent = pika.BasicProperties(delivery_mode=2)
    with _url(kind, tmp_path / "data") as url:
        connection, other = (pika.BlockingConnection(pika.URLParameters(url)) for _ in range(2))
        channel = connection.channel()
        channel.queue_declare("q", durable=True)
        channel.tx_select()
        for _ in range(COUNT):
            channel.basic_publish("", "q", b"", persistent)
        channel.tx_commit()
        assert channel.queue_declare("q", passive=True).method.message_count == COUNT

        setup = other.channel()
        setup.exchange_declare("f", "fanout", durable=True)
        for number in range(QUEUES):
            setup.queue_declare(f"q{number}", durable=True)
            setup.queue_bind(f"q{number}", "f")
        burst = connection.channel()
        for number in range(200):
            burst.basic_publish("f", "", b"%d" % number, persistent)
        assert burst.queue_declare("q7", passive=True).method.message_count == 200
        confirmed = connection.channel()
        confirmed.confirm_delivery()
        for _ in range(3):
            confirmed.basic_publish("f", "", b"x", persistent)
        assert {setup.queue_declare(f"q{n}", passive=True).method.message_count for n in range(QUEUES)} == {203}
        bodies = [setup.basic_get("q7", auto_ack=True)[2] for _ in range(200)]
        assert bodies == [b"%d" % number for number in range(200)]
        for one in (connection, other):
            one.close()
