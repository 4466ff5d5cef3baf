"""Heartbeats: sent when a connection has no other output, missed when it has no input. Source: behaviour page 1.8."""

import logging
from collections.abc import Callable

from ...engine import Clock, Deadline, Deadlines
from ..ended import never, nothing
from ..wire.large_output import Octets
from ..wire.layout import HEARTBEAT_FRAME

logger = logging.getLogger("leveret.amqp")

#: Half intervals of silence after which the connection is ended: two to three intervals.
IDLE_TICKS_MAX = 5
#: Half intervals of silence after which the peer has missed a heartbeat and may be gone.
MISSED_TICKS = 3
#: Connections with the same interval share wake-ups: a check may be early by a tenth of half an interval, ...
CHECKS_SHARE = 10
#: ... and by this many nanoseconds at most: of 10,000 connections with an interval of 60 s, 270 are checked at a time.
EARLY_MAX_NS = 400_000_000
#: The first heartbeat after other output is not early, but up to this many nanoseconds a second of the interval late.
LATE_NS = 2_000_000


class Heartbeat:
    """Sends a heartbeat after half an interval without output, and checks for input twice an interval.

    `sent_ns`: time of the last output. `is_due`: a heartbeat has to be sent, unless other output is. `has_received`:
    whether there was input since the last tick.
    """

    __slots__ = ("_beat_ns", "_deadlines", "_idle_ticks", "_is_moving", "_is_reading_paused", "_on_lost", "_sending",
                 "_ticking", "_wake", "has_received", "interval_s", "is_due", "now", "sent_ns")  # fmt: skip

    def __init__(
        self, clock: Clock, deadlines: Deadlines, wake: Callable[[], None], is_reading_paused: Callable[[], bool]
    ) -> None:
        """`wake`: asks the edge to take the output. `is_reading_paused`: whether the peer is not read now, so that
        it must not count as silent."""
        self._deadlines = deadlines
        self._wake = wake
        self._is_reading_paused = is_reading_paused
        self._on_lost: Callable[[str], None] = nothing
        self._is_moving: Callable[[], bool] = never
        self._ticking: Deadline | None = None
        self._sending: Deadline | None = None
        self._idle_ticks = 0
        self.now = clock.monotonic_ns
        self.sent_ns = 0
        self._beat_ns = -1  # time of the last heartbeat: nothing else was sent since then if it is `sent_ns`
        self.interval_s = 0
        self.is_due = False
        self.has_received = False

    def start(self, interval_s: int, on_lost: Callable[[str], None]) -> None:
        """Begin; interval 0: no heartbeats. `on_lost` is called with a reason for the log when the peer is silent."""
        self.interval_s = interval_s
        self._on_lost = on_lost
        if interval_s:
            self.sent_ns = self.now()
            self._tick_later()
            self._send_later()

    def stop(self) -> None:
        """End. Drops the callables, so that no reference cycle remains."""
        self._deadlines.cancel(self._ticking)
        self._deadlines.cancel(self._sending)
        self._ticking = self._sending = None
        self.is_due = False
        self._on_lost, self._is_reading_paused, self._wake = nothing, never, nothing
        self._is_moving = never

    def note_unread(self, is_moving: Callable[[], bool]) -> None:
        """Note that the peer is not read until `note_read`. `is_moving` is asked at each tick without input: whether
        octets have moved since it was asked last.
        """
        self._is_moving = is_moving

    def note_read(self) -> None:
        """Note that the peer is read again."""
        self._is_moving = never

    def is_alive(self) -> bool:
        """Whether the peer sent octets within one and a half intervals, or is not read now."""
        return self.interval_s > 0 and (self.has_received or self._idle_ticks < MISSED_TICKS)

    def take_due(self) -> list[Octets]:
        """The heartbeat that is due, if one is."""
        if not self.is_due:
            return []
        self.is_due = False
        self.sent_ns = self._beat_ns = self.now()
        return [HEARTBEAT_FRAME]

    def _tick_later(self) -> None:
        self._ticking = self._deadlines.set(self._shared(self.now() + self._half_ns), self.tick)

    def _send_later(self) -> None:
        due_ns = self.sent_ns + self._half_ns
        shared_ns = self._shared(due_ns)
        if shared_ns <= self.now():
            late_ns = self.interval_s * LATE_NS
            shared_ns = -(-due_ns // late_ns) * late_ns
        self._sending = self._deadlines.set(shared_ns, self._send_if_silent)

    def _shared(self, at_ns: int) -> int:
        """The last time until `at_ns` at which connections with this interval check."""
        return at_ns // self._step_ns * self._step_ns

    @property
    def _half_ns(self) -> int:
        return self.interval_s * 500_000_000

    @property
    def _step_ns(self) -> int:
        """Between two shared times. Half an interval is a multiple of it, so that only the first check is early."""
        return self._half_ns // max(CHECKS_SHARE, -(-self._half_ns // EARLY_MAX_NS))

    def tick(self) -> None:
        """Check for input; end the connection if the peer was silent for two to three intervals."""
        is_alive = self.has_received or self._is_reading_paused() or self._is_moving()
        self._idle_ticks = 0 if is_alive else self._idle_ticks + 1
        self.has_received = False
        if self._idle_ticks >= IDLE_TICKS_MAX:
            self._ticking = None
            self._on_lost(f"missed heartbeats, interval {self.interval_s} s")
        else:
            self._tick_later()

    def _send_if_silent(self) -> None:
        """Send a heartbeat if there was no output for half an interval; then set the next check.

        After a heartbeat the next one may be early, as checks are: so quiet connections come to share their checks.
        """
        now_ns = self.now()
        early_ns = self._step_ns - 1 if self.sent_ns == self._beat_ns else 0
        if now_ns - self.sent_ns >= self._half_ns - early_ns:
            self.sent_ns = self._beat_ns = now_ns  # counts as sent: it is sent with the next octets
            self.is_due = True
            self._wake()
        self._send_later()
