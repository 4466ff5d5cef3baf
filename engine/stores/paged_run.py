"""Runs of paged-out messages. Memory has only their ids, sizes and expiries, in columns.

A message costs 4 octets (its size) in a run of consecutive ids, and 12 in a run with gaps. If a message of the run
expires, each costs 8 more. Source: queues page F; ruling 5.
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import accumulate, repeat
from typing import Any, NamedTuple

from ..messages.content import PropertySummary
from ..messages.message import Envelope, Message

#: Maximum messages in one run, which is copied when a message in its middle is taken or inserted.
RUN_MAX = 4096
#: Minimum messages of a separate run. Fewer join another run, which costs 8 octets for each message and column.
APART_MIN = 64
#: Estimated octets of the header of a message in the journal, where limits count it with its body.
HEADER_OCTETS = 48
#: Stands for the envelopes of messages in the journal, which are paged out.
IN_JOURNAL = Envelope("", "", PropertySummary(persistent=True))


#: The contents of messages that share an envelope.
Run = tuple[Envelope, Sequence[bytes]]


def messages_of(ids: Sequence[int], runs: Iterable[Run]) -> list[Message]:
    """Make the messages with these ids and contents."""
    messages: list[Message] = []
    for envelope, contents in runs:
        start = len(messages)
        messages.extend(map(Message, ids[start : start + len(contents)], contents, repeat(envelope)))
    return messages


class Location(NamedTuple):
    """The location of consecutive contents in the temp store."""

    chunk: object
    offset: int


def octets_paged(sizes: "array[int] | Sequence[int]", location: Location | None) -> int:
    """The octets that limits count for paged-out messages: contents in the temp store, or bodies in the journal with
    estimated headers.
    """
    return sum(sizes) + (HEADER_OCTETS * len(sizes) if location is None else 0)


class Taken(NamedTuple):
    """A part of a run, taken out of a tail or only read."""

    ids: Sequence[int]
    sizes: "array[int]"
    expires: "array[int] | None"
    location: Location | None
    envelope: Envelope
    deliveries: int
    uncounted: int

    def first(self, count: int) -> "Taken":
        """The first `count` messages of the part."""
        expires = None if self.expires is None else self.expires[:count]
        return self._replace(ids=self.ids[:count], sizes=self.sizes[:count], expires=expires)


class PagedRun:
    """Messages with rising ids; those before `start` were taken.

    `location`: where their contents are in the temp store; None: in the journal. `sizes`: octets of contents in the
    temp store, of bodies in the journal. `envelope`: that of messages in the temp store. `deliveries`, `uncounted`: as
    in `Message`.
    """

    __slots__ = ("_ids", "deliveries", "end", "envelope", "expires", "first", "location", "offset", "sizes", "start",
                 "uncounted")  # fmt: skip

    def __init__(
        self, first: int, location: Location | None, envelope: Envelope, deliveries: int = 0, uncounted: int = 0
    ) -> None:
        self.first = first
        self._ids: array[int] | None = None  # None: ids are consecutive from `first` on
        self.sizes = array("I")
        self.start = 0
        self.expires: array[int] | None = None  # monotonic ns of each, 0: never; None: no message expires
        self.location = location
        self.envelope = envelope
        self.deliveries = deliveries
        self.uncounted = uncounted
        self.offset = self.end = 0 if location is None else location.offset  # of the message at `start`, of the end

    def __len__(self) -> int:
        return len(self.sizes) - self.start

    @property
    def ids(self) -> Sequence[int]:
        """A snapshot of the remaining ids. Later changes do not affect it."""
        stop = len(self.sizes)
        if self._ids is not None:
            return Numbers(self._ids, self.start, stop)
        return range(self.first + self.start, self.first + stop)

    @property
    def first_id(self) -> int:
        """The lowest remaining id."""
        return self._id_at(self.start)

    @property
    def remaining_location(self) -> Location | None:
        """The location of the remaining messages in the temp store; None: the journal."""
        return None if self.location is None else Location(self.location.chunk, self.offset)

    @property
    def head_expires_ns(self) -> int:
        """The expiry of the first remaining message (monotonic ns); 0: never."""
        return 0 if self.expires is None else self.expires[self.start]

    def _id_at(self, index: int) -> int:
        return self.first + index if self._ids is None else self._ids[index]

    def can_extend(
        self,
        first_id: int,
        count: int,
        expires: bool,
        location: Location | None,
        envelope: Envelope,
        deliveries: int = 0,
        uncounted: int = 0,
    ) -> bool:
        """Whether messages with consecutive ids may be appended to this run."""
        length = len(self.sizes)
        if length >= RUN_MAX or deliveries != self.deliveries or uncounted != self.uncounted:
            return False
        last = self._id_at(length - 1)
        has_gap = first_id != last + 1
        if has_gap and (first_id < last or (length >= APART_MIN and self._ids is None)):
            return False
        if (has_gap or self._ids is not None) and count >= APART_MIN:
            return False
        if expires != (self.expires is not None) and (length if expires else count) >= APART_MIN:
            return False
        if location is None or self.location is None:
            return location is self.location
        return self.location.chunk is location.chunk and self.end == location.offset and self.envelope is envelope

    def extend(self, first_id: int, sizes: Sequence[int], expires: Sequence[int] | None) -> None:
        """Append messages with consecutive ids, for which `can_extend` is true, or the first ones."""
        length, count = len(self.sizes), len(sizes)
        if self._ids is None and length and first_id != self.first + length:
            self._ids = array("q", range(self.first, self.first + length))
        if self._ids is not None:
            self._ids.extend(range(first_id, first_id + count))
        if expires is not None and self.expires is None:
            self.expires = array("q", bytes(8 * length))
        if self.expires is not None:
            self.expires.extend(array("q", bytes(8 * count)) if expires is None else expires)
        self.sizes.extend(sizes)
        if self.location is not None:
            self.end += sum(sizes)

    def join(self, part: Taken) -> bool:
        """Append a part of another run, if it is small and fits. Returns whether it was appended."""
        ids, count = part.ids, len(part.sizes)
        if count >= APART_MIN or not self.can_extend(
            ids[0], count, part.expires is not None, part.location, part.envelope, part.deliveries, part.uncounted
        ):
            return False
        if isinstance(ids, range):
            self.extend(ids.start, part.sizes, part.expires)
            return True
        for at, id_ in enumerate(ids):
            self.extend(id_, part.sizes[at : at + 1], None if part.expires is None else part.expires[at : at + 1])
        return True

    def count_within(self, count: int, octets: int) -> tuple[int, int]:
        """(number, octets) of the next messages, up to `count` messages and `octets`, but at least one message."""
        sizes = self.sizes[self.start : self.start + count]
        total = sum(sizes)
        if total <= octets:
            return len(sizes), total
        sums = list(accumulate(sizes))
        fitting = min(bisect_left(sums, octets) + 1, len(sums))
        return fitting, sums[fitting - 1]

    def count_expired(self, now_ns: int, count: int) -> int:
        """The number of expired messages among the next `count`, before the first that has not expired."""
        found = 0
        if self.expires is not None:
            for expires_ns in self.expires[self.start : self.start + count]:
                if not 0 < expires_ns <= now_ns:
                    break
                found += 1
        return found

    def take(self, count: int) -> Taken:
        """Take the next `count` messages."""
        taken = self.between(0, count)
        self.start += count
        self.offset += sum(taken.sizes)
        return taken

    def between(self, start: int, stop: int) -> Taken:
        """The remaining messages at indexes from `start` to `stop` - 1, which stay."""
        start, stop = self.start + start, self.start + stop
        location = None
        if self.location is not None:
            location = Location(self.location.chunk, self.offset + sum(self.sizes[self.start : start]))
        ids = range(self.first + start, self.first + stop) if self._ids is None else self._ids[start:stop]
        expires = None if self.expires is None else self.expires[start:stop]
        return Taken(ids, self.sizes[start:stop], expires, location, self.envelope, self.deliveries, self.uncounted)

    @classmethod
    def of(cls, taken: Taken) -> "PagedRun":
        """A new run of the messages of a part. It takes over the part's columns."""
        run = cls(taken.ids[0], taken.location, taken.envelope, taken.deliveries, taken.uncounted)
        run._ids = None if isinstance(taken.ids, range) else array("q", taken.ids)
        run.sizes, run.expires = taken.sizes, taken.expires
        run.end += 0 if taken.location is None else sum(taken.sizes)
        return run

    def part(self, level: int) -> "Part":
        """A snapshot of the remaining messages."""
        start, stop = self.start, len(self.sizes)
        expires = None if self.expires is None else Numbers(self.expires, start, stop)
        sizes = Numbers(self.sizes, start, stop)
        attempts = self.deliveries - self.uncounted
        return Part(self.ids, sizes, expires, self.remaining_location, self.envelope, level, attempts)


class Part(NamedTuple):
    """A snapshot of the remaining messages of a run. `level`: of priority. `attempts`: deliveries that count."""

    ids: Sequence[int]
    sizes: "Numbers"
    expires: "Numbers | None"
    location: Location | None
    envelope: Envelope
    level: int
    attempts: int


class Numbers(Sequence[int]):
    """A part of a column, without a copy. It stays valid, because columns grow only at their ends."""

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
