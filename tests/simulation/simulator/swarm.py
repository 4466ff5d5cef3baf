"""Short worlds that have few things, and small limits: what is rare in a long world is common in some of these.

A world of everything seldom comes far with any of it. So each draws which kinds of queues, clients and faults it has at
all, and the broker's own limits (slices, pages, memories), whose end a long world never meets, are a few messages.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from importlib import import_module
from random import Random
from typing import Any
from unittest.mock import patch

from .calm import BROKER, add_calm
from .explored import add_explorers
from .flow_kinds import FLOW_KINDS, limits_of_all
from .inhabitants import DEAD, add_exchange_client, add_queue_clients, make_exchange, multiply
from .lease_kinds import add_leased
from .more_kinds import MORE_KINDS
from .parts import COUNTS_DELIVERIES, NORMAL_PACE, ClientPlan, FaultPlan, Plan, QueuePlan
from .plan import make_plan
from .queue_kinds import QUEUE_KINDS, Kind, Settings, make_queue
from .selectors import TAKES
from .sites import add_sites

#: Modules below `leveret`, their constants, and what these may be instead.
SMALL: dict[str, dict[str, tuple[int, ...]]] = {
    "engine.broker": {"TURN_END_EFFORT": (20, 200)},
    "engine.background": {"FREE_SLICE": (5,)},
    "engine.clients.transaction": {"COMMIT_SLICE": (2, 20)},
    "engine.reloading": {"SETTINGS_SLICE": (1,)},
    "engine.dead_letters": {"DEAD_LETTERS_EFFORT": (1, 20), "LETTERS_MAX": (1, 5)},
    "engine.delivery.filter_groups": {"RETURNED_MAX": (5,)},
    "engine.leases.consumer_list": {"DEAL_MAX": (2,)},
    "engine.delivery.consumer_list": {"SHARE_MAX": (2,), "RUN_MAX": (4,)},
    "engine.disconnects": {"CLIENTS_SLICE": (1,), "QUEUES_SLICE": (1,)},
    "engine.turn": {"PART_COST_MAX": (20, 200)},
    "engine.bulk_delete": {"WAIT_MAX": (3,)},
    "engine.flow.control": {"RELEASE_EFFORT": (1, 20)},
    "engine.clients.settling": {"REQUEUE_SLICE": (2, 10)},
    "engine.clients.unacked": {"SETTLED_MAX": (2,)},
    "engine.leases.control": {"DISCARD_SLICE": (2,)},
    "engine.queues.classic": {"STRAIGHT_MIN": (1, 4), "PASSED_MAX": (5,)},
    "engine.queues.queue": {"EXPIRE_SLICE": (2,), "EXPIRE_OCTETS": (100,), "DEAD_LETTERED_MAX": (2,)},
    "engine.leases.ending": {"EXPIRE_SLICE": (2,), "END_SLICE": (2,)},
    "engine.leases.dispatch": {"BROWSE_SLICE": (3,)},
    "engine.leases.intake": {"BUILD_SLICE": (2,)},
    "engine.leases.book": {"TOGETHER_NS": (1,)},
    "engine.leases.by_site": {"OWN_MAX": (1, 3)},
    "engine.queues.bounds": {"TRIM_SLICE": (2,)},
    "engine.queues.non_destructive": {"BATCH": (2,), "SEARCH_EFFORT": (5,)},
    "engine.queues.searching": {"STEP": (3,), "OVERRUN_EFFORT": (5,), "WINDOW": (5,)},
    "engine.queues.selection": {"FOUND_MAX": (3,), "PASSED_MAX": (5,), "DEAD_LETTERED_MAX": (2,)},
    "engine.stores.non_destructive_store": {"MEASURE_OCTETS": (200,), "SPARE_KEYS": (2,)},
    "engine.stores.last_value_store": {"SHARE_EVERY": (3,)},
    "engine.stores.memory_budget": {"FLOOR": (500, 4000), "SMALL": (100, 1000), "TAKE_MIN": (500, 4000)},
    "engine.stores.paged_index": {"COMPACT_MIN": (3,)},
    "engine.stores.paged_run": {"RUN_MAX": (2, 8), "APART_MIN": (1, 4)},
    "engine.stores.sorted_list": {"BLOCK": (4,)},
    "engine.leases.ranked_store": {"BLOCK_MAX": (4,)},
    "engine.stores.stream_store": {"MEASURE_OCTETS": (200,)},
    "engine.stores.tailed_store": {"PAGE_SLICE": (2, 10)},
    "journal.disk.segment": {"INDEX_STEP": (256,)},
    "journal.disk.writer": {"BLOCK_SIZE_MAX": (600, 4000)},
    "journal.recovery.content_reader": {"OPEN_FILES_MAX": (1,), "READ_SIZE": (64, 1000), "NEAR": (16,)},
    "journal.recording.checkpoint": {"EXAMINED_SLICE": (5,), "RUNS_SPARE": (5,)},
    "journal.recording.message_index": {"KEEP_SLICE": (5,)},
    "journal.recording.pager": {"CACHED_MAX": (2,)},
    "journal.recording.duplicate_ids": {"RECORDED_SLICE": (2,)},
    "journal.appending.segment_usage": {"BULK_MIN": (2,)},
    "journal.recovery.recovered": {"COMPACT_MIN": (2,), "SPARE": (2,)},
    "journal.recovery.snapshot": {"PART_MESSAGES": (3,)},
    "amqp_frontend.peer.channel": {"EFFORT_MAX": (20, 200)},
    "amqp_frontend.peer.deliveries": {"KNOWN_MAX": (4,)},
    "amqp_frontend.flow.parking": {"PARKED_MAX": (5,)},
    "amqp_frontend.edge.endpoint": {"READ_SIZE": (500, 4000)},
    "amqp_frontend.wire.large_body": {"LARGE_MIN": (500,)},
    "amqp_frontend.wire.large_output": {"LARGE": (500,)},
    "amqp_frontend.wire.runs": {"RUN_MIN": (2,)},
    "amqp_frontend.peer.output": {"REPLIES_MAX": (2000,)},
    "amqp_frontend.wire.publish_cache": {"PROPERTY_LISTS_MAX": (4,), "KINDS_MAX": (4,)},
}
#: Groups of faults, of which a world has some or none, and how often each of a group comes beside the others.
FAULT_GROUPS: dict[str, dict[str, int]] = {
    "lives": {
        "kill": 3, "power cut": 3, "stop": 2, "strike": 2, "strike where files change": 3, "strike the process": 2,
        "strike the start": 1,
    },
    "ends": {"kill while stopping": 2, "stop": 1},
    "connections": {"reset": 3, "reset in a frame": 2, "half-open": 1, "half-closed": 1, "refused connections": 1},
    "readers": {"stalled client": 3, "one-way stall": 2, "slow reader": 2},
    "time": {"pause": 1, "clock jump": 1, "latency": 1},
    "disk": {"slow disk": 2, "short writes": 1, "failing writes": 1, "failing syncs": 1, "failing reads": 1},
    "room": {"full disk": 3, "no memory": 1, "no descriptors": 1, "read-only disk": 1},
    "damage": {"bit rot": 1, "deleted segment": 1},
    "users": {
        "operator adds a user": 3, "operator changes a user": 3, "operator deletes a user": 2,
        "operator adds a virtual host": 3, "operator deletes a virtual host": 1,
        "operator imports what was exported": 1,
    },
    "policies": {"operator sets a policy": 3, "operator clears a policy": 2, "operator sets a parameter": 3},
    "operators": {
        "operator blocks publishers": 2, "operator closes a connection": 2, "operator looks": 1,
        "operator changes the configuration": 2, "operator traces": 1,
    },
    "limits": {"operator changes limits": 1},
    "messages": {
        "operator moves messages": 4, "operator discards messages": 1, "operator purges a queue": 1,
        "operator pauses a queue": 2,
    },
    "strangers": {"strangers": 1},
}  # fmt: skip
#: What comes only where a queue has one of these features, and then in most worlds.
OF_FEATURES: tuple[tuple[frozenset[str], dict[str, int]], ...] = (
    (frozenset({"delays", "delay_ms"}), {"operator changes what is scheduled": 1}),
    (frozenset({"leased"}), {"operator changes lease periods": 1}),
)
#: What operators do first where there are tenants.
SETTLING = "operator settles tenants"
#: Clients that may close their channel, and open it again.
LEAVING = frozenset({"publisher", "worker", "borrower", "getter"})
#: While these last, publishes wait or are refused.
TROUBLING = frozenset({"operator blocks publishers", *FAULT_GROUPS["disk"], *FAULT_GROUPS["room"]})
#: Queues that any message may come to.
PLAIN_KINDS = frozenset({"plain", "volatile", "rejecting", "delayed", "quorum", "ring", "bounded", "single-active"})
#: How likely a world has each of these groups; of the others it has three at most.
LIKELY = {"lives": 0.7, "connections": 0.3}
#: Groups after whose faults much begins anew, or nothing goes on for a while, and seconds between two of them.
DEAR, DEAR_S = frozenset({"lives", "ends", "time", "disk", "room", "damage", "strangers"}), (0.3, 0.7, 1.5)
#: The same for all others.
CHEAP_S = (0.05, 0.15, 0.5)


#: Of so many worlds one is long, and has everything.
LONG_EVERY = 200


def make_world(seed: int) -> Plan:
    """The world of a seed: short, or long now and then."""
    if seed % LONG_EVERY:
        return make_swarm(seed)
    plan = make_plan(seed)
    plan.checked = 0.1
    if any("leased" in queue.features for queue in plan.queues):  # each lease ends again and again: millions of them
        add_calm(plan, least_s=30, most_s=120)
    else:
        add_calm(plan)
    return plan


def make_swarm(seed: int) -> Plan:
    """The short world of a seed."""
    chance = Random(f"swarm {seed}")
    plan = Plan(seed, chance.choice((1.0, 2.0, 4.0)), _configuration(chance))
    if Random(f"counts {seed}").random() < 0.15:
        plan.configuration += BROKER + COUNTS_DELIVERIES
    has_flow = chance.random() < 0.3
    has_system = has_flow and chance.random() < 0.3
    if has_flow:
        plan.configuration += limits_of_all(chance, has_system=has_system)
    if chance.random() < 0.7:
        plan.limits = _limits(chance)
    plan.checked = chance.choice((1.0, 0.3))
    plan.punctual = True
    plan.pace = Random(f"pace {seed}").choice((40.0, 100.0, 200.0))
    plan.seconds *= (NORMAL_PACE / plan.pace) ** 0.5
    plan.rehearsed = Random(f"rehearsals {seed}").choice((0, 0.003, 0.01, 0.03))
    plan.read_every = chance.choice((0, 0, 0.1, 0.4))
    if plan.read_every:  # who reads on looks through the rest of the open segment each time
        plan.configuration = plan.configuration.replace('segment-size = "1MiB"', 'segment-size = "64KiB"')
    _inhabit(plan, chance, has_flow=has_flow, has_system=has_system)
    _add_faults(plan, chance)
    if any(fault.kind == "strangers" for fault in plan.faults) and (few := Random(f"few {seed}").choice((0, 8, 16))):
        plan.configuration = plan.configuration.replace("[limits]\n", f"[limits]\nhalf-open-connections = {few}\n")
    add_sites(plan)
    if not has_system and not plan.sites:
        add_explorers(plan)
    is_calm = not has_flow and not any(fault.kind in TROUBLING for fault in plan.faults)
    if is_calm and 'scope = "durable"' in plan.configuration and chance.random() < 0.4:
        plan.clients.append(ClientPlan("clumsy", len(plan.clients) + 1, chance.getrandbits(32), {"queue": DEAD}))
    _give_habits(plan, Random(f"habits {seed}"))
    if not any("leased" in queue.features for queue in plan.queues):  # leases would end, again and again
        add_calm(plan, share=0.15, least_s=12, most_s=40)
    return plan


def vary(plan: Plan, number: int) -> None:
    """The same inhabitants and limits, and another story: what they do and when faults come is drawn anew."""
    chance = Random(f"variant {plan.seed} {number}")
    plan.seed = chance.getrandbits(31)
    for client in plan.clients:
        client.seed = chance.getrandbits(32)
    busy_s = min((start for start, _ in plan.calms), default=plan.seconds)
    for fault in plan.faults:
        fault.seed = chance.getrandbits(32)
        if 0 < fault.at_s < busy_s:
            fault.at_s = chance.uniform(0, busy_s)
    plan.faults.sort(key=lambda fault: fault.at_s)


def _give_habits(plan: Plan, chance: Random) -> None:
    """What clients ask for when they connect, and how they cut what they send."""
    for client in plan.clients:
        channels = client.options.get("channels", [[client.kind, client.options]])
        if chance.random() < 0.3:
            client.options["frame_max"] = chance.choice((4096, 5000, 64 * 1024))
        if chance.random() < 0.3:
            client.options["heartbeat"] = 1
        if client.kind in ("tenant", "explorer") and chance.random() < 0.4:
            client.options["hears_cancels"] = False
        if chance.random() < 0.5:
            client.options["channel_max"] = len(channels)
        for kind, options in channels:
            if kind in LEAVING and chance.random() < 0.15:
                options["leaves"] = True
            if kind == "publisher" and chance.random() < 0.2:
                options["cuts"] = True
            if kind == "publisher" and chance.random() < 0.3:
                options["mixes"] = True
            if options.get("mode") == "none" and not any(exchange for exchange, _ in options.get("targets", ())):
                options["asks"] = True


def _configuration(chance: Random) -> str:
    lines = ["[journal]", f'segment-size = "{chance.choice(("16KiB",) * 9 + ("64KiB", "64KiB", "1MiB"))}"']
    lines.append(f'fsync = "{chance.choice(("commit", "commit", "commit", "commit", "interval", "never"))}"')
    lines.append(f'fsync-interval = "{chance.choice(("50ms", "1s"))}"')
    lines.append(f'scope = "{chance.choice(("durable", "durable", "all"))}"')
    lines.append(f'reserve = "{chance.choice(("0B", "64KiB"))}"')
    if chance.random() < 0.2:
        lines.append(f'retain = "{chance.choice(("200ms", "1s"))}"')
    if chance.random() < 0.3:
        lines.append(f'segment-age = "{chance.choice(("500ms", "2s"))}"')
    lines += ["[limits]", f'memory = "{chance.choice(("256MiB", "1KiB", "8KiB", "64KiB"))}"']
    return "\n".join(lines) + "\n"


def _limits(chance: Random) -> dict[str, int]:
    share = chance.choice((0.1, 0.4, 0.9))
    return {
        f"{module}.{name}": chance.choice(values)
        for module, constants in SMALL.items()
        for name, values in constants.items()
        if chance.random() < share
    }


def _inhabit(plan: Plan, chance: Random, *, has_flow: bool, has_system: bool) -> None:
    kinds: Mapping[str, tuple[int, Kind]] = {**QUEUE_KINDS, **MORE_KINDS}
    settings = Settings()
    # A dead letter makes this queue, without arguments, where a power cut has taken it away.
    dead = make_queue(chance, 0, settings, DEAD, kind="plain", name=DEAD)
    dead.features["unordered"] = True  # dead letters come when they come
    plan.queues.append(dead)
    is_leased = not has_system and chance.random() < 0.25
    some = (
        {"plain": kinds["plain"]}
        if chance.random() < 0.15
        else dict(chance.sample(list(kinds.items()), chance.choice((1, 2, 4))))
    )
    for number in range(1, 1 + chance.choice((1, 2, 3) if not is_leased else (0, 1))):
        of = FLOW_KINDS if has_flow and chance.random() < 0.7 else some
        plan.queues.append(make_queue(chance, number, settings, DEAD, kinds=of))
    plan.configuration += str(settings)
    is_bound = chance.random() < 0.3
    for number in range(chance.choice((1, 2, 3) if is_bound else (0, 0, 1, 2))):
        plan.exchanges.append(make_exchange(plan, chance, number))
    for queue in plan.queues:
        add_queue_clients(plan, chance, queue)
        if "texts" in queue.features:
            _select(plan, chance, queue)
    for exchange in plan.exchanges:
        add_exchange_client(plan, chance, exchange)
    # By other bindings what a publisher has to know of the queues behind would be other things.
    if plan.exchanges and all(queue.features["kind"] in PLAIN_KINDS for queue in plan.queues) and chance.random() < 0.7:
        plan.clients.append(ClientPlan("binder", len(plan.clients) + 1, chance.getrandbits(32), {}))
    if not has_system:
        for kind in ("declarer", "tenant"):
            number = chance.choice((1, 3)) if chance.random() < 0.3 else 0
            for _ in range(number if kind == "tenant" else min(number, 1)):
                options = {"spreads": True} if kind == "declarer" else _tenant(chance)
                plan.clients.append(ClientPlan(kind, len(plan.clients) + 1, chance.getrandbits(32), options))
    multiply(plan, chance, has_flow=has_flow)
    for client in plan.clients:
        if client.kind == "worker":
            client.options |= _moods(chance, plan.queue(client.options["queue"]))
    if is_leased:
        add_leased(plan, chance, DEAD, tuple(TAKES))
    if groups := [queue.features["groups"] for queue in plan.queues if "groups" in queue.features]:
        dead.features |= {"apart": True, "groups": max(groups)}  # operators move messages of groups there


def _moods(chance: Random, queue: QueuePlan) -> dict[str, Any]:
    """Of a worker, beside what every world has."""
    options: dict[str, Any] = {}
    for name, share in (("shared", 0.2), ("flows", 0.2), ("restless", 0.4), ("asks", 0.3), ("rejects", 0.4)):
        if chance.random() < share:
            options[name] = True
    if chance.random() < (0.7 if "single_active" in queue.features else 0.2):
        options["priority"] = chance.choice((1, 5))
    if "timeout_ms" in queue.features:
        options["dozes"] = chance.random() < 0.7
    return options


def _select(plan: Plan, chance: Random, queue: QueuePlan) -> None:
    """Of the consumers of a queue the first takes all."""
    workers = [one for one in plan.clients if one.kind == "worker" and one.options["queue"] == queue.name]
    for worker in workers[1:]:
        worker.options["selector"] = chance.choice(tuple(TAKES))


def _tenant(chance: Random) -> dict[str, str]:
    return {"user": chance.choice(("guest", "u0")), "vhost": chance.choice(("/", "v0"))}


def _add_faults(plan: Plan, chance: Random) -> None:
    """Those of a few groups; each group comes again and again, as often as its faults are cheap for the world."""
    groups = [name for name, share in LIKELY.items() if chance.random() < share]
    groups += chance.sample([name for name in FAULT_GROUPS if name not in LIKELY], chance.choice((0, 1, 1, 2, 3)))
    wanted = [(FAULT_GROUPS[name], chance.choice(DEAR_S if name in DEAR else CHEAP_S)) for name in groups]
    for features, group in OF_FEATURES:
        if any(features & queue.features.keys() for queue in plan.queues) and chance.random() < 0.7:
            wanted.append((group, chance.choice(CHEAP_S)))
    for group, every_s in wanted:
        at_s = 0.0
        while (at_s := at_s + chance.expovariate(1 / every_s)) < plan.seconds:
            kind = chance.choices(list(group), list(group.values()))[0]
            plan.faults.append(FaultPlan(at_s, kind, chance.getrandbits(32)))
    if any(client.kind == "tenant" for client in plan.clients):
        plan.faults.append(FaultPlan(0, SETTLING, chance.getrandbits(32)))
    plan.faults.sort(key=lambda fault: fault.at_s)
    plan.pauses = sorted(chance.uniform(0.3, plan.seconds) for _ in range(chance.choice((0, 1, 3))))


@contextmanager
def limited(limits: Mapping[str, int]) -> Iterator[None]:
    """Meanwhile the broker's constants of these names are others, in whichever module they are known."""
    with ExitStack() as stack:
        for path, value in limits.items():
            owner, _, name = f"leveret.{path}".rpartition(".")
            before = getattr(import_module(owner), name)
            modules = [module for loaded, module in sys.modules.items() if loaded.startswith("leveret.")]
            for module in modules:
                if vars(module).get(name) == before:
                    stack.enter_context(patch.object(module, name, value))
        yield
