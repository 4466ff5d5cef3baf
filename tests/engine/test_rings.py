"""A limit drops only what no consumer has room for, whatever arrives together.

What one read brings is done in one turn, so the result must be as of one turn for each method. Source: address-settings
page 4.5, rules 1 and 3.
"""

from __future__ import annotations

from typing import Any

import pytest

from leveret.testing.harness import Harness

LIMITS: list[dict[str, Any]] = [
    {"x_ring_size": 1},
    {"x_ring_size": 1, "x_message_ttl": 60_000},
    {"x_ring_size": 1, "x_max_priority": 3},
    {"x_ring_size": 1, "x_max_length_bytes": 100},
    {"x_max_length": 1},
]


@pytest.mark.parametrize("is_one_read", [True, False])
@pytest.mark.parametrize("act", ["ack", "reject"])
@pytest.mark.parametrize("limit", LIMITS, ids=str)
def test_a_consumer_with_room_gets_what_would_be_dropped(limit: dict[str, Any], act: str, is_one_read: bool) -> None:
    """A is out, and B waits. The consumer settles A, so B goes out, and C drops nothing."""
    harness = Harness()
    queue = harness.queue(**limit)
    harness.consume(prefetch=1)
    harness.publish("A")
    harness.publish("B")
    harness.ends_turns = not is_one_read
    if act == "ack":
        harness.session.ack(1)
    else:
        harness.session.reject(1, requeue=False)
    if not is_one_read:
        harness.end_turn()
    harness.publish("C")
    harness.end_turn()
    assert (harness.taken(), harness.bodies()) == ("AB", [b"C"])
    assert queue.counters.replaced == queue.counters.dropped == 0
