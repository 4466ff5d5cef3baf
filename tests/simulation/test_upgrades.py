"""Journals that an earlier release wrote, in worlds where things go wrong from the start."""

from __future__ import annotations

import pytest
from simulator.past import JOURNALS
from simulator.plan import ClientPlan, FaultPlan, Plan, add_past
from simulator.world import World

NAMES = sorted(file.stem for file in JOURNALS.glob("*.json"))
FAULTS = ("kill", "power cut", "strike the start", "bit rot")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", FAULTS)
def test_what_the_release_before_left(name: str, kind: str) -> None:
    """All of it is there, once, and is consumed."""
    plan = Plan(1, 3, '[journal]\nsegment-size = "16KiB"\n', [], [], [FaultPlan(0.1, kind, 1), FaultPlan(1, kind, 2)])
    add_past(plan, name, first_seed=7)
    plan.clients.append(ClientPlan("publisher", 50, 50, {"queue": "old.b"}))
    report = World(plan).run()
    assert report.fault is None
    assert report.deliveries > 50
