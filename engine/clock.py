"""Time, as the engine is given it."""

from typing import Protocol

MS = 1_000_000
#: Nothing lies further ahead than a hundred years: no time leaves the 64 bits that journals and stores have for it.
AHEAD_MS_MAX = 36_525 * 86_400_000


def bounded_ms(wait_ms: int) -> int:
    """A wait of ms as clocks can take it: from none to `AHEAD_MS_MAX`."""
    return max(0, min(wait_ms, AHEAD_MS_MAX))


class Clock(Protocol):
    """Two readings: what runs is monotonic, what is written down is wall time."""

    def monotonic_ns(self) -> int:
        """Nanoseconds that only grow; for deadlines."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970 UTC; for timestamps."""


def due_after(clock: Clock, wait_ms: int) -> int:
    """When so many ms will have gone, by the monotonic clock; see `bounded_ms`.

    Here waits become times, those of all who ask: clients, operators, settings, formulas.
    """
    return clock.monotonic_ns() + bounded_ms(wait_ms) * MS


class ManualClock:
    """A clock that stands still until it is told to move: for tests and simulations."""

    __slots__ = ("_now_ns", "_wall_start_ms")

    def __init__(self, wall_start_ms: int = 1_700_000_000_000) -> None:
        self._now_ns = 0
        self._wall_start_ms = wall_start_ms

    def monotonic_ns(self) -> int:
        return self._now_ns

    def wall_ms(self) -> int:
        return self._wall_start_ms + self._now_ns // 1_000_000

    def jump_wall_ms(self, delta_ms: int) -> None:
        """Somebody sets the wall clock; what is monotonic goes on as before."""
        self._wall_start_ms += delta_ms

    def advance_ns(self, delta_ns: int) -> int:
        """Move forward; returns the new monotonic reading."""
        assert delta_ns >= 0
        self._now_ns += delta_ns
        return self._now_ns
