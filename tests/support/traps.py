"""What the tests of traps share: where naive brokers differ from RabbitMQ (behaviour page 7)."""

from __future__ import annotations

from typing import Any

import pytest
from rawclient import Client
from spec_broker import SpecBroker, expect_channel_close

#: `@trap(14)`: what the number 14 of behaviour page 7 says.
trap = pytest.mark.trap

Q = "p.trap"


def filled(broker: SpecBroker, count: int, *, channels: int = 1) -> Client:
    """A client and the queue p.trap with the messages 0, 1, ... count - 1."""
    client = broker.open(channels=channels)
    client.call("queue.declare", queue=Q)
    for number in range(count):
        client.publish("", Q, str(number).encode())
    client.wait_for_ready(Q, count)
    return client


def not_found(client: Client, queue: str) -> None:
    """The queue does not exist."""
    client.send("queue.declare", queue=queue, passive=True)
    expect_channel_close(client, 404, f"NOT_FOUND - no queue '{queue}' in vhost '/'", (50, 10))
    client.call("channel.open")


def limited(broker: SpecBroker, **arguments: Any) -> Client:
    """A client and the queue p.trap with arguments, all dead letters of which go to p.dead."""
    client = broker.open()
    client.call("queue.declare", queue="p.dead")
    client.call("queue.declare", queue=Q, arguments={key.replace("_", "-"): value for key, value in arguments.items()})
    return client
