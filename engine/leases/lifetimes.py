"""When messages of a leased queue expire, in the order of time, whatever their order in the queue."""

from collections.abc import Callable
from heapq import heappop, heappush

#: Entries of messages that are gone, besides as many as there are messages, before such entries are looked for.
GONE_MAX = 64
#: Entries that are looked at for each one that comes: more than one, so that looking ends.
LOOKED_AT = 4


class Lifetimes:
    """A heap of the times at which messages expire (monotonic ns), each message under a key.

    A message may go earlier, and its entry stays until it is due or looked at. If there are more entries than messages,
    a few are looked at whenever one comes, so that the number of entries does not follow the rate of messages.
    """

    def __init__(self) -> None:
        self._keys: set[int] = set()
        self._heap: list[tuple[int, int]] = []  # (monotonic ns, key)
        self._unlooked: list[tuple[int, int]] = []  # a heap, too: entries that are still to be looked at

    def __len__(self) -> int:
        """The number of entries, also of messages that are gone."""
        return len(self._keys)

    def add(self, due_ns: int, key: int, count: int, is_there: Callable[[int], bool]) -> None:
        """Note when a message expires. `count`: of messages that there are; `is_there`: whether one is, by its key."""
        if key not in self._keys:
            self._keys.add(key)
            heappush(self._heap, (due_ns, key))
        if not self._unlooked and len(self._heap) > 2 * count + GONE_MAX:
            self._unlooked, self._heap = self._heap, []
        for _ in range(min(LOOKED_AT, len(self._unlooked))):
            entry = self._unlooked.pop()  # the last one, so that the rest is still a heap
            if is_there(entry[1]):
                heappush(self._heap, entry)
            else:
                self._keys.remove(entry[1])

    def clear(self) -> None:
        """Forget all."""
        for entries in (self._keys, self._heap, self._unlooked):
            entries.clear()

    def due(self, now_ns: int, count: int) -> list[int]:
        """Remove and return up to `count` keys of messages that expired; some may be gone already."""
        found: list[int] = []
        for heap in (self._heap, self._unlooked):
            while heap and heap[0][0] <= now_ns and len(found) < count:
                found.append(heappop(heap)[1])
        self._keys.difference_update(found)
        return found

    def drop_first_gone(self, is_there: Callable[[int], bool]) -> None:
        """Forget the messages that expire next, up to one that is there."""
        for heap in (self._heap, self._unlooked):
            while heap and not is_there(heap[0][1]):
                self._keys.remove(heappop(heap)[1])

    def next_ns(self) -> int:
        """When the next message expires (monotonic ns), which may be gone; 0: none does."""
        return min((heap[0][0] for heap in (self._heap, self._unlooked) if heap), default=0)
