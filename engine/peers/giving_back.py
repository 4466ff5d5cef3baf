"""A session ended while very many deliveries were out: they go back to their queues a slice at a time.

Their queues hand nothing out until all are back, so that order is as if it had been done at once.
"""

from collections.abc import Iterator
from typing import Protocol

from .settling import requeue_run
from .subscriptions import Subscriber, Subscriptions
from .unacked import Unacked

#: In one slice (1 to 5 ms).
GIVE_BACK_SLICE = 500


class Ended(Subscriber, Protocol):
    """The session. It stays known to its queues (`Queue.sessions`) for as long as something is out."""

    unacked: Unacked
    subscriptions: Subscriptions


def give_back_in_slices(session: Ended, *, why: str, counted: bool, delayed: bool) -> Iterator[None]:
    """Each step requeues a slice, newest first: nothing stands before it in its queue."""
    unacked = session.unacked
    queues = list(session.subscriptions.queues)
    for queue in queues:
        queue.hold()
    while unacked:
        newest = [unacked.popitem()[1] for _ in range(min(GIVE_BACK_SLICE, len(unacked)))]
        requeue_run(newest[::-1], why=why, counted=counted, delayed=delayed)
        if unacked:
            yield
    for queue in queues:
        queue.let_go()
    session.subscriptions.leave_queues(session)
