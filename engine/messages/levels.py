"""Levels of priority: the mapping of a message's priority to a level of a queue."""

from functools import cache

from ...settings.frozen import frozen

#: The priority of messages without one, and the highest level, in quorum queues of RabbitMQ 4.3.
DEFAULT_PRIORITY, LEVEL_TOP = 4, 31


@frozen
class Levels:
    """Levels 0 to `top`. `table`: the level of each priority; `default`: the level of messages without a priority."""

    top: int
    table: bytes
    default: int

    def of(self, priority: int | None) -> int:
        """The level of a priority; None: no priority."""
        return self.default if priority is None else self.table[priority]

    def restored(self, recorded: int) -> int:
        """The level of a priority that a journal has recorded, as 0 also for messages without one."""
        return self.table[recorded] if recorded else self.default

    def recorded(self, level: int) -> int:
        """A priority of a level, for a journal. The message's own one is not known while it is paged out."""
        return self.table.index(level)


@cache
def up_to(top: int) -> Levels:
    """One level for each priority up to `top`; higher priorities count as `top` (behaviour page 3.5)."""
    return Levels(top, bytes(min(priority, top) for priority in range(256)), 0)


ONE_LEVEL = up_to(0)
#: Quorum queues of RabbitMQ 4.0: a priority above the default is high, every other is normal.
TWO_CLASSES = Levels(1, bytes(priority > DEFAULT_PRIORITY for priority in range(256)), 0)
#: Quorum queues of RabbitMQ 4.3: one level for each priority.
ALL_LEVELS = Levels(LEVEL_TOP, up_to(LEVEL_TOP).table, DEFAULT_PRIORITY)
#: The levels of quorum queues, by their number.
OF_QUORUM = {0: None, 2: TWO_CLASSES, 32: ALL_LEVELS}
