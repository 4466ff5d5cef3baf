"""Programs for the model: queues with rules, and what clients and time do to them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from leveret.interop.differential.choices import QUEUES, Chooser

OPERATIONS_MEAN = 60
Operation = dict[str, Any]


def program(choose: Chooser) -> list[Operation]:
    """Queues with some rules, then operations on them."""
    names = QUEUES[: choose.one(1, 2, 2, 4)]
    operations = [{"op": "declare", "queue": name, **_rules(choose, name, made=True)} for name in names]
    while choose.below(OPERATIONS_MEAN) and len(operations) < 6 * OPERATIONS_MEAN:
        operations.append(_DECK[choose.below(len(_DECK))](choose, choose.one(*names)))
    _spare_last_values(operations)
    return operations


def _spare_last_values(operations: list[Operation]) -> None:
    """Of values that live no time and come in one run, nobody says which are replaced and which expire."""
    values = {operation["queue"] for operation in operations if operation.get("last_value")}
    for operation in operations:
        if operation.get("queue") in values:
            if operation.get("expiration") == 0:
                operation.pop("count", None)
            if operation.get("expiry_delay") == 0:
                operation["expiry_delay"] = 300


def _rules(choose: Chooser, name: str, *, made: bool = False) -> dict[str, Any]:
    later = QUEUES[QUEUES.index(name) + 1 :]
    rows: list[tuple[str, Any]] = [
        ("delay", choose.one(0, 1, 100, 100, 5000)),
        ("multiplier", choose.one(0.5, 1.0, 1.5, 2.0, 10.0)),
        ("cap", choose.one(0, 50, 700, 10**6)),
        ("attempts", choose.one(-1, 1, 2, 3, 5)),
        ("dead", choose.one("", *later, "nobody")),
        ("expired", choose.one("", *later, "nobody")),
        ("expiry_delay", choose.one(0, 300, 2000)),
        ("expiry_min", choose.one(50, 500)),
        ("expiry_max", choose.one(200, 1000)),
        ("no_expiry", True),
    ]
    rarely = {"expiry_delay": 5, "expiry_min": 5, "expiry_max": 5, "no_expiry": 12}
    rules = {name: value for name, value in rows if choose.rarely(rarely.get(name, 2))}
    if made and choose.rarely(2):
        rules["ring"] = choose.one(1, 2, 3, 5)
    if made and choose.rarely(4):
        rules["last_value"] = True
    return rules


def _settings(choose: Chooser, queue: str) -> Operation:
    return {"op": "settings", "queue": queue, **_rules(choose, queue)}


def _publish(choose: Chooser, queue: str) -> Operation:
    operation: Operation = {"op": "publish", "queue": queue}
    if choose.rarely(3):
        operation["count"] = choose.one(2, 3, 7)
    if choose.rarely(4):
        operation["expiration"] = choose.one(0, 60, 150, 700)
    if not choose.rarely(3):
        operation["key"] = choose.one("x", "y")
    return operation


def _consume(choose: Chooser, queue: str) -> Operation:
    operation = {"op": "consume", "c": choose.below(3), "queue": queue, "consumer_tag": choose.one("a", "b")}
    operation["prefetch"] = choose.one(0, 1, 2, 5)
    if choose.rarely(6):
        operation["no_ack"] = True
    return operation


def _cancel(choose: Chooser, queue: str) -> Operation:
    return {"op": "cancel", "c": choose.below(3), "queue": queue, "consumer_tag": choose.one("a", "b")}


def _get(choose: Chooser, queue: str) -> Operation:
    operation: Operation = {"op": "get", "c": choose.below(3), "queue": queue}
    if choose.rarely(4):
        operation["no_ack"] = True
    return operation


def _settle(op: str) -> Callable[[Chooser, str], Operation]:
    def build(choose: Chooser, queue: str) -> Operation:
        operation = {"op": op, "c": choose.below(3), "queue": queue, "delivery_tag": choose.below(6)}
        if choose.rarely(3):
            operation["multiple"] = True
        if op == "nack" and not choose.rarely(4):
            operation["requeue"] = True
        return operation

    return build


def _of_client(op: str) -> Callable[[Chooser, str], Operation]:
    return lambda choose, queue: {"op": op, "c": choose.below(3), "queue": queue}


def _advance(choose: Chooser, queue: str) -> Operation:
    return {"op": "advance", "ms": choose.one(1, 49, 100, 100, 400, 1000, 6000, 60_000)}


def _purge(choose: Chooser, queue: str) -> Operation:
    return {"op": "purge", "queue": queue}


#: Operations, with their relative frequency.
WEIGHTS: dict[Callable[[Chooser, str], Operation], int] = {
    _publish: 26,
    _settle("ack"): 12,
    _settle("nack"): 22,
    _consume: 10,
    _get: 10,
    _advance: 14,
    _cancel: 3,
    _settings: 2,
    _of_client("recover"): 3,
    _of_client("close"): 3,
    _of_client("drop"): 2,
    _purge: 1,
}
_DECK = [build for build, weight in WEIGHTS.items() for _ in range(weight)]
