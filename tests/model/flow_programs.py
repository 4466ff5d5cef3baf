"""Programs for the model of flow control: two queues with limits, publishers, and one who makes room."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from leveret.interop.differential.choices import Chooser

OPERATIONS_MEAN = 50
Operation = dict[str, Any]
KINDS = ("memory", "memory", "BLOCK", "BLOCK", "FAIL", "DROP", "PAGE", "")
SIZES = (100, 900, 1100, 3000, 30_000)


def program(choose: Chooser) -> list[Operation]:
    """Limits, then operations. Of one program all publishes of one publisher go to one place: its order is one."""
    places = [choose.one("a", "a", "b", "*") for _ in range(3)]
    declared: Operation = {"op": "declare"}
    kinds = KINDS
    if choose.rarely(4):  # nobody says whose turn it is where two limits ease at once
        declared["broker"] = choose.one(3000, 10_000, 200_000)
        kinds = ("FAIL", "DROP", "")
    declared |= {"a": _rules(choose, kinds), "b": _rules(choose, kinds)}
    operations = [declared]
    while choose.below(OPERATIONS_MEAN) and len(operations) < 5 * OPERATIONS_MEAN:
        operations.append(_DECK[choose.below(len(_DECK))](choose, places))
    return operations


def _limit(choose: Chooser) -> int:
    limit: int = choose.one(1, 2000, 3300, 10_000, 100_000, 300_000)
    return limit


def _rules(choose: Chooser, kinds: tuple[str, ...]) -> dict[str, Any]:
    kind = choose.one(*kinds)
    if kind == "memory":
        rules: dict[str, Any] = {"memory": _limit(choose)}
        if choose.rarely(2):
            rules["minimum"] = choose.one(0, 2000)
        if choose.rarely(4):
            rules["fails"] = True
        return rules
    if not kind:
        return {}
    rules = {"policy": kind}
    if not choose.rarely(3):
        rules["octets"] = _limit(choose)
        if kind == "BLOCK" and choose.rarely(4):
            rules["threshold"] = _limit(choose)
    if "octets" not in rules or choose.rarely(4):
        rules["messages"] = choose.one(1, 3, 10, 40, 100)
    return rules


def _publish(choose: Chooser, places: list[str]) -> Operation:
    who, count = choose.below(3), choose.one(1, 1, 2, 4, 9, 70)
    sizes = [choose.one(*SIZES[: choose.one(2, 4, 5)]) for _ in range(count)]
    return {"op": "publish", "c": who, "queue": places[who], "sizes": sizes}


def _rush(choose: Chooser, places: list[str]) -> Operation:
    """A get from `a`, and a publish before anybody who waits had a turn."""
    return {**_publish(choose, places), "op": "rush"}


def _get(choose: Chooser, places: list[str]) -> Operation:
    operation: Operation = {"op": "get", "queue": choose.one("a", "a", "b")}
    return operation | ({"no_ack": True} if choose.rarely(2) else {})


def _ack(choose: Chooser, places: list[str]) -> Operation:
    return {"op": "ack", "delivery_tag": choose.below(6)}


def _purge(choose: Chooser, places: list[str]) -> Operation:
    return {"op": "purge", "queue": choose.one("a", "b")}


def _leave(choose: Chooser, places: list[str]) -> Operation:
    return {"op": "leave", "c": choose.below(3)}


#: Operations, with their relative frequency.
WEIGHTS: dict[Callable[[Chooser, list[str]], Operation], int] = {
    _publish: 22,
    _get: 30,
    _rush: 3,
    _ack: 16,
    _purge: 3,
    _leave: 2,
}
_DECK = [build for build, weight in WEIGHTS.items() for _ in range(weight)]
