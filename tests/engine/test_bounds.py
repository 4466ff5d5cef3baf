"""Bounds are asked in one order, whatever the kind of queue: the address and the broker as a whole come first.

Source: address-settings page 3.3; queues page E.6.
"""

from __future__ import annotations

from typing import Any

import pytest
from leased_desk import LeasedDesk
from subscribers import Bench, Subscriber, numbers, topics

from leveret.engine.messages.field_table import Field
from leveret.settings import WholeLimits, entry

THREE = WholeLimits(messages_max=3)
PENDING: list[dict[str, Any]] = [
    {"pending_message_limit": 100},
    {"pending_message_limit": 100, "message_eviction": "lowest-priority"},
    {"pending_message_limit": 100, "default_ring_size": 50},
    {"pending_message_limit": 2},
]


@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize("policy", ["DROP", "FAIL"])
@pytest.mark.parametrize("bound", ["whole", "address"])
@pytest.mark.parametrize("pending", PENDING, ids=str)
def test_a_slow_subscriber(pending: dict[str, Any], bound: str, policy: str, at_once: bool) -> None:
    """What its address drops, or the broker has no room for, does not wait for it."""
    limits = {"max_size_messages": 3} if bound == "address" else {}
    whole = {"whole": THREE} if bound == "whole" else {}
    settings = {"address_full_policy": policy, **limits}
    if "default_ring_size" in pending:
        settings["default_ring_size"] = pending["default_ring_size"]
    own = {key: value for key, value in pending.items() if key != "default_ring_size"}
    bench = Bench(entry("#", **settings), destinations=topics(PRICES_=own), **whole)  # type: ignore[arg-type]
    subscriber = Subscriber(bench, "q", consumes=False).bind("#")
    subscriber.consume()
    subscriber.session.set_prefetch(1, total=False)
    subscriber.reads = False
    bench.publish(*numbers(1, 8), at_once=at_once)
    assert subscriber.queue.ready_count + subscriber.queue.unacked <= 3


@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize(
    "arguments",
    [{}, {"x-ring-size": 100}, {"x-max-length": 100}, {"x-max-priority": 3}, {"x-last-value-key": b"k"},
     {"x-non-destructive": True}, {"x-message-ttl": 60_000}, {"x-ring-size": 100, "x-message-ttl": 60_000}],
    ids=str,
)  # fmt: skip
def test_other_queues(arguments: dict[str, Any], at_once: bool) -> None:
    """With any other bound beside it."""
    bench = Bench(entry("#", address_full_policy="DROP"), whole=THREE)
    table = {
        key: Field("S" if isinstance(value, bytes) else "t" if value is True else "l", value)
        for key, value in arguments.items()
    }
    queue = bench.vhost.queues.declare("q", client=None, durable=True, arguments=table)
    bench.vhost.bindings.add("queue", "q", "amq.topic", "#", {})
    bench.publish(*numbers(1, 8), at_once=at_once)
    assert queue.ready_count == 3


@pytest.mark.parametrize("headers", [None, {"x-delay": 1000}], ids=str)
def test_a_leased_queue(headers: dict[str, Any] | None) -> None:
    """Also delayed messages."""
    desk = LeasedDesk('[[address-setting]]\nmatch = "#"\nmax-size-messages = 3\naddress-full-policy = "FAIL"\n')
    desk.declare("q", x_queue_type="amps")
    outcomes = desk.publish(*"ABCDE", **({"headers": headers} if headers else {}))
    assert outcomes == ["ack"] * 3 + ["nack"] * 2
    desk.advance_ms(1000)
    assert desk.counts()[0] == 3
