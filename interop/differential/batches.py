"""Batches: several operations that are sent at once through one channel (`operations`), before the first is answered.

What RabbitMQ answers to them by luck is left out: where it depends on whether another of its processes was faster.
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

#: What a batch may hold: what one answer, or none, follows at once.
BATCHED = (
    *(publish, publish, publish, settle, settle, get, consume, cancel, qos, mode),
    *(queue_declare, queue_bind, exchange_declare, queue_purge, queue_delete),
)

#: What may leave dead letters, and what would find them, or not yet.
MAY_KILL = ("basic.publish", "basic.reject", "basic.nack")
REFUSES = ("basic.reject", "basic.nack")
#: What gives messages back or makes room for others: RabbitMQ's queue may hand out before it hears what comes next.
SETTLES = ("basic.reject", "basic.nack", "basic.ack")
#: What may fail, so that the channel's messages go back, whichever those are by then.
MAY_FAIL = (
    "queue.declare",
    "queue.bind",
    "queue.unbind",
    "exchange.declare",
    "queue.purge",
    "queue.delete",
    "basic.get",
)
LOOKS = ("basic.get", "queue.purge", "queue.delete")


def batch(choose: Chooser, plan: Plan) -> Operation:
    """Two to six operations for one channel, or fewer: what may not follow is left out."""
    place = at(choose, "batch")
    operations: list[Operation] = []
    deleted: set[str] = set()
    for _ in range(choose.one(2, 3, 4, 6)):
        operation = choose.one(*BATCHED)(choose, plan) | {"c": place["c"], "ch": place["ch"]}
        kills = any(earlier["op"] in MAY_KILL for earlier in operations)
        if (plan.dead_letters or plan.quorum) and kills and operation["op"] in LOOKS:
            continue  # a quorum queue takes its time over what is published, too
        if plan.dead_letters and operation["op"] == "basic.publish" and any(one["op"] in REFUSES for one in operations):
            continue  # before or behind the dead letter, if it has the same way
        names = [one["op"] for one in operations]
        if operation["op"] in SETTLES and any(name in (*SETTLES, *MAY_FAIL) for name in names):
            continue
        if operation["op"] in MAY_FAIL and any(name in SETTLES for name in names):
            continue
        if operation["op"] in ("basic.consume", "basic.cancel") and deleted:
            continue  # RabbitMQ's channel may still know a consumer of that tag, or have told its end
        if operation["op"] == "queue.delete":
            deleted.add(operation["queue"])
        elif operation["op"] == "queue.declare" and operation["queue"] in deleted:
            continue  # RabbitMQ takes consumers over to it, as to another mirror
        if operation["op"] == "basic.consume":
            operation["queue"] = plan.queues[place["c"] * 2 + place["ch"] - 1]
        if operation.get("size", 0) > 5_000:
            del operation["size"]
        # A shared limit counts what it finds delivered, or still on its way.
        if operation.pop("global_", None) and plan.limits is Limits.SHARED:
            operation["prefetch_count"] = 0
        if operation.get("queue") == "" and operation["op"] != "queue.declare":
            operation["queue"] = "missing"  # RabbitMQ looks for the last declared queue also when the channel failed
        if not isinstance(operation.get("delivery_tag", []), list):
            operation["delivery_tag"] = ["outstanding", -1]  # others may be out by then, or not yet
        if plan.quorum and operation["op"] == "basic.consume":
            operation.pop("no_ack", None)  # RabbitMQ keeps what it had no time to send
        if plan.quorum and "requeue" in operation:
            operation["requeue"] = False
        operations.append(operation)
    if not plan.quorum and choose.rarely(8) and not any(one["op"] in (*SETTLES, *MAY_FAIL) for one in operations):
        operations.insert(0, recover(choose, plan) | {"c": place["c"], "ch": place["ch"]})
    return place | {"operations": operations}
