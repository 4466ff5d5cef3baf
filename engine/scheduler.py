"""Schedules queues: dispatch at the end of a turn, loading between turns, dispatch when the journal has written."""

from typing import TYPE_CHECKING, TypeAlias

from .context import BrokerContext

if TYPE_CHECKING:
    from .publishing.firehose import Firehose
    from .queues.queue import Queue

    Marked: TypeAlias = Queue | Firehose


class Scheduler:
    """The scheduler of one broker.

    `marked`: queues to dispatch before the turn ends. `to_load`: queues whose paged-out messages are to be loaded.
    `awaiting`: queues to dispatch when the journal has written more.
    `round`: number of rounds of dispatch since the broker started; `round_width`: number of queues in the present one.
    """

    def __init__(self, context: BrokerContext) -> None:
        self._context = context
        self.marked: dict[Marked, None] = {}
        self._ahead: list[Marked] = []  # queues left in this round, the next one last
        self._is_dispatching = False
        self.to_load: dict[Queue, None] = {}
        self.awaiting: dict[Queue, None] = {}
        self.round = 0
        self.round_width = 1

    # -- before the turn ends -----------------------------------------------------------------------------------------

    def mark(self, queue: "Marked") -> None:
        """Dispatch this queue before the turn ends."""
        self.marked[queue] = None

    def is_marked(self, queue: "Queue") -> bool:
        return queue in self.marked

    def waiting_count(self) -> int:
        """The number of queues that wait during `dispatch`; at other times 0."""
        return len(self.marked) if self._is_dispatching else 0

    def dispatch_now(self, queue: "Queue") -> None:
        """Publish a slice of the dead letters, expire a slice of a queue, then dispatch the queue if it is marked.

        Called before a get, a purge or a deletion, because waiting consumers have precedence.
        """
        context = self._context
        if context.dead_letters.waiting:
            with context.separate_turn():
                context.dead_letters.publish()
        if queue.store.expiring:
            queue.expire_now()
        if queue in self.marked:
            del self.marked[queue]
            if not queue.deleted:
                with context.separate_turn():  # to the end, however long the turn is
                    queue.dispatch()

    def dispatch(self) -> None:
        """Dispatch marked queues in order until the turn is long. Queues marked meanwhile follow in the next round."""
        marked = self.marked
        if len(marked) == 1:
            queue, _ = marked.popitem()
            if not queue.deleted:
                queue.dispatch()
            return
        ahead, turn = self._ahead, self._context.turn
        self._is_dispatching = True
        try:
            while marked:
                if not ahead:
                    ahead.extend(reversed(marked))
                    self.round += 1
                    self.round_width = len(ahead)
                queue = ahead.pop()
                if queue in marked:
                    del marked[queue]
                    if not queue.deleted:
                        queue.dispatch()
                        if turn.effort >= turn.effort_max:
                            break
        finally:
            self._is_dispatching = False

    # -- later --------------------------------------------------------------------------------------------------------

    def load_later(self, queue: "Queue") -> None:
        """Load a slice of paged-out messages of this queue between turns."""
        self.to_load[queue] = None

    def load(self) -> bool:
        """Load a slice of paged-out messages of one queue. Returns whether there may be more. Called between turns."""
        to_load = self.to_load
        if not to_load:
            return False
        queue = next(iter(to_load))  # the one that has waited longest
        del to_load[queue]
        if queue.deleted:
            return bool(to_load)
        if queue.wants_load():  # False: a get has loaded it
            queue.load()
        self.mark(queue)
        if queue.wants_load():
            to_load[queue] = None
        return True

    def await_journal(self, queue: "Queue") -> None:
        """Dispatch this queue when the journal has written more."""
        self.awaiting[queue] = None

    def release_awaiting(self) -> bool:
        """Mark the queues that wait for the journal. Returns whether there were any."""
        if not self.awaiting:
            return False
        for queue in self.awaiting:
            queue.mark()
        self.awaiting.clear()
        return True
