"""The operations of a program, one function per kind, over small pools of names so that they interact.

An operation is a dict of JSON: `op` (the method's name, "drop", "frames" or "batch"), `c` (connection), `ch` (channel),
the method's fields, and for a publish `properties`, `count` and `size`. Table values are [tag, value], as in
`raw_codec`. "frames" are misplaced ones (`frames.py`); for a "batch" see `batches.py`. One with `careful` is omitted
where a careful client would not send it.

Programs in which the order of two queues' deliveries on one channel depends on timing are not generated: all consumers
of a channel have the same queue, and at most one of them a generated tag (messages that several requeue at once are
ordered by their tags).
"""

from __future__ import annotations

from typing import Any

from .choices import (
    QUEUES,
    Chooser,
    bad_value,
    binding_arguments,
    good_queue_arguments,
    properties,
    queue_arguments,
    quorum_arguments,
)
from .frames import MISPLACED
from .plans import Limits, Plan

Operation = dict[str, Any]
EXCHANGES = ("e0", "e1", "e2", "e3")
KINDS = {"e0": "direct", "e1": "fanout", "e2": "topic", "e3": "headers"}
KEYS = ("a", "a.b", "a.b.c", "b", "", "q0", "q1", "q2", "q3", ".", "a.", "a..b")
PATTERNS = (*KEYS, "#", "*", "a.*", "a.#", "#.b", "*.b", "a.#.b", "*.#", "#.#")
REPLY_CHANNEL = 3  # only direct replies are consumed there
NEVER_OPEN = 9


def _queue(choose: Chooser, plan: Plan) -> str:
    if not choose.rarely(100 if plan.careful else 14):
        name: str = choose.one(*QUEUES)
    else:
        name = choose.one("", "missing", "$gen", "q0")
    return name


def _exchange(choose: Chooser, plan: Plan) -> str:
    if not choose.rarely(100 if plan.careful else 10):
        name: str = choose.one(*EXCHANGES)
    else:
        name = choose.one("amq.direct", "amq.fanout", "amq.topic", "amq.headers", "amq.match", "", "missing")
    return name


def at(choose: Chooser, name: str) -> Operation:
    """An operation without arguments, on one of two channels of one of two connections."""
    return {"op": name, "c": choose.below(2), "ch": 1 + choose.below(2)}


def _flags(choose: Chooser, operation: Operation, **once_in: int) -> Operation:
    for name, chance in once_in.items():
        if choose.rarely(chance):
            operation[name] = True
    return operation


def queue_declare(choose: Chooser, plan: Plan, name: str | None = None) -> Operation:
    operation = at(choose, "queue.declare")
    if name is not None:
        operation["queue"] = name
    elif choose.rarely(80 if plan.careful else 10):
        operation["queue"] = choose.one("", "", "amq.reserved", "missing", "$gen", "q0\r\n", "amq.gen-mine", "\u00e4")
    else:
        operation["queue"] = choose.one(*QUEUES)
    if plan.careful:
        _flags(choose, operation, durable=4, exclusive=40, auto_delete=10)
    else:
        _flags(choose, operation, durable=5, exclusive=8, auto_delete=6)
    _flags(choose, operation, nowait=16, passive=10)
    if operation["queue"] == "missing":
        operation["passive"] = True
    if operation["queue"] in plan.quorum:
        operation |= {"arguments": quorum_arguments(choose), "durable": not choose.rarely(30)}
        if not choose.rarely(10):
            operation.pop("exclusive", None)
            operation.pop("auto_delete", None)
    elif not choose.rarely(3):
        operation["arguments"] = (good_queue_arguments if plan.careful else queue_arguments)(choose)
    if "x-dead-letter-exchange" in operation.get("arguments", {}):
        operation["arguments"].pop("x-queue-mode", None)  # a lazy queue loses the dead letter's original-expiration
    if not plan.expires:
        operation.get("arguments", {}).pop("x-message-ttl", None)
    if not plan.dead_letters:
        for key in ("x-dead-letter-exchange", "x-dead-letter-routing-key"):
            operation.get("arguments", {}).pop(key, None)
    return _as_before(choose, plan, operation["queue"], operation)


def _as_before(choose: Chooser, plan: Plan, name: str, operation: Operation) -> Operation:
    """In a careful program mostly the object's first declaration: there objects are rarely declared in two ways."""
    if not plan.careful or choose.rarely(30):
        return operation
    former = plan.declared.setdefault(name, operation)
    place = {key: operation[key] for key in ("c", "ch", "passive", "nowait") if key in operation}
    return {key: value for key, value in former.items() if key not in ("passive", "nowait")} | place


def queue_bind(choose: Chooser, plan: Plan) -> Operation:
    operation = at(choose, choose.one("queue.bind", "queue.bind", "queue.bind", "queue.bind", "queue.unbind"))
    operation |= {
        "queue": _queue(choose, plan),
        "exchange": _exchange(choose, plan),
        "routing_key": choose.one(*PATTERNS),
    }
    if operation["op"] == "queue.bind" and operation["exchange"].startswith("amq."):
        # Bindings of predeclared exchanges would remain after the program.
        operation["exchange"] = "e3"
    if operation["exchange"] in ("e3", "amq.headers", "amq.match") or choose.rarely(12):
        operation["arguments"] = binding_arguments(choose, careful=plan.careful)
    if operation["op"] == "queue.bind":
        _flags(choose, operation, nowait=20)
    return operation


def exchange_declare(choose: Chooser, plan: Plan, named: str | None = None) -> Operation:
    operation = at(choose, "exchange.declare")
    name = named or (_exchange(choose, plan) if choose.rarely(8) else choose.one(*EXCHANGES))
    often = 10 if plan.careful else 1
    reserved = named is None and choose.rarely(20 * often)
    operation["exchange"] = choose.one("amq.reserved", "", "amq.direct", "amq.topic") if reserved else name
    kinds = ("direct", "fanout", "topic", "headers")
    operation["type"] = choose.one(*kinds) if choose.rarely(4 * often) else KINDS.get(name, "direct")
    if choose.rarely(40 * often):
        operation["type"] = "no-such-type"
    _flags(choose, operation, durable=4, auto_delete=6, internal=16, nowait=16, passive=16)
    if choose.rarely(5):
        operation["arguments"] = {"alternate-exchange": ["S", choose.one("e1", "e0", "e2", "missing", "")]}
        if not plan.careful and choose.rarely(8):
            operation["arguments"] = {choose.one("alternate-exchange", "x-unknown"): bad_value(choose)}
    return _as_before(choose, plan, operation["exchange"], operation)


def exchange_bind(choose: Chooser, plan: Plan) -> Operation:
    operation = at(choose, choose.one("exchange.bind", "exchange.bind", "exchange.unbind"))
    operation |= {
        "destination": _exchange(choose, plan),
        "source": _exchange(choose, plan),
        "routing_key": choose.one(*PATTERNS),
    }
    if operation["source"].startswith("amq."):
        operation["source"] = "e3"
    if operation["source"] == "e3":
        operation["arguments"] = binding_arguments(choose, careful=plan.careful)
    return _flags(choose, operation, nowait=20)


def exchange_delete(choose: Chooser, plan: Plan) -> Operation:
    operation = {**at(choose, "exchange.delete"), "exchange": _exchange(choose, plan)}
    return _flags(choose, operation, if_unused=3, nowait=16)


def queue_delete(choose: Chooser, plan: Plan) -> Operation:
    operation = {**at(choose, "queue.delete"), "queue": _queue(choose, plan)}
    return _flags(choose, operation, if_unused=4, if_empty=4, nowait=16)


def queue_purge(choose: Chooser, plan: Plan) -> Operation:
    return _flags(choose, {**at(choose, "queue.purge"), "queue": _queue(choose, plan)}, nowait=16)


def publish(choose: Chooser, plan: Plan) -> Operation:
    operation = at(choose, "basic.publish")
    operation["exchange"] = "" if choose.rarely(2) else _exchange(choose, plan)
    operation["routing_key"] = choose.one(*QUEUES) if operation["exchange"] == "" else choose.one(*KEYS)
    if choose.rarely(16):
        operation["routing_key"] = choose.one("", "$gen", "missing")
    if not choose.rarely(2):
        operation["properties"] = properties(choose, careful=plan.careful)
        operation["properties"].pop("priority" if plan.expires else "expiration", None)
    _flags(choose, operation, mandatory=4, immediate=200)
    if choose.rarely(2):
        operation["count"] = choose.one(2, 3, 5, 8)
    if choose.rarely(12):
        operation["size"] = choose.one(0, 12, 5_000, 140_000)
        if operation["size"] > 5_000:
            operation.pop("count", None)  # several messages may be read in parts, with dead letters in between
    return operation


def consume(choose: Chooser, plan: Plan) -> Operation:
    operation = at(choose, "basic.consume")
    operation["queue"] = plan.queues[operation["c"] * 2 + operation["ch"] - 1]
    operation["consumer_tag"] = choose.one("t0", "t1", "t2", "") if not plan.single else "t0"
    if operation["consumer_tag"] == "":
        channel = operation["c"], operation["ch"]
        if channel in plan.generated:
            operation["consumer_tag"] = "t3"
        plan.generated.add(channel)
    if choose.rarely(200 if plan.careful else 40):
        operation["queue"] = "missing"
    _flags(choose, operation, no_ack=5, exclusive=60 if plan.careful else 12, no_local=12, nowait=24)
    if choose.rarely(5):
        operation["arguments"] = {"x-priority": [choose.one("I", "l", "b"), choose.one(1, 5, 0, -1)]}
        if not plan.careful and choose.rarely(8):
            operation["arguments"] = {choose.one("x-priority", "x-stream-offset", "x-unknown"): bad_value(choose)}
    return operation


def cancel(choose: Chooser, plan: Plan) -> Operation:
    tag = choose.one("t0", "t1", "t2", "$ctag", "nobody") if not plan.quorum else "nobody"
    return _flags(choose, {**at(choose, "basic.cancel"), "consumer_tag": tag}, nowait=10)


def qos(choose: Chooser, plan: Plan) -> Operation:
    operation = {**at(choose, "basic.qos"), "prefetch_count": choose.one(1, 2, 3, 0)}
    if plan.limits is not Limits.OWN and (choose.rarely(3) or plan.limits is Limits.SHARED and not choose.rarely(6)):
        operation["global_"] = True
    if plan.limits is Limits.NONE or plan.limits is Limits.SHARED and "global_" not in operation:
        operation["prefetch_count"] = 0
    if choose.rarely(60):
        operation["prefetch_size"] = 1
    return operation


def get(choose: Chooser, plan: Plan) -> Operation:
    operation = _flags(choose, {**at(choose, "basic.get"), "queue": _queue(choose, plan)}, no_ack=3)
    return operation | {"no_ack": True} if plan.keeps_nothing_got else operation


def settle(choose: Chooser, plan: Plan) -> Operation:
    operation = at(choose, choose.one("basic.ack", "basic.nack", "basic.reject", "basic.ack", "basic.nack"))
    operation["delivery_tag"] = ["outstanding", choose.one(0, 0, 1, 2, -1)]
    if choose.rarely(200 if plan.careful else 20):
        operation["delivery_tag"] = choose.one(0, 1, 2, 99, 2**63)
    if operation["op"] != "basic.reject":
        _flags(choose, operation, multiple=3)
        if operation.get("multiple") and choose.rarely(4):
            operation["delivery_tag"] = 0
    if operation["op"] != "basic.ack":
        operation["requeue"] = choose.one(True, False)
        if plan.quorum and operation["requeue"]:
            operation |= {"op": "basic.nack", "delivery_tag": 0, "multiple": True}
    return operation


def recover(choose: Chooser, plan: Plan) -> Operation:
    operation = at(choose, choose.one("basic.recover", "basic.recover-async"))
    operation["requeue"] = not choose.rarely(20)
    return operation


def mode(choose: Chooser, plan: Plan) -> Operation:
    operation = at(choose, choose.one("confirm.select", "confirm.select", "tx.select"))
    return _flags(choose, operation, nowait=8) if operation["op"] == "confirm.select" else operation


def transaction(choose: Chooser, plan: Plan) -> Operation:
    return at(choose, choose.one("tx.commit", "tx.commit", "tx.rollback"))


def channel(choose: Chooser, plan: Plan) -> Operation:
    kind = choose.below(12) if not plan.careful or choose.rarely(5) else 0
    if kind < 6:
        return {**at(choose, "channel.close"), "reply_code": 200}
    if kind < 8:
        return {**at(choose, "channel.flow"), "active": not choose.rarely(4)}
    if kind == 8:
        return {**at(choose, "access.request"), "realm": "/data"}
    if kind == 9:
        return at(choose, "channel.open")
    if kind == 10:
        name = choose.one("channel.close-ok", "queue.declare-ok", "basic.cancel-ok", "basic.qos-ok")
        return {"op": name, "c": 0, "ch": 1}
    return {"op": choose.one("basic.qos", "channel.close", "tx.select"), "c": 1, "ch": NEVER_OPEN, "unopened": True}


def connection(choose: Chooser, plan: Plan) -> Operation:
    kind = choose.below(5)
    if kind == 0:
        return {**at(choose, "frames"), "what": choose.one(*MISPLACED)}
    if kind < 3:
        return {"op": "connection.close", "c": choose.below(2), "reply_code": 200}
    return {"op": "drop", "c": choose.below(2), "reset": choose.one(False, True)}


def direct_reply(choose: Chooser, plan: Plan) -> Operation:
    address = "amq.rabbitmq.reply-to"
    operation: Operation = choose.one(
        *(
            {"op": "basic.consume", "c": 0, "ch": REPLY_CHANNEL, "queue": address, "consumer_tag": tag, "no_ack": auto}
            for tag, auto in (("r0", True), ("r0", True), ("r1", True), ("r0", False))
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
