"""The machine's clocks, unaffected by patches of tests: freezegun replaces the functions of every module that it finds.

A private copy of the module `time` has its own functions, even if this file is imported while time is frozen.
"""

from importlib.machinery import BuiltinImporter
from importlib.util import module_from_spec

import trio

_spec = BuiltinImporter.find_spec("time")
assert _spec is not None and _spec.loader is not None
_time = module_from_spec(_spec)
_spec.loader.exec_module(_time)

#: As `time.monotonic_ns` and `time.time_ns`.
monotonic_ns = _time.monotonic_ns
time_ns = _time.time_ns


class RealClock(trio.abc.Clock):
    """trio's clock on these functions: its timeouts end after real seconds."""

    def start_clock(self) -> None:
        pass

    def current_time(self) -> float:
        return float(monotonic_ns() / 1e9)

    def deadline_to_sleep_time(self, deadline: float) -> float:
        return deadline - self.current_time()
