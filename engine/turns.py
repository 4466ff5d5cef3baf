"""Whose turn it is: queues that were marked hand out before the turn of the frontend ends, one after the other."""

from .effort import Effort
from .publishing.firehose import Firehose
from .queues.queue import Queue

Marked = Queue | Firehose


class Turns:
    """Queues that may have something to hand out. `round`: of turns, since the broker started."""

    __slots__ = ("_ahead", "_effort", "_is_on", "marked", "round", "round_width")

    def __init__(self, effort: Effort) -> None:
        self._effort = effort
        self.marked: dict[Marked, None] = {}
        self._ahead: list[Marked] = []  # of those that were marked, the next one last
        self._is_on = False
        self.round = 0
        self.round_width = 1  # how many queues have a turn in it

    def mark(self, queue: Marked) -> None:
        """Look at this queue again before the turn ends."""
        self.marked[queue] = None

    def is_marked(self, queue: Queue) -> bool:
        """Whether it will be looked at."""
        return queue in self.marked

    def waiting_count(self) -> int:
        """While the marked queues have their turns: how many of them wait for theirs."""
        return len(self.marked) if self._is_on else 0

    def dispatch_now(self, queue: Queue) -> None:
        """This one's turn, if it is marked, before all others."""
        if queue in self.marked:
            del self.marked[queue]
            if not queue.deleted:
                queue.dispatch()

    def dispatch(self) -> None:
        """All marked queues in the order of the marks; those that are marked meanwhile come behind them."""
        marked = self.marked
        if len(marked) == 1:
            queue, _ = marked.popitem()
            if not queue.deleted:
                queue.dispatch()
            return
        ahead, effort = self._ahead, self._effort
        self._is_on = True
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
                        if effort.spent >= effort.turn_max:
                            break
        finally:
            self._is_on = False
