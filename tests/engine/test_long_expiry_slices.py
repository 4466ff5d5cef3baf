"""More messages have expired than one slice takes: what lives behind them still comes to those who wait for it."""

from typing import Any

import pytest

from leveret.engine import MS
from leveret.engine.queues import queue as queue_module
from leveret.testing.harness import Harness

SLICE = 10

ALIVE = {"expiration": b"60000"}
IN_A_GROUP = {**ALIVE, "headers": {"JMSXGroupID": "a"}}
TAKES_ALL = {"x_filter": "1 = 1"}


@pytest.mark.parametrize("dead", [1, SLICE - 1, SLICE, SLICE + 1, 2 * SLICE, 2 * SLICE + 1, 5 * SLICE])
@pytest.mark.parametrize("at_once", [True, False], ids=["consumer waits", "consumer comes"])
@pytest.mark.parametrize(
    "arguments, properties",
    [({}, ALIVE), (TAKES_ALL, ALIVE), ({}, IN_A_GROUP)],
    ids=["plain", "filter", "group"],
)
def test_what_lives_is_delivered(
    monkeypatch: pytest.MonkeyPatch,
    *,
    arguments: dict[str, str],
    properties: dict[str, Any],
    at_once: bool,
    dead: int,
) -> None:
    """However the number of expired ones divides into slices, and without anything else that happens."""
    monkeypatch.setattr(queue_module, "EXPIRE_SLICE", SLICE)
    harness = Harness()
    harness.ends_turns = False
    harness.clock.advance_ns(MS)
    harness.queue(durable=False)
    if at_once:
        harness.consume(prefetch=1, **arguments)
        harness.publish("first", **properties)
    harness.publish(*["dead"] * dead, **{**properties, "expiration": b"1000"})
    harness.publish("alive", **properties)
    harness.finish_turns()
    harness.clock.advance_ns(2000 * MS)  # in which the process stood still
    if at_once:
        harness.session.ack(1, multiple=False)
    else:
        harness.consume(**arguments)
    harness.finish_turns()
    assert [one.body for one in harness.deliveries] == [b"first", b"alive"][not at_once :]
