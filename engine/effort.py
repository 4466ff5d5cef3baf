"""How much work the broker has done, so that a turn can end before it becomes long. A pure count: nobody is timed."""

import sys


class Effort:
    """`spent`: work that costs more than its octets, in messages times queues (one is about 1.2 us). It only rises.

    `turn_max`: while a turn ends, the `spent` at which the rest is left to the next turn.
    """

    __slots__ = ("spent", "turn_max")

    def __init__(self) -> None:
        self.spent = 0
        self.turn_max = sys.maxsize
