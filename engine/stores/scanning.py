"""Scans of the levels of a store, and removal of messages from their middle."""

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from heapq import merge, nsmallest
from itertools import chain, islice

from ..messages.message import Message
from .paging import messages_as_paged, runs_of
from .sorted_list import SortedList
from .storage import Owner
from .store import LEVEL_STEP, WINDOW_MESSAGES, WINDOW_OCTETS, Scanned
from .tail import Tail

#: Maximum distance from the head of a deque for access. For messages behind it the deque is converted to a
#: `SortedList`.
NEAR = 250
#: The messages of a level in memory.
Level = deque[Message] | SortedList[Message]
#: (id, message if it is in memory)
Found = tuple[int, Message | None]


def is_beyond(ready: Level, id_: int) -> bool:
    """Whether messages after this id are too far from the head of a deque."""
    return isinstance(ready, deque) and len(ready) > NEAR and ready[NEAR].id <= id_


class Scanner:
    """The scans of one store. It has the window of messages that were read back for scans.

    `is_sorted`: ids rise within each level. Otherwise scans sort the level, in O(n log n).
    """

    __slots__ = ("_window", "is_sorted")

    def __init__(self) -> None:
        self.is_sorted = True
        self._window: dict[int, Message] = {}

    def _behind(self, ready: Level, tail: Tail | None, level: int, id_: int, count: int) -> Iterator[Found]:
        """Up to `count` messages of a level with ids above `id_`, in rising order."""
        paged: Iterator[Found] = iter(()) if tail is None else tail.behind(level, id_)
        if self.is_sorted:
            here = ((one.id, one) for one in _in_memory(ready, id_))
            return islice(merge(here, paged, key=_first), count)
        return iter(nsmallest(count, chain(((one.id, one) for one in ready if one.id > id_), paged), key=_first))

    def _order(
        self, levels: Sequence[Level], tail: Tail | None, after: int, count: int
    ) -> Iterator[tuple[int, int, Message | None]]:
        """(position, id, message if it is in memory) of up to `count` messages after a position."""
        rank, id_ = divmod(after, LEVEL_STEP)
        for level in range(len(levels) - 1 - rank, -1, -1):
            base = (len(levels) - 1 - level) * LEVEL_STEP
            for one, message in self._behind(levels[level], tail, level, id_, count):
                count -= 1
                yield base + one, one, message
            id_ = 0

    def scan(self, levels: Sequence[Level], tail: Tail | None, after: int, count: int) -> Scanned:
        found: list[tuple[int, Message]] = []
        for position, id_, message in self._order(levels, tail, after, count):
            message = message or self._window.get(id_)
            if message is None:
                return Scanned(found, True)
            found.append((position, message))
        return Scanned(found, False)

    def positions(self, levels: Sequence[Level], tail: Tail | None, after: int, count: int) -> list[int]:
        """The positions of up to `count` messages after a position, in memory or paged out."""
        return [position for position, _, _ in self._order(levels, tail, after, count)]

    def load(self, owner: Owner, budget: int, levels: Sequence[Level], tail: Tail, after: int, count: int) -> None:
        """Fill the window with the paged-out messages that a scan needs: at least one, at most a window.

        `budget`: octets of memory for the queue. Raises: Unreadable.
        """
        count, octets = min(count, WINDOW_MESSAGES), max(1, min(WINDOW_OCTETS, budget // 2))
        self._window = {}
        rank, id_ = divmod(after, LEVEL_STEP)
        for level in range(len(levels) - 1 - rank, -1, -1):
            ids: list[int] = []
            for one, message in self._behind(levels[level], tail, level, id_, count):
                count -= 1
                if message is None:
                    ids.append(one)
            id_ = 0
            for part in tail.find(level, ids):
                if octets <= 0:
                    return
                fitting = _fitting(part.sizes, octets)
                octets -= sum(part.sizes[:fitting])
                if fitting < len(part.sizes):
                    part = part.first(fitting)
                runs = runs_of(owner.storage, part, release=False)
                for message in messages_as_paged(owner, part, part.ids, runs):
                    self._window[message.id] = message

    def take(self, ready: Level, ids: Sequence[int]) -> list[Message]:
        """Take the messages with these rising ids out of a level in memory."""
        if isinstance(ready, SortedList):
            return _taken(ready, ids)
        taken: list[Message] = []
        if self.is_sorted:
            for id_ in ids:
                at = bisect_left(ready, id_, 0, min(len(ready), NEAR + 1), key=_id_of)
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

    def forget(self, messages: Sequence[Message]) -> None:
        """Remove the copies of messages that were taken from the window."""
        if self._window:
            for message in messages:
                self._window.pop(message.id, None)


def _fitting(sizes: Sequence[int], octets: int) -> int:
    """The number of these sizes that fit into `octets`; at least one."""
    for count, size in enumerate(sizes):
        if octets <= 0:
            return count
        octets -= size
    return len(sizes)


def _in_memory(ready: Level, id_: int) -> Iterable[Message]:
    """The messages with ids above `id_`."""
    if isinstance(ready, SortedList):
        return (one for one in ready.behind(id_) if one.id > id_)
    return islice(ready, bisect_right(ready, id_, 0, min(len(ready), NEAR + 1), key=_id_of), None)


def _taken(ready: SortedList[Message], ids: Sequence[int]) -> list[Message]:
    found: list[Message] = []

    def without(block: list[Message], some: Sequence[int]) -> list[Message]:
        for id_ in some:
            at = bisect_left(block, id_, key=_id_of)
            if at < len(block) and block[at].id == id_:
                found.append(block.pop(at))
        return block

    ready.change(ids, without)
    return found


def _first(found: Found) -> int:
    return found[0]


def _id_of(message: Message) -> int:
    return message.id
