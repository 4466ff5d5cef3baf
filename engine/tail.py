"""The tail of a deep queue: messages of which memory holds only where they are: in the journal or in the spool.

A run of ids that were published one after the other costs 4 octets a message (its size), 12 where they expire. Messages
that are nowhere else stand in between as they are, so that order is kept. Source: queues page, section F; rulings 5.
"""

from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, NamedTuple, Protocol

from .content import PropertyFacts
from .message import Envelope, Message

#: Ids in one run at most, so that the memory of what was taken is given back.
RUN_MAX = 250_000
#: What events say of messages in a tail: they are in the journal.
IN_JOURNAL = Envelope("", "", PropertyFacts(persistent=True))


class Unreadable(Exception):
    """What a deep queue holds elsewhere cannot be read; the text is a sentence for an operator."""


class Place(NamedTuple):
    """Where blobs lie in the spool, one behind the other."""

    chunk: object
    offset: int


class Pager(Protocol):
    """What gives a tail's messages back. `load` and `unspool` read files: not within a turn's budget."""

    def load(self, ids: range) -> list[Message]:
        """The messages with these consecutive ids, as they were published, from the journal. Raises: Unreadable."""

    def has(self, id_: int) -> bool:
        """Whether a message is in the journal as it was published."""

    def budget(self) -> int:
        """Octets that one more deep queue may keep in memory."""

    def spool(self, blobs: Sequence[bytes]) -> Place | None:
        """Put transient messages aside until the broker stops; None: there is no room."""

    def unspool(self, place: Place, octets: int) -> bytes:
        """The octets of blobs that were put there. Raises: Unreadable."""

    def release(self, place: Place, octets: int) -> None:
        """Nobody will ask for them again."""


class PagedRun:
    """Consecutive ids from `first`; those before `start` are taken.

    `place` None: the journal has them, and `sizes` are octets of body. Else the spool has their blobs, `sizes` are
    octets of blob, and `envelope` is theirs.
    """

    __slots__ = ("end", "envelope", "expires", "first", "offset", "place", "sizes", "start")

    def __init__(self, first: int, place: Place | None, envelope: Envelope, *, expires: bool) -> None:
        self.first = first
        self.sizes = array("I")
        self.start = 0
        self.expires: array[int] | None = array("q") if expires else None  # monotonic ns each, 0: never
        self.place = place
        self.envelope = envelope
        self.offset = self.end = 0 if place is None else place.offset  # of the message at `start`; behind the last

    def __len__(self) -> int:
        return len(self.sizes) - self.start

    @property
    def ids(self) -> range:
        """What is left."""
        return range(self.first + self.start, self.first + len(self.sizes))

    @property
    def left(self) -> Place | None:
        """Where what is left lies."""
        return None if self.place is None else Place(self.place.chunk, self.offset)


class Taken(NamedTuple):
    """A part of a run that was taken out of a tail."""

    ids: range
    sizes: "array[int]"
    expires: "array[int] | None"
    place: Place | None
    envelope: Envelope


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
        """Know the octets of all bodies, from now on; of spooled ones, of the blobs. O(messages), once."""
        if self.octets is None:
            self.octets = sum(
                _body_size(item) if isinstance(item, Message) else sum(item.sizes[item.start :]) for item in self._items
            )

    def extend(
        self,
        first_id: int,
        sizes: Sequence[int],
        expires: Sequence[int] | None = None,
        *,
        place: Place | None = None,
        envelope: Envelope = IN_JOURNAL,
    ) -> None:
        """A run of messages that the journal has, or the spool at `place`. `expires`: monotonic ns each."""
        if self.octets is not None:
            self.octets += sum(sizes)
        last = self._items[-1] if self._items else None
        if not isinstance(last, PagedRun) or not _goes_on(last, first_id, expires is not None, place, envelope):
            last = PagedRun(first_id, place, envelope, expires=expires is not None)
            self._items.append(last)
        last.sizes.extend(sizes)
        if place is not None:
            last.end += sum(sizes)
        if expires is not None:
            assert last.expires is not None
            last.expires.extend(expires)
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

    @property
    def head_expires_ns(self) -> int:
        """When the message at its head expires, if it is not in memory; 0: never."""
        item = self._items[0] if self._items else None
        return 0 if not isinstance(item, PagedRun) or item.expires is None else item.expires[item.start]

    def take(self, count: int, octets: int) -> list[Taken | Message]:
        """From the head, up to so many messages and octets (at least one)."""
        taken: list[Taken | Message] = []
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
            size = sums[stop - start - 1]
            expires = None if item.expires is None else item.expires[start:stop]
            ids = range(item.first + start, item.first + stop)
            taken.append(Taken(ids, item.sizes[start:stop], expires, item.left, item.envelope))
            octets -= size
            count -= stop - start
            self._count -= stop - start
            if self.octets is not None:
                self.octets -= size
            item.start = stop
            item.offset += size
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

    def parts(self) -> "list[Part | Message]":
        """What is there now, without taking it. It stays so while others append and take."""
        return [item if isinstance(item, Message) else _part_of(item) for item in self._items]


class Part(NamedTuple):
    """What is left of a run."""

    ids: Sequence[int]
    sizes: "Numbers"
    expires: "Numbers | None"
    place: Place | None
    envelope: Envelope


def _part_of(run: PagedRun) -> Part:
    start, stop = run.start, len(run.sizes)
    expires = None if run.expires is None else Numbers(run.expires, start, stop)
    return Part(run.ids, Numbers(run.sizes, start, stop), expires, run.left, run.envelope)


def _goes_on(last: PagedRun, first_id: int, expires: bool, place: Place | None, envelope: Envelope) -> bool:
    """Whether what comes is of the same kind as a run, and right behind it."""
    count = len(last.sizes)
    if last.first + count != first_id or count >= RUN_MAX or (last.expires is not None) != expires:
        return False
    if place is None or last.place is None:
        return place is last.place
    return last.place.chunk is place.chunk and last.end == place.offset and last.envelope is envelope


def _body_size(message: Message) -> int:
    return message.envelope.framing.body_size(message.blob)


class Numbers(Sequence[int]):
    """A part of a run's sizes or expiries, without a copy: a run only grows at its end."""

    __slots__ = ("_values", "_start", "_stop")

    def __init__(self, values: "array[int]", start: int, stop: int) -> None:
        self._values = values
        self._start = start
        self._stop = stop

    def __len__(self) -> int:
        return self._stop - self._start

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            start, stop, _ = index.indices(len(self))
            return self._values[self._start + start : self._start + stop]
        return self._values[self._start + index]
