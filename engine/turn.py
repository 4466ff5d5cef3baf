"""A turn: its budget, and its results so far. `BrokerContext.turn` is the present one."""

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .queues.queue import Queue

#: Minimum messages in a part of a run, because most of a part's cost does not depend on its size, ...
PART_MIN = 4
#: ... unless these messages times their queues exceed this cost (about 6 ms).
PART_COST_MAX = 5_000
#: Minimum work of a connection in a turn, however many are waiting. A turn's fixed cost is a tenth of it.
SHARE_MIN = 250


def part_of(budget: int, queues: int) -> int:
    """The number of messages of a run to publish at once to `queues` queues (at least 1) with a budget of effort."""
    return max(1, min(PART_MIN, PART_COST_MAX // queues), budget // queues)


def share_of(budget: int, interrupted: int) -> int:
    """The part of a turn's budget that a connection has while others wait for their next turn (`interrupted`)."""
    return max(SHARE_MIN, budget // (interrupted + 1)) if interrupted else budget


class Turn:
    """`effort`: work done, in messages times queues (one is about 1.2 us), without copying octets. It does not measure
    time. It never falls: a turn counts on from the one before. `effort_max`: the effort at which the turn is long, so
    that the rest is left to the next one.

    `records`: records of the journal that an answer may have to wait for. A caller compares the number before and
    after a call to learn whether the call recorded anything. `congested`: the longest of the queues with consumers that
    publishes left with too many ready messages (queues page E.1, producer flow control); see `flow/throttle.py` of the
    frontend.
    """

    __slots__ = ("congested", "effort", "effort_max", "records")

    def __init__(self, effort: int = 0, effort_max: int = sys.maxsize) -> None:
        self.effort = effort
        self.effort_max = effort_max
        self.records = 0
        self.congested: Queue | None = None

    @property
    def is_long(self) -> bool:
        """Whether the rest of the work is left to the next turn."""
        return self.effort >= self.effort_max

    def note_congested(self, queue: "Queue") -> None:
        """Note a queue with consumers and more than `busy_queue_ready_max` ready messages, after a publish into it."""
        other = self.congested
        if other is None or (other is not queue and other.ready_count < queue.ready_count):
            self.congested = queue
