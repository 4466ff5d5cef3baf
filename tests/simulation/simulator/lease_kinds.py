"""Leased queues of a world, their publishers and those who consume them, of a seed of their own."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from .parts import ClientPlan, Plan, QueuePlan
from .queue_kinds import _dead_letters, _number, _text

#: How many worlds have leased queues.
SHARE = 0.5
#: Filters of consumers in long worlds; each queue has one consumer at least that takes all.
FILTERS = ("", "of = 'a'", "of <> 'b'")
#: A topic that several queues may capture, and the filter that one of them has.
TOPIC, TOPIC_FILTER = "leased.topic", FILTERS[1]


def add_leased(plan: Plan, chance: Random, other: str, filters: Sequence[str] = FILTERS) -> None:
    """One to three leased queues. `other`: where dead letters go; `filters`: that consumers may have."""
    for number in range(1, chance.randint(2, 4)):
        plan.queues.append(queue := _queue(chance, number, other))
        for _ in range(chance.randint(1, 2)):
            modes = ["confirms"] * 5 + ["none", "transactions"]
            options: dict[str, Any] = {"queue": queue.name, "headers": True, "mode": chance.choice(modes)}
            if filters is not FILTERS:
                options["texts"] = True
            _add(plan, chance, "publisher", options)
            if (highest := queue.features.get("ranks")) is not None:
                plan.clients[-1].options["priority_max"] = highest
        for at in range(chance.randint(1, 3)):
            options = {"queue": queue.name}
            if at and chance.random() < 0.5:
                options["filter"] = chance.choice(filters)
            if chance.random() < 0.1 and not queue.features["leased"].get("ttl_ms"):
                options["no_ack"] = True
            elif chance.random() < 0.15 and not queue.features["leased"].get("lease_ms"):
                options["transactions"] = True
            if "lease_ms" in queue.features["leased"] and chance.random() < 0.2:
                options["renews"] = True
            _add(plan, chance, "borrower", options)
        if chance.random() < 0.3:
            _add(plan, chance, "getter", {"queue": queue.name})
    if chance.random() < 0.5:
        _capture(plan, chance)


def _add(plan: Plan, chance: Random, kind: str, options: dict[str, Any]) -> None:
    plan.clients.append(ClientPlan(kind, len(plan.clients) + 1, chance.getrandbits(32), options))


def _queue(chance: Random, number: int, other: str) -> QueuePlan:
    queue = QueuePlan(f"leased-{number}")
    leased: dict[str, Any] = {"backlog": chance.choice((1, 3, 20, 200))}
    queue.arguments = {"x-queue-type": _text("amps"), "x-max-backlog-per-consumer": _number(leased["backlog"])}
    queue.features = {"kind": "leased", "leased": leased, "unordered": True}

    def argue(key: str, feature: str, value: int | str) -> None:
        queue.arguments[key] = _number(value) if isinstance(value, int) else _text(value)
        leased[feature] = value

    if chance.random() < 0.6:
        argue("x-lease-period", "lease_ms", chance.choice((100, 500, 2000)))
    else:
        leased["by_policy"] = True
    if chance.random() < 0.4:
        argue("x-max-backlog-total", "backlog_total", chance.choice((1, 5, 50)))
    if chance.random() < 0.3:
        argue("x-leasing", "leasing", "strict")
    if chance.random() < 0.2:
        argue("x-semantics", "semantics", "at-most-once")
    else:
        queue.arguments["x-fairness"] = _text(chance.choice(("fast", "round-robin", "proportional")))
    if chance.random() < 0.3:
        argue("x-max-deliveries", "max_deliveries", chance.choice((1, 3, 6)))
    if chance.random() < 0.3:
        argue("x-cancel-limit", "max_cancels", chance.choice((1, 2)))
    if chance.random() < 0.2:
        argue("x-message-ttl", "ttl_ms", chance.choice((300, 2000)))
        queue.features["ttl_ms"] = leased["ttl_ms"]
    if chance.random() < 0.2:
        queue.arguments["x-priority-expr"] = _text("PROPERTY('priority')")
        queue.features["ranks"] = 5
    if chance.random() < 0.6:
        _dead_letters(queue, other)
    return queue


def _capture(plan: Plan, chance: Random) -> None:
    """Two queues select one topic: what is published to either of them goes to both, as far as filters let it."""
    leased = [queue for queue in plan.queues if "leased" in queue.features and "ttl_ms" not in queue.features][:2]
    for queue in leased:
        queue.arguments["x-underlying-topic"] = _text(TOPIC)
    if len(leased) > 1 and chance.random() < 0.5:
        leased[1].arguments["x-queue-filter"] = _text(TOPIC_FILTER)
