"""A world, as far as faults touch it."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Protocol

from ..books import Books
from ..clients.knowledge import Knowledge
from ..disk import Disk
from ..host import Host
from ..lives import Lives
from ..loop import SECOND, SimulatedClock
from ..network import Network
from ..plan import Plan
from ..schedule import Schedule

#: What a fault makes of the world is over after so long.
LONGEST_S = 30


class Victim(Protocol):
    """See the module."""

    host: Host | None
    books: Books
    lives: Lives
    network: Network
    disk: Disk
    clock: SimulatedClock
    schedule: Schedule
    knowledge: Knowledge

    plan: Plan

    def configure(self, more: str, change: Callable[[str], str] = ...) -> None:
        pass

    def note(self, text: str) -> None:
        """Something that two runs of one seed have in common."""


Fault = Callable[[Victim, Random], object]


def some_time_ns(chance: Random, mean_s: float) -> int:
    """Of the order of `mean_s`, and never too long."""
    return int(min(chance.expovariate(1 / mean_s), LONGEST_S) * SECOND)
