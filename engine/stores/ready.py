"""The ready list of queues with priority levels or a count of octets.

Plain queues have a `collections.deque`; the methods here have the same names as those of a deque. The head is the
oldest message of the highest level, for delivery and for dropping alike (behaviour page 3.3, 3.5).
"""

from bisect import insort
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence

from ..messages.levels import Levels
from ..messages.message import Message
from .sorted_list import SortedList


class LeveledReady:
    """Messages by `levels` of priority, each in order of ids."""

    __slots__ = ("_count", "_levels", "_number_of", "_size_of", "octets")

    def __init__(self, levels: Levels, size_of: Callable[[Message], int]) -> None:
        self._levels: list[deque[Message] | SortedList[Message]] = [deque() for _ in range(levels.top + 1)]
        self._number_of = levels.of
        self._size_of = size_of
        self._count = 0
        self.octets = 0  # octets of all bodies

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Message]:
        for level in reversed(self._levels):
            yield from level

    def __getitem__(self, index: int) -> Message:
        assert index == 0
        return next(iter(self))

    def _level_of(self, message: Message) -> deque[Message] | SortedList[Message]:
        return self._levels[self._number_of(message.envelope.summary.priority)]

    def append(self, message: Message) -> None:
        """Append a message to its level."""
        self._level_of(message).append(message)
        self._added(message)

    def appendleft(self, message: Message) -> None:
        """Insert a message at the head of its level."""
        self._level_of(message).appendleft(message)
        self._added(message)

    def extend(self, messages: Iterable[Message]) -> None:
        """Append messages to their levels."""
        for message in messages:
            self.append(message)

    def popleft(self) -> Message:
        """Remove and return the head."""
        for level in reversed(self._levels):
            if level:
                message = level.popleft()
                self._removed(message)
                return message
        raise IndexError("empty")

    def pop(self) -> Message:
        """Remove any message, to free the memory of a purge in slices."""
        return self.popleft()

    @property
    def level_max(self) -> int:
        """The highest level."""
        return len(self._levels) - 1

    @property
    def levels(self) -> list[deque[Message] | SortedList[Message]]:
        """The containers of the levels, from level 0 on. A caller may replace one by another with the same messages."""
        return self._levels

    def took(self, messages: Iterable[Message]) -> None:
        """Update the counts after messages were taken out of `levels`."""
        for message in messages:
            self._removed(message)

    def merge(self, messages: list[Message]) -> None:
        """Insert messages (ids falling) into their levels by their ids."""
        for message in messages:
            self._added(message)
        by_level: dict[int, list[Message]] = {}
        for message in messages:
            by_level.setdefault(self._number_of(message.envelope.summary.priority), []).append(message)
        for index, returned in by_level.items():
            merge_back(self._levels[index], returned)

    def _added(self, message: Message) -> None:
        self._count += 1
        self.octets += self._size_of(message)

    def _removed(self, message: Message) -> None:
        self._count -= 1
        self.octets -= self._size_of(message)


def merge_back(ready: deque[Message] | SortedList[Message], messages: list[Message]) -> int:
    """Insert messages (ids falling) by their ids. O(messages + those before them); `SortedList`: O(messages).

    Returns: the number of messages before them that were moved.
    """
    if isinstance(ready, SortedList):
        by_id = {message.id: message for message in reversed(messages)}

        def with_more(block: list[Message], ids: Sequence[int]) -> list[Message]:
            for id_ in ids:
                insort(block, by_id[id_], key=_id_of)
            return block

        ready.change(list(by_id), with_more)
        return 0
    before: list[Message] = []
    while ready and messages and ready[0].id < messages[0].id:
        before.append(ready.popleft())
    passed = len(before)
    # `before` rises, `messages` falls: merge from the back.
    for message in messages:
        while before and before[-1].id > message.id:
            ready.appendleft(before.pop())
        ready.appendleft(message)
    while before:
        ready.appendleft(before.pop())
    return passed


def _id_of(message: Message) -> int:
    return message.id
