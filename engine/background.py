"""Work that is too long for one turn. At the end of each turn a slice of each kind of work is done.

What a turn costs, and who waits for a long one: turn.py.
"""

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING

from .context import BrokerContext

if TYPE_CHECKING:
    from .queues.queue import Queue
    from .stores.store import Freeable

#: Messages freed in one slice of a purge or delete (about 2 ms).
FREE_SLICE = 20_000


class Background:
    """The background work of one broker, with that of flow control, reloading and disconnects.

    `pending`: whether work may be left. It is a plain attribute, because each turn reads it. Whatever adds work sets
    it. `to_trim`: queues whose `Queue.trim` is called at the ends of turns, one a turn.
    """

    def __init__(self, context: BrokerContext) -> None:
        self._context = context
        self._freed: deque[Freeable] = deque()
        self.to_trim: dict[Queue, None] = {}
        self._tasks: deque[Iterator[None]] = deque()
        self.pending = False

    def free(self, messages: "Freeable") -> None:
        """Keep many messages to free their memory in slices. Few are freed when the caller drops them."""
        if len(messages) > FREE_SLICE:
            self._freed.append(messages)
            self.pending = True

    def trim_later(self, queue: "Queue") -> None:
        """Call `Queue.trim` at the end of a turn, because one slice of the queue was not enough."""
        self.to_trim[queue] = None
        self.pending = True

    def run(self, steps: Iterator[None]) -> None:
        """Run steps of some milliseconds each. Iterators alternate: at the end of each turn one of them does a step."""
        self._tasks.append(steps)
        self.pending = True

    def work(self) -> None:
        """Do a slice of each kind. A slice may add work of another kind."""
        context = self._context
        flow, reloading, disconnects = context.flow, context.reloading, context.disconnects
        if flow.pending:
            flow.work()
        if self._freed:
            self._free()
        if self.to_trim:
            self._trim()
        if reloading.pending:
            reloading.work()
        if disconnects.pending:
            disconnects.work()
        if self._tasks:
            self._step()
        has_own = self._freed or self.to_trim or self._tasks
        self.pending = bool(has_own) or flow.pending or reloading.pending or disconnects.pending

    def _free(self) -> None:
        messages = self._freed[0]
        pop = messages.pop
        for _ in range(min(FREE_SLICE, len(messages))):
            pop()
        if not messages:
            self._freed.popleft()

    def _trim(self) -> None:
        """Trim a slice of one queue. Skips a turn that had dead letters, so that the journal can commit in between."""
        if self._context.dead_letters.were_waiting:
            return
        queue = next(iter(self.to_trim))
        del self.to_trim[queue]
        if not queue.deleted:
            queue.trim()  # may call `trim_later` again

    def _step(self) -> None:
        steps = self._tasks.popleft()
        if next(steps, True) is None:  # True: it has ended
            self._tasks.append(steps)
