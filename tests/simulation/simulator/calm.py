"""Long stretches in which nobody begins anything: heartbeats, expiry, checkpoints by age and what else time brings."""

from __future__ import annotations

from random import Random

from .loop import SECOND
from .plan import Plan

#: Of worlds, how many have one.
SHARE = 0.5
LEAST_S, MOST_S = 600.0, 4 * 3600.0
#: Seconds between two faults in it, on average.
FAULT_EVERY_S = 1200.0
#: Clients keep their deliveries meanwhile.
WITHOUT_TIMEOUT = "consumer-timeout = -1\n"
BROKER = "[broker]\n"


def add_calm(plan: Plan, *, share: float = SHARE, least_s: float = LEAST_S, most_s: float = MOST_S) -> None:
    """To some worlds; what would come later comes as much later. Some of the faults come in it."""
    chance = Random(f"calm {plan.seed}")
    if chance.random() >= share:
        return
    at_s = chance.uniform(0, plan.seconds)
    for_s = chance.uniform(least_s, most_s)
    plan.seconds += for_s
    if BROKER not in plan.configuration:
        plan.configuration += BROKER
    plan.configuration = plan.configuration.replace(BROKER, BROKER + WITHOUT_TIMEOUT)
    plan.calms.append([at_s, at_s + for_s])
    for fault in plan.faults:
        if fault.at_s > at_s:
            is_meanwhile = chance.random() < for_s / FAULT_EVERY_S / len(plan.faults)
            fault.at_s += chance.uniform(0, for_s) if is_meanwhile else for_s


def calm_left_ns(plan: Plan, now_ns: int) -> int:
    """How long it still is calm; 0: it is not."""
    return next((int(end * SECOND) - now_ns for start, end in plan.calms if start <= now_ns / SECOND < end), 0)
