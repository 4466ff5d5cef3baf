"""Programs: lists of operations and batches, which are run against two brokers."""

from __future__ import annotations

from collections.abc import Callable

from .batches import batch
from .choices import QUEUES, Chooser
from .operations import (
    EXCHANGES,
    Operation,
    cancel,
    channel,
    connection,
    consume,
    direct_reply,
    exchange_bind,
    exchange_declare,
    exchange_delete,
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
    transaction,
)
from .plans import Plan, choose_plan

OPERATIONS_MEAN = 40

#: Operation -> its relative frequency.
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
    batch: 8,
}
#: Operations that requeue. RabbitMQ's quorum queues count this as a failed attempt, Leveret does not.
UNCOUNTED = ("basic.recover", "basic.recover-async", "channel.close", "connection.close")
_DECK = [builder for builder, weight in WEIGHTS.items() for _ in range(weight)]


def program(choose: Chooser) -> list[Operation]:
    """A program of about fifty operations. Careful ones and half of the others first declare and bind most objects."""
    plan = choose_plan(choose)
    operations = []
    if plan.careful or choose.rarely(2):
        for name in (*QUEUES, *EXCHANGES):
            if plan.careful or not choose.rarely(6):
                operation = (queue_declare if name in QUEUES else exchange_declare)(choose, plan, name)
                operation.pop("passive", None)
                operations.append(operation)
        operations += [queue_bind(choose, plan) for _ in range(choose.below(8))]
    while choose.below(OPERATIONS_MEAN) and len(operations) < 6 * OPERATIONS_MEAN:
        operation = _DECK[choose.below(len(_DECK))](choose, plan)
        if not plan.quorum or operation["op"] not in UNCOUNTED:
            operations.append(operation)
    if plan.careful:
        for operation in [inner for one in operations for inner in one.get("operations", (one,))]:
            operation["careful"] = True
    return operations
