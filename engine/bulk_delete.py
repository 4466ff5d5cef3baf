"""Purges and deletions of large queues, which are first made small by slices at the ends of turns.

Meanwhile the queue is frozen, and gets, purges and deletions wait (`Queue.is_busy`). Messages are sliced only for
listeners, such as a journal or a meter, which note what leaves. The journal writes all slices as one unit
(`Broker.is_unfinished`). The work is completed even if its client disconnects.
"""

from collections.abc import Callable, Iterator

from .clients.client import Client
from .messages.message import id_of
from .queues.queue import Queue

#: Messages, or bindings, removed in one slice (about 2 ms with a journal). A queue with at most these is not large.
MESSAGES_SLICE, BINDINGS_SLICE = 10_000, 200
#: Ends of turns after which the broker purges or deletes the small queue, if its client has not done it.
WAIT_MAX = 1_000


class BulkDelete:
    """The purge or deletion of one large queue. Made by `begin_purge` and `begin_delete`.

    As soon as the queue `is_small`, the caller calls `finish`, and purges or deletes the queue as usual in the same
    turn. `count`: messages removed so far.
    """

    def __init__(
        self, queue: Queue, client: Client, *, unbind: Callable[[Queue, int], None] | None, end: Callable[[Queue], int]
    ) -> None:
        """`client`: the caller. `unbind`: removes a number of bindings of the queue; None: a purge, which keeps them.

        `end`: purges or deletes the small queue if the client does not.
        """
        self._queue = queue
        self._client = client
        self._broker = queue.context.broker
        self._unbind = unbind
        self._end = end
        self.count = 0
        self.is_small = False

    def steps(self) -> Iterator[None]:
        """Make the queue small, then wait for the caller to purge or delete it; do that here if the caller does not."""
        queue, under_way = self._queue, self._broker.bulk_deletes
        queue.freeze()
        under_way.add(self)
        try:
            while not queue.deleted and is_large(queue, deletes=self._unbind is not None):
                self._slice()
                yield
            self.is_small = True
            for _ in range(WAIT_MAX):
                if self not in under_way or queue.deleted or self._client.closed:
                    break
                yield
            if self in under_way and not queue.deleted:
                self.count += self._end(queue)
        finally:
            self.is_small = True
            under_way.discard(self)
            queue.unfreeze()

    def finish(self) -> int:
        """Note that the caller now purges or deletes the queue. Returns the number of messages removed before."""
        self._broker.bulk_deletes.discard(self)
        return self.count

    def _slice(self) -> None:
        queue = self._queue
        if self._unbind is not None and len(queue.incoming) > BINDINGS_SLICE:
            self._unbind(queue, BINDINGS_SLICE)
            return
        gone = queue.evictable.evict_head(MESSAGES_SLICE, with_content=False).messages
        self.count += len(gone)
        if self._unbind is None:
            queue.events.purged(gone)
        else:
            queue.events.deleted(sorted(gone, key=id_of), len(gone))


def is_large(queue: Queue, *, deletes: bool) -> bool:
    """Whether the queue is first made small by slices: it has many bindings, or many messages in memory that listeners
    note and that can be sliced. `deletes`: whether its bindings go, too.
    """
    if deletes and len(queue.incoming) > BINDINGS_SLICE:
        return True
    store = queue.store
    return (
        queue.events.has_listeners
        and not queue.keeps_acked
        and not store.level_max  # the journal records a slice as a range of ids, and ids of levels interleave
        and store.in_memory > MESSAGES_SLICE
    )
