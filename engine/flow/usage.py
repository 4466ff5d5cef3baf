"""One node of the usage tree: how much of a limit is used, whether it is full, and who waits for room in it.

A node is full from the moment its limit is reached until its usage has fallen to the low mark, so that publishers are
not stopped and released with every message. A limit is looked at before a message comes in and not after it: one
message may go over it, and one that is larger than the limit passes when nothing is used.
Source: queues page E.1, E.5 ("Limit states").
"""

from collections.abc import Callable

from ...settings import Flow
from .round_robin import RoundRobin


class Usage:
    """`destination`: whose limit it is, for people: a queue, an address, or the broker. `limit_name`: which one.

    `is_root`: it is the broker's: when it is full that is an alarm. `in_messages`: they are counted, and not octets.
    `limit`: 0 is none. `refuses`: nobody waits for it. `round_robin`: who waits.
    """

    __slots__ = (
        "_on_eased",
        "destination",
        "in_messages",
        "is_full",
        "is_root",
        "limit",
        "limit_name",
        "low",
        "refuses",
        "round_robin",
        "used",
        "users",
        "warning_interval_ms",
    )

    def __init__(
        self,
        destination: str,
        limit_name: str,
        on_eased: "Callable[[Usage], None]",
        *,
        is_root: bool = False,
        in_messages: bool = False,
    ) -> None:
        self.destination = destination
        self.limit_name = limit_name
        self.is_root = is_root
        self.in_messages = in_messages
        self._on_eased = on_eased
        self.limit = self.low = self.used = 0
        self.is_full = False
        self.refuses = False
        self.round_robin = RoundRobin()
        self.users = 0  # meters that feed it
        self.warning_interval_ms = DEFAULT_INTERVAL_MS  # between two warnings that somebody waits; 0: none

    #: Whether it is full when something is used up.
    is_fed = True

    @property
    def reason(self) -> str:
        """What clients are told that wait for it."""
        return f"{self.destination}: {self.limit_name} limit"

    def set_limit(self, limit: int, flow: Flow) -> None:
        """Another limit from now on; 0: none. `flow` has the low mark."""
        self.limit = limit
        self.low = (flow.low_mark_messages if self.in_messages else flow.low_mark)(limit) if limit else 0
        was_full = self.is_full
        self.is_full = 0 < limit <= self.used or (was_full and self.used > self.low and limit > 0)
        if was_full and not self.is_full:
            self._on_eased(self)

    def change(self, amount: int) -> None:
        """So much more is used, or less."""
        used = self.used = self.used + amount
        if self.is_full:
            if used <= self.low:
                self.is_full = False
                if self.round_robin:
                    self._on_eased(self)
        elif 0 < self.limit <= used:
            self.is_full = True

    @property
    def room(self) -> int:
        """How much may still be used before it is full; very much where there is no limit."""
        return self.limit - self.used if self.limit else UNLIMITED


#: Of limits that no address has an interval for: the broker's.
DEFAULT_INTERVAL_MS = 30_000
#: The room of a node without a limit.
UNLIMITED = 1 << 62
