"""The ready list of non-destructive queues, searched by id, because each consumer reads at its own position."""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from itertools import islice

from ..messages.message import Message


class NonDestructiveReady:
    """Messages in order of ids, found by id in O(log n). Optimized for removal at the head."""

    __slots__ = ("_head", "_messages")

    def __init__(self) -> None:
        self._messages: list[Message] = []
        self._head = 0

    def __len__(self) -> int:
        return len(self._messages) - self._head

    def __iter__(self) -> Iterator[Message]:
        return islice(self._messages, self._head, None)

    def __getitem__(self, index: int) -> Message:
        return self._messages[self._head + index]

    def append(self, message: Message) -> None:
        """Insert a message by its id, which nearly always is at the end."""
        if self._messages and self._messages[-1].id > message.id:
            insort(self._messages, message, lo=self._head, key=_id_of)
        else:
            self._messages.append(message)

    def popleft(self) -> Message:
        """Remove and return the oldest message."""
        message = self._messages[self._head]
        self._head += 1
        if self._head > 1000 and self._head * 2 > len(self._messages):
            del self._messages[: self._head]
            self._head = 0
        return message

    def put_before(self, messages: list[Message]) -> None:
        """Insert messages (ids rising) before all others. O(n)."""
        self._messages[: self._head] = messages
        self._head = 0

    def pop(self) -> Message:
        """Remove any message, to free the memory of a purge in slices."""
        return self._messages.pop()

    def after(self, id_: int, count: int) -> list[Message]:
        """Up to `count` messages with ids above `id_`."""
        start = bisect_right(self._messages, id_, lo=self._head, key=_id_of)
        return self._messages[start : start + count]

    def take(self, id_: int) -> Message | None:
        """Remove and return the message with this id; None: it is not here."""
        index = bisect_left(self._messages, id_, lo=self._head, key=_id_of)
        if index == len(self._messages) or self._messages[index].id != id_:
            return None
        return self._messages.pop(index)

    def has(self, id_: int) -> bool:
        """Whether the message with this id is here."""
        return any(message.id == id_ for message in self.after(id_ - 1, 1))


def _id_of(message: Message) -> int:
    return message.id
