"""The clock that is passed to the engine. Tests of a whole broker move its time by `leveret.testing.clock`."""

from typing import Protocol

MS = 1_000_000
#: Maximum wait in ms (a hundred years), because journals and stores have 64 bits for a time.
AHEAD_MS_MAX = 36_525 * 86_400_000


def bounded_ms(wait_ms: int) -> int:
    """A wait in ms, limited to 0 .. `AHEAD_MS_MAX`."""
    return max(0, min(wait_ms, AHEAD_MS_MAX))


class Clock(Protocol):
    """A clock with two readings: monotonic time for deadlines, wall time for times that are stored."""

    def monotonic_ns(self) -> int:
        """Nanoseconds that never fall."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970 UTC."""


def due_after(clock: Clock, wait_ms: int) -> int:
    """The monotonic time in ns after a wait in ms, limited by `bounded_ms`. All waits become times by this function."""
    return clock.monotonic_ns() + bounded_ms(wait_ms) * MS


class ManualClock:
    """A clock that moves only by its methods: for tests, simulations, and brokers that only try settings."""

    def __init__(self, wall_start_ms: int = 1_700_000_000_000) -> None:
        self._now_ns = 0
        self._wall_start_ms = wall_start_ms

    def monotonic_ns(self) -> int:
        return self._now_ns

    def wall_ms(self) -> int:
        return self._wall_start_ms + self._now_ns // 1_000_000

    def jump_wall_ms(self, delta_ms: int) -> None:
        """Change the wall time alone."""
        self._wall_start_ms += delta_ms

    def advance_ns(self, delta_ns: int) -> int:
        """Move both readings forward. Returns the new monotonic reading."""
        assert delta_ns >= 0
        self._now_ns += delta_ns
        return self._now_ns
