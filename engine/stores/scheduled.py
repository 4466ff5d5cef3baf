"""Messages of one queue that wait for their time. Source: address-settings page 5.1, 5.3."""

from collections.abc import Iterator
from heapq import heapify, heappop, heappush

from ..messages.message import Message


class Scheduled:
    """Messages of one queue that wait for a due time, soonest first. O(log n) in and out."""

    __slots__ = ("_heap",)

    def __init__(self) -> None:
        # Ids are unique in a queue, so that messages are never compared; no number of our own is stored.
        self._heap: list[tuple[int, int, Message]] = []

    def __len__(self) -> int:
        return len(self._heap)

    def __iter__(self) -> Iterator[Message]:
        return (message for _, _, message in self._heap)

    def entries(self) -> list[tuple[int, Message]]:
        """(due time, message), soonest first."""
        return [(due_ns, message) for due_ns, _, message in sorted(self._heap)]

    def waiting(self) -> list[tuple[int, int, Message]]:
        """(due time, id, message) in no order. O(n), and quick."""
        return list(self._heap)

    def take(self, id_: int) -> Message | None:
        """Take one message out by its id, whenever it is due; None when it does not wait here. O(n)."""
        for index, (_, _, message) in enumerate(self._heap):
            if message.id == id_:
                self._heap[index] = self._heap[-1]
                self._heap.pop()
                heapify(self._heap)
                return message
        return None

    def add(self, due_ns: int, message: Message) -> None:
        """Wait until `due_ns` of the monotonic clock."""
        heappush(self._heap, (due_ns, message.id, message))

    def next_ns(self) -> int | None:
        """When the soonest is due."""
        return self._heap[0][0] if self._heap else None

    def take_due(self, now_ns: int) -> list[tuple[int, Message]]:
        """(due time, message) of those whose time has come, soonest first; of one time in order of publishing."""
        due: list[tuple[int, Message]] = []
        while self._heap and self._heap[0][0] <= now_ns:
            due_ns, _, message = heappop(self._heap)
            due.append((due_ns, message))
        return due

    def take_all(self) -> list[Message]:
        """All of them, soonest first."""
        taken = [message for _, _, message in sorted(self._heap)]
        self._heap.clear()
        return taken
