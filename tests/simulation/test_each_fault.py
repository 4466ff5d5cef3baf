"""Each kind of fault, thrice in a short life: nothing is lost, and everything comes to rest."""

from __future__ import annotations

import pytest
from simulator.faults import FAULTS
from simulator.faults.messages import MESSAGE_FAULTS
from simulator.faults.sites import SITE_FAULTS
from simulator.plan import WEIGHTS, ClientPlan, FaultPlan, Plan, QueuePlan
from simulator.swarm import OF_FEATURES
from simulator.world import World


@pytest.mark.parametrize("kind", FAULTS)
def test_a_world_with_this_fault(kind: str) -> None:
    clients = [ClientPlan("publisher", 1, 1, {"queue": "a"}), ClientPlan("worker", 2, 2, {"queue": "a"})]
    faults = [FaultPlan(1 + at, kind, at) for at in range(3)]
    configuration = '[journal]\nsegment-size = "16KiB"\nreserve = "64KiB"\n'
    report = World(Plan(1, 6, configuration, [QueuePlan("a")], clients, faults)).run()
    assert report.fault is None
    assert report.happened[f"fault: {kind}"] == 3


def test_every_fault_can_come() -> None:
    """Those of sites and features where a world has them, those of messages in short worlds."""
    of_features = {kind for _, faults in OF_FEATURES for kind in faults}
    assert WEIGHTS.keys() | SITE_FAULTS.keys() | MESSAGE_FAULTS.keys() | of_features == FAULTS.keys()
