"""Looking through the levels of a store without taking anything, and taking messages out of their middle."""

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from heapq import merge
from itertools import chain, islice

from ..messages.message import Message
from .paging import messages_as_paged, runs_of
from .store import LEVEL_STEP, WINDOW_MESSAGES, WINDOW_OCTETS, Scanned
from .surroundings import Owner
from .tail import Pager, Tail

#: So far from the head a deque is read by index: some us a message, where skipping a million would take 20 ms.
BY_INDEX_MIN = 1000
#: So many messages are taken out of a deque one by one; of more, what stays is collected into a new one.
SINGLY_MAX = 16
#: (id, message if it is in memory)
Found = tuple[int, Message | None]


class Scanner:
    """Of one store: the window of what was read back for scans, and whether ids rise within its levels."""

    __slots__ = ("_is_sorted", "_window")

    def __init__(self) -> None:
        self._is_sorted = True
        self._window: dict[int, Message] = {}

    def unsorted(self) -> None:
        """Messages may stand where their ids do not say: scans sort what they see, in O(n log n)."""
        self._is_sorted = False

    def _behind(self, ready: deque[Message], tail: Tail | None, level: int, id_: int) -> Iterator[Found]:
        """Messages of a level with higher ids, these rising."""
        paged: Iterator[Found] = iter(()) if tail is None else tail.behind(level, id_)
        if self._is_sorted:
            start = bisect_right(ready, id_, key=_id_of) if id_ else 0
            if start < BY_INDEX_MIN:
                return merge(((one.id, one) for one in islice(ready, start, None)), paged, key=_first)
            here = (ready[at] for at in range(start, len(ready)))
            return merge(((one.id, one) for one in here), paged, key=_first)
        return iter(sorted(chain(((one.id, one) for one in ready if one.id > id_), paged), key=_first))

    def scan(self, levels: Sequence[deque[Message]], tail: Tail | None, after: int, count: int) -> Scanned:
        """See `Store`."""
        found: list[tuple[int, Message]] = []
        rank, id_ = divmod(after, LEVEL_STEP)
        for level in range(len(levels) - 1 - rank, -1, -1):
            base = (len(levels) - 1 - level) * LEVEL_STEP
            for one, message in islice(self._behind(levels[level], tail, level, id_), count - len(found)):
                message = message or self._window.get(one)
                if message is None:
                    return Scanned(found, True)
                found.append((base + one, message))
            id_ = 0
        return Scanned(found, False)

    def load(
        self, owner: Owner, pager: Pager, levels: Sequence[deque[Message]], tail: Tail, after: int, count: int
    ) -> None:
        """Fill the window with what a scan misses: a window at most, at least one. Raises: Unreadable."""
        count, octets = min(count, WINDOW_MESSAGES), max(1, min(WINDOW_OCTETS, pager.budget() // 2))
        self._window = {}
        rank, id_ = divmod(after, LEVEL_STEP)
        for level in range(len(levels) - 1 - rank, -1, -1):
            ids: list[int] = []
            for one, message in self._behind(levels[level], tail, level, id_):
                if count <= 0:
                    break
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
        """Take messages with these rising ids out of a level that is in memory. O(level), of few some us a thousand."""
        if self._is_sorted and len(ids) <= SINGLY_MAX:
            found: list[Message] = []
            for id_ in reversed(ids):
                at = bisect_left(ready, id_, key=_id_of)
                if at < len(ready) and ready[at].id == id_:
                    found.append(ready[at])
                    del ready[at]
            return found[::-1]
        wanted = frozenset(ids)
        taken = [one for one in ready if one.id in wanted]
        if taken:
            staying = [one for one in ready if one.id not in wanted]
            ready.clear()
            ready.extend(staying)
        return taken

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
