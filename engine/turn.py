"""A turn: its limit, and its results so far. `BrokerContext.turn` is the present one."""

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .queues.queue import Queue

#: Minimum messages in a part of a run, because most of a part's cost does not depend on its size.
PART_MIN = 4
#: Maximum effort of such a small part, in messages times queues (about 6 ms); with many queues it has fewer messages.
PART_COST_MAX = 5_000
#: Minimum effort of a connection in a turn, however many are waiting. A turn's fixed cost is a tenth of it.
SHARE_MIN = 250


def part_of(budget: int, queues: int) -> int:
    """How many messages of a run to publish to `queues` queues (at least 1) at once, with this budget of effort."""
    return max(1, min(PART_MIN, PART_COST_MAX // queues), budget // queues)


def share_of(budget: int, interrupted: int) -> int:
    """A connection's part of a turn's budget of effort, while `interrupted` others wait for their next turns."""
    return max(SHARE_MIN, budget // (interrupted + 1)) if interrupted else budget


class Turn:
    """The limit of one turn, and its results so far.

    `effort`: a count of work, in messages times queues (one is about 1.2 us). It never falls: a turn continues the
    count of the one before. `effort_max`: the effort at which the turn is long, and leaves the rest to the next one.

    `records`: number of records of the journal. A caller compares it before and after a call, to learn whether the call
    recorded an event. `congested`: the longest congested queue after this turn's publishes (queues page E.1, producer
    flow control), for the frontend's `flow/throttle.py`.
    """

    __slots__ = ("congested", "effort", "effort_max", "records")

    def __init__(self, effort: int = 0, effort_max: int = sys.maxsize) -> None:
        self.effort = effort
        self.effort_max = effort_max
        self.records = 0
        self.congested: Queue | None = None

    @property
    def is_long(self) -> bool:
        """Whether the rest of the work has to wait for the next turn."""
        return self.effort >= self.effort_max

    def note_congested(self, queue: "Queue") -> None:
        """Note a queue that is congested after a publish (`BrokerOptions.busy_queue_ready_max`)."""
        other = self.congested
        if other is None or (other is not queue and other.ready_count < queue.ready_count):
            self.congested = queue
