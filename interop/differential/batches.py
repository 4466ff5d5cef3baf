"""Batches: several operations (`operations`) that are sent through one channel without waiting for answers.

Batches whose answers depend on the timing of RabbitMQ's processes are not generated.
"""

from __future__ import annotations

from .choices import Chooser
from .operations import (
    Operation,
    at,
    cancel,
    consume,
    exchange_declare,
    get,
    mode,
    publish,
    qos,
    queue_bind,
    queue_declare,
    queue_delete,
    queue_purge,
    recover,
    settle,
)
from .plans import Limits, Plan

#: Operations allowed in a batch: those with one immediate answer, or none.
BATCHED = (
    *(publish, publish, publish, settle, settle, get, consume, cancel, qos, mode),
    *(queue_declare, queue_bind, exchange_declare, queue_purge, queue_delete),
)

#: Operations that may dead-letter messages.
MAY_KILL = ("basic.publish", "basic.reject", "basic.nack")
REFUSES = ("basic.reject", "basic.nack")
#: Operations that requeue messages or give credit: RabbitMQ's queue may deliver before it gets the next method.
SETTLES = ("basic.reject", "basic.nack", "basic.ack")
#: Operations that may fail, which requeues the channel's messages at that time.
MAY_FAIL = (
    "queue.declare",
    "queue.bind",
    "queue.unbind",
    "exchange.declare",
    "queue.purge",
    "queue.delete",
    "basic.get",
)
#: Operations whose answers depend on the dead letters that have arrived.
LOOKS = ("basic.get", "queue.purge", "queue.delete")


def batch(choose: Chooser, plan: Plan) -> Operation:
    """Up to six operations for one channel. Those whose answers would depend on timing are omitted."""
    place = at(choose, "batch")
    operations: list[Operation] = []
    deleted: set[str] = set()
    for _ in range(choose.one(2, 3, 4, 6)):
        operation = choose.one(*BATCHED)(choose, plan) | {"c": place["c"], "ch": place["ch"]}
        kills = any(earlier["op"] in MAY_KILL for earlier in operations)
        if (plan.dead_letters or plan.quorum) and kills and operation["op"] in LOOKS:
            continue  # quorum queues handle publishes asynchronously, too
        if plan.dead_letters and operation["op"] == "basic.publish" and any(one["op"] in REFUSES for one in operations):
            continue  # it may reach the queue before or after the dead letter
        names = [one["op"] for one in operations]
        if operation["op"] in SETTLES and any(name in (*SETTLES, *MAY_FAIL) for name in names):
            continue
        if operation["op"] in MAY_FAIL and any(name in SETTLES for name in names):
            continue
        if operation["op"] in ("basic.consume", "basic.cancel") and deleted:
            continue  # RabbitMQ's channel may still know a consumer with that tag, or have cancelled it
        if operation["op"] == "queue.delete":
            deleted.add(operation["queue"])
        elif operation["op"] == "queue.declare" and operation["queue"] in deleted:
            continue  # RabbitMQ moves consumers to it, as to another mirror
        if operation["op"] == "basic.consume":
            operation["queue"] = plan.queues[place["c"] * 2 + place["ch"] - 1]
        if operation.get("size", 0) > 5_000:
            del operation["size"]
        # A shared limit counts deliveries that may have arrived or not.
        if operation.pop("global_", None) and plan.limits is Limits.SHARED:
            operation["prefetch_count"] = 0
        if operation.get("queue") == "" and operation["op"] != "queue.declare":
            operation["queue"] = "missing"  # RabbitMQ looks up the last declared queue even after the channel failed
        if not isinstance(operation.get("delivery_tag", []), list):
            operation["delivery_tag"] = ["outstanding", -1]  # other messages may have been delivered or not
        if plan.quorum and operation["op"] == "basic.consume":
            operation.pop("no_ack", None)  # RabbitMQ keeps messages that it has not sent yet
        if plan.quorum and "requeue" in operation:
            operation["requeue"] = False
        operations.append(operation)
    if not plan.quorum and choose.rarely(8) and not any(one["op"] in (*SETTLES, *MAY_FAIL) for one in operations):
        operations.insert(0, recover(choose, plan) | {"c": place["c"], "ch": place["ch"]})
    return place | {"operations": operations}
