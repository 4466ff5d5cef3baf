"""Worlds in which a planted fault has something to spoil: as any others, but short, and at rest every other second.

Where what it takes is rare, it comes often: a world of 20 seconds has no user that was deleted before a crash.
"""

from __future__ import annotations

from itertools import count
from random import Random

from .plan import FaultPlan, Plan, make_plan
from .swarm import make_swarm

#: Virtual seconds of each world, and between two pauses and two of the faults that come often, on average.
WORLD_S = 10.0
PAUSE_EVERY_S = 2.0
OFTEN_S = 0.5
#: Clients that are left where what they do hardly matters.
FEW = 4

#: Planted fault -> the faults that come often.
OFTEN = {
    "forgotten fsync": ("power cut", "strike", "kill"),
    "deleted user is back": ("operator adds a user", "operator deletes a user", "kill", "power cut"),
}
#: Planted fault -> some queue of the world has one of these features.
NEEDS = {
    "doubled dead letter": ("dead_letter_to", "dead_letter_address"),
    "forgotten expiry": ("ttl_ms", "expirations"),
    "ring one too many": ("ring_size",),
    "lease never ends": ("leased",),
    "lease granted twice": ("leased",),
    "tombstone refused": ("leased",),
    "dropped held publish": ("flow",),
    "nobody woken when there is room": ("flow",),
}
#: Those of short worlds, all of which have sites.
OF_SITES = (
    "owner forgotten at transfer",
    "stranded for ever",
    "backlog counted over all sites",
    "scope ignored in capture",
)
#: Worlds that lack them are passed over; the next one to look at is so far away that nobody else comes there.
STEP = 10**9
#: Those for which few clients are enough.
OF_OPERATORS = ("deleted user is back",)


def plan_for(name: str | None, seed: int) -> Plan:
    """A world with this fault; None: with none."""
    if name in OF_SITES:
        plan = next(plan for at in count(seed, STEP) if (plan := make_swarm(at)).sites)
        plan.planted = name
        return plan
    plan = next(plan for at in count(seed, STEP) if _has(plan := make_plan(at, WORLD_S), NEEDS.get(name or "", ())))
    plan.planted = name
    chance = Random(f"planted {seed}")
    if name in OF_OPERATORS:
        plan.clients = plan.clients[:FEW]
    at_s = 0.0
    while (at_s := at_s + chance.expovariate(1 / PAUSE_EVERY_S)) < WORLD_S:
        plan.pauses.append(at_s)
    at_s = 0.0
    while name in OFTEN and (at_s := at_s + chance.expovariate(1 / OFTEN_S)) < WORLD_S:
        plan.faults.append(FaultPlan(at_s, chance.choice(OFTEN[name]), chance.getrandbits(32)))
    plan.pauses.sort()
    plan.faults.sort(key=lambda fault: fault.at_s)
    return plan


def _has(plan: Plan, needs: tuple[str, ...]) -> bool:
    return not needs or any(feature in queue.features for queue in plan.queues for feature in needs)
