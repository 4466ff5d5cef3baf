"""A session ended while very many deliveries were out: they go back to their queues a slice at a time.

Their queues hand nothing out until all are back, so that order is as if it had been done at once.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from .settling import requeue_run

if TYPE_CHECKING:
    from .session import Session

#: In one slice (1 to 5 ms).
REQUEUE_SLICE = 500


def requeue_in_slices(session: "Session", *, why: str, counted: bool, delayed: bool) -> Iterator[None]:
    """Each step requeues a slice, newest first: nothing stands before it in its queue.

    The session stays known to its queues (`Queue.sessions`) for as long as something is out.
    """
    unacked = session.unacked
    queues = list(session.subscriptions.queues)
    for queue in queues:
        queue.freeze()
    while unacked:
        newest = [unacked.popitem()[1] for _ in range(min(REQUEUE_SLICE, len(unacked)))]
        requeue_run(newest[::-1], why=why, counted=counted, delayed=delayed)
        if unacked:
            yield
    for queue in queues:
        queue.unfreeze()
    session.subscriptions.leave_queues(session)
