"""Trio as a function of a seed: virtual time, the same order of tasks every time, nothing random from the system."""

from __future__ import annotations

import os
import random
import secrets
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import trio

from .schedule import SECOND, Schedule

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


def run(main: Callable[[], Awaitable[None]], seed: int) -> None:
    """Run `main` to its end in virtual time."""
    with _everything_from(random.Random(f"loop {seed}")):
        _schedules.append(Schedule())
        try:
            trio.run(main, clock=schedule().clock)
        finally:
            _schedules.pop()


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
        """See `Clock`."""
        return now_ns()

    def wall_ms(self) -> int:
        """See `Clock`."""
        return self._wall_start_ms + now_ns() // 1_000_000

    def jump_wall_ms(self, delta_ms: int) -> None:
        """Somebody sets the wall clock; what is monotonic goes on as before."""
        self._wall_start_ms += delta_ms


async def pass_time(seconds: float) -> None:
    """Wait in virtual time."""
    await schedule().pass_time(round(seconds * SECOND))
