"""How a row is written: a function that plays it with one client, and tells what the client saw."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .hand import Differs, Hand
from .operator import Operator

#: What a busy machine may add to times, in seconds. The rows' own tolerance is 150 ms.
SLACK_SECONDS = 0.15


@dataclass(frozen=True, slots=True)
class Scene:
    """What a row has: its client, the operator, a name for its queues, and how late things may be."""

    hand: Hand
    operator: Operator
    name: str
    slack: float = SLACK_SECONDS

    def queue(self, kind: str) -> str:
        """A name that the world has settings for: `kind` is the first word of their pattern."""
        return f"{kind}.{self.name}"


@dataclass(frozen=True, slots=True)
class Row:
    """`name`: E01 to E32 of the queues page, G.E; T and a number: row of its decision table, E.4; M: of E.5.2; or a
    word.

    `needs`: what a driver must not lack: operation, operation:argument, or scenario:NAME.
    """

    name: str
    world: str
    says: str
    needs: tuple[str, ...]
    play: Callable[[Scene], str]


ROWS: list[Row] = []


def row(name: str, world: str, *needs: str) -> Callable[[Callable[[Scene], str]], Callable[[Scene], str]]:
    """Register a row; its docstring is what it says."""

    def register(play: Callable[[Scene], str]) -> Callable[[Scene], str]:
        assert play.__doc__ is not None
        ROWS.append(Row(name, world, play.__doc__.strip().rstrip("."), needs, play))
        return play

    return register


def expect(fact: bool, seen: Any) -> None:
    """Raises: Differs: the fact is not one; `seen` is what was there instead."""
    if not fact:
        raise Differs(str(seen))
