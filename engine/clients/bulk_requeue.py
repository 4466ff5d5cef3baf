"""The requeue of a closed session's deliveries in slices, if there are many.

Their queues are frozen until all are back, so that the order is that of one requeue.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from .settling import requeue_run

if TYPE_CHECKING:
    from .session import Session

#: Deliveries requeued in one slice (1 to 5 ms).
REQUEUE_SLICE = 500


def requeue_in_slices(session: "Session", *, why: str, counted: bool, with_redelivery_delay: bool) -> Iterator[None]:
    """Requeue a slice in each step, the newest first, so that no returned message has to be passed over.

    The session stays in `Queue.sessions` of its queues until all deliveries are back.
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
