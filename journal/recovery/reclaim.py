"""Reclaiming: how many messages of each segment are alive, which segments may go, which should be emptied.

The count is per (message, queue), kept without memory for each message: ids rise with the LSN of publishing, so the
segment is found from the id alone; the few exceptions (moved forward, published out of order) are in a dictionary.
Segments go oldest first and without gaps, so that what is left is a whole history from some LSN on.
Source: queues page C.1 (removal); docs/journal-format.md.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from operator import le

from .recovered import RecoveredQueue

#: So many messages are counted segment by segment, if their ids rise, instead of one by one.
MANY = 64


@dataclass(slots=True)
class SegmentRow:
    """What the ledger knows of one segment."""

    base_lsn: int
    first_id: int  # above all ids that were published before this segment
    live: int = 0  # (message, queue) pairs whose content is here
    entered: int = 0  # those that ever were
    size: int = 0  # octets, once another has begun
    ended_us: int = 0  # wall time when another began; 0: it is open


class Ledger:
    """Live counts by segment."""

    __slots__ = ("_bases", "_first_ids", "_strays", "rows")

    def __init__(self) -> None:
        self.rows: list[SegmentRow] = []
        self._bases: list[int] = []
        self._first_ids: list[int] = []
        self._strays: dict[int, list[SegmentRow]] = {}

    # -- what happens -------------------------------------------------------------------------------------------------

    def begin(self, base_lsn: int, now_us: int, size_before: int, next_id: int) -> None:
        """Another segment; the one before has `size_before` octets. `next_id`: above all that were published."""
        if self.rows and not self.rows[-1].ended_us:  # else it was one of an earlier run
            self.rows[-1].ended_us, self.rows[-1].size = now_us or 1, size_before
        self.rows.append(SegmentRow(base_lsn, next_id))
        self._bases.append(base_lsn)
        self._first_ids.append(next_id)

    def enqueued(self, ids: Sequence[int], content_lsn: int) -> None:
        """Messages of one segment into one queue; ids rising."""
        row = self.rows[bisect_right(self._bases, content_lsn) - 1]
        row.live += len(ids)
        row.entered += len(ids)
        if len(self.rows) > 1 and not (self.row_of_id(ids[0]) is row is self.row_of_id(ids[-1])):
            for id_ in ids:
                if self.row_of_id(id_) is not row:
                    self._strays.setdefault(id_, []).append(row)

    def settled(self, ids: Sequence[int]) -> None:
        """Messages gone from one queue."""
        if not ids:
            return
        if not self._strays or (len(ids) >= MANY and self._strays.keys().isdisjoint(ids)):
            if isinstance(ids, range) or (len(ids) >= MANY and all(map(le, ids, islice(ids, 1, None)))):
                self._settled_rising(ids)
                return
            first, last = self.row_of_id(min(ids)), self.row_of_id(max(ids))
            if first is last:
                first.live -= len(ids)
                return
        for id_ in ids:
            stray = self._strays.get(id_)
            if stray is None:
                self.row_of_id(id_).live -= 1
            else:
                stray.pop().live -= 1
                if not stray:
                    del self._strays[id_]

    def _settled_rising(self, ids: Sequence[int]) -> None:
        """The same with rising ids, of which none is astray. O(segments)."""
        first_ids = self._first_ids
        at, start = max(bisect_right(first_ids, ids[0]) - 1, 0), 0
        while start < len(ids):
            stop = bisect_left(ids, first_ids[at + 1], start) if at + 1 < len(first_ids) else len(ids)
            self.rows[at].live -= stop - start
            at, start = at + 1, stop

    def moved(self, id_: int, queue_count: int) -> None:
        """The content of a message that is in so many queues is now in the open segment."""
        self.settled((id_,) * queue_count)
        row = self.rows[-1]
        row.live += queue_count
        row.entered += queue_count
        if self.row_of_id(id_) is not row:
            self._strays[id_] = [row] * queue_count

    def row_of_id(self, id_: int) -> SegmentRow:
        """The first segment that may have this id, or a later one: with that message, if its content was not moved."""
        return self.rows[max(bisect_right(self._first_ids, id_) - 1, 0)]

    # -- start --------------------------------------------------------------------------------------------------------

    def recovered(self, queue: RecoveredQueue) -> None:
        """Count what a recovered queue holds. The segments must have begun. O(runs), but for ids that are astray."""
        ids = queue.columns()[0]
        # Contents of neighbours are neighbours: count what stays in one segment together.
        row_at, start, first_lsn, end = -1, 0, 0, 0
        for position, _, lsn, count in queue.runs():
            at = bisect_right(self._bases, lsn) - 1
            if at != row_at:
                if position > start:
                    self.enqueued(ids[start:position], first_lsn)
                row_at, start, first_lsn = at, position, lsn
            end = position + count
        if end > start:
            self.enqueued(ids[start:end], first_lsn)

    # -- what may go --------------------------------------------------------------------------------------------------

    def nothing_is_after(self, now_us: int) -> None:
        """A segment that ended in the future, by a clock that ran ahead, ended now. O(segments)."""
        for row in self.rows:
            row.ended_us = min(row.ended_us, now_us)

    def removable(self, checkpoint_begin: int, keep_lsn: int | None, keep_us: int | None) -> list[int]:
        """Base LSNs of segments that nobody needs, oldest first.

        `checkpoint_begin`: recovery starts there. `keep_lsn`: the first LSN that a registered reader needs.
        `keep_us`: what ended after this wall time is kept.
        """
        found: list[int] = []
        for row, after in zip(self.rows, self.rows[1:]):
            if row.live or after.base_lsn > checkpoint_begin:
                break
            if keep_lsn is not None and after.base_lsn > keep_lsn:
                break
            if keep_us is not None and row.ended_us > keep_us:
                break
            found.append(row.base_lsn)
        return found

    def dead_size(self, open_size: int, keep_lsn: int | None, keep_us: int | None) -> int:
        """Octets that `removable` segments would have if there were a checkpoint in a new one now.

        `open_size`: of the one that is open.
        """
        size = 0
        for at, row in enumerate(self.rows):
            is_open = at + 1 == len(self.rows)
            if row.live or (keep_lsn is not None and (is_open or self.rows[at + 1].base_lsn > keep_lsn)):
                break
            if keep_us is not None and (is_open or row.ended_us > keep_us):
                break
            size += open_size if is_open else row.size
        return size

    def remove(self, base_lsns: Sequence[int]) -> None:
        """They are gone."""
        for base_lsn in base_lsns:
            assert self.rows[0].base_lsn == base_lsn and not self.rows[0].live
            del self.rows[0], self._bases[0], self._first_ids[0]

    def to_empty(self, garbage_part: float = 0.5) -> int | None:
        """The oldest segment, when moving what lives in it forward pays: when more than `garbage_part` of all octets
        are dead, for then at most as much is written as is won. None: leave it."""
        if len(self.rows) < 3 or not self.rows[0].live:
            return None
        closed = self.rows[:-1]
        total = sum(row.size for row in closed)
        alive = sum(row.size * row.live / row.entered for row in closed if row.entered)
        return self.rows[0].base_lsn if total and (total - alive) / total > garbage_part else None

    def first_live_lsn(self, otherwise: int) -> int:
        """The LSN of the first segment in which a content lives. O(segments)."""
        return next((row.base_lsn for row in self.rows if row.live), otherwise)

    def holds(self, id_: int, base_lsn: int) -> bool:
        """Whether the content of a live message is in that segment."""
        stray = self._strays.get(id_)
        return (stray[-1] if stray else self.row_of_id(id_)).base_lsn == base_lsn
