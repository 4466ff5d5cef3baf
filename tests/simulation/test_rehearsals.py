"""Restarts that are rehearsed: a broker finds all that there is, and whatever a start loses is seen at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from simulator import rehearsals
from simulator.parts import ClientPlan, Plan, QueuePlan
from simulator.world import World

from leveret.engine import Broker
from leveret.serving.composition import build_broker


def world() -> World:
    clients = [ClientPlan("publisher", 1, 1, {"queue": "a"}), ClientPlan("worker", 2, 2, {"queue": "a", "prefetch": 1})]
    configuration = '[journal]\nsegment-size = "16KiB"\n'
    return World(Plan(1, 2, configuration, [QueuePlan("a")], clients, pace=100.0, rehearsed=0.1))


def test_a_start_finds_what_there_is() -> None:
    """After a kill and after a power cut, at many moments."""
    played = world()
    assert played.run().fault is None
    assert played.lives.rehearsals.count > 5


def _loses_messages(broker: Broker) -> None:
    for queue in broker.virtual_hosts.queues():
        queue.purge()


def _loses_queues(broker: Broker) -> None:
    _loses_messages(broker)
    for vhost in broker.virtual_hosts.values():
        vhost.queues.clear()


@pytest.mark.parametrize(("loses", "words"), [(_loses_messages, "after a restart: lost"), (_loses_queues, "queue")])
def test_what_a_start_loses_is_seen(
    loses: Callable[[Broker], None], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def built(*of: Any, **named: Any) -> Any:
        made = build_broker(*of, **named)
        loses(made.broker)
        return made

    monkeypatch.setattr(rehearsals, "build_broker", built)
    fault = world().run().fault or ""
    assert "at this moment" in fault
    assert words in fault
