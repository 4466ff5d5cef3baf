"""The tail of a deep queue: messages of which memory holds only where they are: in the journal or in the temp store.

There is one for each level of priority, and the highest that holds any is its floor: whatever stands below the floor is
in the tail, so that what is ready in memory always comes first. Messages that are nowhere else stand in between as they
are, so that order is kept. Source: queues page F; ruling 5.
"""

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Protocol

from ..messages.message import Envelope, Message
from .paged_run import IN_JOURNAL, PagedRun, Part, Place, Run, Taken


class Unreadable(Exception):
    """What a deep queue has paged out cannot be read; the text is a sentence for an operator."""


class Pager(Protocol):
    """What gives messages back from the journal. `load` reads files: not within a turn's budget."""

    def load(self, ids: Sequence[int]) -> Sequence[Run]:
        """The messages with these rising ids, as they were published, from the journal. Raises: Unreadable."""

    def has(self, id_: int) -> bool:
        """Whether the journal has this message, as it was published."""

    @property
    def memory(self) -> int:
        """Octets that messages may take in memory, those of all queues together."""

    def budget(self) -> int:
        """Octets that one more deep queue may keep in memory."""


Items = deque[PagedRun | Message]


class Tail:
    """Levels 0 to `level_max` (higher priorities count as that), each in order of ids."""

    __slots__ = ("_count", "_levels", "floor", "octets")

    def __init__(self, level_max: int = 0) -> None:
        self._levels: list[Items] = [deque() for _ in range(level_max + 1)]
        self._count = 0
        self.floor = -1  # the highest level that holds any
        self.octets: int | None = None  # of all bodies, where somebody asks

    def __len__(self) -> int:
        return self._count

    @property
    def level_max(self) -> int:
        """The highest level."""
        return len(self._levels) - 1

    def level_of(self, envelope: Envelope) -> int:
        """Where messages of this kind stand."""
        return min(envelope.facts.priority or 0, len(self._levels) - 1)

    def count_octets(self) -> None:
        """Know the octets of all bodies, from now on; of spooled ones, of the blobs. O(messages), once."""
        if self.octets is None:
            self.octets = sum(_octets_of(item) for level in self._levels for item in level)

    # -- in -----------------------------------------------------------------------------------------------------------

    def extend(
        self,
        first_id: int,
        sizes: Sequence[int],
        expires: Sequence[int] | None = None,
        *,
        place: Place | None = None,
        envelope: Envelope = IN_JOURNAL,
        level: int = 0,
        deliveries: int = 0,
    ) -> None:
        """Messages with consecutive ids that the journal has, or the temp store at `place`. `expires`: monotonic ns."""
        if not sizes:
            return
        items = self._levels[level]
        last = items[-1] if items else None
        if not isinstance(last, PagedRun) or not last.goes_on(
            first_id, len(sizes), expires is not None, place, envelope, deliveries
        ):
            last = PagedRun(first_id, place, envelope, deliveries)
            items.append(last)
        last.extend(first_id, sizes, expires)
        self._came(level, len(sizes), 0 if self.octets is None else sum(sizes))

    def append(self, message: Message) -> None:
        """A message that only memory has."""
        self.put_last(self.level_of(message.envelope), message)

    def put_last(self, level: int, one: PagedRun | Message) -> None:
        """One message, at the end of a level."""
        self._levels[level].append(one)
        self._came(level, 1, 0 if self.octets is None else _octets_of(one))

    def insert(self, level: int, one: PagedRun | Message) -> None:
        """The same, where its id says. O(what stands before it)."""
        items, id_ = self._levels[level], _first_id(one)
        before: list[PagedRun | Message] = []
        while items and _first_id(items[0]) < id_:
            item = items.popleft()
            if isinstance(item, PagedRun) and (count := item.count_before(id_)) < len(item):
                items.appendleft(item)
                before.append(_cut(item, count))
                break
            before.append(item)
        items.appendleft(one)
        items.extendleft(reversed(before))
        self._came(level, 1, 0 if self.octets is None else _octets_of(one))

    def put_back(self, level: int, items: Sequence[PagedRun | Message]) -> None:
        """What was ready before all others of its level stands there again."""
        self._levels[level].extendleft(reversed(items))
        count = sum(1 if isinstance(item, Message) else len(item) for item in items)
        self._came(level, count, 0 if self.octets is None else sum(map(_octets_of, items)))

    def _came(self, level: int, count: int, octets: int) -> None:
        self._count += count
        if count and level > self.floor:
            self.floor = level
        if self.octets is not None:
            self.octets += octets

    # -- what comes next ----------------------------------------------------------------------------------------------

    @property
    def head_id(self) -> int:
        """Of the message at the head of its floor; there must be one."""
        return _first_id(self._levels[self.floor][0])

    def expires_ns(self, level: int) -> int:
        """When the message at the head of a level expires; 0: never."""
        items = self._levels[level]
        if not items:
            return 0
        head = items[0]
        return head.expires_ns if isinstance(head, Message) else head.head_expires_ns

    def typical_size(self, count: int = 1000) -> int:
        """Octets of body of the messages that come next, on the average."""
        if not self._count:
            return 0
        item = self._levels[self.floor][0]
        if isinstance(item, Message):
            return len(item.blob)
        sizes = item.sizes[item.start : item.start + count]
        return sum(sizes) // len(sizes)

    @property
    def first_id(self) -> int | None:
        """The lowest id that is here. O(runs)."""
        return min((_first_id(item) for level in self._levels for item in level), default=None)

    def parts(self) -> list[Part | Message]:
        """What is there now, the highest level first, without taking it. It stays so while others append and take."""
        return [
            item if isinstance(item, Message) else item.part(level)
            for level in range(self.floor, -1, -1)
            for item in self._levels[level]
        ]

    def behind(self, level: int, id_: int) -> Iterator[tuple[int, Message | None]]:
        """(id, message if it stands here as it is) of a level, those with higher ids than `id_`, in order. O(runs)."""
        for item in self._levels[level]:
            if isinstance(item, Message):
                if item.id > id_:
                    yield item.id, item
            else:
                ids = item.ids
                if ids[-1] > id_:
                    for at in range(bisect_right(ids, id_), len(ids)):
                        yield ids[at], None

    def find(self, level: int, ids: Sequence[int]) -> list[Taken]:
        """The parts of runs that are the messages with these rising ids, without taking them. O(runs)."""
        found: list[Taken] = []
        for item in self._levels[level]:
            if not isinstance(item, Message):
                found += [item.between(start, stop) for start, stop in _stretches_in(item, ids)]
        return found

    # -- out ----------------------------------------------------------------------------------------------------------

    def take_ids(self, level: int, ids: Sequence[int]) -> list[Taken | Message]:
        """Take the messages with these rising ids out, as far as they are here. O(runs + sizes of the runs hit)."""
        taken: list[Taken | Message] = []
        items: Items = deque()
        wanted = frozenset(ids)
        count = octets = 0
        for item in self._levels[level]:
            if isinstance(item, Message):
                if item.id in wanted:
                    taken.append(item)
                    count, octets = count + 1, octets + _octets_of(item)
                else:
                    items.append(item)
                continue
            left = 0
            for start, stop in _stretches_in(item, ids):
                if start > left:
                    _keep(items, item.between(left, start))
                part = item.between(start, stop)
                taken.append(part)
                count, octets = count + len(part.sizes), octets + sum(part.sizes)
                left = stop
            if not left:
                items.append(item)
            elif left < len(item):
                _keep(items, item.between(left, len(item)))
        self._levels[level] = items
        self._went(count, octets)
        return taken

    def take(self, count: int, octets: int) -> list[Taken | Message]:
        """From the head of its floor, up to so many messages and octets (at least one)."""
        level, items = self.floor, self._levels[self.floor]
        taken: list[Taken | Message] = []
        while items and count > 0 and octets > 0:
            item = items[0]
            fitting, size = (1, len(item.blob)) if isinstance(item, Message) else item.count_within(count, octets)
            taken.append(self._take(level, fitting))
            count -= fitting
            octets -= size
        return taken

    def take_expired(self, level: int, now_ns: int, count: int) -> list[Taken | Message]:
        """From the head of a level, up to `count` messages that have expired, before the first that has not."""
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
        """So many messages of a level's first item."""
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
        self._went(count, octets)
        return taken

    def _went(self, count: int, octets: int) -> None:
        self._count -= count
        if self.octets is not None:
            self.octets -= octets
        while self.floor >= 0 and not self._levels[self.floor]:
            self.floor -= 1


def _first_id(item: PagedRun | Message) -> int:
    return item.id if isinstance(item, Message) else item.first_id


def _octets_of(item: PagedRun | Message) -> int:
    if isinstance(item, PagedRun):
        return sum(item.sizes[item.start :])
    return item.envelope.framing.body_size(item.blob)


def _keep(items: Items, part: Taken) -> None:
    """A part of a run stays: with what stays before it, where that is little, too. So holes cost 8 octets a message."""
    last = items[-1] if items else None
    if not isinstance(last, PagedRun) or not last.join(part):
        items.append(PagedRun.of(part))


def _stretches_in(run: PagedRun, ids: Sequence[int]) -> Iterator[tuple[int, int]]:
    """(start, stop) of what a run has left of these rising ids, as places that follow each other."""
    here = run.ids
    first = bisect_left(ids, here[0])
    last = bisect_right(ids, here[-1])
    start = stop = -1
    for id_ in ids[first:last]:
        at = bisect_left(here, id_)
        if here[at] != id_:
            continue
        if at != stop:
            if stop > start:
                yield start, stop
            start = at
        stop = at + 1
    if stop > start:
        yield start, stop


def _cut(run: PagedRun, count: int) -> PagedRun:
    """The first messages of a run, as a run of their own."""
    taken = run.take(count)
    front = PagedRun(taken.ids[0], taken.place, taken.envelope, taken.deliveries, taken.uncounted)
    for index, (id_, size) in enumerate(zip(taken.ids, taken.sizes)):
        front.extend(id_, (size,), None if taken.expires is None else (taken.expires[index],))
    return front
