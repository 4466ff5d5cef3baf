"""The tail of a deep queue: its paged-out messages. Memory has their ids, sizes, expiries and locations.

The tail has one list for each level of priority. The highest level with messages is the floor. All messages of lower
levels are in the tail, so that the ready messages in memory always come first. Messages that are neither in the journal
nor in the temp store are in the lists as objects, to keep the order. Source: queues page F; ruling 5.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, groupby, pairwise
from typing import Protocol

from ..messages.levels import ONE_LEVEL, Levels
from ..messages.message import Envelope, Message
from . import paged_run
from .paged_run import IN_JOURNAL, Location, PagedRun, Part, Run, Taken
from .sorted_list import SortedList


class Unreadable(Exception):
    """Paged-out messages cannot be read; the text is a sentence for an operator."""


class Pager(Protocol):
    """Reads messages from the journal. `load` reads files, which exceeds a turn's time."""

    def load(self, ids: Sequence[int]) -> Sequence[Run]:
        """Read the messages with these rising ids, as they were published. Raises: Unreadable."""

    def has(self, id_: int) -> bool:
        """Whether the journal has this message as it was published."""

    @property
    def memory(self) -> int:
        """The memory limit for the messages of all queues together, in octets."""

    def budget(self) -> int:
        """The memory, in octets, for the messages of one more deep queue."""


Item = PagedRun | Message


class Tail:
    """The tails of all levels of one queue, each in order of delivery, which usually is that of ids."""

    __slots__ = ("_count", "_is_sorted", "_level_of", "_levels", "floor", "octets")

    def __init__(self, levels: Levels = ONE_LEVEL) -> None:
        self._level_of = levels.of
        self._levels: list[SortedList[Item]] = [SortedList((), _first_id) for _ in range(levels.top + 1)]
        self._is_sorted = True  # ids rise within all levels
        self._count = 0
        self.floor = -1  # the highest level with messages; -1: none
        self.octets: int | None = None  # octets of all bodies; None: not counted

    def __len__(self) -> int:
        return self._count

    @property
    def level_max(self) -> int:
        return len(self._levels) - 1

    def level_of(self, envelope: Envelope) -> int:
        return self._level_of(envelope.summary.priority)

    def count_octets(self) -> None:
        """Start to count the octets of all bodies (of spooled messages: of contents). O(messages), once."""
        if self.octets is None:
            self.octets = sum(_octets_of(item) for level in self._levels for item in level)

    # -- in -----------------------------------------------------------------------------------------------------------

    def extend(
        self,
        first_id: int,
        sizes: Sequence[int],
        expires: Sequence[int] | None = None,
        *,
        location: Location | None = None,
        envelope: Envelope = IN_JOURNAL,
        level: int = 0,
        deliveries: int = 0,
    ) -> None:
        """Append messages with consecutive ids, which are in the journal, or in the temp store at `location`.

        `sizes`: see `PagedRun`; `expires`: monotonic ns of each.
        """
        if not sizes:
            return
        items = self._levels[level]
        last = items[-1] if items else None
        if not isinstance(last, PagedRun) or not last.can_extend(
            first_id, len(sizes), expires is not None, location, envelope, deliveries
        ):
            last = PagedRun(first_id, location, envelope, deliveries)
            last.extend(first_id, sizes, expires)
            self._note_order(items, (last,))
            items.append(last)
        else:
            last.extend(first_id, sizes, expires)
        self._count_added(level, len(sizes), 0 if self.octets is None else sum(sizes))

    def append(self, message: Message) -> None:
        """Append a message that is only in memory to its level."""
        self.put_last(self.level_of(message.envelope), message)

    def put_last(self, level: int, one: Item) -> None:
        self._note_order(self._levels[level], (one,))
        self._levels[level].append(one)
        self._count_added(level, 1, 0 if self.octets is None else _octets_of(one))

    def _note_order(self, before: Sequence[Item] | SortedList[Item], items: Iterable[Item]) -> None:
        """Clear `_is_sorted` if ids would no longer rise. `before`: the items that precede `items`."""
        if self._is_sorted:
            last = [before[-1]] if before else []
            self._is_sorted = all(_last_id(one) < _first_id(other) for one, other in pairwise(chain(last, items)))

    def insert(self, level: int, one: Item) -> None:
        """Insert an item into a level by its id. O(log n), or O(n) if ids do not rise."""
        items = self._levels[level]
        if self._is_sorted:
            items.change([_first_id(one)], lambda block, _: _with(block, one, is_sorted=True))
        else:
            self._levels[level] = SortedList(_with(list(items), one, is_sorted=False), _first_id)
        self._count_added(level, 1, 0 if self.octets is None else _octets_of(one))

    def put_back(self, level: int, items: Sequence[Item]) -> None:
        """Insert items, in order, before all others of their level."""
        others = self._levels[level]
        self._note_order(items, (others[0],) if others else ())
        self._note_order((), items)
        others.extendleft(reversed(items))
        count = sum(1 if isinstance(item, Message) else len(item) for item in items)
        self._count_added(level, count, 0 if self.octets is None else sum(map(_octets_of, items)))

    def page(self, paged: Callable[[list[Message]], Sequence[Item]], count_max: int) -> bool:
        """Page out up to `count_max` of the messages that are stored here as objects. O(items).

        `paged`: pages messages out, and returns the items that replace them.
        Returns: whether there may be more.
        """
        for level, items in enumerate(self._levels):
            if not any(isinstance(item, Message) for item in items):
                continue
            found: list[Item] = []
            for is_whole, group in groupby(items, lambda item: isinstance(item, Message)):
                some = list(group)
                if not is_whole or count_max <= 0:
                    found += some
                    continue
                changed = paged([item for item in some[:count_max] if isinstance(item, Message)])
                found += [*changed, *some[count_max:]]
                count_max -= sum(len(item) for item in changed if isinstance(item, PagedRun))
            self._levels[level] = SortedList(found, _first_id)
        return count_max <= 0

    def _count_added(self, level: int, count: int, octets: int) -> None:
        self._count += count
        if count and level > self.floor:
            self.floor = level
        if self.octets is not None:
            self.octets += octets

    # -- the head -----------------------------------------------------------------------------------------------------

    @property
    def head_id(self) -> int:
        """The id of the message at the head of the floor; there must be one."""
        return _first_id(self._levels[self.floor][0])

    def expires_ns(self, level: int) -> int:
        """The expiry of the message at the head of a level (monotonic ns); 0: never, or the level is empty."""
        items = self._levels[level]
        if not items:
            return 0
        head = items[0]
        return head.expires_ns if isinstance(head, Message) else head.head_expires_ns

    def typical_size(self) -> int:
        """An estimate of the size of the next messages, in octets."""
        if not self._count:
            return 0
        item = self._levels[self.floor][0]
        if isinstance(item, Message):
            return len(item.content)
        sizes = item.sizes[item.start : item.start + 1000]
        return sum(sizes) // len(sizes)

    def parts(self) -> list[Part | Message]:
        """A snapshot of all messages, the highest level first. Later changes do not affect it."""
        return [
            item if isinstance(item, Message) else item.part(level)
            for level in range(self.floor, -1, -1)
            for item in self._levels[level]
        ]

    def _reaching(self, level: int, id_: int) -> Iterable[Item]:
        """The items of a level in which ids of at least `id_` may be."""
        return self._levels[level].reaching(id_) if self._is_sorted else self._levels[level]

    def after(self, level: int, id_: int) -> Iterator[tuple[int, Message | None]]:
        """The messages of a level with ids above `id_`, in order: (id, the message if it is stored as an object)."""
        for item in self._reaching(level, id_):
            if isinstance(item, Message):
                if item.id > id_:
                    yield item.id, item
            else:
                ids = item.ids
                if ids[-1] > id_:
                    for at in range(bisect_right(ids, id_), len(ids)):
                        yield ids[at], None

    def find(self, level: int, ids: Sequence[int]) -> list[Taken]:
        """The paged-out messages with these rising ids, as parts of runs, in order of the parts' first ids.

        The messages stay in the tail. O(runs between them), or O(runs) if the tail is unsorted.
        """
        found: list[Taken] = []
        for item in self._reaching(level, ids[0]) if ids else ():
            if self._is_sorted and _first_id(item) > ids[-1]:
                break
            if not isinstance(item, Message):
                found += [item.between(start, stop) for start, stop in _stretches_in(item, ids)]
        if not self._is_sorted:
            found.sort(key=lambda part: part.ids[0])
        return found

    # -- out ----------------------------------------------------------------------------------------------------------

    def take_ids(self, level: int, ids: Sequence[int]) -> list[Taken | Message]:
        """Take the messages with these rising ids, if they are here. O(ids x log n), or O(n) if the tail is unsorted.

        Small remainders of runs on both sides are joined.
        """
        taken: list[Taken | Message] = []
        if self._is_sorted:
            self._levels[level].change(ids, lambda block, some: _without(block, some, taken, is_sorted=True))
        else:
            left = _without(list(self._levels[level]), ids, taken, is_sorted=False)
            self._levels[level] = SortedList(left, _first_id)
        self._count_taken(
            sum(1 if isinstance(part, Message) else len(part.sizes) for part in taken),
            0 if self.octets is None else sum(_octets_of(part) for part in taken),
        )
        return taken

    def take(self, count: int, octets: int) -> list[Taken | Message]:
        """Take up to `count` messages and `octets` from the head of the floor, at least one message."""
        level, items = self.floor, self._levels[self.floor]
        taken: list[Taken | Message] = []
        while items and count > 0 and octets > 0:
            item = items[0]
            fitting, size = (1, len(item.content)) if isinstance(item, Message) else item.count_within(count, octets)
            taken.append(self._take(level, fitting))
            count -= fitting
            octets -= size
        return taken

    def take_expired(self, level: int, now_ns: int, count: int) -> list[Taken | Message]:
        """Take up to `count` expired messages from the head of a level, up to the first that has not expired."""
        items = self._levels[level]
        taken: list[Taken | Message] = []
        while items and count > 0:
            item = items[0]
            if isinstance(item, Message):
                found = int(0 < item.expires_ns <= now_ns)
            else:
                found = item.count_expired(now_ns, count)
            if not found:
                break
            taken.append(self._take(level, found))
            count -= found
        return taken

    def _take(self, level: int, count: int) -> Taken | Message:
        items = self._levels[level]
        item = items[0]
        taken: Taken | Message
        if isinstance(item, Message):
            items.popleft()
            taken, octets = item, _octets_of(item)
        else:
            taken = item.take(count)
            octets = sum(taken.sizes)
            if not len(item):
                items.popleft()
        self._count_taken(count, octets)
        return taken

    def _count_taken(self, count: int, octets: int) -> None:
        self._count -= count
        if self.octets is not None:
            self.octets -= octets
        while self.floor >= 0 and not self._levels[self.floor]:
            self.floor -= 1


def _first_id(item: Item) -> int:
    return item.id if isinstance(item, Message) else item.first_id


def _octets_of(item: Item | Taken) -> int:
    if isinstance(item, Message):
        return item.envelope.framing.body_size(item.content)
    return sum(item.sizes) if isinstance(item, Taken) else sum(item.sizes[item.start :])


def _last_id(item: Item) -> int:
    return item.id if isinstance(item, Message) else item.ids[-1]


def _with(items: list[Item], one: Item, *, is_sorted: bool) -> list[Item]:
    """The items with one more, inserted by its id; a run around it is split."""
    id_ = _first_id(one)
    if is_sorted:
        at = bisect_left(items, id_, key=_first_id)
        at -= at > 0 and _last_id(items[at - 1]) > id_
    else:
        at = next((at for at, item in enumerate(items) if _last_id(item) > id_), len(items))
    found, rest = items[:at], items[at:]
    back: Taken | None = None
    if rest and isinstance(around := rest[0], PagedRun) and (count := bisect_left(around.ids, id_)):
        _append_part(found, around.between(0, count))
        back = around.between(count, len(around))
        del rest[0]
    if isinstance(one, PagedRun):
        _append_part(found, one.between(0, len(one)))
    else:
        found.append(one)
    if back is not None:
        _append_part(found, back)
    return found + rest


def _without(items: list[Item], ids: Sequence[int], taken: list[Taken | Message], *, is_sorted: bool) -> list[Item]:
    """The items without the messages with these rising ids, which are appended to `taken`."""
    if not ids or not items:
        return items
    first, last = 0, len(items)
    if is_sorted:
        first = max(bisect_right(items, ids[0], key=_first_id) - 1, 0)
        last = bisect_right(items, ids[-1], first, key=_first_id)
    found = items[:first]
    wanted = frozenset(ids)
    for item in items[first:last]:
        if isinstance(item, Message):
            if item.id in wanted:
                taken.append(item)
            else:
                found.append(item)
            continue
        left = 0
        for start, stop in _stretches_in(item, ids):
            if start > left:
                _append_part(found, item.between(left, start))
            taken.append(item.between(start, stop))
            left = stop
        if not left:
            _append_item(found, item)
        elif left < len(item):
            _append_part(found, item.between(left, len(item)))
    if last < len(items):
        _append_item(found, items[last])
    return found + items[last + 1 :]


def _append_item(items: list[Item], item: Item) -> None:
    """Append an item, joined to the one before it if it is small."""
    if isinstance(item, PagedRun) and len(item) < paged_run.APART_MIN:
        _append_part(items, item.between(0, len(item)))
    else:
        items.append(item)


def _append_part(items: list[Item], part: Taken) -> None:
    """Append a part of a run, joined to the one before it if it is small, so that gaps cost 8 octets a message."""
    last = items[-1] if items else None
    if not isinstance(last, PagedRun) or not last.join(part):
        items.append(PagedRun.of(part))


def _stretches_in(run: PagedRun, ids: Sequence[int]) -> Iterator[tuple[int, int]]:
    """(start, stop) of each stretch of consecutive messages of a run that have these rising ids."""
    run_ids = run.ids
    first = bisect_left(ids, run_ids[0])
    last = bisect_right(ids, run_ids[-1])
    start = stop = -1
    for id_ in ids[first:last]:
        at = bisect_left(run_ids, id_)
        if run_ids[at] != id_:
            continue
        if at != stop:
            if stop > start:
                yield start, stop
            start = at
        stop = at + 1
    if stop > start:
        yield start, stop
