"""Settles deliveries: acknowledges, requeues, or rejects them, in runs of consecutive messages of one holder.

Source: behaviour page 2.12, 2.13; ruling 8.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..context import BrokerContext
from ..delivery.consumer import by_consumer, holder_of, runs_by_holder
from ..messages.dead_letter import REJECTED
from ..messages.message import Message
from ..queues.queue import Queue

if TYPE_CHECKING:
    from .session import Session

#: The reason of a return by basic.nack. That of basic.reject is `REJECTED`.
NACKED = "nacked"
#: Deliveries requeued in one slice (1 to 5 ms).
REQUEUE_SLICE = 500


def settle(messages: list[Message]) -> None:
    """Acknowledge deliveries."""
    for holder, run in runs_by_holder(messages):
        queue = holder.queue
        session, count = holder.session, len(run)
        session.release(holder, queue, count)
        session.acked += count
        if not queue.deleted:
            queue.acknowledged(run)


def return_deliveries(messages: list[Message], *, requeue: bool, why: str, broker: BrokerContext) -> None:
    """Settle rejected or nacked deliveries: requeue them, or (`requeue` false) drop or dead-letter them."""
    if requeue:
        options = broker.options
        counted = options.nack_counts if why == NACKED else options.reject_counts
        requeue_by_consumer(messages, why=why, counted=counted, broker=broker)
        return
    for run in by_consumer(messages):
        for holder, part in tuple(runs_by_holder(run)):
            queue = holder.queue
            holder.session.release(holder, queue, len(part))
            if not queue.deleted:
                queue.reject_or_requeue(part, reason=REJECTED)


def requeue_by_consumer(messages: list[Message], *, why: str, counted: bool, broker: BrokerContext) -> None:
    """Requeue deliveries consumer by consumer, with a dispatch in between, so that messages reach the same consumers as
    in RabbitMQ.
    """
    runs = by_consumer(messages)
    for run in runs:
        holder = holder_of(run[0])
        requeue_run(run, why=why, counted=counted, with_redelivery_delay=True)
        if run is not runs[-1]:
            broker.scheduler.dispatch_now(holder.queue)


def requeue_run(messages: list[Message], *, why: str, counted: bool, with_redelivery_delay: bool) -> None:
    """Requeue deliveries. `counted`: they are failed attempts."""
    by_queue: dict[Queue, list[Message]] = {}
    for holder, run in tuple(runs_by_holder(messages)):
        queue = holder.queue
        holder.session.release(holder, queue, len(run))
        by_queue.setdefault(queue, []).extend(run)
    for queue, returned in by_queue.items():
        queue.requeue(returned, why=why, counted=counted, with_redelivery_delay=with_redelivery_delay)


def requeue_in_slices(session: "Session", *, why: str, counted: bool, with_redelivery_delay: bool) -> Iterator[None]:
    """Requeue the deliveries of a closed session, a slice in each step.

    The newest are first, because a store inserts a message by passing the older ones. The queues are frozen until the
    last slice, so that the order is that of one requeue. Until then the session stays in `Queue.sessions`.
    """
    unacked = session.unacked
    queues = list(session.subscriptions.queues)
    for queue in queues:
        queue.freeze()
    while unacked:
        newest = [unacked.popitem()[1] for _ in range(min(REQUEUE_SLICE, len(unacked)))]
        requeue_run(newest[::-1], why=why, counted=counted, with_redelivery_delay=with_redelivery_delay)
        if unacked:
            yield
    for queue in queues:
        queue.unfreeze()
    session.subscriptions.leave_queues(session)
