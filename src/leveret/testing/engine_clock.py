"""The clocks of a test broker: the engine's, real or virtual (`clock.py` moves it), and trio's, always real.

Patches of tests do not change them: freezegun replaces the functions of every module that it finds, but a private copy
of the module `time` has its own functions, even if this file is imported while time is frozen.
"""

from importlib.machinery import BuiltinImporter
from importlib.util import module_from_spec
from typing import Literal

import trio

_spec = BuiltinImporter.find_spec("time")
assert _spec is not None and _spec.loader is not None
_time = module_from_spec(_spec)
_spec.loader.exec_module(_time)

#: As `time.monotonic_ns` and `time.time_ns`.
monotonic_ns = _time.monotonic_ns
time_ns = _time.time_ns

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


class RealClock(trio.abc.Clock):
    """trio's clock on these functions: its timeouts end after real seconds."""

    def start_clock(self) -> None:
        pass

    def current_time(self) -> float:
        return float(monotonic_ns() / 1e9)

    def deadline_to_sleep_time(self, deadline: float) -> float:
        return deadline - self.current_time()
