"""Programs: lists of operations over small pools of names, so that they meet.

An operation is a dict of JSON: `op` (the method's name, or "drop"), `c` (connection), `ch` (channel), the method's
fields, and for a publish `properties`, `count` and `size`. Table values are [tag, value], as in `raw_codec`.

What would make the order of two queues' deliveries on one channel a matter of luck is not generated: all consumers of a
channel have the same queue.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Operation = dict[str, Any]
OPERATIONS_MEAN = 40
QUEUES = ("q0", "q1", "q2", "q3")
EXCHANGES = ("e0", "e1", "e2", "e3")
KINDS = {"e0": "direct", "e1": "fanout", "e2": "topic", "e3": "headers"}
KEYS = ("a", "a.b", "a.b.c", "b", "", "q0", "q1", "q2", "q3", ".", "a.", "a..b")
PATTERNS = (*KEYS, "#", "*", "a.*", "a.#", "#.b", "*.b", "a.#.b", "*.#", "#.#")
INTEGERS = ("I", "l", "s", "b", "B", "u", "i", "L")
REPLY_CHANNEL = 3  # only direct replies are consumed there
NEVER_OPEN = 9


class Chooser:
    """Where choices come from."""

    def below(self, end: int) -> int:
        """A number from 0 to end - 1."""
        raise NotImplementedError

    def one(self, *items: Any) -> Any:
        """One of the items."""
        return items[self.below(len(items))]

    def rarely(self, once_in: int) -> bool:
        """True once in so many times."""
        return self.below(once_in) == once_in - 1


# ---------------------------------------------------------------------------------------------------------- arguments


def _bad_value(choose: Chooser) -> list[Any]:
    value: list[Any] = choose.one(
        *(["S", "x"], ["I", -1], ["t", True], ["V", None], ["d", 1.5], ["I", 0], ["l", 2**40], ["S", ""]),
        *(["F", {"a": ["I", 1]}], ["A", [["I", 1]]], ["T", 1], ["D", [0, 5]], ["f", 2.0], ["x", "ab"], ["I", 256]),
    )
    return value


def _queue_argument(choose: Chooser) -> tuple[str, list[Any]]:
    number = choose.one(*INTEGERS) if choose.rarely(3) else "I"
    name, value = choose.one(
        ("x-max-length", [number, choose.one(1, 2, 0, 3)]),
        ("x-dead-letter-exchange", ["S", choose.one("", "e0", "e1", "e2", "e3", "missing")]),
        ("x-overflow", ["S", choose.one("drop-head", "reject-publish", "reject-publish-dlx")]),
        ("x-dead-letter-routing-key", ["S", choose.one("q0", "q1", "q2", "q3", "a.b", "")]),
        ("x-message-ttl", [number, choose.one(0, 100)] if choose.rarely(4) else ["l", 100_000_000]),
        ("x-max-priority", [number, choose.one(2, 1, 5, 0)]),
        ("x-single-active-consumer", ["t", choose.one(True, False)]),
        ("x-max-length-bytes", [number, choose.one(10, 3, 0)]),
        ("x-expires", ["l", 100_000_000]),
        ("x-queue-mode", ["S", choose.one("lazy", "default", "foo")]),
        ("x-queue-type", ["S", choose.one("classic", "classic", "foo")]),
        ("x-queue-version", [number, choose.one(1, 2, 3)]),
        ("x-unknown", ["S", "1"]),
        ("x-delivery-limit", ["I", 2]),
        ("x-max-age", ["S", "1D"]),
        ("x-quorum-initial-group-size", ["I", 1]),
        ("x-dead-letter-strategy", ["S", "at-most-once"]),
        ("x-max-in-memory-length", ["I", 1]),
        ("x-stream-max-segment-size-bytes", ["I", 1]),
        ("x-queue-leader-locator", ["S", "balanced"]),
    )
    if value[1] == 100 and name == "x-message-ttl":
        value = ["l", 315_360_000_000 + choose.one(0, 1)]
    return name, (_bad_value(choose) if choose.rarely(24) else value)


def _queue_arguments(choose: Chooser) -> dict[str, Any]:
    arguments = {}
    for _ in range(choose.one(0, 1, 1, 2, 3)):
        name, value = _queue_argument(choose)
        arguments[name] = value
    if "x-dead-letter-routing-key" in arguments and not choose.rarely(12):
        arguments.setdefault("x-dead-letter-exchange", ["S", choose.one("", "e2")])
    return arguments


def _headers(choose: Chooser) -> dict[str, Any]:
    headers = {}
    for _ in range(choose.one(1, 0, 2, 4)):
        name = choose.one("h1", "h2", "x-h", "CC", "BCC", "x-death", "name", "BCC", "CC")
        if name in ("CC", "BCC"):
            value = ["A", [["S", choose.one(*QUEUES, "a.b")] for _ in range(choose.one(1, 2, 0))]]
            if choose.rarely(12):
                value = choose.one(["S", "q0"], ["A", [["I", 1], ["S", "q1"]]], ["V", None])
        elif name == "x-death":
            value = choose.one(
                ["S", "q0"],
                ["A", []],
                ["A", [["F", {"queue": ["S", "q0"], "reason": ["S", "rejected"], "count": ["l", 4]}]]],
            )
        else:
            value = _header_value(choose, 0)
        headers[name] = value
    return headers


def _header_value(choose: Chooser, depth: int) -> list[Any]:
    kind = choose.one("S", "I", "t", "V", "l", "d", "b", "B", "s", "u", "i", "L", "f", "D", "T", "x", "F", "A")
    values = {
        "S": ("1", "", "two", "\u00e4"),
        "t": (True, False),
        "V": (None,),
        "d": (1.0, -0.5, 1e300),
        "f": (1.0, 0.25),
        "D": ([0, 1], [2, 314]),
        "T": (1, 0, 1_700_000_000),
        "x": ("1", ""),
    }
    if kind == "F":
        return [kind, {} if depth > 1 else {"a": _header_value(choose, depth + 1)}]
    if kind == "A":
        return [kind, [] if depth > 1 else [_header_value(choose, depth + 1) for _ in range(choose.one(1, 0, 2))]]
    return [kind, choose.one(*values.get(kind, (1, 2, 100)))]


def _properties(choose: Chooser) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    for _ in range(choose.one(0, 0, 1, 1, 2, 4)):
        name = choose.one(
            *("delivery_mode", "priority", "headers", "headers", "headers", "expiration", "content_type", "reply_to"),
            *("correlation_id", "content_encoding", "message_id", "timestamp", "type", "user_id", "app_id"),
            "cluster_id",
        )
        if name == "headers":
            value: Any = _headers(choose)
        elif name == "delivery_mode":
            value = choose.one(2, 1) if not choose.rarely(60) else choose.one(0, 255)
        elif name == "priority":
            value = choose.one(1, 2, 0, 3, 9, 255)
        elif name == "expiration":
            value = choose.one("100000000", "100000000", "0", "0", "abc", "-1", "1.5", "", " 10", "315360000001", "10s")
        elif name == "timestamp":
            value = choose.one(1_700_000_000, 0, 2**63)
        elif name == "user_id":
            value = choose.one("guest", "guest", "other", "")
        elif name == "reply_to":
            value = choose.one("q0", "", "amq.rabbitmq.reply-to")
        else:
            value = choose.one("text", "", "\u00e4\u20ac", "x" * 255)
        properties[name] = value
    return properties


def _binding_arguments(choose: Chooser) -> dict[str, Any]:
    arguments: dict[str, Any] = {}
    if choose.rarely(2):
        arguments["x-match"] = ["S", choose.one("all", "any", "all-with-x", "any-with-x", "foo")]
        if choose.rarely(20):
            arguments["x-match"] = _bad_value(choose)
    for _ in range(choose.one(1, 0, 2)):
        name = choose.one("h1", "h2", "x-h")
        arguments[name] = ["V", None] if choose.rarely(5) else _header_value(choose, 1)
    return arguments


# --------------------------------------------------------------------------------------------------------- operations


@dataclass(frozen=True, slots=True)
class Plan:
    """What holds for a whole program: the queue of each channel's consumers, and whether there are prefetch limits.

    With limits each queue has one consumer at most: RabbitMQ moves a consumer that had no credit to the end of its
    queue's rota, Leveret doesn't. And then no message is got with an acknowledgement to come: RabbitMQ counts those
    that are out when a shared limit is set, and never discounts them.
    """

    queues: tuple[str, ...]
    limits: bool


def _queue(choose: Chooser) -> str:
    name: str = choose.one("q0", "q1", "q2", "q3") if not choose.rarely(14) else choose.one("", "missing", "$gen", "q0")
    return name


def _exchange(choose: Chooser) -> str:
    if not choose.rarely(10):
        name: str = choose.one(*EXCHANGES)
    else:
        name = choose.one("amq.direct", "amq.fanout", "amq.topic", "amq.headers", "amq.match", "", "missing")
    return name


def _at(choose: Chooser, name: str) -> Operation:
    return {"op": name, "c": choose.below(2), "ch": 1 + choose.below(2)}


def _flags(choose: Chooser, operation: Operation, **once_in: int) -> Operation:
    for name, chance in once_in.items():
        if choose.rarely(chance):
            operation[name] = True
    return operation


def queue_declare(choose: Chooser, plan: Plan) -> Operation:
    operation = _at(choose, "queue.declare")
    if choose.rarely(10):
        operation["queue"] = choose.one("", "", "amq.reserved", "missing", "$gen", "q0\r\n", "amq.gen-mine", "\u00e4")
    else:
        operation["queue"] = choose.one(*QUEUES)
    _flags(choose, operation, durable=5, exclusive=8, auto_delete=6, nowait=16, passive=10)
    if operation["queue"] == "missing":
        operation["passive"] = True
    if not choose.rarely(3):
        operation["arguments"] = _queue_arguments(choose)
    return operation


def queue_bind(choose: Chooser, plan: Plan) -> Operation:
    operation = _at(choose, choose.one("queue.bind", "queue.bind", "queue.bind", "queue.bind", "queue.unbind"))
    operation |= {"queue": _queue(choose), "exchange": _exchange(choose), "routing_key": choose.one(*PATTERNS)}
    if operation["op"] == "queue.bind" and operation["exchange"].startswith("amq."):
        # The bindings of what every virtual host has would be all that is left of a program.
        operation["exchange"] = "e3"
    if operation["exchange"] in ("e3", "amq.headers", "amq.match") or choose.rarely(12):
        operation["arguments"] = _binding_arguments(choose)
    if operation["op"] == "queue.bind":
        _flags(choose, operation, nowait=20)
    return operation


def exchange_declare(choose: Chooser, plan: Plan) -> Operation:
    operation = _at(choose, "exchange.declare")
    name = _exchange(choose) if choose.rarely(8) else choose.one(*EXCHANGES)
    operation["exchange"] = choose.one("amq.reserved", "", "amq.direct", "amq.topic") if choose.rarely(20) else name
    kinds = ("direct", "fanout", "topic", "headers")
    operation["type"] = choose.one(*kinds) if choose.rarely(4) else KINDS.get(name, "direct")
    if choose.rarely(40):
        operation["type"] = "no-such-type"
    _flags(choose, operation, durable=4, auto_delete=6, internal=16, nowait=16, passive=16)
    if choose.rarely(5):
        operation["arguments"] = {"alternate-exchange": ["S", choose.one("e1", "e0", "e2", "missing", "")]}
        if choose.rarely(8):
            operation["arguments"] = {choose.one("alternate-exchange", "x-unknown"): _bad_value(choose)}
    return operation


def exchange_bind(choose: Chooser, plan: Plan) -> Operation:
    operation = _at(choose, choose.one("exchange.bind", "exchange.bind", "exchange.unbind"))
    operation |= {
        "destination": _exchange(choose),
        "source": _exchange(choose),
        "routing_key": choose.one(*PATTERNS),
    }
    if operation["source"].startswith("amq."):
        operation["source"] = "e3"
    if operation["source"] == "e3":
        operation["arguments"] = _binding_arguments(choose)
    return _flags(choose, operation, nowait=20)


def exchange_delete(choose: Chooser, plan: Plan) -> Operation:
    operation = {**_at(choose, "exchange.delete"), "exchange": _exchange(choose)}
    return _flags(choose, operation, if_unused=3, nowait=16)


def queue_delete(choose: Chooser, plan: Plan) -> Operation:
    operation = {**_at(choose, "queue.delete"), "queue": _queue(choose)}
    return _flags(choose, operation, if_unused=4, if_empty=4, nowait=16)


def queue_purge(choose: Chooser, plan: Plan) -> Operation:
    return _flags(choose, {**_at(choose, "queue.purge"), "queue": _queue(choose)}, nowait=16)


def publish(choose: Chooser, plan: Plan) -> Operation:
    operation = _at(choose, "basic.publish")
    operation["exchange"] = "" if choose.rarely(2) else _exchange(choose)
    operation["routing_key"] = choose.one(*QUEUES) if operation["exchange"] == "" else choose.one(*KEYS)
    if choose.rarely(16):
        operation["routing_key"] = choose.one("", "$gen", "missing")
    if not choose.rarely(2):
        operation["properties"] = _properties(choose)
    _flags(choose, operation, mandatory=4, immediate=200)
    if choose.rarely(2):
        operation["count"] = choose.one(2, 3, 5, 8)
    if choose.rarely(12):
        operation["size"] = choose.one(0, 12, 5_000, 140_000)
    return operation


def consume(choose: Chooser, plan: Plan) -> Operation:
    operation = _at(choose, "basic.consume")
    operation["queue"] = plan.queues[operation["c"] * 2 + operation["ch"] - 1]
    operation["consumer_tag"] = choose.one("t0", "t1", "t2", "") if not plan.limits else "t0"
    if choose.rarely(40):
        operation["queue"] = "missing"
    _flags(choose, operation, no_ack=5, exclusive=12, no_local=12, nowait=24)
    if choose.rarely(5):
        operation["arguments"] = {"x-priority": [choose.one("I", "l", "b"), choose.one(1, 5, 0, -1)]}
        if choose.rarely(8):
            operation["arguments"] = {choose.one("x-priority", "x-stream-offset", "x-unknown"): _bad_value(choose)}
    return operation


def cancel(choose: Chooser, plan: Plan) -> Operation:
    tag = choose.one("t0", "t1", "t2", "$ctag", "nobody")
    return _flags(choose, {**_at(choose, "basic.cancel"), "consumer_tag": tag}, nowait=10)


def qos(choose: Chooser, plan: Plan) -> Operation:
    operation = {**_at(choose, "basic.qos"), "prefetch_count": choose.one(1, 2, 3, 0) if plan.limits else 0}
    if choose.rarely(3):
        operation["global_"] = True
    if choose.rarely(60):
        operation["prefetch_size"] = 1
    return operation


def get(choose: Chooser, plan: Plan) -> Operation:
    operation = _flags(choose, {**_at(choose, "basic.get"), "queue": _queue(choose)}, no_ack=3)
    return operation | {"no_ack": True} if plan.limits else operation


def settle(choose: Chooser, plan: Plan) -> Operation:
    operation = _at(choose, choose.one("basic.ack", "basic.nack", "basic.reject", "basic.ack", "basic.nack"))
    operation["delivery_tag"] = ["outstanding", choose.one(0, 0, 1, 2, -1)]
    if choose.rarely(20):
        operation["delivery_tag"] = choose.one(0, 1, 2, 99, 2**63)
    if operation["op"] != "basic.reject":
        _flags(choose, operation, multiple=3)
        if operation.get("multiple") and choose.rarely(4):
            operation["delivery_tag"] = 0
    if operation["op"] != "basic.ack":
        operation["requeue"] = choose.one(True, False)
    return operation


def recover(choose: Chooser, plan: Plan) -> Operation:
    operation = _at(choose, choose.one("basic.recover", "basic.recover-async"))
    operation["requeue"] = not choose.rarely(20)
    return operation


def mode(choose: Chooser, plan: Plan) -> Operation:
    operation = _at(choose, choose.one("confirm.select", "confirm.select", "tx.select"))
    return _flags(choose, operation, nowait=8) if operation["op"] == "confirm.select" else operation


def transaction(choose: Chooser, plan: Plan) -> Operation:
    return _at(choose, choose.one("tx.commit", "tx.commit", "tx.rollback"))


def channel(choose: Chooser, plan: Plan) -> Operation:
    kind = choose.below(12)
    if kind < 6:
        return {**_at(choose, "channel.close"), "reply_code": 200}
    if kind < 8:
        return {**_at(choose, "channel.flow"), "active": not choose.rarely(4)}
    if kind == 8:
        return {**_at(choose, "access.request"), "realm": "/data"}
    if kind == 9:
        return _at(choose, "channel.open")
    if kind == 10:
        name = choose.one("channel.close-ok", "queue.declare-ok", "basic.cancel-ok", "basic.qos-ok")
        return {"op": name, "c": 0, "ch": 1}
    return {"op": choose.one("basic.qos", "channel.close", "tx.select"), "c": 1, "ch": NEVER_OPEN, "unopened": True}


def connection(choose: Chooser, plan: Plan) -> Operation:
    if choose.rarely(2):
        return {"op": "connection.close", "c": choose.below(2), "reply_code": 200}
    return {"op": "drop", "c": choose.below(2), "reset": choose.one(False, True)}


def direct_reply(choose: Chooser, plan: Plan) -> Operation:
    address = "amq.rabbitmq.reply-to"
    operation: Operation = choose.one(
        *(
            {"op": "basic.consume", "c": 0, "ch": REPLY_CHANNEL, "queue": address, "consumer_tag": tag, "no_ack": ack}
            for tag, ack in (("r0", True), ("r0", True), ("r1", True), ("r0", False))
        ),
        {
            **{"op": "basic.publish", "c": 0, "ch": REPLY_CHANNEL, "exchange": "", "routing_key": "q0"},
            "properties": {"reply_to": address, "correlation_id": "1"},
        },
        {"op": "basic.publish", "c": 1, "ch": 1, "exchange": "", "routing_key": "$rabbitmq.reply-to"},
        {"op": "queue.declare", "c": 1, "ch": 1, "queue": "$rabbitmq.reply-to", "passive": True},
        {"op": "basic.cancel", "c": 0, "ch": REPLY_CHANNEL, "consumer_tag": "r0"},
        {"op": "channel.close", "c": 0, "ch": REPLY_CHANNEL, "reply_code": 200},
    )
    return operation


#: What is generated, and how often beside the others.
WEIGHTS: dict[Callable[[Chooser, Plan], Operation], int] = {
    publish: 26,
    queue_declare: 14,
    consume: 10,
    settle: 16,
    get: 8,
    queue_bind: 9,
    exchange_declare: 7,
    cancel: 4,
    qos: 5,
    exchange_bind: 3,
    mode: 3,
    transaction: 3,
    queue_purge: 2,
    queue_delete: 3,
    exchange_delete: 2,
    recover: 2,
    channel: 3,
    connection: 1,
    direct_reply: 2,
}
_DECK = [builder for builder, weight in WEIGHTS.items() for _ in range(weight)]


def program(choose: Chooser) -> list[Operation]:
    """Some fifty operations; to begin with, most of the queues and exchanges are declared and bound somehow."""
    limits = choose.rarely(2)
    plan = Plan(QUEUES if limits else tuple(choose.one(*QUEUES) for _ in range(4)), limits)
    operations = []
    if choose.rarely(2):
        for name in (*QUEUES, *EXCHANGES):
            if not choose.rarely(6):
                operation = (queue_declare if name in QUEUES else exchange_declare)(choose, plan)
                operation["queue" if name in QUEUES else "exchange"] = name
                operation.pop("passive", None)
                operations.append(operation)
        operations += [queue_bind(choose, plan) for _ in range(choose.below(8))]
    while choose.below(OPERATIONS_MEAN) and len(operations) < 6 * OPERATIONS_MEAN:
        operations.append(_DECK[choose.below(len(_DECK))](choose, plan))
    return operations


class Seeded(Chooser):
    """Chooses by a seed."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._random = random.Random(seed)

    def below(self, end: int) -> int:
        return self._random.randrange(end)
