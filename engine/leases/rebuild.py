"""The progress of rebuilding a leased queue from the log. Source: queues page C.5."""

from array import array
from bisect import bisect_left

from ..rules.replay_rules import Boundary


class Rebuild:
    """Messages from `boundary` on with ids below `until_id` come into the queue, unless they were in it before.

    `position`: of the next read in the log; `end`: of the last. `is_known`: the queue existed before. Then the first
    pass collects the ids of messages that were in it (`entered`), and those before the boundary are dropped.
    """

    __slots__ = ("boundary", "end", "entered", "has_begun", "is_known", "position", "start", "until_id")

    def __init__(self, boundary: Boundary, position: int, end: int, until_id: int, *, is_known: bool) -> None:
        self.boundary, self.position, self.start, self.end, self.until_id = boundary, position, position, end, until_id
        self.is_known = is_known
        self.has_begun = False
        self.entered = array("q")

    def was_here(self, id_: int) -> bool:
        """Whether a message was in the queue before."""
        at = bisect_left(self.entered, id_)
        return at < len(self.entered) and self.entered[at] == id_
