"""Trio as a function of a seed: virtual time, the same order of tasks every time, nothing random from the system."""

from __future__ import annotations

import gc
import os
import random
import secrets
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import trio

from .schedule import SECOND, Schedule, has_calls

#: Of the garbage collector: what lasts is looked through when there are ten million more objects.
THRESHOLDS = 100_000, 10, 10

#: Of the run that is under way, else of the last one, whose clock stands still.
_schedules: list[Schedule] = []


@contextmanager
def _everything_from(chance: random.Random) -> Iterator[None]:
    """What is random comes from `chance`: the order of tasks that are ready, names, salts, identities of journals.

    Trio has no public way to fix the order of tasks; its own integration with Hypothesis sets the same two names.
    """
    core: Any = trio._core._run  # type: ignore[attr-defined]
    before = core._ALLOW_DETERMINISTIC_SCHEDULING, core._r, os.urandom, secrets.token_bytes
    core._ALLOW_DETERMINISTIC_SCHEDULING = True
    core._r = random.Random(chance.getrandbits(64))
    octets = random.Random(chance.getrandbits(64))
    os.urandom = octets.randbytes  # type: ignore[assignment]
    secrets.token_bytes = lambda count=32: octets.randbytes(32 if count is None else count)
    try:
        yield
    finally:
        core._ALLOW_DETERMINISTIC_SCHEDULING, core._r, os.urandom, secrets.token_bytes = before


@contextmanager
def _without_system(schedule: Schedule) -> Iterator[None]:
    """The system has no events: it is asked only when somebody calls from outside of trio, as a signal does.

    Trio asks it in each turn of its loop, and has no public way to be told that a turn is over.
    """
    manager: Any = trio._core._run.TheIOManager  # type: ignore[attr-defined]
    ask = manager.get_events

    def get_events(self: Any, timeout: float) -> Any:
        schedule.tasks_had_their_turn()
        return ask(self, 0) if has_calls() else ()

    with patch.object(manager, "get_events", get_events):
        yield


@contextmanager
def _little_collected() -> Iterator[None]:
    """The garbage collector looks through what is new seldom, as in `leveret serve`."""
    before = gc.get_threshold()
    gc.set_threshold(*THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def run(main: Callable[[], Awaitable[None]], seed: int) -> None:
    """Run `main` to its end in virtual time."""
    schedule = Schedule()
    with ExitStack() as stack:
        stack.enter_context(_everything_from(random.Random(f"loop {seed}")))
        stack.enter_context(_without_system(schedule))
        stack.enter_context(_little_collected())
        _schedules[:] = [schedule]
        trio.run(main, clock=schedule.clock)


def schedule() -> Schedule:
    """Of the world that runs."""
    return _schedules[-1]


def now_ns() -> int:
    """Virtual nanoseconds since the run began."""
    return _schedules[-1].now_ns


class SimulatedClock:
    """`engine.Clock`: what is monotonic is trio's virtual time; somebody may set the wall clock."""

    def __init__(self, wall_start_ms: int = 1_750_000_000_000) -> None:
        self._wall_start_ms = wall_start_ms

    def monotonic_ns(self) -> int:
        return now_ns()

    def wall_ms(self) -> int:
        return self._wall_start_ms + now_ns() // 1_000_000

    def jump_wall_ms(self, delta_ms: int) -> None:
        """Somebody sets the wall clock; what is monotonic goes on as before."""
        self._wall_start_ms += delta_ms


async def pass_time(seconds: float) -> None:
    """Wait in virtual time."""
    await schedule().pass_time(round(seconds * SECOND))
