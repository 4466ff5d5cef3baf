"""Looking through the levels of a store without taking anything, and taking messages out of their middle."""

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from heapq import merge, nsmallest
from itertools import chain, islice

from ..messages.message import Message
from .paging import messages_as_paged, runs_of
from .store import LEVEL_STEP, WINDOW_MESSAGES, WINDOW_OCTETS, Scanned
from .surroundings import Owner
from .tail import Tail

#: So far from the head of a deque messages are copied into a list, so many at once: to skip a million takes 5 ms.
COPIED_MIN, COPIED = 1000, 10_000
#: (id, message if it is in memory)
Found = tuple[int, Message | None]


class Scanner:
    """Of one store: the window of what was read back for scans, and whether ids rise within its levels."""

    __slots__ = ("_copied", "_copied_of", "_is_sorted", "_taken", "_window")

    def __init__(self) -> None:
        self._is_sorted = True
        self._window: dict[int, Message] = {}
        self._copied: list[Message] = []  # a stretch of `_copied_of` as it was
        self._copied_of: deque[Message] | None = None
        self._taken: set[int] = set()  # what was taken out of the middle since then

    def unsorted(self) -> None:
        """Messages may stand where their ids do not say: scans sort what they see, in O(n log n)."""
        self._is_sorted = False

    def put_back(self, messages: Sequence[Message]) -> None:
        """Messages (ids falling) stand at their places at hand again."""
        if self._copied_of is not None and messages and messages[-1].id < self._copied[-1].id:
            self._copied_of = None  # also before all of them: what left at the head meanwhile must not seem to be there

    def paged_out(self) -> None:
        """Messages left the end of what is at hand: others may stand behind them, and come back."""
        self._copied_of = None

    def _behind(self, ready: deque[Message], tail: Tail | None, level: int, id_: int, count: int) -> Iterator[Found]:
        """Up to `count` messages of a level with higher ids, these rising."""
        paged: Iterator[Found] = iter(()) if tail is None else tail.behind(level, id_)
        if self._is_sorted:
            here = ((one.id, one) for one in self._at_hand(ready, id_, count))
            return islice(merge(here, paged, key=_first), count)
        return iter(nsmallest(count, chain(((one.id, one) for one in ready if one.id > id_), paged), key=_first))

    def _at_hand(self, ready: deque[Message], id_: int, count: int) -> Iterable[Message]:
        """At least `count` of those with higher ids, or all: they leave at both ends, or by `take`."""
        if not id_ or not ready or ready[0].id > id_:
            return islice(ready, count)
        if len(ready) <= COPIED_MIN:
            return islice(ready, bisect_right(ready, id_, key=_id_of), None)
        copied = self._copied
        if self._copied_of is ready and copied[0].id <= id_ < copied[-1].id:
            first, last, taken = ready[0].id, ready[-1].id, self._taken
            at = bisect_right(copied, id_, key=_id_of)
            there = (one for one in islice(copied, at, None) if first <= one.id <= last and one.id not in taken)
            found = list(islice(there, count))
            if len(found) == count:
                return found
        start = bisect_right(ready, id_, key=_id_of)
        if start < COPIED_MIN:
            return islice(ready, start, None)
        if len(ready) - start < COPIED_MIN:
            return (ready[at] for at in range(start, len(ready)))
        self._copied = list(islice(ready, start - 1, start + max(COPIED, count)))
        self._copied_of = ready
        self._taken.clear()
        return self._copied[1:]

    def scan(self, levels: Sequence[deque[Message]], tail: Tail | None, after: int, count: int) -> Scanned:
        """See `Store`."""
        found: list[tuple[int, Message]] = []
        rank, id_ = divmod(after, LEVEL_STEP)
        for level in range(len(levels) - 1 - rank, -1, -1):
            base = (len(levels) - 1 - level) * LEVEL_STEP
            for one, message in self._behind(levels[level], tail, level, id_, count - len(found)):
                message = message or self._window.get(one)
                if message is None:
                    return Scanned(found, True)
                found.append((base + one, message))
            id_ = 0
        return Scanned(found, False)

    def load(
        self, owner: Owner, budget: int, levels: Sequence[deque[Message]], tail: Tail, after: int, count: int
    ) -> None:
        """Fill the window with what a scan misses: a window at most, at least one. Raises: Unreadable.

        `budget`: octets that the queue may have in memory.
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

    def take(self, ready: deque[Message], ids: Sequence[int]) -> list[Message]:
        """Take messages with these rising ids out of a level that is in memory. O(level): 1 ms for a million."""
        if self._is_sorted:
            return self._take_sorted(ready, ids)
        wanted = frozenset(ids)
        taken = [one for one in ready if one.id in wanted]
        if taken:
            staying = [one for one in ready if one.id not in wanted]
            ready.clear()
            ready.extend(staying)
        return taken

    def _take_sorted(self, ready: deque[Message], ids: Sequence[int]) -> list[Message]:
        found: list[Message] = []
        turned, ahead = 0, len(ready)  # what is passed stands behind the first `ahead`
        for id_ in ids:
            high = 1
            while high < ahead and ready[high].id < id_:
                high *= 2
            at = bisect_left(ready, id_, high // 2, min(high + 1, ahead), key=_id_of) if ahead else 0
            ready.rotate(-at)
            turned += at
            ahead -= at
            if ahead and ready[0].id == id_:
                found.append(ready.popleft())
                ahead -= 1
        ready.rotate(turned)
        if self._copied_of is ready:
            self._taken.update(map(_id_of, found))
        return found

    def forget(self, messages: Sequence[Message]) -> None:
        """They are out: pictures of them are not kept."""
        if self._window:
            for message in messages:
                self._window.pop(message.id, None)


def _fitting(sizes: Sequence[int], octets: int) -> int:
    """How many of these fit into so many octets; at least one."""
    for count, size in enumerate(sizes):
        if octets <= 0:
            return count
        octets -= size
    return len(sizes)


def _first(found: Found) -> int:
    return found[0]


def _id_of(message: Message) -> int:
    return message.id
