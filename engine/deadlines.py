"""The heap of all deadlines: heartbeats, handshakes, expiry, redelivery.

It neither sleeps nor reads a clock: the runtime does both and calls `advance`.
"""

from collections.abc import Callable
from heapq import heapify, heappop, heappush

from ..settings.slotted import slotted

Action = Callable[[], object]


@slotted
class Deadline:
    """An action at `due_ns`. A cancelled deadline has no action, and may stay in the heap until it is due."""

    due_ns: int
    order: int
    action: Action | None

    def __lt__(self, other: "Deadline") -> bool:
        return (self.due_ns, self.order) < (other.due_ns, other.order)


class Deadlines:
    """A heap of `Deadline`s; equal times run in the order in which they were set."""

    def __init__(self) -> None:
        self._heap: list[Deadline] = []
        self._order = 0
        self._cancelled = 0
        #: Called when a new deadline is the next one, so that the runtime wakes earlier.
        self.on_earlier: Callable[[], None] | None = None

    def __len__(self) -> int:
        return len(self._heap) - self._cancelled

    def set(self, due_ns: int, action: Action) -> Deadline:
        """Call `action()` when the clock reaches `due_ns` (monotonic nanoseconds)."""
        self._order += 1
        deadline = Deadline(due_ns, self._order, action)
        heappush(self._heap, deadline)
        if self._heap[0] is deadline and self.on_earlier is not None:
            self.on_earlier()
        return deadline

    def cancel(self, deadline: Deadline | None) -> None:
        """Cancel a deadline that may be None, done or cancelled. Amortized O(log n)."""
        if deadline is None or deadline.action is None:
            return
        deadline.action = None
        self._cancelled += 1
        if self._cancelled > 512 and self._cancelled * 2 > len(self._heap):
            self._heap = [kept for kept in self._heap if kept.action is not None]
            heapify(self._heap)
            self._cancelled = 0

    def next_ns(self) -> int | None:
        """The time of the next deadline; None: there is none."""
        heap = self._heap
        while heap and heap[0].action is None:
            heappop(heap)
            self._cancelled -= 1
        return heap[0].due_ns if heap else None

    def advance(self, now_ns: int) -> int:
        """Run the actions that are due by `now_ns`, in order. Returns their number."""
        done = 0
        while (due_ns := self.next_ns()) is not None and due_ns <= now_ns:
            deadline = heappop(self._heap)
            action, deadline.action = deadline.action, None
            assert action is not None
            action()
            done += 1
        return done
