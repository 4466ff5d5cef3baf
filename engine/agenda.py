"""The chores of the broker: work that is too much for one turn, so that each end of a turn does a slice of each."""

from typing import Protocol


class Chore(Protocol):
    """One kind of work."""

    @property
    def pending(self) -> bool:
        """Whether something is left to do."""

    def work(self) -> None:
        """One slice. Called while `pending`."""


class Agenda:
    """All chores, in the order in which they have their slices. Itself one: `pending` while one of them may be.

    A plain attribute: each turn looks at it. A chore that gets something to do sets it.
    """

    __slots__ = ("_chores", "pending")

    def __init__(self) -> None:
        self._chores: list[Chore] = []
        self.pending = False

    def add(self, chore: Chore) -> None:
        """One more, behind the others."""
        self._chores.append(chore)

    def work(self) -> None:
        """A slice of each; they may give each other more to do."""
        for chore in self._chores:
            if chore.pending:
                chore.work()
        self.pending = any(chore.pending for chore in self._chores)
