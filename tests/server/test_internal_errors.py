"""A mistake of the broker in one connection's turn: that connection ends, the others go on, the log says why."""

from __future__ import annotations

import logging

import pika
import pytest
from configured_broker import load
from pika.exceptions import AMQPConnectionError
from socket_broker import SocketBroker

from leveret.amqp_frontend.session.session import AmqpSession


def test_it_ends_the_connection_whose_turn_it_was(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real, has_failed = AmqpSession.output_sent, False

    def fails_once(session: AmqpSession) -> None:
        nonlocal has_failed
        if not has_failed:
            has_failed = True
            raise RuntimeError("it is broken")
        real(session)

    with SocketBroker(load("", "leveret.toml")) as broker:
        parameters = pika.URLParameters(broker.url)
        parameters.blocked_connection_timeout = 10
        with pika.BlockingConnection(parameters) as other, caplog.at_level(logging.ERROR):
            channel = other.channel()
            broken = pika.BlockingConnection(parameters).channel()
            monkeypatch.setattr(AmqpSession, "output_sent", fails_once)
            with pytest.raises(AMQPConnectionError):
                broken.queue_declare("q")  # it is declared, and the connection ends
                broken.queue_declare("q")
            assert channel.queue_declare("q").method.queue == "q"
            assert has_failed and "internal error" in caplog.text and "it is broken" in caplog.text
