"""The messages of a store that are in memory, by level of priority.

A queue with one level has a `collections.deque`, or a `SortedList`. A queue with more levels, or whose octets are
counted, has a `LeveledReady`, which has the same methods. The head, for delivery and for dropping, is the oldest
message of the highest level (behaviour page 3.3, 3.5).
"""

from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from heapq import merge, nsmallest
from itertools import chain, islice

from ..messages.levels import ONE_LEVEL, Levels
from ..messages.message import Message, id_of
from .read_windows import WINDOW_MESSAGES, WINDOW_OCTETS
from .sorted_list import SortedList
from .storage import StoreOwner
from .store import LEVEL_STEP, Scanned
from .tail import Tail
from .tail_io import messages_as_paged, runs_of

#: Maximum distance from the head at which messages of a deque are accessed. Beyond it the deque becomes a `SortedList`.
NEAR = 250
#: The messages of one level.
Level = deque[Message] | SortedList[Message]
#: (id, message if it is in memory)
Found = tuple[int, Message | None]


class LeveledReady:
    """Messages by `mapping` of priorities to levels, each level in order of delivery.

    `levels`: the containers by level. A caller may replace one by another with the same messages.
    """

    __slots__ = ("_count", "_number_of", "content_octets", "levels", "mapping", "octets")

    def __init__(self, mapping: Levels) -> None:
        self.mapping = mapping
        self.levels: list[Level] = [deque() for _ in range(mapping.top + 1)]
        self._number_of = mapping.of
        self._count = 0
        self.octets = 0  # octets of all bodies
        self.content_octets = 0  # octets of all contents

    def empty(self) -> "LeveledReady":
        """A new list of this kind without messages."""
        return LeveledReady(self.mapping)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Message]:
        for level in reversed(self.levels):
            yield from level

    def __getitem__(self, index: int) -> Message:
        assert index == 0
        return next(iter(self))

    def _level_of(self, message: Message) -> Level:
        return self.levels[self._number_of(message.envelope.summary.priority)]

    def append(self, message: Message) -> None:
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
        for level in reversed(self.levels):
            if level:
                message = level.popleft()
                self._removed(message)
                return message
        raise IndexError("empty")

    pop = popleft  # `Freeable.pop`: any message

    def took(self, messages: Iterable[Message]) -> None:
        """Count messages that were taken out of `levels`."""
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
            merge_back(self.levels[index], returned)

    def _added(self, message: Message) -> None:
        self._count += 1
        self.octets += message.body_octets
        self.content_octets += message.octets

    def _removed(self, message: Message) -> None:
        self._count -= 1
        self.octets -= message.body_octets
        self.content_octets -= message.octets


def merge_back(ready: Level, messages: list[Message]) -> int:
    """Insert messages (ids falling) by their ids, each before the first one with a higher id.

    O(messages + those before them); with a `SortedList` O(messages). Returns the number of messages before them, which
    were moved.
    """
    if isinstance(ready, SortedList):
        ready.insert(messages)
        return 0
    head: list[Message] = []
    for message in reversed(messages):
        while ready and ready[0].id < message.id:
            head.append(ready.popleft())
        head.append(message)
    ready.extendleft(reversed(head))
    return len(head) - len(messages)


class ReadyLevels(ABC):
    """The messages of a store that are in memory, and a window of messages that were read back for scans.

    `ready`: the messages in memory, in order of delivery. `mapping`: of priorities to levels. `is_sorted`: ids rise
    within each level; otherwise a scan sorts the level, in O(n log n).
    """

    __slots__ = ("_window", "is_sorted")

    mapping: Levels
    ready: Level | LeveledReady

    def __init__(self) -> None:
        self._start()

    def _start(self) -> None:
        self.is_sorted = True
        self._window: dict[int, Message] = {}

    @property
    @abstractmethod
    def by_level(self) -> Sequence[Level]:
        """The messages by level."""

    @property
    @abstractmethod
    def octets(self) -> int | None:
        """Octets of all bodies; None: they are not counted."""

    @property
    @abstractmethod
    def content_octets(self) -> int | None:
        """Octets of all contents; None: they are not counted."""

    @abstractmethod
    def _replace(self, level: int, messages: Level) -> None:
        """Replace the container of a level by another with the same messages."""

    @abstractmethod
    def left(self, messages: Sequence[Message]) -> None:
        """Count messages that were taken out of `by_level`."""

    @abstractmethod
    def merge(self, messages: list[Message]) -> int:
        """Insert messages (ids falling) by their ids. Returns the number of messages before them that were moved, if
        there is one level; else 0.
        """

    @abstractmethod
    def take_all(self) -> Level | LeveledReady:
        """Remove all messages and return them."""

    def take_over(self, other: "ReadyLevels") -> None:
        """Add all messages of another object with the same levels. O(messages)."""
        self.ready.extend(other.ready)
        self.is_sorted, self._window = other.is_sorted, other._window

    def number_of(self, message: Message) -> int:
        """The index of a message's level in `by_level`."""
        return self.mapping.of(message.envelope.summary.priority)

    @abstractmethod
    def position_of(self, message: Message) -> int:
        """`Scannable.position_of`."""

    # -- order --------------------------------------------------------------------------------------------------------

    def prepare(self, level: int, id_: int) -> None:
        """Prepare a level for access at an id: far from the head of a deque it becomes a `SortedList`. O(n), once."""
        messages = self.by_level[level]
        if self.is_sorted and isinstance(messages, deque) and len(messages) > NEAR and messages[NEAR].id <= id_:
            self._replace(level, SortedList(messages, id_of))

    def mark_unsorted(self) -> None:
        """Note that ids may not rise within levels. A `SortedList` becomes a deque again."""
        self.is_sorted = False
        for level, messages in enumerate(self.by_level):
            if isinstance(messages, SortedList):
                self._replace(level, deque(messages))

    def last_id(self, level: int) -> int:
        """The highest id of a level; 0: none."""
        messages = self.by_level[level]
        if self.is_sorted:
            return messages[-1].id if messages else 0
        return max((one.id for one in messages), default=0)

    # -- scans --------------------------------------------------------------------------------------------------------

    def _after(self, level: int, tail: Tail | None, id_: int, count: int) -> Iterator[Found]:
        """Up to `count` messages of a level with ids above `id_`, in memory and in the tail, ids rising."""
        ready = self.by_level[level]
        paged: Iterator[Found] = iter(()) if tail is None else tail.after(level, id_)
        if self.is_sorted:
            in_memory = ((one.id, one) for one in _above(ready, id_))
            return islice(merge(in_memory, paged, key=_first), count)
        return iter(nsmallest(count, chain(((one.id, one) for one in ready if one.id > id_), paged), key=_first))

    def order(self, tail: Tail | None, after: int, count: int) -> Iterator[tuple[int, int, Message | None]]:
        """(position, id, message if it is in memory) of up to `count` messages after a position."""
        rank, id_ = divmod(after, LEVEL_STEP)
        top = len(self.by_level) - 1
        for level in range(top - rank, -1, -1):
            base = (top - level) * LEVEL_STEP
            for one, message in self._after(level, tail, id_, count):
                count -= 1
                yield base + one, one, message
            id_ = 0

    def scan(self, tail: Tail | None, after: int, count: int) -> Scanned:
        found: list[tuple[int, Message]] = []
        for position, id_, message in self.order(tail, after, count):
            message = message or self._window.get(id_)
            if message is None:
                return Scanned(found, True)
            found.append((position, message))
        return Scanned(found, False)

    def load(self, owner: StoreOwner, budget: int, tail: Tail, after: int, count: int) -> Iterable[Message]:
        """Fill the window with paged-out messages that a scan needs, at least one, and return it. Raises: Unreadable.

        `budget`: the memory for the queue in octets.
        """
        count, octets = min(count, WINDOW_MESSAGES), max(1, min(WINDOW_OCTETS, budget // 2))
        self._window = {}
        rank, id_ = divmod(after, LEVEL_STEP)
        for level in range(len(self.by_level) - 1 - rank, -1, -1):
            ids: list[int] = []
            for one, message in self._after(level, tail, id_, count):
                count -= 1
                if message is None:
                    ids.append(one)
            id_ = 0
            for part in tail.find(level, ids):
                if octets <= 0:
                    return self._window.values()
                fitting = _fitting(part.sizes, octets)
                octets -= sum(part.sizes[:fitting])
                if fitting < len(part.sizes):
                    part = part.first(fitting)
                runs = runs_of(owner.storage, part, release=False)
                for message in messages_as_paged(owner, part, part.ids, runs):
                    self._window[message.id] = message
        return self._window.values()

    def forget(self, messages: Iterable[Message]) -> None:
        """Free the copies of messages that came back: they may have other delivery counts now."""
        if self._window:
            for message in messages:
                self._window.pop(message.id, None)

    def forget_window(self) -> None:
        """Free the messages that were read for scans: none is paged out now."""
        self._window = {}

    # -- out of the middle --------------------------------------------------------------------------------------------

    def take(self, level: int, ids: Sequence[int]) -> list[Message]:
        """Take those of the messages of a level with these rising ids that are in memory."""
        self.prepare(level, ids[-1])
        taken = self._take(self.by_level[level], ids)
        self.left(taken)
        return taken

    def _take(self, ready: Level, ids: Sequence[int]) -> list[Message]:
        if isinstance(ready, SortedList):
            return ready.take(ids)
        taken: list[Message] = []
        if self.is_sorted:
            for id_ in ids:
                at = bisect_left(ready, id_, 0, min(len(ready), NEAR + 1), key=id_of)
                if at < len(ready) and ready[at].id == id_:
                    taken.append(ready[at])
                    del ready[at]
            return taken
        wanted = frozenset(ids)
        taken = [one for one in ready if one.id in wanted]
        if taken:
            staying = [one for one in ready if one.id not in wanted]
            ready.clear()
            ready.extend(staying)
        return taken


class OneLevel(ReadyLevels):
    """The messages of a queue without priorities, in one container."""

    __slots__ = ("ready",)

    mapping = ONE_LEVEL
    octets = None
    content_octets = None

    ready: Level

    def __init__(self) -> None:
        super().__init__()
        self.ready = deque()

    @property
    def by_level(self) -> Sequence[Level]:
        return (self.ready,)

    def _replace(self, level: int, messages: Level) -> None:
        self.ready = messages

    def left(self, messages: Sequence[Message]) -> None:
        """No counts: a deque has its length."""

    def merge(self, messages: list[Message]) -> int:
        return merge_back(self.ready, messages)

    def take_all(self) -> Level:
        self._start()
        gone, self.ready = self.ready, deque()
        return gone

    def position_of(self, message: Message) -> int:
        return message.id


class ManyLevels(ReadyLevels):
    """The messages of a queue with priorities, or whose octets are counted."""

    __slots__ = ("mapping", "ready")

    ready: LeveledReady

    def __init__(self, ready: LeveledReady) -> None:
        super().__init__()
        self.ready = ready
        self.mapping = ready.mapping

    @property
    def octets(self) -> int:
        return self.ready.octets

    @property
    def content_octets(self) -> int:
        return self.ready.content_octets

    @property
    def by_level(self) -> Sequence[Level]:
        return self.ready.levels

    def _replace(self, level: int, messages: Level) -> None:
        self.ready.levels[level] = messages

    def left(self, messages: Sequence[Message]) -> None:
        self.ready.took(messages)

    def merge(self, messages: list[Message]) -> int:
        self.ready.merge(messages)
        return 0

    def take_all(self) -> LeveledReady:
        self._start()
        gone = self.ready
        self.ready = gone.empty()
        return gone

    def position_of(self, message: Message) -> int:
        mapping = self.mapping
        return (mapping.top - mapping.of(message.envelope.summary.priority)) * LEVEL_STEP + message.id


def _fitting(sizes: Sequence[int], octets: int) -> int:
    """The number of sizes, from the first, that fit into `octets`; at least one."""
    for count, size in enumerate(sizes):
        if octets <= 0:
            return count
        octets -= size
    return len(sizes)


def _above(ready: Level, id_: int) -> Iterable[Message]:
    """The messages with ids above `id_`, which rise."""
    if isinstance(ready, SortedList):
        return (one for one in ready.reaching(id_) if one.id > id_)
    return islice(ready, bisect_right(ready, id_, 0, min(len(ready), NEAR + 1), key=id_of), None)


def _first(found: Found) -> int:
    return found[0]
