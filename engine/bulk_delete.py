"""A queue with very much in it is purged or deleted: first it is made small, a slice at the end of each turn.

It hands nothing out meanwhile, and who wants to look into it waits (`Queue.is_busy`). Messages need slices only where
somebody listens: a journal lists them, and has them as one (`Broker.is_unfinished`). What was begun is done, also when
its client is gone.
"""

from collections.abc import Callable, Iterator
from operator import attrgetter

from .clients.client import Client
from .queues.queue import Queue

#: Messages, and bindings, that go in one slice: about 2 ms with a journal, for each connection's turn ends with one. A
#: queue that has no more is not large.
MESSAGES_SLICE, BINDINGS_SLICE = 10_000, 200
#: For so many ends of turns it stays as it is, small, for the one who asked to end it; then it is ended all the same.
WAIT_MAX = 1_000

_ID = attrgetter("id")


class BulkDelete:
    """Made by `begin_purge`, `begin_delete`. When the queue `is_small` it is to be ended as any other; then `finish`.

    `count`: messages that went so far.
    """

    __slots__ = ("_asker", "_broker", "_end", "_queue", "_unbind", "count", "is_small")

    def __init__(
        self,
        queue: Queue,
        asker: Client,
        *,
        unbind: Callable[[Queue, int], None] | None,
        end: Callable[[Queue], int],
    ) -> None:
        """`unbind`: takes so many of its bindings away; None: it keeps them, for it is not deleted.

        `end`: what was asked for, where nobody is left to do it.
        """
        self._queue = queue
        self._asker = asker
        self._broker = queue.context.broker
        self._unbind = unbind
        self._end = end
        self.count = 0
        self.is_small = False

    def steps(self) -> Iterator[None]:
        """A slice each."""
        queue, under_way = self._queue, self._broker.bulk_deletes
        queue.freeze()
        under_way.add(self)
        try:
            while not queue.deleted and is_large(queue, deletes=self._unbind is not None):
                self._slice()
                durability = self._broker.storage.durability
                if durability is not None:
                    durability.take_sync_lsn()  # nobody else's answer waits for it
                yield
            self.is_small = True
            for _ in range(WAIT_MAX):
                if self not in under_way or queue.deleted or self._asker.closed:
                    break
                yield
            if self in under_way and not queue.deleted:
                self.count += self._end(queue)
        finally:
            self.is_small = True
            under_way.discard(self)
            queue.unfreeze()

    def finish(self) -> int:
        """What was asked for is done. Returns how many messages had gone before."""
        self._broker.bulk_deletes.discard(self)
        return self.count

    def _slice(self) -> None:
        queue = self._queue
        if self._unbind is not None and len(queue.incoming) > BINDINGS_SLICE:
            self._unbind(queue, BINDINGS_SLICE)
            return
        gone = queue.store.evict_head(MESSAGES_SLICE, with_content=False).messages
        self.count += len(gone)
        if self._unbind is None:
            queue.events.purged(gone)
        else:
            queue.events.deleted(sorted(gone, key=_ID), len(gone))


def is_large(queue: Queue, *, deletes: bool) -> bool:
    """Whether ending it, or what is in it, would be a long turn."""
    if deletes and len(queue.incoming) > BINDINGS_SLICE:
        return True
    store = queue.store
    return (
        queue.events.has_listeners
        and not queue.keeps
        and not store.level_max  # a level's ids lie among those of others: the journal could not say it in short
        and store.in_memory > MESSAGES_SLICE
    )
