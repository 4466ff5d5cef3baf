"""Programs for the model of leased queues: a queue with some elements, and what is done to it, and time does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lease_model import FILTERS

from leveret.interop.differential.choices import Chooser

OPERATIONS_MEAN = 60
Operation = dict[str, Any]


def program(choose: Chooser) -> list[Operation]:
    """A queue, then operations on it; where it has a target depth, it is about as deep first."""
    declared = _declare(choose)
    operations = [declared]
    if "depth" in declared:
        operations.append({"op": "publish", "count": choose.one(994, 999, 1001, 1005), "step": 1})
    while choose.below(OPERATIONS_MEAN) and len(operations) < 5 * OPERATIONS_MEAN:
        operations.append(_DECK[choose.below(len(_DECK))](choose))
    if not declared.get("barrier"):
        operations = [{key: value for key, value in one.items() if key != "s"} for one in operations]
    return operations


def _declare(choose: Chooser) -> Operation:
    rows: list[tuple[str, int, Any]] = [
        ("lease_period", 2, choose.one(100, 500, 500, 3000)),
        ("semantics", 5, "at-most-once"),
        ("max_backlog", 3, choose.one(1, 2, 4)),
        ("expiration", 3, choose.one(100, 600, 600, 5000)),
        ("expiration_model", 3, choose.one("queue", "latest", "earliest")),
        ("expire_leased", 3, "at-lease-end"),
        ("fairness", 2, choose.one("fast", "round-robin", "proportional")),
        ("leasing", 3, "strict"),
        ("max_deliveries", 3, choose.one(1, 2, 3)),
        ("max_cancels", 3, choose.one(1, 2)),
        ("deferred", 3, choose.one(100, 1000)),
    ]
    operation: Operation = {"op": "declare", "backlog": choose.one(1, 2, 4, 10)}
    operation |= {name: value for name, once_in, value in rows if choose.rarely(once_in)}
    order = choose.one("priority", "barrier", "barrier", "depth", "", "", "", "")
    if order:
        operation[order] = 1000 if order == "depth" and choose.rarely(3) else True
    if operation.get("depth") is True:
        del operation["depth"]  # they take time: few of them
    return operation


def _of(operation: Operation, choose: Chooser, *rows: tuple[str, int, Any]) -> Operation:
    return operation | {name: value for name, once_in, value in rows if choose.rarely(once_in)}


def _publish(choose: Chooser) -> Operation:
    return _of({"op": "publish", "p": choose.below(4)}, choose, ("count", 3, choose.one(2, 3, 7)), ("step", 2, 1),
               ("expiration", 3, choose.one(0, 50, 300, 2000)), ("s", 4, True))  # fmt: skip


def _place(choose: Chooser) -> Operation:
    return {"c": choose.below(3), "ch": choose.one(0, 0, 0, 1)}


def _consume(choose: Chooser) -> Operation:
    operation = {"op": "consume", **_place(choose), "consumer_tag": choose.one("a", "b")}
    return _of(operation, choose, ("qos", 2, choose.one(0, 1, 2, 3, 5)), ("backlog", 4, choose.one(0, 1, 2, 7)),
               ("priority", 4, choose.one(1, 2)), ("filter", 3, choose.one(*FILTERS)), ("no_ack", 8, True))  # fmt: skip


def _replace(choose: Chooser) -> Operation:
    operation = {"op": "replace", **_place(choose), "consumer_tag": choose.one("a", "b")}
    return _of(operation, choose, ("backlog", 2, choose.one(0, 1, 2, 7)), ("priority", 3, choose.one(1, 2)),
               ("filter", 2, choose.one(*FILTERS)))  # fmt: skip


def _browse(choose: Chooser) -> Operation:
    return _of({"op": "browse", **_place(choose)}, choose, ("top_n", 2, choose.one(0, 1, 2, 5)),
               ("filter", 3, choose.one(*FILTERS)))  # fmt: skip


def _cancel(choose: Chooser) -> Operation:
    return {"op": "cancel", **_place(choose), "consumer_tag": choose.one("a", "b")}


def _get(choose: Chooser) -> Operation:
    return _of({"op": "get", **_place(choose)}, choose, ("no_ack", 5, True))


def _settle(op: str) -> Callable[[Chooser], Operation]:
    def build(choose: Chooser) -> Operation:
        operation = {"op": op, **_place(choose), "delivery_tag": choose.below(6)}
        return _of(operation, choose, ("multiple", 3, True), *((("requeue", 2, True),) if op == "nack" else ()))

    return build


def _discard(choose: Chooser) -> Operation:
    operation: Operation = {"op": "discard", "how": choose.one("", "", "cancel", "expire")}
    if choose.rarely(3):
        return operation | {"filter": choose.one(*FILTERS)}
    return operation | {"back": [choose.below(9) - choose.one(0, 0, 3) for _ in range(choose.one(1, 1, 2, 3))]}


def _renew(choose: Chooser) -> Operation:
    return {"op": "renew", "back": [choose.below(6) for _ in range(choose.one(1, 2))]}


def _of_channel(op: str) -> Callable[[Chooser], Operation]:
    return lambda choose: {"op": op, **_place(choose)}


def _advance(choose: Chooser) -> Operation:
    return {"op": "advance", "ms": choose.one(1, 50, 100, 100, 250, 500, 500, 3000)}


#: Operations, with their relative frequency.
WEIGHTS: dict[Callable[[Chooser], Operation], int] = {
    _publish: 26,
    _settle("ack"): 16,
    _settle("nack"): 12,
    _consume: 14,
    _get: 10,
    _advance: 12,
    _discard: 5,
    _renew: 3,
    _cancel: 4,
    _replace: 3,
    _browse: 3,
    _of_channel("recover"): 2,
    _of_channel("close"): 3,
    _of_channel("drop"): 2,
    lambda choose: {"op": "purge"}: 1,
}
_DECK = [build for build, weight in WEIGHTS.items() for _ in range(weight)]
