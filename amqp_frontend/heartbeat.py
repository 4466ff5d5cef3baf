"""Heartbeats of a connection: sent when nothing else was, missed when nothing came. Source: behaviour page 1.8."""

import logging
from collections.abc import Callable

from ..engine import Clock, Deadline, Deadlines
from .output import Output
from .wire import HEARTBEAT_FRAME

logger = logging.getLogger("leveret.amqp")

#: Half intervals of silence after which a peer is given up: two to three intervals.
IDLE_TICKS_MAX = 5
#: The same of one that may be gone: it has missed a heartbeat.
MISSED_TICKS = 3


class Heartbeat:
    """Ticks twice an interval from `start` to `stop`. `has_sent`, `has_received`: anything since the last tick."""

    __slots__ = (
        "_clock",
        "_deadline",
        "_deadlines",
        "_idle_ticks",
        "_is_unread",
        "_on_lost",
        "_output",
        "has_received",
        "has_sent",
        "interval_s",
    )

    def __init__(self, clock: Clock, deadlines: Deadlines, output: Output, is_unread: Callable[[], bool]) -> None:
        """`is_unread`: whether we do not read the peer now: then it must not count as silent."""
        self._clock = clock
        self._deadlines = deadlines
        self._output = output
        self._is_unread = is_unread
        self._on_lost: Callable[[str], None] = _ignore
        self._deadline: Deadline | None = None
        self._idle_ticks = 0
        self.interval_s = 0
        self.has_sent = False
        self.has_received = False

    def start(self, interval_s: int, on_lost: Callable[[str], None]) -> None:
        """Tick from now on; 0: never. `on_lost` is called with a reason for the log when the peer is given up."""
        self.interval_s = interval_s
        self._on_lost = on_lost
        if interval_s:
            self._schedule()

    def stop(self) -> None:
        """Tick no more. Forgets the callables, so that no cycle of references stays behind."""
        if self._deadline is not None:
            self._deadlines.cancel(self._deadline)
            self._deadline = None
        self._on_lost, self._is_unread = _ignore, _never

    def is_alive(self) -> bool:
        """Whether the peer was heard from within one interval and a half, or is not read now."""
        return self.interval_s > 0 and (self.has_received or self._idle_ticks < MISSED_TICKS)

    def _schedule(self) -> None:
        due_ns = self._clock.monotonic_ns() + self.interval_s * 500_000_000
        self._deadline = self._deadlines.set(due_ns, self.tick)

    def tick(self) -> None:
        """Send a heartbeat if nothing else was sent; give up a peer that was silent for two to three intervals."""
        is_alive = self.has_received or self._is_unread()
        self._idle_ticks = 0 if is_alive else self._idle_ticks + 1
        self.has_received = False
        if self._idle_ticks >= IDLE_TICKS_MAX:
            self._deadline = None
            self._on_lost(f"missed heartbeats, interval {self.interval_s} s")
            return
        if not self.has_sent:
            self._output.send_raw(HEARTBEAT_FRAME)
            self._output.wake()
        self.has_sent = False
        self._schedule()


def _never() -> bool:
    """Instead of `is_unread` once the heartbeat has stopped."""
    return False


def _ignore(_: str) -> None:
    """Instead of `on_lost` while the heartbeat does not tick."""
