"""What becomes of deliveries that are no longer out: gone for good, back in their queues, or dead.

All in runs: messages of one holder, one after the other. Source: behaviour page 2.12, 2.13; ruling 8.
"""

from ..delivery.consumer import by_consumer, by_holder, holder_of
from ..messages.deaths import REJECTED
from ..messages.message import Message
from ..options import BrokerOptions
from ..queues.queue import Queue

#: How a peer gave a delivery back, beside `REJECTED`.
NACKED = "nacked"


def settle(messages: list[Message]) -> None:
    """Acknowledged: gone for good."""
    for holder, run in by_holder(messages):
        holder.session.release(holder, len(run))
        queue = holder.queue
        if not queue.deleted:
            queue.acknowledged(run)


def give_back(messages: list[Message], *, requeue: bool, why: str, options: BrokerOptions) -> None:
    """Rejected, or nacked: back to their places, or (`requeue` false) away."""
    if requeue:
        requeue_by_consumer(messages, why=why, counted=options.nack_counts if why == NACKED else options.reject_counts)
        return
    for run in by_consumer(messages):
        for holder, part in by_holder(run):
            holder.session.release(holder, len(part))
            queue = holder.queue
            if not queue.deleted:
                queue.kill_or_keep(part, reason=REJECTED)


def requeue_by_consumer(messages: list[Message], *, why: str, counted: bool) -> None:
    """Those who wait are offered what one consumer gave back before the next one's is there.

    So which of them gets what is as in RabbitMQ.
    """
    runs = by_consumer(messages)
    for run in runs:
        holder = holder_of(run[0])
        requeue_run(run, why=why, counted=counted, delayed=True)
        if run is not runs[-1]:
            holder.session.client.broker.dispatch_now(holder.queue)


def requeue_run(messages: list[Message], *, why: str, counted: bool, delayed: bool) -> None:
    """Back to their places. `counted`: as failed attempts; `delayed`: after the queue's redelivery delay."""
    by_queue: dict[Queue, list[Message]] = {}
    for holder, run in by_holder(messages):
        holder.session.release(holder, len(run))
        by_queue.setdefault(holder.queue, []).extend(run)
    for queue, returned in by_queue.items():
        queue.requeue(returned, why=why, counted=counted, delayed=delayed)
