"""A node of the usage tree: the use of one limit, and the clients that wait for room under it; a limit that is full.

A node is full from reaching its limit until its use has fallen to the low mark, so that publishers are not blocked and
released with every message. The limit is checked before a message comes in: one message may exceed it, and a message
larger than the limit passes when nothing is used.
Source: queues page E.1, E.5 ("Limit states").
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

from ...settings import Flow
from ...settings.frozen import frozen
from .round_robin import RoundRobin

#: Warning interval of the broker's own limits, in ms.
DEFAULT_INTERVAL_MS = 30_000
#: The room of a node without a limit.
UNLIMITED = 1 << 62


@dataclass(slots=True, eq=False, repr=False)
class Usage:
    """The use of one limit. `destination`: its owner, as logs name it: a queue, an address, or the broker."""

    destination: str
    limit_name: str
    on_eased: "Callable[[Usage], None]"
    is_root: bool = False  # a limit of the broker, whose exhaustion is an alarm
    in_messages: bool = False  # counts messages instead of octets
    limit: int = field(default=0, init=False)  # 0: none
    low: int = field(default=0, init=False)
    used: int = field(default=0, init=False)
    is_full: bool = field(default=False, init=False)
    refuses: bool = field(default=False, init=False)  # publishes are refused instead of blocked
    round_robin: RoundRobin = field(default_factory=RoundRobin, init=False)  # the waiting clients
    users: int = field(default=0, init=False)  # meters that feed it
    warning_interval_ms: int = field(default=DEFAULT_INTERVAL_MS, init=False)  # about waiting clients; 0: none

    #: Whether it is a limit, which use fills; an alarm is raised and ended instead.
    is_limit: ClassVar[bool] = True

    @property
    def reason(self) -> str:
        """The text that waiting clients receive."""
        return f"{self.destination}: {self.limit_name} limit"

    def set_limit(self, limit: int, flow: Flow) -> None:
        """Set the limit (0: none) and its low mark, which `flow` defines."""
        self.limit = limit
        self.low = (flow.low_mark_messages if self.in_messages else flow.low_mark)(limit) if limit else 0
        was_full = self.is_full
        self.is_full = 0 < limit <= self.used or (was_full and self.used > self.low and limit > 0)
        if was_full and not self.is_full:
            self.on_eased(self)

    def stay_full(self) -> None:
        """Stay full after a recount, unless the use has fallen to the low mark."""
        self.is_full = self.limit > 0 and self.used > self.low

    def change(self, amount: int) -> None:
        """Add to the use, or (below 0) take from it."""
        used = self.used = self.used + amount
        if self.is_full:
            if used <= self.low:
                self.is_full = False
                if self.round_robin:
                    self.on_eased(self)
        elif 0 < self.limit <= used:
            self.is_full = True

    @property
    def room(self) -> int:
        """The use that is left until the node is full; `UNLIMITED` without a limit."""
        return self.limit - self.used if self.limit else UNLIMITED


@frozen
class FullLimit:
    """A full limit and its effect on one publish, which waits or is refused. `FlowControl.room_for` finds it.

    `node`: the node to wait for (`FlowControl.wait`). `fails`: the publish is refused at once; `fails_after_ms`: it is
    refused after this wait (0: never).
    """

    node: Usage
    fails: bool
    fails_after_ms: int

    @property
    def destination(self) -> str:
        """The owner of the limit: a queue, an address, or the broker."""
        return self.node.destination

    @property
    def limit(self) -> str:
        """The name of the limit: memory, store, temp, the key that sets it (max-size-bytes), alarm, or disk."""
        return self.node.limit_name

    @property
    def reason(self) -> str:
        """The text that clients receive."""
        return self.node.reason

    @property
    def concerns_all(self) -> bool:
        """Whether the limit is the broker's, or an alarm (queues page E.4, row 3)."""
        return self.node.is_root

    @property
    def is_alarm(self) -> bool:
        """Whether an alarm blocks, raised by an operator or by a full disk, and not a limit."""
        return not self.node.is_limit
