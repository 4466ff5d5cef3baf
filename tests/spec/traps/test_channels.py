"""Channels, and methods on their way when one closes: where naive brokers differ from RabbitMQ."""

from __future__ import annotations

from typing import Any

import pytest
from spec_broker import SpecBroker, close_of, expect_channel_close
from traps import Q, not_found, trap


@trap(15)
def test_pipelined_behind_a_channel_close(broker: SpecBroker) -> None:
    """What was pipelined behind the broker's channel.close is ignored; after close-ok the number is free."""
    client = broker.open()
    client.call("queue.declare", queue=Q)
    client.send("basic.ack", delivery_tag=99)
    client.send("queue.declare", queue="p.ignored")
    client.publish("", Q, b"ignored")
    expect_channel_close(client, 406, "PRECONDITION_FAILED - unknown delivery tag 99", (60, 80))
    client.call("channel.open")
    assert client.get(Q) is None
    not_found(client, "p.ignored")


@trap(16)
def test_crossing_channel_closes(broker: SpecBroker) -> None:
    """A channel.close of the client that crosses the broker's is answered close-ok; the number is then free."""
    client = broker.open()
    client.send("basic.ack", delivery_tag=99)
    client.send("channel.close", reply_code=200)
    client.expect("channel.close")
    client.expect("channel.close-ok")
    client.send("channel.close-ok")
    client.call("channel.open")


@trap(17)
@pytest.mark.parametrize(
    ("method", "values", "code", "ids"),
    [
        ("queue.declare", {"queue": "amq.foo"}, 403, (50, 10)),
        ("exchange.declare", {"exchange": "amq.foo", "type": "direct"}, 403, (40, 10)),
        ("queue.bind", {"queue": "p.none", "exchange": "amq.direct"}, 404, (50, 20)),
        ("queue.purge", {"queue": "p.none"}, 404, (50, 30)),
        ("exchange.delete", {"exchange": "amq.direct"}, 403, (40, 20)),
        ("basic.consume", {"queue": "p.none"}, 404, (60, 20)),
    ],
)
def test_nowait_errors_are_told(
    method: str, values: dict[str, Any], code: int, ids: tuple[int, int], broker: SpecBroker
) -> None:
    """nowait suppresses the -ok, never the error."""
    client = broker.open()
    client.send(method, nowait=True, **values)
    actual = close_of(client.expect("channel.close"))
    assert (actual[0], actual[2:]) == (code, ids)
