"""Work that is too much for one turn: each end of a turn does a slice of each kind."""

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

from .context import BrokerContext

if TYPE_CHECKING:
    from .queues.queue import Queue
    from .stores.store import Ready

#: Messages given back to the allocator in one slice of a purge or delete (about 2 ms).
FREE_SLICE = 20_000


class Task(Protocol):
    """One kind of work that others do: of flow control, of reloading, of departures."""

    @property
    def pending(self) -> bool:
        """Whether something is left to do."""

    def work(self) -> None:
        """One slice. Called while `pending`."""


class Background:
    """Of one broker. `pending`: whether something may be left to do; a plain attribute, since each turn looks at it.

    Whoever gives it work, or has a background task with something to do, sets that.
    """

    __slots__ = ("_context", "_freed", "_tasks", "_trimmed", "pending")

    def __init__(self, context: BrokerContext) -> None:
        self._context = context
        self._freed: deque[Ready] = deque()
        self._trimmed: dict[Queue, None] = {}
        self._tasks: deque[Iterator[None]] = deque()
        self.pending = False

    def free(self, messages: "Ready") -> None:
        """Give the memory of messages back to the allocator, in slices if there are many."""
        if len(messages) > FREE_SLICE:
            self._freed.append(messages)
            self.pending = True

    def trim_later(self, queue: "Queue") -> None:
        """A queue holds more than it may: `Queue.trim` drops a slice at the end of each turn."""
        self._trimmed[queue] = None
        self.pending = True

    def run(self, steps: Iterator[None]) -> None:
        """Long work of others: take these steps of some milliseconds, one at the end of each turn, of each in turn."""
        self._tasks.append(steps)
        self.pending = True

    def work(self) -> None:
        """A slice of each kind; they may give each other more to do."""
        context = self._context
        flow, reloading, disconnects = context.flow, context.reloading, context.disconnects
        _work(flow)
        if self._freed:
            self._free()
        if self._trimmed:
            self._trim()
        _work(reloading)
        _work(disconnects)
        if self._tasks:
            self._step()
        is_any = self._freed or self._trimmed or self._tasks
        self.pending = bool(is_any) or flow.pending or reloading.pending or disconnects.pending

    def _free(self) -> None:
        messages = self._freed[0]
        pop = messages.pop
        for _ in range(min(FREE_SLICE, len(messages))):
            pop()
        if not messages:
            self._freed.popleft()

    def _trim(self) -> None:
        """A slice of one queue, unless there were dead letters: between two slices the journal has its chance."""
        if self._context.dead_letters.were_waiting:
            return
        queue = next(iter(self._trimmed))
        del self._trimmed[queue]
        if not queue.deleted:
            queue.trim()  # which may ask for more

    def _step(self) -> None:
        steps = self._tasks.popleft()
        if next(steps, True) is None:
            self._tasks.append(steps)


def _work(task: Task) -> None:
    if task.pending:
        task.work()
