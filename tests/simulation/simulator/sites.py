"""Sites in half of the worlds with leased queues, of a seed of their own: who owns messages, and who sees a queue.

The clients of these queues are connected at sites, which go and come back; each broker is at one of them.
"""

from __future__ import annotations

from copy import deepcopy
from random import Random
from typing import Any

from .parts import ClientPlan, FaultPlan, Plan, QueuePlan
from .queue_kinds import _text

#: How many worlds with leased queues have sites.
SHARE = 0.5
#: Each site, and its group.
SITES = {"s1": "east", "s2": "east", "s3": "west"}
#: The sites of a queue of some: by their group, or by this domain.
SOME, DOMAIN = ("s1", "s2"), "money"
#: Owners of all messages of such a queue; the last one is no site.
INITIAL = ("s1", "s2", "s9")
#: Seconds between two sites that go, on average.
GOES_EVERY_S = 1.0


def add_sites(plan: Plan) -> None:
    """Give a plan sites, or leave it as it is."""
    chance = Random(f"sites {plan.seed}")
    leased = [queue for queue in plan.queues if "leased" in queue.features]
    if not leased or chance.random() >= SHARE:
        return
    plan.sites = dict(SITES)
    for queue in leased:
        _of_sites(plan, chance, queue)
    at_s = 0.0
    while chance.random() < 0.8 and (at_s := at_s + chance.expovariate(1 / GOES_EVERY_S)) < plan.seconds:
        plan.faults.append(FaultPlan(at_s, "site goes", chance.getrandbits(32)))
    plan.faults.sort(key=lambda fault: fault.at_s)


def _of_sites(plan: Plan, chance: Random, queue: QueuePlan) -> None:
    """A queue is of all sites, of some, or of one, which then has a namesake; or nobody owns its messages."""
    clients = [client for client in plan.clients if client.options.get("queue") == queue.name]
    replication = chance.choice(("distributed", "distributed", "group", "local", ""))
    hosts = {"group": SOME, "local": SOME[:1]}.get(replication, tuple(SITES))
    sited: dict[str, Any] = {"called": queue.name, "hosts": list(hosts), "initial": ""}
    if replication:
        queue.arguments["x-replication"] = _text(replication)
    if replication == "group":
        sited["initial"] = chance.choice(INITIAL)
        queue.arguments["x-initial-owner"] = _text(sited["initial"])
        scope = chance.choice((DOMAIN, SITES[SOME[0]]))
        if scope == DOMAIN:
            queue.arguments["x-queue-domain"] = _text(DOMAIN)
        queue.name = f"{queue.name}@{scope}"
    elif replication == "local":
        other = QueuePlan(f"{queue.name}@{SOME[1]}", queue.durable, dict(queue.arguments), deepcopy(queue.features))
        other.features["sited"] = {**sited, "hosts": [SOME[1]]}
        plan.queues.append(other)
        for client in clients:  # one of each kind there
            if client.kind not in {one.kind for one in plan.clients if one.options.get("queue") == other.name}:
                options = {**client.options, "queue": other.name, "site": SOME[1]}
                plan.clients.append(ClientPlan(client.kind, len(plan.clients) + 1, chance.getrandbits(32), options))
        queue.name = f"{queue.name}@{SOME[0]}"
    if replication:
        queue.features["sited"] = sited
    for client in clients:
        client.options |= {"queue": queue.name, "site": chance.choice(hosts)}


def called(queue: QueuePlan) -> str:
    """What clients call a queue."""
    return str(queue.features["sited"]["called"]) if "sited" in queue.features else queue.name
