"""The scheduled messages of one queue. Source: address-settings page 5.1, 5.3."""

from collections.abc import Iterator
from heapq import heapify, heappop, heappush

from ..messages.message import Message


class Scheduled:
    """The messages of one queue that wait for a due time, soonest first. Adding and taking are O(log n)."""

    __slots__ = ("_heap",)

    def __init__(self) -> None:
        # Ids are unique in a queue, so messages are never compared and the heap needs no sequence number.
        self._heap: list[tuple[int, int, Message]] = []

    def __len__(self) -> int:
        return len(self._heap)

    def __iter__(self) -> Iterator[Message]:
        return (message for _, _, message in self._heap)

    def entries(self) -> list[tuple[int, Message]]:
        """(due time, message), soonest first."""
        return [(due_ns, message) for due_ns, _, message in sorted(self._heap)]

    def waiting(self) -> list[tuple[int, int, Message]]:
        """(due time, id, message), unordered. O(n), without sorting."""
        return list(self._heap)

    def take(self, id_: int) -> Message | None:
        """Remove and return a message by its id; None: it is not scheduled. O(n)."""
        for index, (_, _, message) in enumerate(self._heap):
            if message.id == id_:
                self._heap[index] = self._heap[-1]
                self._heap.pop()
                heapify(self._heap)
                return message
        return None

    def add(self, due_ns: int, message: Message) -> None:
        """Schedule a message for `due_ns` (monotonic)."""
        heappush(self._heap, (due_ns, message.id, message))

    def next_ns(self) -> int | None:
        """The earliest due time; None: no message is scheduled."""
        return self._heap[0][0] if self._heap else None

    def take_due(self, now_ns: int) -> list[tuple[int, Message]]:
        """Remove and return the due messages as (due time, message), soonest first, then in order of publishing."""
        due: list[tuple[int, Message]] = []
        while self._heap and self._heap[0][0] <= now_ns:
            due_ns, _, message = heappop(self._heap)
            due.append((due_ns, message))
        return due

    def take_all(self) -> list[Message]:
        """Remove and return all messages, soonest first."""
        taken = [message for _, _, message in sorted(self._heap)]
        self._heap.clear()
        return taken
