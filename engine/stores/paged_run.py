"""Runs of messages that are paged out: of which memory holds only ids, sizes and expiries, in columns.

A message whose id follows the one before costs 4 octets (its size), one behind a gap 12, and 8 more where they expire.
Source: queues page F; ruling 5.
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import accumulate, repeat
from typing import Any, NamedTuple

from ..messages.content import PropertySummary
from ..messages.message import Envelope, Message

#: Messages in one run at most: so much is copied when one of its middle goes or comes back.
RUN_MAX = 4096
#: So many messages are worth a run of their own: fewer join one of another kind, at 8 octets a message and column.
APART_MIN = 64
#: What a message of which the journal alone has the header counts for beside its body.
HEADER_OCTETS = 48
#: What events say of messages that are paged out: they are in the journal.
IN_JOURNAL = Envelope("", "", PropertySummary(persistent=True))


#: Messages that have an envelope in common: their blobs.
Run = tuple[Envelope, Sequence[bytes]]


def messages_of(ids: Sequence[int], runs: Iterable[Run]) -> list[Message]:
    """Runs as messages with these ids."""
    messages: list[Message] = []
    for envelope, blobs in runs:
        start = len(messages)
        messages.extend(map(Message, ids[start : start + len(blobs)], blobs, repeat(envelope)))
    return messages


class Place(NamedTuple):
    """Where blobs lie in the temp store, one behind the other."""

    chunk: object
    offset: int


def octets_paged(sizes: "array[int] | Sequence[int]", place: Place | None) -> int:
    """What paged-out messages count for: blobs in the temp store; in the journal bodies, and about their headers."""
    return sum(sizes) + (HEADER_OCTETS * len(sizes) if place is None else 0)


class Taken(NamedTuple):
    """A part of a run that was taken out of a tail."""

    ids: Sequence[int]
    sizes: "array[int]"
    expires: "array[int] | None"
    place: Place | None
    envelope: Envelope
    deliveries: int
    uncounted: int

    def first(self, count: int) -> "Taken":
        """The first messages of it."""
        expires = None if self.expires is None else self.expires[:count]
        return self._replace(ids=self.ids[:count], sizes=self.sizes[:count], expires=expires)


class PagedRun:
    """Messages with rising ids; those before `start` are taken.

    `place` None: the journal has them, and `sizes` are octets of body. Else the temp store has their blobs, `sizes` are
    octets of blob, and `envelope` is theirs. `deliveries`, `uncounted`: see `Message`.
    """

    __slots__ = (
        "_ids",
        "deliveries",
        "end",
        "envelope",
        "expires",
        "first",
        "offset",
        "place",
        "sizes",
        "start",
        "uncounted",
    )

    def __init__(
        self, first: int, place: Place | None, envelope: Envelope, deliveries: int = 0, uncounted: int = 0
    ) -> None:
        self.first = first
        self._ids: array[int] | None = None  # None: they follow `first` without a gap
        self.sizes = array("I")
        self.start = 0
        self.expires: array[int] | None = None  # monotonic ns each, 0: never; None: none does
        self.place = place
        self.envelope = envelope
        self.deliveries = deliveries
        self.uncounted = uncounted
        self.offset = self.end = 0 if place is None else place.offset  # of the message at `start`; behind the last

    def __len__(self) -> int:
        return len(self.sizes) - self.start

    @property
    def ids(self) -> Sequence[int]:
        """What is left. It stays so while messages are added and taken."""
        stop = len(self.sizes)
        if self._ids is not None:
            return Numbers(self._ids, self.start, stop)
        return range(self.first + self.start, self.first + stop)

    @property
    def first_id(self) -> int:
        """Of what is left."""
        return self._id_at(self.start)

    @property
    def left(self) -> Place | None:
        """Where what is left lies."""
        return None if self.place is None else Place(self.place.chunk, self.offset)

    @property
    def head_expires_ns(self) -> int:
        """When the first message that is left expires; 0: never."""
        return 0 if self.expires is None else self.expires[self.start]

    def _id_at(self, index: int) -> int:
        return self.first + index if self._ids is None else self._ids[index]

    def goes_on(
        self,
        first_id: int,
        count: int,
        expires: bool,
        place: Place | None,
        envelope: Envelope,
        deliveries: int = 0,
        uncounted: int = 0,
    ) -> bool:
        """Whether `count` messages from `first_id` on may join it at its end."""
        here = len(self.sizes)
        if here >= RUN_MAX or deliveries != self.deliveries or uncounted != self.uncounted:
            return False
        last = self._id_at(here - 1)
        has_gap = first_id != last + 1
        if has_gap and (first_id < last or (here >= APART_MIN and self._ids is None)):
            return False
        if (has_gap or self._ids is not None) and count >= APART_MIN:
            return False
        if expires != (self.expires is not None) and (here if expires else count) >= APART_MIN:
            return False
        if place is None or self.place is None:
            return place is self.place
        return self.place.chunk is place.chunk and self.end == place.offset and self.envelope is envelope

    def extend(self, first_id: int, sizes: Sequence[int], expires: Sequence[int] | None) -> None:
        """Messages with consecutive ids, that `goes_on` lets join, or the first ones."""
        here, count = len(self.sizes), len(sizes)
        if self._ids is None and here and first_id != self.first + here:
            self._ids = array("q", range(self.first, self.first + here))
        if self._ids is not None:
            self._ids.extend(range(first_id, first_id + count))
        if expires is not None and self.expires is None:
            self.expires = array("q", bytes(8 * here))
        if self.expires is not None:
            self.expires.extend(array("q", bytes(8 * count)) if expires is None else expires)
        self.sizes.extend(sizes)
        if self.place is not None:
            self.end += sum(sizes)

    def join(self, part: Taken) -> bool:
        """Have a small part of another run at the end, if it may stand there. Returns whether it does."""
        ids, count = part.ids, len(part.sizes)
        if count >= APART_MIN or not self.goes_on(
            ids[0], count, part.expires is not None, part.place, part.envelope, part.deliveries, part.uncounted
        ):
            return False
        if isinstance(ids, range):
            self.extend(ids.start, part.sizes, part.expires)
            return True
        for at, id_ in enumerate(ids):
            self.extend(id_, part.sizes[at : at + 1], None if part.expires is None else part.expires[at : at + 1])
        return True

    def count_within(self, count: int, octets: int) -> tuple[int, int]:
        """How many of its next `count` messages fit into so many octets (at least one), and their octets."""
        sizes = self.sizes[self.start : self.start + count]
        total = sum(sizes)
        if total <= octets:
            return len(sizes), total
        sums = list(accumulate(sizes))
        fitting = min(bisect_left(sums, octets) + 1, len(sums))
        return fitting, sums[fitting - 1]

    def count_before(self, id_: int) -> int:
        """How many of what is left have lower ids."""
        return bisect_left(self.ids, id_)

    def count_expired(self, now_ns: int, count: int) -> int:
        """How many of its next `count` messages have expired, before the first that has not."""
        found = 0
        if self.expires is not None:
            for expires_ns in self.expires[self.start : self.start + count]:
                if not 0 < expires_ns <= now_ns:
                    break
                found += 1
        return found

    def take(self, count: int) -> Taken:
        """Its next `count` messages."""
        start, stop = self.start, self.start + count
        sizes = self.sizes[start:stop]
        expires = None if self.expires is None else self.expires[start:stop]
        ids = range(self.first + start, self.first + stop) if self._ids is None else self._ids[start:stop]
        taken = Taken(ids, sizes, expires, self.left, self.envelope, self.deliveries, self.uncounted)
        self.start = stop
        self.offset += sum(sizes)
        return taken

    def between(self, start: int, stop: int) -> Taken:
        """The messages number `start` to `stop` of what is left, without taking them."""
        start, stop = self.start + start, self.start + stop
        place = None
        if self.place is not None:
            place = Place(self.place.chunk, self.offset + sum(self.sizes[self.start : start]))
        ids = range(self.first + start, self.first + stop) if self._ids is None else self._ids[start:stop]
        expires = None if self.expires is None else self.expires[start:stop]
        return Taken(ids, self.sizes[start:stop], expires, place, self.envelope, self.deliveries, self.uncounted)

    @classmethod
    def of(cls, taken: Taken) -> "PagedRun":
        """A run of its own of what was taken out of another."""
        run = cls(taken.ids[0], taken.place, taken.envelope, taken.deliveries, taken.uncounted)
        run._ids = None if isinstance(taken.ids, range) else array("q", taken.ids)
        run.sizes, run.expires = taken.sizes, taken.expires
        run.end += 0 if taken.place is None else sum(taken.sizes)
        return run

    def part(self, level: int) -> "Part":
        """What is left, without taking it."""
        start, stop = self.start, len(self.sizes)
        expires = None if self.expires is None else Numbers(self.expires, start, stop)
        sizes = Numbers(self.sizes, start, stop)
        return Part(self.ids, sizes, expires, self.left, self.envelope, level, self.deliveries - self.uncounted)


class Part(NamedTuple):
    """What is left of a run; `level`: of priority, at which it stands; `attempts`: deliveries that count."""

    ids: Sequence[int]
    sizes: "Numbers"
    expires: "Numbers | None"
    place: Place | None
    envelope: Envelope
    level: int
    attempts: int


class Numbers(Sequence[int]):
    """A part of a run's column, without a copy: a run only grows at its end."""

    __slots__ = ("_start", "_stop", "_values")

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
        return self._values[range(self._start, self._stop)[index]]
