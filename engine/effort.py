"""A count of the broker's work, by which a turn ends before it becomes long. It does not measure time."""

import sys

#: Minimum messages in a part of a run, because most of a part's cost does not depend on its size, ...
PART_MIN = 4
#: ... unless these messages times their queues exceed this cost (about 6 ms).
PART_COST_MAX = 5_000
#: Minimum work of a connection in a turn, however many are waiting. A turn's fixed cost is a tenth of it.
SHARE_MIN = 250


def part_of(budget: int, queues: int) -> int:
    """The number of messages of a run to publish at once to `queues` queues (at least 1) with a budget of `Effort`."""
    return max(1, min(PART_MIN, PART_COST_MAX // queues), budget // queues)


class Effort:
    """`spent`: work done, in messages times queues (one is about 1.2 us), without copying octets. It never falls.

    `turn_max`: while a turn ends, the `spent` at which the rest is left to the next turn. `waiting`: the number of
    connections whose input did not fit into a turn; each continues in the next round of turns.
    """

    __slots__ = ("spent", "turn_max", "waiting")

    def __init__(self) -> None:
        self.spent = 0
        self.turn_max = sys.maxsize
        self.waiting = 0

    def share_until(self, most: int) -> int:
        """The `spent` at which a turn must stop. `most`: its budget, which is shared with the waiting connections."""
        waiting = self.waiting
        return self.spent + (max(SHARE_MIN, most // (waiting + 1)) if waiting else most)
