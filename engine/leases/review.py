"""A leased queue is built from the log: how far that is. Source: queues page C.5."""

from array import array
from bisect import bisect_left

from ..rules.replay_rules import Edge


class Review:
    """Messages from `edge` on and with ids below `until_id` come into the queue, unless they were there before.

    `position`: where the log is read on; `end`: up to there. `is_known`: the queue was there before, so first it is
    read which messages were in it (`entered`), and those before the edge go.
    """

    __slots__ = ("edge", "end", "entered", "has_begun", "is_known", "position", "start", "until_id")

    def __init__(self, edge: Edge, position: int, end: int, until_id: int, *, is_known: bool) -> None:
        self.edge, self.position, self.start, self.end, self.until_id = edge, position, position, end, until_id
        self.is_known = is_known
        self.has_begun = False
        self.entered = array("q")

    def was_here(self, id_: int) -> bool:
        """Whether a message was in the queue before."""
        at = bisect_left(self.entered, id_)
        return at < len(self.entered) and self.entered[at] == id_
