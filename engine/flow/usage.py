"""The nodes of the usage tree: a limit, its use, and the clients that wait for room; and alarms.

A node that has reached its limit is full until its use has fallen to the low mark. Otherwise publishers would be
blocked and released with every message. The limit is checked before a message is taken: one message may exceed it, and
a message larger than the limit passes if the use is 0. Source: queues page E.1, E.4 (row 3), E.5 ("Limit states");
behaviour page 1.9.
"""

from collections.abc import Callable, Hashable, Iterable
from dataclasses import field
from typing import TYPE_CHECKING, ClassVar

from ...settings import Flow
from ...settings.frozen import frozen
from ...settings.slotted import slotted
from ..clock import Clock
from ..messages.message import UNLIMITED
from .round_robin import RoundRobin

if TYPE_CHECKING:
    from ..clients.client import Client
    from ..queues.queue import Queue
    from .meter import Meter

#: Limit, virtual host, name.
NodeKey = tuple[str, str, Hashable]
#: Warning interval of the limits of the whole broker.
DEFAULT_INTERVAL_MS = 30_000


@slotted
class Usage:
    """The use of one limit. `destination`: the name of its owner in logs: a queue, an address, or the broker.

    `limit_name`: memory, store, temp, the key that sets the limit (max-size-bytes), alarm, disk, or replication.
    `full_nodes`: the full nodes of the tree. `key`: its key in the tree; None: a limit of the whole broker.
    """

    destination: str
    limit_name: str
    on_drained: "Callable[[Usage], None]"
    full_nodes: "dict[Usage, None]" = field(default_factory=dict)
    is_root: bool = False  # a limit of the whole broker; reaching it is an alarm
    in_messages: bool = False  # counts messages instead of octets
    key: NodeKey | None = None
    limit: int = field(default=0, init=False)  # 0: none
    low: int = field(default=0, init=False)
    used: int = field(default=0, init=False)
    is_full: bool = field(default=False, init=False)
    refuses: bool = field(default=False, init=False)  # publishes are refused instead of blocked
    round_robin: RoundRobin = field(default_factory=RoundRobin, init=False)  # the waiting clients
    meter_count: int = field(default=0, init=False)  # meters that charge it
    warning_interval_ms: int = field(default=DEFAULT_INTERVAL_MS, init=False)  # about waiting clients; 0: none

    #: False: an alarm, which is switched.
    is_limit: ClassVar[bool] = True

    @property
    def vhost(self) -> str | None:
        """The virtual host of its owner; None: the broker."""
        return None if self.key is None else self.key[1]

    @property
    def reason(self) -> str:
        """The text for waiting clients."""
        return f"{self.destination}: {self.limit_name} limit"

    def set_limit(self, limit: int, flow: Flow) -> None:
        """Set the limit (0: none). `flow` defines its low mark."""
        self.limit = limit
        self.low = (flow.low_mark_messages if self.in_messages else flow.low_mark)(limit) if limit else 0
        was_full = self.is_full
        self.mark(0 < limit <= self.used or (was_full and self.used > self.low and limit > 0))
        if was_full and not self.is_full:
            self.on_drained(self)

    def mark(self, is_full: bool) -> None:
        """Set whether the node is full."""
        self.is_full = is_full
        if is_full:
            self.full_nodes[self] = None
        else:
            self.full_nodes.pop(self, None)

    def stay_full(self) -> None:
        """Stay full after a recount, unless the use has fallen to the low mark."""
        self.mark(self.limit > 0 and self.used > self.low)

    def change(self, amount: int) -> None:
        """Add to the use, or (below 0) subtract from it."""
        used = self.used = self.used + amount
        if self.is_full:
            if used <= self.low:
                self.mark(False)
                if self.round_robin:
                    self.on_drained(self)
        elif 0 < self.limit <= used:
            self.mark(True)

    @property
    def room(self) -> int:
        """How much may be used until the node is full; `UNLIMITED` without a limit."""
        return self.limit - self.used if self.limit else UNLIMITED


@frozen
class FullLimit:
    """A full limit and its effect on one publish (`FlowControl.room_for`).

    `node`: the node to wait for (`FlowControl.wait`). `fails`: the publish is refused at once. `fails_after_ms`: it is
    refused after this wait; 0: never. `meter`: that of the queue that the publish waits for; None: of an alarm.
    """

    node: Usage
    fails: bool
    fails_after_ms: int
    meter: "Meter | None" = None

    @property
    def is_alarm(self) -> bool:
        """Whether an alarm blocks the publish, and not a limit."""
        return not self.node.is_limit


class Alarm(Usage):
    """A node that an operator, the journal or the cluster switches. `since_ms`: wall time when it was raised."""

    is_limit = False

    def __init__(self, limit_name: str, on_drained: Callable[[Usage], None], clock: Clock) -> None:
        super().__init__("broker", limit_name, on_drained, is_root=True)
        self.warning_interval_ms = 0  # raising it is logged already
        self._reason = ""
        self._clock = clock
        self.since_ms = 0

    @property
    def reason(self) -> str:
        return self._reason

    def switch(self, reason: str | None) -> None:
        """Raise the alarm with a reason for clients; None: end it and release the blocked publishers."""
        if reason is not None and not self.is_full:
            self.since_ms = self._clock.wall_ms()
        self.is_full = reason is not None
        self._reason = reason or ""
        if reason is None and self.round_robin:
            self.on_drained(self)

    def full_limit_for(self, queues: "Iterable[Queue]" = (), client: "Client | None" = None) -> FullLimit:
        """The effect of the alarm on a publish to these queues, which is refused if one of them refuses publishes."""
        if client is not None and client.user.is_internal_link:
            return FullLimit(self, False, 0)
        meters = [queue.meter for queue in queues if queue.meter is not None]
        after_ms = min((meter.fails_after_ms for meter in meters if meter.fails_after_ms), default=0)
        return FullLimit(self, any(meter.fails for meter in meters), after_ms)
