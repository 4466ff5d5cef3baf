"""Queues, exchanges and clients of a world."""

from __future__ import annotations

from random import Random
from typing import Any

from .flow_kinds import FLOW_KINDS
from .parts import ClientPlan, ExchangePlan, Plan, QueuePlan, behind
from .queue_kinds import QUEUE_KINDS, Settings, make_queue

#: Where dead letters go, of all queues that have any.
DEAD = "dead"
#: What a publisher has to know of the queues that it publishes to.
CONCERNS_PUBLISHERS = ("priority_max", "expirations", "last_value_keys", "texts", "delays", "groups", "ids")


def inhabit(plan: Plan, chance: Random, *, has_flow: bool = False) -> None:
    """Fill a world, and say in its configuration what its queues want to have there.

    `has_flow`: half of its queues have limits of flow control.
    """
    settings = Settings()
    dead = make_queue(
        chance, 0, settings, DEAD, kind=chance.choice(("plain", "plain", "quorum", "priorities")), name=DEAD
    )
    dead.features["unordered"] = True  # dead letters come when they come
    plan.queues.append(dead)
    for number in range(1, chance.randint(3, 7)):
        kinds = FLOW_KINDS if has_flow and chance.random() < 0.5 else QUEUE_KINDS
        plan.queues.append(make_queue(chance, number, settings, DEAD, kinds=kinds))
    plan.configuration += str(settings)
    for number in range(chance.randint(0, 3)):
        plan.exchanges.append(make_exchange(plan, chance, number))
    for queue in plan.queues:
        add_queue_clients(plan, chance, queue)
    for exchange in plan.exchanges:
        add_exchange_client(plan, chance, exchange)
    # Where all messages count, those of a declarer may hold it before it can purge or delete its queue.
    for _ in range(0 if "[system-usage]" in plan.configuration else chance.randint(0, 2)):
        _add(plan, chance, "declarer", {})
    multiply(plan, chance, has_flow=has_flow)


def add_queue_clients(plan: Plan, chance: Random, queue: QueuePlan) -> None:
    """Those who publish to a queue, consume it, and ask for its messages."""
    for _ in range(chance.randint(1, 2)):
        _add(plan, chance, "publisher", _publisher(plan, chance, [["", queue.name]]))
    for _ in range(chance.randint(1, 3)):
        _add(plan, chance, "worker", _worker(chance, queue.name))
    features = queue.features.keys()
    has_no_get = features & {"stream", "timeout_ms"} or {"single_active", "quorum"} <= features
    if chance.random() < 0.3 and not has_no_get:
        _add(plan, chance, "getter", _worker(chance, queue.name))


def add_exchange_client(plan: Plan, chance: Random, exchange: ExchangePlan) -> None:
    """Who publishes to an exchange, by some keys."""
    targets = [[exchange.name, key] for key in chance.sample(("a", "a.b", "a.c", "b", "c.d"), 3)]
    _add(plan, chance, "publisher", _publisher(plan, chance, targets))


def multiply(plan: Plan, chance: Random, *, has_flow: bool) -> None:
    """Connections of several channels, and who only looks."""
    for queue in plan.queues:
        if has_flow and ({"flow", "fails_full"} & queue.features.keys()) and chance.random() < 0.7:
            both = [
                ["publisher", _publisher(plan, chance, [["", queue.name]])],
                ["worker", _worker(chance, queue.name)],
            ]
            _add(plan, chance, "several", {"channels": both, "flow": True})
    if has_flow:
        _know_of_flow(plan, chance)
    for _ in range(chance.randint(0, 2)):
        _add(plan, chance, "several", {"channels": [_some(plan, chance) for _ in range(chance.randint(2, 4))]})
    if chance.random() < 0.5:
        _add(plan, chance, "inspector", {})


def _know_of_flow(plan: Plan, chance: Random) -> None:
    """Some announce connection.blocked and some do not; some publish on when they are told."""
    for client in plan.clients:
        client.options["announces"] = chance.random() < 0.6
        if client.kind == "publisher":
            client.options["heedless"] = chance.random() < 0.3
            if client.options["mode"] == "none" and chance.random() < 0.5:
                client.options["insists"] = True


def _add(plan: Plan, chance: Random, kind: str, options: dict[str, Any]) -> None:
    plan.clients.append(ClientPlan(kind, len(plan.clients) + 1, chance.getrandbits(32), options))


def _some(plan: Plan, chance: Random) -> list[Any]:
    """What one of several channels does."""
    queue = chance.choice(plan.queues)
    if chance.random() < 0.5:
        return ["publisher", _publisher(plan, chance, [["", queue.name]])]
    return ["worker", _worker(chance, queue.name)]


def _publisher(plan: Plan, chance: Random, targets: list[list[str]]) -> dict[str, Any]:
    features: dict[str, Any] = {}
    for exchange, key in targets:
        for name in sorted(behind(plan, exchange)) if exchange else (key,):
            features |= plan.queue(name).features
    options: dict[str, Any] = {"targets": targets}
    options |= {name: features[name] for name in CONCERNS_PUBLISHERS if name in features}
    if any(plan.exchange(exchange).kind == "headers" for exchange, _ in targets if exchange):
        options["headers"] = True
    modes = ["confirms"] * 5 + ["none", "transactions"]
    options["mode"] = chance.choice(modes)
    if "ids" in options:
        options |= {"mode": "confirms", "retries": True}
    elif options["mode"] == "confirms":
        if chance.random() < 0.3:
            options["retries"] = True
        if chance.random() < 0.3:
            options["mandatory"] = True
    return options


def _worker(chance: Random, queue: str) -> dict[str, Any]:
    options: dict[str, Any] = {"queue": queue}
    luck = chance.random()
    if luck < 0.1:
        options["no_ack"] = True
    elif luck < 0.3:
        options["transactions"] = True
    return options


def make_exchange(plan: Plan, chance: Random, number: int) -> ExchangePlan:
    """An exchange, bound to some of the queues, and to an exchange that was before it."""
    kind = chance.choice(("direct", "fanout", "topic", "headers"))
    exchange = ExchangePlan(f"{kind}-{number}", kind)
    keys = {"topic": ("a.*", "#", "a.#", "*.d"), "direct": ("a", "b", "c.d"), "fanout": ("",), "headers": ("",)}[kind]
    queues = [queue for queue in plan.queues if "apart" not in queue.features]
    for queue in chance.sample(queues, chance.randint(1, min(4, len(queues)))):
        arguments = {}
        if kind == "headers":
            arguments = {"x-match": ("S", chance.choice(("any", "all"))), "of": ("S", chance.choice("abc"))}
        exchange.bindings.append([queue.name, True, chance.choice(keys), arguments])
    if plan.exchanges:
        other = chance.choice(plan.exchanges).name
        if chance.random() < 0.4:
            exchange.arguments["alternate-exchange"] = ("S", other)
        elif chance.random() < 0.4:
            exchange.bindings.append([other, False, chance.choice(keys), {}])
    return exchange
