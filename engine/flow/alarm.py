"""Alarms: nodes of the usage tree that an operator, the journal or the cluster switches, instead of use filling them.

Source: queues page E.4, row 3; behaviour page 1.9.
"""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from ..clock import Clock
from .usage import FullLimit, Usage

if TYPE_CHECKING:
    from ..clients.client import Client
    from ..queues.queue import Queue


class Alarm(Usage):
    """A node that is full while its alarm is raised. `since_ms`: wall time when it was raised."""

    __slots__ = ("_clock", "_reason", "since_ms")

    is_limit = False

    def __init__(self, limit_name: str, on_eased: Callable[[Usage], None], clock: Clock) -> None:
        super().__init__("broker", limit_name, on_eased, is_root=True)
        self.warning_interval_ms = 0  # raising it is logged already
        self._reason = ""
        self._clock = clock
        self.since_ms = 0

    @property
    def reason(self) -> str:
        return self._reason

    def switch(self, reason: str | None) -> None:
        """Raise the alarm with a reason for clients; None: end it, and release the blocked publishers."""
        if reason is not None and not self.is_full:
            self.since_ms = self._clock.wall_ms()
        self.is_full = reason is not None
        self._reason = reason or ""
        if reason is None and self.round_robin:
            self.on_eased(self)

    def full_limit_for(self, queues: "Iterable[Queue]" = (), client: "Client | None" = None) -> FullLimit:
        """The effect of the alarm on a publish to these queues: one queue that refuses is enough to refuse it."""
        if client is not None and client.user.is_internal_link:
            return FullLimit(self, False, 0)
        meters = [queue.meter for queue in queues if queue.meter is not None]
        after_ms = min((meter.fails_after_ms for meter in meters if meter.fails_after_ms), default=0)
        return FullLimit(self, any(meter.fails for meter in meters), after_ms)
