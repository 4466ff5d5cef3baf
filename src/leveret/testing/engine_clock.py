"""The clock of a test broker's engine: real, or virtual and moved by `clock.py` from deadline to deadline."""

from typing import Literal

from .real_time import monotonic_ns, time_ns

ClockMode = Literal["real", "virtual"]


class EngineClock:
    """An `engine.Clock` that starts at 0; `start_ms`: the wall time then (milliseconds since 1970 UTC)."""

    __slots__ = ("_now_ns", "_origin_ns", "mode", "start_ms")

    def __init__(self, mode: ClockMode, start_ms: int | None = None) -> None:
        self.mode = mode
        self.start_ms = time_ns() // 1_000_000 if start_ms is None else start_ms
        self._now_ns = 0
        self._origin_ns = monotonic_ns()

    @property
    def is_virtual(self) -> bool:
        """Whether only `move_to` moves it."""
        return self.mode == "virtual"

    def monotonic_ns(self) -> int:
        return self._now_ns if self.mode == "virtual" else monotonic_ns() - self._origin_ns

    def wall_ms(self) -> int:
        return self.start_ms + self.monotonic_ns() // 1_000_000

    def move_to(self, now_ns: int) -> None:
        """Advance the virtual time; an earlier time has no effect."""
        assert self.is_virtual
        self._now_ns = max(self._now_ns, now_ns)
