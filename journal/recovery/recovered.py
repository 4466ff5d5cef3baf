"""The recovered messages of one queue, in columns, so that millions can be recovered in little memory.

A message takes about 21 octets, 8 more if messages of the queue expire, 1 more if they have priorities. Message ids
rise in the order of publishing, which is nearly always the order of enqueuing; late ids (of a transaction, or a dead
letter with an older id) go to a dictionary until the next compaction.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field
from itertools import chain, pairwise
from operator import itemgetter
from typing import NamedTuple

from ...settings.slotted import slotted
from ..format.heap import IdsSeen

#: The columns are compacted when more rows than these, and more than half of the rows, are removed.
COMPACT_MIN = 4096
#: Ids that `RecoveredIds` keeps beyond twice the cache size of the address, before it drops the oldest.
SPARE = 1000
#: Ids, LSNs of contents, octets of bodies, expiries (None: nothing expires).
Columns = tuple["array[int]", "array[int]", "array[int]", "array[int] | None"]


class MessageState(NamedTuple):
    """Delivery count, due time and priority of a message in a queue; most messages have the default."""

    deliveries: int = 0  # as of the last `requeued`; more than 0 means redelivered
    uncounted: int = 0  # those of `deliveries` that are not counted as attempts
    due_ms: int = 0  # wall time until which it waits; 0: ready
    priority: int = 0


FRESH = MessageState()


class RecoveredMessage(NamedTuple):
    """One message in one queue. Its content is at `content_lsn` (`ContentReader.read`)."""

    id: int
    content_lsn: int
    size: int  # octets of body
    expires_ms: int  # wall time; 0: never
    state: MessageState


@slotted
class RecoveredQueue:
    """The messages of one queue, by id."""

    _ids: "array[int]" = field(default_factory=lambda: array("q"))
    _lsns: "array[int]" = field(default_factory=lambda: array("q"))
    _sizes: "array[int]" = field(default_factory=lambda: array("I"))
    # Positions at which runs begin: ids and LSNs rise by one within a run.
    _starts: "array[int]" = field(default_factory=lambda: array("q"))
    _moved: set[int] = field(default_factory=set)  # positions whose LSN differs from that of their run
    _expires: "array[int] | None" = None  # None: no message has one
    priorities: bytearray | None = None  # a column, to be read after `columns`; None: all are 0
    _gone: bytearray = field(default_factory=bytearray)
    _gone_count: int = 0
    _head: int = 0  # all positions before it are gone
    _highest_id: int = 0  # as of the last compaction
    _late: dict[int, tuple[int, int, int, int]] = field(default_factory=dict)  # LSN, size, expiry, priority
    states: dict[int, MessageState] = field(default_factory=dict)  # without the priority
    # Ids of the messages at which the owner changes, and the numbers of these owners.
    _owned: "array[int]" = field(default_factory=lambda: array("q"))
    _owners: "array[int]" = field(default_factory=lambda: array("H"))
    transferred: dict[int, int] = field(default_factory=dict)  # message id, number of its last owner

    def __len__(self) -> int:
        return len(self._ids) - self._gone_count + len(self._late)

    @property
    def last_id(self) -> int:
        """The highest id that was ever added; 0: none."""
        return max(self._highest_id, self._ids[-1] if self._ids else 0)

    def note_owner(self, id_: int, number: int) -> None:
        """Note that a message, and those after it up to the next note, belong to the site of this number.

        Ignored for an id that is not above that of the last note.
        """
        owners = self._owners
        if not owners or (owners[-1] != number and id_ > self._owned[-1]):
            self._owned.append(id_)
            owners.append(number)

    @property
    def owners(self) -> Iterable[tuple[int, int]]:
        """Message id and owner's number of each message at which the owner changes."""
        return zip(self._owned, self._owners)

    # -- changes by records -------------------------------------------------------------------------------------------

    def add(self, id_: int, content_lsn: int, size: int, expires_ms: int, priority: int = 0) -> None:
        """Add a message that was enqueued. It may be there already: both a snapshot and a later record can state it."""
        ids = self._ids
        if not ids or id_ > ids[-1]:
            if expires_ms:
                self._begin_expires()
            if priority:
                self._begin_priorities()
            self._begin_run(id_, content_lsn)
            ids.append(id_)
            self._lsns.append(content_lsn)
            self._sizes.append(size)
            self._gone.append(0)
            if self._expires is not None:
                self._expires.append(expires_ms)
            if self.priorities is not None:
                self.priorities.append(priority)
            return
        at = self._find(id_)
        if at is None or self._gone[at]:
            self._late[id_] = (content_lsn, size, expires_ms, priority)
            return
        self._set_lsn(at, content_lsn)
        self._sizes[at] = size
        if expires_ms:
            self._begin_expires()
        if self._expires is not None:
            self._expires[at] = expires_ms
        self._set_priority(at, priority)

    def extend(
        self,
        ids: range,
        content_lsn: int,
        sizes: Sequence[int],
        expires: Sequence[int] | None,
        priorities: bytes | None = None,
    ) -> None:
        """Add many messages with consecutive ids and contents; in bulk if they are newer than all that are there."""
        if self._ids and ids[0] <= self._ids[-1]:
            for at, (id_, size) in enumerate(zip(ids, sizes)):
                expires_ms = 0 if expires is None else expires[at]
                self.add(id_, content_lsn + at, size, expires_ms, 0 if priorities is None else priorities[at])
            return
        if expires is not None:
            self._begin_expires()
        if priorities is not None:
            self._begin_priorities()
        count = len(ids)
        self._begin_run(ids[0], content_lsn)
        self._ids.extend(ids)
        self._lsns.extend(range(content_lsn, content_lsn + count))
        self._sizes.extend(sizes)
        self._gone.extend(bytes(count))
        if self._expires is not None:
            self._expires.extend(expires if expires is not None else bytes(count))
        if self.priorities is not None:
            self.priorities.extend(priorities if priorities is not None else bytes(count))

    def _begin_expires(self) -> None:
        if self._expires is None:
            self._expires = array("q", bytes(8 * len(self._ids)))

    def _begin_priorities(self) -> None:
        if self.priorities is None:
            self.priorities = bytearray(len(self._ids))

    def _set_priority(self, at: int, priority: int) -> None:
        if priority:
            self._begin_priorities()
        if self.priorities is not None:
            self.priorities[at] = priority

    def _begin_run(self, id_: int, content_lsn: int) -> None:
        """Before a row is appended: note that a run begins, unless the row continues the last one."""
        at = len(self._ids)
        if not (at and id_ == self._ids[-1] + 1 and content_lsn == self._lsns[-1] + 1):
            self._starts.append(at)

    def _set_lsn(self, at: int, content_lsn: int) -> None:
        if self._lsns[at] != content_lsn:
            self._lsns[at] = content_lsn
            self._moved.add(at)

    def remove(self, id_: int) -> bool:
        """Remove a message that was settled. False: it was not there."""
        if self.states:
            self.states.pop(id_, None)
        if self._late and self._late.pop(id_, None) is not None:
            return True
        at = self._find(id_)
        if at is None or self._gone[at]:
            return False
        self._gone[at] = 1
        self._gone_count += 1
        if at == self._head:
            self._head += 1
        if self._gone_count > COMPACT_MIN and self._gone_count * 2 > len(self._ids):
            self._compact()
        return True

    def remove_range(self, first_id: int, last_id: int) -> None:
        """Remove all messages from one id to another."""
        start, end = bisect_left(self._ids, first_id), bisect_right(self._ids, last_id)
        self._gone_count += self._gone.count(0, start, end)
        self._gone[start:end] = b"\1" * (end - start)
        if start <= self._head < end:
            self._head = end
        ids = range(first_id, last_id + 1)
        for known in (self._late, self.states):
            for id_ in [id_ for id_ in (ids if len(ids) < len(known) else known) if id_ in known and id_ in ids]:
                del known[id_]
        if self._gone_count > COMPACT_MIN and self._gone_count * 2 > len(self._ids):
            self._compact()

    def move(self, id_: int, content_lsn: int) -> bool:
        """Set the LSN of a message's content, which was moved. False: the message is not in the queue."""
        if id_ in self._late:
            self._late[id_] = (content_lsn, *self._late[id_][1:])
            return True
        at = self._find(id_)
        if at is None or self._gone[at]:
            return False
        self._set_lsn(at, content_lsn)
        return True

    def set_state(self, id_: int, state: MessageState) -> None:
        """Set the state of a message, if it is in the queue. Priority 0 keeps its priority."""
        if id_ not in self:
            return
        if state.priority:
            self._set_priority_of(id_, state.priority)
            state = state._replace(priority=0)
        if state == FRESH:
            self.states.pop(id_, None)
        else:
            self.states[id_] = state

    def _set_priority_of(self, id_: int, priority: int) -> None:
        if id_ in self._late:
            self._late[id_] = (*self._late[id_][:3], priority)
            return
        at = self._find(id_)
        assert at is not None
        self._set_priority(at, priority)

    def __contains__(self, id_: int) -> bool:
        if id_ in self._late:
            return True
        at = self._find(id_)
        return at is not None and not self._gone[at]

    def _find(self, id_: int) -> int | None:
        ids, head = self._ids, self._head
        if head < len(ids) and ids[head] == id_:
            return head
        at = bisect_left(ids, id_)
        return at if at < len(ids) and ids[at] == id_ else None

    def _compact(self) -> None:
        """Drop the rows that are gone and insert the late ones. O(messages), cheap if few are gone."""
        self._highest_id = self.last_id
        old = self._ids, self._lsns, self._sizes, self._expires, self.priorities
        late = deque((id_, *row) for id_, row in sorted(self._late.items()))
        moved, starts = sorted(self._moved), self._starts
        kept = _stretches(self._gone, self._head)
        self._ids, self._lsns, self._sizes, self._starts = array("q"), array("q"), array("I"), array("q")
        self._expires = None if old[3] is None else array("q")
        self.priorities = None if old[4] is None else bytearray()
        self._moved = set()
        self._late, self._gone, self._gone_count, self._head = {}, bytearray(), 0, 0
        for start, end in kept:
            while late and late[0][0] < old[0][start]:
                self.add(*late.popleft())
            if late and late[0][0] < old[0][end - 1]:
                for at in range(start, end):
                    while late and late[0][0] < old[0][at]:
                        self.add(*late.popleft())
                    expires_ms, priority = 0 if old[3] is None else old[3][at], 0 if old[4] is None else old[4][at]
                    self.add(old[0][at], old[1][at], old[2][at], expires_ms, priority)
            else:
                self._append_stretch(old, start, end, starts, moved)
        for one in late:
            self.add(*one)

    def _append_stretch(
        self, old: tuple[*Columns, bytearray | None], start: int, end: int, starts: "array[int]", moved: list[int]
    ) -> None:
        """Append a part of other columns unchanged."""
        ids, lsns, sizes, expires, priorities = old
        base = len(self._ids)
        self._begin_run(ids[start], lsns[start])
        inner = starts[bisect_right(starts, start) : bisect_left(starts, end)]
        self._starts.extend(array("q", (base + at - start for at in inner)))
        if moved:
            self._moved.update(base + at - start for at in moved[bisect_left(moved, start) : bisect_left(moved, end)])
        self._ids.extend(ids[start:end])
        self._lsns.extend(lsns[start:end])
        self._sizes.extend(sizes[start:end])
        self._gone.extend(bytes(end - start))
        if self._expires is not None:  # a late message may have added the column
            self._expires.extend(bytes(end - start) if expires is None else expires[start:end])
        if self.priorities is not None:
            self.priorities.extend(bytes(end - start) if priorities is None else priorities[start:end])

    # -- content ------------------------------------------------------------------------------------------------------

    def _rows(self) -> Iterator[tuple[int, int, int, int, int]]:
        expires, priorities = self._expires, self.priorities
        for at, (id_, lsn, size, gone) in enumerate(zip(self._ids, self._lsns, self._sizes, self._gone)):
            if not gone:
                expires_ms = expires[at] if expires is not None else 0
                yield id_, lsn, size, expires_ms, priorities[at] if priorities is not None else 0
        for id_, late in self._late.items():
            yield id_, *late

    def messages(self) -> Iterator[RecoveredMessage]:
        """The messages, ids rising. Nothing may be added or removed during the iteration."""
        self.columns()
        states = self.states
        for id_, lsn, size, expires_ms, priority in self._rows():
            state = states.get(id_, FRESH)
            yield RecoveredMessage(id_, lsn, size, expires_ms, state._replace(priority=priority) if priority else state)

    def ids(self) -> "array[int]":
        """The ids, rising."""
        return self.columns()[0]

    def columns(self) -> Columns:
        """Ids (rising), LSNs of contents, octets of bodies, expiries in wall ms (None: nothing expires).

        The arrays are not copies: read them, do not keep them.
        """
        if self._late or self._gone_count:
            self._compact()
        return self._ids, self._lsns, self._sizes, self._expires

    def runs(self) -> Iterator[tuple[int, int, int, int]]:
        """(position in the columns, first id, LSN of its content, length) of runs whose ids and LSNs rise by one.

        In order; a run may come in parts. O(runs).
        """
        ids, lsns, _, _ = self.columns()
        moved = self._moved
        starts = sorted({*self._starts, *moved, *(at + 1 for at in moved)}) if moved else self._starts
        for start, end in pairwise(chain(starts, (len(ids),))):
            if start < end:
                yield start, ids[start], lsns[start], end - start


def _stretches(gone: bytearray, start: int) -> Iterator[tuple[int, int]]:
    """(start, end) of the stretches of rows that are not gone, in order."""
    while (start := gone.find(0, start)) >= 0:
        end = gone.find(1, start)
        if end < 0:
            end = len(gone)
        yield start, end
        start = end


class RecoveredIds:
    """Duplicate ids in the order of their messages' ids: a checkpoint may repeat old ids after new ones."""

    __slots__ = ("_message_ids", "_size")

    def __init__(self) -> None:
        self._message_ids: dict[str, int] = {}
        self._size = 0

    def __len__(self) -> int:
        return len(self._message_ids)

    def add(self, seen: IdsSeen) -> None:
        """Add the ids of a record. Memory is limited to twice the cache size of the address, plus `SPARE`."""
        message_ids, self._size = self._message_ids, seen.size
        for id_, message_id in seen.ids:
            if message_id > message_ids.get(id_, 0):
                message_ids[id_] = message_id
        if len(message_ids) > 2 * self._size + SPARE:
            self._message_ids = dict(self.newest(self._size))

    def newest(self, count: int) -> Iterator[tuple[str, int]]:
        """The newest `count` ids with the ids of their messages, oldest first."""
        rising = sorted(self._message_ids.items(), key=itemgetter(1))
        yield from rising[max(0, len(rising) - count) :]
