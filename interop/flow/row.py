"""Rows: functions that use a client, check what it sees, and return that in words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .client import Differs, RowClient
from .operator import Operator

#: Seconds that a busy machine may add to times. The tolerance of the rows is 150 ms.
SLACK_SECONDS = 0.15


@dataclass(frozen=True, slots=True)
class Scene:
    """What a row works with. `name`: the end of its queues' names. `slack`: seconds by which events may be late."""

    client: RowClient
    operator: Operator
    name: str
    slack: float = SLACK_SECONDS

    def queue(self, kind: str) -> str:
        """The name of a queue that has the address settings of a pattern. `kind`: the first word of the pattern."""
        return f"{kind}.{self.name}"


@dataclass(frozen=True, slots=True)
class Row:
    """A row. `name`: E01 to E32: as in the queues page, G.E; T and a number: row of its decision table, E.4; M: of
    E.5.2; or a word.

    `world`: the name of its configuration. `needs`: of its client: operation, operation:argument, or scenario:NAME.
    """

    name: str
    world: str
    says: str
    needs: tuple[str, ...]
    play: Callable[[Scene], str]


ROWS: list[Row] = []


def row(name: str, world: str, *needs: str) -> Callable[[Callable[[Scene], str]], Callable[[Scene], str]]:
    """Register a row, which says what its docstring says."""

    def register(play: Callable[[Scene], str]) -> Callable[[Scene], str]:
        assert play.__doc__ is not None
        ROWS.append(Row(name, world, play.__doc__.strip().rstrip("."), needs, play))
        return play

    return register


def expect(fact: bool, seen: Any) -> None:
    """Raises: Differs, if `fact` is false. `seen`: what was seen instead."""
    if not fact:
        raise Differs(str(seen))
