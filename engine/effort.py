"""How much work the broker has done, so that a turn can end before it becomes long. A pure count: nobody is timed."""

import sys

#: A run is not cut into parts of less: most of the cost of a part does not depend on its size, ...
PART_MIN = 4
#: ... unless so few messages, times their queues, are more than this (about 6 ms).
PART_COST_MAX = 5_000
#: What a connection may do in a turn, however many have more to do: what a turn costs beside its work is a tenth of it.
SHARE_MIN = 250


def part_of(budget: int, queues: int) -> int:
    """How many messages of a run to publish at once to so many queues (at least 1) with so much `Effort`."""
    return max(1, min(PART_MIN, PART_COST_MAX // queues), budget // queues)


class Effort:
    """`spent`: work that costs more than its octets, in messages times queues (one is about 1.2 us). It only rises.

    `turn_max`: while a turn ends, the `spent` at which the rest is left to the next turn. `waiting`: connections with
    more to do than fitted into a turn; each goes on in the next round of turns.
    """

    __slots__ = ("spent", "turn_max", "waiting")

    def __init__(self) -> None:
        self.spent = 0
        self.turn_max = sys.maxsize
        self.waiting = 0

    def share_until(self, most: int) -> int:
        """The `spent` at which a turn is cut that may spend so much alone: those that wait share it."""
        waiting = self.waiting
        return self.spent + (max(SHARE_MIN, most // (waiting + 1)) if waiting else most)
