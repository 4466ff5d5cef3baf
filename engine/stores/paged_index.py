"""Ids, sizes and expiries of messages that are only in the journal, in queues whose messages leave in any order.

Columns in order of ids take 17 octets a message, 25 if any message expires. Removed messages are marked. When more than
half of the entries are, and more than `COMPACT_MIN`, the columns are compacted. Source: queues page, F.3 and F.4.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from ..messages.message import Message
from .paged_run import IN_JOURNAL, Numbers, Part

#: Marks up to which the columns are not compacted.
COMPACT_MIN = 1000


class PagedEntry(NamedTuple):
    """A message that is only in the journal."""

    id: int
    octets: int  # of its content, as counted when it arrived
    expires_ns: int  # monotonic; 0: never


class Ids(Numbers):
    """Rising ids, found in O(log n)."""

    __slots__ = ()

    def __contains__(self, id_: object) -> bool:
        assert isinstance(id_, int)
        at = bisect_left(self, id_)
        return at < len(self) and self[at] == id_


class PagedIndex:
    """Messages by id. Columns grow only at their ends, or are replaced, so that snapshots of them stay valid."""

    def __init__(self) -> None:
        self.body_octets = 0  # octets of all bodies
        self._start_columns()

    def _start_columns(self) -> None:
        self._ids = array("q")
        self._sizes = array("I")  # octets of each body
        self._contents = array("I")  # octets of each content
        self._expires: array[int] | None = None
        self._gone = bytearray()
        self._gone_count = 0
        self._head = 0  # all entries before it are removed

    def __len__(self) -> int:
        return len(self._ids) - self._gone_count

    def __contains__(self, id_: int) -> bool:
        return self._find(id_) is not None

    def _find(self, id_: int) -> int | None:
        ids = self._ids
        at = bisect_left(ids, id_, self._head)
        return at if at < len(ids) and ids[at] == id_ and not self._gone[at] else None

    @property
    def first_id(self) -> int:
        """The id of the oldest message; there must be one."""
        return self._ids[self._head]

    @property
    def last_id(self) -> int:
        """No message has a higher id; 0: there are no messages."""
        return self._ids[-1] if self._ids else 0

    @property
    def first_expires_ns(self) -> int:
        """The expiry of the oldest message (monotonic ns; 0: never); there must be one."""
        return 0 if self._expires is None else self._expires[self._head]

    @property
    def content_octets(self) -> int:
        """Octets of all contents, as counted when they arrived. O(n)."""
        return sum(self._contents[at] for at in self._live())

    def _live(self, start: int = 0) -> Iterator[int]:
        find = self._gone.find
        at = find(0, max(start, self._head))
        while at >= 0:
            yield at
            at = find(0, at + 1)

    # -- in -----------------------------------------------------------------------------------------------------------

    def add(self, messages: Sequence[Message]) -> None:
        """Add messages (ids rising). O(messages) if their ids are the highest, else O(n)."""
        expires = [message.expires_ns for message in messages]
        self.extend(
            [message.id for message in messages],
            [message.envelope.framing.body_size(message.content) for message in messages],
            [len(message.content) for message in messages],
            expires if any(expires) else None,
        )

    def extend(
        self, ids: Sequence[int], sizes: Sequence[int], contents: Sequence[int], expires: Sequence[int] | None
    ) -> None:
        """Add messages as columns: ids rising, octets of each body and content, expiries in monotonic ns."""
        if not ids:
            return
        self.body_octets += sum(sizes)
        if ids[0] > self.last_id:
            self._append(ids, sizes, contents, expires)
            return
        self._compact()
        self._append(ids, sizes, contents, expires)
        order = sorted(range(len(self._ids)), key=self._ids.__getitem__)
        self._ids, self._sizes = _sorted(self._ids, order), _sorted(self._sizes, order)
        self._contents = _sorted(self._contents, order)
        self._expires = None if self._expires is None else _sorted(self._expires, order)

    def _append(
        self, ids: Sequence[int], sizes: Sequence[int], contents: Sequence[int], expires: Sequence[int] | None
    ) -> None:
        if expires is not None and self._expires is None:
            self._expires = array("q", bytes(8 * len(self._ids)))
        self._ids.extend(ids)
        self._sizes.extend(sizes)
        self._contents.extend(contents)
        self._gone.extend(bytes(len(ids)))
        if self._expires is not None:
            self._expires.extend(bytes(len(ids)) if expires is None else expires)

    def set_content_octets(self, id_: int, octets: int) -> None:
        """Set the octets of the content of a message, which must be here."""
        at = self._find(id_)
        assert at is not None
        self._contents[at] = octets

    # -- contents -----------------------------------------------------------------------------------------------------

    def after(self, id_: int, count: int, octets: int = 1 << 62) -> list[int]:
        """The ids of up to `count` messages after `id_`, up to these octets of bodies, but at least one message."""
        found: list[int] = []
        for at in self._live(bisect_right(self._ids, id_, self._head)):
            if len(found) == count or (found and octets <= 0):
                break
            found.append(self._ids[at])
            octets -= self._sizes[at]
        return found

    def expires_ns(self, id_: int) -> int:
        """The expiry of a message (monotonic ns); 0: never, or it is not here."""
        at = self._find(id_)
        return 0 if at is None or self._expires is None else self._expires[at]

    def expiries(self) -> Iterator[tuple[int, int]]:
        """(id, expiry) of all messages, ids rising. There must be no change during the iteration."""
        for at in self._live():
            yield self._ids[at], 0 if self._expires is None else self._expires[at]

    def parts(self) -> list[Part | Message]:
        """A snapshot of all messages (see `Tail.parts`)."""
        if self._gone_count:
            self._compact()
        count = len(self._ids)
        if not count:
            return []
        expires = None if self._expires is None else Numbers(self._expires, 0, count)
        return [Part(Ids(self._ids, 0, count), Numbers(self._sizes, 0, count), expires, None, IN_JOURNAL, 0, 0)]

    # -- out ----------------------------------------------------------------------------------------------------------

    def take(self, id_: int) -> PagedEntry | None:
        """Remove a message and return it; None: it is not here."""
        at = self._find(id_)
        return None if at is None else self._take(at)

    def take_first(self) -> PagedEntry:
        """Remove and return the oldest message; there must be one."""
        return self._take(self._head)

    def _take(self, at: int) -> PagedEntry:
        entry = PagedEntry(self._ids[at], self._contents[at], 0 if self._expires is None else self._expires[at])
        self.body_octets -= self._sizes[at]
        self._gone[at] = 1
        self._gone_count += 1
        if at == self._head:
            head = self._gone.find(0, at)
            self._head = len(self._ids) if head < 0 else head
        if self._gone_count > COMPACT_MIN and self._gone_count * 2 > len(self._ids):
            self._compact()
        elif self._gone_count == len(self._ids):
            self._start_columns()
        return entry

    def take_all(self) -> "array[int]":
        """Remove all messages. Returns their ids, rising."""
        self._compact()
        gone = self._ids
        self._start_columns()
        self.body_octets = 0
        return gone

    def _compact(self) -> None:
        """Copy the columns without removed messages. O(n)."""
        ids, sizes, contents, expires, gone = self._ids, self._sizes, self._contents, self._expires, self._gone
        start = gone.find(0, self._head)
        self._start_columns()
        while start >= 0:
            end = gone.find(1, start)
            end = len(gone) if end < 0 else end
            some = None if expires is None else expires[start:end]
            self._append(ids[start:end], sizes[start:end], contents[start:end], some)
            start = gone.find(0, end)


def _sorted(column: "array[int]", order: Sequence[int]) -> "array[int]":
    return array(column.typecode, map(column.__getitem__, order))


def stretches(ids: Sequence[int]) -> Iterator[range]:
    """Split rising ids into ranges of consecutive ids."""
    if isinstance(ids, range):
        yield ids
        return
    if not ids:
        return
    start = ids[0]
    for id_, after in pairwise(ids):
        if after != id_ + 1:
            yield range(start, id_ + 1)
            start = after
    yield range(start, ids[-1] + 1)
