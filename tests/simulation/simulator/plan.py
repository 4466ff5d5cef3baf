"""What a world is made of: everything that a seed decides, written out, so that parts can be left out and kept as JSON.

Each client and each fault draws from a seed of its own: without one of them, the others still do what they did.
"""

from __future__ import annotations

from random import Random

from .flow_kinds import SHARE, WITH_SYSTEM, limits_of_all
from .inhabitants import DEAD, inhabit
from .lease_kinds import SHARE as LEASED_SHARE
from .lease_kinds import add_leased
from .parts import ClientPlan, ExchangePlan, FaultPlan, Plan, QueuePlan
from .sites import add_sites

__all__ = ["ClientPlan", "ExchangePlan", "FaultPlan", "Plan", "QueuePlan", "make_plan"]

#: How often each fault comes, beside the others.
WEIGHTS = {
    "kill": 2,
    "power cut": 2,
    "strike": 3,
    "strike the process": 2,
    "strike the start": 2,
    "stop": 1,
    "kill while stopping": 1,
    "pause": 2,
    "clock jump": 1,
    "slow disk": 2,
    "short writes": 1,
    "failing writes": 1,
    "failing syncs": 1,
    "failing reads": 1,
    "no descriptors": 1,
    "no memory": 1,
    "full disk": 3,
    "read-only disk": 1,
    "bit rot": 1,
    "deleted segment": 1,
    "reset": 4,
    "reset in a frame": 2,
    "half-open": 2,
    "half-closed": 2,
    "stalled client": 4,
    "one-way stall": 2,
    "slow reader": 2,
    "latency": 1,
    "refused connections": 1,
    "strangers": 1,
    "operator adds a user": 3,
    "operator changes a user": 3,
    "operator deletes a user": 2,
    "operator sets a policy": 3,
    "operator clears a policy": 2,
    "operator sets a parameter": 1,
    "operator adds a virtual host": 3,
    "operator deletes a virtual host": 1,
    "operator blocks publishers": 1,
    "operator closes a connection": 1,
    "operator looks": 1,
    "operator imports what was exported": 1,
    "operator changes the configuration": 1,
    "operator changes limits": 2,
    "operator traces": 1,
}
#: Seconds between two pauses, on average.
PAUSE_EVERY_S = 20.0
#: Seconds between two faults, on average.
CALM_S = 5.0


def make_plan(seed: int, seconds: float = 60) -> Plan:
    """The world of a seed."""
    chance = Random(f"plan {seed}")
    plan = Plan(seed, seconds, _configuration(chance))
    flow = Random(f"flow {seed}")
    has_flow = flow.random() < SHARE
    has_system = has_flow and flow.random() < WITH_SYSTEM
    if has_flow:
        plan.configuration += limits_of_all(flow, has_system=has_system)
    inhabit(plan, Random(f"inhabitants {seed}"), has_flow=has_flow)
    for _ in range(0 if has_system else chance.choice((0, 0, 1, 3))):  # who leave messages that nobody takes
        options = {"user": chance.choice(("guest", "u0", "u1", "u2")), "vhost": chance.choice(("/", "v0", "v1"))}
        plan.clients.append(ClientPlan("tenant", len(plan.clients) + 1, chance.getrandbits(32), options))
    lease = Random(f"leased {seed}")
    if not has_system and lease.random() < LEASED_SHARE:
        add_leased(plan, lease, DEAD)
    if chance.random() < 0.15:
        add_past(plan, chance.choice(PASTS), first_seed=chance.getrandbits(32))
    at_s = 0.0
    while (at_s := at_s + chance.expovariate(1 / CALM_S)) < seconds:
        kind = chance.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
        plan.faults.append(FaultPlan(at_s, kind, chance.getrandbits(32)))
    add_sites(plan)
    plan.pauses = sorted(chance.uniform(0, seconds) for _ in range(int(seconds / PAUSE_EVERY_S)))
    return plan


#: What there is of earlier releases, and the queues in it.
PASTS = ("2026-11-22_durable", "2026-11-22_all", "2026-11-22_killed")
OLD_QUEUES = {"old.a": {}, "old.b": {}, "old.quorum": {"x-queue-type": ("S", "quorum")}}


def add_past(plan: Plan, name: str, *, first_seed: int) -> None:
    """The world begins with what an earlier release left; somebody consumes it."""
    plan.past = name
    for at, (queue, arguments) in enumerate(OLD_QUEUES.items()):
        plan.queues.append(QueuePlan(queue, arguments=dict(arguments)))
        plan.clients.append(ClientPlan("worker", len(plan.clients) + 1, first_seed + at, {"queue": queue}))


def _configuration(chance: Random) -> str:
    lines = ["[journal]", f'segment-size = "{chance.choice(("16KiB", "64KiB", "1MiB"))}"']
    lines.append(f'fsync = "{chance.choice(("commit", "commit", "commit", "interval", "never"))}"')
    lines.append(f'fsync-interval = "{chance.choice(("50ms", "1s"))}"')
    lines.append(f'scope = "{chance.choice(("durable", "durable", "all"))}"')
    lines.append(f'reserve = "{chance.choice(("0B", "64KiB", "1MiB"))}"')
    if chance.random() < 0.3:
        lines.append('retain = "10s"')
    if chance.random() < 0.3:
        lines.append('segment-age = "5s"')
    lines += ["[limits]", f'memory = "{chance.choice(("256MiB", "256MiB", "64KiB", "1MiB"))}"']
    return "\n".join(lines) + "\n"
