"""The tail of a deep queue: messages of which memory holds only where they are; the journal has the rest.

A run of ids that were published one after the other costs 4 octets a message (its size). Messages that the journal does
not have stand in between as they are, so that order is kept. Source: queues page, section F; rulings 5.
"""

from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, Protocol

from .content import PropertyFacts
from .message import Envelope, Message

#: Ids in one run at most, so that the memory of what was taken is given back.
RUN_MAX = 250_000
#: What events say of messages in a tail: they are in the journal.
IN_JOURNAL = Envelope("", "", PropertyFacts(persistent=True))


class Pager(Protocol):
    """What gives a tail's messages back."""

    def load(self, ids: range) -> list[Message]:
        """The messages with these consecutive ids, as they were published. Reads files: not within a turn's budget."""

    def budget(self) -> int:
        """Octets that one more deep queue may keep in memory."""


class PagedRun:
    """Consecutive ids from `first`; those before `start` are taken."""

    __slots__ = ("first", "sizes", "start")

    def __init__(self, first: int) -> None:
        self.first = first
        self.sizes = array("I")
        self.start = 0

    def __len__(self) -> int:
        return len(self.sizes) - self.start

    @property
    def ids(self) -> range:
        """What is left."""
        return range(self.first + self.start, self.first + len(self.sizes))


class Tail:
    """In order of ids."""

    __slots__ = ("_count", "_items", "octets")

    def __init__(self) -> None:
        self._items: deque[PagedRun | Message] = deque()
        self._count = 0
        self.octets: int | None = None  # of all bodies, where somebody asks

    def __len__(self) -> int:
        return self._count

    def count_octets(self) -> None:
        """Know the octets of all bodies, from now on. O(messages), once."""
        if self.octets is None:
            self.octets = sum(
                _body_size(item) if isinstance(item, Message) else sum(item.sizes[item.start :]) for item in self._items
            )

    def extend(self, first_id: int, sizes: Sequence[int]) -> None:
        """A run of messages that the journal has."""
        if self.octets is not None:
            self.octets += sum(sizes)
        last = self._items[-1] if self._items else None
        if not isinstance(last, PagedRun) or last.first + len(last.sizes) != first_id or len(last.sizes) >= RUN_MAX:
            last = PagedRun(first_id)
            self._items.append(last)
        last.sizes.extend(sizes)
        self._count += len(sizes)

    def append(self, message: Message) -> None:
        """A message that only memory has."""
        if self.octets is not None:
            self.octets += _body_size(message)
        self._items.append(message)
        self._count += 1

    def take_message(self) -> Message | None:
        """The message at its head, if memory has it."""
        if not self._items or not isinstance(self._items[0], Message):
            return None
        self._count -= 1
        item = self._items.popleft()
        assert isinstance(item, Message)
        if self.octets is not None:
            self.octets -= _body_size(item)
        return item

    def take(self, count: int, octets: int) -> list[range | Message]:
        """From the head, up to so many messages and octets of body (at least one): ids, or messages."""
        taken: list[range | Message] = []
        while self._items and count > 0 and octets > 0:
            item = self._items[0]
            if isinstance(item, Message):
                self._items.popleft()
                taken.append(item)
                count -= 1
                octets -= len(item.blob)
                self._count -= 1
                if self.octets is not None:
                    self.octets -= _body_size(item)
                continue
            start = item.start
            sums = list(accumulate(item.sizes[start : start + count]))
            stop = start + min(bisect_left(sums, octets) + 1, len(sums))
            octets -= sums[stop - start - 1]
            count -= stop - start
            taken.append(range(item.first + start, item.first + stop))
            self._count -= stop - start
            if self.octets is not None:
                self.octets -= sum(item.sizes[start:stop])
            item.start = stop
            if stop == len(item.sizes):
                self._items.popleft()
        return taken

    def typical_size(self, count: int = 1000) -> int:
        """Octets of body of the messages that come next, on the average."""
        item = self._items[0] if self._items else None
        if not isinstance(item, PagedRun):
            return 0 if item is None else len(item.blob)
        sizes = item.sizes[item.start : item.start + count]
        return sum(sizes) // len(sizes)

    @property
    def first_id(self) -> int:
        """Of the message at its head; there must be one."""
        item = self._items[0]
        return item.id if isinstance(item, Message) else item.first + item.start

    def parts(self) -> list[tuple[range, "Sizes"] | Message]:
        """What is there now, without taking it: (ids, sizes), or messages. It stays so while others append and take."""
        return [
            item if isinstance(item, Message) else (item.ids, Sizes(item.sizes, item.start, len(item.sizes)))
            for item in self._items
        ]


def _body_size(message: Message) -> int:
    return message.envelope.framing.body_size(message.blob)


class Sizes(Sequence[int]):
    """A part of a run's sizes, without a copy: a run only grows at its end."""

    __slots__ = ("_sizes", "_start", "_stop")

    def __init__(self, sizes: "array[int]", start: int, stop: int) -> None:
        self._sizes = sizes
        self._start = start
        self._stop = stop

    def __len__(self) -> int:
        return self._stop - self._start

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            start, stop, _ = index.indices(len(self))
            return self._sizes[self._start + start : self._start + stop]
        return self._sizes[self._start + index]
