"""Heartbeats of a connection: sent when nothing else was, missed when nothing came. Source: behaviour page 1.8."""

import logging
from collections.abc import Callable

from ...engine import Clock, Deadline, Deadlines
from ..wire.large_output import Octets
from ..wire.layout import HEARTBEAT_FRAME

logger = logging.getLogger("leveret.amqp")

#: Half intervals of silence after which a peer is given up: two to three intervals.
IDLE_TICKS_MAX = 5
#: The same of one that may be gone: it has missed a heartbeat.
MISSED_TICKS = 3


class Heartbeat:
    """Sends when nothing else was sent for half an interval, and ticks twice an interval: whether anything came.

    `sent_ns`: when something was sent last. `is_due`: a heartbeat is to be sent, with what else there is or alone.
    `has_received`: anything since the last tick.
    """

    __slots__ = (
        "_deadlines",
        "_idle_ticks",
        "_is_unread",
        "_on_lost",
        "_sending",
        "_ticking",
        "_wake",
        "has_received",
        "interval_s",
        "is_due",
        "now",
        "sent_ns",
    )

    def __init__(
        self, clock: Clock, deadlines: Deadlines, wake: Callable[[], None], is_unread: Callable[[], bool]
    ) -> None:
        """`wake`: has the connection's output taken. `is_unread`: whether we do not read the peer now: then it must
        not count as silent."""
        self._deadlines = deadlines
        self._wake = wake
        self._is_unread = is_unread
        self._on_lost: Callable[[str], None] = _ignore
        self._ticking: Deadline | None = None
        self._sending: Deadline | None = None
        self._idle_ticks = 0
        self.now = clock.monotonic_ns
        self.sent_ns = 0
        self.interval_s = 0
        self.is_due = False
        self.has_received = False

    def start(self, interval_s: int, on_lost: Callable[[str], None]) -> None:
        """Begin; 0: never. `on_lost` is called with a reason for the log when the peer is given up."""
        self.interval_s = interval_s
        self._on_lost = on_lost
        if interval_s:
            self.sent_ns = self.now()
            self._tick_later()
            self._send_later()

    def stop(self) -> None:
        """End. Forgets the callables, so that no cycle of references stays behind."""
        self._deadlines.cancel(self._ticking)
        self._deadlines.cancel(self._sending)
        self._ticking = self._sending = None
        self.is_due = False
        self._on_lost, self._is_unread, self._wake = _ignore, _never, _nothing

    def is_alive(self) -> bool:
        """Whether the peer was heard from within one interval and a half, or is not read now."""
        return self.interval_s > 0 and (self.has_received or self._idle_ticks < MISSED_TICKS)

    def take_due(self) -> list[Octets]:
        """The heartbeat that is due, if one is."""
        if not self.is_due:
            return []
        self.is_due = False
        self.sent_ns = self.now()
        return [HEARTBEAT_FRAME]

    def _tick_later(self) -> None:
        self._ticking = self._deadlines.set(self.now() + self._half_ns, self.tick)

    def _send_later(self) -> None:
        self._sending = self._deadlines.set(self.sent_ns + self._half_ns, self._send_if_silent)

    @property
    def _half_ns(self) -> int:
        return self.interval_s * 500_000_000

    def tick(self) -> None:
        """Give up a peer that was silent for two to three intervals."""
        is_alive = self.has_received or self._is_unread()
        self._idle_ticks = 0 if is_alive else self._idle_ticks + 1
        self.has_received = False
        if self._idle_ticks >= IDLE_TICKS_MAX:
            self._ticking = None
            self._on_lost(f"missed heartbeats, interval {self.interval_s} s")
        else:
            self._tick_later()

    def _send_if_silent(self) -> None:
        """Have a heartbeat sent when nothing was for half an interval, else look again when that may be so."""
        now_ns = self.now()
        if now_ns - self.sent_ns >= self._half_ns:
            self.sent_ns = now_ns  # as good as: what is due goes with the first octets that can go at all
            self.is_due = True
            self._wake()
        self._send_later()


def _never() -> bool:
    """Instead of `is_unread` once the heartbeat has stopped."""
    return False


def _nothing() -> None:
    """Instead of `wake` once the heartbeat has stopped."""


def _ignore(_: str) -> None:
    """Instead of `on_lost` while there is no heartbeat."""
