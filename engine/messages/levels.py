"""Levels of priority: which one a message of a queue is on."""

from dataclasses import dataclass
from functools import cache

#: Of messages that say none, and the highest level, on RabbitMQ 4.3's quorum queues.
DEFAULT_PRIORITY, LEVEL_TOP = 4, 31


@dataclass(slots=True, frozen=True)
class Levels:
    """0 to `top`. `table`: the level of each priority, an octet; `default`: of messages without one."""

    top: int
    table: bytes
    default: int

    def of(self, priority: int | None) -> int:
        """The level of a message."""
        return self.default if priority is None else self.table[priority]


@cache
def up_to(top: int) -> Levels:
    """A level for each priority up to this one; higher ones count as that (behaviour page 3.5)."""
    return Levels(top, bytes(min(priority, top) for priority in range(256)), 0)


ONE_LEVEL = up_to(0)
#: RabbitMQ 4.0's quorum queues: above the default is high, everything else normal.
TWO_CLASSES = Levels(1, bytes(priority > DEFAULT_PRIORITY for priority in range(256)), 0)
#: RabbitMQ 4.3's quorum queues.
ALL_LEVELS = Levels(LEVEL_TOP, up_to(LEVEL_TOP).table, DEFAULT_PRIORITY)
#: By the number of them.
OF_QUORUM = {0: None, 2: TWO_CLASSES, 32: ALL_LEVELS}
