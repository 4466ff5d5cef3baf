"""How far each segment is in use: its live messages, whether it can be deleted, whether emptying it pays.

It counts (message, queue) pairs without memory for each message: ids rise with the LSN of publishing, so the id alone
gives the segment; a dictionary holds the few exceptions (moved forward, published out of order).
Segments are deleted oldest first and without gaps, so that the rest is the whole history from some LSN on.
Source: queues page C.1 (removal); docs/journal-format.md.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from operator import le

from ..recovery.recovered import RecoveredQueue

#: The least number of messages whose rising ids are counted segment by segment instead of one by one.
BULK_MIN = 64


@dataclass(slots=True)
class SegmentCounts:
    """The counts of one segment."""

    base_lsn: int
    first_id: int  # above all ids published before this segment
    live: int = 0  # (message, queue) pairs with their content in this segment
    entered: int = 0  # all such pairs since the segment began
    size: int = 0  # octets; set when the next segment begins
    ended_us: int = 0  # wall time at which the next segment began; 0: it is open


class SegmentUsage:
    """Counts live (message, queue) pairs by segment."""

    def __init__(self) -> None:
        self.segments: list[SegmentCounts] = []
        self._bases: list[int] = []
        self._first_ids: list[int] = []
        #: message id -> the segments of its content, one for each queue, where the id does not give the segment.
        self._strays: dict[int, list[SegmentCounts]] = {}

    # -- changes ------------------------------------------------------------------------------------------------------

    def begin_segment(self, base_lsn: int, now_us: int, size_before: int, next_id: int) -> None:
        """Begin a segment; the one before has `size_before` octets. `next_id`: above all published ids."""
        if self.segments and not self.segments[-1].ended_us:  # otherwise it was recovered with its end
            self.segments[-1].ended_us, self.segments[-1].size = now_us or 1, size_before
        self.segments.append(SegmentCounts(base_lsn, next_id))
        self._bases.append(base_lsn)
        self._first_ids.append(next_id)

    def enqueued(self, ids: Sequence[int], content_lsn: int) -> None:
        """Count messages that entered a queue, ids rising; their contents are in one segment."""
        segment = self.segments[bisect_right(self._bases, content_lsn) - 1]
        segment.live += len(ids)
        segment.entered += len(ids)
        if len(self.segments) > 1 and not (self.segment_of_id(ids[0]) is segment is self.segment_of_id(ids[-1])):
            for id_ in ids:
                if self.segment_of_id(id_) is not segment:
                    self._strays.setdefault(id_, []).append(segment)

    def settled(self, ids: Sequence[int]) -> None:
        """Count messages that left a queue. Most calls are ranges, or rising ids without strays: O(segments)."""
        if not ids:
            return
        if not self._strays or (len(ids) >= BULK_MIN and self._strays.keys().isdisjoint(ids)):
            if isinstance(ids, range) or (len(ids) >= BULK_MIN and all(map(le, ids, islice(ids, 1, None)))):
                self._settled_rising(ids)
                return
            first, last = self.segment_of_id(min(ids)), self.segment_of_id(max(ids))
            if first is last:
                first.live -= len(ids)
                return
        for id_ in ids:
            stray = self._strays.get(id_)
            if stray is None:
                self.segment_of_id(id_).live -= 1
            else:
                stray.pop().live -= 1
                if not stray:
                    del self._strays[id_]

    def _settled_rising(self, ids: Sequence[int]) -> None:
        """`settled` for rising ids without strays. O(segments)."""
        first_ids = self._first_ids
        at, start = max(bisect_right(first_ids, ids[0]) - 1, 0), 0
        while start < len(ids):
            stop = bisect_left(ids, first_ids[at + 1], start) if at + 1 < len(first_ids) else len(ids)
            self.segments[at].live -= stop - start
            at, start = at + 1, stop

    def moved(self, id_: int, queue_count: int) -> None:
        """Count a content that was moved to the open segment; its message is in `queue_count` queues."""
        self.settled((id_,) * queue_count)
        segment = self.segments[-1]
        segment.live += queue_count
        segment.entered += queue_count
        if self.segment_of_id(id_) is not segment:
            self._strays[id_] = [segment] * queue_count

    def segment_of_id(self, id_: int) -> SegmentCounts:
        """The segment in which this id was published, unless its content was moved; for older ids, the oldest one."""
        return self.segments[max(bisect_right(self._first_ids, id_) - 1, 0)]

    # -- start --------------------------------------------------------------------------------------------------------

    def add_recovered(self, queue: RecoveredQueue) -> None:
        """Count the messages of a recovered queue. The segments must have begun. O(runs), plus O(strays)."""
        ids = queue.columns()[0]
        # Most neighbors have their contents in one segment; they are counted together.
        segment_at, start, first_lsn, end = -1, 0, 0, 0
        for position, _, lsn, count in queue.runs():
            at = bisect_right(self._bases, lsn) - 1
            if at != segment_at:
                if position > start:
                    self.enqueued(ids[start:position], first_lsn)
                segment_at, start, first_lsn = at, position, lsn
            end = position + count
        if end > start:
            self.enqueued(ids[start:end], first_lsn)

    # -- segments that can be deleted ---------------------------------------------------------------------------------

    def clamp_ends(self, now_us: int) -> None:
        """Set ends that are in the future to now: they were written while the clock ran ahead. O(segments)."""
        for segment in self.segments:
            segment.ended_us = min(segment.ended_us, now_us)

    def removable(self, checkpoint_begin: int, keep_lsn: int | None, keep_us: int | None) -> list[int]:
        """Base LSNs of segments that are not needed, oldest first.

        `checkpoint_begin`: LSN at which recovery starts. `keep_lsn`: the first LSN that a registered reader needs.
        `keep_us`: segments that ended after this wall time are kept.
        """
        found: list[int] = []
        for segment, after in zip(self.segments, self.segments[1:]):
            if segment.live or after.base_lsn > checkpoint_begin:
                break
            if keep_lsn is not None and after.base_lsn > keep_lsn:
                break
            if keep_us is not None and segment.ended_us > keep_us:
                break
            found.append(segment.base_lsn)
        return found

    def kept_for(self, lsn: int, unneeded: Sequence[int]) -> tuple[int, int]:
        """(octets, end of the oldest in wall us) of the segments that are kept only for a reader at `lsn`.

        `unneeded`: the segments that nothing else needs (`removable`).
        """
        size = oldest_us = 0
        for segment, after in zip(self.segments[: len(unneeded)], self.segments[1:]):
            if after.base_lsn > lsn:
                size += segment.size
                oldest_us = oldest_us or segment.ended_us
        return size, oldest_us

    def removable_size(self, open_size: int, keep_lsn: int | None, keep_us: int | None) -> int:
        """Octets of the segments that would be removable after a checkpoint in a new segment.

        `open_size`: octets of the open segment.
        """
        size = 0
        for at, segment in enumerate(self.segments):
            is_open = at + 1 == len(self.segments)
            if segment.live or (keep_lsn is not None and (is_open or self.segments[at + 1].base_lsn > keep_lsn)):
                break
            if keep_us is not None and (is_open or segment.ended_us > keep_us):
                break
            size += open_size if is_open else segment.size
        return size

    def remove(self, base_lsns: Sequence[int]) -> None:
        """Remove the counts of deleted segments."""
        for base_lsn in base_lsns:
            assert self.segments[0].base_lsn == base_lsn and not self.segments[0].live
            del self.segments[0], self._bases[0], self._first_ids[0]

    def worth_emptying(self, keep_lsn: int | None = None, keep_us: int | None = None) -> int | None:
        """The oldest segment, if moving its live contents forward pays; None: it does not.

        It pays if more than half of all octets are dead: then at most as much is written as is freed. It does not pay
        while the segment is kept for a reader, or for its age. `keep_lsn`, `keep_us`: as in `removable`.
        """
        if len(self.segments) < 3 or not self.segments[0].live:
            return None
        if (keep_lsn is not None and self.segments[1].base_lsn > keep_lsn) or (
            keep_us is not None and self.segments[0].ended_us > keep_us
        ):
            return None
        closed = self.segments[:-1]
        total = sum(segment.size for segment in closed)
        alive = sum(segment.size * segment.live / segment.entered for segment in closed if segment.entered)
        return self.segments[0].base_lsn if total and (total - alive) / total > 0.5 else None

    def first_live_lsn(self, otherwise: int) -> int:
        """Base LSN of the first segment with a live content. O(segments)."""
        return next((segment.base_lsn for segment in self.segments if segment.live), otherwise)

    def holds(self, id_: int, base_lsn: int) -> bool:
        """Whether the content of this live message is in that segment."""
        stray = self._strays.get(id_)
        return (stray[-1] if stray else self.segment_of_id(id_)).base_lsn == base_lsn
