"""Each kind of fault, thrice in a short life: nothing is lost, and everything comes to rest."""

from __future__ import annotations

import pytest
from simulator.explored import FAULT
from simulator.faults import FAULTS
from simulator.faults.sites import SITE_FAULTS
from simulator.plan import WEIGHTS, ClientPlan, FaultPlan, Plan, QueuePlan
from simulator.swarm import FAULT_GROUPS, OF_FEATURES, SETTLING
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
    """Those of sites, features, explorers and tenants where a world has them, others in short worlds alone."""
    groups = [*FAULT_GROUPS.values(), *(faults for _, faults in OF_FEATURES)]
    of_short = {kind for faults in groups for kind in faults}
    assert WEIGHTS.keys() | SITE_FAULTS.keys() | of_short | {FAULT, SETTLING} == FAULTS.keys()
