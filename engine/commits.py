"""Commits of transactions. A large one is applied in slices at the ends of turns."""

from collections import deque
from typing import TYPE_CHECKING

from .context import BrokerContext

if TYPE_CHECKING:
    from .clients.transaction import Commit

#: Messages times queues that a commit publishes in one slice (2 to 5 ms). A smaller commit is applied at once.
COMMIT_SLICE = 2_000


class Commits:
    """The large commits of one broker. Only the first of those `waiting` may have begun."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context
        self.waiting: deque[Commit] = deque()

    @property
    def pending(self) -> bool:
        """Whether a slice can be done. No commit begins while the journal cannot write."""
        waiting = self.waiting
        if not waiting:
            return False
        durability = self._context.storage.durability
        return waiting[0].has_begun or durability is None or not durability.has_failed

    @property
    def is_under_way(self) -> bool:
        """Whether a commit is partly applied."""
        return bool(self.waiting) and self.waiting[0].has_begun

    def apply(self, commit: "Commit") -> None:
        """Apply a transaction: at once, or in slices if it is large."""
        if commit.cost <= COMMIT_SLICE:
            commit.work()
        else:
            self.waiting.append(commit)

    def work(self) -> None:
        """Do a slice of the first commit. No commit begins while dead letters are waiting."""
        commit = self.waiting[0]
        if not commit.has_begun and (self._context.dead_letters.waiting or not self.pending):
            return
        commit.work(COMMIT_SLICE)
        if commit.is_done:
            self.waiting.popleft()
            commit.session.committed()
            client = commit.session.client
            if not client.closed:
                self._context.touched[client] = None
